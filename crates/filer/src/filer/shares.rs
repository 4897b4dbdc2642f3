//! Enforces fair shares of the limits that all clients have in common: the number of opens, the
//! number of locks, and the number of client records without a session.
//!
//! The function [`fair_share`] defines a fair share. The last `OPENS_RESERVED` opens are reserved
//! for this host's superuser.
//!
//! Invariant: a client never loses state to make room for another client.

use super::Filer;
use crate::clients::Client;
use crate::{ClientKey, Principal, fair_share};

impl Filer {
    /// Returns true if a client may have one more open, given the opens of all clients of the same
    /// holder (a local user or an address).
    pub(super) fn may_have_open(&self, client: ClientKey) -> bool {
        let (max, count) = (self.config.opens_max, self.opens.count());
        if count < max / 2 {
            return true;
        }
        let own = self.sum_of_owner(client, |client| client.opens.count);
        own.is_none_or(|own| fair_share(own, count + OPENS_RESERVED.min(max / 16), max))
    }

    /// Returns true if a client may have one more lock, given the locks of all clients of the same
    /// holder (a local user or an address).
    pub(super) fn may_have_lock(&self, client: ClientKey) -> bool {
        let (max, count) = (self.config.locks.locks_max, self.locks.count());
        if count < max / 2 {
            return true;
        }
        let own = self.sum_of_owner(client, |client| self.locks.count_of(client.id));
        own.is_none_or(|own| fair_share(own, count, max))
    }

    /// Returns true if the state of one more client of the same holder (a local user or an address)
    /// may be kept without a session.
    pub(super) fn may_be_kept(&self, client: ClientKey) -> bool {
        let (max, count) = (self.config.clients_kept_max, self.clients.kept_count());
        if count < max / 2 {
            return true;
        }
        let own = self.sum_of_owner(client, |client| u32::from(client.expires.is_some()));
        count < max && own.is_none_or(|own| fair_share(own, count, max))
    }

    /// Returns a sum over all clients of the same holder (a local user or an address) as this
    /// client. `None` for the superuser of this host, to whom no limit per holder applies.
    fn sum_of_owner(&self, client: ClientKey, of: impl Fn(&Client) -> u32) -> Option<u32> {
        let client = self.clients.get(client)?;
        if client.principal == Principal::LocalUser(0) {
            return None;
        }
        let is_same = |other: &&Client| {
            other.principal == client.principal
                && (client.principal.is_one() || other.holder == client.holder)
        };
        Some(self.clients.iter().filter(is_same).map(of).sum())
    }
}

/// The number of opens reserved for this host's superuser.
const OPENS_RESERVED: u32 = 1024;

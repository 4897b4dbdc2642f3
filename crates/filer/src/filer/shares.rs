//! Who may have how much of what clients share: opens, and places without a session.
//!
//! The rule is that of [`fair_share`]. The last opens are for this host's superuser.
//!
//! Invariant: nothing of a client is taken away for another.

use super::Filer;
use crate::clients::Client;
use crate::{ClientKey, Principal, fair_share};

impl Filer {
    /// Whether a client may have one more open beside its own others and those of whoever it
    /// belongs to.
    pub(super) fn may_have_open(&self, client: ClientKey) -> bool {
        let (max, count) = (self.config.opens_max, self.opens.count());
        if count < max / 2 {
            return true;
        }
        let own = self.sum_of_owner(client, |client| client.opens.count);
        own.is_none_or(|own| fair_share(own, count + OPENS_KEPT_BACK.min(max / 16), max))
    }

    /// Whether one more client of the same owner may be kept without a session.
    pub(super) fn may_be_kept(&self, client: ClientKey) -> bool {
        let (max, count) = (self.config.clients_kept_max, self.clients.kept_count());
        if count < max / 2 {
            return true;
        }
        let own = self.sum_of_owner(client, |client| u32::from(client.expires.is_some()));
        count < max && own.is_none_or(|own| fair_share(own, count, max))
    }

    /// A sum over all clients of a client's owner; `None` for the superuser of this host.
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

/// The last opens are for this host's superuser.
const OPENS_KEPT_BACK: u32 = 1024;

//! The grace period after a restart, in which clients reclaim the state that they held (draft
//! 4.4.1.6, following NFSv4).
//!
//! Invariants:
//! - During the grace period the server grants only state that its owner held before, so that
//!   nothing is granted that conflicts with a later reclaim.
//! - A client has finished reclaiming when it requests new state (even a lock test) or disconnects.
//!   An NFSv4 client has finished when it says so (RECLAIM_COMPLETE). When all clients have
//!   finished, the period ends early. While clients reclaim, it ends later, by at most one lease.
//! - While a client may have plain locks to reclaim, no other client may read or write, because the
//!   server does not know the ranges of these locks.
//!
//! A client that has not finished when the period ends keeps the state that it has reclaimed. But
//! the client may believe that it also holds the state that it has not reclaimed, which other
//! clients may now get. So the client is recorded on stable storage as a client without state, and
//! it can reclaim nothing after another restart. At its next open, lock, or lock test, it is
//! recorded as a client with state again.

use std::collections::BTreeMap;
use std::time::Duration;

use dafs_ops::Fault;
use dafs_types::{Moment, Verifier};

use super::Filer;
use crate::clients::{Client, Principal};
use crate::{ClientKey, Counters};

/// A record on stable storage which says that a client has state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    /// The client id string that the client gave itself.
    pub name: Box<[u8]>,
    /// The verifier of the client's incarnation.
    pub verifier: Verifier,
    /// The principal that the client authenticated as.
    pub principal: Principal,
    /// True if the client may hold plain locks, which have no records of their own.
    pub has_locks: bool,
}

/// The state of a grace period in progress.
#[derive(Debug)]
pub(super) struct Grace {
    ends: Moment,
    /// The time at which the period ends even if clients still reclaim.
    ends_at_most: Moment,
    expected: BTreeMap<Box<[u8]>, Expected>,
}

/// The time for which the grace period lasts at least after a reclaim: twice the time between two
/// calls of [`Filer::on_tick`].
const NEXT_RECLAIM: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Expected {
    verifier: Verifier,
    principal: Principal,
    has_locks: bool,
    /// True if the client has finished reclaiming.
    is_done: bool,
}

impl Filer {
    /// Begins the grace period after a restart. `clients` are the clients that had state when the
    /// previous server ended; they can reclaim this state for the time of one lease.
    pub fn begin_grace(&mut self, clients: Vec<ClientRecord>, now: Moment) {
        if clients.is_empty() {
            return;
        }
        let expect = |record: ClientRecord| {
            let ClientRecord { name, verifier, principal, has_locks } = record;
            (name, Expected { verifier, principal, has_locks, is_done: false })
        };
        let expected = clients.into_iter().map(expect).collect();
        self.locks.begin_grace();
        let ends = now.after(self.config.lease);
        let ends_at_most = ends.after(self.config.lease);
        self.grace = Some(Grace { ends, ends_at_most, expected });
    }

    /// Returns true during the grace period.
    #[must_use]
    pub fn is_in_grace(&self) -> bool {
        self.grace.is_some()
    }

    /// Checks whether a client may be granted new state. A client that requests new state has
    /// finished reclaiming, unless its protocol has a request to say so.
    ///
    /// # Errors
    /// GRACE during the grace period; NOT_AUTHENTICATED if the caller is not a client.
    #[inline]
    pub fn check_grace(&mut self, client: ClientKey, now: Moment) -> Result<(), Fault> {
        if self.grace.is_none() {
            return Ok(());
        }
        if !self.client(client)?.ends_reclaims_itself {
            self.end_reclaims_of(client, now);
        }
        if self.grace.is_none() { Ok(()) } else { Err(Fault::Grace) }
    }

    /// Handles the report of a client that it has reclaimed everything. If all clients have done
    /// so, the grace period ends.
    pub fn complete_reclaims(&mut self, client: ClientKey, now: Moment) {
        self.end_reclaims_of(client, now);
    }

    /// Checks whether a client may read and write the files that it has open.
    ///
    /// # Errors
    /// GRACE while another client may still reclaim a plain lock, which may conflict.
    #[inline]
    pub fn check_data_grace(&mut self, client: ClientKey) -> Result<(), Fault> {
        if self.grace.is_none() { Ok(()) } else { self.may_move_in_grace(client) }
    }

    #[cold]
    fn may_move_in_grace(&mut self, client: ClientKey) -> Result<(), Fault> {
        let own = Some(&self.client(client)?.name);
        let Some(grace) = &self.grace else { return Ok(()) };
        let mut others = grace.expected.iter().filter(|(name, _)| Some(*name) != own);
        let may_take_back = |expected: &Expected| expected.has_locks && !expected.is_done;
        let stands_against = others.any(|(_, expected)| may_take_back(expected));
        if stands_against { Err(Fault::Grace) } else { Ok(()) }
    }

    /// Records that a client has finished reclaiming.
    #[cold]
    pub(super) fn end_reclaims_of(&mut self, slot: ClientKey, now: Moment) {
        let Some(grace) = &mut self.grace else { return };
        let Some(client) = self.clients.get(slot) else { return };
        // A client with the same name but another principal must not end the reclaims of the
        // expected client.
        match grace.expected.get_mut(&client.name) {
            Some(expected) if expected.is(client) => expected.is_done = true,
            _ => {}
        }
        self.end_grace_if_all_are_done(now);
    }

    fn end_grace_if_all_are_done(&mut self, now: Moment) {
        let is_over = self
            .grace
            .as_ref()
            .is_some_and(|grace| grace.expected.values().all(|expected| expected.is_done));
        if is_over {
            self.end_grace(now);
        }
    }

    /// Checks whether a client may still reclaim state. A client that may do so has time to reclaim
    /// more: it may have come back late, and have thousands of opens.
    ///
    /// # Errors
    /// EXPIRED if the grace period has ended or the client held no state.
    pub(super) fn may_reclaim(&mut self, slot: ClientKey, now: Moment) -> Result<(), Fault> {
        let grace = self.grace.as_mut().ok_or(Fault::NoGrace)?;
        let client = self.clients.get(slot).ok_or(Fault::NoClient)?;
        match grace.expected.get(&client.name) {
            Some(expected) if expected.is(client) => {
                grace.ends = grace.ends.max(now.after(NEXT_RECLAIM).min(grace.ends_at_most));
                Ok(())
            }
            _ => Err(Fault::NoGrace),
        }
    }

    /// Records that a client of the previous server has authenticated again.
    pub(super) fn note_return(&mut self, slot: ClientKey, now: Moment) {
        let Some(grace) = &mut self.grace else { return };
        let Some(client) = self.clients.get_mut(slot) else { return };
        let Some(expected) = grace.expected.get_mut(&client.name) else { return };
        // A client with the same name but another principal cannot reclaim, nor end the reclaims of
        // the expected client.
        if expected.principal != client.principal {
            return;
        }
        if expected.verifier == client.verifier {
            // If the client disconnected after it had finished reclaiming, its record was removed.
            (client.is_recorded, client.has_locks) = (!expected.is_done, expected.has_locks);
        } else {
            // The client has restarted, so it has no state to reclaim.
            let name = client.name.clone();
            grace.expected.remove(&name);
            self.lapsed.push(name);
            self.end_grace_if_all_are_done(now);
        }
    }

    /// Ends the grace period if its time is over.
    pub(super) fn tick_grace(&mut self, now: Moment) {
        if self.grace.as_ref().is_some_and(|grace| grace.ends <= now) {
            self.end_grace(now);
        }
    }

    fn end_grace(&mut self, now: Moment) {
        let Some(grace) = self.grace.take() else { return };
        self.locks.grace_over(now);
        for (name, _) in grace.expected.into_iter().filter(|(_, expected)| !expected.is_done) {
            self.clients.set_unrecorded(&name);
            self.lapsed.push(name);
        }
        self.has_grace_ended = true;
    }

    /// Returns true if a record on stable storage gives a client the right to reclaim state, and
    /// the client may still do so.
    pub(super) fn is_awaited(&self, client: &Client) -> bool {
        let expected = self.grace.as_ref().and_then(|grace| grace.expected.get(&client.name));
        expected.is_some_and(|expected| expected.is(client) && !expected.is_done)
    }

    /// Returns the names of the clients whose stable records must be removed, because they have no
    /// state left to reclaim or may believe that they have more state than they do. The flag is
    /// true if a grace period has ended since the last call; a record of its end must then be on
    /// stable storage before the server grants new state durably.
    pub fn take_expired_records(&mut self) -> (Vec<Box<[u8]>>, bool) {
        (std::mem::take(&mut self.lapsed), std::mem::take(&mut self.has_grace_ended))
    }

    /// Returns the records of all clients that have state, for stable storage.
    #[must_use]
    pub fn client_records(&self) -> Vec<ClientRecord> {
        let mut records: BTreeMap<Box<[u8]>, ClientRecord> = BTreeMap::new();
        if let Some(grace) = &self.grace {
            for (name, expected) in &grace.expected {
                records.insert(name.clone(), expected.record(name));
            }
        }
        for client in self.clients.iter().filter(|client| client.is_recorded) {
            records.insert(client.name.clone(), ClientRecord::of(client));
        }
        records.into_values().collect()
    }

    /// Returns the record of a client that has state but no record on stable storage. `None` if the
    /// client needs no new record. The server must make the record durable before it replies to the
    /// client.
    pub fn client_to_record(&mut self, client: ClientKey) -> Option<ClientRecord> {
        let client = self.clients.get_mut(client)?;
        if client.is_recorded || client.opens.count == 0 {
            return None;
        }
        client.is_recorded = true;
        Some(ClientRecord::of(client))
    }

    /// Returns the name of a client that has a plain lock but is not recorded as having one. `None`
    /// if the client needs no new record. The server must make such a record durable before it
    /// replies to the client.
    pub fn lock_holder_to_record(&mut self, client: ClientKey) -> Option<Box<[u8]>> {
        let client = self.clients.get_mut(client)?;
        let is_known = std::mem::replace(&mut client.has_locks, true);
        (!is_known).then(|| client.name.clone())
    }

    /// Sets the grace period's fields of the counters.
    pub(super) fn count_grace(&self, counters: &mut Counters) {
        counters.clients_expected = self.grace.as_ref().map_or(0, |grace| {
            grace.expected.values().filter(|expected| !expected.is_done).count() as u32
        });
    }
}

impl Expected {
    fn is(&self, client: &Client) -> bool {
        self.verifier == client.verifier && self.principal == client.principal
    }

    fn record(&self, name: &[u8]) -> ClientRecord {
        let (verifier, principal) = (self.verifier, self.principal.clone());
        ClientRecord { name: name.into(), verifier, principal, has_locks: self.has_locks }
    }
}

impl ClientRecord {
    fn of(client: &Client) -> Self {
        Self {
            name: client.name.clone(),
            verifier: client.verifier,
            principal: client.principal.clone(),
            has_locks: client.has_locks,
        }
    }
}

//! The time after a restart in which clients take back what they held (draft 4.4.1.6, as
//! NFSv4 has it).
//!
//! Invariant: while it lasts no state is granted but what its owner held before, so that
//! nothing can be granted that stands against what is yet to be taken back. Whoever asks
//! for something new, be it whether there is a lock, or leaves, has taken back what it wants;
//! when all have, the time is over early. And nobody reads or writes while another may have
//! plain locks to take back: nobody knows of which ranges.
//!
//! Whoever has not said so when the time is over keeps what it has taken back. But it may believe
//! that it still holds the rest, which others may have from now on. So it is written down as a
//! client without state, and the next server lets it take nothing back. It is written down again
//! with the next thing that it opens or locks, or asks a lock about.

use std::collections::BTreeMap;

use dafs_ops::Fault;
use dafs_types::{Moment, Verifier};

use super::Filer;
use crate::clients::{Client, Principal};
use crate::{ClientKey, Counters};

/// A client that has state, as it is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    /// Its name for itself.
    pub name: Box<[u8]>,
    /// Its life.
    pub verifier: Verifier,
    /// As whom it authenticated.
    pub principal: Principal,
    /// Whether it may hold plain locks, which are not written down one by one.
    pub has_locks: bool,
}

/// The time of taking back.
#[derive(Debug)]
pub(super) struct Grace {
    ends: Moment,
    expected: BTreeMap<Box<[u8]>, Expected>,
}

#[derive(Debug)]
struct Expected {
    verifier: Verifier,
    principal: Principal,
    has_locks: bool,
    /// It has taken back what it wants.
    is_done: bool,
}

impl Filer {
    /// The server has started again, and these clients had state when the last one ended.
    /// They have as long as a lease to take it back.
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
        self.grace = Some(Grace { ends: now.after(self.config.lease), expected });
    }

    /// Whether clients are taking back what they held.
    #[must_use]
    pub fn is_in_grace(&self) -> bool {
        self.grace.is_some()
    }

    /// Whether a client may have something it did not hold before. Asking says
    /// that it has taken back everything else.
    ///
    /// # Errors
    /// GRACE: not yet; NOT_AUTHENTICATED.
    #[inline]
    pub fn may_take(&mut self, client: ClientKey, now: Moment) -> Result<(), Fault> {
        if self.grace.is_none() {
            return Ok(());
        }
        self.client(client)?;
        self.end_reclaims_of(client, now);
        if self.grace.is_none() { Ok(()) } else { Err(Fault::Grace) }
    }

    /// Whether a client may read and write what it has open.
    ///
    /// # Errors
    /// GRACE: another client may yet take a plain lock back that stands against it.
    #[inline]
    pub fn may_move(&mut self, client: ClientKey) -> Result<(), Fault> {
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

    /// A client has taken back what it wants.
    #[cold]
    pub(super) fn end_reclaims_of(&mut self, slot: ClientKey, now: Moment) {
        let Some(grace) = &mut self.grace else { return };
        let Some(client) = self.clients.get(slot) else { return };
        // Somebody else by that name says nothing of what this one wants.
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

    /// Whether a client may take something back.
    ///
    /// # Errors
    /// EXPIRED: the time for it is over, or this client held nothing.
    pub(super) fn may_reclaim(&self, client: &Client) -> Result<(), Fault> {
        let grace = self.grace.as_ref().ok_or(Fault::NoGrace)?;
        match grace.expected.get(&client.name) {
            Some(expected) if expected.is(client) => Ok(()),
            _ => Err(Fault::NoGrace),
        }
    }

    /// A client has authenticated.
    pub(super) fn note_return(&mut self, slot: ClientKey, now: Moment) {
        let Some(grace) = &mut self.grace else { return };
        let Some(client) = self.clients.get_mut(slot) else { return };
        let Some(expected) = grace.expected.get_mut(&client.name) else { return };
        // Somebody else by that name gets nothing, and ends nothing.
        if expected.principal != client.principal {
            return;
        }
        if expected.verifier == client.verifier {
            // Who left when it was done, and comes again, is written down no longer.
            (client.is_recorded, client.has_locks) = (!expected.is_done, expected.has_locks);
        } else {
            // It has restarted itself, and has nothing to take back.
            let name = client.name.clone();
            grace.expected.remove(&name);
            self.lapsed.push(name);
            self.end_grace_if_all_are_done(now);
        }
    }

    /// Time passes.
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

    /// Whether a client may have more to take back: it is written down, with or without state.
    pub(super) fn is_awaited(&self, client: &Client) -> bool {
        let expected = self.grace.as_ref().and_then(|grace| grace.expected.get(&client.name));
        expected.is_some_and(|expected| expected.is(client) && !expected.is_done)
    }

    /// Clients that are to be written down no longer: they have no state, and none to take
    /// back, or may believe that they have more than is theirs. True with it if a time of taking
    /// back has ended since the last call: nothing new may be granted for good before that is
    /// written down.
    pub fn take_lapsed(&mut self) -> (Vec<Box<[u8]>>, bool) {
        (std::mem::take(&mut self.lapsed), std::mem::take(&mut self.has_grace_ended))
    }

    /// The clients that have state, to be written down.
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

    /// The record of a client, if it has state now and none is written down yet.
    /// The driver writes it, and lets no answer out before that is durable.
    pub fn client_to_record(&mut self, client: ClientKey) -> Option<ClientRecord> {
        let client = self.clients.get_mut(client)?;
        if client.is_recorded || client.opens.count == 0 {
            return None;
        }
        client.is_recorded = true;
        Some(ClientRecord::of(client))
    }

    /// The name of a client, if it has a plain lock now and that is not written down
    /// yet. The driver writes it, and lets no answer out before that is durable.
    pub fn lock_holder_to_record(&mut self, client: ClientKey) -> Option<Box<[u8]>> {
        let client = self.clients.get_mut(client)?;
        let is_known = std::mem::replace(&mut client.has_locks, true);
        (!is_known).then(|| client.name.clone())
    }

    /// Fills in what is told of it.
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

//! Reports lost data to clients.
//!
//! A write that was answered can still be lost, if its data in the cache cannot be written to the
//! file. Several clients may have the file open, and the server does not know whose bytes were
//! lost. So all of them are told: each open by its CLOSE; each session, for all of its opens of the
//! file, by a COMMIT, a stable WRITE, an APPEND or an entry of a batch, whichever comes first. An
//! unstable WRITE reports the loss too if no client has been told yet. COMMIT names no open, so a
//! client with several programs must pass the error on to each of them.
//!
//! Invariants:
//! - Every open that existed at a loss is told of it once, unless it ends without a CLOSE.
//! - A later open is not told, unless an older open of its session has not been told yet: a client
//!   may open a file again to learn from its CLOSE whether its earlier writes were lost.
//! - A session without an open of the file is told only if no other client has been told. It learns
//!   of other losses from the write verifier.

use dafs_filer::Party;
use dafs_store::StoreError;
use dafs_store::cache::{CachedFile, Listener};
use dafs_types::StateId;

use crate::Files;

impl Files<'_> {
    /// Identifies the client to which a request about a file may report losses.
    pub fn listener(&self, by: Party, file: CachedFile) -> Listener {
        let count = self.cache.losses(file);
        if count == 0 {
            // The usual case.
            return Listener::Anybody;
        }
        let opens = self.own_opens(by, file);
        let records = opens.iter().filter_map(|state| self.opened.record(*state));
        let mut heard = records.map(|record| record.heard);
        let Some(first) = heard.next() else { return Listener::Anybody };
        let unheard = std::iter::once(first).chain(heard).find(|heard| *heard != count);
        Listener::Who(unheard.unwrap_or(count))
    }

    /// The same for a request that has waited, whose client may be gone.
    pub fn listener_of(&self, by: Option<Party>, file: CachedFile) -> Listener {
        by.map_or(Listener::Nobody, |by| self.listener(by, file))
    }

    /// Takes a loss that the client has not been told of, to report it now.
    pub fn take_loss(&mut self, by: Option<Party>, file: CachedFile) -> Option<StoreError> {
        let listener = self.listener_of(by, file);
        let error = self.cache.take_loss(file, listener)?;
        if let Some(by) = by {
            self.note_heard(by, file);
        }
        Some(error)
    }

    /// Notes that a client has been told of all losses of a file so far.
    pub fn note_heard(&mut self, by: Party, file: CachedFile) {
        let count = self.cache.losses(file);
        for state in self.own_opens(by, file) {
            self.opened.note_heard(state, count);
        }
    }

    /// The number of losses that count as reported for an open that a client makes now: not more
    /// than its other opens have been told of.
    pub fn losses_known_at_open(&self, by: Party, file: CachedFile) -> u32 {
        match self.listener(by, file) {
            Listener::Who(heard) if heard != self.cache.losses(file) => heard,
            _ => self.cache.losses_before_open(file),
        }
    }

    /// The client's opens of a file.
    fn own_opens(&self, by: Party, file: CachedFile) -> Vec<StateId> {
        let key = self.opened.key(&self.cache.handle(file));
        key.map_or_else(Vec::new, |key| self.filer.opens_by(by.client, key))
    }
}

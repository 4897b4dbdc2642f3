//! Reports lost data to clients.
//!
//! A write can still be lost after its reply, if its data in the cache cannot be written to the
//! file. Several clients may have the file open, and the server does not know which client wrote
//! the lost bytes. So the loss is reported to all of them: to each open in the reply to its CLOSE,
//! and to each session, for all of its opens of the file, in the reply to its next COMMIT, stable
//! WRITE, APPEND or batch request. An unstable WRITE also reports the loss, if no client was told
//! about it yet. COMMIT names no open, so a client that serves several programs must pass the error
//! on to each of these programs.
//!
//! Invariants:
//! - A loss is reported once to every open that existed at the time, unless the open ends without a
//!   CLOSE.
//! - A loss is reported to a later open only if an older open of the same session was not told
//!   about the loss yet: a client may open a file again to learn from its CLOSE whether its earlier
//!   writes were lost.
//! - A loss is reported to a session without an open of the file only if no other client was told
//!   about the loss. Such a session learns of other losses from the write verifier.

use dafs_filer::Party;
use dafs_store::StoreError;
use dafs_store::cache::{CachedFile, Listener};
use dafs_types::StateId;

use crate::Files;

impl Files<'_> {
    /// Returns which losses of data a reply to this client about a file may report.
    pub fn listener(&self, by: Party, file: CachedFile) -> Listener {
        let count = self.cache.losses(file);
        if count == 0 {
            // The usual case: no data was lost.
            return Listener::Anybody;
        }
        let opens = self.own_opens(by, file);
        let records = opens.iter().filter_map(|state| self.opened.record(*state));
        let mut heard = records.map(|record| record.heard);
        let Some(first) = heard.next() else { return Listener::Anybody };
        let unheard = std::iter::once(first).chain(heard).find(|heard| *heard != count);
        Listener::Who(unheard.unwrap_or(count))
    }

    /// Returns which losses of data a reply to a request that has waited may report. The client may
    /// have disconnected meanwhile. See [`Files::listener`].
    pub fn listener_of(&self, by: Option<Party>, file: CachedFile) -> Listener {
        by.map_or(Listener::Nobody, |by| self.listener(by, file))
    }

    /// Marks as reported the losses of data that were not reported to this client yet. Returns the
    /// error to report, or `None` if there are no such losses.
    pub fn take_loss(&mut self, by: Option<Party>, file: CachedFile) -> Option<StoreError> {
        let listener = self.listener_of(by, file);
        let error = self.cache.take_loss(file, listener)?;
        if let Some(by) = by {
            self.note_heard(by, file);
        }
        Some(error)
    }

    /// Records that all losses of a file's data so far were reported to a client.
    pub fn note_heard(&mut self, by: Party, file: CachedFile) {
        let count = self.cache.losses(file);
        for state in self.own_opens(by, file) {
            self.opened.note_heard(state, count);
        }
    }

    /// Returns the number of losses of a file's data that count as reported to an open that a
    /// client makes now. If the client has other opens of the file, it is at most the smallest
    /// number that was reported to one of them.
    pub fn losses_known_at_open(&self, by: Party, file: CachedFile) -> u32 {
        match self.listener(by, file) {
            Listener::Who(heard) if heard != self.cache.losses(file) => heard,
            _ => self.cache.losses_before_open(file),
        }
    }

    /// Returns the state ids of the client's opens of a file.
    fn own_opens(&self, by: Party, file: CachedFile) -> Vec<StateId> {
        let key = self.opened.key(&self.cache.handle(file));
        key.map_or_else(Vec::new, |key| self.filer.opens_by(by.client, key))
    }
}

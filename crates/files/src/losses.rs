//! Who hears that written data was lost.
//!
//! A write that was answered can be lost: what it left in the cache cannot be written to the file.
//! Several clients may have the file open then, and the server does not know whose bytes they
//! were. So all of them hear of it: an open by its CLOSE, and a session, for all of its opens of
//! the file, by a COMMIT, a stable WRITE, an APPEND or an entry of a batch, whichever comes first.
//! An unstable WRITE tells it as well if nobody has been told yet. COMMIT names no open: a client
//! with several programs passes the word on to each.
//!
//! Invariant: every open that was there when data of its file was lost hears of it once, unless it
//! ends without a CLOSE; one that came later does not hear of it, unless an older open of its
//! session has not heard yet: a client may open a file anew to learn by that CLOSE what became of
//! what it has written. Sessions that have no open of the
//! file hear of what nobody was told; what else they have lost the write verifier tells them.

use dafs_filer::Party;
use dafs_store::StoreError;
use dafs_store::cache::{CachedFile, Listener};
use dafs_types::StateId;

use crate::Files;

impl Files<'_> {
    /// Whom a request of a client about a file tells.
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

    /// The same for a request that has waited: its client may be gone.
    pub fn listener_of(&self, by: Option<Party>, file: CachedFile) -> Listener {
        by.map_or(Listener::Nobody, |by| self.listener(by, file))
    }

    /// A loss of a file that a client has not heard of. It is told now.
    pub fn take_loss(&mut self, by: Option<Party>, file: CachedFile) -> Option<StoreError> {
        let listener = self.listener_of(by, file);
        let error = self.cache.take_loss(file, listener)?;
        if let Some(by) = by {
            self.note_heard(by, file);
        }
        Some(error)
    }

    /// A client hears of all that was lost of a file so far.
    pub fn note_heard(&mut self, by: Party, file: CachedFile) {
        let count = self.cache.losses(file);
        for state in self.own_opens(by, file) {
            self.opened.note_heard(state, count);
        }
    }

    /// What of the losses of a file a client need not hear by an open that it makes now: no less
    /// than its other opens have heard.
    pub fn heard_at_open(&self, by: Party, file: CachedFile) -> u32 {
        match self.listener(by, file) {
            Listener::Who(heard) if heard != self.cache.losses(file) => heard,
            _ => self.cache.losses_before_open(file),
        }
    }

    /// A client's opens of a file.
    fn own_opens(&self, by: Party, file: CachedFile) -> Vec<StateId> {
        let key = self.opened.key(&self.cache.handle(file));
        key.map_or_else(Vec::new, |key| self.filer.opens_by(by.client, key))
    }
}

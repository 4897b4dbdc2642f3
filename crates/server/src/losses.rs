//! Telling whoever asked that written data was lost ([`crate::files::losses`]).
//!
//! Invariant: whoever is told is noted to have heard in the same step.

use dafs_dat::EndpointId;
use dafs_store::StoreError;
use dafs_store::cache::{CachedFile, FillJob, Listener, Prepared, Spans};

use crate::reactor::Reactor;

impl Reactor {
    /// Whom a request of a connection about a file tells.
    pub(crate) fn listener_at(&mut self, endpoint: EndpointId, file: CachedFile) -> Listener {
        match self.channels.get(endpoint).map(|channel| channel.id) {
            Some(channel) => self.files().listener(channel, file),
            None => Listener::Nobody,
        }
    }

    /// A loss that a connection's session has not heard of. It is told now.
    pub(crate) fn take_loss(
        &mut self,
        endpoint: EndpointId,
        file: CachedFile,
    ) -> Option<StoreError> {
        let listener = self.listener_at(endpoint, file);
        let error = self.cache.take_loss(file, listener)?;
        self.note_heard(endpoint, file);
        Some(error)
    }

    /// Finds room for a write of a file of which something was lost: none, if it is the writer who
    /// hears of that; else others do.
    pub(crate) fn prepare_beside_loss(
        &mut self,
        endpoint: EndpointId,
        (file, offset, length): (CachedFile, u64, u32),
        spans: &mut Spans,
        jobs: &mut Vec<FillJob>,
    ) -> Prepared {
        match self.take_loss(endpoint, file) {
            Some(error) => Prepared::Failed(error),
            None => self.cache.prepare_write_anyhow(file, offset, length, spans, jobs),
        }
    }

    /// A connection's session hears of all that was lost of a file so far.
    pub(crate) fn note_heard(&mut self, endpoint: EndpointId, file: CachedFile) {
        if let Some(channel) = self.channels.get(endpoint).map(|channel| channel.id) {
            self.files().note_heard(channel, file);
        }
    }
}

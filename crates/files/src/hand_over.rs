//! Checks whether a file's descriptor may be handed over to a client for direct reads
//! (`docs/decisions/0038`).
//!
//! Invariant: a user gets a file's descriptor only if the user may read the file through the
//! server, and only under a delegation, which is recalled before the file can change.

use std::sync::Arc;

use dafs_filer::{ClientKey, FileKey, IoKind};
use dafs_ops::Fault;
use dafs_store::File;
use dafs_store::cache::{CachedFile, CommitTicket, Listener};
use dafs_types::{ClientId, Credentials, FileHandle, Stability, StateId, Status, limits};

use crate::Files;
use crate::caller::Identity;

/// A client's request for a file's descriptor under an open and a delegation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HandOverRequest {
    /// The handle of the file.
    pub file: FileHandle,
    /// The state id of the client's open of the file.
    pub state: StateId,
    /// The state id of the client's delegation of the file.
    pub delegation: StateId,
}

/// A file that may be handed over to a client.
pub struct HandOverTarget {
    /// The cache's id of the file.
    pub file: CachedFile,
    /// The client to which the file may be handed over.
    pub client: ClientId,
}

impl Files<'_> {
    /// Checks whether a file may be handed over to a user.
    ///
    /// # Errors
    /// ACCES if the user may not read this file directly; RESOURCE if the check would have to wait;
    /// the errors of an invalid state id.
    pub fn check_hand_over(
        &mut self,
        by: ClientKey,
        (who, credentials, user): (&Identity, &Credentials, u32),
        request: &HandOverRequest,
    ) -> Result<HandOverTarget, Status> {
        let record = self.opened.record(request.state).filter(|open| open.handle == request.file);
        let record = record.ok_or(Status::BadStateId)?;
        let (key, file) = (FileKey(record.key.0), record.file);
        self.filer.check_io(by, request.state, key, IoKind::Read, self.now)?;
        let client = match self.filer.check_undisturbed(by, request.delegation, key) {
            // RESOURCE makes the client read through the server instead of trying again.
            Err(Fault::WouldWait) => Err(Fault::Limit),
            checked => checked,
        }?;
        if self.filer.is_fenced(&request.file) {
            return Err(Status::Access);
        }
        if self.keeps_undo_of(&request.file) {
            return Err(Status::Resource);
        }
        let all = (0, limits::FILE_OFFSET_MAX);
        let is_free = self.filer.has_no_locks()
            || self.check_locks_of(request.state, &request.file, all, IoKind::Read).is_ok();
        if !is_free {
            return Err(Status::Resource);
        }
        if credentials.uid() != user
            || !who.store().may_read_directly(credentials, &request.file)?
        {
            return Err(Status::Access);
        }
        Ok(HandOverTarget { file, client })
    }

    /// Starts to write the dirty data of a file before the file is handed over. The file stays in
    /// use in the cache until the write ends. Returns `None` if there is no dirty data.
    pub fn write_for_reader(&mut self, file: CachedFile) -> Option<CommitTicket> {
        if self.cache.is_written(file) {
            return None;
        }
        // The open of the file may end during the write.
        self.cache.hold(file);
        // Lost data must be reported to writers, not to this reader.
        let stability = Stability::Unstable;
        Some(self.cache.commit_begin(file, 0, 0, stability, Listener::Nobody))
    }

    /// Returns the open file, after checking that all its data is written.
    ///
    /// # Errors
    /// RESOURCE if there is dirty data; BAD_STATEID if no client has the file open.
    pub fn written_file(
        &self,
        file: CachedFile,
        handle: &FileHandle,
    ) -> Result<&Arc<dyn File>, Status> {
        if !self.cache.is_written(file) {
            return Err(Status::Resource);
        }
        self.opened.file(handle).ok_or(Status::BadStateId)
    }
}

//! Files that their readers ask for themselves (`docs/decisions/0038`): whether one may be had.
//!
//! Invariant: nobody gets a file that he could not read by the server, and none that another could
//! change meanwhile without his delegation being called back.

use std::sync::Arc;

use dafs_filer::{ClientKey, FileKey, IoKind};
use dafs_ops::Fault;
use dafs_store::File;
use dafs_store::cache::{CachedFile, CommitTicket, Listener};
use dafs_types::{ClientId, Credentials, FileHandle, Stability, StateId, Status, limits};

use crate::Files;
use crate::caller::Asker;

/// A file that its reader asks for itself: under which open, and which delegation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FileAsked {
    /// The file.
    pub file: FileHandle,
    /// The state id of the open.
    pub state: StateId,
    /// The state id of the delegation.
    pub delegation: StateId,
}

/// A file that may be handed over, and to whom.
pub struct Allowed {
    /// The file, as the cache knows it.
    pub file: CachedFile,
    /// The client.
    pub client: ClientId,
}

impl Files<'_> {
    /// Whether a user may have a file that he reads as a client.
    ///
    /// # Errors
    /// ACCES if not this one; RESOURCE if not now; those of state ids.
    pub fn may_hand_over(
        &mut self,
        by: ClientKey,
        (who, credentials, user): (&Asker, &Credentials, u32),
        request: &FileAsked,
    ) -> Result<Allowed, Status> {
        let record = self.opened.record(request.state).filter(|open| open.handle == request.file);
        let record = record.ok_or(Status::BadStateId)?;
        let (key, file) = (FileKey(record.key.0), record.file);
        self.filer.check_io(by, request.state, key, IoKind::Read, self.now)?;
        let client = match self.filer.check_undisturbed(by, request.delegation, key) {
            // The client is to go on without, not to ask again after a pause.
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
        if credentials.uid() != user || !who.store().may_have(credentials, &request.file)? {
            return Err(Status::Access);
        }
        Ok(Allowed { file, client })
    }

    /// What is to be written to a file before its reader has it; `None` if there is nothing. The
    /// file is held until then.
    pub fn write_for_reader(&mut self, file: CachedFile) -> Option<CommitTicket> {
        if self.cache.is_written(file) {
            return None;
        }
        // The open may end meanwhile.
        self.cache.hold(file);
        // Whoever has written is to hear of what is lost, not who reads.
        let stability = Stability::Unstable;
        Some(self.cache.commit_begin(file, 0, 0, stability, Listener::Nobody))
    }

    /// A file, if all that was written is in it.
    ///
    /// # Errors
    /// RESOURCE if not now; BAD_STATEID if nobody has it open.
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

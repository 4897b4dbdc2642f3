//! The operations on fencing lists for the protocol layer (draft 4.4.4, 6.4).
//!
//! Invariant: every check uses the fence identity that the caller gave when it connected. When the
//! caller disconnects, its identity is removed, so its remaining requests cannot access any fenced
//! object.

use dafs_base::Key;
use dafs_ops::Fault;
use dafs_types::FileHandle;

use super::Filer;
use crate::{
    ClientKey, FenceAction, FenceAuthority, FenceChange, FenceCounters, FenceId, FenceInformation,
    FenceRecord, FenceRequest, FenceRestoreError, FenceStoreId, FencedObject, OperationId,
    RunningOperation,
};

/// The key of a session's fence identity. When the session ends, the key becomes invalid.
pub type FenceKey = Key<FenceId>;

/// The caller of an operation on files: its client and its fence identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Party {
    /// The client whose state the operation uses.
    pub client: ClientKey,
    /// The key of the caller's fence identity. `None` if the caller has none.
    pub fence: Option<FenceKey>,
}

/// An operation in progress, reported to the filer when a fencing list changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningRequest {
    /// The id of the operation.
    pub operation: OperationId,
    /// The key of the caller's fence identity. `None` if the caller has disconnected.
    pub fence: Option<FenceKey>,
    /// The file that the operation accesses.
    pub file: FileHandle,
}

impl Filer {
    /// Registers the fence identity of a new session.
    pub fn add_identity(&mut self, fence_id: FenceId) -> FenceKey {
        self.identities.insert(fence_id)
    }

    /// Removes the fence identity of a session that has ended.
    pub fn remove_identity(&mut self, fence: FenceKey) {
        self.identities.remove(fence);
    }

    /// Returns a fence identity. `None` if its session has ended.
    #[must_use]
    pub fn identity(&self, fence: FenceKey) -> Option<&FenceId> {
        self.identities.get(fence)
    }

    /// Returns true if any object is fenced or has a pending change. This costs one load and one
    /// comparison.
    #[inline]
    #[must_use]
    pub fn has_fences(&self) -> bool {
        !self.fences.is_idle()
    }

    /// Checks whether a request may access a file. The check must be repeated when a parked request
    /// continues.
    ///
    /// # Errors
    /// ACCES if the caller is fenced out.
    pub fn check_fence(&mut self, fence: Option<FenceKey>, file: &FileHandle) -> Result<(), Fault> {
        let fence_id = fence.and_then(|fence| self.identities.get(fence));
        self.fences.enter(fence_id.unwrap_or(&FenceId::default()), file)
    }

    /// Returns true if a file or its file system has a fencing list or a pending change of the
    /// list.
    #[must_use]
    pub fn is_fenced(&self, file: &FileHandle) -> bool {
        self.fences.covers(file)
    }

    /// Reports the end of an operation that was reported as running.
    #[inline]
    pub fn leave_fence(&mut self, operation: OperationId) {
        self.fences.leave(operation);
    }

    /// Reports that a running operation continues under another id.
    #[inline]
    pub fn rename_fenced_operation(&mut self, from: OperationId, to: OperationId) {
        self.fences.pass_on(from, to);
    }

    /// Returns the fencing list of an object. See [`crate::FenceTable::list`].
    ///
    /// # Errors
    /// NOT_AUTHORIZED if the caller may not read the list.
    pub fn fencing_list(
        &self,
        object: &FencedObject,
        authority: FenceAuthority,
    ) -> Result<&[FenceId], Fault> {
        self.fences.list(object, authority)
    }

    /// Starts a change of a fencing list. See [`crate::FenceTable::set`]. `running` must contain
    /// every operation in progress that could still affect a file.
    ///
    /// # Errors
    /// The errors of [`crate::FenceTable::set`].
    pub fn set_fencing_list(
        &mut self,
        request: FenceRequest,
        change: &FenceChange<'_>,
        authority: FenceAuthority,
        running: &[RunningRequest],
    ) -> Result<usize, Fault> {
        let Self { fences, identities, .. } = self;
        let nobody = FenceId::default();
        let running = running.iter().map(|running| RunningOperation {
            operation: running.operation,
            fence_id: running.fence.and_then(|fence| identities.get(fence)).unwrap_or(&nobody),
            file: &running.file,
        });
        fences.set(request, change, authority, running)
    }

    /// Returns the operations that a change still waits for.
    pub fn fence_waits_for(&self, request: FenceRequest) -> impl Iterator<Item = OperationId> + '_ {
        self.fences.waits_for(request)
    }

    /// Reports that a fencing list is on stable storage, or that storing it has failed.
    pub fn fence_stored(&mut self, id: FenceStoreId, is_stable: bool) {
        self.fences.stored(id, is_stable);
    }

    /// Reports that a file was deleted, so that its fencing list is removed.
    #[inline]
    pub fn fenced_file_removed(&mut self, file: &FileHandle) {
        self.fences.file_removed(file);
    }

    /// Removes and returns the next action that the server must execute for fencing lists. Must be
    /// called after every other call about fencing lists.
    #[inline]
    pub fn poll_fence_action(&mut self) -> Option<FenceAction> {
        self.fences.poll_action()
    }

    /// Restores the fencing lists that were stored before a restart. It must be called before the
    /// first connection is accepted.
    ///
    /// # Errors
    /// The errors of [`crate::FenceTable::restore`]. The server must not start then.
    pub fn restore_fences(
        &mut self,
        records: impl IntoIterator<Item = FenceRecord>,
    ) -> Result<(), FenceRestoreError> {
        self.fences.restore(records)
    }

    /// Returns the records of fencing lists that stable storage must contain now. For an object
    /// whose list is being changed, the record contains the new list, because the server may
    /// already have stored it.
    pub fn fence_records(&self) -> impl Iterator<Item = FenceRecord> + '_ {
        self.fences
            .iter()
            .map(|FenceInformation { object, fence_ids, change }| {
                let fence_ids = change.map_or(fence_ids, |(next, _)| next).into();
                FenceRecord { object, fence_ids }
            })
            .filter(|record| !record.fence_ids.is_empty())
    }

    /// Iterates over all fencing lists, for the operator.
    pub fn fences(&self) -> impl Iterator<Item = FenceInformation<'_>> {
        self.fences.iter()
    }

    /// Returns the present values of the counters of fences.
    #[must_use]
    pub fn fence_counters(&self) -> FenceCounters {
        self.fences.counters()
    }
}

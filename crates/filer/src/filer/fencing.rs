//! Fences as the protocol layer uses them (draft 4.4.4, 6.4).
//!
//! Invariant: every check uses the fence identity that the caller gave when it connected. A caller
//! that is gone has no identity, so the rest of its requests cannot access any fenced object.

use dafs_base::Key;
use dafs_ops::Fault;
use dafs_types::FileHandle;

use super::Filer;
use crate::{
    ClientKey, FenceAction, FenceAuthority, FenceChange, FenceCounters, FenceId, FenceInformation,
    FenceRecord, FenceRequest, FenceRestoreError, FenceStoreId, FencedObject, OperationId,
    RunningOperation,
};

/// The key of a fence identity, for instance of a session. It is dangling once the session is gone.
pub type FenceKey = Key<FenceId>;

/// The caller of an operation on files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Party {
    /// The client whose state the operation uses.
    pub client: ClientKey,
    /// The caller's fence identity; `None` if it has none.
    pub fence: Option<FenceKey>,
}

/// An operation in flight, as the driver knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningRequest {
    /// The id of the operation.
    pub operation: OperationId,
    /// The fence identity of the caller; `None` if the caller is gone.
    pub fence: Option<FenceKey>,
    /// The file it touches.
    pub file: FileHandle,
}

impl Filer {
    /// Registers the fence identity of a new session.
    pub fn add_identity(&mut self, fence_id: FenceId) -> FenceKey {
        self.identities.insert(fence_id)
    }

    /// Removes a fence identity whose session is gone.
    pub fn remove_identity(&mut self, fence: FenceKey) {
        self.identities.remove(fence);
    }

    /// Returns a fence identity; `None` if its session is gone.
    #[must_use]
    pub fn identity(&self, fence: FenceKey) -> Option<&FenceId> {
        self.identities.get(fence)
    }

    /// Returns true if there is a fence or a pending change. Costs one load and one comparison.
    #[inline]
    #[must_use]
    pub fn has_fences(&self) -> bool {
        !self.fences.is_idle()
    }

    /// Checks whether a request may touch a file. Call it again when a parked request continues.
    ///
    /// # Errors
    /// ACCES if the caller is fenced out.
    pub fn check_fence(&mut self, fence: Option<FenceKey>, file: &FileHandle) -> Result<(), Fault> {
        let fence_id = fence.and_then(|fence| self.identities.get(fence));
        self.fences.enter(fence_id.unwrap_or(&FenceId::default()), file)
    }

    /// Returns true if a file or its file system has a fencing list or a pending change of one.
    #[must_use]
    pub fn is_fenced(&self, file: &FileHandle) -> bool {
        self.fences.covers(file)
    }

    /// Reports that an operation which was passed as running has ended.
    #[inline]
    pub fn leave_fence(&mut self, operation: OperationId) {
        self.fences.leave(operation);
    }

    /// Reports that the work of a running operation continues under another id.
    #[inline]
    pub fn rename_fenced_operation(&mut self, from: OperationId, to: OperationId) {
        self.fences.pass_on(from, to);
    }

    /// Returns the list of an object, like [`crate::FenceTable::list`].
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

    /// Begins to change a list, like [`crate::FenceTable::set`]. `running` yields every operation
    /// in flight that could still affect a file.
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

    /// Returns the operations a change still waits for.
    pub fn fence_waits_for(&self, request: FenceRequest) -> impl Iterator<Item = OperationId> + '_ {
        self.fences.waits_for(request)
    }

    /// Reports that a list is on stable storage, or that storing it failed.
    pub fn fence_stored(&mut self, id: FenceStoreId, is_stable: bool) {
        self.fences.stored(id, is_stable);
    }

    /// Reports that a file was deleted.
    #[inline]
    pub fn fenced_file_removed(&mut self, file: &FileHandle) {
        self.fences.file_removed(file);
    }

    /// Returns the next action for the driver. Call it after every other call about fences.
    #[inline]
    pub fn poll_fence_action(&mut self) -> Option<FenceAction> {
        self.fences.poll_action()
    }

    /// Restores the lists of an earlier run, before the first connection.
    ///
    /// # Errors
    /// The errors of [`crate::FenceTable::restore`]; the server must not start then.
    pub fn restore_fences(
        &mut self,
        records: impl IntoIterator<Item = FenceRecord>,
    ) -> Result<(), FenceRestoreError> {
        self.fences.restore(records)
    }

    /// Returns the records that stable storage must hold now. If the list of an object is being
    /// changed, this is the new list, because its record was handed to the driver already.
    pub fn fence_records(&self) -> impl Iterator<Item = FenceRecord> + '_ {
        self.fences
            .iter()
            .map(|FenceInformation { object, fence_ids, change }| {
                let fence_ids = change.map_or(fence_ids, |(next, _)| next).into();
                FenceRecord { object, fence_ids }
            })
            .filter(|record| !record.fence_ids.is_empty())
    }

    /// Iterates over all fences, for the operator.
    pub fn fences(&self) -> impl Iterator<Item = FenceInformation<'_>> {
        self.fences.iter()
    }

    /// Returns the counters of fencing.
    #[must_use]
    pub fn fence_counters(&self) -> FenceCounters {
        self.fences.counters()
    }
}

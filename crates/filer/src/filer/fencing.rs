//! Fences, from the point of view of whoever asks (draft 4.4.4, 6.4).
//!
//! Invariant: every question to the table is asked with the fence identity that whoever asks gave
//! when they came. Those who are gone have none: what is left of their requests is let in nowhere
//! that anybody is left out of.

use dafs_base::Key;
use dafs_ops::Fault;
use dafs_types::FileHandle;

use super::Filer;
use crate::{
    ClientKey, FenceAction, FenceAuthority, FenceChange, FenceCounters, FenceId, FenceInformation,
    FenceRecord, FenceRequest, FenceRestoreError, FenceStoreId, FencedObject, OperationId,
    RunningOperation,
};

/// Names a fence identity that somebody asks under, a session for instance. It names none once they
/// are gone.
pub type FenceKey = Key<FenceId>;

/// Whoever asks for something that is done to files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Party {
    /// The client whose state it is about.
    pub client: ClientKey,
    /// The identity that fences know it by; `None` if it has none.
    pub fence: Option<FenceKey>,
}

/// An operation under way, as the driver knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningRequest {
    /// Which.
    pub operation: OperationId,
    /// Under which identity it was asked for; `None` if whoever asked is gone.
    pub fence: Option<FenceKey>,
    /// The file it touches.
    pub file: FileHandle,
}

impl Filer {
    /// Somebody comes who will ask under this identity.
    pub fn identity_came(&mut self, fence_id: FenceId) -> FenceKey {
        self.identities.insert(fence_id)
    }

    /// Nobody asks under an identity any more.
    pub fn identity_gone(&mut self, fence: FenceKey) {
        self.identities.remove(fence);
    }

    /// An identity; `None` if whoever had it is gone.
    #[must_use]
    pub fn identity(&self, fence: FenceKey) -> Option<&FenceId> {
        self.identities.get(fence)
    }

    /// Whether there is any fence, or will be: one load and one comparison.
    #[inline]
    #[must_use]
    pub fn has_fences(&self) -> bool {
        !self.fences.is_idle()
    }

    /// A request wants to touch a file, or goes on to do so.
    ///
    /// # Errors
    /// ACCES if whoever asks is fenced out.
    pub fn pass_fence(&mut self, fence: Option<FenceKey>, file: &FileHandle) -> Result<(), Fault> {
        let fence_id = fence.and_then(|fence| self.identities.get(fence));
        self.fences.enter(fence_id.unwrap_or(&FenceId::default()), file)
    }

    /// Whether a file, or its file system, has a fencing list or is about to get one.
    #[must_use]
    pub fn is_fenced(&self, file: &FileHandle) -> bool {
        self.fences.covers(file)
    }

    /// An operation that was shown as running has ended.
    #[inline]
    pub fn leave_fence(&mut self, operation: OperationId) {
        self.fences.leave(operation);
    }

    /// What an operation that was shown as running is about goes on under another name.
    #[inline]
    pub fn pass_on_fence(&mut self, from: OperationId, to: OperationId) {
        self.fences.pass_on(from, to);
    }

    /// The list of an object, as [`crate::FenceTable::list`].
    ///
    /// # Errors
    /// NOT_AUTHORIZED.
    pub fn fencing_list(
        &self,
        object: &FencedObject,
        authority: FenceAuthority,
    ) -> Result<&[FenceId], Fault> {
        self.fences.list(object, authority)
    }

    /// Begins to change a list, as [`crate::FenceTable::set`]. `running` is everything under way
    /// that could still have an effect on a file.
    ///
    /// # Errors
    /// As [`crate::FenceTable::set`].
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

    /// The operations a change still waits for.
    pub fn fence_waits_for(&self, request: FenceRequest) -> impl Iterator<Item = OperationId> + '_ {
        self.fences.waits_for(request)
    }

    /// A list is on stable storage, or could not be put there.
    pub fn fence_stored(&mut self, id: FenceStoreId, is_stable: bool) {
        self.fences.stored(id, is_stable);
    }

    /// A file is gone for good.
    #[inline]
    pub fn fenced_file_removed(&mut self, file: &FileHandle) {
        self.fences.file_removed(file);
    }

    /// What the driver does next; to be asked after every other call about fences.
    #[inline]
    pub fn poll_fence_action(&mut self) -> Option<FenceAction> {
        self.fences.poll_action()
    }

    /// Takes over the lists of an earlier run, before the first channel.
    ///
    /// # Errors
    /// As [`crate::FenceTable::restore`]; the server must not start then.
    pub fn restore_fences(
        &mut self,
        records: impl IntoIterator<Item = FenceRecord>,
    ) -> Result<(), FenceRestoreError> {
        self.fences.restore(records)
    }

    /// What stable storage must amount to now: of an object whose list is being changed the
    /// list to come, since the record of that was handed out already.
    pub fn fence_records(&self) -> impl Iterator<Item = FenceRecord> + '_ {
        self.fences
            .iter()
            .map(|FenceInformation { object, fence_ids, change }| {
                let fence_ids = change.map_or(fence_ids, |(next, _)| next).into();
                FenceRecord { object, fence_ids }
            })
            .filter(|record| !record.fence_ids.is_empty())
    }

    /// Every fence, for the operator.
    pub fn fences(&self) -> impl Iterator<Item = FenceInformation<'_>> {
        self.fences.iter()
    }

    /// The numbers of fencing now.
    #[must_use]
    pub fn fence_counters(&self) -> FenceCounters {
        self.fences.counters()
    }
}

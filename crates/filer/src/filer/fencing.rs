//! Fences, from a channel's point of view (draft 4.4.4, 6.4).
//!
//! Invariant: every question to the table is asked with the fence identity that the
//! channel's session gave when it connected. A channel that is gone has none: what is left
//! of its requests is let in nowhere that anybody is left out of.

use dafs_types::{FileHandle, Status};

use super::{ColdChannel, Filer, HotChannel};
use crate::{
    ChannelId, FenceAction, FenceAuthority, FenceChange, FenceCounters, FenceId, FenceInformation,
    FenceRecord, FenceRequest, FenceRestoreError, FenceStoreId, FencedObject, OperationId,
    RunningOperation,
};

/// An operation under way, as the driver knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningRequest {
    /// Which.
    pub operation: OperationId,
    /// The channel it came over; `None` if that is gone.
    pub channel: Option<ChannelId>,
    /// The file it touches.
    pub file: FileHandle,
}

impl Filer {
    /// Whether there is any fence, or will be: one load and one comparison.
    #[inline]
    #[must_use]
    pub fn has_fences(&self) -> bool {
        !self.fences.is_idle()
    }

    /// A request of a channel wants to touch a file, or goes on to do so.
    ///
    /// # Errors
    /// ACCES if the session is fenced out.
    pub fn pass_fence(
        &mut self,
        channel: Option<ChannelId>,
        file: &FileHandle,
    ) -> Result<(), Status> {
        let fence_id = fence_id_of(&self.hot, &self.cold, channel);
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

    /// The list of an object, as [`crate::FenceTable::list`].
    ///
    /// # Errors
    /// NOT_AUTHORIZED.
    pub fn fencing_list(
        &self,
        object: &FencedObject,
        authority: FenceAuthority,
    ) -> Result<&[FenceId], Status> {
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
    ) -> Result<usize, Status> {
        let Self { fences, hot, cold, .. } = self;
        let nobody = FenceId::default();
        let running = running.iter().map(|running| RunningOperation {
            operation: running.operation,
            fence_id: fence_id_of(hot, cold, running.channel).unwrap_or(&nobody),
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

/// The identity of a channel's session.
fn fence_id_of<'c>(
    hot: &[HotChannel],
    cold: &'c [Option<ColdChannel>],
    channel: Option<ChannelId>,
) -> Option<&'c FenceId> {
    let channel = channel?;
    let is_live = hot.get(channel.index())?.generation == channel.generation;
    let session = cold.get(channel.index())?.as_ref()?.session.as_ref()?;
    is_live.then_some(&session.fence_id)
}

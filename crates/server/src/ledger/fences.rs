//! Fencing lists in the journal.
//!
//! Invariant: a change of a list is answered when its record is durable and so is the end of
//! everything that whom it leaves out had begun: nothing is left that recovery would undo.

use dafs_filer::{FenceRecord, FenceStoreId, RunningRequest};
use dafs_journal::RecordNumber;

use super::requests::{FenceStep, JournaledRequests};
use super::{Ledger, StateRecord};
use crate::channel::Channels;
use crate::fencing::operation_of_intent;
use crate::outcome::{Ended, Outcome};
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;

impl JournaledRequests {
    /// Writes a list down.
    pub(crate) fn store_fence(
        &mut self,
        ledger: &mut Ledger,
        id: FenceStoreId,
        record: FenceRecord,
    ) {
        let number = ledger.append(&StateRecord::Fence(record));
        self.fences.push_back((number, FenceStep::Stored(id)));
    }

    /// Has a change answered once all that was written down by now is durable. True if it
    /// is already.
    pub(crate) fn is_settled(&mut self, ledger: &Ledger, answer: ReplyTo) -> bool {
        let last = ledger.last();
        let is_durable = ledger.log.durable() >= last;
        if !is_durable {
            self.fences.push_back((last, FenceStep::Answered(answer)));
        }
        is_durable
    }

    fn next_fence_step(&mut self, durable: RecordNumber) -> Option<FenceStep> {
        self.fences.front().filter(|(number, _)| *number <= durable)?;
        self.fences.pop_front().map(|(_, step)| step)
    }

    /// Requests between intent and outcome, for each object they touch; those among them that
    /// were carried out and are not synced yet.
    pub(crate) fn running_requests(
        &self,
        channels: &Channels,
    ) -> impl Iterator<Item = RunningRequest> {
        let carried_out = self.unsynced.iter().chain(&self.syncing).map(|done| &done.running);
        self.running.values().chain(carried_out).flat_map(|running| {
            let operation = operation_of_intent(running.number);
            let fence = channels.get(running.endpoint).and_then(|channel| channel.party.fence);
            let handles = running.touched.iter();
            handles.map(move |&file| RunningRequest { operation, fence, file })
        })
    }
}

impl Reactor {
    /// Records are durable up to this one.
    pub(super) fn advance_fences(&mut self, durable: RecordNumber) {
        while let Some(step) = self.journaled.next_fence_step(durable) {
            match step {
                FenceStep::Stored(id) => {
                    self.filer.fence_stored(id, true);
                    self.pump_fences();
                }
                FenceStep::Answered(answer) => {
                    self.report(answer, Outcome::done(Ended::Fenced));
                }
            }
        }
    }
}

//! Finds the operations that are in progress when a fencing list is changed, and waits until they
//! end.

use dafs_dat::EndpointId;
use dafs_filer::{
    FenceAction, FenceRecord, FenceRequest, FenceStoreId, Filer, OperationId, RunningRequest,
};
use dafs_files::ledger::Ledger;
use dafs_files::outcome::{Ended, Outcome};
use dafs_store::cache::Cache;
use dafs_types::Moment;

use super::{
    Change, Fencing, INTENT, KINDS, LOAN, TASK, is_checked_again, operation_of_loan,
    operation_of_task,
};
use crate::channel::Channels;
use crate::direct_reads::DirectReads;
use crate::ledger::requests::JournaledRequests;
use crate::moving::transfer::{LoanId, Loans};
use crate::reply_to::{ReplyTo, TaskId};
use crate::task::{Move, Tasks, Work};

/// The tables of the operations in progress for which fencing lists are not checked again.
pub(crate) struct UnderWay<'r> {
    pub channels: &'r Channels,
    pub cache: &'r Cache,
    pub tasks: &'r Tasks,
    pub loans: &'r Loans,
    pub journaled: &'r JournaledRequests,
    pub direct_reads: &'r DirectReads,
}

impl UnderWay<'_> {
    /// Returns all operations in progress for which fencing lists are not checked again.
    pub(crate) fn requests(&self) -> Vec<RunningRequest> {
        let mut running = Vec::new();
        let fence_of = |endpoint| self.channels.party_of(endpoint).and_then(|party| party.fence);
        for (id, task) in self.tasks.iter() {
            let fence = fence_of(task.reply_to.endpoint);
            if is_checked_again(&task.work) {
                continue;
            }
            for file in task.work.files() {
                let (operation, file) = (operation_of_task(id), self.cache.handle(file));
                running.push(RunningRequest { operation, fence, file });
            }
        }
        for &Move { id, endpoint, file } in self.tasks.moves() {
            let (operation, file) = (operation_of_task(id), self.cache.handle(file));
            running.push(RunningRequest { operation, fence: fence_of(endpoint), file });
        }
        for (id, lent) in self.loans.iter() {
            // Only the object of the pin is reported, because the read has started and shows no
            // data that is written later.
            let pin = lent.loan.first_pin();
            if let Some(file) = pin.and_then(|pin| self.cache.pinned_file(pin)) {
                let (operation, fence) = (operation_of_loan(id), fence_of(lent.endpoint));
                running.push(RunningRequest { operation, fence, file });
            }
        }
        running.extend(self.journaled.running_requests(self.channels));
        running.extend(self.direct_reads.running(self.channels));
        running
    }

    /// Returns the connection of the client without whose action an operation cannot end. `None` if
    /// the operation needs no action of a client.
    fn held_up_by(&self, operation: OperationId) -> Option<EndpointId> {
        let number = operation.0 & !KINDS;
        match operation.0 & KINDS {
            TASK => {
                let task = self.tasks.get(TaskId(u32::try_from(number).ok()?))?;
                let transfers_left = match &task.work {
                    Work::Write(write) => write.transfers_left,
                    Work::Strand(strand) => strand.transfers_left,
                    Work::SealedBatch(_)
                    | Work::Read(_)
                    | Work::Commit(_)
                    | Work::Flush(_)
                    | Work::Size(_)
                    | Work::Range(_)
                    | Work::Times(_)
                    | Work::Fetch(_)
                    | Work::Grant(_) => 0,
                };
                (transfers_left > 0).then_some(task.reply_to.endpoint)
            }
            LOAN => self.loans.holder(LoanId::from_bits(number)),
            INTENT => None,
            _ => self.direct_reads.holder_of(operation),
        }
    }
}

impl Fencing {
    /// Returns the id for the next change of a fencing list.
    pub(crate) fn next_name(&self) -> FenceRequest {
        FenceRequest(self.next)
    }

    /// Records that the next change of a fencing list has started. With an injected defect, returns
    /// the destination of the reply, which is then sent too early.
    pub(crate) fn begin(&mut self, ticket: ReplyTo, now: Moment) -> Option<ReplyTo> {
        let name = self.next_name();
        self.next += 1;
        let patient_until = now.after(self.patience);
        let told = self.answers_early.then_some(ticket);
        let ticket = Some(ticket).filter(|_| told.is_none());
        self.changes.insert(name, Change { ticket, patient_until });
        told
    }

    /// Executes one of the filer's requests about a change of a fencing list. If the change has
    /// finished, returns the reply and its destination.
    pub(crate) fn act(
        &mut self,
        filer: &mut Filer,
        journal: (&mut Option<Ledger>, &mut JournaledRequests),
        action: FenceAction,
    ) -> Option<(ReplyTo, Outcome)> {
        match action {
            FenceAction::Store { id, record } => {
                self.store(filer, journal, id, record);
                None
            }
            FenceAction::Completed { request } => {
                let ticket = self.changes.remove(&request)?.ticket?;
                let (ledger, requests) = journal;
                let ledger = ledger.as_ref();
                let is_settled = ledger.is_none_or(|ledger| requests.is_settled(ledger, ticket));
                is_settled.then(|| (ticket, Outcome::done(Ended::Fenced)))
            }
            FenceAction::Failed { request, fault } => {
                let ticket = self.changes.remove(&request)?.ticket?;
                Some((ticket, Outcome::failed(fault)))
            }
        }
    }

    fn store(
        &mut self,
        filer: &mut Filer,
        (ledger, requests): (&mut Option<Ledger>, &mut JournaledRequests),
        id: FenceStoreId,
        record: FenceRecord,
    ) {
        if let Some(ledger) = ledger {
            return requests.store_fence(ledger, id, record);
        }
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                "fencing lists will be lost when this server ends, because it has no journal"
            );
        }
        filer.fence_stored(id, true);
    }

    /// Returns the connections that have delayed a change of a fencing list for too long.
    pub(crate) fn overdue(
        &self,
        filer: &Filer,
        under_way: &UnderWay<'_>,
        now: Moment,
    ) -> Vec<EndpointId> {
        let is_overdue = |change: &Change| change.patient_until <= now;
        let overdue = self.changes.iter().filter(|(_, change)| is_overdue(change));
        let operations = overdue.flat_map(|(request, _)| filer.fence_waits_for(*request));
        let mut endpoints: Vec<_> =
            operations.filter_map(|operation| under_way.held_up_by(operation)).collect();
        endpoints.sort_unstable_by_key(|endpoint: &EndpointId| endpoint.index());
        endpoints.dedup();
        endpoints.retain(|endpoint| under_way.channels.get(*endpoint).is_some());
        endpoints
    }
}

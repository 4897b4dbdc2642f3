//! Passing fences, and how what runs comes to its end when somebody is shut out.

use dafs_filer::{
    FenceAction, FenceChange, FenceId, FenceRecord, FenceRequest, FenceStoreId, FencedObject,
    OperationId, Principal, RunningRequest,
};
use dafs_ops::Fence;
use dafs_store::cache::CachedFile;
use dafs_types::{FileHandle, Status};
use dafs_wire::Request;

use super::{
    Change, INTENT, KINDS, LOAN, TASK, operation_of_loan, operation_of_task, passes_again, touched,
};
use crate::caller::Caller;
use crate::files::writing::Writing;
use crate::outcome::{Ended, Outcome};
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId};
use crate::task::{Work, WriteSource, WriteTask};
use crate::transfer::LoanId;

impl Reactor {
    /// Begins a change of a list; whoever asked is told under `ticket` when it holds.
    pub(crate) fn set_fencing_list(
        &mut self,
        ticket: ReplyTo,
        by: &Caller,
        is_trusted: bool,
        ask: &Fence<'_>,
    ) -> Result<(), Status> {
        let object = FencedObject::named(&ask.file, ask.object);
        let authority = self.files().fence_authority(by, is_trusted, &ask.file)?;
        let text = |id| std::str::from_utf8(id).map_err(|_| Status::Inval);
        let fence_ids = ask.fence_ids.iter().map(|id| FenceId::new(text(id)?));
        let fence_ids = fence_ids.collect::<Result<Vec<_>, _>>()?;
        let (access, update) = (ask.access, ask.update);
        let change = FenceChange { object, access, update, fence_ids: &fence_ids };
        // What came before this request is where it will be looked for.
        self.settle();
        let name = FenceRequest(self.fencing.next);
        let running = self.running_requests();
        let waits = self.filer.set_fencing_list(name, &change, authority, &running)?;
        tracing::info!(?object, ?access, ?update, ids = fence_ids.len(), waits, "fence changes");
        self.fencing.next += 1;
        let patient_until = self.life.now().after(self.fencing.patience);
        let mut change = Change { ticket: Some(ticket), patient_until };
        if self.fencing.answers_early {
            self.report(ticket, Outcome::done(Ended::Fenced));
            change.ticket = None;
        }
        self.fencing.changes.insert(name, change);
        self.recall_given(&object);
        // Whoever hears that the list holds finds them called back.
        self.pump_delegations();
        self.wake_barred();
        self.pump_fences();
        Ok(())
    }

    /// Whether a client is trusted as far as fences go: by the rules, or as the superuser, by
    /// the kernel's word or by proof. Whoever is taken for the superuser without any is not.
    ///
    /// What it asks for somebody else, it asks with that one's authority: a gateway that passes
    /// its users' requests on shall not lend them its own.
    pub(crate) fn may_fence_file_system(&self, answer: ReplyTo) -> bool {
        let Some(channel) = self.channels.get(answer.endpoint) else { return false };
        let is_proven = match self.filer.principal(channel.id) {
            Some(Principal::LocalUser(_) | Principal::User(_) | Principal::Gss(_)) => true,
            Some(Principal::Anonymous) | None => false,
        };
        let is_superuser = is_proven && channel.who.is_superuser();
        !answer.is_acting && (is_superuser || self.filer.is_trusted(channel.id))
    }

    // ---- passing --------------------------------------------------------------------

    /// Whether a request may touch what it names.
    ///
    /// # Errors
    /// ACCES if its session is fenced out.
    #[cold]
    pub(crate) fn pass(&mut self, answer: ReplyTo, request: &Request<'_>) -> Result<(), Status> {
        self.pass_all(answer, touched(request))
    }

    /// The same for a request that touches these objects.
    ///
    /// # Errors
    /// As [`Reactor::pass`].
    pub(crate) fn pass_all(
        &mut self,
        answer: ReplyTo,
        touched: [Option<&FileHandle>; 2],
    ) -> Result<(), Status> {
        touched.into_iter().flatten().try_for_each(|file| self.pass_file(answer, file))
    }

    /// Whether a request may touch an object that it has found.
    ///
    /// # Errors
    /// As [`Reactor::pass`].
    pub(crate) fn pass_file(&mut self, answer: ReplyTo, file: &FileHandle) -> Result<(), Status> {
        if !self.filer.has_fences() {
            return Ok(());
        }
        let channel = self.channels.get(answer.endpoint).map(|channel| channel.id);
        self.filer.pass_fence(channel, file)
    }

    /// Whether a request that waited may not go on.
    pub(crate) fn is_barred(&mut self, answer: ReplyTo, file: CachedFile) -> bool {
        self.filer.has_fences() && {
            let by = self.channel_of(answer).ok();
            self.files().is_barred(by, file)
        }
    }

    /// The same for a write. One that is all there has happened, and an append of which a
    /// part is there goes on: it is all or nothing. Of one that may not go on nothing is
    /// held back but what every write holds.
    pub(crate) fn is_write_barred(&mut self, answer: ReplyTo, task: &WriteTask) -> bool {
        let Writing { file, length, done, is_append, .. } = task.writing;
        let (is_whole, is_begun_append) = (done == length, is_append && done > 0);
        if is_whole || is_begun_append || !self.is_barred(answer, file) {
            return false;
        }
        if let WriteSource::Sealed { staging: Some(staging), .. } = &task.source {
            self.interface.deregister(staging.region.key);
        }
        true
    }

    // ---- draining -------------------------------------------------------------------

    /// Everything under way that may have an effect without passing again.
    fn running_requests(&self) -> Vec<RunningRequest> {
        let mut running = Vec::new();
        let channel_of = |endpoint| self.channels.get(endpoint).map(|channel| channel.id);
        for (id, task) in self.tasks.iter() {
            let channel = channel_of(task.reply_to.endpoint);
            if let (Some(file), false) = (task.work.file(), passes_again(&task.work)) {
                let (operation, file) = (operation_of_task(id), self.cache.handle(file));
                running.push(RunningRequest { operation, channel, file });
            }
        }
        for (id, lent) in self.loans.iter() {
            // What was gathered before shows nothing that comes after.
            let pin = lent.loan.first_pin();
            if let Some(file) = pin.and_then(|pin| self.cache.pinned_file(pin)) {
                let (operation, channel) = (operation_of_loan(id), channel_of(lent.endpoint));
                running.push(RunningRequest { operation, channel, file });
            }
        }
        if let Some(ledger) = &self.ledger {
            running.extend(ledger.running_requests(&self.channels));
        }
        running.extend(self.running_direct_reads());
        running
    }

    /// Has everything that waits for a file or for room, and may not go on, find that out.
    fn wake_barred(&mut self) {
        let parked: Vec<TaskId> = self.tasks.iter().map(|(id, _)| id).collect();
        for id in parked {
            // Others may have ended, or begun, with the one before.
            let Some(task) = self.tasks.get(id) else { continue };
            let (answer, Some(file)) = (task.reply_to, task.work.file()) else { continue };
            if self.is_barred(answer, file) && self.tasks.unlist(id) {
                self.resume(id, None);
            }
        }
    }

    /// Does what the filer wants done about fences.
    #[inline]
    pub(crate) fn pump_fences(&mut self) {
        while let Some(action) = self.filer.poll_fence_action() {
            self.act_on_fence(action);
        }
    }

    fn act_on_fence(&mut self, action: FenceAction) {
        match action {
            FenceAction::Store { id, record } => self.store_fence(id, record),
            FenceAction::Completed { request } => {
                let change = self.fencing.changes.remove(&request);
                if let Some(ticket) = change.and_then(|change| change.ticket) {
                    self.fence_holds(ticket);
                }
            }
            FenceAction::Failed { request, status } => {
                let change = self.fencing.changes.remove(&request);
                if let Some(ticket) = change.and_then(|change| change.ticket) {
                    self.report(ticket, Outcome::failed(status));
                }
            }
        }
    }

    fn store_fence(&mut self, id: FenceStoreId, record: FenceRecord) {
        if let Some(ledger) = &mut self.ledger {
            return ledger.store_fence(id, record);
        }
        if !std::mem::replace(&mut self.fencing.has_warned, true) {
            tracing::warn!("fences end with this server: it has no journal to keep them in");
        }
        self.filer.fence_stored(id, true);
    }

    /// Breaks the connections of those who keep a change waiting for too long.
    pub(crate) fn hurry_fences(&mut self) {
        let is_overdue = |change: &Change| change.patient_until <= self.life.now();
        let overdue = self.fencing.changes.iter().filter(|(_, change)| is_overdue(change));
        let operations = overdue.flat_map(|(request, _)| self.filer.fence_waits_for(*request));
        let mut endpoints: Vec<_> =
            operations.filter_map(|operation| self.held_up_by(operation)).collect();
        endpoints.sort_unstable_by_key(|endpoint: &dafs_dat::EndpointId| endpoint.index());
        endpoints.dedup();
        for endpoint in endpoints {
            if self.channels.get(endpoint).is_some() {
                tracing::warn!(?endpoint, "fenced out with a transfer that does not end: parted");
                self.give_up(endpoint);
            }
        }
    }

    /// The connection that an operation waits for, if it waits for one.
    fn held_up_by(&self, operation: OperationId) -> Option<dafs_dat::EndpointId> {
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
                    | Work::Times(_)
                    | Work::Fetch(_)
                    | Work::Grant(_) => 0,
                };
                (transfers_left > 0).then_some(task.reply_to.endpoint)
            }
            LOAN => self.loans.holder(LoanId::from_bits(number)),
            INTENT => None,
            _ => self.holder_of_given(operation),
        }
    }
}

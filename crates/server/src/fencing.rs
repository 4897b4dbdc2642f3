//! Fencing: who may still reach a file or a file system (draft 4.4.4, 6.4), and how what
//! runs comes to its end when somebody is shut out.
//!
//! Every request names the handles it touches in [`touched`], and passes the fence with
//! them when it is dispatched; objects it finds by name pass when they are found. A request
//! that waited passes again before it goes on. So of all that whom a new list leaves out
//! has under way only this can still have an effect:
//!
//! | what                                    | how it ends                                   |
//! |-----------------------------------------|-----------------------------------------------|
//! | reads, writes, truncations that wait for a file or for room | refused at once     |
//! | transfers into the file                 | finished, or aborted with their connection    |
//! | transfers out of the file               | finished, or aborted with their connection    |
//! | an append of which a part is there      | finished: it is all or nothing                |
//! | data taken, on its way to the disk (stable writes, COMMIT, CLOSE) | finished      |
//! | a request between intent and outcome    | carried out if it had begun, refused if not   |
//!
//! Strands of batches are among them, each by itself; what of a batch has not begun passes when
//! it does. These are shown to the filer, and a change is answered when they are over, and durable
//! where there is a journal. What waits for something else passes again and is not waited
//! for: writes whose octets are looked at before the file has them, SETATTR_DIRECT, requests
//! held for names that are busy. A client that lets its transfers stand keeps nobody waiting
//! for longer than [`crate::ServerConfig::fence_patience`]: then its connection is broken.
//!
//! Data that was answered for before stays, also where only the cache has it.
//!
//! Invariant: once a change is answered, no octet and no name changes by a request of a
//! session that the list leaves out. What is left of a connection that is gone counts as of
//! a session without an identity.

use std::collections::BTreeMap;
use std::time::Duration;

use dafs_filer::{
    FenceAction, FenceAuthority, FenceChange, FenceId, FenceRecord, FenceRequest, FenceStoreId,
    FencedObject, OperationId, Principal, RunningRequest,
};
use dafs_journal::RecordNumber;
use dafs_ops::Fence;
use dafs_store::cache::CachedFile;
use dafs_types::{FileHandle, Moment, Status};
use dafs_wire::Request;
use dafs_wire::messages::OpenTarget;

use crate::caller::Caller;
use crate::config::{Defect, ServerConfig};
use crate::files::Files;
use crate::outcome::{Ended, Outcome};
use crate::reactor::Reactor;
use crate::task::{ReplyTo, TaskId, Work, WriteSource, WriteTask};
use crate::transfer::Loan;

/// Changes of fencing lists under way, as many as the filer lets be.
#[derive(Debug)]
pub(crate) struct Fencing {
    changes: BTreeMap<FenceRequest, Change>,
    next: u64,
    patience: Duration,
    has_warned: bool,
    answers_early: bool,
}

#[derive(Debug)]
struct Change {
    /// Under which whoever asked for it is told; `None` if that was done already, which is a
    /// defect.
    ticket: Option<ReplyTo>,
    /// Whoever keeps it waiting then loses the connection.
    patient_until: Moment,
}

impl Fencing {
    pub fn new(config: &ServerConfig) -> Self {
        Self {
            changes: BTreeMap::new(),
            next: 0,
            patience: config.fence_patience,
            has_warned: false,
            answers_early: config.defect == Some(Defect::AnswerFencesEarly),
        }
    }
}

impl Files<'_> {
    /// Who may reach an object.
    pub fn fencing_list(
        &mut self,
        by: &Caller,
        is_trusted: bool,
        file: &FileHandle,
    ) -> Result<Vec<FenceId>, Status> {
        let object = FencedObject::asked_for(file);
        let authority = self.fence_authority(by, is_trusted, file)?;
        Ok(self.filer.fencing_list(&object, authority)?.to_vec())
    }

    /// What whoever asks may do about an object's list (draft 4.4.4.4).
    fn fence_authority(
        &mut self,
        by: &Caller,
        is_trusted: bool,
        file: &FileHandle,
    ) -> Result<FenceAuthority, Status> {
        let is_owner = match FencedObject::asked_for(file) {
            FencedObject::FileSystem(_) => false,
            FencedObject::File(_) => self.attributes_of(by, file)?.uid == by.uid(),
        };
        Ok(FenceAuthority { is_owner, is_trusted })
    }
}

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
        let patient_until = self.now.after(self.fencing.patience);
        let mut change = Change { ticket: Some(ticket), patient_until };
        if self.fencing.answers_early {
            self.report(ticket, Outcome::done(Ended::Fenced));
            change.ticket = None;
        }
        self.fencing.changes.insert(name, change);
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
        touched(request).into_iter().flatten().try_for_each(|file| self.pass_file(answer, file))
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
            let handle = self.cache.handle(file);
            self.pass_file(answer, &handle).is_err()
        }
    }

    /// The same for a write. One that is all there has happened, and an append of which a
    /// part is there goes on: it is all or nothing. Of one that may not go on nothing is
    /// held back but what every write holds.
    pub(crate) fn is_write_barred(&mut self, answer: ReplyTo, task: &WriteTask) -> bool {
        let is_whole = task.done == task.length;
        let is_begun_append = task.is_append && task.done > 0;
        if is_whole || is_begun_append || !self.is_barred(answer, task.file) {
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
        for (index, endpoint, loan) in self.loans.iter() {
            let pin = match loan {
                Loan::Pin(pin) => Some(pin),
                Loan::Pins(pins) => pins.first(),
                // What was gathered before shows nothing that comes after.
                Loan::Staging(_) => None,
            };
            if let Some(file) = pin.and_then(|pin| self.cache.pinned_file(pin)) {
                let (operation, channel) = (operation_of_loan(index), channel_of(endpoint));
                running.push(RunningRequest { operation, channel, file });
            }
        }
        if let Some(ledger) = &self.ledger {
            running.extend(ledger.running_requests(&self.channels));
        }
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
        let is_overdue = |change: &Change| change.patient_until <= self.now;
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
                    | Work::Size(_)
                    | Work::Times(_)
                    | Work::Fetch(_)
                    | Work::Grant(_) => 0,
                };
                (transfers_left > 0).then_some(task.reply_to.endpoint)
            }
            LOAN => self.loans.holder(u32::try_from(number).ok()?),
            _ => None,
        }
    }
}

/// Whether a request passes the fence again before it has any effect.
fn passes_again(work: &Work) -> bool {
    match work {
        Work::Write(write) => {
            matches!(write.source, WriteSource::Sealed { .. } | WriteSource::Fetched { .. })
        }
        Work::Fetch(_) | Work::SealedBatch(_) => true,
        // Those that wait for a file or for room pass again at once.
        Work::Read(_)
        | Work::Commit(_)
        | Work::Size(_)
        | Work::Times(_)
        | Work::Grant(_)
        | Work::Strand(_) => false,
    }
}

/// The handles a request names and touches. What it leads to by name is not among them.
pub(crate) fn touched<'r>(request: &'r Request<'_>) -> [Option<&'r FileHandle>; 2] {
    let file = match request {
        Request::Access(r) => &r.file,
        Request::AppendDirect(r) => &r.file,
        Request::AppendInline(r) => &r.file,
        Request::CacheHint(r) => &r.file,
        Request::Close(r) => &r.file,
        Request::Commit(r) => &r.file,
        Request::Create(r) => &r.directory,
        Request::GetAttrDirect(r) => &r.file,
        Request::GetAttrInline(r) | Request::GetFsAttr(r) => &r.file,
        Request::Link(r) => return [Some(&r.source), Some(&r.directory)],
        Request::Lock(r) => &r.file,
        Request::LockT(r) => &r.file,
        Request::LockU(r) => &r.file,
        Request::Lookup(r) => &r.directory,
        Request::LookupP(r) | Request::OpenAttr(r) | Request::ReadLinkInline(r) => &r.file,
        Request::Verify(r) | Request::NVerify(r) => &r.file,
        Request::Open(r) => match &r.target {
            OpenTarget::Null { directory, .. }
            | OpenTarget::DelegateCurrent { directory, .. }
            | OpenTarget::DelegatePrevious { directory, .. }
            | OpenTarget::CreateUnlinked { directory } => directory,
            OpenTarget::Previous { file, .. } => file,
        },
        Request::OpenDowngrade(r) => &r.file,
        Request::ReadDirDirect(r) => &r.directory,
        Request::ReadDirInline(r) => &r.directory,
        Request::ReadDirect(r) => &r.file,
        Request::ReadInline(r) => &r.file,
        Request::ReadLinkDirect(r) => &r.file,
        Request::Remove(r) => &r.directory,
        Request::Rename(r) => return [Some(&r.source), Some(&r.target)],
        Request::SetAttrDirect(r) => &r.file,
        Request::SetAttrInline(r) => &r.file,
        Request::WriteDirect(r) => &r.file,
        Request::WriteInline(r) => &r.file,
        // Whoever is fenced out must reach the root to be let in again (`gaps.md`).
        Request::GetRootHandle(_) | Request::GetFencingList(_) | Request::SetFencingList(_) => {
            return [None; 2];
        }
        // Each transfer passes by itself.
        Request::BatchSubmit(_) | Request::HurryUp(_) => return [None; 2],
        Request::ClientAuth(_)
        | Request::ClientConnect(_)
        | Request::ClientConnectAuth(_)
        | Request::ConnectBind(_)
        | Request::Disconnect(_)
        | Request::RegisterCred(_)
        | Request::ReleaseCred(_)
        | Request::SecInfo(_)
        | Request::ServerAuth(_)
        | Request::CheckResponse(_)
        | Request::FetchResponse(_)
        | Request::DiscardResponses(_)
        // It names a state alone, and gives up what the server would take.
        | Request::DelegReturn(_)
        | Request::DelegPurge(_)
        | Request::Null(_)
        | Request::BcGetAttr(_)
        | Request::BcNull(_)
        | Request::BcRecall(_)
        | Request::BcLockReady(_)
        | Request::BcBatchCompletion(_) => return [None; 2],
    };
    [Some(file), None]
}

/// A parked request, as an operation.
#[inline]
pub(crate) fn operation_of_task(id: TaskId) -> OperationId {
    OperationId(TASK | u64::from(id.0))
}

/// A transfer out of the cache, as an operation.
#[inline]
pub(crate) fn operation_of_loan(index: u32) -> OperationId {
    OperationId(LOAN | u64::from(index))
}

/// A request between intent and outcome, as an operation.
#[inline]
pub(crate) fn operation_of_intent(number: RecordNumber) -> OperationId {
    OperationId(INTENT | number.0)
}

const KINDS: u64 = 3 << 62;
const TASK: u64 = 1 << 62;
const LOAN: u64 = 2 << 62;
const INTENT: u64 = 3 << 62;

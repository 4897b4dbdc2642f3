//! Serves operations that may change names or attributes, opens and locks.
//!
//! Invariant: an operation is executed in the same way whether it has just arrived in a message or
//! has waited.

use dafs_filer::{FenceChange, FenceId, FencedObject, IoKind, Principal};
use dafs_files::caller::Caller;
use dafs_files::io::IoFile;
use dafs_files::outcome::{Ended, NotDone, Now, Outcome};
use dafs_files::writing::Writing;
use dafs_ops::{Claim, CreateNode, Fence, NewNode, Open, Operation, Remove, SetAttributes};
use dafs_types::{Stability, Status, limits};
use dafs_wire::messages::{
    AppendDirect, AppendInline, CreateResult, DirectoryChanged, RenameResult,
};
use dafs_wire::{Procedure, Request, Response};

use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::requests::answers::opened_response;
use crate::requests::decode::Scratch;
use crate::requests::respond::ReplyStatus;
use crate::requests::translate;
use crate::task::{Buffers, Task, Work, WriteSource, WriteTask};

impl Reactor<'_> {
    /// Executes a request that [`translate::is_operation`] accepts, and replies.
    pub(super) fn serve_change(
        &mut self,
        to: ReplyTo,
        request: &Request<'_>,
    ) -> Result<(), NotDone> {
        let mut scratch = Scratch::new();
        let operation = translate::operation(request, &mut scratch)?;
        self.operate(to, &operation.ok_or(Status::NotSupp)?)
    }

    /// Executes an operation that the fencing lists allow, and replies.
    pub(crate) fn operate(
        &mut self,
        to: ReplyTo,
        operation: &Operation<'_>,
    ) -> Result<(), NotDone> {
        match operation {
            Operation::CreateNode(asked) => self.create_node(to, asked),
            Operation::Link(asked) => {
                let by = self.caller(to)?;
                let place = (&asked.directory, asked.name);
                let directory = self.files().link(&by, &asked.source, place)?;
                self.answer(to, &Response::Link(DirectoryChanged { directory }))
            }
            Operation::Remove(asked) => self.remove(to, asked),
            Operation::Rename(asked) => {
                let by = self.caller(to)?;
                let (from, place) =
                    ((&asked.source, asked.old_name), (&asked.target, asked.new_name));
                let renamed = self.files().rename(&by, from, place)?;
                let result = RenameResult { source: renamed.source, target: renamed.target };
                self.answer(to, &Response::Rename(result))
            }
            Operation::SetAttributes(asked) => {
                let now = self.set_attributes(to, asked)?;
                self.follow(to, now)
            }
            Operation::Open(asked) => self.open(to, asked),
            Operation::Lock(asked) => {
                let by = self.caller(to)?;
                let now = self.files().lock(&by, asked)?;
                self.follow(to, now)
            }
            Operation::Abort(asked) => self.serve_abort(to, asked),
            // All other operations arrive only in messages.
            _ => Err(Status::NotSupp.into()),
        }
    }

    fn create_node(&mut self, to: ReplyTo, asked: &CreateNode<'_>) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let node = match asked.node {
            NewNode::Directory => dafs_store::NewNode::Directory,
            NewNode::SymbolicLink { text } => dafs_store::NewNode::SymbolicLink(text),
            NewNode::Fifo => dafs_store::NewNode::Fifo,
            NewNode::Socket => dafs_store::NewNode::Socket,
            NewNode::BlockDevice { device } => dafs_store::NewNode::BlockDevice(device),
            NewNode::CharacterDevice { device } => dafs_store::NewNode::CharacterDevice(device),
        };
        let place = (&asked.directory, asked.name);
        let created = self.files().create_node(&by, place, node, &asked.attributes)?;
        let result = CreateResult { file: created.object.handle, directory: created.change };
        self.answer(to, &Response::Create(result))
    }

    fn remove(&mut self, to: ReplyTo, asked: &Remove<'_>) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let removed = self.files().remove(&by, (&asked.directory, asked.name), asked.mode)?;
        if let Some(held) = removed.held {
            self.shared.afterwards.close_removed(held);
        }
        let directory = removed.directory;
        self.answer(to, &Response::Remove(DirectoryChanged { directory }))
    }

    pub(super) fn set_attributes(
        &mut self,
        to: ReplyTo,
        asked: &SetAttributes,
    ) -> Result<Now<Outcome>, NotDone> {
        let by = self.caller(to)?;
        self.files().set_attributes(&by, asked)
    }

    fn open(&mut self, to: ReplyTo, asked: &Open<'_>) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let can_recall = match asked.claim {
            Claim::Null { .. } => {
                self.shared.filer.config().delegations.enabled && self.has_back_channel(to.endpoint)
            }
            Claim::DelegatePrevious { .. } => self.has_back_channel(to.endpoint),
            Claim::DelegateCurrent { .. } | Claim::Previous | Claim::CreateUnlinked => false,
        };
        let now = self.files().open(&by, can_recall, asked)?;
        // The reference is dropped before the reply is posted. Otherwise the atomic decrement would
        // delay the store of the reply into the ring that the client polls, until earlier stores
        // have reached the processor's cache.
        drop(by);
        match now {
            Now::Done((opened, after)) => {
                self.respond(to, ReplyStatus::ok_after(after), &opened_response(&opened));
            }
            Now::Later(left) => self.start(Task::new(to, Work::from(*left))),
        }
        Ok(())
    }

    // ---- appends ----------------------------------------------------------------------

    pub(crate) fn append_inline(
        &mut self,
        answer: ReplyTo,
        request: &AppendInline<'_>,
    ) -> Result<(), NotDone> {
        let bytes = request.data.bytes().ok_or(Status::Inval)?;
        let length = u32::try_from(bytes.len()).map_err(|_| Status::WriteTooBig)?;
        self.files().check_end_locks(request.state, &request.file)?;
        let io = self.io_file(answer, request.state, &request.file, IoKind::Write)?;
        let source = WriteSource::Bytes(bytes.into());
        Ok(self.start_append(answer, io, length, request.stability, source)?)
    }

    pub(crate) fn append_direct(
        &mut self,
        answer: ReplyTo,
        request: &AppendDirect,
    ) -> Result<(), NotDone> {
        if request.buffer.length < request.length {
            return Err(Status::TooSmall.into());
        }
        self.files().check_end_locks(request.state, &request.file)?;
        let io = self.io_file(answer, request.state, &request.file, IoKind::Write)?;
        let buffers = Buffers::One(request.buffer);
        let source = self.direct_source(answer, buffers, request.length, request.checksum);
        Ok(self.start_append(answer, io, request.length, request.stability, source)?)
    }

    fn start_append(
        &mut self,
        answer: ReplyTo,
        io: IoFile,
        length: u32,
        stability: Stability,
        source: WriteSource,
    ) -> Result<(), Status> {
        if length > limits::APPEND_BYTES_MAX {
            self.give_back(io.file, io.borrowed);
            return Err(Status::WriteTooBig);
        }
        let task = WriteTask::new(Writing::append(io, length, stability), source);
        self.start(Task::new(answer, Work::Write(task)));
        Ok(())
    }

    // ---- fencing lists ----------------------------------------------------------------

    /// Starts a change of a fencing list. When the change is in force, the reply is sent. `ticket`
    /// is the reply's destination.
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
        // Queued transfers are finished first, so that the change comes after all earlier requests.
        self.settle();
        let name = self.shared.waiting.fencing().next_name();
        let running = self.under_way().requests();
        let waits = self.shared.filer.set_fencing_list(name, &change, authority, &running)?;
        tracing::info!(?object, ?access, ?update, ids = fence_ids.len(), waits, "fence changes");
        if let Some(told) = self.shared.waiting.fencing().begin(ticket, self.shared.life.now()) {
            self.report(told, Outcome::done(Ended::Fenced));
        }
        self.shared.loans.files_given().recall(
            &mut self.shared.filer,
            &object,
            self.shared.life.now(),
        );
        // The delegations must have been recalled when the reply says that the list is in force.
        self.pump_delegations();
        self.wake_barred();
        self.pump_fences();
        Ok(())
    }

    /// Returns true if the client may change the fencing list of a file system. The client must be
    /// trusted by the access rules, or be the superuser as proved by the kernel's report or by
    /// authentication. A client that is only mapped to the superuser is refused.
    ///
    /// A request that acts for another user has only that user's authority, because a gateway that
    /// forwards its users' requests must not give them its own rights.
    pub(crate) fn may_fence_file_system(&self, answer: ReplyTo) -> bool {
        let Some(channel) = self.shared.channels.get(answer.endpoint) else { return false };
        let is_proven = match self.shared.sessions.principal(channel.id) {
            Some(Principal::LocalUser(_) | Principal::User(_) | Principal::Gss(_)) => true,
            Some(Principal::Anonymous) | None => false,
        };
        let is_superuser = is_proven && channel.who.is_superuser();
        !answer.is_acting && (is_superuser || self.shared.sessions.is_trusted(channel.id))
    }
}

/// Returns the DAFS procedure of an operation. The procedure's results describe what a failed
/// operation has done before its failure.
pub(crate) fn procedure_of(operation: &Operation<'_>) -> Procedure {
    match operation {
        Operation::Open(_) => Procedure::Open,
        Operation::SetAttributes(_) => Procedure::SetAttrInline,
        Operation::Lock(_) => Procedure::Lock,
        // The other operations have no such results.
        _ => Procedure::Null,
    }
}

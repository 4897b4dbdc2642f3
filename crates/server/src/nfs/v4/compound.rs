//! Compounds: executes the operations of a call one after the other, and keeps the reply of a
//! session's request in case the client repeats the request.
//!
//! Invariants:
//! - Operations are executed in their order. The first operation that fails ends the compound.
//! - A compound that waits holds only the operations that were not executed yet, its reply so far,
//!   and the bytes that its READs have read.

use dafs_files::caller::Caller;
use dafs_journal::RecordNumber;
use dafs_nfs_wire::nfs4::table::Position;
use dafs_nfs_wire::nfs4::{
    Answer, CallReader, MINOR_VERSION_MAX, MINOR_VERSION_MIN, Operation, OperationKind,
    ReplyWriter, Status,
};
use dafs_nfs_wire::rpc::Outcome;
use dafs_nfs_wire::xdr::{Piece, Reader, Writer, Xdr};
use dafs_types::FileHandle;
use smallvec::SmallVec;

use super::fault::Result;
use super::journaled::Journaled;
use super::state::end_clients;
use super::waiting::{Awaits, CallFacts, Compound, Did, Ran, Sender};
use crate::guests::GuestResult;
use crate::nfs::calls::{self, CallId, Desk, Progress, Suspended};
use crate::reactor::Reactor;

/// A compound, and everything that is needed to execute it.
pub(super) struct Service<'s, 'f, 'r> {
    pub desk: &'s mut Desk<'f>,
    pub reactor: &'s mut Reactor<'r>,
    pub c: &'s mut Compound,
}

/// Executes a call of COMPOUND.
pub(in crate::nfs) fn serve(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    sender: Sender,
    xid: u32,
    reader: &Reader<'_>,
) -> Ran {
    let bytes = u32::try_from(reader.left()).unwrap_or(u32::MAX).saturating_add(RPC_BYTES);
    let Ok(call) = CallReader::<Operation<'_>>::new(reader.clone()) else {
        calls::fail(desk.writer, xid, Outcome::GarbageArgs);
        return Ran::Done(sender.route(), SmallVec::new());
    };
    calls::begin(desk.writer, xid);
    let body = desk.writer.bytes().len();
    let reply = ReplyWriter::new(desk.writer, call.tag());
    let minor = call.minor_version();
    if !(MINOR_VERSION_MIN..=MINOR_VERSION_MAX).contains(&minor) {
        reply.finish(desk.writer, Status::MinorVersMismatch);
        return Ran::Done(sender.route(), SmallVec::new());
    }
    let operations = call.reader().rest();
    let user = reactor.shared.channels.guests().nobody();
    let mut compound = Box::new(Compound {
        id: CallId::new(sender.route(), xid, user),
        sender,
        call: CallFacts { minor, count: call.count(), bytes, results: desk.writer.bytes().len() },
        left: call.count(),
        rest: Vec::new(),
        writer: Writer::new(),
        reply: Some(reply),
        body,
        request: None,
        journaled: None,
        by: None,
        current: None,
        saved: None,
        current_state: None,
        saved_state: None,
        reads: SmallVec::new(),
        awaits: None,
        after: RecordNumber(0),
        is_answered: false,
        takes_back: false,
    });
    let ran = Service { desk, reactor, c: &mut compound }.run(operations);
    follow(desk, reactor, compound, ran)
}

/// Continues a compound whose operation has ended.
pub(in crate::nfs) fn resume(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    mut compound: Box<Compound>,
    result: GuestResult,
) -> Ran {
    std::mem::swap(desk.writer, &mut compound.writer);
    let rest = std::mem::take(&mut compound.rest);
    let mut service = Service { desk, reactor, c: &mut compound };
    let status = match (&service.c.awaits, &result) {
        (Some(Awaits::Record), _) => return follow(desk, reactor, compound, Progress::Done),
        (Some(Awaits::Names), GuestResult::Free) | (Some(Awaits::Part), GuestResult::Durable) => {
            Status::Ok
        }
        (Some(Awaits::Names), GuestResult::Intended(intent)) => service.begin_intended(*intent),
        _ => {
            let Some(status) = service.end_operation(result) else {
                compound.rest = rest;
                return follow(desk, reactor, compound, Progress::Later);
            };
            service.end_intended(status.is_ok());
            status
        }
    };
    let ran = match status {
        Status::Ok => service.run(&rest),
        status => service.finish(status),
    };
    follow(desk, reactor, compound, ran)
}

/// Stores a compound that waits for an operation or for a journal record. Otherwise ends the
/// compound and returns its reply.
fn follow(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    mut compound: Box<Compound>,
    ran: Progress,
) -> Ran {
    if matches!(ran, Progress::Done) && !(Service { desk, reactor, c: &mut compound }).end_request()
    {
        let ended = end_clients(desk, reactor, reactor.shared.life.now());
        compound.after = compound.after.max(ended);
        let durable = reactor.shared.ledger.as_ref().map(|ledger| ledger.durable());
        if durable.is_none_or(|durable| compound.after <= durable) {
            return conclude(desk, reactor, compound);
        }
        compound.awaits = Some(Awaits::Record);
        let to = desk.calls.reserve(compound.id);
        reactor.delay_answer(to, compound.after, &[]);
    }
    std::mem::swap(desk.writer, &mut compound.writer);
    desk.calls.hold(Suspended::V4(compound));
    Ran::Later
}

/// Ends a compound whose reply may be sent. Keeps the reply in case the client repeats the request.
fn conclude(desk: &mut Desk<'_>, reactor: &mut Reactor<'_>, mut compound: Box<Compound>) -> Ran {
    let now = reactor.shared.life.now();
    if let Some(request) = compound.request.take() {
        let is_journaled = compound.journaled.as_ref().is_some_and(Journaled::is_noted);
        let must_keep = request.must_keep || is_journaled && compound.fits(desk, &request);
        let kept = must_keep.then(|| Service { desk, reactor, c: &mut compound }.whole_reply());
        desk.v4.machine.finish(request.request, kept.as_deref(), now);
    }
    Ran::Done(compound.id.to, std::mem::take(&mut compound.reads))
}

impl Service<'_, '_, '_> {
    /// Executes the operations that were not executed yet.
    fn run(&mut self, mut operations: &[u8]) -> Progress {
        while self.c.left > 0 {
            let mut reader = Reader::new(operations);
            let number = reader.clone().u32().unwrap_or(0);
            let kind = OperationKind::from_number(number)
                .filter(|kind| kind.row().minor_version <= self.c.call.minor)
                .unwrap_or(OperationKind::Illegal);
            let index = self.c.call.count - self.c.left;
            self.c.left -= 1;
            let operation = self.decode(kind, index, &mut reader);
            if let Ok(operation) = &operation
                && !self.is_intended()
                && self.must_wait(operation)
            {
                self.c.left += 1;
                self.c.rest = operations.to_vec();
                return Progress::Later;
            }
            if let Some(meter) = self.reactor.shared.meter.nfs() {
                meter.operate(&mut self.c.id.to.note, number);
            }
            let operation = match operation {
                Ok(operation) => operation,
                Err(status) => return self.fail(kind, status),
            };
            operations = reader.rest();
            let mark = self.mark();
            match self.execute(&operation, operations) {
                Ok(Did::Written) if self.desk.writer.fault().is_some() => {
                    // The reply would be longer than the session allows.
                    self.rewind(mark);
                    self.end_intended(true);
                    return self.fail(kind, self.too_big());
                }
                Ok(Did::Written) => {
                    self.end_intended(true);
                    match self.take_up(operations) {
                        Ok(left) => operations = left,
                        Err(status) => return self.finish(status),
                    }
                }
                Ok(Did::Later) => {
                    self.c.rest = operations.to_vec();
                    return Progress::Later;
                }
                Err(Stop::Failed(status)) => {
                    self.end_intended(false);
                    if std::mem::take(&mut self.c.takes_back) {
                        self.rewind(mark);
                    }
                    return match std::mem::take(&mut self.c.is_answered) {
                        true => self.finish(status),
                        false => self.fail(kind, status),
                    };
                }
                Err(Stop::Replied) => return Progress::Done,
                Err(Stop::FailNext(status)) => {
                    let next = Reader::new(operations).u32().ok();
                    let next = next.and_then(OperationKind::from_number);
                    return match next.filter(|_| self.c.left > 0) {
                        Some(next) => self.fail(next, status),
                        None => self.finish(Status::Ok),
                    };
                }
            }
        }
        self.finish(Status::Ok)
    }

    /// Decodes an operation, if it may stand at its position in the compound.
    fn decode<'b>(
        &self,
        kind: OperationKind,
        index: u32,
        reader: &mut Reader<'b>,
    ) -> Result<Operation<'b>> {
        self.check_position(kind, index)?;
        match kind {
            OperationKind::Illegal => Err(Status::OpIllegal),
            _ => Operation::decode(reader).map_err(|_| Status::BadXdr),
        }
    }

    /// Checks that an operation is allowed at its position in the compound.
    fn check_position(&self, kind: OperationKind, index: u32) -> Result<()> {
        let is_alone = self.c.call.count == 1;
        match (kind.row().position, index) {
            (Position::First, 0) => Ok(()),
            (Position::First, _) => Err(Status::SequencePos),
            (Position::AfterSequence, 0) => Err(Status::OpNotInSession),
            (Position::AfterSequenceOrAlone | Position::Alone, 0) if is_alone => Ok(()),
            (Position::AfterSequenceOrAlone | Position::Alone, 0)
                if kind != OperationKind::Illegal =>
            {
                Err(Status::NotOnlyOp)
            }
            (Position::Alone, _) => Err(Status::NotOnlyOp),
            _ => Ok(()),
        }
    }

    /// Executes an operation. `rest` is the encoding of the operations after it.
    fn execute(
        &mut self,
        operation: &Operation<'_>,
        rest: &[u8],
    ) -> std::result::Result<Did, Stop> {
        let did = match operation {
            Operation::Sequence(asked) => return self.sequence(asked, rest),
            Operation::ExchangeId(asked) => self.exchange_id(asked),
            Operation::CreateSession(asked) => self.create_session(asked),
            Operation::DestroySession(id) => self.destroy_session(*id),
            Operation::DestroyClientId(id) => self.destroy_client(*id),
            Operation::BindConnToSession(asked) => self.bind_connection(asked),
            Operation::BackchannelCtl(asked) => self.control_back_channel(asked),
            Operation::ReclaimComplete(is_one_fs) => self.complete_reclaims(*is_one_fs),
            // The server grants no client the protection (SP4_SSV) that this operation changes.
            Operation::SetSsv(_) => Err(Status::Inval),
            Operation::PutRootFh | Operation::PutPubFh => self.put_root(rest),
            Operation::PutFh(handle) => self.put_handle(handle, rest),
            Operation::GetFh => self.get_handle(),
            Operation::SaveFh => self.save_handle(),
            Operation::RestoreFh => self.restore_handle(),
            Operation::Lookup(name) => self.look_up(name, rest),
            Operation::LookupP => self.look_up_parent(),
            Operation::SecInfo(name) => self.security_of(name),
            Operation::SecInfoNoName(style) => self.security_of_current(*style),
            Operation::GetAttr(wanted) => self.get_attributes(wanted),
            Operation::SetAttr(asked) => self.set_attributes(asked),
            Operation::Verify(asked) => self.compare(asked, true),
            Operation::NVerify(asked) => self.compare(asked, false),
            Operation::Access(asked) => self.access(*asked),
            Operation::ReadLink => self.read_link(),
            Operation::Create(asked) => self.create(asked),
            Operation::Remove(name) => self.remove(name),
            Operation::Rename(asked) => self.rename(asked),
            Operation::Link(name) => self.link(name),
            Operation::ReadDir(asked) => self.list(asked),
            Operation::Open(asked) => self.open(asked),
            Operation::OpenDowngrade(asked) => self.downgrade(asked),
            Operation::Close(asked) => self.close(asked),
            Operation::Read(asked) => self.read(asked),
            Operation::Write(asked) => self.write(asked),
            Operation::Commit(asked) => self.commit(asked),
            Operation::TestStateId(asked) => self.test_states(asked),
            Operation::FreeStateId(state) => self.free_state(*state),
            Operation::Lock(asked) => self.lock(asked),
            Operation::LockT(asked) => self.lock_test(asked),
            Operation::LockU(asked) => self.unlock(asked),
            Operation::DelegReturn(state) => self.return_delegation(*state),
            Operation::Allocate(asked) => self.allocate(asked),
            Operation::Deallocate(asked) => self.deallocate(asked),
            Operation::Seek(asked) => self.seek(asked),
            Operation::Clone(asked) => self.clone_range(asked),
            Operation::Copy(asked) => self.copy_range(asked),
            Operation::OffloadStatus(state) => self.offload_status(state),
            Operation::OffloadCancel(state) => self.offload_cancel(state),
            Operation::ReadPlus(asked) => self.read_plus(asked),
            Operation::IoAdvise(asked) => self.advise(asked),
            Operation::GetXattr(name) => self.get_xattr(name),
            Operation::SetXattr(asked) => self.set_xattr(asked),
            Operation::ListXattrs(asked) => self.list_xattrs(asked),
            Operation::RemoveXattr(name) => self.remove_xattr(name),
            _ => Err(Status::NotSupp),
        };
        did.map_err(Stop::Failed)
    }

    /// Writes the result of an operation that succeeded.
    pub(super) fn push(&mut self, answer: &Answer<'_>) -> Result<Did> {
        if let Some(reply) = &mut self.c.reply {
            reply.push(self.desk.writer, answer);
        }
        Ok(Did::Written)
    }

    /// Writes the status of an operation that failed, and completes the reply.
    fn fail(&mut self, kind: OperationKind, status: Status) -> Progress {
        self.push_failure(kind, status);
        self.finish(status)
    }

    pub(super) fn push_failure(&mut self, kind: OperationKind, status: Status) {
        // There must always be room for an error, even if the results before it have filled the
        // reply.
        self.desk.writer.set_limit(usize::MAX);
        if let Some(reply) = &mut self.c.reply {
            reply.push(self.desk.writer, &Answer::failed(kind, status));
        }
    }

    /// Completes the reply: writes its status and the number of its results.
    fn finish(&mut self, status: Status) -> Progress {
        if let Some(reply) = self.c.reply.take() {
            reply.finish(self.desk.writer, status);
        }
        self.desk.writer.set_limit(usize::MAX);
        Progress::Done
    }

    /// Returns the encoded results of the compound, including the bytes of its READs, to be kept
    /// for a repeat.
    pub(super) fn whole_reply(&self) -> Vec<u8> {
        let body = self.c.body;
        if self.desk.writer.payload_count() == 0 {
            return self.desk.writer.bytes()[body..].to_vec();
        }
        let arena = self.reactor.shared.cache.arena();
        let mut whole = Vec::with_capacity(self.desk.writer.length());
        let mut reads = self.c.reads.iter().filter(|read| read.length() > 0);
        for piece in self.desk.writer.pieces() {
            match piece {
                Piece::Bytes(bytes) => whole.extend_from_slice(bytes),
                Piece::Payload(_) => {
                    for (offset, length) in reads.next().map_or(&[][..], |read| &read.pieces[..]) {
                        let offset = usize::try_from(*offset).unwrap_or(usize::MAX);
                        whole.extend(arena.to_vec(offset, *length as usize));
                    }
                }
            }
        }
        whole.split_off(body)
    }

    pub(super) fn mark(&self) -> Option<dafs_nfs_wire::nfs4::compound::ReplyMark> {
        self.c.reply.as_ref().map(|reply| reply.mark(self.desk.writer))
    }

    pub(super) fn rewind(&mut self, mark: Option<dafs_nfs_wire::nfs4::compound::ReplyMark>) {
        if let (Some(reply), Some(mark)) = (&mut self.c.reply, mark) {
            reply.rewind(self.desk.writer, mark);
        }
    }

    /// Returns the status of an operation whose results do not fit into the reply.
    pub(super) fn too_big(&self) -> Status {
        match &self.c.request {
            Some(request) if request.must_keep => Status::RepTooBigToCache,
            _ => Status::RepTooBig,
        }
    }

    // ---- what operations need ---------------------------------------------------------

    /// Returns the caller on whose behalf operations on files are executed. Fails before SEQUENCE.
    pub(super) fn by(&self) -> Result<Caller> {
        self.c.by.clone().ok_or(Status::Access)
    }

    /// Returns the current file handle. Fails if there is none.
    pub(super) fn current(&self) -> Result<FileHandle> {
        self.c.current.ok_or(Status::NoFileHandle)
    }

    /// Returns the saved file handle. Fails if there is none.
    pub(super) fn saved(&self) -> Result<FileHandle> {
        self.c.saved.ok_or(Status::NoFileHandle)
    }

    /// Makes `handle` the current file handle. Clears the current state id, because it belongs to
    /// another object.
    pub(super) fn set_current(&mut self, handle: FileHandle) {
        self.c.current = Some(handle);
        self.c.current_state = None;
    }

    /// Makes the compound wait for an operation. Returns the destination for the operation's
    /// result.
    pub(super) fn wait_for(&mut self, awaits: Awaits) -> crate::reply_to::ReplyTo {
        self.c.awaits = Some(awaits);
        self.desk.calls.reserve(self.c.id)
    }
}

/// The reason why the operations after the current one are not executed.
pub(super) enum Stop {
    /// The current operation has failed with this status.
    Failed(Status),
    /// The complete reply to the compound is already in the writer.
    Replied,
    /// The current operation succeeded, but the next one, if there is one, must fail with this
    /// status.
    FailNext(Status),
}

/// The approximate size in bytes of the RPC header before a compound.
const RPC_BYTES: u32 = 64;

//! Requests of persistent sessions (RFC 8881 section 2.10.6.5).
//!
//! If a request contains an operation that must not be executed twice, the journal gets, before
//! this operation: the state of the request (the results so far and the file handles), and the
//! intent of the operation. At the end, the journal gets the reply. After a restart, a repeated
//! request gets this reply. If the server was killed before the end, it takes the request up at the
//! operation with the intent, whose verdict says whether it was executed.
//!
//! Invariants:
//! - At most one operation of a request has an intent without an outcome.
//! - No reply is sent before the changes of the request are on stable storage.

use dafs_journal::RecordNumber;
use dafs_nfs_state::{Admitted, SessionId4, Stateid4};
use dafs_nfs_wire::nfs4::directory::{CreateDone, RenameDone, SetAttrResult};
use dafs_nfs_wire::nfs4::open::{OpenArgs, OpenDone, OpenFlags};
use dafs_nfs_wire::nfs4::{Answer, Operation, Reply, Status};
use dafs_nfs_wire::xdr::{Reader, Xdr};
use dafs_ops::{Done, FrontId, Opened, Origin, OwnedDone};
use dafs_types::Status as Ended;

use super::compound::Service;
use super::convert::change;
use super::fault::Result;
use super::opens::creation_of;
use super::settings::settings_of;
use super::waiting::{Awaits, Compound, Did};
use crate::nfs::calls::Desk;
use crate::persistent::{PartDone, SlotNote, SlotState};
use crate::requests::respond::ReplyStatus;

impl Compound {
    /// Returns true if the reply so far is short enough to be kept.
    pub(super) fn fits(&self, desk: &Desk<'_>, request: &Admitted) -> bool {
        desk.writer.length() - self.body <= request.kept_bytes_max as usize
    }
}

impl Service<'_, '_, '_> {
    /// Returns the origin of the next operation and the state of the request. `None` unless the
    /// session is persistent.
    pub(super) fn progress(&self) -> Option<(Origin, SlotNote)> {
        let count = self.c.reply.as_ref()?.count();
        let journaled = self.c.journaled.as_ref()?;
        let state = match self.c.fits(self.desk, self.c.request.as_ref()?) {
            true => SlotState::Progress(PartDone {
                count,
                current: self.c.current,
                saved: self.c.saved,
                results: self.whole_reply().split_off(self.c.call.results - self.c.body).into(),
            }),
            false => SlotState::LongProgress { is_first: !journaled.is_noted },
        };
        Some((self.origin(count)?, SlotNote { checksum: journaled.checksum, state }))
    }

    /// Returns the origin of an operation of the request.
    fn origin(&self, index: u32) -> Option<Origin> {
        let reply = &self.c.request.as_ref()?.reply;
        Some(Origin {
            front: FrontId::NFS4,
            session: SessionId4(reply.session.0).number(),
            slot: reply.slot,
            sequence: reply.sequence,
            index: u16::try_from(index).ok()?,
        })
    }

    /// Returns true if the next operation has an intent, so that it must be executed now.
    pub(super) fn is_intended(&self) -> bool {
        self.c.journaled.as_ref().is_some_and(|journaled| journaled.is_pending)
    }

    /// Notes that the intent of the next operation is durable.
    pub(super) fn begin_intended(&mut self, intent: RecordNumber) -> Status {
        let index = self.c.reply.as_ref().map_or(0, |reply| reply.count());
        if let Some(journaled) = &mut self.c.journaled {
            (journaled.intent, journaled.index) = (intent, index);
            (journaled.is_pending, journaled.has_changed) = (true, false);
            (journaled.is_open, journaled.is_noted) = (true, true);
        }
        Status::Ok
    }

    /// Notes that an operation has ended, which may be the one with the intent.
    pub(super) fn end_intended(&mut self, has_succeeded: bool) {
        if let Some(journaled) = &mut self.c.journaled
            && std::mem::take(&mut journaled.is_pending)
        {
            journaled.has_changed = has_succeeded;
        }
    }

    /// Journals the state of the request as the outcome of the last operation with an intent,
    /// before another operation gets one. Returns true if the request must wait.
    pub(super) fn end_part(&mut self) -> bool {
        let has_intent = self.c.journaled.as_ref().is_some_and(|j| j.intent.0 != 0);
        let Some((_, note)) = has_intent.then(|| self.progress()).flatten() else { return false };
        self.conclude_intent(&note, RecordNumber(0));
        self.c.awaits = Some(Awaits::Part);
        true
    }

    /// Journals the reply of the request, if the journal has its state. Returns true if the request
    /// must wait until the changes of its last operation with an intent are on stable storage.
    pub(super) fn end_request(&mut self) -> bool {
        let (Some(journaled), Some(request)) = (&mut self.c.journaled, &self.c.request) else {
            return false;
        };
        if !std::mem::take(&mut journaled.is_open) {
            return false;
        }
        let (checksum, intent, index) = (journaled.checksum, journaled.intent, journaled.index);
        let state = match self.c.fits(self.desk, request) {
            true => SlotState::Replied(self.whole_reply().into()),
            false => SlotState::NotKept,
        };
        let note = SlotNote { checksum, state };
        if intent.0 == 0 {
            if let Some(origin) = self.origin(index) {
                let after = self.reactor.note_slot(origin, &note.encode());
                self.c.after = self.c.after.max(after);
            }
            return false;
        }
        self.conclude_intent(&note, self.c.after);
        self.c.awaits = Some(Awaits::Record);
        true
    }

    /// Journals the outcome of the last operation with an intent. The result for the compound comes
    /// when the changes of the operation, and the record with the number `after`, are on stable
    /// storage.
    fn conclude_intent(&mut self, note: &SlotNote, after: RecordNumber) {
        let Some(journaled) = &mut self.c.journaled else { return };
        let status = match journaled.has_changed {
            true => Ended::Ok,
            false => Ended::ServerFault,
        };
        let intent = std::mem::take(&mut journaled.intent);
        let to = self.desk.calls.reserve(self.c.id);
        let told = ReplyStatus { status, after };
        self.reactor.conclude_for_guest(to, intent, told, &note.encode());
    }

    // ---- requests that were cut off -----------------------------------------------------

    /// Prepares the execution of the rest of a request that was cut off. Returns false if the
    /// results of the other part were not kept.
    pub(super) fn resume_request(&mut self, admitted: &Admitted) -> bool {
        let reply = &admitted.reply;
        let session = SessionId4(reply.session.0).number();
        let persistent = &self.reactor.shared.channels.guests().persistent;
        let before = persistent.part_done(session, reply.slot, reply.sequence);
        let (Some(journaled), Some(before)) = (&mut self.c.journaled, before) else { return false };
        (journaled.is_open, journaled.is_noted) = (true, true);
        journaled.index = before.0.count;
        journaled.before = Some(Box::new(before));
        true
    }

    /// After the SEQUENCE of a request that was cut off: takes the results of the operations that
    /// were executed. Returns the encoding of the operations that are left.
    pub(super) fn take_up<'o>(&mut self, operations: &'o [u8]) -> Result<&'o [u8]> {
        let before = self.c.journaled.as_mut().and_then(|journaled| journaled.before.take());
        let Some((part, done)) = before.map(|before| *before) else { return Ok(operations) };
        let (mut results, mut count) = (&part.results[..], part.count);
        if done.is_none()
            && let Some(request) = self.c.request
        {
            // The rest of the request meets the state after the restart, so the client must learn
            // of the restart from this reply.
            self.push_sequence(&request.reply);
            results = results.get(SEQUENCE_BYTES..).ok_or(Status::ServerFault)?;
            count = count.saturating_sub(1);
        }
        if let Some(reply) = &mut self.c.reply {
            reply.push_encoded(self.desk.writer, results, count);
        }
        (self.c.current, self.c.saved) = (part.current, part.saved);
        let mut reader = Reader::new(operations);
        // The SEQUENCE is one of the executed operations.
        for _ in 1..part.count {
            self.next_operation(&mut reader)?;
        }
        if let Some(done) = done {
            let operation = self.next_operation(&mut reader)?;
            self.answer_from(&operation, &done)?;
        }
        Ok(reader.rest())
    }

    fn next_operation<'o>(&mut self, reader: &mut Reader<'o>) -> Result<Operation<'o>> {
        self.c.left = self.c.left.checked_sub(1).ok_or(Status::BadXdr)?;
        Operation::decode(reader).map_err(|_| Status::BadXdr)
    }

    /// Writes the result of an operation that the previous server has executed.
    fn answer_from(&mut self, operation: &Operation<'_>, done: &OwnedDone) -> Result<Did> {
        let answer = match (operation, done) {
            (Operation::Create(asked), Done::Created(created)) => {
                self.set_current(created.file);
                let attributes = settings_of(&asked.attributes, true)?.mask;
                let change = change(created.directory);
                Answer::Create(Reply::Ok(CreateDone { change, attributes }))
            }
            (Operation::Remove(_), Done::Changed(changed)) => {
                Answer::Remove(Reply::Ok(change(changed.directory)))
            }
            (Operation::Link(_), Done::Changed(changed)) => {
                Answer::Link(Reply::Ok(change(changed.directory)))
            }
            (Operation::Rename(_), Done::Renamed(renamed)) => {
                let (source, target) = (change(renamed.source), change(renamed.target));
                Answer::Rename(Reply::Ok(RenameDone { source, target }))
            }
            (Operation::SetAttr(asked), Done::Set(_)) => {
                let attributes = settings_of(&asked.attributes, false)?.mask;
                Answer::SetAttr(SetAttrResult { status: Status::Ok, attributes })
            }
            (Operation::SetXattr(_), Done::XattrChanged(changed)) => {
                Answer::SetXattr(Reply::Ok(change(changed.change)))
            }
            (Operation::RemoveXattr(_), Done::XattrChanged(changed)) => {
                Answer::RemoveXattr(Reply::Ok(change(changed.change)))
            }
            (Operation::Open(asked), Done::Opened(opened)) => {
                return self.answer_opened(asked, opened);
            }
            _ => return Err(Status::ServerFault),
        };
        self.push(&answer)
    }

    /// Writes the result of an OPEN that the previous server has executed. The open itself has
    /// ended with that server, so its state id is one of before the restart. The client reclaims
    /// the open, like all others.
    fn answer_opened(&mut self, asked: &OpenArgs<'_>, opened: &Opened) -> Result<Did> {
        let reply = &self.c.request.as_ref().ok_or(Status::ServerFault)?.reply;
        let mut other = [0; 12];
        other[..4].copy_from_slice(&reply.session.epoch().to_be_bytes());
        other[4..8].copy_from_slice(&reply.sequence.to_be_bytes());
        other[8..].copy_from_slice(&(UNUSED_INDEX | reply.slot).to_be_bytes());
        let state = Stateid4 { sequence: 1, other };
        self.set_current(opened.file);
        let state = self.set_state(state);
        let done = OpenDone {
            state,
            change: change(opened.directory),
            flags: OpenFlags::LOCKTYPE_POSIX,
            attributes: creation_of(&asked.how)?.1,
            delegation: self.show_delegation(&opened.file, None, asked.access),
        };
        self.push(&Answer::Open(Reply::Ok(done)))
    }
}

/// The number of bytes of the result of SEQUENCE.
const SEQUENCE_BYTES: usize = 44;
/// Added to a slot, a number that is too high for the index of a state. So a state id with it is
/// never that of another state.
const UNUSED_INDEX: u32 = 1 << 31;

//! Journals a request. First the request waits until no other request is changing the same names.
//! Then its intent is journaled, the request is executed, and its outcome is journaled.
//!
//! Invariant: each journaled intent is followed by exactly one record of its end: the outcome, or
//! the record that the request was not executed.

use dafs_files::caller::Caller;
use dafs_files::defect::Defect;
use dafs_files::ledger::plan::{Plan, Precondition};
use dafs_files::ledger::{LedgerDone, LedgerError};
use dafs_files::outcome::{Ended, NotDone, Outcome};
use dafs_journal::RecordNumber;
use dafs_journal::log::GroupDone;
use dafs_ops::{Append, FrontId, Operation, Origin};
use dafs_sessions::ChannelId;
use dafs_types::Status;
use dafs_wire::{ByteOrder, HEADER_BYTES, Response, encode_response};

use super::record::{CallReply, Intent, Record, RequestKey};
use super::recovery::records_of;
use super::requests::{AwaitingIntent, AwaitingRecord, FenceStep, Running, is_failure};
use crate::guests::GuestResult;
use crate::handoff::Handoff;
use crate::persistent::SlotNote;
use crate::pool::jobs::Job;
use crate::reactor::{Reactor, Shared};
use crate::reply_to::{ReplyTo, TaskId, blank};
use crate::requests::respond::ReplyStatus;
use crate::requests::set_aside::{Asked, SetAside, bytes_of};
use crate::waiting::fencing::operation_of_intent;

impl Shared {
    /// Journals the end of a persistent session. Returns the record's number.
    pub(crate) fn forget_persistent(&mut self, session: u64) -> RecordNumber {
        let Some(ledger) = &mut self.ledger else { return RecordNumber(0) };
        self.channels.guests_mut().persistent.remove(session);
        ledger.append(&Record::PersistentGone(session))
    }
}

impl Reactor<'_> {
    /// Journals the intent of a request that needs one, or queues the request until no other
    /// request is changing its names. Returns false if neither was necessary, so that the caller
    /// may execute the request immediately.
    pub(crate) fn journal_if_needed(&mut self, answer: ReplyTo, operation: &Operation<'_>) -> bool {
        if self.shared.ledger.is_none() || !operation.changes_names() {
            return false;
        }
        if self.shared.filer.has_fences()
            && let Err(status) = self.check_fences_of(answer, operation.fenced_objects())
        {
            self.fail(answer, status);
            return true;
        }
        let by = self.caller(answer).map_err(NotDone::from);
        let plan = match by.and_then(|by| self.files().plan(&by, operation)) {
            Ok(Some(plan)) => plan,
            Ok(None) => return false,
            Err(why) => {
                self.refuse(answer, why, Asked::Operation(operation));
                return true;
            }
        };
        let journaled = self.shared.waiting.journaled();
        if journaled.is_busy(&plan.places) {
            journaled.hold(answer, bytes_of(operation), plan.places);
            return true;
        }
        if !answer.kept().is_some() || !plan.needs_intent {
            return false;
        }
        self.intend(answer, plan, bytes_of(operation));
        true
    }

    /// Journals the intent of a request. The request continues when the record is durable.
    fn intend(&mut self, answer: ReplyTo, plan: Plan, operation: Box<[u8]>) {
        let Some((key, order)) = self.request_key(answer) else {
            return self.fail(answer, Status::ServerFault);
        };
        let Plan { precondition, places, touched, .. } = plan;
        let who = self.identity_of(answer).credentials.clone();
        let origin = key.origin();
        let intent = Intent { origin, who, precondition, operation: operation.clone() };
        let mut answer = answer;
        answer.logged = true;
        let next = AwaitingIntent::Request { answer, operation };
        if let Some(ledger) = &mut self.shared.ledger {
            self.shared.waiting.journaled().intend(
                ledger,
                answer,
                order,
                intent,
                (places, touched),
                next,
            );
        }
    }

    /// Journals the offset of an append. The append continues when the record is durable.
    pub(crate) fn intend_append(
        &mut self,
        id: TaskId,
        answer: ReplyTo,
        asked: Append,
        offset: u64,
    ) {
        let Some((key, order)) = self.request_key(answer) else { return };
        let who = self.identity_of(answer).credentials.clone();
        let precondition = Precondition::Appends { file: asked.file, offset, length: asked.length };
        let operation = bytes_of(&Operation::Append(asked));
        let intent = Intent { origin: key.origin(), who, precondition, operation };
        if let Some(ledger) = &mut self.shared.ledger {
            let (nothing, next) = (Default::default(), AwaitingIntent::Task(id));
            self.shared.waiting.journaled().intend(ledger, answer, order, intent, nothing, next);
        }
    }

    // ---- guests -----------------------------------------------------------------------

    /// Does for the call of a guest what [`Reactor::journal_if_needed`] does for a DAFS request.
    /// Returns true if the call must wait: for [`GuestResult::Free`] or [`GuestResult::Intended`].
    /// `start` returns the destination of this result. Without an origin the call is not journaled.
    /// The origin of a call of a persistent session comes with the state of its slot.
    pub(crate) fn journal_for_guest(
        &mut self,
        by: &Caller,
        origin: Option<(Origin, Option<SlotNote>)>,
        operation: &Operation<'_>,
        start: impl FnOnce() -> ReplyTo,
    ) -> bool {
        if self.shared.ledger.is_none() {
            return false;
        }
        let plan = match self.files().plan(by, operation) {
            Ok(Some(plan)) => plan,
            Ok(None) => return false,
            Err(why) => {
                // The execution returns the same error.
                self.without_waiting(why);
                return false;
            }
        };
        let journaled = self.shared.waiting.journaled();
        if journaled.is_busy(&plan.places) {
            journaled.hold(start(), Box::default(), plan.places);
            return true;
        }
        let (Some((origin, note)), true) = (origin, plan.needs_intent) else { return false };
        let start = start();
        if let Some(note) = note {
            self.note_slot(origin, &note.encode());
        }
        let journaled = self.shared.waiting.journaled();
        let Some(ledger) = &mut self.shared.ledger else { return false };
        let Plan { precondition, places, touched, .. } = plan;
        let (who, operation) = (by.who.credentials.clone(), bytes_of(operation));
        let intent = Intent { origin, who, precondition, operation };
        journaled.intend_for_guest(ledger, start, intent, (places, touched));
        true
    }

    /// Journals the reply to a call of a guest that was executed. The guest gets
    /// [`GuestResult::Durable`] when the reply may be sent.
    pub(crate) fn conclude_for_guest(
        &mut self,
        to: ReplyTo,
        intent: RecordNumber,
        told: ReplyStatus,
        reply: &[u8],
    ) {
        self.die_of(Defect::DieBeforeOutcome);
        if self.own.defect == Some(Defect::TellGuestsEarly) {
            // The second report of this result finds no call any more.
            self.report_to_guest(to, GuestResult::Durable);
        }
        let concluded = AwaitingRecord::new(to, told.status, reply, None);
        match self.shared.waiting.journaled().take_running_guest(intent) {
            Some(running) => self.conclude_running(running, told.after, concluded),
            None => self.conclude_after(told.after, concluded),
        }
    }

    /// Journals the state of a slot of a persistent session. Returns the record's number.
    pub(crate) fn note_slot(&mut self, origin: Origin, note: &[u8]) -> RecordNumber {
        let Some(ledger) = &mut self.shared.ledger else { return RecordNumber(0) };
        self.shared.channels.guests_mut().persistent.note(origin, note);
        ledger.append(&Record::CallReply(CallReply { origin, bytes: note.into() }))
    }

    /// Journals a new or changed persistent session. Returns the record's number.
    pub(crate) fn note_persistent(&mut self, session: u64, record: &[u8]) -> RecordNumber {
        let Some(ledger) = &mut self.shared.ledger else { return RecordNumber(0) };
        self.shared.channels.guests_mut().persistent.insert(session, record);
        ledger.append(&Record::Persistent(session, record.into()))
    }

    /// Ends the process if a test has injected this defect.
    fn die_of(&self, defect: Defect) {
        if self.own.defect == Some(defect) {
            std::process::abort();
        }
    }

    /// Records that the call of a guest was not executed.
    pub(crate) fn abandon_for_guest(&mut self, intent: RecordNumber) {
        let Some(ledger) = &mut self.shared.ledger else { return };
        let journaled = self.shared.waiting.journaled();
        let Some(running) = journaled.take_running_guest(intent) else { return };
        let intent = journaled.end_without_effect(ledger, &running);
        self.shared.filer.leave_fence(operation_of_intent(intent));
        self.serve_held();
    }

    /// Passes a result to the reactor that serves guests.
    pub(crate) fn report_to_guest(&mut self, to: ReplyTo, result: GuestResult) {
        match &mut self.own.guest_results {
            Some(results) => results.push(to, result),
            None => {
                let reactor = self.shared.channels.guests().reactor();
                self.shared.handoffs.leave(reactor, Handoff::Guest(to, result));
            }
        }
    }

    /// Returns the key of the request in the journal and the byte order of the request's session.
    /// `None` if the session stores no results.
    fn request_key(&self, answer: ReplyTo) -> Option<(RequestKey, ByteOrder)> {
        let record = self.shared.sessions.session_record(answer.kept())?;
        let request = self.shared.sessions.request_begun(answer.kept(), answer.stream)?;
        Some((RequestKey { session: record.id, request }, record.order))
    }

    // ---- execution ------------------------------------------------------------------

    /// Submits the next sync and the next group of records to the pool.
    #[inline]
    pub(crate) fn push_ledger(&mut self) {
        let Some(ledger) = &mut self.shared.ledger else { return };
        // The check comes first because a job is a large value, which is slow to build and move.
        if self.shared.waiting.journaled().has_unsynced()
            && let Some(job) = self.shared.waiting.journaled().take_sync(&self.shared.whole_store)
        {
            self.shared.pool.submit(Job::Ledger(job));
        }
        if ledger.has_some()
            && let Some(job) = ledger.take_group()
        {
            self.shared.pool.submit(Job::Ledger(job));
        }
    }

    /// Handles the end of a journal job, whether it succeeded or failed.
    pub(crate) fn on_ledger_done(&mut self, done: LedgerDone) {
        match done {
            LedgerDone::Group(done) => self.on_group_done(done),
            LedgerDone::Synced(Ok(())) => self.on_touched_synced(),
            LedgerDone::Synced(Err(error)) => self.shared.life.fail(LedgerError::Store(error)),
        }
    }

    /// Handles the end of a sync, after which the changes of the covered operations are on stable
    /// storage. Journals their outcomes and prepares their replies. The names that they change stay
    /// busy until the outcomes are durable.
    fn on_touched_synced(&mut self) {
        for synced in self.shared.waiting.journaled().take_synced() {
            let Some(ledger) = &mut self.shared.ledger else { return };
            let (intent, after, concluded) =
                self.shared.waiting.journaled().end_synced(ledger, synced);
            self.conclude_after(after, concluded);
            self.shared.filer.leave_fence(operation_of_intent(intent));
        }
    }

    /// Handles the end of the write of a group of records, which are now durable or have failed.
    fn on_group_done(&mut self, done: GroupDone) {
        let Some(ledger) = &mut self.shared.ledger else { return };
        let durable = match ledger.on_group_done(done) {
            Ok(durable) => durable,
            Err(error) => return self.shared.life.fail(error),
        };
        if self.shared.waiting.journaled().free_committed(durable) {
            self.serve_held();
        }
        self.checkpoint_if_due();
        self.advance_fences(durable);
        self.files().remove_undo(durable);
        while let Some(concluded) = self.shared.waiting.journaled().next_concluded(durable) {
            self.deliver_concluded(concluded);
        }
        while let Some(intended) = self.shared.waiting.journaled().next_intended(durable) {
            match intended {
                AwaitingIntent::Task(id) => self.resume(id, None),
                AwaitingIntent::Request { answer, operation } => {
                    self.resume_request(answer, SetAside::Operation(operation), None)
                }
                AwaitingIntent::Guest(to, intent) => {
                    self.die_of(Defect::DieAfterIntent);
                    self.report_to_guest(to, GuestResult::Intended(intent));
                }
            }
        }
    }

    /// Executes the requests that waited for names, if the names are no longer busy.
    fn serve_held(&mut self) {
        while let Some((answer, operation)) = self.shared.waiting.journaled().next_held() {
            if self.shared.channels.guests().is_guest(answer.endpoint) {
                self.report_to_guest(answer, GuestResult::Free);
                continue;
            }
            self.resume_request(answer, SetAside::Operation(operation), None);
        }
    }

    // ---- outcomes -------------------------------------------------------------------

    /// Stores the result of a request and sends the reply, which waits for the journal if
    /// necessary.
    pub(crate) fn conclude_kept(
        &mut self,
        answer: ReplyTo,
        told: ReplyStatus,
        bytes: &[u8],
        message: Option<&[u8]>,
    ) {
        let ReplyStatus { status, after } = told;
        let running =
            answer.logged.then(|| self.shared.waiting.journaled().take_running(answer)).flatten();
        let Some(running) = running else {
            if after.0 != 0 {
                let concluded = AwaitingRecord::new(answer, status, bytes, message);
                return self.conclude_after(after, concluded);
            }
            self.keep(answer, status, bytes);
            match message {
                // The credits of this reply have already been granted.
                Some(message) if !answer.logged => self.send(answer.endpoint, message),
                message => self.send_if_any(answer, message),
            }
            return self.end_member(answer);
        };
        let concluded = AwaitingRecord::new(answer, status, bytes, message);
        self.conclude_running(running, after, concluded);
    }

    /// Ends a request with an intent: journals its outcome when its changes are synced.
    fn conclude_running(
        &mut self,
        running: Running,
        after: RecordNumber,
        concluded: AwaitingRecord,
    ) {
        let status = concluded.status;
        let Some(ledger) = &mut self.shared.ledger else { return };
        let ended = self.shared.waiting.journaled().end(ledger, running, after, concluded);
        let Some((intent, after, concluded)) = ended else { return };
        if is_failure(status) {
            self.deliver_concluded(concluded);
        } else {
            self.conclude_after(after, concluded);
        }
        self.shared.filer.leave_fence(operation_of_intent(intent));
        self.serve_held();
    }

    /// Queues a reply, to be sent when a record is durable.
    fn conclude_after(&mut self, after: RecordNumber, concluded: AwaitingRecord) {
        match &self.shared.ledger {
            Some(ledger) if after > ledger.durable() => {
                self.shared.waiting.journaled().conclude_after(after, concluded);
            }
            _ => self.deliver_concluded(concluded),
        }
    }

    /// Delays the reply of a session without a response cache until a record is durable.
    #[cold]
    pub(crate) fn delay_answer(&mut self, answer: ReplyTo, after: RecordNumber, message: &[u8]) {
        let concluded = AwaitingRecord::new(answer, Status::Ok, &[], Some(message));
        self.conclude_after(after, concluded);
    }

    fn deliver_concluded(&mut self, concluded: AwaitingRecord) {
        let AwaitingRecord { answer, status, bytes, message, origin } = concluded;
        // The reply to a call is noted here, so that no checkpoint can miss it.
        if let Some(origin) = origin {
            let guests = self.shared.channels.guests_mut();
            match origin.front {
                FrontId::NFS3 => guests.repeats.note(&origin, &bytes),
                FrontId::NFS4 => guests.persistent.note(origin, &bytes),
                _ => {}
            }
        }
        if answer.kept().is_some() {
            self.keep(answer, status, &bytes);
        }
        if self.shared.channels.get(answer.endpoint).is_some() {
            self.send_if_any(answer, message.as_deref());
        } else if self.shared.channels.guests().is_guest(answer.endpoint) {
            return self.report_to_guest(answer, GuestResult::Durable);
        }
        self.end_member(answer);
    }

    /// Reports to the reactor that serves guests that a lock may be granted to one of them.
    pub(crate) fn report_lock_ready(&mut self) {
        match &mut self.own.guest_results {
            Some(results) => results.note_lock_ready(),
            None => {
                let reactor = self.shared.channels.guests().reactor();
                self.shared.handoffs.leave(reactor, Handoff::LockReady);
            }
        }
    }

    fn send_if_any(&mut self, answer: ReplyTo, message: Option<&[u8]>) {
        if let Some(message) = message {
            self.send_waited(answer, message);
        }
    }

    /// Records that a request was not executed, so that its client may send the request again.
    /// Returns a reply destination with which the result of the request is not stored.
    pub(crate) fn abandon(&mut self, answer: ReplyTo) -> ReplyTo {
        if !answer.kept().is_some() {
            return answer;
        }
        if let Some(ledger) = &mut self.shared.ledger
            && let Some(intent) = self.shared.waiting.journaled().abandon(ledger, answer)
        {
            self.shared.filer.leave_fence(operation_of_intent(intent));
            self.serve_held();
        }
        if self.shared.sessions.end_without_reply(answer.kept()) {
            self.retry_queries();
        }
        let mut answer = answer;
        answer.logged = false;
        answer.keep_in(dafs_sessions::KeptSession::NONE);
        answer
    }

    /// Stores the result of a request whose connection has ended.
    #[cold]
    pub(crate) fn conclude_undelivered(
        &mut self,
        answer: ReplyTo,
        told: ReplyStatus,
        response: &Response<'_>,
    ) {
        let Some(order) =
            self.shared.sessions.session_record(answer.kept()).map(|record| record.order)
        else {
            return;
        };
        if is_failure(told.status) {
            // The request may have failed only because its connection ended, so the client may send
            // it again.
            self.abandon(answer);
            return;
        }
        // The buffer has the size of the longest reply. Its allocation costs no client time,
        // because none waits for this reply.
        let mut message = vec![0; dafs_types::limits::RESPONSE_BYTES_MAX];
        let header = blank(answer, told.status, 1);
        match encode_response(order, &header, response, &mut message) {
            Ok(length) => {
                self.conclude_kept(answer, told, &message[HEADER_BYTES..length], None);
            }
            Err(error) => {
                let told = ReplyStatus { status: error.status(), ..told };
                self.conclude_kept(answer, told, &[], None);
            }
        }
    }

    // ---- other records ----------------------------------------------------------------

    /// Continues the changes of fencing lists that waited for records up to the number `durable`.
    fn advance_fences(&mut self, durable: RecordNumber) {
        while let Some(step) = self.shared.waiting.journaled().next_fence_step(durable) {
            match step {
                FenceStep::Stored(id) => {
                    self.shared.filer.fence_stored(id, true);
                    self.pump_fences();
                }
                FenceStep::Answered(answer) => {
                    self.report(answer, Outcome::done(Ended::Fenced));
                }
            }
        }
    }

    /// Starts a checkpoint if the journal has grown enough since the last one.
    fn checkpoint_if_due(&mut self) {
        let Some(ledger) = &mut self.shared.ledger else { return };
        if !ledger.wants_checkpoint() {
            return;
        }
        let guests = self.shared.channels.guests();
        let calls = (&guests.repeats, &guests.persistent);
        let records = records_of(self.shared.waiting.journaled(), &self.shared.sessions, calls);
        if let Err(error) = ledger.begin_checkpoint(&self.shared.filer, records) {
            self.shared.life.fail(error);
        }
    }

    /// Journals the clients that have disconnected and the sessions whose stored results are
    /// dropped. Returns the number of the last of these records, or 0 if there were none.
    pub(crate) fn note_forgotten(&mut self) -> RecordNumber {
        let forgotten = self.shared.sessions.take_forgotten();
        let mut after = RecordNumber(0);
        if let Some(ledger) = &mut self.shared.ledger {
            for session in forgotten {
                after = ledger.append(&Record::Forgotten(session));
            }
        }
        after.max(self.files().note_lapsed())
    }

    /// Journals the start of a session that stores results. Returns the record's number, or 0 if
    /// none is needed.
    pub(crate) fn note_session(&mut self, id: ChannelId) -> RecordNumber {
        let kept = self.shared.sessions.kept_session(id);
        match (&mut self.shared.ledger, self.shared.sessions.session_record(kept)) {
            (Some(ledger), Some(session)) => ledger.append(&Record::Session(session.clone())),
            _ => RecordNumber(0),
        }
    }
}

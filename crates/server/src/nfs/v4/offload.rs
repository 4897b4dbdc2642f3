//! The operations OFFLOAD_STATUS and OFFLOAD_CANCEL, and the start and the end of copies that
//! continue after the reply to their COPY.
//!
//! The pool copies one part after the other, like for a COPY that the client waits for. A copy that
//! cannot be started in this way, because there are too many or because the client cannot be told
//! of the end, is complete before the reply. A restarted server knows no copies.
//!
//! Invariant: a copy ends with its client. No byte is copied after the reply to OFFLOAD_CANCEL.

use dafs_files::outcome::{Ended, Outcome};
use dafs_files::ranges::RangeTask;
use dafs_nfs_state::{CallbackOutcome, KindSet, ReferringCall};
use dafs_nfs_wire::nfs4::callbacks::{Callback, CbOffloadArgs, OffloadResult};
use dafs_nfs_wire::nfs4::copy::{CopyDone, CopyRequirements, CopyResult, OffloadStatusDone};
use dafs_nfs_wire::nfs4::types::{Stability, Verifier as ShownVerifier, WriteResponse};
use dafs_nfs_wire::nfs4::{Answer, OperationKind, Reply, StateId as Wire, Status};
use dafs_nfs_wire::xdr::Opaque;
use dafs_ops::Copied;
use dafs_types::FileHandle;

use super::compound::Service;
use super::convert;
use super::copies::{ClientCopy, CopyEnd, LENGTH_MIN, Phase};
use super::fault::Result;
use super::recalls::{Content, Offloaded};
use super::state::State;
use super::states::wire_of;
use super::waiting::{Awaits, Did};
use crate::guests::GuestResult;
use crate::nfs::calls::{Desk, Suspended};
use crate::reactor::Reactor;
use crate::task::{Task, Work};

impl Service<'_, '_, '_> {
    /// Starts a copy that continues after the reply, and writes the reply. Returns the task if the
    /// client must wait for the copy instead.
    pub(super) fn offload(
        &mut self,
        mut task: Box<RangeTask>,
        file: FileHandle,
    ) -> std::result::Result<Did, Box<RangeTask>> {
        if task.copy_length().is_none_or(|length| length < LENGTH_MIN) {
            return Err(task);
        }
        let Some((number, id)) = self.new_copy(&mut task, file) else { return Err(task) };
        let to = self.desk.calls.start(self.c.id, Suspended::Copy(number));
        self.reactor.start(Task::new(to, Work::Range(task)));
        let verifier = self.reactor.files().verifier();
        let response = WriteResponse {
            callback: Some(id),
            count: 0,
            committed: Stability::Unstable,
            verifier: ShownVerifier(verifier.0),
        };
        let requirements = CopyRequirements { consecutive: true, synchronous: false };
        let done = CopyDone { response, requirements };
        let _ = self.push(&Answer::Copy(CopyResult::Started(done)));
        Ok(Did::Written)
    }

    /// Adds the entry of a copy. Returns its number and its state id. `None` if there are too many
    /// copies or states, or if the client cannot be told of the end.
    fn new_copy(&mut self, task: &mut RangeTask, file: FileHandle) -> Option<(u64, Wire)> {
        let (client, nfs_client) = (self.client().ok()?, self.nfs_client().ok()?);
        let client_id = self.reactor.shared.filer.client_id(client)?;
        let verifier = self.reactor.files().verifier();
        let v4 = &mut *self.desk.v4;
        if !v4.machine.has_back_channel(nfs_client) {
            return None;
        }
        let (number, replaced) = v4.copies.reserve(client)?;
        if let Some(replaced) = replaced {
            v4.machine.ended(replaced.state);
        }
        let (state, id) = v4.machine.copying(nfs_client, number).ok()?;
        let started_by = self.c.request.as_ref().map(|admitted| ReferringCall {
            session: admitted.reply.session,
            slot: admitted.reply.slot,
            sequence: admitted.reply.sequence,
        });
        let (control, phase) = (task.detach(), Phase::Running);
        let copy = ClientCopy {
            client,
            client_id,
            nfs_client,
            state,
            file,
            started_by,
            verifier,
            control,
            phase,
        };
        v4.copies.insert(number, copy);
        Some((number, wire_of(id)))
    }

    pub(super) fn offload_status(&mut self, given: &Wire) -> Result<Did> {
        let (_, copy) = self.copy_of_client(given)?;
        let (count, complete) = match copy.phase {
            Phase::Running | Phase::Cancelled(_) => (copy.control.done(), None),
            Phase::Ended(end) => (end.count, Some(end.status)),
        };
        self.push(&Answer::OffloadStatus(Reply::Ok(OffloadStatusDone { count, complete })))
    }

    /// Cancels a copy. The reply waits until the part that is being copied is complete.
    pub(super) fn offload_cancel(&mut self, given: &Wire) -> Result<Did> {
        let (number, copy) = self.copy_of_client(given)?;
        match copy.phase {
            Phase::Running => {
                copy.control.cancel();
                let to = self.wait_for(Awaits::Range(OperationKind::OffloadCancel));
                if let Some(copy) = self.desk.v4.copies.get_mut(number) {
                    copy.phase = Phase::Cancelled(to);
                }
                Ok(Did::Later)
            }
            Phase::Cancelled(_) => Err(Status::Delay),
            Phase::Ended(_) => {
                self.desk.v4.end_copy_state(number);
                Err(Status::CompleteAlready)
            }
        }
    }

    /// Returns a copy that a client names, and its number. Fails if it is not into the current
    /// file.
    fn copy_of_client(&self, given: &Wire) -> Result<(u64, &ClientCopy)> {
        let file = self.current()?;
        let number = self.state(given, KindSet::COPY)?.inner;
        let copy = self.desk.v4.copies.get(number);
        let copy = copy.filter(|copy| copy.file == file).ok_or(Status::BadStateId)?;
        Ok((number, copy))
    }
}

/// Handles the end of a copy that has continued after the reply.
pub(in crate::nfs) fn end_copy(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    number: u64,
    result: GuestResult,
) {
    let GuestResult::Outcome(outcome) = result else { return };
    // The client may have ended.
    let Some(copy) = desk.v4.copies.get_mut(number) else { return };
    let file = copy.file;
    let end = match &outcome.result {
        Ok(Ended::Copied(Copied { length, .. })) => CopyEnd { status: Status::Ok, count: *length },
        _ => CopyEnd { status: convert::failure_of(&outcome), count: copy.control.done() },
    };
    let before = std::mem::replace(&mut copy.phase, Phase::Ended(end));
    desk.recent.forget(reactor, &file);
    match before {
        Phase::Cancelled(to) => {
            desk.v4.end_copy_state(number);
            let cancelled = Outcome::done(Ended::Ranged);
            reactor.report_to_guest(to, GuestResult::Outcome(cancelled));
        }
        Phase::Running | Phase::Ended(_) => desk.v4.tell_of_copy(reactor, number, end),
    }
}

impl State {
    /// Tells a client that its copy has ended (CB_OFFLOAD).
    fn tell_of_copy(&mut self, reactor: &Reactor<'_>, number: u64, end: CopyEnd) {
        let Some(copy) = self.copies.get(number) else { return };
        let Some(id) = self.machine.state_id(copy.state) else { return };
        let (now, patience) = (reactor.shared.life.now(), reactor.shared.filer.config().lease);
        self.callbacks.last_content += 1;
        let word = self.callbacks.last_content;
        let queued = self.machine.call_back(copy.nfs_client, word, copy.started_by, patience, now);
        // A client that cannot be told asks by OFFLOAD_STATUS.
        if queued.is_ok() {
            let content = Content::Offload(Offloaded {
                client: copy.client_id,
                number,
                shown: wire_of(id),
                file: copy.file,
                verifier: copy.verifier,
                end,
            });
            self.callbacks.contents.insert(word, content);
        }
    }

    /// Handles the end of a CB_OFFLOAD. The state id ends with the client's reply.
    pub(super) fn end_told_copy(&mut self, number: u64, outcome: CallbackOutcome) {
        match outcome {
            CallbackOutcome::Replied(_) => self.end_copy_state(number),
            CallbackOutcome::TimedOut => {}
        }
    }

    /// Removes a copy that has ended, and ends its state id.
    fn end_copy_state(&mut self, number: u64) {
        if let Some(copy) = self.copies.remove(number) {
            self.machine.ended(copy.state);
        }
    }
}

/// Returns the operation that tells a client of the end of a copy.
pub(super) fn notice_of(offloaded: &Offloaded) -> Callback<'_> {
    let Offloaded { shown, file, verifier, end, .. } = offloaded;
    let result = match end.status {
        Status::Ok => OffloadResult::Done(WriteResponse {
            // The state id is in the arguments already, and nothing continues.
            callback: None,
            count: end.count,
            committed: Stability::Unstable,
            verifier: ShownVerifier(verifier.0),
        }),
        status => OffloadResult::Failed(status, end.count),
    };
    Callback::Offload(CbOffloadArgs { handle: Opaque(&file.0), state: *shown, result })
}

//! Determines the fate of interrupted requests and opens, and continues the session.
//!
//! Invariant: each interrupted request either ends or is sent again once. Former state ids are
//! replaced before any request is sent.

use std::rc::Rc;

use dafs_dat::coarse_now;
use dafs_types::{SessionId, StateId, Status};
use dafs_wire::messages::{Close, DiscardResponses, Empty, LockTest, LockType, OpenResult};
use dafs_wire::{ByteOrder, Procedure, Request, Response, ResponseHeader, decode_response};

use crate::chain::work::Member;
use crate::core::Core;
use crate::credits::ReservedFor;
use crate::error::ClientError;
use crate::ids::SessionKey;
use crate::opens::{Opened, Opens, Reclaim};
use crate::recovery::delay::means_delay;
use crate::recovery::interrupted::{Fate, InterruptedRequest, answer};
use crate::recovery::options::SessionEvent;
use crate::recovery::progress::{Claim, ClaimOutcome, RecoveryProgress, Step};
use crate::recovery::question::Question;
use crate::state::Phase;
use crate::work::Work;

impl Core {
    /// Ends every interrupted CLOSE as successful, because the restarted server has none of the old
    /// opens.
    pub(super) fn complete_closes(&mut self, key: SessionKey) {
        let Some(progress) = self.recovery_progress(key) else { return };
        // A CLOSE in a chain is left out, because it may have to wait until the file is open again.
        let is_call = |s: &&mut InterruptedRequest| matches!(s.work, Some(Work::Call(_)));
        let closes = progress.interrupted.iter_mut().filter(|s| s.procedure == Procedure::Close);
        let closes = closes.filter(is_call);
        let closes: Vec<Work> = closes.filter_map(|interrupted| interrupted.work.take()).collect();
        let (header, message) = answer(&Response::Close(Empty), Status::Ok);
        for work in closes {
            self.complete_request(key, work, &header, &message);
        }
    }

    /// Ends a request with the reply that the server had kept.
    fn complete_request(
        &mut self,
        key: SessionKey,
        work: Work,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        match work {
            Work::Call(call) => self.on_called(key, call, header, message),
            Work::Transfer(transfer) => self.on_transferred(key, transfer, header, message),
            Work::Member(Member { chain, number }) => {
                // The chain as a whole ends when the session continues.
                chain.borrow_mut().note_answer(number, Some(header.status), Ok(message));
            }
            // A chain is not completed here: its members end one by one.
            Work::Chain(_) => {}
        }
    }

    /// Handles the server's reply about the outcome of the interrupted request with index `number`.
    pub(super) fn on_fetched(
        &mut self,
        key: SessionKey,
        number: usize,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        let Some(machine) = &mut self.sessions[key].recovery else { return };
        let old_client = machine.client;
        let Some(progress) = &mut machine.progress else { return };
        let is_restarted = progress.client != old_client;
        let Some(interrupted) = progress.interrupted.get_mut(number) else { return };
        match header.status {
            // The request was not executed and never will be, because no request of the old session
            // is running.
            Status::NoXidMatch => interrupted.fate = Fate::NotDone,
            // The chain stopped at an earlier member, so this member was not executed.
            Status::ChainBroken => interrupted.fate = Fate::NotDone,
            // The status may concern either the old proof of identity or the new one.
            Status::NotAuthenticated => progress.to_ask.push_back(Question::Check(number)),
            status if means_delay(status) => progress.to_ask.push_back(Question::Check(number)),
            Status::UnknownSession if interrupted.is_repeatable() => {
                interrupted.fate = Fate::NotDone;
            }
            Status::UnknownSession => {
                progress.unknown += 1;
                let error = ClientError::OutcomeUnknown { what: interrupted.describe() };
                if let Some(work) = interrupted.work.take() {
                    self.fail(work, &error);
                }
            }
            Status::Ok if is_restarted && interrupted.procedure == Procedure::Open => {
                progress.fetched += 1;
                interrupted.fate = Fate::Opened(message.to_vec());
            }
            _ => {
                progress.fetched += 1;
                if let Some(work) = interrupted.work.take() {
                    self.complete_request(key, work, header, message);
                }
            }
        }
    }

    /// Handles the reply to [`Question::Check`]. The reply shows which request the server had
    /// delayed: the interrupted request itself, which was then not executed, or only the client's
    /// request for its result.
    pub(super) fn on_checked(&mut self, key: SessionKey, number: usize, status: Status) {
        match status {
            Status::Ok | Status::NoXidMatch => {
                if let Some(interrupted) = self.interrupted(key, number) {
                    interrupted.fate = Fate::NotDone;
                }
            }
            status => self.attempt_failed(key, format!("the server replied {status}")),
        }
    }

    fn interrupted(&mut self, key: SessionKey, number: usize) -> Option<&mut InterruptedRequest> {
        self.recovery_progress(key)?.interrupted.get_mut(number)
    }

    /// Starts to register credentials again at a restarted server. The opens that were made with
    /// them are reclaimed afterwards.
    pub(super) fn begin_registering(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        let Some(machine) = &mut session.recovery else { return };
        let Some(progress) = &mut machine.progress else { return };
        progress.begin_step(Step::Registering, machine.limits.attempt_timeout);
        if progress.client != machine.client {
            let unknown = session.standing.registered.unknown_to(progress.client);
            progress.to_ask = unknown.into_iter().map(Question::RegisterCredentials).collect();
        }
    }

    pub(super) fn on_registered(
        &mut self,
        key: SessionKey,
        place: usize,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        if means_delay(header.status) {
            return self.attempt_failed(key, format!("the server replied {}", header.status));
        }
        let result = decode_response(ByteOrder::NATIVE, Procedure::RegisterCred, message);
        let handle = match (header.status, result) {
            (Status::Ok, Ok((_, Response::RegisterCred(result)))) => Some(result.handle),
            _ => None,
        };
        let session = &mut self.sessions[key];
        session.standing.registered.note(place, handle, session.standing.client);
        if let (None, Some(progress)) = (handle, self.recovery_progress(key)) {
            progress.credentials_lost += 1;
        }
    }

    /// Starts to reclaim all opens from a restarted server.
    pub(super) fn begin_reclaiming(&mut self, key: SessionKey) {
        let is_additional = self.sessions[key].role.first().is_some();
        // In an earlier attempt that failed, the previous server incarnation may have reported
        // opens of chains.
        self.note_chains(key);
        let Some(machine) = &mut self.sessions[key].recovery else { return };
        let Some(progress) = &mut machine.progress else { return };
        progress.begin_step(Step::Reclaiming, machine.limits.attempt_timeout);
        if progress.client == machine.client {
            return;
        }
        if is_additional {
            // Interrupted chains on an additional channel are run again from their start.
            machine.opens = Opens::default();
            let opened =
                progress.interrupted.iter_mut().filter(|s| matches!(s.fate, Fate::Opened(_)));
            opened.for_each(|interrupted| interrupted.fate = Fate::NotDone);
            return;
        }
        if progress.claims_of != Some(progress.client) {
            progress.claims_of = Some(progress.client);
            progress.claims = machine.opens.held().into_iter().map(Claim::new).collect();
        }
        for (number, interrupted) in progress.interrupted.iter().enumerate() {
            let of = Some(number);
            if let (Fate::Opened(answer), Some(message)) =
                (&interrupted.fate, interrupted.message())
                && let Some(opened) = Opened::from_answer(&message, answer)
                && !progress.claims.iter().any(|claim| claim.of == of)
            {
                progress.claims.push(Claim { of, ..Claim::new(Rc::new(opened)) });
            }
        }
        for claim in &mut progress.claims {
            (claim.due, claim.state, claim.locks) = (None, None, 0);
        }
        let open = progress.claims.iter().enumerate().filter(|(_, claim)| claim.outcome.is_none());
        let ask = |(number, _)| Question::Reclaim(number, Reclaim::ByHandle);
        progress.to_ask = open.map(ask).collect();
    }

    pub(super) fn on_claimed(
        &mut self,
        key: SessionKey,
        number: usize,
        how: Reclaim,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        let result = decode_response(ByteOrder::NATIVE, Procedure::Open, message);
        if header.status == Status::Ok
            && let Ok((_, Response::Open(OpenResult { file, state, .. }))) = result
        {
            let handle =
                self.recovery_progress(key).and_then(|r| Some(r.claims.get(number)?.opened.handle));
            if handle == Some(file) {
                return self.request_locks(key, number, state);
            }
            // The name now leads to another file, so the new open is closed.
            self.ask(key, Question::Ignore, &Request::Close(Close { file, state }));
            return self.set_claim_outcome(key, number, ClaimOutcome::Gone);
        }
        if means_delay(header.status) && self.wait_for_claim(key, number, how) {
            return;
        }
        // A server without support for reclaim has lost the opens permanently. But an open that
        // denied no access to others can be replaced by a new open, if the name still leads to the
        // same file.
        match how {
            Reclaim::ByHandle => self.set_claim_outcome(key, number, ClaimOutcome::Refused),
            Reclaim::ByName => self.set_claim_outcome(key, number, ClaimOutcome::Gone),
        }
    }

    /// Requests the locks of an open that was reclaimed.
    fn request_locks(&mut self, key: SessionKey, number: usize, state: StateId) {
        let Some(progress) = self.recovery_progress(key) else { return };
        let Some(claim) = progress.claims.get_mut(number) else { return };
        let locks = claim.opened.locks();
        (claim.state, claim.locks) = (Some(state), locks.len());
        if locks.is_empty() {
            return self.set_claim_outcome(key, number, ClaimOutcome::Held(state));
        }
        progress.to_ask.extend(locks.into_iter().map(|lock| Question::Relock(number, lock)));
    }

    pub(super) fn on_lock_reply(&mut self, key: SessionKey, number: usize, status: Status) {
        let Some(progress) = self.recovery_progress(key) else { return };
        let Some(claim) = progress.claims.get_mut(number) else { return };
        let (None, Some(state)) = (claim.outcome, claim.state) else { return };
        // An interrupted request may already have released this lock or open.
        let is_given_back = || {
            let gives_back = |interrupted: &InterruptedRequest| {
                interrupted.message().is_some_and(|message| claim.opened.is_given_up_by(&message))
            };
            progress.interrupted.iter().any(gives_back)
        };
        if status == Status::Ok || (!means_delay(status) && is_given_back()) {
            claim.locks = claim.locks.saturating_sub(1);
            if claim.locks == 0 {
                self.set_claim_outcome(key, number, ClaimOutcome::Held(state));
            }
            return;
        }
        if means_delay(status) {
            return self.attempt_failed(key, format!("the server replied {status}"));
        }
        // Other clients may have changed the locked range, and the application must learn of that,
        // so the open counts as lost.
        let file = claim.opened.handle;
        self.set_claim_outcome(key, number, ClaimOutcome::Gone);
        self.ask(key, Question::Ignore, &Request::Close(Close { file, state }));
    }

    /// Schedules a retry for a reclaim that the server delays. Returns false if no time is left.
    fn wait_for_claim(&mut self, key: SessionKey, number: usize, how: Reclaim) -> bool {
        let Some(machine) = &mut self.sessions[key].recovery else { return false };
        let now = coarse_now();
        let limit = machine.limit(now);
        let rounds = machine.progress.as_ref().and_then(|r| Some(r.claims.get(number)?.waits));
        let due = now + machine.pause(rounds.unwrap_or(0));
        let Some(progress) = &mut machine.progress else { return false };
        let Some(claim) = progress.claims.get_mut(number).filter(|_| now < limit) else {
            return false;
        };
        claim.waits += 1;
        claim.due = Some((due, how));
        true
    }

    pub(super) fn set_claim_outcome(
        &mut self,
        key: SessionKey,
        number: usize,
        outcome: ClaimOutcome,
    ) {
        if let Some(claim) =
            self.recovery_progress(key).and_then(|progress| progress.claims.get_mut(number))
        {
            claim.outcome = Some(outcome);
        }
    }

    // ---- finishing ------------------------------------------------------------------

    /// Continues the session, after the fate of every request and open is known.
    pub(super) fn finish(&mut self, key: SessionKey) {
        if let Some(reason) = self.reason_to_wait(key) {
            return self.attempt_failed(key, reason);
        }
        let session = &mut self.sessions[key];
        let Some(machine) = &mut session.recovery else { return };
        let Some(mut progress) = machine.progress.take() else { return };
        let server_restarted = progress.client != machine.client;
        machine.client = progress.client;
        // The sessions whose kept results are no longer needed.
        let old = std::mem::replace(&mut machine.session, progress.session);
        let old: Vec<SessionId> = progress.left.drain(..).chain(old).collect();
        session.phase = Phase::Open;
        session.is_unconfirmed = true;
        session.in_flight.credits.hold(ReservedFor::Any);
        let reclaimed = self.apply_claims(key, &mut progress);
        self.rewrite_state_ids(key, &mut progress.interrupted);
        let chains = std::mem::take(&mut progress.chains);
        let reissued = self.reissue(key, progress.interrupted)
            + self.resume_chains(key, chains, server_restarted);
        self.end_lent_on_other_device(key);
        self.rename_parts(key);
        let session = &mut self.sessions[key];
        let has_waiting = session.in_flight.has_waiting();
        if let Some(machine) = &mut session.recovery
            && !has_waiting
        {
            machine.note_progress();
        }
        self.announce(
            key,
            SessionEvent::Recovered {
                server_restarted,
                reissued,
                fetched: progress.fetched,
                reclaimed,
                lost: progress.lost,
                unknown: progress.unknown,
                credentials_lost: progress.credentials_lost,
            },
        );
        if server_restarted {
            self.end_reclaiming(key);
        }
        for session in old {
            let discard = Request::DiscardResponses(DiscardResponses { session });
            self.ask(key, Question::Ignore, &discard);
        }
        self.pump(key);
        self.rebind_back(key);
        self.let_additional_reconnect(key);
    }

    /// Sends a request that informs the server that this client has nothing more to reclaim, so
    /// that the grace period can end early. A request for a new open implies this; the request sent
    /// here changes nothing.
    fn end_reclaiming(&mut self, key: SessionKey) {
        let machine = self.sessions[key].recovery.as_ref();
        let Some(opened) = machine.and_then(|machine| machine.opens.held().into_iter().next())
        else {
            return;
        };
        let (file, owner) = (opened.handle, opened.owner());
        let (lock_type, offset, length) = (LockType::Read, 0, 1);
        let test = LockTest { file, lock_type, owner: &owner, offset, length };
        self.ask(key, Question::Ignore, &Request::LockT(test));
    }

    /// Replaces old state ids by new ones, and ends the OPEN requests that had been executed.
    /// Returns the number of opens reclaimed.
    fn apply_claims(&mut self, key: SessionKey, progress: &mut RecoveryProgress) -> u32 {
        let mut reclaimed = 0;
        for claim in std::mem::take(&mut progress.claims) {
            let state = match claim.outcome {
                Some(ClaimOutcome::Held(state)) => Some(state),
                Some(ClaimOutcome::Refused | ClaimOutcome::Gone) | None => None,
            };
            if let Some(number) = claim.of {
                self.answer_open(key, &mut progress.interrupted[number], state);
                continue;
            }
            match (state, &mut self.sessions[key].recovery) {
                (Some(state), Some(machine)) => {
                    machine.opens.rename(&claim.opened, state);
                    reclaimed += 1;
                }
                _ => {
                    claim.opened.note_lost();
                    progress.lost += 1;
                }
            }
        }
        reclaimed
    }

    /// Ends an interrupted OPEN that the previous server incarnation had executed.
    fn answer_open(
        &mut self,
        key: SessionKey,
        interrupted: &mut InterruptedRequest,
        state: Option<StateId>,
    ) {
        let Fate::Opened(message) = &interrupted.fate else { return };
        let Some(work) = interrupted.work.take() else { return };
        let decoded = decode_response(ByteOrder::NATIVE, Procedure::Open, message);
        let (header, message) = match (decoded, state) {
            (Ok((_, Response::Open(result))), Some(state)) => {
                answer(&Response::Open(OpenResult { state, ..result }), Status::Ok)
            }
            _ => answer(&Response::Failed, Status::Stale),
        };
        self.complete_request(key, work, &header, &message);
    }

    /// Replaces former state ids in requests that wait to be sent.
    fn rewrite_state_ids(&mut self, key: SessionKey, interrupted: &mut [InterruptedRequest]) {
        let session = &mut self.sessions[key];
        let Some(machine) = &mut session.recovery else { return };
        let interrupted =
            interrupted.iter_mut().filter_map(|interrupted| interrupted.work.as_mut());
        let delayed = machine.delayed.iter_mut().map(|delayed| &mut delayed.work);
        let works = interrupted.chain(delayed).filter_map(|work| match work {
            Work::Call(call) => Some(call),
            // The state ids in these operations are replaced when they are sent.
            Work::Transfer(_) | Work::Member(_) | Work::Chain(_) => None,
        });
        let waiting = session.in_flight.waiting_calls_mut().chain(session.role.held_mut());
        for call in works.chain(waiting) {
            machine.opens.rewrite_state_ids(&mut call.message);
        }
    }

    /// Moves the interrupted requests that were not executed to the front of the queue, in their
    /// original order. Returns their number.
    fn reissue(&mut self, key: SessionKey, interrupted: Vec<InterruptedRequest>) -> u32 {
        let mut count = 0;
        for InterruptedRequest { work, fate, .. } in interrupted.into_iter().rev() {
            let Some(work) = work else { continue };
            if !matches!(fate, Fate::NotDone) {
                // The server had kept a result, but the result cannot be decoded.
                let what = "a request whose stored result is invalid".into();
                self.fail(work, &ClientError::OutcomeUnknown { what });
                continue;
            }
            let session = &mut self.sessions[key];
            match work {
                Work::Transfer(transfer) if transfer.is_cancelled => {
                    self.complete(&transfer, Err(ClientError::Cancelled));
                    continue;
                }
                Work::Transfer(transfer) => session.in_flight.push_transfer_first(transfer),
                Work::Call(call) => session.in_flight.push_call_first(call),
                // The remaining members are sent as one chain.
                Work::Member(_) | Work::Chain(_) => continue,
            }
            count += 1;
        }
        count
    }
}

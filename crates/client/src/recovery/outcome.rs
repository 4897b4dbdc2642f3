//! What became of a session's requests and opens, and how it goes on.
//!
//! Invariant: a stranded request is concluded, or asked anew, once; whatever names an open
//! by a former state id is put right before anything is sent.

use std::rc::Rc;

use dafs_dat::coarse_now;
use dafs_types::{SessionId, StateId, Status};
use dafs_wire::messages::{Close, DiscardResponses, Empty, LockTest, LockType, OpenResult};
use dafs_wire::{ByteOrder, Procedure, Request, Response, ResponseHeader, decode_response};

use crate::chain::work::Member;
use crate::core::Core;
use crate::credits::Holder;
use crate::error::ClientError;
use crate::ids::SessionKey;
use crate::opens::{Opened, Opens, Reclaim};
use crate::recovery::delay::is_put_off;
use crate::recovery::options::SessionEvent;
use crate::recovery::question::Question;
use crate::recovery::rescue::{Claim, ClaimOutcome, Rescue, Step};
use crate::recovery::stranded::{Fate, Stranded, answer};
use crate::state::Phase;
use crate::work::Work;

impl Core {
    /// What a server has open goes with it: a CLOSE that was under way is over.
    pub(super) fn conclude_closes(&mut self, key: SessionKey) {
        let Some(rescue) = self.rescue(key) else { return };
        // One in a chain may have to wait until what it closes is open.
        let is_call = |s: &&mut Stranded| matches!(s.work, Some(Work::Call(_)));
        let closes = rescue.stranded.iter_mut().filter(|s| s.procedure == Procedure::Close);
        let closes = closes.filter(is_call);
        let closes: Vec<Work> = closes.filter_map(|stranded| stranded.work.take()).collect();
        let (header, message) = answer(&Response::Close(Empty), Status::Ok);
        for work in closes {
            self.conclude(key, work, &header, &message);
        }
    }

    /// A request is over: this is its answer.
    fn conclude(&mut self, key: SessionKey, work: Work, header: &ResponseHeader, message: &[u8]) {
        match work {
            Work::Call(call) => self.on_called(key, call, header, message),
            Work::Transfer(transfer) => self.on_transferred(key, transfer, header, message),
            Work::Member(Member { chain, number }) => {
                // The chain ends when the session goes on.
                chain.borrow_mut().note_answer(number, Some(header.status), Ok(message));
            }
            // Its members end one by one.
            Work::Chain(_) => {}
        }
    }

    /// The server says what became of a request.
    pub(super) fn on_fetched(
        &mut self,
        key: SessionKey,
        number: usize,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        let Some(machine) = &mut self.sessions[key].recovery else { return };
        let old_client = machine.client;
        let Some(rescue) = &mut machine.rescue else { return };
        let is_restarted = rescue.client != old_client;
        let Some(stranded) = rescue.stranded.get_mut(number) else { return };
        match header.status {
            // It was not carried out, and never will be: nothing of the old session runs.
            Status::NoXidMatch => stranded.fate = Fate::Undone,
            // So says a chain that was broken off at one before.
            Status::ChainBroken => stranded.fate = Fate::Undone,
            // Said of a proof that had run out, or of this one?
            Status::NotAuthenticated => rescue.to_ask.push_back(Question::Check(number)),
            status if is_put_off(status) => rescue.to_ask.push_back(Question::Check(number)),
            Status::UnknownSession if stranded.is_repeatable() => {
                stranded.fate = Fate::Undone;
            }
            Status::UnknownSession => {
                rescue.unknown += 1;
                let error = ClientError::OutcomeUnknown { what: stranded.describe() };
                if let Some(work) = stranded.work.take() {
                    self.fail(work, &error);
                }
            }
            Status::Ok if is_restarted && stranded.procedure == Procedure::Open => {
                rescue.fetched += 1;
                stranded.fate = Fate::Opened(message.to_vec());
            }
            _ => {
                rescue.fetched += 1;
                if let Some(work) = stranded.work.take() {
                    self.conclude(key, work, header, message);
                }
            }
        }
    }

    /// Whether a request was put off by the server that it came to, and so not carried out,
    /// or only the question for it.
    pub(super) fn on_checked(&mut self, key: SessionKey, number: usize, status: Status) {
        match status {
            Status::Ok | Status::NoXidMatch => {
                if let Some(stranded) = self.stranded(key, number) {
                    stranded.fate = Fate::Undone;
                }
            }
            status => self.attempt_failed(key, format!("it answered {status}")),
        }
    }

    fn stranded(&mut self, key: SessionKey, number: usize) -> Option<&mut Stranded> {
        self.rescue(key)?.stranded.get_mut(number)
    }

    /// Credentials are gone with a server that has restarted, and opens were made with them.
    pub(super) fn begin_enlisting(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        let Some(machine) = &mut session.recovery else { return };
        let Some(rescue) = &mut machine.rescue else { return };
        rescue.begin_step(Step::Enlisting, machine.limits.attempt_timeout);
        if rescue.client != machine.client {
            let unknown = session.standing.registered.unknown_to(rescue.client);
            rescue.to_ask = unknown.into_iter().map(Question::Enlist).collect();
        }
    }

    pub(super) fn on_enlisted(
        &mut self,
        key: SessionKey,
        place: usize,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        if is_put_off(header.status) {
            return self.attempt_failed(key, format!("it answered {}", header.status));
        }
        let result = decode_response(ByteOrder::NATIVE, Procedure::RegisterCred, message);
        let handle = match (header.status, result) {
            (Status::Ok, Ok((_, Response::RegisterCred(result)))) => Some(result.handle),
            _ => None,
        };
        let session = &mut self.sessions[key];
        session.standing.registered.note(place, handle, session.standing.client);
        if let (None, Some(rescue)) = (handle, self.rescue(key)) {
            rescue.credentials_lost += 1;
        }
    }

    /// Opens are gone with a server that has restarted: all of them are asked for anew.
    pub(super) fn begin_reclaiming(&mut self, key: SessionKey) {
        let is_beside = self.sessions[key].role.first().is_some();
        // The life before may have told what chains have opened, in an attempt that broke off.
        self.note_chains(key);
        let Some(machine) = &mut self.sessions[key].recovery else { return };
        let Some(rescue) = &mut machine.rescue else { return };
        rescue.begin_step(Step::Reclaiming, machine.limits.attempt_timeout);
        if rescue.client == machine.client {
            return;
        }
        if is_beside {
            // What is left of chains is made again from their beginning.
            machine.opens = Opens::default();
            let opened = rescue.stranded.iter_mut().filter(|s| matches!(s.fate, Fate::Opened(_)));
            opened.for_each(|stranded| stranded.fate = Fate::Undone);
            return;
        }
        if rescue.claims_of != Some(rescue.client) {
            rescue.claims_of = Some(rescue.client);
            rescue.claims = machine.opens.held().into_iter().map(Claim::new).collect();
        }
        for (number, stranded) in rescue.stranded.iter().enumerate() {
            let of = Some(number);
            if let (Fate::Opened(answer), Some(message)) = (&stranded.fate, stranded.message())
                && let Some(opened) = Opened::from_answer(&message, answer)
                && !rescue.claims.iter().any(|claim| claim.of == of)
            {
                rescue.claims.push(Claim { of, ..Claim::new(Rc::new(opened)) });
            }
        }
        for claim in &mut rescue.claims {
            (claim.due, claim.state, claim.locks) = (None, None, 0);
        }
        let open = rescue.claims.iter().enumerate().filter(|(_, claim)| claim.outcome.is_none());
        let ask = |(number, _)| Question::Reclaim(number, Reclaim::ByHandle);
        rescue.to_ask = open.map(ask).collect();
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
            let handle = self.rescue(key).and_then(|r| Some(r.claims.get(number)?.opened.handle));
            if handle == Some(file) {
                return self.relock(key, number, state);
            }
            // The name leads to another file by now.
            self.ask(key, Question::Tidy, &Request::Close(Close { file, state }));
            return self.settle(key, number, ClaimOutcome::Gone);
        }
        if is_put_off(header.status) && self.wait_for_claim(key, number, how) {
            return;
        }
        // A server without reclaim has lost what was open for good. An open that kept
        // nobody out is as good as new if the name still leads there.
        match how {
            Reclaim::ByHandle => self.settle(key, number, ClaimOutcome::Refused),
            Reclaim::ByName => self.settle(key, number, ClaimOutcome::Gone),
        }
    }

    /// An open is there again: its locks are asked for, and then it is as it was.
    fn relock(&mut self, key: SessionKey, number: usize, state: StateId) {
        let Some(rescue) = self.rescue(key) else { return };
        let Some(claim) = rescue.claims.get_mut(number) else { return };
        let locks = claim.opened.locks();
        (claim.state, claim.locks) = (Some(state), locks.len());
        if locks.is_empty() {
            return self.settle(key, number, ClaimOutcome::Held(state));
        }
        rescue.to_ask.extend(locks.into_iter().map(|lock| Question::Relock(number, lock)));
    }

    pub(super) fn on_relocked(&mut self, key: SessionKey, number: usize, status: Status) {
        let Some(rescue) = self.rescue(key) else { return };
        let Some(claim) = rescue.claims.get_mut(number) else { return };
        let (None, Some(state)) = (claim.outcome, claim.state) else { return };
        // What is being given back may be gone already, by the very request that is asked anew.
        let is_given_back = || {
            let gives_back = |stranded: &Stranded| {
                stranded.message().is_some_and(|message| claim.opened.is_given_up_by(&message))
            };
            rescue.stranded.iter().any(gives_back)
        };
        if status == Status::Ok || (!is_put_off(status) && is_given_back()) {
            claim.locks = claim.locks.saturating_sub(1);
            if claim.locks == 0 {
                self.settle(key, number, ClaimOutcome::Held(state));
            }
            return;
        }
        if is_put_off(status) {
            return self.attempt_failed(key, format!("it answered {status}"));
        }
        // Others may have changed what it kept them from: whoever relied on that must know.
        let file = claim.opened.handle;
        self.settle(key, number, ClaimOutcome::Gone);
        self.ask(key, Question::Tidy, &Request::Close(Close { file, state }));
    }

    /// The server wants to be asked again later. False if there is no more time for that.
    fn wait_for_claim(&mut self, key: SessionKey, number: usize, how: Reclaim) -> bool {
        let Some(machine) = &mut self.sessions[key].recovery else { return false };
        let now = coarse_now();
        let limit = machine.limit(now);
        let rounds = machine.rescue.as_ref().and_then(|r| Some(r.claims.get(number)?.waits));
        let due = now + machine.pause(rounds.unwrap_or(0));
        let Some(rescue) = &mut machine.rescue else { return false };
        let Some(claim) = rescue.claims.get_mut(number).filter(|_| now < limit) else {
            return false;
        };
        claim.waits += 1;
        claim.due = Some((due, how));
        true
    }

    pub(super) fn settle(&mut self, key: SessionKey, number: usize, outcome: ClaimOutcome) {
        if let Some(claim) = self.rescue(key).and_then(|rescue| rescue.claims.get_mut(number)) {
            claim.outcome = Some(outcome);
        }
    }

    // ---- the end --------------------------------------------------------------------

    /// Everything is known: the session goes on.
    pub(super) fn finish(&mut self, key: SessionKey) {
        if let Some(reason) = self.is_kept_back(key) {
            return self.attempt_failed(key, reason);
        }
        let session = &mut self.sessions[key];
        let Some(machine) = &mut session.recovery else { return };
        let Some(mut rescue) = machine.rescue.take() else { return };
        let server_restarted = rescue.client != machine.client;
        machine.client = rescue.client;
        // What nobody will ask for any more.
        let old = std::mem::replace(&mut machine.session, rescue.session);
        let old: Vec<SessionId> = rescue.left.drain(..).chain(old).collect();
        session.phase = Phase::Open;
        session.is_frail = true;
        session.under_way.credits.hold(Holder::Anybody);
        let reclaimed = self.settle_opens(key, &mut rescue);
        self.restate(key, &mut rescue.stranded);
        let chains = std::mem::take(&mut rescue.chains);
        let reissued =
            self.reissue(key, rescue.stranded) + self.take_chains_up(key, chains, server_restarted);
        self.end_lent_elsewhere(key);
        self.rename_parts(key);
        let session = &mut self.sessions[key];
        let has_waiting = session.under_way.has_waiting();
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
                fetched: rescue.fetched,
                reclaimed,
                lost: rescue.lost,
                unknown: rescue.unknown,
                credentials_lost: rescue.credentials_lost,
            },
        );
        if server_restarted {
            self.say_that_is_all(key);
        }
        for session in old {
            let discard = Request::DiscardResponses(DiscardResponses { session });
            self.ask(key, Question::Tidy, &discard);
        }
        self.pump(key);
        self.rebind_back(key);
        self.lead_back(key);
    }

    /// Nobody need wait any more for this client to take something back: who asks for
    /// something new says so, and this changes nothing.
    fn say_that_is_all(&mut self, key: SessionKey) {
        let machine = self.sessions[key].recovery.as_ref();
        let Some(opened) = machine.and_then(|machine| machine.opens.held().into_iter().next())
        else {
            return;
        };
        let (file, owner) = (opened.handle, opened.owner());
        let (lock_type, offset, length) = (LockType::Read, 0, 1);
        let test = LockTest { file, lock_type, owner: &owner, offset, length };
        self.ask(key, Question::Tidy, &Request::LockT(test));
    }

    /// Puts new state ids in the place of the old ones, and answers the OPENs that had been
    /// carried out. How many opens there are again.
    fn settle_opens(&mut self, key: SessionKey, rescue: &mut Rescue) -> u32 {
        let mut reclaimed = 0;
        for claim in std::mem::take(&mut rescue.claims) {
            let state = match claim.outcome {
                Some(ClaimOutcome::Held(state)) => Some(state),
                Some(ClaimOutcome::Refused | ClaimOutcome::Gone) | None => None,
            };
            if let Some(number) = claim.of {
                self.answer_open(key, &mut rescue.stranded[number], state);
                continue;
            }
            match (state, &mut self.sessions[key].recovery) {
                (Some(state), Some(machine)) => {
                    machine.opens.rename(&claim.opened, state);
                    reclaimed += 1;
                }
                _ => {
                    claim.opened.note_lost();
                    rescue.lost += 1;
                }
            }
        }
        reclaimed
    }

    /// Ends an OPEN that a former life of the server had carried out.
    fn answer_open(&mut self, key: SessionKey, stranded: &mut Stranded, state: Option<StateId>) {
        let Fate::Opened(message) = &stranded.fate else { return };
        let Some(work) = stranded.work.take() else { return };
        let decoded = decode_response(ByteOrder::NATIVE, Procedure::Open, message);
        let (header, message) = match (decoded, state) {
            (Ok((_, Response::Open(result))), Some(state)) => {
                answer(&Response::Open(OpenResult { state, ..result }), Status::Ok)
            }
            _ => answer(&Response::Failed, Status::Stale),
        };
        self.conclude(key, work, &header, &message);
    }

    /// Requests that wait, and name opens by the state ids they had.
    fn restate(&mut self, key: SessionKey, stranded: &mut [Stranded]) {
        let session = &mut self.sessions[key];
        let Some(machine) = &mut session.recovery else { return };
        let stranded = stranded.iter_mut().filter_map(|stranded| stranded.work.as_mut());
        let delayed = machine.delayed.iter_mut().map(|delayed| &mut delayed.work);
        let works = stranded.chain(delayed).filter_map(|work| match work {
            Work::Call(call) => Some(call),
            // These are put right when they are sent.
            Work::Transfer(_) | Work::Member(_) | Work::Chain(_) => None,
        });
        let waiting = session.under_way.waiting_calls_mut().chain(session.role.held_mut());
        for call in works.chain(waiting) {
            machine.opens.restate(&mut call.message);
        }
    }

    /// Puts what was not done before everything that waits, in the order it was asked for.
    fn reissue(&mut self, key: SessionKey, stranded: Vec<Stranded>) -> u32 {
        let mut count = 0;
        for Stranded { work, fate, .. } in stranded.into_iter().rev() {
            let Some(work) = work else { continue };
            if !matches!(fate, Fate::Undone) {
                // Found, but not to be understood.
                let what = "what the server said of a request".into();
                self.fail(work, &ClientError::OutcomeUnknown { what });
                continue;
            }
            let session = &mut self.sessions[key];
            match work {
                Work::Transfer(transfer) if transfer.is_cancelled => {
                    self.complete(&transfer, Err(ClientError::Cancelled));
                    continue;
                }
                Work::Transfer(transfer) => session.under_way.push_transfer_first(transfer),
                Work::Call(call) => session.under_way.push_call_first(call),
                // The rest of its chain is asked for as a whole.
                Work::Member(_) | Work::Chain(_) => continue,
            }
            count += 1;
        }
        count
    }
}

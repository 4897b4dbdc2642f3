//! One session on its way back: attempts, and what is asked in which order.
//!
//! Invariant: while a session recovers, nothing is sent over its connection but what is
//! asked here; requests of the application wait in the session's queues. What was found
//! out in an attempt that breaks off is not asked again.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use dafs_dat::coarse_now;
use dafs_types::{ClientId, SessionId, StateId, Status, StreamId};
use dafs_wire::messages::{CachedResponse, Close, DiscardResponses, Empty, OpenResult};
use dafs_wire::{
    ByteOrder, Procedure, Request, Response, ResponseHeader, decode_response, decode_results,
};

use super::SessionEvent;
use super::stranded::{Fate, Stranded, Work, answer};
use crate::core::{Core, Pending, Phase};
use crate::credits::Credits;
use crate::error::ClientError;
use crate::opens::{Opened, Reclaim};
use crate::session::connect_request;

/// A session that recovers.
pub(crate) struct Rescue {
    step: Step,
    /// When the present step counts as failed, or the pause is over.
    due: Duration,
    stranded: Vec<Stranded>,
    /// Places that this round of attempts has tried.
    tried: usize,
    /// Why the connection was lost at first, and what failed last.
    reason: String,
    failure: Option<String>,
    /// The session of the present attempt, and those of earlier ones, to be discarded.
    session: Option<SessionId>,
    left: Vec<SessionId>,
    client: ClientId,
    /// What is still to be asked in this step, and how much of it is under way.
    to_ask: VecDeque<Question>,
    asked: u16,
    /// Opens to be taken back, from a server that knows us by this id.
    claims: Vec<Claim>,
    claims_of: Option<ClientId>,
    fetched: u32,
    unknown: u32,
    lost: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Until the next attempt.
    Pausing,
    Connecting,
    /// CLIENT_CONNECT_AUTH is under way.
    Greeting,
    /// What became of the stranded requests?
    Asking,
    /// Opens are taken back.
    Reclaiming,
}

/// What is asked on the way back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    Greet,
    /// Nothing of the old session runs any more, when this is answered.
    Part,
    /// What became of this stranded request?
    Fetch(usize),
    Reclaim(usize, Reclaim),
    /// Its answer is of no interest.
    Tidy,
}

/// An open that is to be taken back.
struct Claim {
    opened: Rc<Opened>,
    /// The stranded OPEN that made it, if that has no answer yet.
    of: Option<usize>,
    outcome: Option<Outcome>,
    /// How often the server has put it off.
    waits: u32,
    /// When to ask for it again, and how.
    due: Option<(Duration, Reclaim)>,
}

#[derive(Clone, Copy)]
enum Outcome {
    Held(StateId),
    Gone,
}

impl Core {
    // ---- attempts -------------------------------------------------------------------

    /// The connection of a session is gone. The session recovers if it can, and ends if not.
    pub fn lose(&mut self, index: usize, reason: String) {
        match self.sessions[index].phase {
            Phase::Ended(_) => return,
            Phase::Recovering => return self.attempt_failed(index, reason),
            Phase::Connecting | Phase::Open => {}
        }
        let endpoint = self.sessions[index].endpoint;
        let keeper = self.sessions[index].keeper.as_ref();
        if keeper.is_none_or(|keeper| keeper.session.is_none()) {
            self.end_session(index, reason);
            return self.interface.disconnect(endpoint);
        }
        self.cut(index);
        let stranded = self.strand(index);
        let session = &mut self.sessions[index];
        session.phase = Phase::Recovering;
        self.announce(index, SessionEvent::Lost { reason: reason.clone() });
        let now = coarse_now();
        let Some(keeper) = &mut self.sessions[index].keeper else { return };
        keeper.lost_at.get_or_insert(now);
        // Lost again without an answer in between: no hurry.
        let due = if keeper.attempts == 0 { now } else { now + keeper.pause(keeper.attempts) };
        let rescue = Rescue::new(stranded, reason, due);
        // A server may come back each time and die of the same request.
        let is_over = keeper.attempts > 0 && now >= keeper.limit(now);
        let obituary = is_over.then(|| rescue.obituary(keeper.attempts, now, keeper.lost_at));
        keeper.rescue = Some(Box::new(rescue));
        self.has_timers = true;
        if let Some(reason) = obituary {
            self.give_up_for_good(index, reason);
        }
    }

    fn give_up_for_good(&mut self, index: usize, reason: String) {
        self.announce(index, SessionEvent::GaveUp { reason: reason.clone() });
        self.end_session(index, reason);
    }

    /// Ends the connection, and hears no more of it.
    fn cut(&mut self, index: usize) {
        let endpoint = self.sessions[index].endpoint;
        self.forget_endpoint(endpoint, index);
        self.interface.disconnect(endpoint);
    }

    /// Takes up what waited for an answer, in the order it was asked for.
    fn strand(&mut self, index: usize) -> Vec<Stranded> {
        let session = &mut self.sessions[index];
        let pending = std::mem::take(&mut session.pending);
        let mut stranded = Vec::new();
        for (stream, pending) in (0..).map(StreamId).zip(pending) {
            let sequence = session.credits.newest(stream);
            stranded.extend(pending.and_then(|p| Stranded::new(stream, sequence, p)));
        }
        stranded.sort_by_key(|stranded| stranded.work.as_ref().map(Work::id));
        session.slots_due.clear();
        session.credits = Credits::new(session.wish);
        session.credits.reserve(true);
        stranded
    }

    /// Sees to a session whose time has come. Called in every turn while one recovers.
    pub fn mind_rescue(&mut self, index: usize, now: Duration) {
        let Some(rescue) = self.rescue(index) else { return };
        if now < rescue.due {
            return;
        }
        match rescue.step {
            Step::Pausing => self.attempt(index),
            Step::Reclaiming if rescue.asked == 0 => {
                rescue.take_up_claims(now);
                self.go_on(index);
            }
            Step::Connecting | Step::Greeting | Step::Asking | Step::Reclaiming => {
                self.attempt_failed(index, "the server was silent for too long".into());
            }
        }
    }

    fn attempt(&mut self, index: usize) {
        let Some(keeper) = &mut self.sessions[index].keeper else { return };
        let places = keeper.places.now();
        let due = coarse_now() + keeper.recovery.attempt_timeout;
        keeper.attempts += 1;
        let attempt = keeper.attempts;
        let config = keeper.options.endpoint_config();
        let Some(rescue) = &mut keeper.rescue else { return };
        (rescue.step, rescue.due) = (Step::Connecting, due);
        let place = places.get(rescue.tried).or(places.first()).cloned();
        rescue.tried += 1;
        self.announce(index, SessionEvent::Reconnecting { attempt });
        let Some(place) = place else {
            return self.attempt_failed(index, "the server's socket is not there".into());
        };
        if let Err(reason) = self.connect_again(index, &place, &config) {
            self.attempt_failed(index, reason);
        }
    }

    /// The connection stands: the client says who it is, as it did before.
    pub fn on_reconnected(&mut self, index: usize) {
        let session = &mut self.sessions[index];
        let wish = session.wish;
        let Some(keeper) = &mut session.keeper else { return };
        let (options, name, verifier) =
            (keeper.options.clone(), keeper.name.clone(), keeper.verifier);
        if let Some(rescue) = &mut keeper.rescue {
            rescue.begin_step(Step::Greeting, keeper.recovery.attempt_timeout);
        }
        self.ask(index, Question::Greet, &connect_request(&options, &name, verifier, wish));
    }

    /// An attempt came to nothing: the next follows after a pause, or none.
    pub fn attempt_failed(&mut self, index: usize, failure: String) {
        self.cut(index);
        let session = &mut self.sessions[index];
        session.pending.clear();
        session.slots_due.clear();
        session.credits = Credits::new(session.wish);
        session.credits.reserve(true);
        let Some(keeper) = &mut session.keeper else { return };
        let Some(mut rescue) = keeper.rescue.take() else { return };
        let now = coarse_now();
        let limit = keeper.limit(now);
        rescue.left.extend(rescue.session.take());
        rescue.to_ask.clear();
        rescue.asked = 0;
        (rescue.step, rescue.due) = (Step::Pausing, now);
        rescue.failure = Some(failure);
        let places = keeper.places.now().len();
        let is_round_over = rescue.tried >= places;
        if is_round_over {
            rescue.tried = 0;
            // The last attempt is made when the time is just over.
            let rounds = keeper.attempts / places.max(1) as u32;
            rescue.due = (now + keeper.pause(rounds.saturating_sub(1))).min(limit.max(now));
        }
        let is_over = is_round_over && now >= limit;
        let obituary = is_over.then(|| rescue.obituary(keeper.attempts, now, keeper.lost_at));
        keeper.rescue = Some(rescue);
        if let Some(reason) = obituary {
            self.give_up_for_good(index, reason);
        }
    }

    // ---- questions ------------------------------------------------------------------

    fn rescue(&mut self, index: usize) -> Option<&mut Rescue> {
        self.sessions[index].keeper.as_mut()?.rescue.as_deref_mut()
    }

    /// Sends a request of the recovery's own. False if there is no credit just now, or the
    /// attempt has failed over it.
    fn ask(&mut self, index: usize, question: Question, request: &Request<'_>) -> bool {
        let Ok(mut message) = self.encode_call(index, request) else { return false };
        let session = &mut self.sessions[index];
        let Some((stream, sequence)) = session.credits.take_reserved() else { return false };
        session.stamp(&mut message, stream, sequence);
        if let Some(rescue) = self.rescue(index) {
            rescue.asked += 1;
        }
        self.post(index, stream, Pending::Rescue(question), &[dafs_dat::Gather::Bytes(&message)]);
        self.interface.flush();
        self.rescue(index).is_some_and(|rescue| rescue.step != Step::Pausing)
    }

    /// A question of the recovery's was answered.
    pub fn on_rescued(
        &mut self,
        index: usize,
        question: Question,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        let Some(keeper) = &mut self.sessions[index].keeper else { return };
        let due = coarse_now() + keeper.recovery.attempt_timeout;
        let Some(rescue) = &mut keeper.rescue else { return };
        rescue.asked = rescue.asked.saturating_sub(1);
        rescue.due = due;
        match question {
            Question::Greet => return self.on_greeted(index, header, message),
            Question::Part | Question::Tidy => {}
            Question::Fetch(number) => self.on_fetched(index, number, header, message),
            Question::Reclaim(number, how) => self.on_claimed(index, number, how, header, message),
        }
        self.go_on(index);
    }

    /// Asks what is to be asked, as far as there are credits; then the next step.
    fn go_on(&mut self, index: usize) {
        loop {
            let Some(rescue) = self.rescue(index) else { return };
            if let Some(question) = rescue.to_ask.front().copied() {
                if !self.put(index, question) {
                    return;
                }
                if let Some(rescue) = self.rescue(index) {
                    rescue.to_ask.pop_front();
                }
            } else if rescue.asked > 0 {
                return;
            } else {
                match rescue.step {
                    Step::Asking => self.begin_reclaiming(index),
                    Step::Reclaiming => {
                        if !rescue.must_wait() {
                            self.finish(index);
                        }
                        return;
                    }
                    Step::Pausing | Step::Connecting | Step::Greeting => return,
                }
            }
        }
    }

    /// Puts one question. False if that cannot be done now.
    fn put(&mut self, index: usize, question: Question) -> bool {
        let Some(keeper) = &self.sessions[index].keeper else { return false };
        let (Some(session), Some(rescue)) = (keeper.session, &keeper.rescue) else { return false };
        match question {
            Question::Fetch(number) => {
                let Some(stranded) = rescue.stranded.get(number) else { return true };
                let about = CachedResponse {
                    session,
                    stream: stranded.stream,
                    sequence: stranded.sequence,
                    procedure: stranded.procedure.number(),
                };
                self.ask(index, question, &Request::FetchResponse(about))
            }
            Question::Part => {
                let about = CachedResponse {
                    session,
                    stream: StreamId(0),
                    sequence: dafs_types::SequenceNumber(0),
                    procedure: Procedure::Null.number(),
                };
                self.ask(index, question, &Request::CheckResponse(about))
            }
            Question::Reclaim(number, how) => {
                let Some(claim) = rescue.claims.get(number) else { return true };
                let opened = claim.opened.clone();
                let asked = opened.reclaim(how, |request| self.ask(index, question, request));
                if asked.is_none() {
                    self.settle(index, number, Outcome::Gone);
                }
                asked.unwrap_or(true)
            }
            Question::Greet | Question::Tidy => true,
        }
    }

    fn on_greeted(&mut self, index: usize, header: &ResponseHeader, message: &[u8]) {
        let procedure = Procedure::ClientConnectAuth;
        let result = decode_results(ByteOrder::NATIVE, procedure, header, message);
        let result = match (header.status, result) {
            (Status::Ok, Ok(Response::ClientConnectAuth(result))) => result,
            (Status::Ok, _) => {
                return self.attempt_failed(index, "an answer that makes no sense".into());
            }
            (status, _) => return self.on_turned_away(index, status),
        };
        if let Err(error) = self.apply(index, &result.options) {
            return self.attempt_failed(index, error.to_string());
        }
        if !result.options.response_cache {
            // What is still to be asked has no answer there.
            return self.end_recovery(index, "the server keeps no results any more");
        }
        let Some(keeper) = &mut self.sessions[index].keeper else { return };
        let is_restarted = keeper.client != result.client;
        let Some(rescue) = &mut keeper.rescue else { return };
        (rescue.session, rescue.client) = (Some(result.session), result.client);
        rescue.begin_step(Step::Asking, keeper.recovery.attempt_timeout);
        if is_restarted {
            let lost = keeper.opens.all().filter(|opened| opened.note_restart()).count();
            rescue.lost += u32::try_from(lost).unwrap_or(u32::MAX);
            self.conclude_closes(index);
        }
        if let Some(rescue) = self.rescue(index) {
            let open =
                (0..rescue.stranded.len()).filter(|&number| rescue.stranded[number].is_open());
            rescue.to_ask = open.map(Question::Fetch).collect();
            if rescue.to_ask.is_empty() {
                rescue.to_ask.push_back(Question::Part);
            }
        }
        self.go_on(index);
    }

    /// The server lets the client in no more, or not now.
    fn on_turned_away(&mut self, index: usize, status: Status) {
        let reason = format!("the server refused this client: {status}");
        match status {
            Status::Access | Status::Perm | Status::NotAuthorized | Status::WrongSec => {
                self.end_recovery(index, &reason);
            }
            _ => self.attempt_failed(index, reason),
        }
    }

    fn end_recovery(&mut self, index: usize, reason: &str) {
        self.cut(index);
        let reason = match self.rescue(index) {
            Some(rescue) => format!("{}; then {reason}", rescue.reason),
            None => reason.to_owned(),
        };
        self.give_up_for_good(index, reason);
    }

    // ---- what became of it ------------------------------------------------------------

    /// What a server has open goes with it: a CLOSE that was under way is over.
    fn conclude_closes(&mut self, index: usize) {
        let Some(rescue) = self.rescue(index) else { return };
        let closes = rescue.stranded.iter_mut().filter(|s| s.procedure == Procedure::Close);
        let closes: Vec<Work> = closes.filter_map(|stranded| stranded.work.take()).collect();
        let (header, message) = answer(&Response::Close(Empty), Status::Ok);
        for work in closes {
            self.conclude(index, work, &header, &message);
        }
    }

    /// A request is over: this is its answer.
    fn conclude(&mut self, index: usize, work: Work, header: &ResponseHeader, message: &[u8]) {
        match work {
            Work::Call(call) => self.on_called(index, call, header, message),
            Work::Transfer(transfer) => self.on_transferred(index, transfer, header, message),
        }
    }

    /// The server says what became of a request.
    fn on_fetched(&mut self, index: usize, number: usize, header: &ResponseHeader, message: &[u8]) {
        let Some(keeper) = &mut self.sessions[index].keeper else { return };
        let old_client = keeper.client;
        let Some(rescue) = &mut keeper.rescue else { return };
        let is_restarted = rescue.client != old_client;
        let Some(stranded) = rescue.stranded.get_mut(number) else { return };
        match header.status {
            // It was not carried out, and never will be: nothing of the old session runs.
            Status::NoXidMatch => stranded.fate = Fate::Undone,
            Status::UnknownSession | Status::NotSupp if stranded.is_repeatable() => {
                stranded.fate = Fate::Undone;
            }
            Status::UnknownSession | Status::NotSupp => {
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
                    self.conclude(index, work, header, message);
                }
            }
        }
    }

    /// Opens are gone with a server that has restarted: all of them are asked for anew.
    fn begin_reclaiming(&mut self, index: usize) {
        let Some(keeper) = &mut self.sessions[index].keeper else { return };
        let Some(rescue) = &mut keeper.rescue else { return };
        rescue.begin_step(Step::Reclaiming, keeper.recovery.attempt_timeout);
        if rescue.client == keeper.client {
            return;
        }
        if rescue.claims_of != Some(rescue.client) {
            rescue.claims_of = Some(rescue.client);
            rescue.claims = keeper.opens.held().into_iter().map(Claim::new).collect();
        }
        for (number, stranded) in rescue.stranded.iter().enumerate() {
            let of = Some(number);
            if let (Fate::Opened(answer), Some(Work::Call(call))) = (&stranded.fate, &stranded.work)
                && let Some(opened) = Opened::from_answer(&call.message, answer)
                && !rescue.claims.iter().any(|claim| claim.of == of)
            {
                rescue.claims.push(Claim { of, ..Claim::new(Rc::new(opened)) });
            }
        }
        let due =
            (0..rescue.claims.len()).filter(|&number| rescue.claims[number].outcome.is_none());
        rescue.to_ask = due.map(|number| Question::Reclaim(number, Reclaim::ByHandle)).collect();
    }

    fn on_claimed(
        &mut self,
        index: usize,
        number: usize,
        how: Reclaim,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        let result = decode_response(ByteOrder::NATIVE, Procedure::Open, message);
        if header.status == Status::Ok
            && let Ok((_, Response::Open(OpenResult { file, state, .. }))) = result
        {
            let handle = self.rescue(index).and_then(|r| Some(r.claims.get(number)?.opened.handle));
            if handle == Some(file) {
                return self.settle(index, number, Outcome::Held(state));
            }
            // The name leads to another file by now.
            self.ask(index, Question::Tidy, &Request::Close(Close { file, state }));
            return self.settle(index, number, Outcome::Gone);
        }
        if super::is_put_off(header.status) && self.wait_for_claim(index, number, how) {
            return;
        }
        // A server without reclaim has lost what was open for good. An open that kept
        // nobody out is as good as new if the name still leads there.
        match how {
            Reclaim::ByHandle => {
                if let Some(rescue) = self.rescue(index) {
                    rescue.to_ask.push_back(Question::Reclaim(number, Reclaim::ByName));
                }
            }
            Reclaim::ByName => self.settle(index, number, Outcome::Gone),
        }
    }

    /// The server wants to be asked again later. False if there is no more time for that.
    fn wait_for_claim(&mut self, index: usize, number: usize, how: Reclaim) -> bool {
        let Some(keeper) = &mut self.sessions[index].keeper else { return false };
        let now = coarse_now();
        let limit = keeper.limit(now);
        let rounds = keeper.rescue.as_ref().and_then(|r| Some(r.claims.get(number)?.waits));
        let due = now + keeper.pause(rounds.unwrap_or(0));
        let Some(rescue) = &mut keeper.rescue else { return false };
        let Some(claim) = rescue.claims.get_mut(number).filter(|_| now < limit) else {
            return false;
        };
        claim.waits += 1;
        claim.due = Some((due, how));
        true
    }

    fn settle(&mut self, index: usize, number: usize, outcome: Outcome) {
        if let Some(claim) = self.rescue(index).and_then(|rescue| rescue.claims.get_mut(number)) {
            claim.outcome = Some(outcome);
        }
    }

    // ---- the end --------------------------------------------------------------------

    /// Everything is known: the session goes on.
    fn finish(&mut self, index: usize) {
        let session = &mut self.sessions[index];
        let Some(keeper) = &mut session.keeper else { return };
        let Some(mut rescue) = keeper.rescue.take() else { return };
        let server_restarted = rescue.client != keeper.client;
        keeper.client = rescue.client;
        // What nobody will ask for any more.
        let old = std::mem::replace(&mut keeper.session, rescue.session);
        let old: Vec<SessionId> = rescue.left.drain(..).chain(old).collect();
        session.phase = Phase::Open;
        session.is_frail = true;
        session.credits.reserve(false);
        let reclaimed = self.settle_opens(index, &mut rescue);
        self.restate(index, &mut rescue.stranded);
        let reissued = self.reissue(index, rescue.stranded);
        let session = &mut self.sessions[index];
        if let Some(keeper) = &mut session.keeper
            && session.calls.is_empty()
            && session.queue.is_empty()
        {
            keeper.note_progress();
        }
        self.announce(
            index,
            SessionEvent::Recovered {
                server_restarted,
                reissued,
                fetched: rescue.fetched,
                reclaimed,
                lost: rescue.lost,
                unknown: rescue.unknown,
            },
        );
        for session in old {
            let discard = Request::DiscardResponses(DiscardResponses { session });
            self.ask(index, Question::Tidy, &discard);
        }
        self.pump(index);
    }

    /// Puts new state ids in the place of the old ones, and answers the OPENs that had been
    /// carried out. How many opens there are again.
    fn settle_opens(&mut self, index: usize, rescue: &mut Rescue) -> u32 {
        let mut reclaimed = 0;
        for claim in std::mem::take(&mut rescue.claims) {
            let state = match claim.outcome {
                Some(Outcome::Held(state)) => Some(state),
                Some(Outcome::Gone) | None => None,
            };
            if let Some(number) = claim.of {
                self.answer_open(index, &mut rescue.stranded[number], state);
                continue;
            }
            match (state, &mut self.sessions[index].keeper) {
                (Some(state), Some(keeper)) => {
                    keeper.opens.rename(&claim.opened, state);
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
    fn answer_open(&mut self, index: usize, stranded: &mut Stranded, state: Option<StateId>) {
        let Fate::Opened(message) = &stranded.fate else { return };
        let Some(work) = stranded.work.take() else { return };
        let decoded = decode_response(ByteOrder::NATIVE, Procedure::Open, message);
        let (header, message) = match (decoded, state) {
            (Ok((_, Response::Open(result))), Some(state)) => {
                answer(&Response::Open(OpenResult { state, ..result }), Status::Ok)
            }
            _ => answer(&Response::Failed, Status::Stale),
        };
        self.conclude(index, work, &header, &message);
    }

    /// Requests that wait, and name opens by the state ids they had.
    fn restate(&mut self, index: usize, stranded: &mut [Stranded]) {
        let session = &mut self.sessions[index];
        let Some(keeper) = &mut session.keeper else { return };
        let stranded = stranded.iter_mut().filter_map(|stranded| stranded.work.as_mut());
        let delayed = keeper.delayed.iter_mut().map(|delayed| &mut delayed.work);
        let works = stranded.chain(delayed).filter_map(|work| match work {
            Work::Call(call) => Some(call),
            // These look the state id up when they are sent.
            Work::Transfer(_) => None,
        });
        for call in works.chain(&mut session.calls) {
            keeper.opens.restate(&mut call.message);
        }
    }

    /// Puts what was not done before everything that waits, in the order it was asked for.
    fn reissue(&mut self, index: usize, stranded: Vec<Stranded>) -> u32 {
        let mut count = 0;
        for work in stranded.into_iter().rev().filter_map(|stranded| stranded.work) {
            let session = &mut self.sessions[index];
            match work {
                Work::Transfer(transfer) if transfer.is_cancelled => {
                    self.complete(&transfer, Err(ClientError::Cancelled));
                    continue;
                }
                Work::Transfer(transfer) => session.queue.push_front(transfer),
                Work::Call(call) => session.calls.push_front(call),
            }
            count += 1;
        }
        count
    }
}

impl Rescue {
    fn new(stranded: Vec<Stranded>, reason: String, due: Duration) -> Self {
        Self {
            step: Step::Pausing,
            due,
            stranded,
            tried: 0,
            reason,
            failure: None,
            session: None,
            left: Vec::new(),
            client: ClientId(0),
            to_ask: VecDeque::new(),
            asked: 0,
            claims: Vec::new(),
            claims_of: None,
            fetched: 0,
            unknown: 0,
            lost: 0,
        }
    }

    fn begin_step(&mut self, step: Step, limit: Duration) {
        (self.step, self.due) = (step, coarse_now() + limit);
    }

    /// What to say when it is given up.
    fn obituary(&self, attempts: u32, now: Duration, lost_at: Option<Duration>) -> String {
        let seconds = now.saturating_sub(lost_at.unwrap_or(now)).as_secs_f32();
        let failure = self.failure.as_deref().unwrap_or(&self.reason);
        format!(
            "{}; {attempts} attempts to come back within {seconds:.1} s failed, the last \
             because: {failure}",
            self.reason
        )
    }

    /// Whether the server has put off what is still to be taken back; until when.
    fn must_wait(&mut self) -> bool {
        let open = self.claims.iter().filter(|claim| claim.outcome.is_none());
        match open.filter_map(|claim| claim.due).map(|(due, _)| due).min() {
            Some(due) => self.due = due,
            None => return false,
        }
        true
    }

    fn take_up_claims(&mut self, now: Duration) {
        for (number, claim) in self.claims.iter_mut().enumerate() {
            if let Some((_, how)) = claim.due.take_if(|(due, _)| *due <= now) {
                self.to_ask.push_back(Question::Reclaim(number, how));
            }
        }
    }

    /// When it must be looked at.
    pub fn due(&self) -> Duration {
        self.due
    }

    /// What was under way, for whoever ends it.
    pub fn into_works(self) -> impl Iterator<Item = Work> {
        self.stranded.into_iter().filter_map(|stranded| stranded.work)
    }

    /// Whether an application waits for anything that was under way.
    pub fn is_awaited(&self) -> bool {
        self.stranded.iter().any(|stranded| stranded.work.is_some())
    }

    pub fn transfers(&mut self) -> impl Iterator<Item = &mut crate::data::Transfer> {
        self.stranded.iter_mut().filter_map(|stranded| match &mut stranded.work {
            Some(Work::Transfer(transfer)) => Some(transfer),
            Some(Work::Call(_)) | None => None,
        })
    }
}

impl Claim {
    fn new(opened: Rc<Opened>) -> Self {
        Self { opened, of: None, outcome: None, waits: 0, due: None }
    }
}

//! One session on its way back: the attempts, and what is known so far.
//!
//! Invariant: while a session recovers, nothing is sent over its connection but what
//! `questions.rs` asks; requests of the application wait in the session's queues. What was
//! found out in an attempt that breaks off is not asked again.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use dafs_dat::coarse_now;
use dafs_gss::Initiator;
use dafs_types::{ClientId, SessionId, StateId, StreamId};

use super::SessionEvent;
use super::chains::includes;
use super::stranded::{Stranded, Work};
use crate::chain::send::SharedChain;
use crate::core::{Core, Pending, Phase};
use crate::credits::{Credits, Holder};
use crate::locks::HeldLock;
use crate::login::plain_connect_request;
use crate::opens::{Opened, Reclaim};
use crate::session::connect_request;

/// A session that recovers.
pub(crate) struct Rescue {
    pub(super) step: Step,
    /// When the present step counts as failed, or the pause is over.
    pub(super) due: Duration,
    pub(super) stranded: Vec<Stranded>,
    /// Chains that were cut off.
    pub(super) chains: Vec<SharedChain>,
    /// Places that this round of attempts has tried.
    pub(super) tried: usize,
    /// Why the connection was lost at first, and what failed last.
    pub(super) reason: String,
    pub(super) failure: Option<String>,
    /// The session of the present attempt, and those of earlier ones, to be discarded.
    pub(super) session: Option<SessionId>,
    pub(super) left: Vec<SessionId>,
    pub(super) client: ClientId,
    /// What is still to be asked in this step, and how much of it is under way.
    pub(super) to_ask: VecDeque<Question>,
    pub(super) asked: u16,
    /// Opens to be taken back, from a server that knows us by this id.
    pub(super) claims: Vec<Claim>,
    pub(super) claims_of: Option<ClientId>,
    pub(super) fetched: u32,
    pub(super) unknown: u32,
    pub(super) lost: u32,
    pub(super) credentials_lost: u32,
    /// Reads the answer to the token that is under way.
    pub(super) party: Option<Initiator>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Until the next attempt.
    Pausing,
    Connecting,
    /// CLIENT_CONNECT_AUTH is under way, or CLIENT_CONNECT and CLIENT_AUTH with a token.
    Greeting,
    /// What became of the stranded requests?
    Asking,
    /// Credentials are registered again.
    Enlisting,
    /// Opens are taken back.
    Reclaiming,
}

/// What is asked on the way back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    Greet,
    /// The same, of a client that proves itself by tickets.
    Meet,
    /// This token proves who the client is.
    Prove,
    /// Nothing of the old session runs any more, when this is answered.
    Part,
    /// What became of this stranded request?
    Fetch(usize),
    /// The answer to that was DELAY, GRACE or NOT_AUTHENTICATED: its own, or that of the
    /// request?
    Check(usize),
    /// These credentials are to be there again.
    Enlist(usize),
    Reclaim(usize, Reclaim),
    /// Its open is there again; this lock of it is to be, too.
    Relock(usize, HeldLock),
    /// Its answer is of no interest.
    Tidy,
}

/// An open that is to be taken back.
pub(super) struct Claim {
    pub(super) opened: Rc<Opened>,
    /// The stranded OPEN that made it, if that has no answer yet.
    pub(super) of: Option<usize>,
    pub(super) outcome: Option<Outcome>,
    /// Under which the locks are asked for, and how many of them have no answer yet.
    pub(super) state: Option<StateId>,
    pub(super) locks: usize,
    /// How often the server has put it off.
    pub(super) waits: u32,
    /// When to ask for it again, and how.
    pub(super) due: Option<(Duration, Reclaim)>,
}

#[derive(Clone, Copy)]
pub(super) enum Outcome {
    Held(StateId),
    /// It cannot be taken back by its handle; by its name, perhaps.
    Refused,
    Gone,
}

impl Core {
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
        let (mut stranded, chains) = self.strand(index);
        self.part_back_of(index);
        self.set_submitted_aside(index, &mut stranded);
        let session = &mut self.sessions[index];
        session.phase = Phase::Recovering;
        self.announce(index, SessionEvent::Lost { reason: reason.clone() });
        let now = coarse_now();
        let Some(keeper) = &mut self.sessions[index].keeper else { return };
        keeper.lost_at.get_or_insert(now);
        // Lost again without an answer in between: no hurry.
        let due = if keeper.attempts == 0 { now } else { now + keeper.pause(keeper.attempts) };
        let rescue = Rescue { chains, ..Rescue::new(stranded, reason, due) };
        // A server may come back each time and die of the same request.
        let is_over = keeper.attempts > 0 && now >= keeper.limit(now);
        let obituary = is_over.then(|| rescue.obituary(keeper.attempts, now, keeper.lost_at));
        keeper.rescue = Some(Box::new(rescue));
        self.has_timers = true;
        self.note_chains(index);
        if let Some(reason) = obituary {
            self.give_up_for_good(index, reason);
        }
    }

    pub(super) fn give_up_for_good(&mut self, index: usize, reason: String) {
        self.announce(index, SessionEvent::GaveUp { reason: reason.clone() });
        self.end_session(index, reason);
    }

    /// Ends the connection, and hears no more of it.
    pub(super) fn cut(&mut self, index: usize) {
        let endpoint = self.sessions[index].endpoint;
        self.forget_endpoint(endpoint, index);
        self.interface.disconnect(endpoint);
    }

    /// Takes up what waited for an answer, in the order it was asked for.
    fn strand(&mut self, index: usize) -> (Vec<Stranded>, Vec<SharedChain>) {
        let session = &mut self.sessions[index];
        let pending = std::mem::take(&mut session.pending);
        let (mut stranded, mut chains) = (Vec::new(), Vec::new());
        for (stream, pending) in (0..).map(StreamId).zip(pending) {
            let sequence = session.credits.newest(stream);
            if let Some(Pending::Member(member)) = &pending
                && !includes(&chains, &member.chain)
            {
                chains.push(member.chain.clone());
            }
            stranded.extend(pending.and_then(|p| Stranded::new(stream, sequence, p)));
        }
        // Sent in part, it has nothing on its way, or it is among them.
        let open = session.chains.take_open();
        chains.extend(open.filter(|open| !includes(&chains, open)));
        chains.sort_by_key(|chain| chain.borrow().id);
        stranded.sort_by_key(|stranded| stranded.work.as_ref().map(Work::id));
        session.credits = Credits::new(session.wish);
        session.credits.hold(Holder::Recovery);
        (stranded, chains)
    }

    /// Sees to a session whose time has come. Called in every turn while one recovers.
    pub fn mind_rescue(&mut self, index: usize, now: Duration) {
        let Some(keeper) = &mut self.sessions[index].keeper else { return };
        let Some(rescue) = &mut keeper.rescue else { return };
        if now < rescue.due {
            return;
        }
        match rescue.step {
            Step::Pausing => self.attempt(index),
            Step::Reclaiming if rescue.asked == 0 => {
                rescue.take_up_claims(now);
                rescue.begin_step(Step::Reclaiming, keeper.recovery.attempt_timeout);
                self.go_on(index);
            }
            Step::Connecting
            | Step::Greeting
            | Step::Asking
            | Step::Enlisting
            | Step::Reclaiming => {
                self.attempt_failed(index, "the server was silent for too long".into());
            }
        }
    }

    fn attempt(&mut self, index: usize) {
        let Some(keeper) = &mut self.sessions[index].keeper else { return };
        let places = keeper.places.again();
        let due = coarse_now() + keeper.recovery.attempt_timeout;
        keeper.attempts += 1;
        let attempt = keeper.attempts;
        let options = keeper.options.clone();
        let Some(rescue) = &mut keeper.rescue else { return };
        (rescue.step, rescue.due) = (Step::Connecting, due);
        let place = places.get(rescue.tried).or(places.first()).cloned();
        rescue.tried += 1;
        self.announce(index, SessionEvent::Reconnecting { attempt });
        let Some(place) = place else {
            return self.attempt_failed(index, "the server's socket is not there".into());
        };
        if let Err(reason) = self.connect_again(index, &place, &options) {
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
        if self.sessions[index].prover.is_none() {
            let request = connect_request(&options, &name, verifier, wish);
            self.ask(index, Question::Greet, &request);
        } else {
            let room = self.sessions[index].token_request_bytes();
            let request = plain_connect_request(&options, &name, verifier, wish, room);
            self.ask(index, Question::Meet, &request);
        }
    }

    /// An attempt came to nothing: the next follows after a pause, or none.
    pub fn attempt_failed(&mut self, index: usize, failure: String) {
        self.cut(index);
        let session = &mut self.sessions[index];
        session.pending.clear();
        session.credits = Credits::new(session.wish);
        session.credits.hold(Holder::Recovery);
        let Some(keeper) = &mut session.keeper else { return };
        let Some(mut rescue) = keeper.rescue.take() else { return };
        let now = coarse_now();
        let limit = keeper.limit(now);
        rescue.left.extend(rescue.session.take());
        rescue.to_ask.clear();
        rescue.asked = 0;
        rescue.party = None;
        (rescue.step, rescue.due) = (Step::Pausing, now);
        rescue.failure = Some(failure);
        let places = keeper.places.again().len();
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
}

impl Rescue {
    fn new(stranded: Vec<Stranded>, reason: String, due: Duration) -> Self {
        Self {
            step: Step::Pausing,
            due,
            stranded,
            chains: Vec::new(),
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
            credentials_lost: 0,
            party: None,
        }
    }

    pub(super) fn begin_step(&mut self, step: Step, limit: Duration) {
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
    pub(super) fn must_wait(&mut self) -> bool {
        if self.step != Step::Reclaiming {
            return false;
        }
        let open = self.claims.iter().filter(|claim| claim.outcome.is_none());
        match open.filter_map(|claim| claim.due).map(|(due, _)| due).min() {
            Some(due) => self.due = due,
            None => return false,
        }
        true
    }

    /// Asks by name for what was refused by handle; false if there is nothing of that kind.
    /// Only when all else was taken back: whoever asks a server for something new says
    /// thereby that this is all.
    pub(super) fn turn_to_names(&mut self) -> bool {
        for (number, claim) in self.claims.iter_mut().enumerate() {
            if claim.outcome.take_if(|outcome| matches!(outcome, Outcome::Refused)).is_some() {
                self.to_ask.push_back(Question::Reclaim(number, Reclaim::ByName));
            }
        }
        !self.to_ask.is_empty()
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
        let stranded = self.stranded.into_iter().filter_map(|stranded| stranded.work);
        stranded.chain(self.chains.into_iter().map(Work::Chain))
    }

    /// Whether an application waits for anything that was under way.
    pub fn is_awaited(&self) -> bool {
        !self.chains.is_empty() || self.stranded.iter().any(|stranded| stranded.work.is_some())
    }

    pub fn transfers(&mut self) -> impl Iterator<Item = &mut crate::data::Transfer> {
        self.stranded.iter_mut().filter_map(|stranded| match &mut stranded.work {
            Some(Work::Transfer(transfer)) => Some(transfer),
            Some(Work::Call(_) | Work::Member(_) | Work::Chain(_)) | None => None,
        })
    }
}

impl Claim {
    pub(super) fn new(opened: Rc<Opened>) -> Self {
        Self { opened, of: None, outcome: None, state: None, locks: 0, waits: 0, due: None }
    }
}

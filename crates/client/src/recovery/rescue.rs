//! What is known of a session on its way back.
//!
//! Invariant: what was found out in an attempt that breaks off is not asked again.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use dafs_dat::coarse_now;
use dafs_gss::Initiator;
use dafs_types::{ClientId, SessionId, StateId};

use crate::chain::work::SharedChain;
use crate::opens::{Opened, Reclaim};
use crate::recovery::question::Question;
use crate::recovery::stranded::Stranded;
use crate::transfer::Transfer;
use crate::work::Work;

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

/// An open that is to be taken back.
pub(super) struct Claim {
    pub(super) opened: Rc<Opened>,
    /// The stranded OPEN that made it, if that has no answer yet.
    pub(super) of: Option<usize>,
    pub(super) outcome: Option<ClaimOutcome>,
    /// Under which the locks are asked for, and how many of them have no answer yet.
    pub(super) state: Option<StateId>,
    pub(super) locks: usize,
    /// How often the server has put it off.
    pub(super) waits: u32,
    /// When to ask for it again, and how.
    pub(super) due: Option<(Duration, Reclaim)>,
}

#[derive(Clone, Copy)]
pub(super) enum ClaimOutcome {
    Held(StateId),
    /// It cannot be taken back by its handle; by its name, perhaps.
    Refused,
    Gone,
}

impl Rescue {
    pub(super) fn new(stranded: Vec<Stranded>, reason: String, due: Duration) -> Self {
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

    /// An attempt came to nothing: what it had asked is not answered, what it had found out stays.
    pub(super) fn break_off(&mut self, failure: String, now: Duration) {
        self.left.extend(self.session.take());
        self.to_ask.clear();
        self.asked = 0;
        self.party = None;
        (self.step, self.due) = (Step::Pausing, now);
        self.failure = Some(failure);
    }

    /// What to say when it is given up.
    pub(super) fn obituary(
        &self,
        attempts: u32,
        now: Duration,
        lost_at: Option<Duration>,
    ) -> String {
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
            if claim.outcome.take_if(|outcome| matches!(outcome, ClaimOutcome::Refused)).is_some() {
                self.to_ask.push_back(Question::Reclaim(number, Reclaim::ByName));
            }
        }
        !self.to_ask.is_empty()
    }

    /// Asks again for what the server wanted to be asked for later.
    pub(super) fn take_up_claims(&mut self, now: Duration) {
        for (number, claim) in self.claims.iter_mut().enumerate() {
            if let Some((_, how)) = claim.due.take_if(|(due, _)| *due <= now) {
                self.to_ask.push_back(Question::Reclaim(number, how));
            }
        }
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

    pub fn transfers(&mut self) -> impl Iterator<Item = &mut Transfer> {
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

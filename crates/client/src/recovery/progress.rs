//! The state of a session's recovery.
//!
//! Invariant: results that a failed attempt has obtained are not requested again by the next
//! attempt.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use dafs_dat::coarse_now;
use dafs_gss::Initiator;
use dafs_types::{ClientId, SessionId, StateId};

use crate::chain::work::SharedChain;
use crate::opens::{Opened, Reclaim};
use crate::recovery::interrupted::InterruptedRequest;
use crate::recovery::question::Question;
use crate::transfer::Transfer;
use crate::work::Work;

/// The state of a session while it is recovering.
pub(crate) struct RecoveryProgress {
    pub(super) step: Step,
    /// The deadline of the current step or, between attempts, the end of the pause.
    pub(super) due: Duration,
    pub(super) interrupted: Vec<InterruptedRequest>,
    /// The chains that were interrupted.
    pub(super) chains: Vec<SharedChain>,
    /// The number of addresses that this round of attempts has tried.
    pub(super) tried: usize,
    /// The reason for the first loss of the connection.
    pub(super) reason: String,
    /// The most recent failure of an attempt; `None` if no attempt has failed.
    pub(super) failure: Option<String>,
    /// The session of the current attempt.
    pub(super) session: Option<SessionId>,
    /// The sessions of earlier attempts, whose results on the server are discarded later.
    pub(super) left: Vec<SessionId>,
    pub(super) client: ClientId,
    /// The recovery requests of this step that are not sent yet.
    pub(super) to_ask: VecDeque<Question>,
    /// The number of recovery requests in flight.
    pub(super) asked: u16,
    /// The opens to be reclaimed, from the server that knows this client by the id `claims_of`.
    pub(super) claims: Vec<Claim>,
    pub(super) claims_of: Option<ClientId>,
    pub(super) fetched: u32,
    pub(super) unknown: u32,
    pub(super) lost: u32,
    pub(super) credentials_lost: u32,
    /// The Kerberos context that processes the reply to the token in flight.
    pub(super) party: Option<Initiator>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The session waits for the time of the next attempt.
    Pausing,
    Connecting,
    /// The session waits for the reply to CLIENT_CONNECT_AUTH, or to CLIENT_CONNECT and CLIENT_AUTH
    /// with a token.
    Authenticating,
    /// The session asks the server whether the interrupted requests were executed.
    Asking,
    /// The session registers credentials again.
    Registering,
    /// The session reclaims its opens.
    Reclaiming,
}

/// An open that is to be reclaimed.
pub(super) struct Claim {
    pub(super) opened: Rc<Opened>,
    /// The index of the interrupted OPEN that created the open, if that OPEN has no reply yet.
    pub(super) of: Option<usize>,
    pub(super) outcome: Option<ClaimOutcome>,
    /// The new state id of the open, under which its locks are requested again.
    pub(super) state: Option<StateId>,
    /// The number of lock requests without a reply.
    pub(super) locks: usize,
    /// The number of times that the server has delayed this reclaim.
    pub(super) waits: u32,
    /// The time of the next try, and the way to reclaim.
    pub(super) due: Option<(Duration, Reclaim)>,
}

#[derive(Clone, Copy)]
pub(super) enum ClaimOutcome {
    Held(StateId),
    /// The server refused to reclaim the open by its handle; reclaiming by name may still succeed.
    Refused,
    Gone,
}

impl RecoveryProgress {
    pub(super) fn new(interrupted: Vec<InterruptedRequest>, reason: String, due: Duration) -> Self {
        Self {
            step: Step::Pausing,
            due,
            interrupted,
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

    /// Records a failed attempt: the next attempt sends its recovery requests again, but keeps the
    /// results that this attempt obtained.
    pub(super) fn break_off(&mut self, failure: String, now: Duration) {
        self.left.extend(self.session.take());
        self.to_ask.clear();
        self.asked = 0;
        self.party = None;
        (self.step, self.due) = (Step::Pausing, now);
        self.failure = Some(failure);
    }

    /// Returns the reason to report when the session ends because it could not recover.
    pub(super) fn failure_text(
        &self,
        attempts: u32,
        now: Duration,
        lost_at: Option<Duration>,
    ) -> String {
        let seconds = now.saturating_sub(lost_at.unwrap_or(now)).as_secs_f32();
        let failure = self.failure.as_deref().unwrap_or(&self.reason);
        format!(
            "{}; {attempts} attempts to reconnect within {seconds:.1} s failed, the last one \
             with: {failure}",
            self.reason
        )
    }

    /// Sets the timer and returns true if the server delays all remaining reclaims.
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

    /// Tries to reclaim opens by name that were refused by handle. Returns false if there are none.
    /// This comes last, because a request for a new open informs the server that reclaiming is
    /// complete.
    pub(super) fn turn_to_names(&mut self) -> bool {
        for (number, claim) in self.claims.iter_mut().enumerate() {
            if claim.outcome.take_if(|outcome| matches!(outcome, ClaimOutcome::Refused)).is_some() {
                self.to_ask.push_back(Question::Reclaim(number, Reclaim::ByName));
            }
        }
        !self.to_ask.is_empty()
    }

    /// Repeats the reclaims that the server delayed and that are due.
    pub(super) fn take_up_claims(&mut self, now: Duration) {
        for (number, claim) in self.claims.iter_mut().enumerate() {
            if let Some((_, how)) = claim.due.take_if(|(due, _)| *due <= now) {
                self.to_ask.push_back(Question::Reclaim(number, how));
            }
        }
    }

    /// Returns the operations that were in flight, so that they can be ended.
    pub(crate) fn into_works(self) -> impl Iterator<Item = Work> {
        let interrupted = self.interrupted.into_iter().filter_map(|interrupted| interrupted.work);
        interrupted.chain(self.chains.into_iter().map(Work::Chain))
    }

    /// Returns true if an application waits for a request that was in flight.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.chains.is_empty()
            || self.interrupted.iter().any(|interrupted| interrupted.work.is_some())
    }

    pub(crate) fn transfers(&mut self) -> impl Iterator<Item = &mut Transfer> {
        self.interrupted.iter_mut().filter_map(|interrupted| match &mut interrupted.work {
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

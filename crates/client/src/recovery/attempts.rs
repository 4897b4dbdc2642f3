//! The attempts to reconnect a session.
//!
//! Invariant: while a session recovers, only the requests of `questions.rs` are sent over its
//! connection; requests of the application wait in the session's queues.

use std::time::Duration;

use crate::chain::work::SharedChain;
use crate::connect_request::{connect_request, plain_connect_request};
use crate::core::Core;
use crate::disconnect_reasons::Loss;
use crate::ids::SessionKey;
use crate::recovery::chains::includes;
use crate::recovery::interrupted::InterruptedRequest;
use crate::recovery::machine::Attempt;
use crate::recovery::options::SessionEvent;
use crate::recovery::progress::Step;
use crate::recovery::question::Question;
use crate::state::{Phase, SessionState};
use crate::work::{Pending, Work};

impl Core {
    /// Handles the loss of a session's connection: the session starts to recover if it can, and
    /// otherwise ends.
    pub(crate) fn on_connection_lost(&mut self, key: SessionKey, loss: Loss) {
        let session = &mut self.sessions[key];
        match session.phase {
            Phase::Ended(_) => return,
            Phase::Recovering => return self.attempt_failed(key, loss.text),
            Phase::Connecting | Phase::Open => {}
        }
        if session.recovery.as_ref().is_none_or(|machine| !machine.is_established()) {
            return self.end_session(key, loss);
        }
        let reason = loss.text;
        self.transport.close(session.endpoint);
        let (mut interrupted, chains) = take_interrupted(session);
        self.close_back_of_lost(key);
        self.set_submitted_aside(key, &mut interrupted);
        self.sessions[key].phase = Phase::Recovering;
        self.announce(key, SessionEvent::Lost { reason: reason.clone() });
        let Some(machine) = &mut self.sessions[key].recovery else { return };
        let failure_text = machine.begin(interrupted, chains, reason);
        self.sessions.note_timer();
        self.note_chains(key);
        if let Some(reason) = failure_text {
            self.give_up_for_good(key, reason);
        }
    }

    pub(super) fn give_up_for_good(&mut self, key: SessionKey, reason: String) {
        if self.give_up_channel(key) {
            return;
        }
        self.announce(key, SessionEvent::GaveUp { reason: reason.clone() });
        self.end_session(key, reason.into());
    }

    /// Handles the expired timer of a recovering session. Called in every turn while a session is
    /// recovering.
    pub(crate) fn check_recovery_timer(&mut self, key: SessionKey, now: Duration) {
        let Some(machine) = &mut self.sessions[key].recovery else { return };
        let limit = machine.attempt_timeout();
        let Some(progress) = &mut machine.progress else { return };
        if now < progress.due {
            return;
        }
        match progress.step {
            Step::Pausing => {
                if self.may_attempt(key) {
                    self.attempt(key);
                }
            }
            Step::Reclaiming if progress.asked == 0 => {
                progress.take_up_claims(now);
                progress.begin_step(Step::Reclaiming, limit);
                self.ask_next(key);
            }
            Step::Connecting
            | Step::Authenticating
            | Step::Asking
            | Step::Registering
            | Step::Reclaiming => {
                self.attempt_failed(key, "the server was silent for too long".into());
            }
        }
    }

    fn attempt(&mut self, key: SessionKey) {
        let machine = self.sessions[key].recovery.as_mut();
        let Some(Attempt { number, place }) = machine.and_then(|machine| machine.next_attempt())
        else {
            return;
        };
        self.announce(key, SessionEvent::Reconnecting { attempt: number });
        let Some(place) = place else {
            return self.attempt_failed(key, "the server's socket does not exist".into());
        };
        if let Err(reason) = self.connect_again(key, &place) {
            self.attempt_failed(key, reason);
        }
    }

    /// Sends the connect request over the new connection, with the same content as at the first
    /// connection.
    pub(crate) fn on_reconnected(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        let (wanted_credits, options) = (session.terms.wanted_credits, session.options.clone());
        let room = session.token_request_bytes();
        let Some(machine) = &mut session.recovery else { return };
        let limit = machine.attempt_timeout();
        if let Some(progress) = &mut machine.progress {
            progress.begin_step(Step::Authenticating, limit);
        }
        let (name, verifier) = machine.name();
        let name = name.to_owned();
        if session.standing.prover.is_none() {
            let request = connect_request(&options, &name, verifier, wanted_credits);
            self.ask(key, Question::ConnectAuth, &request);
        } else {
            let request = plain_connect_request(&options, &name, verifier, wanted_credits, room);
            self.ask(key, Question::Connect, &request);
        }
    }

    /// Handles a failed attempt: schedules the next one, or ends the session.
    pub(crate) fn attempt_failed(&mut self, key: SessionKey, failure: String) {
        let session = &mut self.sessions[key];
        self.transport.close(session.endpoint);
        session.in_flight.begin_again(session.terms.wanted_credits);
        let Some(machine) = &mut session.recovery else { return };
        if let Some(reason) = machine.fail_attempt(failure) {
            self.give_up_for_good(key, reason);
        }
    }
}

/// Removes and returns the requests that waited for replies, in order of submission.
fn take_interrupted(session: &mut SessionState) -> (Vec<InterruptedRequest>, Vec<SharedChain>) {
    let (cut_off, open) = session.in_flight.cut_off(session.terms.wanted_credits);
    let (mut interrupted, mut chains) = (Vec::new(), Vec::new());
    for (stream, sequence, pending) in cut_off {
        if let Pending::Member(member) = &pending
            && !includes(&chains, &member.chain)
        {
            chains.push(member.chain.clone());
        }
        interrupted.extend(InterruptedRequest::new(stream, sequence, pending));
    }
    // The open chain may have no request in flight; if it has one, it is in the list already.
    chains.extend(open.filter(|open| !includes(&chains, open)));
    chains.sort_by_key(|chain| chain.borrow().id);
    interrupted.sort_by_key(|interrupted| interrupted.work.as_ref().map(Work::id));
    (interrupted, chains)
}

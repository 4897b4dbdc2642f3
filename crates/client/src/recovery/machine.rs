//! The state machine that restores a session after a lost connection.
//!
//! Invariants:
//!
//! - The recovery time counts from the loss of the connection until a request receives a reply.
//! - A request that the machine holds is neither in flight nor waiting for credits.
//!
//! The order of calls:
//!
//! 1. [`RecoveryMachine::note_established`], once the server has accepted the client.
//! 2. After a loss [`RecoveryMachine::begin`], with the interrupted requests.
//! 3. [`RecoveryMachine::next_attempt`], whenever the pause has ended.
//! 4. [`RecoveryMachine::fail_attempt`], or, when the server has replied to all recovery requests,
//!    `finish` (`outcome.rs`), after which the next loss may come.
//! 5. Finally [`RecoveryMachine::end`].
//!
//! Delayed requests go through [`RecoveryMachine::next_try`], [`RecoveryMachine::defer`] and
//! [`RecoveryMachine::take_due`] at any time.

use std::rc::Rc;
use std::time::Duration;

use dafs_dat::{Address, coarse_now};
use dafs_types::{ClientId, SessionId, Verifier};

use crate::chain::work::SharedChain;
use crate::opens::Opens;
use crate::options::{SessionOptions, random};
use crate::recovery::delay::Delay;
use crate::recovery::interrupted::InterruptedRequest;
use crate::recovery::options::{Listener, Recovery, RecoveryOptions};
use crate::recovery::progress::{RecoveryProgress, Step};
use crate::recovery::server_addresses::{ServerAddress, ServerAddresses};
use crate::transfer::Transfer;
use crate::work::{Delayed, Work};

/// The state that a session needs to recover.
pub(crate) struct RecoveryMachine {
    pub(super) options: Rc<SessionOptions>,
    pub(super) limits: RecoveryOptions,
    /// The client's name at the server, the same in every session of this client incarnation.
    name: String,
    verifier: Verifier,
    places: ServerAddresses,
    /// The session in which the requests in flight were sent; `None` before it is established.
    pub(super) session: Option<SessionId>,
    /// The server's id for this client; if the id changes, the server has forgotten the client.
    pub(super) client: ClientId,
    pub(super) opens: Opens,
    /// The delayed requests that must be sent again.
    pub(super) delayed: Vec<Delayed>,
    pub(super) progress: Option<Box<RecoveryProgress>>,
    listener: Option<Listener>,
    /// The time at which the connection was lost; `None` once a request has received a reply.
    /// Reconnecting alone does not reset this time, so the time limit also ends a session whose
    /// server crashes at the same request each time.
    lost_at: Option<Duration>,
    attempts: u32,
    /// The limit for the recovery time.
    patience: Duration,
    /// The start of the period in which a reply is expected and none has arrived.
    quiet_since: Option<Duration>,
}

/// The parameters of one attempt to reconnect.
pub(super) struct Attempt {
    /// The number of the attempt, counted from 1 after each reply to a request.
    pub number: u32,
    /// The address to try; `None` if there is none.
    pub place: Option<ServerAddress>,
}

impl RecoveryMachine {
    /// Creates a machine for a new session; `None` if its options disable recovery.
    pub(crate) fn new(options: &Rc<SessionOptions>, places: ServerAddresses) -> Option<Self> {
        let Recovery::On(limits) = &options.recovery else { return None };
        let verifier = Verifier(random().to_ne_bytes());
        Some(Self::fresh(options, limits, options.name(), verifier, places))
    }

    /// Creates a machine for an additional channel, which is tried at `address` first.
    pub(crate) fn for_channel(&self, options: &Rc<SessionOptions>, address: &Address) -> Box<Self> {
        let (name, places) = (self.name.clone(), self.places.from(address));
        let mut machine = Self::fresh(options, &self.limits, name, self.verifier, places);
        machine.patience = machine.patience.min(ADDITIONAL_PATIENCE);
        Box::new(machine)
    }

    /// Creates a machine for a session that is not established yet.
    fn fresh(
        options: &Rc<SessionOptions>,
        limits: &RecoveryOptions,
        name: String,
        verifier: Verifier,
        places: ServerAddresses,
    ) -> Self {
        Self {
            limits: limits.clone(),
            name,
            verifier,
            options: options.clone(),
            places,
            session: None,
            client: ClientId(0),
            opens: Opens::default(),
            delayed: Vec::new(),
            progress: None,
            listener: None,
            lost_at: None,
            attempts: 0,
            patience: limits.give_up_after,
            quiet_since: None,
        }
    }

    /// Returns the addresses of the session's server.
    pub(crate) fn places(&self) -> &ServerAddresses {
        &self.places
    }

    /// Restarts the recovery time of an additional channel, because the first channel is open
    /// again.
    pub(crate) fn wait_anew(&mut self) {
        self.attempts = 0;
        if let Some(lost_at) = &mut self.lost_at {
            *lost_at = coarse_now();
        }
    }

    /// Returns the client's name and verifier, which every connect request contains.
    pub(crate) fn name(&self) -> (&str, Verifier) {
        (&self.name, self.verifier)
    }

    /// Records the established session. From now on the session reconnects after a loss.
    pub(crate) fn note_established(&mut self, session: SessionId, client: ClientId) {
        (self.session, self.client) = (Some(session), client);
    }

    /// Returns true if the session was established, so that it recovers from a lost connection.
    pub(crate) fn is_established(&self) -> bool {
        self.session.is_some()
    }

    /// Disables recovery for a session that is disconnecting. Returns true if the session was
    /// established.
    pub(crate) fn leave(&mut self) -> bool {
        self.session.take().is_some()
    }

    /// Returns the timeout for one step of an attempt.
    pub(crate) fn attempt_timeout(&self) -> Duration {
        self.limits.attempt_timeout
    }

    #[inline]
    pub(crate) fn opens(&self) -> &Opens {
        &self.opens
    }

    #[inline]
    pub(crate) fn opens_mut(&mut self) -> &mut Opens {
        &mut self.opens
    }

    pub(crate) fn listener(&self) -> Option<Listener> {
        self.listener.clone()
    }

    /// Replaces the listener for session events and returns the former one.
    pub(crate) fn set_listener(&mut self, listener: Listener) -> Option<Listener> {
        self.listener.replace(listener)
    }

    /// Returns true if the machine holds requests that must be sent again.
    pub(crate) fn has_work(&self) -> bool {
        self.progress.is_some() || !self.delayed.is_empty()
    }

    /// Returns true if a caller waits for the session to recover; `has_waiting` is true if requests
    /// are queued until then.
    pub(crate) fn is_awaited(&self, has_waiting: bool) -> bool {
        let recovers =
            self.progress.as_ref().is_some_and(|progress| progress.is_awaited() || has_waiting);
        recovers || !self.delayed.is_empty()
    }

    /// Returns the time of the machine's next timer, if it has one.
    pub(crate) fn next_timer(&self) -> Option<Duration> {
        let progress = self.progress.as_ref().map(|progress| progress.due);
        self.delayed.iter().map(|delayed| delayed.due).chain(progress).min()
    }

    /// Ends the machine. Returns its listener, the interrupted requests and the delayed requests.
    pub(crate) fn end(self) -> (Option<Listener>, Vec<Work>, Vec<Work>) {
        let interrupted =
            self.progress.into_iter().flat_map(|progress| progress.into_works()).collect();
        let delayed = self.delayed.into_iter().map(|delayed| delayed.work).collect();
        (self.listener, interrupted, delayed)
    }

    // ---- detecting a silent server --------------------------------------------------

    /// Returns true if a reply is expected and the server has sent nothing for the reply timeout.
    /// Called periodically; `has_spoken` is true if anything has arrived since the last call.
    pub(crate) fn is_silent(&mut self, owes: bool, has_spoken: bool, now: Duration) -> bool {
        if !owes {
            self.quiet_since = None;
        } else if has_spoken || self.quiet_since.is_none() {
            self.quiet_since = Some(now);
        }
        let silence = self.quiet_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        self.options.answer_timeout.is_some_and(|limit| silence >= limit)
    }

    /// Sets a new limit for the recovery time, counted from now.
    pub(crate) fn limit_recovery_time(&mut self, limit: Duration) {
        self.limits.give_up_after = self.limits.give_up_after.min(limit);
        self.patience = self.patience.min(limit);
        if let Some(lost_at) = &mut self.lost_at {
            *lost_at = coarse_now();
        }
    }

    /// Records that a request received a reply, which resets the recovery time.
    pub(crate) fn note_progress(&mut self) {
        (self.lost_at, self.attempts) = (None, 0);
    }

    // ---- delayed requests -----------------------------------------------------------

    /// Returns the time at which to send a delayed request again; `None` if the time limit has
    /// passed.
    pub(crate) fn next_try(&self, delay: &mut Option<Box<Delay>>) -> Option<Duration> {
        let now = coarse_now();
        let delay = delay.get_or_insert_with(|| Box::new(Delay::since(now)));
        if delay.age(now) >= self.limits.give_up_after {
            return None;
        }
        Some(now + self.pause(delay.count_one()))
    }

    /// Holds a delayed request until it is due to be sent again.
    pub(crate) fn defer(&mut self, delayed: Delayed) {
        self.delayed.push(delayed);
    }

    /// Removes and returns the requests that are due, in the order in which they were delayed.
    pub(crate) fn take_due(&mut self, now: Duration) -> Vec<Work> {
        let due = self.delayed.extract_if(.., |delayed| delayed.due <= now);
        due.map(|delayed| delayed.work).collect()
    }

    /// Removes and returns the delayed requests for which `is_meant` is true.
    pub(crate) fn extract_delayed(&mut self, is_meant: impl Fn(&Work) -> bool) -> Vec<Work> {
        let meant = self.delayed.extract_if(.., |delayed| is_meant(&delayed.work));
        meant.map(|delayed| delayed.work).collect()
    }

    /// Removes and returns all delayed requests, so that they can be encoded again.
    pub(crate) fn take_delayed(&mut self) -> Vec<Delayed> {
        std::mem::take(&mut self.delayed)
    }

    /// Returns the transfers that the machine holds.
    pub(crate) fn transfers(&mut self) -> impl Iterator<Item = &mut Transfer> {
        let delayed = self.delayed.iter_mut().filter_map(|delayed| match &mut delayed.work {
            Work::Transfer(transfer) => Some(transfer),
            Work::Call(_) | Work::Member(_) | Work::Chain(_) => None,
        });
        delayed.chain(self.progress.iter_mut().flat_map(|progress| progress.transfers()))
    }

    // ---- reconnecting ---------------------------------------------------------------

    /// Starts recovery after a connection was lost with these requests in flight. Returns the
    /// reason for ending the session if the time limit has passed.
    pub(super) fn begin(
        &mut self,
        interrupted: Vec<InterruptedRequest>,
        chains: Vec<SharedChain>,
        reason: String,
    ) -> Option<String> {
        let now = coarse_now();
        self.lost_at.get_or_insert(now);
        // If the connection was lost again before any reply, pause before the next attempt.
        let due = if self.attempts == 0 { now } else { now + self.pause(self.attempts) };
        let progress =
            RecoveryProgress { chains, ..RecoveryProgress::new(interrupted, reason, due) };
        // The server may come back each time and crash at the same request.
        let is_over = self.attempts > 0 && now >= self.limit(now);
        let failure_text = is_over.then(|| progress.failure_text(self.attempts, now, self.lost_at));
        self.progress = Some(Box::new(progress));
        failure_text
    }

    /// Starts the next attempt.
    pub(super) fn next_attempt(&mut self) -> Option<Attempt> {
        let places = self.places.again();
        let progress = self.progress.as_deref_mut()?;
        self.attempts += 1;
        progress.begin_step(Step::Connecting, self.limits.attempt_timeout);
        let place = places.get(progress.tried).or(places.first()).cloned();
        progress.tried += 1;
        Some(Attempt { number: self.attempts, place })
    }

    /// Handles a failed attempt: schedules the next one, or returns the reason for ending the
    /// session.
    pub(super) fn fail_attempt(&mut self, failure: String) -> Option<String> {
        let mut progress = self.progress.take()?;
        let now = coarse_now();
        let limit = self.limit(now);
        progress.break_off(failure, now);
        let places = self.places.again().len();
        let is_round_over = progress.tried >= places;
        if is_round_over {
            progress.tried = 0;
            // The last attempt is made exactly at the time limit.
            let rounds = self.attempts / places.max(1) as u32;
            progress.due = (now + self.pause(rounds.saturating_sub(1))).min(limit.max(now));
        }
        let is_over = is_round_over && now >= limit;
        let failure_text = is_over.then(|| progress.failure_text(self.attempts, now, self.lost_at));
        self.progress = Some(progress);
        failure_text
    }

    /// Returns the pause after all addresses were tried `rounds` times. The pause is randomized, so
    /// that the clients of one server do not all reconnect at the same moment.
    pub(super) fn pause(&self, rounds: u32) -> Duration {
        let doubled = self.limits.pause_min.saturating_mul(1 << rounds.min(16));
        let pause = doubled.min(self.limits.pause_max);
        pause + pause.mul_f64(f64::from(random() as u16) / f64::from(u16::MAX) / 4.0)
    }

    /// Returns the time at which the attempts to reconnect end.
    pub(super) fn limit(&self, now: Duration) -> Duration {
        self.lost_at.unwrap_or(now) + self.patience
    }
}

/// The time within which an additional channel must reconnect after the first channel has
/// reconnected. After that time its transfers move to the first channel.
const ADDITIONAL_PATIENCE: Duration = Duration::from_secs(10);

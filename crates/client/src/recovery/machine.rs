//! What a session needs to come back: the machine that takes it there.
//!
//! Invariant: the time to come back counts from the loss, until a request is answered; a request
//! that the machine holds is neither under way nor waiting for credits.
//!
//! The calling order: [`RecoveryMachine::note_established`] once the server has let the client in;
//! at a loss [`RecoveryMachine::begin`] with what was cut off; [`RecoveryMachine::next_attempt`]
//! whenever the pause is over; [`RecoveryMachine::fail_attempt`] or, when everything is known,
//! `finish` (`outcome.rs`), behind which the next loss may come. What a server has put off goes
//! through [`RecoveryMachine::next_try`], [`RecoveryMachine::put_off`] and
//! [`RecoveryMachine::take_due`] at any time. [`RecoveryMachine::end`] is last.

use std::rc::Rc;
use std::time::Duration;

use dafs_dat::{Address, coarse_now};
use dafs_types::{ClientId, SessionId, Verifier};

use crate::chain::work::SharedChain;
use crate::opens::Opens;
use crate::options::{SessionOptions, random};
use crate::recovery::delay::Delay;
use crate::recovery::options::{Listener, Recovery, RecoveryOptions};
use crate::recovery::places::{Place, Places};
use crate::recovery::rescue::{Rescue, Step};
use crate::recovery::stranded::Stranded;
use crate::transfer::Transfer;
use crate::work::{Delayed, Work};

/// What a session needs to come back.
pub(crate) struct RecoveryMachine {
    pub(super) options: Rc<SessionOptions>,
    pub(super) limits: RecoveryOptions,
    /// Names this client to its server, in every session of its life.
    name: String,
    verifier: Verifier,
    places: Places,
    /// The session that requests under way were sent in; `None` before it is established.
    pub(super) session: Option<SessionId>,
    /// The server's name for this client: another one means that it has forgotten us.
    pub(super) client: ClientId,
    pub(super) opens: Opens,
    /// Requests that the server has put off.
    pub(super) delayed: Vec<Delayed>,
    pub(super) rescue: Option<Box<Rescue>>,
    listener: Option<Listener>,
    /// When the connection was lost; `None` again once a request was answered, so that a
    /// server which dies of a request does not do so for ever.
    lost_at: Option<Duration>,
    attempts: u32,
    /// How long it may take to come back.
    patience: Duration,
    /// Since when an answer is owed and none has come.
    quiet_since: Option<Duration>,
}

/// One attempt to come back.
pub(super) struct Attempt {
    /// Counted from 1 since the last answer to a request.
    pub number: u32,
    /// Where to; `None` if there is no place to try.
    pub place: Option<Place>,
}

impl RecoveryMachine {
    /// For a session that is about to be made; `None` if it does not want to come back.
    pub fn new(options: &Rc<SessionOptions>, places: Places) -> Option<Self> {
        let Recovery::On(limits) = &options.recovery else { return None };
        let verifier = Verifier(random().to_ne_bytes());
        Some(Self::fresh(options, limits, options.name(), verifier, places))
    }

    /// For a channel beside the session's first, which is to be found at an address.
    pub fn beside(&self, options: &Rc<SessionOptions>, address: &Address) -> Box<Self> {
        let (name, places) = (self.name.clone(), self.places.from(address));
        let mut machine = Self::fresh(options, &self.limits, name, self.verifier, places);
        machine.patience = machine.patience.min(BESIDE_PATIENCE);
        Box::new(machine)
    }

    /// A machine that knows nothing of its session yet.
    fn fresh(
        options: &Rc<SessionOptions>,
        limits: &RecoveryOptions,
        name: String,
        verifier: Verifier,
        places: Places,
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
            rescue: None,
            listener: None,
            lost_at: None,
            attempts: 0,
            patience: limits.give_up_after,
            quiet_since: None,
        }
    }

    /// Where the server may be found.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// What it has waited for is there: its time to come back begins anew.
    pub fn wait_anew(&mut self) {
        self.attempts = 0;
        if let Some(lost_at) = &mut self.lost_at {
            *lost_at = coarse_now();
        }
    }

    /// What the client calls itself, at first and after each loss.
    pub fn name(&self) -> (&str, Verifier) {
        (&self.name, self.verifier)
    }

    /// The client has proved itself: from now on the session comes back by itself.
    pub fn note_established(&mut self, session: SessionId, client: ClientId) {
        (self.session, self.client) = (Some(session), client);
    }

    /// Whether a loss of the connection is something to come back from.
    pub fn is_established(&self) -> bool {
        self.session.is_some()
    }

    /// The session leaves: from here on it ends with its connection. Whether it was established.
    pub fn leave(&mut self) -> bool {
        self.session.take().is_some()
    }

    /// Longest time one step may take.
    pub fn attempt_timeout(&self) -> Duration {
        self.limits.attempt_timeout
    }

    /// What the session has open.
    #[inline]
    pub fn opens(&self) -> &Opens {
        &self.opens
    }

    /// As [`RecoveryMachine::opens`], to take note of what answers say.
    #[inline]
    pub fn opens_mut(&mut self) -> &mut Opens {
        &mut self.opens
    }

    /// Whom the session tells of its events.
    pub fn listener(&self) -> Option<Listener> {
        self.listener.clone()
    }

    /// Tells somebody else from now on. The one before hears no more.
    pub fn set_listener(&mut self, listener: Listener) -> Option<Listener> {
        self.listener.replace(listener)
    }

    /// Whether requests wait here to be sent again.
    pub fn has_work(&self) -> bool {
        self.rescue.is_some() || !self.delayed.is_empty()
    }

    /// Whether somebody waits for what the machine does; `has_waiting` if requests of the session
    /// wait for it to be back.
    pub fn is_awaited(&self, has_waiting: bool) -> bool {
        let recovers =
            self.rescue.as_ref().is_some_and(|rescue| rescue.is_awaited() || has_waiting);
        recovers || !self.delayed.is_empty()
    }

    /// When it must be looked at.
    pub fn next_timer(&self) -> Option<Duration> {
        let rescue = self.rescue.as_ref().map(|rescue| rescue.due);
        self.delayed.iter().map(|delayed| delayed.due).chain(rescue).min()
    }

    /// The session has ended: its listener, what was cut off, and what was put off.
    pub fn end(self) -> (Option<Listener>, Vec<Work>, Vec<Work>) {
        let stranded = self.rescue.into_iter().flat_map(|rescue| rescue.into_works()).collect();
        let delayed = self.delayed.into_iter().map(|delayed| delayed.work).collect();
        (self.listener, stranded, delayed)
    }

    // ---- silence --------------------------------------------------------------------

    /// Whether a server that owes an answer since then has been silent for too long. Called
    /// now and then; `has_spoken` since the last time.
    pub fn is_silent(&mut self, owes: bool, has_spoken: bool, now: Duration) -> bool {
        if !owes {
            self.quiet_since = None;
        } else if has_spoken || self.quiet_since.is_none() {
            self.quiet_since = Some(now);
        }
        let silence = self.quiet_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        self.options.answer_timeout.is_some_and(|limit| silence >= limit)
    }

    /// From now on the session comes back within this time, or not at all.
    pub fn hurry(&mut self, limit: Duration) {
        self.limits.give_up_after = self.limits.give_up_after.min(limit);
        self.patience = self.patience.min(limit);
        if let Some(lost_at) = &mut self.lost_at {
            *lost_at = coarse_now();
        }
    }

    /// A request was answered: what was lost is forgotten.
    pub fn note_progress(&mut self) {
        (self.lost_at, self.attempts) = (None, 0);
    }

    // ---- what the server has put off ------------------------------------------------

    /// When to ask anew for what the server has put off; `None` if its time is over.
    pub fn next_try(&self, delay: &mut Option<Box<Delay>>) -> Option<Duration> {
        let now = coarse_now();
        let delay = delay.get_or_insert_with(|| Box::new(Delay::since(now)));
        if delay.age(now) >= self.limits.give_up_after {
            return None;
        }
        Some(now + self.pause(delay.count_one()))
    }

    /// Keeps a request until it is due.
    pub fn put_off(&mut self, delayed: Delayed) {
        self.delayed.push(delayed);
    }

    /// What is due by now, in the order it was put off.
    pub fn take_due(&mut self, now: Duration) -> Vec<Work> {
        let due = self.delayed.extract_if(.., |delayed| delayed.due <= now);
        due.map(|delayed| delayed.work).collect()
    }

    /// Takes out of what was put off what is like this.
    pub fn extract_delayed(&mut self, is_meant: impl Fn(&Work) -> bool) -> Vec<Work> {
        let meant = self.delayed.extract_if(.., |delayed| is_meant(&delayed.work));
        meant.map(|delayed| delayed.work).collect()
    }

    /// Takes out all that was put off, to be put back in another form.
    pub fn take_delayed(&mut self) -> Vec<Delayed> {
        std::mem::take(&mut self.delayed)
    }

    /// The transfers that it holds.
    pub fn transfers(&mut self) -> impl Iterator<Item = &mut Transfer> {
        let delayed = self.delayed.iter_mut().filter_map(|delayed| match &mut delayed.work {
            Work::Transfer(transfer) => Some(transfer),
            Work::Call(_) | Work::Member(_) | Work::Chain(_) => None,
        });
        delayed.chain(self.rescue.iter_mut().flat_map(|rescue| rescue.transfers()))
    }

    // ---- the way back ---------------------------------------------------------------

    /// The connection is lost with these requests under way. What to say if there is no time left
    /// to come back.
    pub(super) fn begin(
        &mut self,
        stranded: Vec<Stranded>,
        chains: Vec<SharedChain>,
        reason: String,
    ) -> Option<String> {
        let now = coarse_now();
        self.lost_at.get_or_insert(now);
        // Lost again without an answer in between: no hurry.
        let due = if self.attempts == 0 { now } else { now + self.pause(self.attempts) };
        let rescue = Rescue { chains, ..Rescue::new(stranded, reason, due) };
        // A server may come back each time and die of the same request.
        let is_over = self.attempts > 0 && now >= self.limit(now);
        let obituary = is_over.then(|| rescue.obituary(self.attempts, now, self.lost_at));
        self.rescue = Some(Box::new(rescue));
        obituary
    }

    /// The next attempt begins.
    pub(super) fn next_attempt(&mut self) -> Option<Attempt> {
        let places = self.places.again();
        let rescue = self.rescue.as_deref_mut()?;
        self.attempts += 1;
        rescue.begin_step(Step::Connecting, self.limits.attempt_timeout);
        let place = places.get(rescue.tried).or(places.first()).cloned();
        rescue.tried += 1;
        Some(Attempt { number: self.attempts, place })
    }

    /// An attempt came to nothing: the next follows after a pause. What to say if there is none.
    pub(super) fn fail_attempt(&mut self, failure: String) -> Option<String> {
        let mut rescue = self.rescue.take()?;
        let now = coarse_now();
        let limit = self.limit(now);
        rescue.break_off(failure, now);
        let places = self.places.again().len();
        let is_round_over = rescue.tried >= places;
        if is_round_over {
            rescue.tried = 0;
            // The last attempt is made when the time is just over.
            let rounds = self.attempts / places.max(1) as u32;
            rescue.due = (now + self.pause(rounds.saturating_sub(1))).min(limit.max(now));
        }
        let is_over = is_round_over && now >= limit;
        let obituary = is_over.then(|| rescue.obituary(self.attempts, now, self.lost_at));
        self.rescue = Some(rescue);
        obituary
    }

    /// Once everything was tried `rounds` times: how long to rest. Clients of one server
    /// do not all come back in the same moment.
    pub(super) fn pause(&self, rounds: u32) -> Duration {
        let doubled = self.limits.pause_min.saturating_mul(1 << rounds.min(16));
        let pause = doubled.min(self.limits.pause_max);
        pause + pause.mul_f64(f64::from(random() as u16) / f64::from(u16::MAX) / 4.0)
    }

    /// When the attempts to come back end.
    pub(super) fn limit(&self, now: Duration) -> Duration {
        self.lost_at.unwrap_or(now) + self.patience
    }
}

/// How long a channel beside the first may take to come back, once that one stands; then its
/// transfers go over the first.
const BESIDE_PATIENCE: Duration = Duration::from_secs(10);

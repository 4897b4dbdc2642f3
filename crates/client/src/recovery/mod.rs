//! Coming back after a broken connection, a killed server, a parted network
//! (draft chapter 5).
//!
//! Invariant: every request that was under way when a connection was lost ends exactly
//! once, with the result the server has for it or after it was asked anew, and none that
//! changes something is asked anew unless the server says that it was not carried out, or
//! doing it again makes no difference.
//!
//! The order is the whole point:
//! 1. Connect and authenticate, under the same client name and verifier (`rescue.rs`); by a
//!    fresh token where tickets prove the client.
//! 2. Ask for the result of each request that the server keeps results of. The first of
//!    these questions parts the old connection on the server's side, and is answered when
//!    nothing of the old session runs any more. Only then may memory be named again that
//!    an old request named: until then the old session might write into it.
//! 3. If the server has restarted, which a changed client id says, register credentials
//!    again, and take opens back.
//! 4. Discard the old results, and ask anew for what was not done (`stranded.rs`).
//!
//! All of it happens inside the calls of the owning thread, a step at a time; other
//! sessions go on meanwhile. What is left of a chain goes on as a chain (`chains.rs`).

mod chains;
mod delay;
mod outcome;
mod places;
mod questions;
mod rescue;
mod stranded;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use dafs_dat::coarse_now;
use dafs_types::{ClientId, SessionId, Verifier};

pub(crate) use delay::{Delay, Delayed, is_put_off};
pub(crate) use places::{Place, Places};
pub(crate) use rescue::{Question, Rescue};
pub(crate) use stranded::{Stranded, Work};

use crate::data::Transfer;
use crate::opens::Opens;
use crate::session::{SessionOptions, random};

/// Whether a session comes back by itself when its connection is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// It ends, and everything outstanding fails with
    /// [`SessionEnded`](crate::ClientError::SessionEnded).
    Off,
    /// It reconnects; whoever waits notices a pause. The server keeps the results of
    /// requests that change something for it.
    On(RecoveryOptions),
}

impl Default for Recovery {
    fn default() -> Self {
        Self::On(RecoveryOptions::default())
    }
}

/// How long a session tries to come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryOptions {
    /// Time from the loss, or from the last answer before it, after which the session ends;
    /// the attempt under way then is the last. Also how long a request waits that the
    /// server puts off (DELAY, GRACE).
    pub give_up_after: Duration,
    /// Longest time one step of an attempt may take: connecting, or an answer.
    pub attempt_timeout: Duration,
    /// Pause behind the first attempt that fails; it doubles with each.
    pub pause_min: Duration,
    /// Longest pause.
    pub pause_max: Duration,
}

impl Default for RecoveryOptions {
    fn default() -> Self {
        Self {
            give_up_after: Duration::from_secs(120),
            attempt_timeout: Duration::from_secs(30),
            pause_min: Duration::from_millis(20),
            pause_max: Duration::from_secs(2),
        }
    }
}

/// What became of a session's connection, for those who want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// The connection is gone.
    Lost {
        /// Why.
        reason: String,
    },
    /// An attempt to come back begins.
    Reconnecting {
        /// Which, counted from 1 since the last answer to a request.
        attempt: u32,
    },
    /// The session goes on.
    Recovered {
        /// The server has restarted, or has forgotten this client.
        server_restarted: bool,
        /// Requests that are asked anew.
        reissued: u32,
        /// Requests that had been carried out, whose results were fetched.
        fetched: u32,
        /// Opens taken back from a server that has restarted.
        reclaimed: u32,
        /// Opens that are gone: whoever uses them is told STALE.
        lost: u32,
        /// Requests that ended with
        /// [`OutcomeUnknown`](crate::ClientError::OutcomeUnknown).
        unknown: u32,
        /// Registered credentials that a server which has restarted does not take again:
        /// requests that act for them end with NO_CREDS.
        credentials_lost: u32,
    },
    /// The limit is over; the session has ended.
    GaveUp {
        /// What was tried, for how long, and what failed last.
        reason: String,
    },
}

/// Whom a session tells of its events.
pub(crate) type Listener = Rc<RefCell<dyn FnMut(&SessionEvent)>>;

/// What a session needs to come back.
pub(crate) struct Keeper {
    pub options: SessionOptions,
    pub recovery: RecoveryOptions,
    /// Names this client to its server, in every session of its life.
    pub name: String,
    pub verifier: Verifier,
    places: Places,
    /// The session that requests under way were sent in; `None` before it is established.
    pub session: Option<SessionId>,
    /// The server's name for this client: another one means that it has forgotten us.
    pub client: ClientId,
    pub opens: Opens,
    /// Requests that the server has put off.
    pub delayed: Vec<Delayed>,
    pub rescue: Option<Box<Rescue>>,
    pub listener: Option<Listener>,
    /// When the connection was lost; `None` again once a request was answered, so that a
    /// server which dies of a request does not do so for ever.
    lost_at: Option<Duration>,
    attempts: u32,
    /// Since when an answer is owed and none has come.
    quiet_since: Option<Duration>,
}

impl Keeper {
    /// Whether requests wait here to be sent again.
    pub fn has_work(&self) -> bool {
        self.rescue.is_some() || !self.delayed.is_empty()
    }

    /// For a session that is about to be made; `None` if it does not want to come back.
    pub fn new(options: &SessionOptions, places: Places) -> Option<Self> {
        let Recovery::On(recovery) = &options.recovery else { return None };
        Some(Self {
            recovery: recovery.clone(),
            name: options.name(),
            verifier: Verifier(random().to_ne_bytes()),
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
            quiet_since: None,
        })
    }

    /// Once everything was tried `attempts` times: how long to rest. Clients of one server
    /// do not all come back in the same moment.
    fn pause(&self, rounds: u32) -> Duration {
        let doubled = self.recovery.pause_min.saturating_mul(1 << rounds.min(16));
        let pause = doubled.min(self.recovery.pause_max);
        pause + pause.mul_f64(f64::from(random() as u16) / f64::from(u16::MAX) / 4.0)
    }

    /// When the attempts to come back end.
    fn limit(&self, now: Duration) -> Duration {
        self.lost_at.unwrap_or(now) + self.recovery.give_up_after
    }

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

    /// The transfers that it holds.
    pub fn transfers(&mut self) -> impl Iterator<Item = &mut Transfer> {
        let delayed = self.delayed.iter_mut().filter_map(|delayed| match &mut delayed.work {
            Work::Transfer(transfer) => Some(transfer),
            Work::Call(_) | Work::Member(_) | Work::Chain(_) => None,
        });
        delayed.chain(self.rescue.iter_mut().flat_map(|rescue| rescue.transfers()))
    }

    /// From now on the session comes back within this time, or not at all.
    pub fn hurry(&mut self, limit: Duration) {
        self.recovery.give_up_after = self.recovery.give_up_after.min(limit);
        if let Some(lost_at) = &mut self.lost_at {
            *lost_at = coarse_now();
        }
    }

    /// A request was answered: what was lost is forgotten.
    pub fn note_progress(&mut self) {
        (self.lost_at, self.attempts) = (None, 0);
    }
}

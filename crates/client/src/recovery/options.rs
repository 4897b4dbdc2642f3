//! Whether and how a session comes back, and what it tells of that.
//!
//! Invariant: of each connection that is lost a listener hears one end: recovered, or given up.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

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

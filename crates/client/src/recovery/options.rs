//! The recovery options of a session, and the events it reports.
//!
//! Invariant: for each lost connection a listener gets exactly one final event: recovered or given
//! up.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::setters::setters;

/// Controls what a session does when its connection is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The session ends, and everything outstanding fails with
    /// [`SessionEnded`](crate::ClientError::SessionEnded).
    Off,
    /// The session reconnects, and callers notice a pause. For this the server keeps the results of
    /// requests that change something.
    On(RecoveryOptions),
}

impl Default for Recovery {
    fn default() -> Self {
        Self::On(RecoveryOptions::default())
    }
}

/// The limits for reconnecting a session.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryOptions {
    /// How long a session tries to recover, counted from the loss or from the last reply before it.
    /// The attempt in progress at that time is the last one. Also the limit for repeating a request
    /// that the server delays (DELAY, GRACE).
    pub give_up_after: Duration,
    /// The timeout for one step of an attempt: connecting, or one reply.
    pub attempt_timeout: Duration,
    /// The pause after the first failed attempt; it doubles with each further one.
    pub pause_min: Duration,
    /// The limit for the pause between attempts.
    pub pause_max: Duration,
}

setters! { RecoveryOptions:
    give_up_after: Duration,
    attempt_timeout: Duration,
    pause_min: Duration,
    pause_max: Duration,
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

/// An event in the life of a session's connection, for
/// [`Session::on_event`](crate::Session::on_event).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// The connection was lost.
    Lost {
        /// The reason for the loss.
        reason: String,
    },
    /// An attempt to reconnect begins.
    Reconnecting {
        /// The number of the attempt, counted from 1 since the last reply to a request.
        attempt: u32,
    },
    /// The session has recovered.
    Recovered {
        /// True if the server has restarted, or has forgotten this client.
        server_restarted: bool,
        /// The number of requests that are sent again.
        reissued: u32,
        /// The number of requests that had been carried out, and whose results were fetched.
        fetched: u32,
        /// The number of opens reclaimed from a restarted server.
        reclaimed: u32,
        /// The number of opens that were lost: using them fails with STALE.
        lost: u32,
        /// The number of requests that ended with
        /// [`OutcomeUnknown`](crate::ClientError::OutcomeUnknown).
        unknown: u32,
        /// The number of registered credentials that a restarted server did not accept again:
        /// requests that use them fail with NO_CREDS.
        credentials_lost: u32,
    },
    /// The time limit has passed, and the session has ended.
    GaveUp {
        /// What was tried, for how long, and the last failure.
        reason: String,
    },
}

/// A callback for session events.
pub(crate) type Listener = Rc<RefCell<dyn FnMut(&SessionEvent)>>;

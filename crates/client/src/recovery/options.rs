//! The recovery options of a session, and the events that it reports.
//!
//! Invariant: for each lost connection a listener gets exactly one final event:
//! [`SessionEvent::Recovered`] or [`SessionEvent::GaveUp`].

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::setters::setters;

/// Controls what a session does when its connection is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The session ends, and all outstanding operations fail with
    /// [`SessionEnded`](crate::ClientError::SessionEnded).
    Off,
    /// The session reconnects, and callers only notice a pause. For this purpose the server keeps
    /// the results of requests that change something.
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
    /// The time limit for recovery, counted from the loss of the connection, or from the first of
    /// several losses without a reply between them. The attempt in progress when the limit passes
    /// is the last one. The same limit applies to repeating a request that the server delays
    /// (DELAY, GRACE).
    pub give_up_after: Duration,
    /// The timeout for one step of an attempt: connecting, or one reply.
    pub attempt_timeout: Duration,
    /// The pause after the first failed attempt; the pause doubles after each further failure.
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

/// An event of a session's connection, reported to the listener of
/// [`Session::on_event`](crate::Session::on_event).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// The connection was lost; the session starts to recover.
    Lost {
        /// The reason why the connection was lost.
        reason: String,
    },
    /// An attempt to reconnect begins.
    Reconnecting {
        /// The number of the attempt, counted from 1 after each reply to a request.
        attempt: u32,
    },
    /// The session has recovered and continues.
    Recovered {
        /// True if the server has restarted or has forgotten this client.
        server_restarted: bool,
        /// The number of requests that were sent again.
        reissued: u32,
        /// The number of requests that had been executed and whose results were fetched from the
        /// server.
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
        /// A text that states the number of attempts, their duration and the last failure.
        reason: String,
    },
}

/// A callback for session events.
pub(crate) type Listener = Rc<RefCell<dyn FnMut(&SessionEvent)>>;

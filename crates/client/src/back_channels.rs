//! Back-control channels, and the state that sessions keep about them.
//!
//! Invariant: a session has at most one channel, and a channel keeps at most [`LOCKS_READY_MAX`]
//! reports of free locks.

use std::collections::VecDeque;
use std::time::Duration;

use dafs_dat::EndpointId;
use dafs_gss::Initiator;
use dafs_types::{FileHandle, StateId};

use crate::error::ClientError;
use crate::ids::SessionKey;

/// A lock that was denied before and is now free. This is a hint: request the lock again to get it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockReady {
    /// The file that the lock is on.
    pub file: FileHandle,
    /// The open under which the lock was requested.
    pub state: StateId,
    /// The offset of the lock's first byte.
    pub offset: u64,
    /// The length of the lock in bytes; `u64::MAX` means up to the end of the file.
    pub length: u64,
}

/// The channels of all sessions of a client.
#[derive(Default)]
pub(crate) struct BackChannels(Vec<(SessionKey, BackChannel)>);

pub(crate) struct BackChannel {
    pub endpoint: EndpointId,
    pub phase: BackChannelPhase,
    locks_ready: VecDeque<LockReady>,
}

pub(crate) enum BackChannelPhase {
    Connecting,
    /// CONNECT_BIND is in flight. With Kerberos, this context checks the token in the reply.
    Binding(Option<Box<Initiator>>),
    Bound,
    Ended(ClientError),
}

/// The state of a session's back-control channel that is kept across reconnects.
#[derive(Debug, Default)]
pub(crate) struct BackChannelState {
    /// True if the session has had a channel. The channel is then opened again after a reconnect.
    pub is_wanted: bool,
    /// The deadline for reopening the channel; `None` if the channel is not being reopened.
    pub due: Option<Duration>,
    /// The number of consecutive losses of the channel without a completion report between them.
    pub losses: u32,
}

impl BackChannels {
    pub(crate) fn of(&self, key: SessionKey) -> Option<&BackChannel> {
        self.0.iter().find(|(session, _)| *session == key).map(|(_, back)| back)
    }

    /// Returns the channel of a session, mutably.
    pub(crate) fn of_mut(&mut self, key: SessionKey) -> Option<&mut BackChannel> {
        self.0.iter_mut().find(|(session, _)| *session == key).map(|(_, back)| back)
    }

    /// Adds a channel, whose connection is being established, for a session that has none.
    pub(crate) fn add(&mut self, key: SessionKey, endpoint: EndpointId) {
        let (phase, locks_ready) = (BackChannelPhase::Connecting, VecDeque::new());
        self.0.push((key, BackChannel { endpoint, phase, locks_ready }));
    }

    /// Removes a session's channel and returns its connection.
    pub(crate) fn remove(&mut self, key: SessionKey) -> Option<EndpointId> {
        let place = self.0.iter().position(|(session, _)| *session == key)?;
        Some(self.0.swap_remove(place).1.endpoint)
    }

    /// Returns true if the session's channel is bound, so that the server can send requests over
    /// it.
    pub(crate) fn listens(&self, key: SessionKey) -> bool {
        self.of(key).is_some_and(|back| matches!(back.phase, BackChannelPhase::Bound))
    }
}

impl BackChannel {
    /// Stores the server's report that a lock is free, for the application to take.
    pub(crate) fn note_ready(&mut self, ready: LockReady) {
        if self.locks_ready.len() == LOCKS_READY_MAX {
            self.locks_ready.pop_front();
        }
        self.locks_ready.push_back(ready);
    }

    /// Removes and returns the oldest report of a free lock.
    pub(crate) fn next_ready(&mut self) -> Option<LockReady> {
        self.locks_ready.pop_front()
    }

    /// Returns true if exactly this lock was reported free, and removes the report.
    pub(crate) fn take_ready(&mut self, ready: &LockReady) -> bool {
        let place = self.locks_ready.iter().position(|other| other == ready);
        place.is_some_and(|place| self.locks_ready.remove(place).is_some())
    }
}

/// The limit for the number of reports of free locks that the application has not taken; further
/// reports are dropped.
const LOCKS_READY_MAX: usize = 1024;

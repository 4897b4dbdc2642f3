//! Back-control channels, and what their sessions want of them.
//!
//! Invariant: a session has one channel at most; no more hints are kept of one than
//! [`LOCKS_READY_MAX`].

use std::collections::VecDeque;
use std::time::Duration;

use dafs_dat::EndpointId;
use dafs_gss::Initiator;
use dafs_types::{FileHandle, StateId};

use crate::error::ClientError;
use crate::ids::SessionKey;

/// The turn of a lock that was asked for, and denied, has come: ask for it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockReady {
    /// The file.
    pub file: FileHandle,
    /// The open that it was asked for under.
    pub state: StateId,
    /// First byte of the lock.
    pub offset: u64,
    /// Its bytes; all ones to the end of the file.
    pub length: u64,
}

/// The channels of all sessions of a client.
#[derive(Default)]
pub(crate) struct Backs(Vec<(SessionKey, Back)>);

/// One channel.
pub(crate) struct Back {
    pub endpoint: EndpointId,
    pub phase: BackPhase,
    locks_ready: VecDeque<LockReady>,
}

pub(crate) enum BackPhase {
    Connecting,
    /// CONNECT_BIND is under way, with a token of this party's or without.
    Binding(Option<Box<Initiator>>),
    Bound,
    Ended(ClientError),
}

/// Whether a session wants a channel.
#[derive(Debug, Default)]
pub(crate) struct BackWish {
    /// It had one: when it comes back it has one again.
    pub is_wanted: bool,
    /// When one that is opened again must stand.
    pub due: Option<Duration>,
    /// How often in a row the channel was lost with nothing told over it.
    pub losses: u32,
}

impl Backs {
    /// The channel of a session.
    pub fn of(&self, key: SessionKey) -> Option<&Back> {
        self.0.iter().find(|(session, _)| *session == key).map(|(_, back)| back)
    }

    /// As [`Backs::of`], to be changed.
    pub fn of_mut(&mut self, key: SessionKey) -> Option<&mut Back> {
        self.0.iter_mut().find(|(session, _)| *session == key).map(|(_, back)| back)
    }

    /// A channel is begun of a session that has none.
    pub fn add(&mut self, key: SessionKey, endpoint: EndpointId) {
        let (phase, locks_ready) = (BackPhase::Connecting, VecDeque::new());
        self.0.push((key, Back { endpoint, phase, locks_ready }));
    }

    /// A session has no channel any more. The connection that it had.
    pub fn remove(&mut self, key: SessionKey) -> Option<EndpointId> {
        let place = self.0.iter().position(|(session, _)| *session == key)?;
        Some(self.0.swap_remove(place).1.endpoint)
    }

    /// Whether the server can tell a session something.
    pub fn listens(&self, key: SessionKey) -> bool {
        self.of(key).is_some_and(|back| matches!(back.phase, BackPhase::Bound))
    }
}

impl Back {
    /// The server has said that a lock is ready.
    pub fn note_ready(&mut self, ready: LockReady) {
        if self.locks_ready.len() == LOCKS_READY_MAX {
            self.locks_ready.pop_front();
        }
        self.locks_ready.push_back(ready);
    }

    /// The next lock that is ready.
    pub fn next_ready(&mut self) -> Option<LockReady> {
        self.locks_ready.pop_front()
    }

    /// Whether just this lock is ready; said once.
    pub fn take_ready(&mut self, ready: &LockReady) -> bool {
        let place = self.locks_ready.iter().position(|other| other == ready);
        place.is_some_and(|place| self.locks_ready.remove(place).is_some())
    }
}

/// Locks that are ready and not asked about; hints beyond them are forgotten.
const LOCKS_READY_MAX: usize = 1024;

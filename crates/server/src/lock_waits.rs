//! LOCK, LOCKT, LOCKU, and what locks ask of the server.
//!
//! Invariant: a lock is granted for its owner's eyes only when no read or write of others
//! that began before it is still under way in its range, and when what must be on stable
//! storage for it is.

use dafs_filer::ChannelId;
use dafs_filer::locks::{LockMode, WaiterId};
use dafs_ops::{Lock, LockSpan};
use dafs_types::{FileHandle, StateId};

/// A client whose lock request waits for its turn, and that asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockWaiter {
    id: WaiterId,
    channel: ChannelId,
    file: FileHandle,
    state: StateId,
    offset: u64,
    length: u64,
    mode: LockMode,
}

impl LockWaiter {
    /// Whose it is.
    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    /// What it waits for.
    pub fn span(&self) -> LockSpan {
        let Self { file, state, offset, length, .. } = *self;
        LockSpan { file, state, offset, length }
    }
}

/// All that wait for locks.
#[derive(Debug, Default)]
pub(crate) struct LockWaits {
    waiters: Vec<LockWaiter>,
    last: u64,
}

impl LockWaits {
    /// The name of a request that may have to wait: the one it has if it has asked before.
    pub fn name_of(&mut self, channel: ChannelId, ask: &Lock, mode: LockMode) -> WaiterId {
        let Lock { file, state, offset, length, .. } = *ask;
        let is_same = |waiter: &&LockWaiter| {
            let LockWaiter { channel: c, file: f, state: s, offset: o, length: l, mode: m, .. } =
                **waiter;
            (c, f, s, o, l, m) == (channel, file, state, offset, length, mode)
        };
        if let Some(waiter) = self.waiters.iter().find(is_same) {
            return waiter.id;
        }
        self.last += 1;
        let id = WaiterId(self.last);
        self.waiters.push(LockWaiter { id, channel, file, state, offset, length, mode });
        id
    }

    pub fn find(&self, id: WaiterId) -> Option<LockWaiter> {
        self.waiters.iter().find(|waiter| waiter.id == id).copied()
    }

    pub fn forget(&mut self, id: WaiterId) {
        self.waiters.retain(|waiter| waiter.id != id);
    }

    /// A connection is gone, and what waited on it.
    pub fn forget_channel(&mut self, channel: ChannelId) {
        self.waiters.retain(|waiter| waiter.channel != channel);
    }
}

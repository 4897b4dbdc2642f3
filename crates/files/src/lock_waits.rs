//! LOCK, LOCKT, LOCKU, and what locks ask of the server.
//!
//! Invariant: a lock is granted for its owner's eyes only when no read or write of others
//! that began before it is still under way in its range, and when what must be on stable
//! storage for it is.

use dafs_filer::FenceKey;
use dafs_filer::locks::{LockMode, WaiterId};
use dafs_ops::{Lock, LockSpan};
use dafs_types::{FileHandle, StateId};

/// A client whose lock request waits for its turn, and that asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWaiter {
    id: WaiterId,
    fence: Option<FenceKey>,
    file: FileHandle,
    state: StateId,
    offset: u64,
    length: u64,
    mode: LockMode,
}

impl LockWaiter {
    /// Under which identity it was asked for: each session has its own.
    pub fn fence(&self) -> Option<FenceKey> {
        self.fence
    }

    /// What it waits for.
    pub fn span(&self) -> LockSpan {
        let Self { file, state, offset, length, .. } = *self;
        LockSpan { file, state, offset, length }
    }
}

/// All that wait for locks.
#[derive(Debug, Default)]
pub struct LockWaits {
    waiters: Vec<LockWaiter>,
    last: u64,
}

impl LockWaits {
    /// The name of a request that may have to wait: the one it has if it has asked before.
    pub fn name_of(&mut self, fence: Option<FenceKey>, ask: &Lock, mode: LockMode) -> WaiterId {
        let Lock { file, state, offset, length, .. } = *ask;
        let is_same = |waiter: &&LockWaiter| {
            let LockWaiter { fence: by, file: f, state: s, offset: o, length: l, mode: m, .. } =
                **waiter;
            (by, f, s, o, l, m) == (fence, file, state, offset, length, mode)
        };
        if let Some(waiter) = self.waiters.iter().find(is_same) {
            return waiter.id;
        }
        self.last += 1;
        let id = WaiterId(self.last);
        self.waiters.push(LockWaiter { id, fence, file, state, offset, length, mode });
        id
    }

    /// Who waits under a name.
    pub fn find(&self, id: WaiterId) -> Option<LockWaiter> {
        self.waiters.iter().find(|waiter| waiter.id == id).copied()
    }

    /// Nobody waits under a name any more.
    pub fn forget(&mut self, id: WaiterId) {
        self.waiters.retain(|waiter| waiter.id != id);
    }

    /// Whoever asked under an identity is gone, and what waited for them.
    pub fn forget_all(&mut self, fence: Option<FenceKey>) {
        self.waiters.retain(|waiter| waiter.fence != fence);
    }
}

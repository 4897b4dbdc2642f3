//! The lock requests that wait.
//!
//! Invariant: the reply that grants a lock is sent only after the earlier reads and writes of other
//! owners in its range have ended, and after the records that the lock depends on are durable.

use dafs_filer::FenceKey;
use dafs_filer::locks::{LockMode, WaiterId};
use dafs_ops::{Lock, LockSpan};
use dafs_types::{FileHandle, StateId};

/// A lock request that could not be granted and waits. Its client repeats the request to get the
/// lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWaiter {
    id: WaiterId,
    /// The owner of the lock, if it is not the owner of the open.
    locker: Option<Box<[u8]>>,
    fence: Option<FenceKey>,
    file: FileHandle,
    state: StateId,
    offset: u64,
    length: u64,
    mode: LockMode,
}

impl LockWaiter {
    /// Returns the fence identity of the session that sent the request. No two sessions have the
    /// same fence identity.
    pub fn fence(&self) -> Option<FenceKey> {
        self.fence
    }

    /// Returns true if the request asks for a lock of an owner that uses the open of another, as
    /// NFS clients do.
    pub fn is_of_locker(&self) -> bool {
        self.locker.is_some()
    }

    /// Returns the range that the request asks to lock, with the file and the state id.
    pub fn span(&self) -> LockSpan {
        let Self { file, state, offset, length, .. } = *self;
        LockSpan { file, state, offset, length }
    }
}

/// The table of waiting lock requests.
#[derive(Debug, Default)]
pub struct LockWaits {
    waiters: Vec<LockWaiter>,
    last: u64,
}

impl LockWaits {
    /// Returns the id of a lock request, which may have to wait. If a client repeats a request, the
    /// request gets the same id again.
    pub fn name_of(
        &mut self,
        (fence, locker): (Option<FenceKey>, Option<&[u8]>),
        ask: &Lock,
        mode: LockMode,
    ) -> WaiterId {
        let Lock { file, state, offset, length, .. } = *ask;
        let is_same = |waiter: &&LockWaiter| {
            let LockWaiter { fence: by, file: f, state: s, offset: o, length: l, mode: m, .. } =
                **waiter;
            let is_same_locker = waiter.locker.as_deref() == locker;
            is_same_locker && (by, f, s, o, l, m) == (fence, file, state, offset, length, mode)
        };
        if let Some(waiter) = self.waiters.iter().find(is_same) {
            return waiter.id;
        }
        self.last += 1;
        let id = WaiterId(self.last);
        let locker = locker.map(Box::from);
        self.waiters.push(LockWaiter { id, locker, fence, file, state, offset, length, mode });
        id
    }

    /// Returns the waiting request with this id. `None` if there is none.
    pub fn find(&self, id: WaiterId) -> Option<LockWaiter> {
        self.waiters.iter().find(|waiter| waiter.id == id).cloned()
    }

    /// Removes the request with this id.
    pub fn forget(&mut self, id: WaiterId) {
        self.waiters.retain(|waiter| waiter.id != id);
    }

    /// Removes all requests of a session that has ended.
    pub fn forget_all(&mut self, fence: Option<FenceKey>) {
        self.waiters.retain(|waiter| waiter.fence != fence);
    }
}

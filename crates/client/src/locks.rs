//! Byte-range locks (draft 4.4.1): acquiring, waiting, testing and releasing them, and reclaiming
//! them from a restarted server.
//!
//! Invariant: while a file is open, the session knows all locks of the file that the server has
//! reported as granted, so that it can reclaim exactly these.
//!
//! Locks are mandatory: the server refuses conflicting reads and writes through other opens,
//! including other opens of this session. Locks end with their open.

use std::time::{Duration, Instant};

use dafs_types::Status;
use dafs_wire::messages::{Lock, LockConflict, LockOptions, LockTest, LockType, Unlock};
use dafs_wire::{Request, Response};

use crate::back_channels::LockReady;
use crate::error::{ClientError, Result};
use crate::file::File;
use crate::held_locks::LockKind;

/// A lock that conflicts with a lock request.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// The opaque owner id that the lock's holder has chosen, unique within its client.
    pub owner: Vec<u8>,
    /// The kind of the conflicting lock: shared or exclusive.
    pub kind: LockKind,
    /// The offset of the lock's first byte.
    pub offset: u64,
    /// The lock's length in bytes; `u64::MAX` means up to the end of the file.
    pub length: u64,
}

impl File {
    /// Locks `length` bytes at `offset`. The length `u64::MAX` means up to the end of the file,
    /// even if the file grows. Returns `None` if the lock was granted, or the conflicting lock if
    /// it was denied. Ranges that this open has already locked are converted to the new kind.
    ///
    /// With PERSIST a lock outlives its holder: the lock becomes broken, and later requests for it
    /// fail with LOCK_BROKEN until one client has checked the data and locks with REPAIR. With
    /// AUTO_RECOVERY the changes made under the lock are rolled back instead.
    ///
    /// # Errors
    /// LOCK_BROKEN; NOTSUPP for options that the server does not support; LOCK_RANGE for an attempt
    /// to remove an option; each with the path. Any other error of the server.
    pub fn try_lock(
        &self,
        kind: LockKind,
        offset: u64,
        length: u64,
        options: LockOptions,
    ) -> Result<Option<LockHolder>> {
        self.session().run(self.try_lock_async(kind, offset, length, options))
    }

    /// Locks a range as [`File::try_lock`] does, as a future. The request is sent immediately.
    pub fn try_lock_async(
        &self,
        kind: LockKind,
        offset: u64,
        length: u64,
        options: LockOptions,
    ) -> impl Future<Output = Result<Option<LockHolder>>> + '_ {
        self.ask_lock(kind.of_lock(false), offset, length, options)
    }

    /// Locks a range as [`File::try_lock_async`] does, and joins the server's queue if another lock
    /// conflicts. To keep the place in the queue, request the lock again at least every
    /// [`LOCK_POLL_MAX`](crate::LOCK_POLL_MAX), and when [the lock is ready](File::is_lock_ready).
    ///
    /// # Errors
    /// The errors of [`File::try_lock`]; DEADLOCK if waiting would create a cycle of waiting
    /// clients.
    pub fn queue_lock_async(
        &self,
        kind: LockKind,
        offset: u64,
        length: u64,
        options: LockOptions,
    ) -> impl Future<Output = Result<Option<LockHolder>>> + '_ {
        self.ask_lock(kind.of_lock(true), offset, length, options)
    }

    /// Returns true if the server has reported that this queued lock can now be granted, and
    /// removes the report. Only a session that [listens](crate::Session::listen) gets such reports.
    #[must_use]
    pub fn is_lock_ready(&self, offset: u64, length: u64) -> bool {
        let ready = LockReady { file: self.handle(), state: self.state(), offset, length };
        self.session().take_lock_ready(&ready)
    }

    /// Locks a range as [`File::try_lock`] does, and waits in the server's queue while another lock
    /// conflicts. Later requests do not overtake earlier ones. The client requests the lock again
    /// at growing intervals of at most [`LOCK_POLL_MAX`](crate::LOCK_POLL_MAX). If the session
    /// listens ([`Session::listen`](crate::Session::listen)), the server reports when the lock is
    /// free.
    ///
    /// # Errors
    /// [`ClientError::TimedOut`]; the abandoned place in the queue may then block other requests
    /// for some seconds. DEADLOCK if waiting would create a cycle of waiting clients.
    pub fn lock(
        &self,
        kind: LockKind,
        offset: u64,
        length: u64,
        options: LockOptions,
        timeout: Option<Duration>,
    ) -> Result<()> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut pause = POLL_MIN;
        loop {
            let asking = self.ask_lock(kind.of_lock(true), offset, length, options);
            if self.session().run(asking)?.is_none() {
                return Ok(());
            }
            let session = self.session();
            if session.shared.borrow().back_channels.listens(session.key) {
                // The server will report when the lock is free, so repeated requests only keep the
                // place in the queue.
                pause = POLL_MAX;
            }
            let again = Instant::now() + pause;
            let until = deadline.map_or(again, |deadline| again.min(deadline));
            let client = session.client();
            // The client makes progress with its other operations during the pause.
            loop {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() || self.is_lock_ready(offset, length) {
                    break;
                }
                client.process_events(Some(left));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(ClientError::TimedOut);
            }
            pause = (pause * 2).min(POLL_MAX);
        }
    }

    /// Returns the lock that conflicts with the described lock, or `None`, without acquiring a
    /// lock. In a session without recovery the result may be a lock that this file itself holds.
    ///
    /// # Errors
    /// The errors of [`File::try_lock`].
    pub fn test_lock(
        &self,
        kind: LockKind,
        offset: u64,
        length: u64,
    ) -> Result<Option<LockHolder>> {
        self.session().run(self.test_lock_async(kind, offset, length))
    }

    /// Tests a lock as [`File::test_lock`] does, as a future. The request is sent immediately.
    pub fn test_lock_async(
        &self,
        kind: LockKind,
        offset: u64,
        length: u64,
    ) -> impl Future<Output = Result<Option<LockHolder>>> + '_ {
        let (file, lock_type) = (self.handle(), kind.of_lock(false));
        let owner = self.opened().owner();
        let test = LockTest { file, lock_type, owner: &owner, offset, length };
        self.session().ask(&Request::LockT(test), |status, response| match response {
            Response::LockT(result) => self.holder(status, result.conflict),
            _ => Err(self.refused(status)),
        })
    }

    /// Releases all locks that this open holds in a range of bytes.
    ///
    /// # Errors
    /// Any error of the server, with the path.
    pub fn unlock(&self, offset: u64, length: u64) -> Result<()> {
        self.session().run(self.unlock_async(offset, length))
    }

    /// Releases locks as [`File::unlock`] does, as a future. The request is sent immediately.
    pub fn unlock_async(&self, offset: u64, length: u64) -> impl Future<Output = Result<()>> + '_ {
        let (file, state) = (self.handle(), self.state());
        let lock_type = LockType::Write;
        let unlock = Unlock { file, lock_type, state, offset, length };
        self.session().ask(&Request::LockU(unlock), |status, _| self.settled(status))
    }

    /// Rolls back all changes made under locks with AUTO_RECOVERY in a range of bytes. The locks
    /// remain held.
    ///
    /// # Errors
    /// Any error of the server, with the path.
    pub fn abort_lock(&self, offset: u64, length: u64) -> Result<()> {
        self.session().run(self.abort_lock_async(offset, length))
    }

    /// Rolls back changes as [`File::abort_lock`] does, as a future. The request is sent when the
    /// future is first polled.
    ///
    /// # Errors
    /// The errors of [`File::abort_lock`].
    pub async fn abort_lock_async(&self, offset: u64, length: u64) -> Result<()> {
        self.ask_lock(LockType::Abort, offset, length, LockOptions::default()).await.map(drop)
    }

    fn ask_lock(
        &self,
        lock_type: LockType,
        offset: u64,
        length: u64,
        options: LockOptions,
    ) -> impl Future<Output = Result<Option<LockHolder>>> + '_ {
        let (file, state) = (self.handle(), self.state());
        let lock = Lock { file, lock_type, options, state, offset, length };
        self.session().ask(&Request::Lock(lock), |status, response| match response {
            Response::Lock(result) => self.holder(status, result.conflict),
            _ => Err(self.refused(status)),
        })
    }

    fn holder(
        &self,
        status: Status,
        conflict: Option<LockConflict<'_>>,
    ) -> Result<Option<LockHolder>> {
        match (status, conflict) {
            (Status::Ok, _) => Ok(None),
            (Status::Denied, Some(conflict)) => Ok(Some(LockHolder {
                owner: conflict.owner.to_vec(),
                kind: LockKind::of(conflict.lock_type),
                offset: conflict.offset,
                length: conflict.length,
            })),
            (status, _) => Err(self.refused(status)),
        }
    }

    fn settled(&self, status: Status) -> Result<()> {
        if status == Status::Ok { Ok(()) } else { Err(self.refused(status)) }
    }
}

/// The shortest interval between two requests for a queued lock.
const POLL_MIN: Duration = Duration::from_millis(1);

/// The longest interval between two requests for a queued lock; see [`File::lock`]. A server keeps
/// a queued request for longer than this.
pub const POLL_MAX: Duration = Duration::from_millis(200);

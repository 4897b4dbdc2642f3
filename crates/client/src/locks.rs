//! Byte-range locks (draft 4.4.1): taken, waited for, looked for, given back; and taken back
//! from a server that has restarted.
//!
//! Invariant: what a file has locked, as far as the server has told, is known for as long as
//! the file is open, so that the session can ask for just that again.
//!
//! Locks are mandatory: the server keeps reads and writes of others out, those through other
//! opens of this session among them. They end with their open.

use std::time::{Duration, Instant};

use dafs_types::Status;
use dafs_wire::messages::{Lock, LockConflict, LockOptions, LockTest, LockType, Unlock};
use dafs_wire::{Request, Response};

use crate::backs::LockReady;
use crate::error::{ClientError, Result};
use crate::file::File;
use crate::held::LockKind;

/// A lock that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// The holder's name for itself, within its client.
    pub owner: Vec<u8>,
    /// Whom it keeps out.
    pub kind: LockKind,
    /// Its first byte.
    pub offset: u64,
    /// Bytes; `u64::MAX` for all to the end of the file.
    pub length: u64,
}

impl File {
    /// Locks `length` bytes at `offset`; `u64::MAX` bytes are all to the end of the file,
    /// wherever that comes to be. `None` if the lock is held now; whose lock stands in the way
    /// if not. What this open has locked there already takes on the new kind.
    ///
    /// With PERSIST a lock outlives its holder: it breaks, and whoever comes next is told
    /// LOCK_BROKEN until somebody has looked after the data (REPAIR). With AUTO_RECOVERY
    /// what was changed under it is rolled back instead.
    ///
    /// # Errors
    /// LOCK_BROKEN, NOTSUPP for options that the server does not serve, LOCK_RANGE to take
    /// an option away; with the path. Otherwise as the server says.
    pub fn try_lock(
        &self,
        kind: LockKind,
        offset: u64,
        length: u64,
        options: LockOptions,
    ) -> Result<Option<LockHolder>> {
        self.session().run(self.try_lock_async(kind, offset, length, options))
    }

    /// The same; under way at once.
    pub fn try_lock_async(
        &self,
        kind: LockKind,
        offset: u64,
        length: u64,
        options: LockOptions,
    ) -> impl Future<Output = Result<Option<LockHolder>>> + '_ {
        self.ask_lock(kind.of_lock(false), offset, length, options)
    }

    /// As [`File::try_lock_async`], and takes a place in the server's queue if somebody's lock
    /// stands in the way. Whoever waits asks again: at [`LOCK_POLL_MAX`](crate::LOCK_POLL_MAX) at
    /// the latest, to keep the place, and when it is [worth it](File::is_lock_ready).
    ///
    /// # Errors
    /// As [`File::try_lock`]; DEADLOCK if somebody it would wait for waits for it.
    pub fn queue_lock_async(
        &self,
        kind: LockKind,
        offset: u64,
        length: u64,
        options: LockOptions,
    ) -> impl Future<Output = Result<Option<LockHolder>>> + '_ {
        self.ask_lock(kind.of_lock(true), offset, length, options)
    }

    /// Whether the server has said, to a session that [listens](crate::Session::listen), that the
    /// turn of a lock in its queue has come; said once.
    #[must_use]
    pub fn is_lock_ready(&self, offset: u64, length: u64) -> bool {
        let ready = LockReady { file: self.handle(), state: self.state(), offset, length };
        self.session().take_lock_ready(&ready)
    }

    /// As [`File::try_lock`], and waits in the server's queue, where nobody who comes later
    /// overtakes it. The server is asked again at growing intervals,
    /// [`LOCK_POLL_MAX`](crate::LOCK_POLL_MAX) at most; where the session listens
    /// ([`Session::listen`](crate::Session::listen)), it says when it is worth asking.
    ///
    /// # Errors
    /// [`ClientError::TimedOut`]: others may find the place in the queue kept for some seconds
    /// then. DEADLOCK if somebody it would wait for waits for it.
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
            if session.shared.borrow().backs.listens(session.key) {
                // Only to keep the place in the queue.
                pause = POLL_MAX;
            }
            let again = Instant::now() + pause;
            let until = deadline.map_or(again, |deadline| again.min(deadline));
            let client = session.client();
            // Other things go on meanwhile.
            loop {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() || self.is_lock_ready(offset, length) {
                    break;
                }
                client.turn(Some(left));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(ClientError::TimedOut);
            }
            pause = (pause * 2).min(POLL_MAX);
        }
    }

    /// Whose lock would stand in the way of one, without taking any. In a session that does
    /// not come back by itself this may be the file's own.
    ///
    /// # Errors
    /// As [`File::try_lock`].
    pub fn test_lock(
        &self,
        kind: LockKind,
        offset: u64,
        length: u64,
    ) -> Result<Option<LockHolder>> {
        self.session().run(self.test_lock_async(kind, offset, length))
    }

    /// The same; under way at once.
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

    /// Gives up whatever this open has locked in a range.
    ///
    /// # Errors
    /// As the server says, with the path.
    pub fn unlock(&self, offset: u64, length: u64) -> Result<()> {
        self.session().run(self.unlock_async(offset, length))
    }

    /// The same; under way at once.
    pub fn unlock_async(&self, offset: u64, length: u64) -> impl Future<Output = Result<()>> + '_ {
        let (file, state) = (self.handle(), self.state());
        let lock_type = LockType::Write;
        let unlock = Unlock { file, lock_type, state, offset, length };
        self.session().ask(&Request::LockU(unlock), |status, _| self.settled(status))
    }

    /// Has everything rolled back that was changed under locks with AUTO_RECOVERY in a range.
    /// They stay held.
    ///
    /// # Errors
    /// As the server says, with the path.
    pub fn abort_lock(&self, offset: u64, length: u64) -> Result<()> {
        self.session().run(self.abort_lock_async(offset, length))
    }

    /// The same, once it is polled.
    ///
    /// # Errors
    /// As [`File::abort_lock`].
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

/// Shortest and longest pause between two questions for a lock; below the silence after
/// which a server takes a waiter's place away.
const POLL_MIN: Duration = Duration::from_millis(1);

/// See [`File::lock`].
pub const POLL_MAX: Duration = Duration::from_millis(200);

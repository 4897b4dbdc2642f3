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

use crate::back::LockReady;
use crate::error::{ClientError, Result};
use crate::file::File;

/// Whom a lock keeps out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Writers.
    Shared,
    /// Everybody.
    Exclusive,
}

/// A lock that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// The holder's name for itself, within its client.
    pub owner: Vec<u8>,
    /// Whom it keeps out.
    pub kind: LockKind,
    /// Its first octet.
    pub offset: u64,
    /// Octets; `u64::MAX` for all to the end of the file.
    pub length: u64,
}

impl File {
    /// Locks `length` octets at `offset`; `u64::MAX` octets are all to the end of the file,
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
            if session.shared.borrow().listens(session.index) {
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

impl LockKind {
    fn of(lock_type: LockType) -> Self {
        match lock_type {
            LockType::Read | LockType::ReadWait => Self::Shared,
            LockType::Write | LockType::WriteWait | LockType::Abort => Self::Exclusive,
        }
    }

    fn of_lock(self, waits: bool) -> LockType {
        match (self, waits) {
            (Self::Shared, false) => LockType::Read,
            (Self::Exclusive, false) => LockType::Write,
            (Self::Shared, true) => LockType::ReadWait,
            (Self::Exclusive, true) => LockType::WriteWait,
        }
    }
}

/// Shortest and longest pause between two questions for a lock; below the silence after
/// which a server takes a waiter's place away.
const POLL_MIN: Duration = Duration::from_millis(1);
/// See [`File::lock`].
pub const POLL_MAX: Duration = Duration::from_millis(200);

// ---- what is held -------------------------------------------------------------------

/// A lock that an open holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldLock {
    first: u64,
    /// Its last octet; `u64::MAX` if it has no end.
    last: u64,
    kind: LockKind,
    options: LockOptions,
}

/// The locks of one open; no two overlap. The server bounds how many it grants.
#[derive(Debug, Default)]
pub(crate) struct HeldLocks(Vec<HeldLock>);

impl HeldLock {
    /// How the server is asked for it once more, under an open.
    pub fn reclaim(self, file: dafs_types::FileHandle, state: dafs_types::StateId) -> Lock {
        let options = self.options.with(LockOptions::RECLAIM);
        let length = match self.last {
            u64::MAX => u64::MAX,
            last => last - self.first + 1,
        };
        let lock_type = self.kind.of_lock(false);
        Lock { file, lock_type, options, state, offset: self.first, length }
    }
}

impl HeldLocks {
    /// A LOCK was granted.
    pub fn note_lock(&mut self, lock: &Lock) {
        if lock.lock_type == LockType::Abort {
            return;
        }
        let Some((first, last)) = octets(lock.offset, lock.length) else { return };
        self.cut(first, last);
        let keeps = if lock.options.contains(LockOptions::REPAIR) {
            lock.options.with(LockOptions::PERSIST)
        } else {
            lock.options
        };
        let kept = LockOptions::PERSIST.with(LockOptions::AUTO_RECOVERY).bits();
        let options = LockOptions::from_bits(keeps.bits() & kept).unwrap_or_default();
        self.0.push(HeldLock { first, last, kind: LockKind::of(lock.lock_type), options });
    }

    /// A LOCKU was carried out.
    pub fn note_unlock(&mut self, unlock: &Unlock) {
        if let Some((first, last)) = octets(unlock.offset, unlock.length) {
            self.cut(first, last);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn all(&self) -> Vec<HeldLock> {
        self.0.clone()
    }

    /// Takes a range away from all.
    fn cut(&mut self, first: u64, last: u64) {
        let overlaps = |lock: &HeldLock| lock.first <= last && first <= lock.last;
        let (cut, mut kept): (Vec<_>, Vec<_>) = self.0.drain(..).partition(overlaps);
        for lock in cut {
            if lock.first < first {
                kept.push(HeldLock { last: first - 1, ..lock });
            }
            if lock.last > last {
                kept.push(HeldLock { first: last + 1, ..lock });
            }
        }
        self.0 = kept;
    }
}

/// The first and the last octet of a range; `None` if it is none.
fn octets(offset: u64, length: u64) -> Option<(u64, u64)> {
    match length {
        0 => None,
        u64::MAX => Some((offset, u64::MAX)),
        length => Some((offset, offset.checked_add(length - 1)?)),
    }
}

#[cfg(test)]
mod tests {
    use dafs_types::{FileHandle, StateId};

    use super::*;

    fn lock(lock_type: LockType, offset: u64, length: u64) -> Lock {
        let (file, state, options) = (FileHandle::NULL, StateId(1), LockOptions::PERSIST);
        Lock { file, lock_type, options, state, offset, length }
    }

    fn ranges(held: &HeldLocks) -> Vec<(u64, u64, LockType)> {
        let mut ranges: Vec<_> = held
            .all()
            .into_iter()
            .map(|lock| lock.reclaim(FileHandle::NULL, StateId(1)))
            .map(|lock| (lock.offset, lock.length, lock.lock_type))
            .collect();
        ranges.sort_by_key(|(offset, ..)| *offset);
        ranges
    }

    #[test]
    fn what_is_held_is_what_was_granted_less_what_was_given_up() {
        use LockType::{Read, Write};
        let mut held = HeldLocks::default();
        held.note_lock(&lock(LockType::WriteWait, 10, u64::MAX));
        held.note_lock(&lock(Read, 20, 10));
        held.note_lock(&lock(LockType::Abort, 0, 100));
        assert_eq!(ranges(&held), [(10, 10, Write), (20, 10, Read), (30, u64::MAX, Write)]);
        let unlock = |offset, length| {
            let (file, state, lock_type) = (FileHandle::NULL, StateId(1), Write);
            Unlock { file, lock_type, state, offset, length }
        };
        held.note_unlock(&unlock(0, 25));
        assert_eq!(ranges(&held), [(25, 5, Read), (30, u64::MAX, Write)]);
        held.note_unlock(&unlock(40, 0));
        held.note_unlock(&unlock(40, 2));
        assert_eq!(ranges(&held), [(25, 5, Read), (30, 10, Write), (42, u64::MAX, Write)]);
        held.note_unlock(&unlock(0, u64::MAX));
        assert!(held.is_empty());
    }

    #[test]
    fn the_last_octet_of_all_can_be_locked() {
        let mut held = HeldLocks::default();
        held.note_lock(&lock(LockType::Read, u64::MAX, 1));
        assert_eq!(ranges(&held), [(u64::MAX, u64::MAX, LockType::Read)]);
        let file = FileHandle::NULL;
        let again = held.all()[0].reclaim(file, StateId(2));
        assert!(again.options.contains(LockOptions::RECLAIM.with(LockOptions::PERSIST)));
    }
}

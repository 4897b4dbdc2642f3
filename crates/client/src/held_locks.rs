//! The locks that an open holds, according to the server's replies.
//!
//! Invariant: no two locks of an open overlap.

use dafs_wire::messages::{Lock, LockOptions, LockType, Unlock};

// ---- held locks ---------------------------------------------------------------------

/// A lock that an open holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldLock {
    first: u64,
    /// The offset of the lock's last byte; `u64::MAX` if the lock extends to the end of the file.
    last: u64,
    kind: LockKind,
    options: LockOptions,
}

/// The locks of one open, which do not overlap. The server limits the number of locks that it
/// grants.
#[derive(Debug, Default)]
pub(crate) struct HeldLocks(Vec<HeldLock>);

impl HeldLock {
    /// Returns the LOCK request that reclaims this lock from a restarted server, for the open with
    /// this state id.
    pub(crate) fn reclaim(self, file: dafs_types::FileHandle, state: dafs_types::StateId) -> Lock {
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
    /// Records a range that a LOCK request has locked.
    pub(crate) fn note_lock(&mut self, lock: &Lock) {
        if lock.lock_type == LockType::Abort {
            return;
        }
        let Some((first, last)) = bytes(lock.offset, lock.length) else { return };
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

    /// Records that a LOCKU request released a range.
    pub(crate) fn note_unlock(&mut self, unlock: &Unlock) {
        if let Some((first, last)) = bytes(unlock.offset, unlock.length) {
            self.cut(first, last);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn all(&self) -> Vec<HeldLock> {
        self.0.clone()
    }

    /// Removes a range of bytes from all locks.
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

/// Returns the offsets of the first and the last byte of a range; `None` if the range is invalid.
pub(crate) fn bytes(offset: u64, length: u64) -> Option<(u64, u64)> {
    match length {
        0 => None,
        u64::MAX => Some((offset, u64::MAX)),
        length => Some((offset, offset.checked_add(length - 1)?)),
    }
}

/// The kinds of byte-range locks that an open can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// A lock that excludes writers; several opens may hold it at the same time.
    Shared,
    /// A lock that excludes all other readers and writers.
    Exclusive,
}

impl LockKind {
    pub(crate) fn of(lock_type: LockType) -> Self {
        match lock_type {
            LockType::Read | LockType::ReadWait => Self::Shared,
            LockType::Write | LockType::WriteWait | LockType::Abort => Self::Exclusive,
        }
    }

    pub(crate) fn of_lock(self, waits: bool) -> LockType {
        match (self, waits) {
            (Self::Shared, false) => LockType::Read,
            (Self::Exclusive, false) => LockType::Write,
            (Self::Shared, true) => LockType::ReadWait,
            (Self::Exclusive, true) => LockType::WriteWait,
        }
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
    fn the_last_byte_of_all_can_be_locked() {
        let mut held = HeldLocks::default();
        held.note_lock(&lock(LockType::Read, u64::MAX, 1));
        assert_eq!(ranges(&held), [(u64::MAX, u64::MAX, LockType::Read)]);
        let file = FileHandle::NULL;
        let again = held.all()[0].reclaim(file, StateId(2));
        assert!(again.options.contains(LockOptions::RECLAIM.with(LockOptions::PERSIST)));
    }
}

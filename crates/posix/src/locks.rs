//! Places the advisory locks of POSIX among the locks of DAFS, which are mandatory.
//!
//! Invariant: no advisory lock covers a byte that a file can have. A file ends before byte 2^63, so
//! a lock after that affects no reads or writes, but is visible to everything that follows this
//! convention:
//!
//! | bytes | lock |
//! |---|---|
//! | 2^63 + n, n < 2^62 | byte n for the record locks of `fcntl` (POSIX and OFD locks) |
//! | 2^63 + 2^62 + 1 + n, n < 2^61 | hosts with the number n that share memory of the file |
//! | 2^64 - 2 | the lock of `flock` |
//!
//! All record locks on bytes from 2^62 - 1 on use the same byte, so they conflict even where POSIX
//! would distinguish them. No real file has these bytes.
//!
//! Each owner of locks (a process, for record locks; an open file description, for `flock` and OFD
//! locks) has its own open on the server. So it is a separate owner there, and its locks end with
//! that open.

/// A byte range for a lock request to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockRange {
    /// The offset of the first byte.
    pub offset: u64,
    /// The length in bytes; never 0, and never the value that means "to the end".
    pub length: u64,
}

/// The bytes that an `fcntl` lock covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The offset of the first byte.
    pub first: u64,
    /// The last byte; [`LAST`] if the lock extends to the end of the file, even if the file grows.
    pub last: u64,
}

/// The last byte of a record lock without an end (`l_len` of 0).
pub const LAST: u64 = i64::MAX as u64;

/// The range of a `flock` lock.
pub const WHOLE_FILE: LockRange = LockRange { offset: u64::MAX - 1, length: 1 };

/// Returns the range that a host locks for reading while its processes map the file as shared
/// memory. Such memory cannot be kept coherent between hosts. So a host first locks this range and
/// then checks that no other host has locked its own range ([elsewhere]). If two hosts do this at
/// the same time, both may be refused, but at most one is accepted.
#[must_use]
pub fn shared_memory(host: u64) -> LockRange {
    LockRange { offset: SHARERS + host % HOSTS, length: 1 }
}

/// Returns the ranges in which no other host may have a lock.
#[must_use]
pub fn elsewhere(host: u64) -> [LockRange; 2] {
    let own = host % HOSTS;
    // Each range is one byte longer than necessary, so that it is never empty.
    let before = LockRange { offset: SHARERS - 1, length: own + 1 };
    let behind = LockRange { offset: SHARERS + own + 1, length: HOSTS - own };
    [before, behind]
}

/// The range of all locks of an owner, for releasing them with one request.
pub const EVERYTHING: LockRange = LockRange { offset: RECORDS, length: u64::MAX - RECORDS };

impl Record {
    /// Returns the bytes of a `struct flock` whose start is relative to the beginning of the file.
    /// A negative length extends backwards; 0 has no end. Returns `None` if the range begins before
    /// the file or exceeds the largest offset (EINVAL, EOVERFLOW).
    #[must_use]
    pub fn of_flock(start: i64, length: i64) -> Option<Self> {
        let (first, last) = match length {
            0 => (start, i64::MAX),
            1.. => (start, start.checked_add(length - 1)?),
            ..0 => (start.checked_add(length)?, start.checked_sub(1)?),
        };
        let (first, last) = (u64::try_from(first).ok()?, u64::try_from(last).ok()?);
        Some(Self { first, last })
    }

    /// Returns `l_start` and `l_len` for a program.
    #[must_use]
    pub fn to_flock(self) -> (i64, i64) {
        let start = i64::try_from(self.first).unwrap_or(i64::MAX);
        let length = match self.last >= LAST {
            true => 0,
            false => i64::try_from(self.last - self.first + 1).unwrap_or(0),
        };
        (start, length)
    }

    /// Returns the range of this lock on the server.
    #[must_use]
    pub fn range(self) -> LockRange {
        let first = self.first.min(BYTES - 1);
        let last = self.last.clamp(first, BYTES - 1);
        LockRange { offset: RECORDS + first, length: last - first + 1 }
    }

    /// Returns the `fcntl` lock for a range on the server; `None` if there is no such lock.
    #[must_use]
    pub fn of_range(offset: u64, length: u64) -> Option<Self> {
        let first = offset.checked_sub(RECORDS).filter(|first| *first < BYTES)?;
        let last = match first.saturating_add(length.checked_sub(1)?) {
            last if last >= BYTES - 1 => LAST,
            last => last,
        };
        Some(Self { first, last })
    }
}

/// Returns the name of a lock owner for its open: a number that is unique within the client, and
/// the process id, which is reported to a process that queries a conflicting lock (`F_GETLK`).
#[must_use]
pub fn owner(number: u64, pid: u32) -> [u8; OWNER_BYTES] {
    let mut name = [0; OWNER_BYTES];
    name[..4].copy_from_slice(MARK);
    name[4..12].copy_from_slice(&number.to_be_bytes());
    name[12..].copy_from_slice(&pid.to_be_bytes());
    name
}

/// Returns the process id of an owner; `None` for an owner that no POSIX interface has made.
#[must_use]
pub fn pid_of(owner: &[u8]) -> Option<u32> {
    let rest = owner.strip_prefix(MARK)?;
    let (_, pid) = rest.split_at_checked(8)?;
    Some(u32::from_be_bytes(pid.try_into().ok()?))
}

/// The length of an owner's name in bytes.
pub const OWNER_BYTES: usize = 16;
/// The first bytes of an owner's name.
const MARK: &[u8; 4] = b"posx";
/// The first byte of the record locks.
const RECORDS: u64 = 1 << 63;
/// The number of bytes that record locks can distinguish.
const BYTES: u64 = 1 << 62;
/// The first byte of the hosts' ranges, after the record locks and one unused byte.
const SHARERS: u64 = RECORDS + BYTES + 1;
/// The number of hosts that can be distinguished.
const HOSTS: u64 = 1 << 61;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_lie_behind_all_data_and_before_the_lock_of_the_whole() {
        let all = Record::of_flock(0, 0).unwrap();
        assert_eq!(all, Record { first: 0, last: LAST });
        let range = all.range();
        assert_eq!(range.offset, 1 << 63);
        assert!(range.offset + range.length <= WHOLE_FILE.offset);
        assert_eq!(Record::of_range(range.offset, range.length), Some(all));
        assert_eq!(Record::of_range(WHOLE_FILE.offset, 1), None);
        assert_eq!(Record::of_range(0, 10), None);
        let end = EVERYTHING.offset + (EVERYTHING.length - 1);
        assert_eq!(end, WHOLE_FILE.offset);
    }

    #[test]
    fn a_range_comes_back_as_it_went() {
        let record = Record::of_flock(100, 20).unwrap();
        assert_eq!(record, Record { first: 100, last: 119 });
        let range = record.range();
        assert_eq!((range.offset, range.length), ((1 << 63) + 100, 20));
        assert_eq!(Record::of_range(range.offset, range.length), Some(record));
        assert_eq!(record.to_flock(), (100, 20));
        assert_eq!(Record::of_flock(100, 0).unwrap().to_flock(), (100, 0));
    }

    #[test]
    fn hosts_that_share_memory_keep_others_out_and_nothing_else() {
        let end = |range: LockRange| range.offset + range.length;
        for host in [0, 1, 12345, HOSTS - 1, HOSTS, u64::MAX] {
            let own = shared_memory(host);
            let [before, behind] = elsewhere(host);
            assert!(before.offset >= end(Record { first: 0, last: LAST }.range()));
            assert_eq!((end(before), end(own)), (own.offset, behind.offset));
            assert!(before.length > 0 && behind.length > 0);
            assert!(end(behind) <= WHOLE_FILE.offset);
        }
    }

    #[test]
    fn an_owner_says_its_process() {
        assert_eq!(pid_of(&owner(7, 1234)), Some(1234));
        assert_ne!(owner(7, 1), owner(8, 1));
        assert_eq!(pid_of(&7u64.to_ne_bytes()), None);
        assert_eq!(pid_of(b"posx"), None);
    }

    #[test]
    fn negative_lengths_reach_backwards() {
        assert_eq!(Record::of_flock(100, -20), Some(Record { first: 80, last: 99 }));
        assert_eq!(Record::of_flock(10, -20), None);
        assert_eq!(Record::of_flock(-1, 5), None);
        assert_eq!(Record::of_flock(i64::MAX, 2), None);
    }

    #[test]
    fn what_no_file_reaches_is_one_byte() {
        let far = Record { first: LAST - 5, last: LAST };
        let range = far.range();
        assert_eq!(range.length, 1);
        assert!(range.offset < WHOLE_FILE.offset);
    }
}

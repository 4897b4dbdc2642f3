//! Where the advisory locks of POSIX lie among the locks of DAFS, which are mandatory.
//!
//! Invariant: no advisory lock covers a byte that a file can have. A file ends before byte
//! 2^63, so a lock behind that keeps nobody's reads and writes out, and everybody who follows
//! this convention sees it:
//!
//! | bytes | what |
//! |---|---|
//! | 2^63 + n, n < 2^62 | byte n for the record locks of `fcntl` (POSIX and OFD locks) |
//! | 2^63 + 2^62 + 1 + n, n < 2^61 | hosts with the number n that share memory of the file |
//! | 2^64 - 2 | the lock of `flock` |
//!
//! Record locks on bytes from 2^62 - 1 on are all one byte: they are in each other's way
//! where POSIX would tell them apart. No file reaches there.
//!
//! Each owner of locks (a process, for record locks; an open file description, for `flock`
//! and OFD locks) has an open of its own on the server, so that it has an owner of its own
//! there, and its locks end with that open.

/// A range as the server is asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockRange {
    /// First byte.
    pub offset: u64,
    /// Bytes; never 0, and never the number that means "to the end".
    pub length: u64,
}

/// The bytes that `fcntl` locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// First byte.
    pub first: u64,
    /// Last byte; [`LAST`] where the lock reaches to the end of the file, whatever that is.
    pub last: u64,
}

/// The last byte of a record lock that has no end (`l_len` of 0).
pub const LAST: u64 = i64::MAX as u64;

/// Where `flock` locks.
pub const WHOLE_FILE: LockRange = LockRange { offset: u64::MAX - 1, length: 1 };

/// Where those lock, as readers, who have a file mapped into memory that they share with others
/// on their host. A copy of such memory on another host would not be kept alike: whoever wants to
/// share it locks here first and then looks whether anybody does [elsewhere]. Two who
/// come at once may both be refused, and never are both let in.
#[must_use]
pub fn shared_memory(host: u64) -> LockRange {
    LockRange { offset: SHARERS + host % HOSTS, length: 1 }
}

/// Where nobody may lock who is on another host.
#[must_use]
pub fn elsewhere(host: u64) -> [LockRange; 2] {
    let own = host % HOSTS;
    // One byte more on either side, so that no range is empty.
    let before = LockRange { offset: SHARERS - 1, length: own + 1 };
    let behind = LockRange { offset: SHARERS + own + 1, length: HOSTS - own };
    [before, behind]
}

/// Where everything of one owner lies, to be given up at once.
pub const EVERYTHING: LockRange = LockRange { offset: RECORDS, length: u64::MAX - RECORDS };

impl Record {
    /// The bytes of a `struct flock` whose start has been brought to the beginning of the
    /// file. A negative length reaches backwards; 0 has no end. `None` if the range begins
    /// before the file, or is beyond all offsets (EINVAL, EOVERFLOW).
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

    /// `l_start` and `l_len` for a program.
    #[must_use]
    pub fn to_flock(self) -> (i64, i64) {
        let start = i64::try_from(self.first).unwrap_or(i64::MAX);
        let length = match self.last >= LAST {
            true => 0,
            false => i64::try_from(self.last - self.first + 1).unwrap_or(0),
        };
        (start, length)
    }

    /// Where the server keeps it.
    #[must_use]
    pub fn range(self) -> LockRange {
        let first = self.first.min(BYTES - 1);
        let last = self.last.clamp(first, BYTES - 1);
        LockRange { offset: RECORDS + first, length: last - first + 1 }
    }

    /// What a lock that the server keeps means to `fcntl`; `None` if it is none of its own.
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

/// The name of an owner of locks, for the open its locks stand on: a number that the client
/// gives no other, and the process, so that whoever finds the lock in the way can be told
/// (`F_GETLK`).
#[must_use]
pub fn owner(number: u64, pid: u32) -> [u8; OWNER_BYTES] {
    let mut name = [0; OWNER_BYTES];
    name[..4].copy_from_slice(MARK);
    name[4..12].copy_from_slice(&number.to_be_bytes());
    name[12..].copy_from_slice(&pid.to_be_bytes());
    name
}

/// The process of an owner; `None` for one that no face of POSIX has made.
#[must_use]
pub fn pid_of(owner: &[u8]) -> Option<u32> {
    let rest = owner.strip_prefix(MARK)?;
    let (_, pid) = rest.split_at_checked(8)?;
    Some(u32::from_be_bytes(pid.try_into().ok()?))
}

/// Bytes of an owner's name.
pub const OWNER_BYTES: usize = 16;
/// What it begins with.
const MARK: &[u8; 4] = b"posx";
/// First byte of the record locks.
const RECORDS: u64 = 1 << 63;
/// Bytes they can tell apart.
const BYTES: u64 = 1 << 62;
/// Behind the record locks, and a byte that nobody locks.
const SHARERS: u64 = RECORDS + BYTES + 1;
/// Hosts that can be told apart.
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

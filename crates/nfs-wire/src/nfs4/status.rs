//! The statuses of NFSv4 (RFC 8881 section 15.1, RFC 7862 section 11.1, RFC 8276 section 8.4.1).
//!
//! Invariant: the numbers and names of statuses appear only in one table, sorted by number.

macro_rules! statuses {
    ($($variant:ident = $number:literal, $name:literal, $text:literal;)*) => {
        /// The status of an operation or of a compound.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Status {
            $(#[doc = concat!("`", $name, "`: ", $text, ".")] $variant = $number,)*
        }

        impl Status {
            /// All statuses, sorted by number.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The names and numbers of all statuses.
            pub(super) const NUMBERS: &'static [(&'static str, u32)] = &[$(($name, $number),)*];

            /// Returns the status with this number; `None` if there is none.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns the name of the status in the specification, without `NFS4ERR_`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns a description of the status for people.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

statuses! {
    Ok = 0, "OK", "success";
    Perm = 1, "PERM", "operation not permitted";
    NoEnt = 2, "NOENT", "no such file or directory";
    Io = 5, "IO", "input/output error";
    Nxio = 6, "NXIO", "no such device or address";
    Access = 13, "ACCESS", "permission denied";
    Exist = 17, "EXIST", "file exists";
    XDev = 18, "XDEV", "not on the same file system";
    NotDir = 20, "NOTDIR", "not a directory";
    IsDir = 21, "ISDIR", "is a directory";
    Inval = 22, "INVAL", "invalid argument";
    FBig = 27, "FBIG", "file too large";
    NoSpc = 28, "NOSPC", "no space left";
    RoFs = 30, "ROFS", "read-only file system";
    MLink = 31, "MLINK", "too many links";
    NameTooLong = 63, "NAMETOOLONG", "name too long";
    NotEmpty = 66, "NOTEMPTY", "directory not empty";
    DQuot = 69, "DQUOT", "quota exceeded";
    Stale = 70, "STALE", "file handle of an object that is gone";
    BadHandle = 10001, "BADHANDLE", "malformed file handle";
    BadCookie = 10003, "BAD_COOKIE", "directory cookie not valid";
    NotSupp = 10004, "NOTSUPP", "operation not supported";
    TooSmall = 10005, "TOOSMALL", "limit too small for the reply";
    ServerFault = 10006, "SERVERFAULT", "unexpected fault of the server";
    BadType = 10007, "BADTYPE", "object type not supported here";
    Delay = 10008, "DELAY", "server busy, try later";
    Same = 10009, "SAME", "attributes are the same";
    Denied = 10010, "DENIED", "lock denied";
    Expired = 10011, "EXPIRED", "lease expired";
    Locked = 10012, "LOCKED", "range is locked";
    Grace = 10013, "GRACE", "server in grace period";
    FhExpired = 10014, "FHEXPIRED", "file handle expired";
    ShareDenied = 10015, "SHARE_DENIED", "share reservation denied";
    WrongSec = 10016, "WRONGSEC", "wrong security for this object";
    ClidInUse = 10017, "CLID_INUSE", "client id in use by another principal";
    Resource = 10018, "RESOURCE", "server out of resources (minor version 0)";
    Moved = 10019, "MOVED", "file system not here";
    NoFileHandle = 10020, "NOFILEHANDLE", "no file handle set";
    MinorVersMismatch = 10021, "MINOR_VERS_MISMATCH", "minor version not supported";
    StaleClientId = 10022, "STALE_CLIENTID", "client id unknown";
    StaleStateId = 10023, "STALE_STATEID", "state id from before the restart of the server";
    OldStateId = 10024, "OLD_STATEID", "state id was replaced by a newer one";
    BadStateId = 10025, "BAD_STATEID", "state id unknown or of another kind";
    BadSeqId = 10026, "BAD_SEQID", "sequence number out of order (minor version 0)";
    NotSame = 10027, "NOT_SAME", "attributes are not the same";
    LockRange = 10028, "LOCK_RANGE", "lock range not supported";
    Symlink = 10029, "SYMLINK", "is a symbolic link";
    RestoreFh = 10030, "RESTOREFH", "no saved file handle (minor version 0)";
    LeaseMoved = 10031, "LEASE_MOVED", "lease moved (minor version 0)";
    AttrNotSupp = 10032, "ATTRNOTSUPP", "attribute not supported";
    NoGrace = 10033, "NO_GRACE", "reclaim outside the grace period";
    ReclaimBad = 10034, "RECLAIM_BAD", "reclaim of state that the client did not hold";
    ReclaimConflict = 10035, "RECLAIM_CONFLICT", "another client holds the reclaimed state";
    BadXdr = 10036, "BADXDR", "arguments cannot be decoded";
    LocksHeld = 10037, "LOCKS_HELD", "locks are still held";
    OpenMode = 10038, "OPENMODE", "open does not allow this access";
    BadOwner = 10039, "BADOWNER", "owner cannot be translated";
    BadChar = 10040, "BADCHAR", "character not supported in a string";
    BadName = 10041, "BADNAME", "name not supported";
    BadRange = 10042, "BAD_RANGE", "lock range not supported by the server";
    LockNotSupp = 10043, "LOCK_NOTSUPP", "upgrade or downgrade of the lock not supported";
    OpIllegal = 10044, "OP_ILLEGAL", "operation number not assigned";
    Deadlock = 10045, "DEADLOCK", "waiting for the lock would deadlock";
    FileOpen = 10046, "FILE_OPEN", "file is open";
    AdminRevoked = 10047, "ADMIN_REVOKED", "state revoked by an administrator";
    CbPathDown = 10048, "CB_PATH_DOWN", "callbacks do not reach the client";
    BadIoMode = 10049, "BADIOMODE", "layout mode not valid here";
    BadLayout = 10050, "BADLAYOUT", "layout does not fit the request";
    BadSessionDigest = 10051, "BAD_SESSION_DIGEST", "digest of the session state is wrong";
    BadSession = 10052, "BADSESSION", "session unknown";
    BadSlot = 10053, "BADSLOT", "slot number out of range";
    CompleteAlready = 10054, "COMPLETE_ALREADY", "already complete";
    ConnNotBoundToSession = 10055, "CONN_NOT_BOUND_TO_SESSION", "connection not bound to it";
    DelegAlreadyWanted = 10056, "DELEG_ALREADY_WANTED", "delegation already asked for";
    BackChanBusy = 10057, "BACK_CHAN_BUSY", "callbacks are still running";
    LayoutTryLater = 10058, "LAYOUTTRYLATER", "layout not available now";
    LayoutUnavailable = 10059, "LAYOUTUNAVAILABLE", "no layout for this file";
    NoMatchingLayout = 10060, "NOMATCHING_LAYOUT", "client holds no such layout";
    RecallConflict = 10061, "RECALLCONFLICT", "state is being recalled";
    UnknownLayoutType = 10062, "UNKNOWN_LAYOUTTYPE", "layout type not supported";
    SeqMisordered = 10063, "SEQ_MISORDERED", "sequence number of the slot out of order";
    SequencePos = 10064, "SEQUENCE_POS", "SEQUENCE is not the first operation";
    ReqTooBig = 10065, "REQ_TOO_BIG", "request exceeds the limit of the session";
    RepTooBig = 10066, "REP_TOO_BIG", "reply exceeds the limit of the session";
    RepTooBigToCache = 10067, "REP_TOO_BIG_TO_CACHE", "reply exceeds the limit for cached replies";
    RetryUncachedRep = 10068, "RETRY_UNCACHED_REP", "reply was not cached";
    UnsafeCompound = 10069, "UNSAFE_COMPOUND", "compound cannot be retried safely";
    TooManyOps = 10070, "TOO_MANY_OPS", "too many operations in the compound";
    OpNotInSession = 10071, "OP_NOT_IN_SESSION", "operation needs SEQUENCE first";
    HashAlgUnsupp = 10072, "HASH_ALG_UNSUPP", "no supported hash algorithm";
    ClientIdBusy = 10074, "CLIENTID_BUSY", "client still holds state";
    PnfsIoHole = 10075, "PNFS_IO_HOLE", "request reaches a hole of the layout";
    SeqFalseRetry = 10076, "SEQ_FALSE_RETRY", "retry differs from the first request";
    BadHighSlot = 10077, "BAD_HIGH_SLOT", "highest slot out of range";
    DeadSession = 10078, "DEADSESSION", "persistent session without its locking state";
    EncrAlgUnsupp = 10079, "ENCR_ALG_UNSUPP", "no supported encryption algorithm";
    PnfsNoLayout = 10080, "PNFS_NO_LAYOUT", "request without a layout";
    NotOnlyOp = 10081, "NOT_ONLY_OP", "operation must be alone in its compound";
    WrongCred = 10082, "WRONG_CRED", "credentials differ from those that made the state";
    WrongType = 10083, "WRONG_TYPE", "object has the wrong type";
    DirDelegUnavail = 10084, "DIRDELEG_UNAVAIL", "directory delegation not available";
    RejectDeleg = 10085, "REJECT_DELEG", "client rejects the delegation";
    ReturnConflict = 10086, "RETURNCONFLICT", "a layout return is running";
    DelegRevoked = 10087, "DELEG_REVOKED", "delegation or layout revoked";
    PartnerNotSupp = 10088, "PARTNER_NOTSUPP", "other server does not support copies";
    PartnerNoAuth = 10089, "PARTNER_NO_AUTH", "other server refuses the copy";
    UnionNotSupp = 10090, "UNION_NOTSUPP", "arm of the union not supported";
    OffloadDenied = 10091, "OFFLOAD_DENIED", "destination refuses the copy";
    WrongLfs = 10092, "WRONG_LFS", "label format not supported";
    BadLabel = 10093, "BADLABEL", "label not valid";
    OffloadNoReqs = 10094, "OFFLOAD_NO_REQS", "copy cannot meet the requirements";
    NoXattr = 10095, "NOXATTR", "no such extended attribute";
    XattrTooBig = 10096, "XATTR2BIG", "extended attribute too long";
}

impl Status {
    /// Returns the number of the status in messages.
    #[must_use]
    #[inline]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Returns true if the operation succeeded.
    #[must_use]
    #[inline]
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Ok)
    }

    /// Returns the index of the status in [`Status::ALL`].
    const fn index(self) -> usize {
        let mut index = 0;
        while index < Self::ALL.len() {
            if Self::ALL[index].number() == self.number() {
                return index;
            }
            index += 1;
        }
        0
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

/// A set of statuses, with one bit for each position in [`Status::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusSet(u128);

const _: () = assert!(Status::ALL.len() <= 128);

impl StatusSet {
    /// Returns the set of the listed statuses.
    #[must_use]
    pub const fn of(statuses: &[Status]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < statuses.len() {
            bits |= 1 << statuses[at].index();
            at += 1;
        }
        Self(bits)
    }

    /// Returns the set of all statuses that are in `self`, in `other`, or in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if the status is in the set.
    #[must_use]
    pub const fn contains(self, status: Status) -> bool {
        self.0 >> status.index() & 1 == 1
    }

    /// Returns the statuses in the set, sorted by number.
    pub fn iter(self) -> impl Iterator<Item = Status> {
        Status::ALL.iter().copied().filter(move |&status| self.contains(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_and_come_back() {
        assert!(Status::ALL.is_sorted());
        for (index, &status) in Status::ALL.iter().enumerate() {
            assert_eq!(Status::from_number(status.number()), Some(status));
            assert_eq!(status.index(), index);
        }
        for number in [3, 71, 10_002, 10_073, 10_097] {
            assert_eq!(Status::from_number(number), None);
        }
        assert_eq!(Status::ALL.len(), 113);
    }

    #[test]
    fn a_set_contains_what_it_was_made_of() {
        let set = StatusSet::of(&[Status::Stale, Status::Perm]).and(StatusSet::of(&[Status::Io]));
        assert_eq!(set.iter().collect::<Vec<_>>(), [Status::Perm, Status::Io, Status::Stale]);
        assert!(!set.contains(Status::Ok));
    }
}

//! The status codes of the protocol (draft chapter 7), with explanatory texts and POSIX error
//! numbers.

macro_rules! statuses {
    ($($name:ident = $number:literal, $errno:expr, $text:literal;)*) => {
        /// The result of a DAFS procedure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Status {
            $(#[doc = $text] $name = $number,)*
        }

        impl Status {
            /// All statuses, in numeric order.
            pub const ALL: &'static [Status] = &[$(Status::$name,)*];

            /// Returns the number that the status has in messages.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }

            /// Returns the status that has this number in messages. `None` if the number is not
            /// assigned.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Status> {
                match number {
                    $($number => Some(Status::$name),)*
                    _ => None,
                }
            }

            /// Returns a short explanation for people.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Status::$name => $text,)*
                }
            }

            /// Returns the POSIX error number (Linux numbering) closest to this status; 0 for `Ok`.
            #[must_use]
            pub const fn errno(self) -> i32 {
                match self {
                    $(Status::$name => $errno,)*
                }
            }
        }
    };
}

statuses! {
    Ok = 0, 0, "success";
    Perm = 1, 1, "operation not permitted";
    NoEnt = 2, 2, "no such file or directory";
    Io = 5, 5, "input/output error";
    Nxio = 6, 6, "no such device or address";
    Access = 13, 13, "permission denied";
    Exist = 17, 17, "file exists";
    XDev = 18, 18, "not on the same file system";
    NoDev = 19, 19, "no such device";
    NotDir = 20, 20, "not a directory";
    IsDir = 21, 21, "is a directory";
    Inval = 22, 22, "invalid argument";
    FBig = 27, 27, "file too large";
    NoSpc = 28, 28, "no space left";
    RoFs = 30, 30, "read-only file system";
    MLink = 31, 31, "too many links";
    NameTooLong = 63, 36, "name too long";
    NotEmpty = 66, 39, "directory not empty";
    DQuot = 69, 122, "quota exceeded";
    Stale = 70, 116, "stale file handle";
    BadHandle = 10001, 116, "malformed or forged file handle";
    BadCookie = 10003, 22, "directory cookie no longer valid";
    NotSupp = 10004, 95, "not supported";
    TooSmall = 10005, 22, "buffer too small for the reply";
    ServerFault = 10006, 5, "server fault";
    BadType = 10007, 22, "object type not supported here";
    Delay = 10008, 11, "server busy, try later";
    Same = 10009, 22, "attributes are the same";
    Denied = 10010, 11, "lock denied";
    Expired = 10011, 116, "lease expired";
    Locked = 10012, 11, "range is locked";
    Grace = 10013, 11, "server in grace period";
    FhExpired = 10014, 116, "file handle expired";
    ShareDenied = 10015, 26, "share reservation denied";
    WrongSec = 10016, 1, "wrong security for this object";
    ClidInUse = 10017, 16, "client id in use by another principal";
    Resource = 10018, 12, "server out of resources";
    Moved = 10019, 66, "file system moved";
    NoFileHandle = 10020, 22, "no current file handle";
    MinorVersMismatch = 10021, 93, "minor version mismatch";
    StaleClientId = 10022, 116, "client id unknown after server restart";
    StaleStateId = 10023, 116, "state id from before the server's restart";
    OldStateId = 10024, 9, "state id was replaced by a newer one";
    BadStateId = 10025, 9, "state id unknown";
    BadSeqId = 10026, 22, "sequence number out of order";
    NotSame = 10027, 22, "attributes are not the same";
    LockRange = 10028, 22, "lock range not supported";
    Symlink = 10029, 40, "is a symbolic link";
    ReaddirNoSpc = 10030, 22, "entry does not fit the reply";
    LeaseMoved = 10031, 116, "lease moved";
    Deadlock = 10045, 35, "waiting for the lock would deadlock";
    VersMismatch = 15001, 93, "protocol version not supported";
    IllegalProt = 15002, 93, "protocol not acceptable";
    IllegalState = 15003, 71, "request not legal in this state of the session";
    UnknownSession = 15004, 116, "unknown session";
    NoXidMatch = 15005, 2, "no such request in the response cache";
    NotAuthorized = 15006, 1, "not authorized";
    NotFound = 15007, 2, "not found";
    RdmaReadChannelUnusable = 15008, 5, "RDMA read channel unusable";
    ChainForm = 15009, 71, "malformed chain";
    ChainBroken = 15010, 125, "an earlier member of the chain failed";
    GssContinueInit = 15011, 115, "GSS negotiation continues";
    BadSession = 15012, 116, "session unusable";
    NoCreds = 15013, 1, "credentials unknown";
    CrHandConflict = 15014, 17, "credential handle conflict";
    DenyDispConflict = 15015, 16, "delete disposition conflicts with an open";
    DenyDispNotSupp = 15016, 95, "delete disposition not supported";
    KeyMismatch = 15017, 16, "share key differs from that of the other opens";
    WriteTooBig = 15018, 27, "write exceeds the server's limit for one request";
    BackChannelUnusable = 15019, 5, "back-control channel unusable";
    Chksum = 15020, 74, "checksum mismatch";
    LockBroken = 15021, 11, "lock broken and not repaired";
    BatchRequestNotFound = 15022, 2, "batch request not found";
    PrefetchNotSupported = 15023, 95, "prefetch not supported";
    WhoaCowboy = 15024, 11, "too many batches, wait for a completion";
    NoPartialInfo = 15025, 2, "no partial result available";
    NotAuthenticated = 15026, 1, "session not authenticated";
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.text(), self.number())
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_survives_the_wire() {
        for &status in Status::ALL {
            assert_eq!(Status::from_number(status.number()), Some(status));
        }
        assert_eq!(Status::from_number(3), None);
    }

    #[test]
    fn only_ok_is_errno_zero() {
        assert!(Status::ALL.iter().all(|s| (s.errno() == 0) == (*s == Status::Ok)));
    }
}

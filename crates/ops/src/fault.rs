//! The reasons for refusing an operation.
//!
//! Invariant: the list is closed. For each protocol there is one exhaustive match that maps faults
//! to the protocol's statuses. So the code does not compile after a fault is added, until every
//! front handles the fault. Numbers are never reused.

use std::fmt;

use crate::codec::Code;

macro_rules! faults {
    ($($(#[$about:meta])* $variant:ident = $number:literal $text:literal;)*) => {
        /// The reason why an operation was refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[$about])* $variant,)*
            /// The server node that stores the file is unreachable. The integer is the number of
            /// the node. Encoded as 254 and the number.
            Unavailable(u16),
            /// The front (the code of one protocol) refused the operation itself. The integer is a
            /// status of its protocol. Encoded as 255 and the integer.
            Front(u32),
        }

        impl Fault {
            /// All faults without data.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the number that encodes the fault.
            #[must_use]
            pub const fn number(self) -> u8 {
                match self {
                    $(Self::$variant => $number,)*
                    Self::Unavailable(_) => UNAVAILABLE,
                    Self::Front(_) => FRONT,
                }
            }

            /// Returns a short explanation for people.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Unavailable(_) => "the node that stores the file is unreachable",
                    Self::Front(_) => "refused by the protocol",
                }
            }
        }

        impl<'m> Code<'m> for Fault {
            fn kind() -> String {
                "u8 fault".to_owned()
            }

            fn put(&self, to: &mut Vec<u8>) {
                to.push(self.number());
                match self {
                    $(Self::$variant => {})*
                    Self::Unavailable(node) => node.put(to),
                    Self::Front(number) => number.put(to),
                }
            }

            fn take(from: &mut &'m [u8]) -> Option<Self> {
                Some(match u8::take(from)? {
                    $($number => Self::$variant,)*
                    UNAVAILABLE => Self::Unavailable(u16::take(from)?),
                    FRONT => Self::Front(u32::take(from)?),
                    _ => return None,
                })
            }
        }
    };
}

faults! {
    /// Only the owner or the superuser may do this operation.
    NotPermitted = 1 "operation not permitted";
    /// The name does not exist.
    NotFound = 2 "no such file or directory";
    /// The storage device reported an error.
    Io = 3 "input/output error";
    /// The device does not exist.
    NoDevice = 4 "no such device or address";
    /// The permission bits or the access control list deny the access.
    Access = 5 "permission denied";
    /// The name already exists.
    Exists = 6 "file exists";
    /// The objects are in different file systems or exports.
    CrossDevice = 7 "not on the same file system";
    /// The object is not a directory, but the operation requires one.
    NotDirectory = 8 "not a directory";
    /// The object is a directory, which is not allowed.
    IsDirectory = 9 "is a directory";
    /// An argument is invalid.
    Invalid = 10 "invalid argument";
    /// The offset exceeds the maximum offset or the caller's limit for file sizes.
    TooBig = 11 "file too large";
    /// The file system has no free space, or no free inode for another object.
    NoSpace = 12 "no space left";
    /// The export or its file system is read-only.
    ReadOnly = 13 "read-only file system";
    /// The object has the maximum number of links.
    TooManyLinks = 14 "too many links";
    /// The name or the path is too long.
    NameTooLong = 15 "name too long";
    /// The directory has entries.
    NotEmpty = 16 "directory not empty";
    /// The user's quota is exhausted.
    Quota = 17 "quota exceeded";
    /// The handle was valid, but its object was removed or has left the export.
    Stale = 18 "stale file handle";
    /// The server never issued this handle.
    BadHandle = 19 "malformed or forged file handle";
    /// The cookie or its verifier belongs to another state of the directory.
    BadCookie = 20 "directory cookie no longer valid";
    /// The operation is not supported here.
    NotSupported = 21 "not supported";
    /// This kind of object cannot be created or opened here.
    BadType = 22 "object type not supported here";
    /// The operation cannot be executed now, but may succeed later.
    Busy = 23 "busy, try later";
    /// The server has no descriptors or memory left.
    Resource = 24 "server out of resources";
    /// The object is a symbolic link, which only clients follow.
    IsSymlink = 25 "is a symbolic link";
    /// The limit for the reply's size is too small for any useful part of the reply.
    TooSmall = 26 "buffer too small for the reply";
    /// An internal error of the server.
    Broken = 27 "server fault";
    /// The first entry does not fit within the limit for the reply's size.
    EntryTooLong = 28 "entry does not fit the reply";
    /// The data exceeds the limit for one request.
    TransferTooBig = 29 "write exceeds the server's limit for one request";
    /// The open does not include this access.
    OpenLacksAccess = 40 "the open does not include this access";
    /// Another open denies this access.
    ShareDenied = 41 "share reservation denied";
    /// The share key differs from that of the other opens.
    KeyMismatch = 42 "share key differs from that of the other opens";
    /// An open denies the removal of the name, or the requested open would have to deny it but
    /// cannot.
    NameHeldOpen = 43 "delete disposition conflicts with an open";
    /// Another owner's lock covers the bytes.
    RangeLocked = 44 "range is locked";
    /// A lock is broken and was not repaired.
    LockBroken = 45 "lock broken and not repaired";
    /// The range is invalid for a lock.
    LockRange = 46 "lock range not supported";
    /// Another owner's lock conflicts with the requested lock.
    Denied = 47 "lock denied";
    /// Waiting for the lock would create a cycle of waiting clients.
    Deadlock = 48 "waiting for the lock would deadlock";
    /// The fencing list excludes the client.
    Fenced = 49 "excluded by a fencing list";
    /// The server is in its grace period, in which clients may reclaim state from before its
    /// restart.
    Grace = 50 "server in grace period";
    /// The grace period for reclaims has ended.
    NoGrace = 51 "the grace period for reclaims is over";
    /// The client's lease has expired.
    Expired = 52 "lease expired";
    /// The state id is from before the server restarted.
    StaleState = 53 "state id from before the server's restart";
    /// The state id was replaced by a newer state id of the same open.
    OldState = 54 "state id was replaced by a newer one";
    /// The state id is unknown.
    BadState = 55 "state id unknown";
    /// The server has restarted and no longer knows the client.
    StaleClient = 56 "client id unknown after server restart";
    /// The operation would have to wait, which the caller does not allow.
    WouldWait = 57 "the operation would have to wait, try later";
    /// A limit of the server is reached.
    Limit = 58 "a limit of the server is reached";
    /// The client is not authorized for this operation.
    NotAuthorized = 59 "not authorized";
    /// The caller is not a known client, or its incarnation has ended.
    NoClient = 60 "unknown client, or its incarnation has ended";
    /// The object has no extended attribute with this name.
    NoXattr = 61 "no such extended attribute";
    /// The value of an extended attribute is longer than the file system can store.
    XattrTooBig = 62 "extended attribute too big";
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(node) => write!(f, "{} (node {node})", self.text()),
            Self::Front(number) => write!(f, "{} ({number})", self.text()),
            _ => f.write_str(self.text()),
        }
    }
}

impl std::error::Error for Fault {}

const UNAVAILABLE: u8 = 254;
const FRONT: u8 = 255;

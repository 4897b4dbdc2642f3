//! Why an operation was not done.
//!
//! Invariant: the list is closed. Each protocol has one exhaustive match that turns a fault into
//! a word of its own, so a new fault is met by every front before it compiles. A number is never
//! used again for anything else.

use std::fmt;

use crate::codec::Code;

macro_rules! faults {
    ($($(#[$about:meta])* $variant:ident = $number:literal $text:literal;)*) => {
        /// Why an operation was not done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[$about])* $variant,)*
            /// The node that has the file cannot be reached. Bytes: 254 and the node.
            Unavailable(u16),
            /// The front has refused it by itself, before the files were asked. The number is a
            /// word of its protocol. Bytes: 255 and the number.
            Front(u32),
        }

        impl Fault {
            /// Every fault that stands for itself.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its number.
            #[must_use]
            pub const fn number(self) -> u8 {
                match self {
                    $(Self::$variant => $number,)*
                    Self::Unavailable(_) => UNAVAILABLE,
                    Self::Front(_) => FRONT,
                }
            }

            /// What it says to people.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Unavailable(_) => "the node that has the file cannot be reached",
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
    /// Only the owner or the superuser may.
    NotPermitted = 1 "operation not permitted";
    /// No such name.
    NotFound = 2 "no such file or directory";
    /// The device failed.
    Io = 3 "input/output error";
    /// The device does not exist.
    NoDevice = 4 "no such device or address";
    /// The permission bits or the access control list forbid it.
    Access = 5 "permission denied";
    /// The name is taken.
    Exists = 6 "file exists";
    /// Not on one file system, or not in one export.
    CrossDevice = 7 "not on the same file system";
    /// A directory is needed.
    NotDirectory = 8 "not a directory";
    /// A directory will not do.
    IsDirectory = 9 "is a directory";
    /// An argument makes no sense.
    Invalid = 10 "invalid argument";
    /// Beyond the largest offset, or the asker's limit.
    TooBig = 11 "file too large";
    /// No space, or no room for another object.
    NoSpace = 12 "no space left";
    /// The export or its file system is read-only.
    ReadOnly = 13 "read-only file system";
    /// The object has as many links as it can have.
    TooManyLinks = 14 "too many links";
    /// The name, or the path, is too long.
    NameTooLong = 15 "name too long";
    /// The directory has entries.
    NotEmpty = 16 "directory not empty";
    /// The asker's quota is used up.
    Quota = 17 "quota exceeded";
    /// The handle was good; its object is gone, or left the export.
    Stale = 18 "stale file handle";
    /// The handle was never given out.
    BadHandle = 19 "malformed or forged file handle";
    /// The cookie or its verifier belongs to another listing.
    BadCookie = 20 "directory cookie no longer valid";
    /// It cannot be done here.
    NotSupported = 21 "not supported";
    /// This kind of object cannot be made or opened here.
    BadType = 22 "object type not supported here";
    /// It may succeed if it is asked for again later.
    Busy = 23 "busy, try later";
    /// Out of descriptors or memory.
    Resource = 24 "server out of resources";
    /// The object is a symbolic link, which only clients follow.
    IsSymlink = 25 "is a symbolic link";
    /// The room for the answer is too small for any of it.
    TooSmall = 26 "buffer too small for the reply";
    /// Something that cannot happen did.
    Broken = 27 "server fault";
    /// The first entry does not fit into the room for the answer.
    EntryTooLong = 28 "entry does not fit the reply";
    /// More bytes than one request may bring.
    TransferTooBig = 29 "write larger than the server takes";
    /// The open was not made for this.
    OpenLacksAccess = 40 "the file is not open for this";
    /// An open of somebody else keeps others from this.
    ShareDenied = 41 "share reservation denied";
    /// The key differs from that of the other opens.
    KeyMismatch = 42 "shared key differs from the one in force";
    /// An open keeps the name from being removed, or would have to.
    NameHeldOpen = 43 "delete disposition conflicts with an open";
    /// A lock of somebody else covers the bytes.
    RangeLocked = 44 "range is locked";
    /// A lock is broken, and nobody has repaired it.
    LockBroken = 45 "lock broken and not repaired";
    /// The range makes no sense for a lock.
    LockRange = 46 "lock range not supported";
    /// A lock of somebody else stands in the way of this one.
    Denied = 47 "lock denied";
    /// Waiting for the lock would never end.
    Deadlock = 48 "waiting for the lock would deadlock";
    /// The fencing list shuts the asker out.
    Fenced = 49 "shut out by a fencing list";
    /// Clients may still take back what they held before the server restarted.
    Grace = 50 "server in grace period";
    /// It is too late to take anything back.
    NoGrace = 51 "nothing can be taken back any more";
    /// The asker's lease has ended.
    Expired = 52 "lease expired";
    /// The state is from before the server restarted.
    StaleState = 53 "state id from before a restart";
    /// The state was replaced by another.
    OldState = 54 "state id superseded";
    /// There is no such state.
    BadState = 55 "state id unknown";
    /// The client is not known since the server restarted.
    StaleClient = 56 "client id unknown after server restart";
    /// It would have to wait, and may not.
    WouldWait = 57 "somebody is in the way, try later";
    /// A limit of the server is reached.
    Limit = 58 "a limit of the server is reached";
    /// The asker is not trusted with this.
    NotAuthorized = 59 "not authorized";
    /// The asker is no client, or its life as one is over.
    NoClient = 60 "not a client, or one that has ended";
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

//! Types of the file procedures: opening, sharing, writing and cache hints.

/// A set of access rights, as the ACCESS procedure checks them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AccessMask(pub u32);

impl AccessMask {
    /// The right to read data or list a directory.
    pub const READ: Self = Self(1);
    /// The right to look up a name in a directory.
    pub const LOOKUP: Self = Self(2);
    /// The right to overwrite existing data or entries.
    pub const MODIFY: Self = Self(4);
    /// The right to write new data or add entries.
    pub const EXTEND: Self = Self(8);
    /// The right to delete an entry of a directory.
    pub const DELETE: Self = Self(0x10);
    /// The right to execute a regular file.
    pub const EXECUTE: Self = Self(0x20);
    /// All defined rights together.
    pub const ALL: Self = Self(0x3f);
}

impl std::ops::BitOr for AccessMask {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitAnd for AccessMask {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum $name {
            $($(#[$vdoc])* $variant = $number,)*
        }

        impl $name {
            /// All variants in numeric order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the variant that has this number in messages. `None` if there is none.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns the number of this variant in messages.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }
        }
    };
}
pub(crate) use wire_enum;

wire_enum! {
    /// The access that an open requests.
    ShareAccess {
        /// Reading only, no writing.
        Read = 1,
        /// Writing only, no reading.
        Write = 2,
        /// Both reading and writing.
        Both = 3,
    }
}

impl ShareAccess {
    /// Returns true if the access includes reading.
    #[must_use]
    pub const fn reads(self) -> bool {
        self.number() & 1 != 0
    }
    /// Returns true if the access includes writing.
    #[must_use]
    pub const fn writes(self) -> bool {
        self.number() & 2 != 0
    }
}

wire_enum! {
    /// The access that an open denies to other opens.
    ShareDeny {
        /// Denies no access to other opens.
        None = 0,
        /// Denies opening for reading.
        Read = 1,
        /// Denies opening for writing.
        Write = 2,
        /// Denies both reading and writing.
        Both = 3,
    }
}

wire_enum! {
    /// The kind of claim under which an OPEN request opens a file.
    OpenClaim {
        /// A new open of a file that is named by its path.
        Null = 0,
        /// Reclaims an open after a server restart.
        Previous = 1,
        /// Opens a file under a delegation that the client holds.
        DelegateCurrent = 2,
        /// Opens a file under a delegation that the client held before its own restart.
        DelegatePrevious = 3,
        /// Creates a file without a name.
        CreateUnlinked = 4,
    }
}

/// Controls what OPEN does if the name exists, and if it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CreateMode {
    /// Fails if the name does not exist.
    NoCreate,
    /// Creates the file if it does not exist. If it exists, opens the file and applies the given
    /// attributes.
    Unchecked,
    /// Creates the file, and fails if the name exists.
    Guarded,
    /// Creates the file; fails if the name exists, unless the file was created earlier with the
    /// same verifier.
    Exclusive(crate::Verifier),
}

wire_enum! {
    /// Controls whether the file's name may be removed while it is open.
    DeleteDisposition {
        /// Other clients may remove the name.
        DontCare = 0,
        /// Other clients may not remove the name.
        Deny = 1,
    }
}

wire_enum! {
    /// Controls whether REMOVE removes a file that is open.
    RemoveMode {
        /// Removes the file even if it is open.
        Unchecked = 0,
        /// Refuses to remove a file that is open.
        CheckOpen = 1,
    }
}

/// A 64-bit share key. If an open of a file has a key, all other opens of the file with a key must
/// have the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShareKey(pub u64);

wire_enum! {
    /// The parts of a file (data, metadata) that must be on stable storage before the reply to a
    /// write.
    Stability {
        /// Nothing. A later COMMIT flushes the data.
        Unstable = 0,
        /// The data, and the metadata that is needed to read the data again.
        DataSync = 1,
        /// The data and all metadata.
        FileSync = 2,
    }
}

wire_enum! {
    /// The access pattern in a CACHE_HINT.
    CachePattern {
        /// The access pattern is not known.
        Normal = 0,
        /// The offsets are in random order.
        Random = 1,
        /// The offsets are in ascending order.
        Sequential = 2,
        /// The range will be used soon.
        WillNeed = 3,
        /// The range will not be used soon.
        DontNeed = 4,
    }
}

/// The hint word of READ, WRITE and CACHE_HINT: bit 0 requests prefetching, bits 1-3 contain the
/// likelihood of reads, bits 4-6 the likelihood of writes; 0 means no hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheHint(pub u32);

impl CacheHint {
    /// Returns true if the server should read the range into its cache now.
    #[must_use]
    pub const fn prefetch(self) -> bool {
        self.0 & 1 != 0
    }
    /// Returns the likelihood of reads, from 1 to 7. If the hint has none, returns 4.
    #[must_use]
    pub const fn read_likelihood(self) -> u32 {
        let value = (self.0 >> 1) & 7;
        if value == 0 { 4 } else { value }
    }
    /// Returns the likelihood of writes, from 1 to 7. If the hint has none, returns 4.
    #[must_use]
    pub const fn write_likelihood(self) -> u32 {
        let value = (self.0 >> 4) & 7;
        if value == 0 { 4 } else { value }
    }
}

/// The change attribute of a directory before and after a modification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChangeInfo {
    /// The value before the modification.
    pub before: u64,
    /// The value after the modification.
    pub after: u64,
    /// True if no other change can have been made between the two values.
    pub atomic: bool,
}

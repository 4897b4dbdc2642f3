//! Words of the file procedures: how a file is opened, shared, written, hinted.

/// Bits of the ACCESS procedure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AccessMask(pub u32);

impl AccessMask {
    /// Read data or list a directory.
    pub const READ: Self = Self(1);
    /// Look a name up in a directory.
    pub const LOOKUP: Self = Self(2);
    /// Rewrite existing data or entries.
    pub const MODIFY: Self = Self(4);
    /// Write new data or add entries.
    pub const EXTEND: Self = Self(8);
    /// Delete an entry.
    pub const DELETE: Self = Self(0x10);
    /// Execute a file.
    pub const EXECUTE: Self = Self(0x20);
    /// All of them.
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
            /// Every variant.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The variant with this wire number, or `None`.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The number on the wire.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }
        }
    };
}
pub(crate) use wire_enum;

wire_enum! {
    /// How an open may use the file.
    ShareAccess {
        /// Read only.
        Read = 1,
        /// Write only.
        Write = 2,
        /// Read and write.
        Both = 3,
    }
}

impl ShareAccess {
    /// Whether reading is part of it.
    #[must_use]
    pub const fn reads(self) -> bool {
        self.number() & 1 != 0
    }
    /// Whether writing is part of it.
    #[must_use]
    pub const fn writes(self) -> bool {
        self.number() & 2 != 0
    }
}

wire_enum! {
    /// What an open keeps others from doing.
    ShareDeny {
        /// Nothing.
        None = 0,
        /// Opening for reading.
        Read = 1,
        /// Opening for writing.
        Write = 2,
        /// Either.
        Both = 3,
    }
}

wire_enum! {
    /// What kind of open is claimed (draft OPEN).
    OpenClaim {
        /// A new open by name.
        Null = 0,
        /// Reclaim after a server restart.
        Previous = 1,
        /// Under a delegation held now.
        DelegateCurrent = 2,
        /// Under a delegation held before a client restart.
        DelegatePrevious = 3,
        /// Create a file without a name.
        CreateUnlinked = 4,
    }
}

/// What OPEN does when the name is absent or present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CreateMode {
    /// Absent is an error.
    NoCreate,
    /// Create if absent, take as is (with the given attributes) if present.
    Unchecked,
    /// Present is an error.
    Guarded,
    /// Present is an error unless made by this very verifier before.
    Exclusive(crate::Verifier),
}

wire_enum! {
    /// Whether other parties may remove the name while this open lasts.
    DeleteDisposition {
        /// They may.
        DontCare = 0,
        /// They may not.
        Deny = 1,
    }
}

wire_enum! {
    /// How REMOVE treats a file that somebody has open.
    RemoveMode {
        /// Remove anyway.
        Unchecked = 0,
        /// Refuse.
        CheckOpen = 1,
    }
}

/// The 64-bit key that all opens of a reserved file must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShareKey(pub u64);

wire_enum! {
    /// How much of a write is on stable storage before the answer.
    Stability {
        /// Nothing; COMMIT comes later.
        Unstable = 0,
        /// The data and what is needed to find it.
        DataSync = 1,
        /// Data and all metadata.
        FileSync = 2,
    }
}

wire_enum! {
    /// Access pattern of CACHE_HINT.
    CachePattern {
        /// No statement.
        Normal = 0,
        /// No order.
        Random = 1,
        /// Rising offsets.
        Sequential = 2,
        /// Soon.
        WillNeed = 3,
        /// Not soon.
        DontNeed = 4,
    }
}

/// The hint word of READ, WRITE and CACHE_HINT: bit 0 prefetch, bits 1-3 read
/// likelihood, bits 4-6 write likelihood; 0 means no statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheHint(pub u32);

impl CacheHint {
    /// Whether the server is asked to fetch the range now.
    #[must_use]
    pub const fn prefetch(self) -> bool {
        self.0 & 1 != 0
    }
    /// Likelihood of reading, 1 to 7; 4 when unstated.
    #[must_use]
    pub const fn read_likelihood(self) -> u32 {
        let value = (self.0 >> 1) & 7;
        if value == 0 { 4 } else { value }
    }
    /// Likelihood of writing, 1 to 7; 4 when unstated.
    #[must_use]
    pub const fn write_likelihood(self) -> u32 {
        let value = (self.0 >> 4) & 7;
        if value == 0 { 4 } else { value }
    }
}

/// A directory's change attribute around a modification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChangeInfo {
    /// Before the modification.
    pub before: u64,
    /// After it.
    pub after: u64,
    /// Whether nothing else can have come between.
    pub atomic: bool,
}

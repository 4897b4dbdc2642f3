//! Byte-range locks (draft 6.5.18 to 6.5.20).
//!
//! Invariant: the status in the header selects the arm of the union in the results of LOCK and
//! LOCKT. A conflict is present exactly when the status is DENIED or LOCK_BROKEN; both encoder and
//! decoder check this.

use dafs_types::{ClientId, FileHandle, StateId};

use crate::error::{DecodeError, EncodeError};
use crate::field::{
    Codec, Enum, Field, Handle, Long, Opaque64, Owner, kinds, read_enum, wire_enum,
};
use crate::order::Order;
use crate::scope::{Scope, Writer};
use crate::section::section;

wire_enum! {
    /// The kind of a lock request.
    LockType, "lock type" {
        /// A shared lock.
        Read = 1,
        /// An exclusive lock.
        Write = 2,
        /// A shared lock; the client will repeat the request until it gets the lock.
        ReadWait = 3,
        /// An exclusive lock; the client will repeat the request until it gets the lock.
        WriteWait = 4,
        /// A request to roll back the changes that were made under a lock.
        Abort = 5,
    }
}

/// The options of a LOCK request, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockOptions(u32);

impl LockOptions {
    /// The request reclaims a lock that was held before a server restart.
    pub const RECLAIM: Self = Self(1);
    /// The lock becomes broken, instead of being released, when its owner fails.
    pub const PERSIST: Self = Self(2);
    /// Changes made under the lock are rolled back when its owner fails.
    pub const AUTO_RECOVERY: Self = Self(4);
    /// The request takes over a broken lock. The draft gives this option a name but no value
    /// (`docs/spec/gaps.md`).
    pub const REPAIR: Self = Self(8);
    /// All defined options together.
    pub const ALL: Self = Self(15);

    /// Creates a set of options; `None` if a bit is undefined.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits & !Self::ALL.0 == 0 { Some(Self(bits)) } else { None }
    }

    /// Returns the options as bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns true if all of `options` are set.
    #[must_use]
    pub const fn contains(self, options: Self) -> bool {
        self.0 & options.0 == options.0
    }

    /// Returns the union of both sets of options.
    #[must_use]
    pub const fn with(self, options: Self) -> Self {
        Self(self.0 | options.0)
    }
}

/// A lock that conflicts with a lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockConflict<'a> {
    /// The client of the lock's owner.
    pub client: ClientId,
    /// The name of the lock's owner.
    pub owner: &'a [u8],
    /// The offset of the lock's first byte.
    pub offset: u64,
    /// The lock's length in bytes; `u64::MAX` means up to the end of the file.
    pub length: u64,
    /// The kind of the lock.
    pub lock_type: LockType,
}

kinds! {
    /// A word of lock options.
    LockOptionsField: 4, 4, "u32 flags";
    /// The union that contains the conflicting lock, if there is one.
    ConflictField: 40, 8, "union(conflict)";
}

impl<'a> Codec<'a, LockOptions> for LockOptionsField {
    fn read<O: Order>(scope: Scope<'a, O>, at: usize) -> Result<LockOptions, DecodeError> {
        let bits = scope.u32(at)?;
        LockOptions::from_bits(bits).ok_or(DecodeError::Option(bits))
    }
    fn write<O: Order>(
        value: &LockOptions,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        writer.put_u32(at, value.0)
    }
}

impl<'a> Codec<'a, Option<LockConflict<'a>>> for ConflictField {
    /// Reads the union. The status, which selects the arm, is not known here. Lock type 0, which no
    /// lock has, marks the arm without a conflict; the message decoder then compares the result
    /// with the status.
    fn read<O: Order>(
        scope: Scope<'a, O>,
        at: usize,
    ) -> Result<Option<LockConflict<'a>>, DecodeError> {
        if scope.u32(at + 32)? == 0 {
            scope.zeros(at, at + 40)?;
            return Ok(None);
        }
        scope.zeros(at + 12, at + 16)?;
        scope.zeros(at + 36, at + 40)?;
        Ok(Some(LockConflict {
            client: Opaque64::read(scope, at)?,
            owner: Owner::read(scope, at + 8)?,
            offset: scope.u64(at + 16)?,
            length: scope.u64(at + 24)?,
            lock_type: read_enum(scope, at + 32)?,
        }))
    }

    fn write<O: Order>(
        value: &Option<LockConflict<'a>>,
        writer: &mut Writer<'_, O>,
        at: usize,
    ) -> Result<(), EncodeError> {
        let Some(conflict) = value else { return Ok(()) };
        Opaque64::write(&conflict.client, writer, at)?;
        Owner::write(&conflict.owner, writer, at + 8)?;
        writer.put_u64(at + 16, conflict.offset)?;
        writer.put_u64(at + 24, conflict.length)?;
        Enum::write(&conflict.lock_type, writer, at + 32)
    }
}

section! {
    /// The arguments of LOCK.
    Lock: 96 {
        /// The handle of the file that the request concerns.
        file: FileHandle => Handle,
        /// The kind of the lock request.
        lock_type: LockType => Enum,
        /// The options of the lock.
        options: LockOptions => LockOptionsField,
        /// The open under which the lock is taken.
        state: StateId => Opaque64,
        /// The offset in the file of the first byte of the range.
        offset: u64 => Long,
        /// The length of the range in bytes; `u64::MAX` means up to the end of the file.
        length: u64 => Long,
    }
}

section! {
    /// The results of LOCK and LOCKT.
    LockResult<'a>: 40 {
        /// The conflicting lock. Present if the request was denied or a lock is broken.
        conflict: Option<LockConflict<'a>> => ConflictField,
    }
}

section! {
    /// The arguments of LOCKT.
    LockTest<'a>: 88 {
        /// The handle of the file that the request concerns.
        file: FileHandle => Handle,
        /// The kind of the lock request.
        lock_type: LockType => Enum,
        /// The name of the lock owner for which the conflict is tested.
        owner: &'a [u8] => Owner,
        /// The offset in the file of the first byte of the range.
        offset: u64 => Long,
        /// The length of the range in bytes; `u64::MAX` means up to the end of the file.
        length: u64 => Long,
    }
}

section! {
    /// The arguments of LOCKU.
    Unlock: 96 {
        /// The handle of the file that the request concerns.
        file: FileHandle => Handle,
        /// The kind of the lock request.
        lock_type: LockType => Enum,
        /// The open under which the lock was taken.
        state: StateId => Opaque64,
        /// The offset in the file of the first byte of the range.
        offset: u64 => Long,
        /// The length of the range in bytes; `u64::MAX` means up to the end of the file.
        length: u64 => Long,
    }
}

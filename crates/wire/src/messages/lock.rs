//! Byte-range locks (draft 6.5.18 to 6.5.20). Invariant: the union in the results of
//! LOCK and LOCKT is selected by the header's status, and a conflict is present
//! exactly when that is DENIED or LOCK_BROKEN; both directions check it.

use dafs_types::{ClientId, FileHandle, StateId};

use crate::error::{DecodeError, EncodeError};
use crate::field::{
    Codec, Enum, Field, Handle, Long, Opaque64, Owner, kinds, read_enum, wire_enum,
};
use crate::order::Order;
use crate::scope::{Scope, Writer};
use crate::section::section;

wire_enum! {
    /// Kind of lock.
    LockType, "lock type" {
        /// Shared.
        Read = 1,
        /// Exclusive.
        Write = 2,
        /// Shared, and the client will ask again.
        ReadWait = 3,
        /// Exclusive, and the client will ask again.
        WriteWait = 4,
        /// Roll back what was changed under the lock.
        Abort = 5,
    }
}

/// Options of LOCK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockOptions(u32);

impl LockOptions {
    /// Held before a server restart.
    pub const RECLAIM: Self = Self(1);
    /// Breaks, instead of vanishing, when its owner fails.
    pub const PERSIST: Self = Self(2);
    /// Changes under it are rolled back when its owner fails.
    pub const AUTO_RECOVERY: Self = Self(4);
    /// Takes over a broken lock. The draft names it without a value
    /// (`docs/spec/gaps.md`).
    pub const REPAIR: Self = Self(8);
    /// All of them.
    pub const ALL: Self = Self(15);

    /// These bits, or `None` if one is undefined.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits & !Self::ALL.0 == 0 { Some(Self(bits)) } else { None }
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `options` are set.
    #[must_use]
    pub const fn contains(self, options: Self) -> bool {
        self.0 & options.0 == options.0
    }

    /// These and `options`.
    #[must_use]
    pub const fn with(self, options: Self) -> Self {
        Self(self.0 | options.0)
    }
}

/// A lock in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockConflict<'a> {
    /// Client of its owner.
    pub client: ClientId,
    /// Its owner.
    pub owner: &'a [u8],
    /// First byte.
    pub offset: u64,
    /// Bytes; all ones to the end of the file.
    pub length: u64,
    /// Its kind.
    pub lock_type: LockType,
}

kinds! {
    /// Lock options.
    LockOptionsField: 4, 4, "u32 flags";
    /// Union of the conflict.
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
    /// The status is not at hand here; lock type 0, which no lock has, tells the arms
    /// apart, and the message decoder compares the outcome with the status.
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
    /// Arguments of LOCK.
    Lock: 96 {
        /// The file.
        file: FileHandle => Handle,
        /// Kind of lock.
        lock_type: LockType => Enum,
        /// Options.
        options: LockOptions => LockOptionsField,
        /// The open it is taken under.
        state: StateId => Opaque64,
        /// First byte.
        offset: u64 => Long,
        /// Bytes; all ones to the end of the file.
        length: u64 => Long,
    }
}

section! {
    /// Results of LOCK and LOCKT.
    LockResult<'a>: 40 {
        /// The lock in the way of a denied or broken one.
        conflict: Option<LockConflict<'a>> => ConflictField,
    }
}

section! {
    /// Arguments of LOCKT.
    LockTest<'a>: 88 {
        /// The file.
        file: FileHandle => Handle,
        /// Kind of lock.
        lock_type: LockType => Enum,
        /// Who would take it.
        owner: &'a [u8] => Owner,
        /// First byte.
        offset: u64 => Long,
        /// Bytes; all ones to the end of the file.
        length: u64 => Long,
    }
}

section! {
    /// Arguments of LOCKU.
    Unlock: 96 {
        /// The file.
        file: FileHandle => Handle,
        /// Kind of lock.
        lock_type: LockType => Enum,
        /// The open it was taken under.
        state: StateId => Opaque64,
        /// First byte.
        offset: u64 => Long,
        /// Bytes; all ones to the end of the file.
        length: u64 => Long,
    }
}

//! What the driver must do on behalf of the lock table.
//!
//! Invariant: the actions of one call are in an order in which a crash between any two
//! leaves at least as much locked, and at least as much to undo, as was promised.

use dafs_base::Key;
use dafs_types::{ClientId, StateId, Verifier};

use super::owners::OwnerKey;
use super::range::ByteRange;
use super::request::{LockAttributes, LockConflict, LockMode, WaiterId};
use crate::FileKey;

/// Names a record on stable storage. Later locks have larger ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockId(pub u64);

/// Names a rollback until the driver reports its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RollbackId(pub u64);

/// What the driver must do, in this order, before it answers the call's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockAction {
    /// Make this record stable, in place of any older one with its id.
    WriteRecord(Box<LockRecord>),
    /// Make the removal of this record stable. For an auto-recovery lock that is the
    /// moment at which its changes are final.
    RemoveRecord(LockId),
    /// From now on, before a byte of the range is written for the first time, make
    /// stable what it was. Undo that no record covers is void at a restart.
    KeepUndo {
        /// The file.
        file: FileKey,
        /// What is covered.
        range: ByteRange,
    },
    /// Drop the undo of the range.
    DropUndo {
        /// The file.
        file: FileKey,
        /// What is covered no more.
        range: ByteRange,
    },
    /// Once the writes that were under way have ended, put back what the undo of the range
    /// has and make it stable; then call `rollback_done`. The undo stays until it is
    /// dropped by an action of that call.
    Rollback {
        /// Names the rollback.
        rollback: RollbackId,
        /// The file.
        file: FileKey,
        /// What is put back.
        range: ByteRange,
    },
    /// Nothing stands in this waiter's way any more: its lock is kept for it. Ask again on
    /// behalf of a parked request; tell the client of one that polls, or let it poll.
    Ready {
        /// Whose turn it is.
        waiter: WaiterId,
        /// Its file.
        file: FileKey,
    },
    /// This waiter has lost its place, because a lock that it waited for broke: the answer
    /// to a parked request is LOCK_BROKEN.
    WaiterBroken {
        /// Who waited.
        waiter: WaiterId,
        /// The broken lock.
        conflict: LockConflict,
    },
    /// This waiter has lost its place, because it was silent too long or its open, owner or
    /// client is gone.
    WaiterGone {
        /// Who waited.
        waiter: WaiterId,
    },
}

/// Where a recorded lock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordPhase {
    /// Held, or breakable: until somebody breaks it, its client may have it back.
    Held,
    /// Without PERSIST, and its owner failed: it ends with its rollback.
    Revoked,
    /// Broken; its changes, if it has auto-recovery, are yet to be rolled back.
    BrokenUnrolled,
    /// Broken, and nothing is left to roll back.
    Broken,
}

/// A lock on stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRecord {
    /// Names the record.
    pub id: LockId,
    /// The file. The driver keeps its handle instead, since a key lasts only while the
    /// file is in use, and holds the file as long as the record is there.
    pub file: FileKey,
    /// The id that the client had.
    pub client: ClientId,
    /// The client's identity string.
    pub client_name: Box<[u8]>,
    /// As whom it authenticated.
    pub principal: Box<[u8]>,
    /// Changes when the client restarts.
    pub verifier: Verifier,
    /// The lock owner.
    pub owner: Box<[u8]>,
    /// What is locked.
    pub range: ByteRange,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// PERSIST, AUTORECOVERY or both.
    pub attributes: LockAttributes,
    /// Where it stands.
    pub phase: RecordPhase,
}

/// Where a lock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its owner has it.
    Held,
    /// Came from stable storage in this grace period; not reclaimed yet.
    Survived,
    /// Its client's lease is over, or the grace period; nobody has minded yet.
    Breakable,
    /// Broken, and nobody's until it is repaired.
    Broken,
    /// Locked to everybody while its changes are undone.
    RollingBack {
        /// Names the rollback.
        rollback: RollbackId,
        /// What becomes of it.
        then: Then,
    },
}

/// What becomes of a lock when its rollback is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// ABORT: its owner still holds it.
    Held,
    /// ABORT by a client whose lease has ended since, of a lock with PERSIST.
    Breakable,
    /// It was revoked.
    Gone,
    /// It is broken.
    Broken,
}

impl Phase {
    /// Whether the lock belongs to nobody.
    pub fn is_orphan(self) -> bool {
        match self {
            Self::Held | Self::Survived | Self::Breakable => false,
            Self::Broken => true,
            Self::RollingBack { then, .. } => matches!(then, Then::Gone | Then::Broken),
        }
    }

    /// Whether requests for it are told that it is broken.
    pub fn is_broken(self) -> bool {
        matches!(self, Self::Broken | Self::RollingBack { then: Then::Broken, .. })
    }

    /// Whether its changes are being undone.
    pub fn is_rolling_back(self) -> bool {
        matches!(self, Self::RollingBack { .. })
    }

    /// What stable storage must know. An ABORT is not recorded: who asked for it has no
    /// answer yet and asks again after a restart; the undo is still there.
    pub fn on_record(self) -> RecordPhase {
        match self {
            Self::Held | Self::Survived | Self::Breakable => RecordPhase::Held,
            Self::Broken => RecordPhase::Broken,
            Self::RollingBack { then, .. } => match then {
                Then::Held | Then::Breakable => RecordPhase::Held,
                Then::Gone => RecordPhase::Revoked,
                Then::Broken => RecordPhase::BrokenUnrolled,
            },
        }
    }
}

/// A lock of the table.
pub(super) type HoldKey = Key<Hold>;

/// One granted range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub file: FileKey,
    /// Number of its owner, or of who had it.
    pub owner: OwnerKey,
    /// The open it is used under; anonymous if it is nobody's or not reclaimed.
    pub state: StateId,
    pub range: ByteRange,
    pub mode: LockMode,
    pub attributes: LockAttributes,
    pub phase: Phase,
    /// Its record; present if its attributes are recorded.
    pub id: Option<LockId>,
}

impl Hold {
    /// Whether a request of this owner may pass it by.
    pub fn is_of(&self, owner: Option<OwnerKey>) -> bool {
        owner == Some(self.owner) && !self.phase.is_orphan()
    }
}

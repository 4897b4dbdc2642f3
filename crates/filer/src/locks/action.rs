//! The actions that the lock table asks of the driver.
//!
//! Invariant: the actions of one call are ordered so that a crash between any two leaves at least
//! as much locked, and at least as much undo data, as was promised.

use dafs_base::Key;
use dafs_types::{ClientId, StateId, Verifier};

use super::owners::OwnerKey;
use super::range::ByteRange;
use super::request::{LockAttributes, LockConflict, LockMode, WaiterId};
use crate::FileKey;

/// The id of a record on stable storage. Later locks have larger ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockId(pub u64);

/// The id of a rollback, until the driver reports its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RollbackId(pub u64);

/// What the driver must do, in this order, before it replies to the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockAction {
    /// Make this record stable; it replaces an older one with the same id.
    WriteRecord(Box<LockRecord>),
    /// Make the removal of this record stable. For an auto-recovery lock this makes its changes
    /// final.
    RemoveRecord(LockId),
    /// From now on, before a byte of the range is first overwritten, make its old value stable.
    /// Undo data that no record covers is discarded at a restart.
    KeepUndo {
        /// The file whose data is saved.
        file: FileKey,
        /// The range to save.
        range: ByteRange,
    },
    /// Drop the undo data of the range.
    DropUndo {
        /// The file whose undo data is dropped.
        file: FileKey,
        /// The range that is no longer covered.
        range: ByteRange,
    },
    /// Wait for the writes in flight, write the undo data of the range back, make that stable, then
    /// call `rollback_done`. Keep the undo data until an action of that call drops it.
    Rollback {
        /// The id of the rollback.
        rollback: RollbackId,
        /// The file to roll back.
        file: FileKey,
        /// The range to restore.
        range: ByteRange,
    },
    /// Nothing blocks this waiter any more: its lock is reserved for it. Retry a parked request;
    /// notify the client of one that polls, or let it poll.
    Ready {
        /// The waiter whose turn it is.
        waiter: WaiterId,
        /// The file it waits for.
        file: FileKey,
    },
    /// This waiter has lost its position because a lock that it waited for broke: reply LOCK_BROKEN
    /// to a parked request.
    WaiterBroken {
        /// The waiter that lost its position.
        waiter: WaiterId,
        /// The broken lock.
        conflict: LockConflict,
    },
    /// This waiter has lost its position, because it was silent too long or its open, owner or
    /// client is gone.
    WaiterGone {
        /// The waiter that lost its position.
        waiter: WaiterId,
    },
}

/// The phase of a lock on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordPhase {
    /// The lock is held or breakable: its client may reclaim it until a conflicting request breaks
    /// it.
    Held,
    /// The lock has no PERSIST and its owner failed: it ends with its rollback.
    Revoked,
    /// The lock is broken; if it has auto-recovery, its changes still have to be rolled back.
    BrokenUnrolled,
    /// The lock is broken, and nothing is left to roll back.
    Broken,
}

/// The record of a lock on stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRecord {
    /// The id of the record.
    pub id: LockId,
    /// The file. The driver stores the file's handle instead, because a key is valid only while the
    /// file is in use, and keeps the file in use while the record exists.
    pub file: FileKey,
    /// The id that the client had.
    pub client: ClientId,
    /// The client's identity string.
    pub client_name: Box<[u8]>,
    /// The principal that the client authenticated as.
    pub principal: Box<[u8]>,
    /// The verifier, which changes when the client restarts.
    pub verifier: Verifier,
    /// The lock owner as the client named it.
    pub owner: Box<[u8]>,
    /// The locked range of bytes.
    pub range: ByteRange,
    /// The mode of the lock: shared or exclusive.
    pub mode: LockMode,
    /// PERSIST, AUTORECOVERY or both.
    pub attributes: LockAttributes,
    /// The phase of the lock.
    pub phase: RecordPhase,
}

/// The phase of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The lock is held by its owner.
    Held,
    /// The lock was restored from stable storage in this grace period and not reclaimed yet.
    Survived,
    /// The client's lease or the grace period is over, and no conflicting request has come yet.
    Breakable,
    /// The lock is broken and belongs to no owner until it is repaired.
    Broken,
    /// The range is locked for all owners while its changes are rolled back.
    RollingBack {
        /// The id of the rollback.
        rollback: RollbackId,
        /// The phase after the rollback.
        then: Then,
    },
}

/// What happens to a lock when its rollback is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// After an ABORT: the owner still holds the lock.
    Held,
    /// After an ABORT by a client whose lease has ended since, of a lock with PERSIST.
    Breakable,
    /// The lock was revoked and ends.
    Gone,
    /// The lock is broken.
    Broken,
}

impl Phase {
    /// Returns true if the lock belongs to no owner.
    pub(super) fn is_orphan(self) -> bool {
        match self {
            Self::Held | Self::Survived | Self::Breakable => false,
            Self::Broken => true,
            Self::RollingBack { then, .. } => matches!(then, Then::Gone | Then::Broken),
        }
    }

    /// Returns true if conflicting requests get LOCK_BROKEN.
    pub(super) fn is_broken(self) -> bool {
        matches!(self, Self::Broken | Self::RollingBack { then: Then::Broken, .. })
    }

    /// Returns true if its changes are being rolled back.
    pub(super) fn is_rolling_back(self) -> bool {
        matches!(self, Self::RollingBack { .. })
    }

    /// Returns the phase to store. An ABORT is not recorded: its caller has no reply yet and
    /// repeats the request after a restart, when the undo data is still there.
    pub(super) fn on_record(self) -> RecordPhase {
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

/// The key of a lock in the table.
pub(super) type HoldKey = Key<Hold>;

/// One granted range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub file: FileKey,
    /// The key of the lock's owner, or of its former owner.
    pub owner: OwnerKey,
    /// The open it is used under; anonymous if it belongs to no owner or is not reclaimed.
    pub state: StateId,
    pub range: ByteRange,
    pub mode: LockMode,
    pub attributes: LockAttributes,
    pub phase: Phase,
    /// The id of the lock's stable record; present if the lock's attributes are recorded.
    pub id: Option<LockId>,
}

impl Hold {
    /// Returns true if requests of this owner do not conflict with it.
    pub(super) fn is_of(&self, owner: Option<OwnerKey>) -> bool {
        owner == Some(self.owner) && !self.phase.is_orphan()
    }
}

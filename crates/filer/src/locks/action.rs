//! The actions that the lock table requires of the server.
//!
//! Invariant: the actions of one call are ordered so that a crash between any two of them leaves at
//! least as many bytes locked, and at least as much undo data, as was promised.

use dafs_base::Key;
use dafs_types::{ClientId, FileHandle, StateId, Verifier};

use super::owners::OwnerKey;
use super::range::ByteRange;
use super::request::{LockAttributes, LockConflict, LockMode, WaiterId};
use crate::FileKey;

/// The id of a lock's record on stable storage. Later locks have larger ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockId(pub u64);

/// The id of a rollback, valid until the server reports the rollback's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RollbackId(pub u64);

/// An action that the server must execute before it replies to the request. Actions must be
/// executed in the order in which they are returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockAction {
    /// Make this record durable. It replaces an older record with the same id.
    WriteRecord(Box<LockRecord>),
    /// Make the removal of this record durable. For an auto-recovery lock this makes the changes
    /// under the lock final.
    RemoveRecord(LockId),
    /// From now on, make the old value of each byte of the range durable before the byte is first
    /// overwritten. Undo data that no lock's record covers is discarded at a restart.
    KeepUndo {
        /// The file whose data is saved.
        file: FileKey,
        /// The range to save.
        range: ByteRange,
    },
    /// Discard the undo data of the range.
    DropUndo {
        /// The file whose undo data is dropped.
        file: FileKey,
        /// The range whose undo data is dropped.
        range: ByteRange,
    },
    /// Wait for the writes in flight, write the undo data of the range back to the file, make the
    /// file durable, then call `rollback_done`. Keep the undo data until an action of that call
    /// drops it.
    Rollback {
        /// The id of the rollback.
        rollback: RollbackId,
        /// The file to roll back.
        file: FileKey,
        /// The range to restore.
        range: ByteRange,
    },
    /// No lock or request blocks this waiting request any more, and its lock is reserved for it.
    /// Retry the request if it is parked. If its client polls, notify the client or wait until it
    /// polls again.
    Ready {
        /// The waiting request to retry.
        waiter: WaiterId,
        /// The file that the waiter wants to lock.
        file: FileKey,
    },
    /// This waiter has lost its position in the queue because a lock that it waited for was broken.
    /// Reply LOCK_BROKEN if the request is parked.
    WaiterBroken {
        /// The waiter that lost its position.
        waiter: WaiterId,
        /// The broken lock.
        conflict: LockConflict,
    },
    /// This waiter has lost its position in the queue, because its client was silent too long, or
    /// because its open, owner or client has ended.
    WaiterGone {
        /// The waiter that lost its position.
        waiter: WaiterId,
    },
    /// Nothing stands against this watched lock any more. Tell the client, which must then request
    /// the lock. The lock is not reserved for it.
    Free {
        /// The client of the owner that watches.
        client: ClientId,
        /// The name that the client uses for the lock owner.
        owner: Box<[u8]>,
        /// The handle of the file, as given with the watch.
        handle: FileHandle,
        /// The number that was given with the watch.
        word: u64,
    },
}

/// The phase of a lock on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordPhase {
    /// The lock is held or breakable. Its client may reclaim it until a conflicting request breaks
    /// it.
    Held,
    /// The lock has no PERSIST and its owner has failed, so the lock ends when its rollback is
    /// done.
    Revoked,
    /// The lock is broken. If it has auto-recovery, its changes must still be rolled back.
    BrokenUnrolled,
    /// The lock is broken, and there are no changes to roll back.
    Broken,
}

/// The record of a lock on stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRecord {
    /// The id of the record.
    pub id: LockId,
    /// The file that is locked. In place of this key the server stores the file's handle, because a
    /// key is valid only while the file is in use. The server keeps the file in use while the
    /// record exists.
    pub file: FileKey,
    /// The id that the client had when the record was written.
    pub client: ClientId,
    /// The client's identity string.
    pub client_name: Box<[u8]>,
    /// The principal that the client authenticated as.
    pub principal: Box<[u8]>,
    /// The verifier, which changes when the client restarts.
    pub verifier: Verifier,
    /// The name that the client uses for the lock owner.
    pub owner: Box<[u8]>,
    /// The locked range of bytes.
    pub range: ByteRange,
    /// The mode of the lock: shared or exclusive.
    pub mode: LockMode,
    /// The options of the lock: PERSIST, AUTORECOVERY or both.
    pub attributes: LockAttributes,
    /// The phase of the lock.
    pub phase: RecordPhase,
}

/// The phase of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The lock is held by its owner.
    Held,
    /// The lock was restored from stable storage in this grace period, and was not reclaimed yet.
    Survived,
    /// The client's lease or the grace period has ended, but no conflicting request has arrived
    /// yet.
    Breakable,
    /// The lock is broken, and belongs to no owner until it is repaired.
    Broken,
    /// The range is locked for all owners while its changes are rolled back.
    RollingBack {
        /// The id of the rollback.
        rollback: RollbackId,
        /// The change of phase after the rollback.
        then: Then,
    },
}

/// The phase of a lock after its rollback is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The owner holds the lock again. Used after an ABORT.
    Held,
    /// The lock is breakable. Used if the client's lease has ended during an ABORT of a lock with
    /// PERSIST.
    Breakable,
    /// The lock ends, because it was revoked.
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

    /// Returns true if requests that conflict with the lock get LOCK_BROKEN.
    pub(super) fn is_broken(self) -> bool {
        matches!(self, Self::Broken | Self::RollingBack { then: Then::Broken, .. })
    }

    /// Returns true if the changes under the lock are being rolled back.
    pub(super) fn is_rolling_back(self) -> bool {
        matches!(self, Self::RollingBack { .. })
    }

    /// Returns the phase to store in the lock's record. A running ABORT is not recorded, because
    /// the client has no reply yet and repeats the ABORT after a restart, when the undo data still
    /// exists.
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

/// A lock on one range, whether it is held or broken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub file: FileKey,
    /// The key of the lock's owner, or of its former owner.
    pub owner: OwnerKey,
    /// The state id of the open under which the lock is used. It is the anonymous state id if the
    /// lock belongs to no owner or was not reclaimed yet.
    pub state: StateId,
    pub range: ByteRange,
    pub mode: LockMode,
    pub attributes: LockAttributes,
    pub phase: Phase,
    /// The id of the lock's stable record. `None` if locks with these attributes have no record.
    pub id: Option<LockId>,
}

impl Hold {
    /// Returns true if this owner holds the lock, so that the owner's requests do not conflict with
    /// it.
    pub(super) fn is_of(&self, owner: Option<OwnerKey>) -> bool {
        owner == Some(self.owner) && !self.phase.is_orphan()
    }
}

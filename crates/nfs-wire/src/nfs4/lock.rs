//! Operations on locks of byte ranges and on state ids (RFC 8881 sections 18.10 to 18.12, 18.38,
//! 18.48 and 18.51).
//!
//! Invariant: a denied lock always comes with the lock that conflicts.

use crate::xdr::{List, xdr};

use super::limits::STATE_IDS_MAX;
use super::status::Status;
use super::types::{LockType, StateId, StateOwner};

xdr! {
    /// Arguments of LOCK.
    #[derive(Copy)]
    struct LockArgs<'b> {
        /// The kind of the lock.
        kind: LockType,
        /// Whether the client held the lock before the restart.
        reclaim: bool,
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes; all ones for all that follow.
        length: u64,
        /// The owner of the lock.
        locker: Locker<'b>,
    }
    /// The owner of a lock.
    #[derive(Copy)]
    union Locker<'b> on u32 {
        /// An owner that holds locks of this file already.
        0 => Known(KnownLocker),
        /// An owner that is new to this open.
        1 => New(NewLocker<'b>),
    }
    /// An owner that holds locks of this file already.
    #[derive(Copy, Default)]
    struct KnownLocker {
        /// The id of the owner's locks.
        state: StateId,
        /// A number that minor version 1 does not use.
        sequence: u32,
    }
    /// An owner that is new to an open.
    #[derive(Copy, Default)]
    struct NewLocker<'b> {
        /// A number that minor version 1 does not use.
        open_sequence: u32,
        /// The open that the locks are for.
        open: StateId,
        /// A number that minor version 1 does not use.
        lock_sequence: u32,
        /// The owner of the locks.
        owner: StateOwner<'b>,
    }
    /// Results of LOCK.
    #[derive(Copy)]
    union LockResult<'b> on Status {
        /// The id of the owner's locks.
        Ok => Locked(StateId),
        /// The lock that conflicts.
        Denied => Denied(LockDenied<'b>),
        /// The lock failed for another reason.
        _ => Failed,
    }
    /// Results of LOCKT.
    #[derive(Copy)]
    union LockTResult<'b> on Status {
        /// The lock would be granted.
        Ok => Free,
        /// The lock that conflicts.
        Denied => Denied(LockDenied<'b>),
        /// The test failed for another reason.
        _ => Failed,
    }
    /// A lock that conflicts.
    #[derive(Copy)]
    struct LockDenied<'b> {
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes; all ones for all that follow.
        length: u64,
        /// The kind of the lock.
        kind: LockType,
        /// The owner of the lock.
        owner: StateOwner<'b>,
    }
    /// Arguments of LOCKT.
    #[derive(Copy)]
    struct LockTArgs<'b> {
        /// The kind of the lock.
        kind: LockType,
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes; all ones for all that follow.
        length: u64,
        /// The owner who would hold the lock.
        owner: StateOwner<'b>,
    }
    /// Arguments of LOCKU.
    #[derive(Copy)]
    struct LockUArgs {
        /// The kind of the lock, which servers need not look at.
        kind: LockType,
        /// A number that minor version 1 does not use.
        sequence: u32,
        /// The id of the owner's locks.
        state: StateId,
        /// The offset of the first byte.
        offset: u64,
        /// The number of bytes; all ones for all that follow.
        length: u64,
    }
    /// Arguments of TEST_STATEID.
    #[derive(Default)]
    struct TestStateIdArgs {
        /// The state ids to test.
        states: List<StateId, STATE_IDS_MAX>,
    }
    /// Results of TEST_STATEID.
    #[derive(Default)]
    struct TestStateIdDone {
        /// A status for each state id.
        statuses: List<Status, STATE_IDS_MAX>,
    }
}

//! Operations on locks of byte ranges and on state ids (RFC 8881 sections 18.10 to 18.12, 18.38,
//! 18.48 and 18.51).
//!
//! Invariant: the result of a denied lock always contains the lock with which it conflicts.

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
        /// True if the client held the lock before a restart of the server.
        reclaim: bool,
        /// The offset in the file of the first byte.
        offset: u64,
        /// The number of bytes; all bits set means up to the end of the file.
        length: u64,
        /// The owner of the lock.
        locker: Locker<'b>,
    }
    /// The owner of a lock.
    #[derive(Copy)]
    union Locker<'b> on u32 {
        /// An owner that already holds locks of this file.
        0 => Known(KnownLocker),
        /// An owner that has no locks under this open yet.
        1 => New(NewLocker<'b>),
    }
    /// An owner that already holds locks of this file.
    #[derive(Copy, Default)]
    struct KnownLocker {
        /// The state id of the owner's locks.
        state: StateId,
        /// A sequence number that only minor version 0 uses.
        sequence: u32,
    }
    /// An owner that has no locks under an open yet.
    #[derive(Copy, Default)]
    struct NewLocker<'b> {
        /// A sequence number that only minor version 0 uses.
        open_sequence: u32,
        /// The state id of the open for which the locks are taken.
        open: StateId,
        /// A sequence number that only minor version 0 uses.
        lock_sequence: u32,
        /// The owner of the locks.
        owner: StateOwner<'b>,
    }
    /// Results of LOCK.
    #[derive(Copy)]
    union LockResult<'b> on Status {
        /// The state id of the owner's locks.
        Ok => Locked(StateId),
        /// The lock with which the request conflicts.
        Denied => Denied(LockDenied<'b>),
        /// The lock failed for another reason.
        _ => Failed,
    }
    /// Results of LOCKT.
    #[derive(Copy)]
    union LockTResult<'b> on Status {
        /// The lock would be granted.
        Ok => Free,
        /// The lock with which the request conflicts.
        Denied => Denied(LockDenied<'b>),
        /// The test failed for another reason.
        _ => Failed,
    }
    /// A lock with which a request conflicts.
    #[derive(Copy)]
    struct LockDenied<'b> {
        /// The offset in the file of the first byte.
        offset: u64,
        /// The number of bytes; all bits set means up to the end of the file.
        length: u64,
        /// The kind of the lock.
        kind: LockType,
        /// The owner that holds the lock.
        owner: StateOwner<'b>,
    }
    /// Arguments of LOCKT.
    #[derive(Copy)]
    struct LockTArgs<'b> {
        /// The kind of the lock.
        kind: LockType,
        /// The offset in the file of the first byte.
        offset: u64,
        /// The number of bytes; all bits set means up to the end of the file.
        length: u64,
        /// The owner for which the lock is tested.
        owner: StateOwner<'b>,
    }
    /// Arguments of LOCKU.
    #[derive(Copy)]
    struct LockUArgs {
        /// The kind of the lock, which servers may ignore.
        kind: LockType,
        /// A sequence number that only minor version 0 uses.
        sequence: u32,
        /// The state id of the owner's locks.
        state: StateId,
        /// The offset in the file of the first byte.
        offset: u64,
        /// The number of bytes; all bits set means up to the end of the file.
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
        /// The status of each state id, in the order of the arguments.
        statuses: List<Status, STATE_IDS_MAX>,
    }
}

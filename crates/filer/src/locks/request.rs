//! The types of requests to the lock table and of its replies.
//!
//! Invariant: every reply and every error corresponds to one fault, or to success.

use dafs_ops::Fault;
use dafs_types::{ClientId, StateId, Verifier};

use super::range::ByteRange;
use crate::FileKey;

/// The mode of a lock: shared or exclusive. The protocol also has lock kinds that wait; such a kind
/// is expressed as a mode and a [`Wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// A shared lock.
    Read,
    /// An exclusive lock.
    Write,
}

impl LockMode {
    /// Returns true if two owners may not hold locks of these modes on the same byte.
    pub(super) const fn conflicts(self, other: Self) -> bool {
        matches!(self, Self::Write) || matches!(other, Self::Write)
    }
}

/// The options of a lock (draft 4.4.1.3, 4.4.1.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockAttributes {
    /// PERSIST: if the owner fails, the lock becomes broken instead of ending.
    pub persist: bool,
    /// AUTORECOVERY: if the owner fails, the changes made under the lock are rolled back.
    pub auto_recovery: bool,
    /// True if the lock excludes only other locks, but no reads and writes. Locks of NFS clients
    /// are such locks.
    pub advisory: bool,
}

impl LockAttributes {
    /// The attributes of a lock without options.
    pub const PLAIN: Self = Self { persist: false, auto_recovery: false, advisory: false };

    /// Returns true if a lock with these options has a record on stable storage.
    pub(super) const fn recorded(self) -> bool {
        self.persist || self.auto_recovery
    }

    /// Returns true if every option of `other` is set in these attributes too.
    pub(super) const fn include(self, other: Self) -> bool {
        (self.persist || !other.persist) && (self.auto_recovery || !other.auto_recovery)
    }
}

/// The purpose of a lock request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Claim {
    /// The request asks for a new lock.
    #[default]
    New,
    /// RECLAIM: the request asks for a lock that the owner held before a failure.
    Reclaim,
    /// REPAIR: the request takes over a broken lock, to repair the data that it protected.
    Repair,
}

/// The id of a waiting request, which the server assigns. It is unique among waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// Says whether a request that cannot be granted now waits. RECLAIM and REPAIR never wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wait {
    /// The request is denied.
    #[default]
    No,
    /// The request is queued, and the client polls. The request keeps its position as long as the
    /// client repeats it within [`super::LockConfig::waiter_silence_max`].
    Poll(WaiterId),
    /// The request is queued, and keeps its position until it is granted or cancelled. The server
    /// parks the request and sends no reply yet.
    Parked(WaiterId),
}

impl Wait {
    /// Returns the id of the waiter. `None` if the request does not wait.
    pub(super) const fn id(self) -> Option<WaiterId> {
        match self {
            Self::No => None,
            Self::Poll(id) | Self::Parked(id) => Some(id),
        }
    }
}

/// The identity of a client. After a restart of the server, the identity shows which locks belong
/// to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockClient<'a> {
    /// The client's present id, which the server has assigned.
    pub id: ClientId,
    /// The client's id string.
    pub name: &'a [u8],
    /// The principal that the client authenticated as, encoded as bytes, which are only compared.
    pub principal: &'a [u8],
    /// The verifier, which changes when the client restarts.
    pub verifier: Verifier,
}

/// The lock owner of a request, with its open of the file. An owner has at most one open of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOwner<'a> {
    /// The client of the owner.
    pub client: LockClient<'a>,
    /// The name of the owner for which the open was made, as chosen by the client.
    pub owner: &'a [u8],
    /// The state id of the owner's open. The caller has checked that the open belongs to this
    /// client and file.
    pub state: StateId,
}

impl<'a> LockOwner<'a> {
    /// Returns the name of the owner without its open.
    #[must_use]
    pub const fn name(&self) -> OwnerName<'a> {
        OwnerName { client: self.client.id, owner: self.owner }
    }
}

/// The name of a lock owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerName<'a> {
    /// The client of the owner.
    pub client: ClientId,
    /// The owner's name, as chosen by the client.
    pub owner: &'a [u8],
}

/// The arguments of LOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The file to lock.
    pub file: FileKey,
    /// The offset of the first byte to lock.
    pub offset: u64,
    /// The number of bytes to lock. `u64::MAX` means up to the end of the file.
    pub length: u64,
    /// The requested mode: shared or exclusive.
    pub mode: LockMode,
    /// The options of the requested lock.
    pub attributes: LockAttributes,
    /// The purpose of the request: a new lock, RECLAIM or REPAIR.
    pub claim: Claim,
    /// What to do if the lock cannot be granted now: deny the request or queue it.
    pub wait: Wait,
}

/// A lock or a waiting request that conflicts with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockConflict {
    /// The client of the conflicting owner.
    pub client: ClientId,
    /// The conflicting owner, by the name that its client uses.
    pub owner: Box<[u8]>,
    /// The range of the conflicting lock or request.
    pub range: ByteRange,
    /// The mode of the conflicting lock or request: shared or exclusive.
    pub mode: LockMode,
}

/// The result of a LOCK request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockReply {
    /// The lock is held. The server must not reply before earlier writes of other clients to the
    /// file have ended and the records that the actions write are durable.
    Granted,
    /// Another owner's lock, or an earlier request of another owner, conflicts.
    Denied(LockConflict),
    /// A broken lock conflicts. This request itself may have broken the lock, because DAFS defines
    /// the same status for the request that breaks a lock (draft 4.4.1.5).
    Broken(LockConflict),
    /// The request is queued.
    Waiting {
        /// The number of requests before this request in the queue; 0 for the first.
        position: u32,
        /// The lock or request that blocks this request.
        conflict: LockConflict,
    },
    /// Granting or queueing the request would make its owner wait for itself, directly or through
    /// other owners. The request is not queued.
    Deadlock(LockConflict),
}

impl LockReply {
    /// Returns the reason why the lock is not held. `None` if it is held.
    #[must_use]
    pub const fn fault(&self) -> Option<Fault> {
        match self {
            Self::Granted => None,
            Self::Denied(_) | Self::Waiting { .. } => Some(Fault::Denied),
            Self::Broken(_) => Some(Fault::LockBroken),
            Self::Deadlock(_) => Some(Fault::Deadlock),
        }
    }
}

/// The result of a LOCKT request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockTestReply {
    /// No lock conflicts.
    Free,
    /// A held lock conflicts.
    Denied(LockConflict),
    /// A broken lock conflicts.
    Broken(LockConflict),
}

/// The reason why a request about locks is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// The length is 0 or the range ends beyond the largest offset.
    #[error("the lock range is empty or ends beyond the largest file offset")]
    Range,
    /// The arguments of the request contradict each other, or the id of the waiter is in use.
    #[error("the lock request contradicts itself")]
    Contradiction,
    /// The owner has a lock in the range with an option that the request lacks.
    #[error(
        "the owner has a lock in the range with an option that the request lacks; unlock it first"
    )]
    OptionsDiffer,
    /// The range covers only part of a whole-file auto-recovery lock, and this server keeps undo
    /// data only for whole files.
    #[error("this server can unlock or roll back an auto-recovery lock only as a whole")]
    SubRange,
    /// The server does not support an option of the request, or not with this range or mode.
    #[error("this server does not support a lock option of the request")]
    NotSupported,
    /// A limit on the number of locks or waiters is reached.
    #[error("a limit on locks or waiters is reached")]
    Resource,
    /// There is no lock to which the request applies. The request is a REPAIR of a range without a
    /// broken lock, a shared REPAIR of an exclusive lock, or an ABORT of a range without an
    /// auto-recovery lock of the owner.
    #[error("there is nothing in the range to repair or roll back")]
    NothingThere,
    /// The request is a RECLAIM of a lock that was not kept for the owner.
    #[error("the lock was lost and cannot be reclaimed")]
    Lost,
    /// A lock of the owner in the range is being rolled back.
    #[error("a lock in the range is being rolled back")]
    RollingBack,
}

impl From<LockError> for Fault {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Range | LockError::Contradiction | LockError::NothingThere => Self::Invalid,
            LockError::OptionsDiffer | LockError::SubRange => Self::LockRange,
            LockError::NotSupported => Self::NotSupported,
            LockError::Resource => Self::Limit,
            LockError::Lost => Self::Expired,
            LockError::RollingBack => Self::WouldWait,
        }
    }
}

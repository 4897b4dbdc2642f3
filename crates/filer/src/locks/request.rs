//! The requests and replies of the lock table.
//!
//! Invariant: every reply and every error maps to one fault or to none.

use dafs_ops::Fault;
use dafs_types::{ClientId, StateId, Verifier};

use super::range::ByteRange;
use crate::FileKey;

/// Shared or exclusive. The waiting lock kinds of the wire are this plus a [`Wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// A shared lock.
    Read,
    /// An exclusive lock.
    Write,
}

impl LockMode {
    /// Returns true if two owners may not hold these modes at once.
    pub(super) const fn conflicts(self, other: Self) -> bool {
        matches!(self, Self::Write) || matches!(other, Self::Write)
    }
}

/// The options that a lock keeps (draft 4.4.1.3, 4.4.1.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockAttributes {
    /// PERSIST: the lock breaks, instead of vanishing, when its owner fails.
    pub persist: bool,
    /// AUTORECOVERY: changes made under the lock are rolled back when its owner fails.
    pub auto_recovery: bool,
}

impl LockAttributes {
    /// A lock without options.
    pub const PLAIN: Self = Self { persist: false, auto_recovery: false };

    /// Returns true if a lock with these options has a record on stable storage.
    pub(super) const fn recorded(self) -> bool {
        self.persist || self.auto_recovery
    }

    /// Returns true if every option of `other` is set here, too.
    pub(super) const fn include(self, other: Self) -> bool {
        (self.persist || !other.persist) && (self.auto_recovery || !other.auto_recovery)
    }
}

/// The purpose of a lock request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Claim {
    /// To get a new lock.
    #[default]
    New,
    /// RECLAIM: to get back a lock held before a failure.
    Reclaim,
    /// REPAIR: to repair the data that a broken lock protected.
    Repair,
}

/// The driver's id of a waiting request, unique among those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// What happens to a request that cannot be granted. RECLAIM and REPAIR never wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wait {
    /// The request is denied.
    #[default]
    No,
    /// The request is queued, and keeps its position while it is repeated within
    /// [`super::LockConfig::waiter_silence_max`].
    Poll(WaiterId),
    /// The request is queued, and keeps its position until it is granted or cancelled. The driver
    /// keeps the request and sends no reply yet.
    Parked(WaiterId),
}

impl Wait {
    /// Returns the id of the waiter.
    pub(super) const fn id(self) -> Option<WaiterId> {
        match self {
            Self::No => None,
            Self::Poll(id) | Self::Parked(id) => Some(id),
        }
    }
}

/// The identity of a client: what a lock that outlives the server needs to recognize its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockClient<'a> {
    /// The client's present id.
    pub id: ClientId,
    /// The client's id string.
    pub name: &'a [u8],
    /// The principal that the client authenticated as, in the caller's encoding; only compared.
    pub principal: &'a [u8],
    /// The verifier, which changes when the client restarts.
    pub verifier: Verifier,
}

/// The lock owner of a request. Owner and open belong together: an owner has one open of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOwner<'a> {
    /// The client of the owner.
    pub client: LockClient<'a>,
    /// The lock owner that the open was made for.
    pub owner: &'a [u8],
    /// The open's state id, already checked to be this client's open of the file.
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
    /// The client's name for the owner.
    pub owner: &'a [u8],
}

/// The arguments of LOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The file to lock.
    pub file: FileKey,
    /// The first byte of the range.
    pub offset: u64,
    /// The length in bytes; all ones means to the end of the file.
    pub length: u64,
    /// The requested mode: shared or exclusive.
    pub mode: LockMode,
    /// The options that the lock keeps.
    pub attributes: LockAttributes,
    /// The purpose of the request.
    pub claim: Claim,
    /// What to do if it cannot be granted now.
    pub wait: Wait,
}

/// A lock or request that conflicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockConflict {
    /// The client of the conflicting owner.
    pub client: ClientId,
    /// The lock owner that conflicts, as its client named it.
    pub owner: Box<[u8]>,
    /// The range of the conflicting lock.
    pub range: ByteRange,
    /// The mode of the conflicting lock: shared or exclusive.
    pub mode: LockMode,
}

/// The result of a LOCK request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockReply {
    /// The lock is held. Reply once earlier writes of other clients to the file are done and the
    /// records among the actions are stable.
    Granted,
    /// Another owner's lock, or an earlier request of another owner, conflicts.
    Denied(LockConflict),
    /// A broken lock conflicts. This very request may have broken it: DAFS gives the same status to
    /// a request that breaks a lock (draft 4.4.1.5).
    Broken(LockConflict),
    /// The request is queued.
    Waiting {
        /// The number of requests before it; 0 for the first.
        position: u32,
        /// The lock or request it waits for.
        conflict: LockConflict,
    },
    /// The owner would wait for itself in the end. The request is not queued.
    Deadlock(LockConflict),
}

impl LockReply {
    /// Returns the reason why the lock is not held; `None` if it is.
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
    /// The parts of the request contradict each other, or the waiter's id is in use.
    #[error("the lock request contradicts itself")]
    Contradiction,
    /// A lock of this owner in the range has an option that the request lacks.
    #[error(
        "the owner has a lock in the range with an option that the request lacks; unlock it first"
    )]
    OptionsDiffer,
    /// The range is only part of a whole-file auto-recovery lock, and this server keeps undo data
    /// for whole files only.
    #[error("this server can unlock or roll back an auto-recovery lock only as a whole")]
    SubRange,
    /// The server does not support an option, or not for this range or mode.
    #[error("this server does not support a lock option of the request")]
    NotSupported,
    /// A limit is reached.
    #[error("a limit on locks or waiters is reached")]
    Resource,
    /// Nothing matches: REPAIR of a range in which nothing is broken, or of an exclusive lock by a
    /// shared one; ABORT of a range without an auto-recovery lock of the owner.
    #[error("there is nothing in the range to repair or roll back")]
    NothingThere,
    /// A RECLAIM of a lock that was not kept for the owner.
    #[error("the lock was lost and cannot be reclaimed")]
    Lost,
    /// A lock of this owner in the range is being rolled back.
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

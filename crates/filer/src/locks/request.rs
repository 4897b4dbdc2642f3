//! What is asked of the lock table and what it answers.
//!
//! Invariant: every answer and every error is one fault, or none.

use dafs_ops::Fault;
use dafs_types::{ClientId, StateId, Verifier};

use super::range::ByteRange;
use crate::FileKey;

/// Shared or exclusive. The wire's waiting kinds are this and a [`Wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
}

impl LockMode {
    /// Whether two owners may not have these at once.
    pub(super) const fn conflicts(self, other: Self) -> bool {
        matches!(self, Self::Write) || matches!(other, Self::Write)
    }
}

/// The options that stay with a lock (draft 4.4.1.3, 4.4.1.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockAttributes {
    /// PERSIST: breaks, instead of vanishing, when its owner fails.
    pub persist: bool,
    /// AUTORECOVERY: changes made under it are rolled back when its owner fails.
    pub auto_recovery: bool,
}

impl LockAttributes {
    /// Neither.
    pub const PLAIN: Self = Self { persist: false, auto_recovery: false };

    /// Whether a lock like this has a record on stable storage.
    pub(super) const fn recorded(self) -> bool {
        self.persist || self.auto_recovery
    }

    /// Whether these have all that `other` has.
    pub(super) const fn include(self, other: Self) -> bool {
        (self.persist || !other.persist) && (self.auto_recovery || !other.auto_recovery)
    }
}

/// Why the lock is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Claim {
    /// To have it.
    #[default]
    New,
    /// To have it back: RECLAIM.
    Reclaim,
    /// To repair what a broken lock protected: REPAIR.
    Repair,
}

/// The driver's name for a request that waits. Unique among those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// What happens to a request that cannot be granted. RECLAIM and REPAIR never wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wait {
    /// It is denied.
    #[default]
    No,
    /// It gets a place in the queue and keeps it as long as it is asked again within
    /// [`super::LockConfig::waiter_silence_max`].
    Poll(WaiterId),
    /// It gets a place in the queue and keeps it until it is granted or cancelled: the
    /// driver keeps the request itself, unanswered.
    Parked(WaiterId),
}

impl Wait {
    /// The waiter's name.
    pub(super) const fn id(self) -> Option<WaiterId> {
        match self {
            Self::No => None,
            Self::Poll(id) | Self::Parked(id) => Some(id),
        }
    }
}

/// Who a client is, beyond its id: what a lock that outlives the server needs to find its
/// client again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockClient<'a> {
    /// The id it has now.
    pub id: ClientId,
    /// Its client id string.
    pub name: &'a [u8],
    /// As whom it authenticated, in the caller's encoding; only compared.
    pub principal: &'a [u8],
    /// Changes when the client restarts.
    pub verifier: Verifier,
}

/// Who asks for a lock. Owner and open belong together: an owner has one open of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOwner<'a> {
    /// The client.
    pub client: LockClient<'a>,
    /// The lock owner that the open was made for.
    pub owner: &'a [u8],
    /// The open, already found to be this client's open of the file.
    pub state: StateId,
}

impl<'a> LockOwner<'a> {
    /// Its name alone.
    #[must_use]
    pub const fn name(&self) -> OwnerName<'a> {
        OwnerName { client: self.client.id, owner: self.owner }
    }
}

/// Names a lock owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerName<'a> {
    /// Its client.
    pub client: ClientId,
    /// The client's name for it.
    pub owner: &'a [u8],
}

/// LOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The file.
    pub file: FileKey,
    /// First byte.
    pub offset: u64,
    /// Bytes; all ones to the end of the file.
    pub length: u64,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// What stays with the lock.
    pub attributes: LockAttributes,
    /// Why.
    pub claim: Claim,
    /// And if it cannot be had.
    pub wait: Wait,
}

/// A lock in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockConflict {
    /// Client of its owner.
    pub client: ClientId,
    /// Its owner.
    pub owner: Box<[u8]>,
    /// What it covers.
    pub range: ByteRange,
    /// Its kind.
    pub mode: LockMode,
}

/// Answer to LOCK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockAnswer {
    /// It is held. Answer once what was written to the file before by others is done, and
    /// the records among the actions are stable.
    Granted,
    /// Another owner's lock is in the way, or another owner's request that came first.
    Denied(LockConflict),
    /// A broken lock is in the way, perhaps broken by this very request: DAFS gives this
    /// answer to who breaks a lock, too (draft 4.4.1.5).
    Broken(LockConflict),
    /// It has a place in the queue.
    Waiting {
        /// Requests before it; 0 for the first.
        position: u32,
        /// What it waits for.
        conflict: LockConflict,
    },
    /// Its owner would wait, in the end, for itself. It has no place in the queue.
    Deadlock(LockConflict),
}

impl LockAnswer {
    /// Why the lock is not held; `None` if it is.
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

/// Answer to LOCKT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockTestAnswer {
    /// Nothing is in the way.
    Free,
    /// A lock is in the way.
    Denied(LockConflict),
    /// A broken lock is in the way.
    Broken(LockConflict),
}

/// Why a request about locks is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Length of 0, or beyond the largest offset.
    #[error("the lock range is empty or leaves the file offsets there are")]
    Range,
    /// The request's parts make no sense together, or its waiter's name is in use.
    #[error("the lock request contradicts itself")]
    Contradiction,
    /// An own lock in the range has an option that the request has not.
    #[error("an own lock in the range has an option that the request lacks; unlock it first")]
    OptionsDiffer,
    /// Only part of a whole-file auto-recovery lock, of which this server keeps one undo.
    #[error("an auto-recovery lock can only be unlocked or rolled back as a whole here")]
    SubRange,
    /// An option this server does not serve, or not for this range or kind.
    #[error("a lock option is not served here")]
    NotSupported,
    /// A limit is reached.
    #[error("a limit on locks or waiters is reached")]
    Resource,
    /// REPAIR of a range in which nothing is broken, or of an exclusive lock by a shared
    /// one; ABORT of a range without an auto-recovery lock of the owner.
    #[error("nothing in the range to repair or roll back")]
    NothingThere,
    /// RECLAIM of what the owner did not keep.
    #[error("the lock was lost and cannot be reclaimed")]
    Lost,
    /// An own lock in the range is being rolled back.
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

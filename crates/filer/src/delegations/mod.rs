//! Delegations: a client answers for a file by itself until it is called back (draft
//! 6.5.10, 6.5.11, 6.5.24, 6.6.3, 6.6.4; RFC 3010 chapter 9, which the draft leans on).
//!
//! Invariant: a file has one write delegation, or any number of read delegations, or none;
//! no two of one client. The state id of a delegation that was returned or revoked is never
//! honoured again. Nothing is granted on a file that somebody waits for. Whoever waits is
//! released when the last delegation in the way is gone, and every delegation that is in
//! somebody's way goes within a bounded time.
//!
//! ```text
//!            ┌──────────────DELEGRETURN, client gone───────────────► gone
//!            │                                                        ▲
//! grant ─► granted ──a touch in conflict──► recalling ─DELEGRETURN────┤
//!            │  ▲                              │ deadline             │
//!            │  │ CLAIM_DELEGATE_PREV          ▼                      │
//!            │  │                           revoked ──DELEGRETURN─────┤
//!            ▼  │                                     client gone     │
//!        awaiting recovery ────DELEGPURGE, time, client gone──────────┘
//!      (the client restarted)
//! ```
//!
//! What is in the way of what; a client's own delegation never is:
//!
//! | touch                        | read delegation | write delegation |
//! |------------------------------|-----------------|------------------|
//! | OPEN to read, READ           | -               | recall           |
//! | OPEN to write or denying reads, WRITE | recall | recall           |
//! | GETATTR                      | -               | ask the holder   |
//! | SETATTR, REMOVE, RENAME, LINK| recall          | recall           |
//! | LOCK to read                 | -               | recall           |
//! | LOCK to write                | recall          | recall           |
//!
//! READ and WRITE under an open's state id need not be checked: their OPEN was.
//!
//! Choices of this server:
//! - A revoked delegation leaves its number behind until the holder has returned it (the
//!   answer is EXPIRED, RFC 3010 8.7) or is gone. Such a holder gets no new delegations.
//! - The draft releases all of a client's state when it restarts (4.4.1.1), and yet has
//!   CLAIM_DELEGATE_PREV and DELEGPURGE. [`DelegationPolicy::recovery`] decides: zero obeys
//!   the first; otherwise delegations wait that long for the client's new life.
//! - Whoever would wait beyond [`DelegationPolicy::waiters_max`] is answered with DELAY
//!   (draft chapter 7 has it for this), and the recall goes on.
//! - A read delegation is not in the way of an open that denies writes: its holder may
//!   have opened the file to read without a word, no more.
//! - BC_RECALL may reach a client before the answer to its OPEN, on another channel. A
//!   client that does not know the delegation is asked again; only time revokes.

mod lists;
mod policy;
mod recall;
mod slots;
mod table;

pub use policy::DelegationPolicy;
pub use table::{DelegationCounters, DelegationTable};

use dafs_types::{ClientId, FileHandle, Moment, ShareAccess, ShareDeny, SpaceLimit, StateId};

use crate::FileKey;

/// What a client may answer for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DelegationKind {
    /// Opens to read: nobody else changes the file.
    Read,
    /// Everything: nobody else has the file open.
    Write,
}

/// What the caller knows of an OPEN that has just succeeded.
#[derive(Clone, Copy, Debug)]
pub struct DelegationFacts {
    /// Who opened.
    pub client: ClientId,
    /// What.
    pub file: FileKey,
    /// Its handle, for the recall.
    pub handle: FileHandle,
    /// What the open may do.
    pub access: ShareAccess,
    /// Whether the client can be called back.
    pub can_recall: bool,
    /// Whether another client has the file open at all.
    pub others_open: bool,
    /// Whether another client has it open to write.
    pub others_write: bool,
    /// Bytes of the file.
    pub size: u64,
    /// Bytes free in its file system.
    pub space: u64,
}

/// Why an open got no delegation. Nothing of this reaches the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoDelegation {
    /// The policy grants none.
    Disabled,
    /// The client could not be called back.
    CannotBeRecalled,
    /// The client has one for this file.
    HeldAlready,
    /// Another client's open or delegation is in the way.
    Conflict,
    /// Somebody waits for the file, or a delegation of it is on its way back.
    Recalling,
    /// The file was called back lately.
    Quiet,
    /// The client has not returned what was revoked.
    Untrustworthy,
    /// A table is full.
    Limit,
}

/// A delegation for the answer to OPEN (draft 6.5.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedDelegation {
    /// Names it. Never the state id of an open.
    pub state_id: StateId,
    /// What it is for.
    pub kind: DelegationKind,
    /// It is called back by this very answer; no BC_RECALL follows.
    pub recall: bool,
    /// How far the file may grow; of write delegations only.
    pub limit: Option<SpaceLimit>,
}

/// Something that may be in conflict with a delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// OPEN, before it is granted.
    Open {
        /// What the open will do.
        access: ShareAccess,
        /// What others may not do.
        deny: ShareDeny,
        /// The file is cut to nothing.
        truncate: bool,
    },
    /// READ with the anonymous state id.
    Read,
    /// WRITE or APPEND with the anonymous state id.
    Write,
    /// GETATTR, VERIFY and what else shows size, change or time.
    GetAttributes {
        /// Whether the holder may be asked; if that failed, the delegation is recalled.
        may_ask: bool,
    },
    /// SETATTR.
    SetAttributes {
        /// The file is cut to nothing.
        truncate: bool,
    },
    /// REMOVE of one of its names, or a RENAME over it.
    Remove,
    /// RENAME of the file.
    Rename,
    /// LINK to the file.
    Link,
    /// LOCK.
    Lock {
        /// A lock to write.
        exclusive: bool,
    },
}

/// What a [`Touch`] may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegationDecision {
    /// Go on.
    Proceed,
    /// Park the request; [`DelegationAction::Resume`] names it when it may be checked again.
    Wait,
    /// Send BC_GETATTR to the holder and answer with what it says.
    AskAttributes {
        /// The holder.
        client: ClientId,
        /// The file.
        handle: FileHandle,
    },
    /// Answer with DELAY: too many wait.
    Delay,
}

/// The driver's name for a parked request, unique among those that are parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// What the driver does next, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegationAction {
    /// Send BC_RECALL, and tell [`DelegationTable::recall_answered`] what came of it.
    Recall {
        /// The holder.
        client: ClientId,
        /// The file.
        handle: FileHandle,
        /// The delegation.
        state_id: StateId,
        /// Changed data need not be written back.
        truncate: bool,
    },
    /// Check a parked request again.
    Resume {
        /// Which.
        waiter: WaiterId,
    },
    /// A holder did not return its delegation in time; worth a line in the log.
    Revoked {
        /// The holder.
        client: ClientId,
        /// The file.
        handle: FileHandle,
    },
}

/// What came of a BC_RECALL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecallAnswer {
    /// OK: the client will return it.
    Accepted,
    /// BADHANDLE, BAD_STATEID or RESOURCE: not now, or not yet known to it.
    Refused,
    /// The client could not be reached.
    Undelivered,
}

/// Where a delegation stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegationPhase {
    /// In force.
    Granted,
    /// In force, but asked back.
    Recalling {
        /// When it is revoked.
        deadline: Moment,
    },
    /// Of a client's earlier life.
    Awaiting {
        /// When it is dropped.
        until: Moment,
    },
    /// Over; the holder has yet to return it.
    Revoked,
}

/// One delegation, for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegationInformation {
    /// The file.
    pub file: FileKey,
    /// Its handle.
    pub handle: FileHandle,
    /// The holder.
    pub client: ClientId,
    /// Its state id.
    pub state_id: StateId,
    /// What it is for.
    pub kind: DelegationKind,
    /// Where it stands.
    pub phase: DelegationPhase,
    /// Since when.
    pub granted: Moment,
}

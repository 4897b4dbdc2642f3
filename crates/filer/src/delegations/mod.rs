//! Delegations: a client serves requests for a file locally until the server recalls the delegation
//! (draft 6.5.10, 6.5.11, 6.5.24, 6.6.3, 6.6.4; RFC 3010 chapter 9, on which the draft relies).
//!
//! Invariants:
//! - A file has one write delegation, or any number of read delegations, or none. A client has at
//!   most one delegation of a file.
//! - The state id of a delegation that was returned or revoked is never honoured again.
//! - No delegation of a file is granted while a request waits for the file.
//! - A waiting request is released when the last conflicting delegation is gone, and every
//!   delegation that blocks a request ends within a bounded time.
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
//! The following table shows which requests (called touches in the diagram) conflict with a
//! delegation of another client. A client's own delegation never conflicts.
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
//! READ and WRITE under the state id of an open need no check, because their OPEN was checked.
//!
//! Decisions of this server:
//! - The state id of a revoked delegation is kept until the holder has returned it or has ended.
//!   Requests that use it get EXPIRED (RFC 3010 8.7). Such a holder gets no new delegations.
//! - The draft releases all of a client's state when the client restarts (4.4.1.1), although it
//!   also has CLAIM_DELEGATE_PREV and DELEGPURGE. [`DelegationPolicy::recovery`] decides: zero
//!   follows 4.4.1.1; otherwise it is the time for which delegations wait for the client's next
//!   incarnation.
//! - A request that would exceed [`DelegationPolicy::waiters_max`] gets DELAY (draft chapter 7
//!   defines it for this case), and the recall continues.
//! - A read delegation does not conflict with an open that denies writes: without a request to the
//!   server, the holder can have opened the file only for reading.
//! - BC_RECALL may reach a client before the reply to its OPEN, because the two use different
//!   channels. If the client does not know the delegation yet, the recall is sent again. Only the
//!   timeout revokes the delegation.

mod lists;
mod policy;
mod recall;
mod slots;
mod table;

pub use policy::DelegationPolicy;
pub use table::{DelegationCounters, DelegationTable};

use dafs_types::{ClientId, FileHandle, Moment, ShareAccess, ShareDeny, SpaceLimit, StateId};

use crate::FileKey;

/// The kind of a delegation, which decides what operations its holder may serve locally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DelegationKind {
    /// The holder may open the file to read without asking the server; no other client changes the
    /// file.
    Read,
    /// The holder may open, read and write the file without asking the server; no other client has
    /// the file open.
    Write,
}

/// The facts about an OPEN that has just succeeded. They decide whether its client gets a
/// delegation.
#[derive(Clone, Copy, Debug)]
pub struct DelegationFacts {
    /// The client that opened the file.
    pub client: ClientId,
    /// The file that was opened.
    pub file: FileKey,
    /// The file's handle, which the recall will contain.
    pub handle: FileHandle,
    /// The access that the open allows.
    pub access: ShareAccess,
    /// True if the client can receive a recall.
    pub can_recall: bool,
    /// True if another client has the file open, for reading or writing.
    pub others_open: bool,
    /// True if another client has the file open for writing.
    pub others_write: bool,
    /// The size of the file in bytes.
    pub size: u64,
    /// The number of free bytes in the file system.
    pub space: u64,
}

/// The reason why an OPEN got no delegation. The reason is not reported to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoDelegation {
    /// The policy does not allow any delegations.
    Disabled,
    /// The client cannot receive a recall.
    CannotBeRecalled,
    /// The client already has a delegation of the file.
    HeldAlready,
    /// An open or a delegation of another client conflicts.
    Conflict,
    /// A request waits for the file, or a delegation of the file is being recalled.
    Recalling,
    /// A delegation of the file was recalled a short time ago.
    Quiet,
    /// The client has not returned a delegation that was revoked, so it gets no new delegations.
    Untrustworthy,
    /// A limit on the number of delegations is reached.
    Limit,
}

/// A delegation in the form in which the reply to OPEN reports it (draft 6.5.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedDelegation {
    /// The state id of the delegation. It differs from the state ids of all opens.
    pub state_id: StateId,
    /// The kind of the delegation.
    pub kind: DelegationKind,
    /// True if the reply to OPEN itself also recalls the delegation, so that no BC_RECALL is sent.
    pub recall: bool,
    /// The limit up to which the holder may let the file grow. `None` for read delegations.
    pub limit: Option<SpaceLimit>,
}

/// An operation that may conflict with a delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOperation {
    /// An OPEN, before it is granted.
    Open {
        /// The access that the open requests.
        access: ShareAccess,
        /// The access that the open denies to other owners.
        deny: ShareDeny,
        /// True if the open truncates the file to length zero.
        truncate: bool,
    },
    /// A READ with the anonymous state id.
    Read,
    /// A WRITE or APPEND with the anonymous state id.
    Write,
    /// A request that reports the size, change attribute or times, such as GETATTR or VERIFY.
    GetAttributes {
        /// True if the server may ask the delegation's holder for the attributes. If the holder
        /// does not reply, the check is repeated with false, so that the delegation is recalled.
        may_ask: bool,
    },
    /// A SETATTR of any attribute.
    SetAttributes {
        /// True if the request truncates the file to length zero.
        truncate: bool,
    },
    /// A REMOVE of one of the file's names, or a RENAME of another file to one of them.
    Remove,
    /// A RENAME of the file.
    Rename,
    /// A LINK to the file.
    Link,
    /// A LOCK on a range of the file.
    Lock {
        /// True for an exclusive lock.
        exclusive: bool,
    },
}

/// The decision about a [`FileOperation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegationDecision {
    /// The operation may proceed.
    Proceed,
    /// The request must be parked, and must be checked again after a [`DelegationAction::Resume`]
    /// with its id.
    Wait,
    /// The server must send BC_GETATTR to the holder of the delegation, and use the attributes in
    /// the reply.
    AskAttributes {
        /// The client that holds the delegation.
        client: ClientId,
        /// The handle of the file.
        handle: FileHandle,
    },
    /// Too many requests wait already, so the server must reply with DELAY.
    Delay,
}

/// The id of a parked request, which the server assigns. It is unique among parked requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// The next action that the delegation table requires of the server. Actions must be executed in
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegationAction {
    /// Send BC_RECALL to the holder, then report the result to [`DelegationTable::recall_done`].
    Recall {
        /// The client that holds the delegation.
        client: ClientId,
        /// The handle of the file.
        handle: FileHandle,
        /// The state id of the delegation.
        state_id: StateId,
        /// True if the holder need not write its dirty data back, because the file is about to be
        /// truncated.
        truncate: bool,
    },
    /// Check this parked request again.
    Resume {
        /// The id of the parked request.
        waiter: WaiterId,
    },
    /// The holder did not return its delegation before the deadline, so the delegation was revoked.
    /// The server should log this.
    Revoked {
        /// The client that held the delegation.
        client: ClientId,
        /// The handle of the file.
        handle: FileHandle,
    },
}

/// The result of a BC_RECALL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecallOutcome {
    /// The client replied OK, so it will return the delegation.
    Accepted,
    /// The client replied BADHANDLE, BAD_STATEID or RESOURCE: it cannot return the delegation now,
    /// or does not know the delegation yet.
    Refused,
    /// The client could not be reached.
    Undelivered,
}

/// The phase of a delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegationPhase {
    /// The delegation is in force.
    Granted,
    /// The delegation is in force, but is being recalled.
    Recalling {
        /// The time at which the delegation is revoked.
        deadline: Moment,
    },
    /// The delegation belongs to an earlier incarnation of the client. The present incarnation may
    /// claim it.
    Awaiting {
        /// The time at which the delegation is dropped if it was not claimed.
        until: Moment,
    },
    /// The delegation was revoked, and the holder has not returned it yet.
    Revoked,
}

/// A description of one delegation for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegationInformation {
    /// The file's key in the store.
    pub file: FileKey,
    /// The file's handle in the protocol.
    pub handle: FileHandle,
    /// The client that holds the delegation.
    pub client: ClientId,
    /// The state id of the delegation.
    pub state_id: StateId,
    /// The kind of the delegation.
    pub kind: DelegationKind,
    /// The phase of the delegation.
    pub phase: DelegationPhase,
    /// The time at which the delegation was granted.
    pub granted: Moment,
}

//! The callbacks that have not ended: recalls of delegations, questions for the attributes of
//! delegated files, and notices of locks and of copies.

use std::collections::HashMap;

use dafs_dat::records::LinkId;
use dafs_filer::WaiterId;
use dafs_nfs_state::SessionKey;
use dafs_nfs_wire::nfs4::StateId as Wire;
use dafs_types::{ClientId, FileHandle, StateId, Verifier};
use smallvec::SmallVec;

use super::copies::CopyEnd;

/// The callbacks that have not ended.
#[derive(Debug, Default)]
pub(super) struct Callbacks {
    /// The contents, by the numbers that [`dafs_nfs_state`] knows.
    pub contents: HashMap<u64, Content>,
    pub last_content: u64,
    /// The calls without a reply, by their RPC identifiers.
    pub in_flight: HashMap<u32, InFlight>,
    pub last_xid: u32,
}

/// The content of a callback.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Recall(Recall),
    /// A lock that was denied to an owner can be taken now.
    LockFree(LockFree),
    /// The attributes of a delegated file are needed.
    Ask(Ask),
    /// A copy has ended.
    Offload(Offloaded),
}

/// A notice that a lock can be taken.
#[derive(Clone, Debug)]
pub(super) struct LockFree {
    /// The filer's id of the client.
    pub client: ClientId,
    /// The client's id in messages.
    pub shown: ClientId,
    /// The name of the lock owner.
    pub owner: Box<[u8]>,
    pub file: FileHandle,
}

/// A question for the attributes of a file that is delegated for writing.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    /// The filer's id of the client.
    pub client: ClientId,
    /// The filer's state id of the delegation.
    pub state: StateId,
    pub file: FileHandle,
    /// The requests that wait for the attributes.
    pub waiters: SmallVec<[WaiterId; 1]>,
    /// True if the question was sent. A request that arrives later asks again, because the client
    /// may change the file after its reply.
    pub is_sent: bool,
    /// The reply of the client, once it has arrived.
    pub reply: Option<Report>,
}

/// The end of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offloaded {
    /// The filer's id of the client.
    pub client: ClientId,
    /// The number of the copy.
    pub number: u64,
    /// The state id of the copy in the form of messages.
    pub shown: Wire,
    /// The file into which bytes were copied.
    pub file: FileHandle,
    pub verifier: Verifier,
    pub end: CopyEnd,
}

/// The attributes that the holder of a delegation reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub change: u64,
    pub size: u64,
}

/// The recall of a delegation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recall {
    /// The filer's id of the client.
    pub client: ClientId,
    /// The filer's state id of the delegation.
    pub state: StateId,
    /// The state id in the form of messages.
    pub shown: Wire,
    pub file: FileHandle,
    pub truncate: bool,
}

impl Content {
    /// Returns the filer's id of the client.
    pub(super) fn client(&self) -> ClientId {
        match self {
            Self::Recall(recall) => recall.client,
            Self::LockFree(free) => free.client,
            Self::Ask(ask) => ask.client,
            Self::Offload(offloaded) => offloaded.client,
        }
    }
}

/// A call without a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub link: LinkId,
    pub session: SessionKey,
    pub slot: u32,
    pub sequence: u32,
    /// The number of the callback that the call belongs to.
    pub word: u64,
    /// True if the call contains an operation after the CB_SEQUENCE.
    pub has_content: bool,
}

//! The opens and delegations of version 4 clients, except their state ids.
//!
//! [`dafs_nfs_state`] has the table of all state ids. [`States`] adds what only this server knows.
//!
//! Invariant: each open and each delegation of the filer that belongs to a client of version 4 has
//! one entry in [`States`] and one state id.

use std::collections::HashMap;

use dafs_filer::ClientKey;
use dafs_nfs_state::{ClientKey as Nfs4Client, ReferringCall, StateKey, Stateid4};
use dafs_nfs_wire::nfs4::open::ShareAccess as AskedAccess;
use dafs_nfs_wire::nfs4::{StateId as Wire, Status};
use dafs_types::{ClientId, FileHandle, ShareAccess, ShareDeny, StateId};

use super::fault::Result;

/// The opens and delegations of all clients, by their state ids in the filer.
#[derive(Debug, Default)]
pub(super) struct States {
    pub opens: HashMap<StateId, OpenState>,
    pub delegations: HashMap<StateId, DelegationState>,
    /// The delegation for writing that was granted last.
    pub latest: Option<StateId>,
}

/// An open of a client, except its state id.
#[derive(Debug)]
pub(super) struct OpenState {
    pub client: ClientKey,
    pub file: FileHandle,
    pub access: ShareAccess,
    pub deny: ShareDeny,
}

/// A delegation of a client.
#[derive(Debug)]
pub(super) struct DelegationState {
    pub client: ClientKey,
    /// The filer's id of the client.
    pub client_id: ClientId,
    pub nfs_client: Nfs4Client,
    pub key: StateKey,
    pub file: FileHandle,
    /// The request that was granted the delegation.
    pub granted: Option<ReferringCall>,
    /// The change attribute that the client was shown together with the delegation. By it, the
    /// client's report shows whether the client has changed the file. `None` if it was shown none.
    pub change: Option<u64>,
}

/// The access, reservation and delegation that an OPEN asks for.
#[derive(Clone, Copy, Debug)]
pub(in crate::nfs) struct Asked {
    pub access: ShareAccess,
    pub deny: ShareDeny,
    /// The access together with the wishes for a delegation.
    pub wishes: AskedAccess,
}

impl States {
    /// Removes the opens and delegations of a client that has ended.
    pub(super) fn forget_client(&mut self, client: ClientKey) {
        self.delegations.retain(|_, delegation| delegation.client != client);
        self.opens.retain(|_, open| open.client != client);
    }

    /// Returns the open with this state id of the filer, if it is for this file.
    pub(super) fn open_for(&self, state: StateId, file: &FileHandle) -> Result<&OpenState> {
        self.opens.get(&state).filter(|open| open.file == *file).ok_or(Status::BadStateId)
    }
}

impl OpenState {
    /// Adds the access and the reservation of another OPEN of the same owner.
    pub(super) fn add(&mut self, asked: Asked) {
        self.access = join_access(self.access, asked.access);
        self.deny = join_deny(self.deny, asked.deny);
    }

    /// Returns true if the open has at least this access and this reservation.
    pub(super) fn includes(&self, access: ShareAccess, deny: ShareDeny) -> bool {
        join_access(self.access, access) == self.access && join_deny(self.deny, deny) == self.deny
    }
}

/// Converts a state id from the form of messages.
pub(super) fn own_of(wire: &Wire) -> Stateid4 {
    Stateid4 { sequence: wire.sequence, other: wire.other }
}

/// Converts a state id to the form of messages.
pub(super) fn wire_of(id: Stateid4) -> Wire {
    Wire { sequence: id.sequence, other: id.other }
}

fn join_access(one: ShareAccess, other: ShareAccess) -> ShareAccess {
    match (one.reads() || other.reads(), one.writes() || other.writes()) {
        (true, true) => ShareAccess::Both,
        (false, true) => ShareAccess::Write,
        _ => ShareAccess::Read,
    }
}

fn join_deny(one: ShareDeny, other: ShareDeny) -> ShareDeny {
    match one.number() | other.number() {
        0 => ShareDeny::None,
        1 => ShareDeny::Read,
        2 => ShareDeny::Write,
        _ => ShareDeny::Both,
    }
}

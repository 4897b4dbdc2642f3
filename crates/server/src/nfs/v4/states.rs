//! The opens and locks of version 4 clients, by the state ids that name them.

use std::collections::HashMap;

use dafs_filer::ClientKey;
use dafs_nfs_wire::nfs4::{StateId as Wire, Status};
use dafs_ops::Opened;
use dafs_types::{FileHandle, ShareAccess, ShareDeny, StateId};

use super::fault::Result;
use super::waiting::Asked;

/// The opens and lock states of all clients, by their numbers.
#[derive(Debug, Default)]
pub(super) struct States {
    pub opens: HashMap<StateId, OpenState>,
    pub locks: HashMap<u64, LockState>,
    pub last_lock: u64,
}

/// An open of a client.
#[derive(Debug)]
pub(super) struct OpenState {
    pub client: ClientKey,
    pub file: FileHandle,
    /// The number of changes of the open, which its state id contains.
    pub sequence: u32,
    pub access: ShareAccess,
    pub deny: ShareDeny,
    /// The numbers of the lock states that belong to the open.
    pub locks: Vec<u64>,
}

/// A lock state: the locks of one owner under one open.
#[derive(Debug)]
pub(super) struct LockState {
    pub client: ClientKey,
    pub open: StateId,
    pub owner: Box<[u8]>,
    pub sequence: u32,
    /// True if the owner may hold a lock: it has taken a lock, and has not released the whole file
    /// since.
    pub holds: bool,
}

/// The open or lock state that a state id of a client names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    Open(StateId),
    Lock(u64),
}

impl States {
    /// Removes the opens and lock states of a client that has ended.
    pub(super) fn forget_client(&mut self, client: ClientKey) {
        self.opens.retain(|_, open| open.client != client);
        self.locks.retain(|_, lock| lock.client != client);
    }

    /// Records a new open or a change of an open. Returns the open's new state id.
    pub(super) fn note_open(&mut self, client: ClientKey, opened: &Opened, asked: Asked) -> Wire {
        let open = self.opens.entry(opened.state).or_insert_with(|| OpenState {
            client,
            file: opened.file,
            sequence: 0,
            access: asked.access,
            deny: asked.deny,
            locks: Vec::new(),
        });
        open.access = join_access(open.access, asked.access);
        open.deny = join_deny(open.deny, asked.deny);
        open.sequence = next(open.sequence);
        wire_of(OPEN, opened.state.0, open.sequence)
    }

    /// Finds the open or lock state with this state id. The sequence number must be the latest one.
    pub(super) fn find(&self, client: ClientKey, given: &Wire) -> Result<Named> {
        let (kind, number) = parts_of(given);
        let (named, owner, sequence) = match kind {
            OPEN => {
                let open = self.opens.get(&StateId(number)).ok_or(Status::BadStateId)?;
                (Named::Open(StateId(number)), open.client, open.sequence)
            }
            LOCK => {
                let lock = self.locks.get(&number).ok_or(Status::BadStateId)?;
                (Named::Lock(number), lock.client, lock.sequence)
            }
            _ => return Err(Status::BadStateId),
        };
        if owner != client {
            return Err(Status::BadStateId);
        }
        match given.sequence {
            0 => Ok(named),
            given if given == sequence => Ok(named),
            given if given > sequence => Err(Status::BadStateId),
            _ => Err(Status::OldStateId),
        }
    }
}

pub(super) fn join_access(one: ShareAccess, other: ShareAccess) -> ShareAccess {
    match (one.reads() || other.reads(), one.writes() || other.writes()) {
        (true, true) => ShareAccess::Both,
        (false, true) => ShareAccess::Write,
        _ => ShareAccess::Read,
    }
}

pub(super) fn join_deny(one: ShareDeny, other: ShareDeny) -> ShareDeny {
    match one.number() | other.number() {
        0 => ShareDeny::None,
        1 => ShareDeny::Read,
        2 => ShareDeny::Write,
        _ => ShareDeny::Both,
    }
}

/// Returns the state id with this kind, number and sequence number.
pub(super) fn wire_of(kind: u8, number: u64, sequence: u32) -> Wire {
    let mut other = [0; 12];
    other[0] = kind;
    other[4..].copy_from_slice(&number.to_be_bytes());
    Wire { sequence, other }
}

pub(super) fn parts_of(wire: &Wire) -> (u8, u64) {
    let mut number = [0; 8];
    number.copy_from_slice(&wire.other[4..]);
    (wire.other[0], u64::from_be_bytes(number))
}

/// Returns the next sequence number. Zero is left out, because it stands for the latest sequence
/// number.
pub(super) fn next(sequence: u32) -> u32 {
    sequence.wrapping_add(1).max(1)
}

/// The kind in the state ids of opens.
pub(super) const OPEN: u8 = 1;
/// The kind in the state ids of lock states.
pub(super) const LOCK: u8 = 2;

//! The copies that continue after the reply to their COPY (RFC 7862 section 15.2).
//!
//! Invariants:
//! - The number of copies is limited, for each client and in total. A copy counts until the client
//!   has acknowledged its end, or until the place of an ended copy is needed for another one.
//! - Each copy has one state id, which ends with the copy's entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use dafs_filer::ClientKey;
use dafs_files::ranges::CopyControl;
use dafs_nfs_state::{ClientKey as Nfs4Client, ReferringCall, StateKey};
use dafs_nfs_wire::nfs4::Status;
use dafs_types::{ClientId, FileHandle, Verifier};

use crate::reply_to::ReplyTo;

/// All copies, by the numbers that [`dafs_nfs_state`] keeps for them.
#[derive(Debug, Default)]
pub(super) struct Copies {
    all: BTreeMap<u64, ClientCopy>,
    last: u64,
}

/// A copy of a client.
#[derive(Debug)]
pub(super) struct ClientCopy {
    pub client: ClientKey,
    /// The filer's id of the client.
    pub client_id: ClientId,
    pub nfs_client: Nfs4Client,
    pub state: StateKey,
    /// The file into which bytes are copied.
    pub file: FileHandle,
    /// The request that has started the copy.
    pub started_by: Option<ReferringCall>,
    /// The verifier at the start. If written bytes are lost meanwhile, the client sees another one
    /// at its COMMIT, and copies them again.
    pub verifier: Verifier,
    pub control: Arc<CopyControl>,
    pub phase: Phase,
}

/// The phase of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Running,
    /// The client has cancelled the copy. This is the destination of the result of its
    /// OFFLOAD_CANCEL.
    Cancelled(ReplyTo),
    Ended(CopyEnd),
}

/// The end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CopyEnd {
    pub status: Status,
    /// The number of bytes that were copied.
    pub count: u64,
}

impl Copies {
    /// Makes room for one more copy of a client. Returns its number, and an ended copy that was
    /// removed for it. `None` if there is no room.
    pub(super) fn reserve(&mut self, client: ClientKey) -> Option<(u64, Option<ClientCopy>)> {
        let own = self.all.iter().filter(|(_, copy)| copy.client == client);
        let (count, ended) = own.fold((0, None), |(count, ended), (number, copy)| {
            let is_ended = matches!(copy.phase, Phase::Ended(_));
            (count + 1, ended.or(is_ended.then_some(*number)))
        });
        let removed = match count >= PER_CLIENT_MAX || self.all.len() >= COPIES_MAX {
            true => Some(self.all.remove(&ended?)?),
            false => None,
        };
        self.last += 1;
        Some((self.last, removed))
    }

    /// Adds a copy with a number that [`Copies::reserve`] has returned.
    pub(super) fn insert(&mut self, number: u64, copy: ClientCopy) {
        self.all.insert(number, copy);
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut ClientCopy> {
        self.all.get_mut(&number)
    }

    pub(super) fn get(&self, number: u64) -> Option<&ClientCopy> {
        self.all.get(&number)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<ClientCopy> {
        self.all.remove(&number)
    }

    /// Cancels and removes the copies of a client that has ended. Returns the destinations of the
    /// results of its calls that wait for the end of a copy.
    pub(super) fn forget_client(&mut self, client: ClientKey) -> Vec<ReplyTo> {
        let mut waiting = Vec::new();
        self.all.retain(|_, copy| {
            if copy.client == client {
                copy.control.cancel();
                if let Phase::Cancelled(to) = copy.phase {
                    waiting.push(to);
                }
            }
            copy.client != client
        });
        waiting
    }
}

/// The jobs of the pool may outlive the service for NFS clients for a while.
impl Drop for Copies {
    fn drop(&mut self) {
        self.all.values().for_each(|copy| copy.control.cancel());
    }
}

/// The number of bytes from which on a copy continues after the reply. Fewer are copied in the time
/// of a few other requests.
pub(super) const LENGTH_MIN: u64 = 64 << 20;
/// The maximum number of copies of a client. Each running copy has at most one job in the pool.
pub(super) const PER_CLIENT_MAX: usize = 4;
/// The maximum number of copies.
const COPIES_MAX: usize = 64;

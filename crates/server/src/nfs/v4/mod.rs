//! NFS versions 4.1 and 4.2 (RFC 8881, RFC 7862): compounds of operations in sessions.
//!
//! Invariants:
//! - Every request of a session is executed once. A repeated request gets the first reply.
//! - The state of clients is in the same tables as that of DAFS clients; this module adds only the
//!   numbers that version 4 needs.

mod attributes;
mod compound;
mod convert;
mod data;
mod handles;
mod listing;
mod names;
mod opens;
mod sessions;
mod settings;

use std::collections::HashMap;

use dafs_filer::ClientKey;
use dafs_files::outcome::NotDone;
use dafs_nfs_state::{ClientKey as Nfs4Client, EndReason, NfsState, Notice, StateConfig};
use dafs_nfs_wire::nfs4::Status;
use dafs_ops::Fault;
use dafs_types::{FileHandle, Moment};

use crate::reactor::{Reactor, Shared};

pub(super) use compound::{Compound, Ran, Sender, resume, serve};
use convert::status_of;

/// The clients of NFS version 4, their sessions, and their opens and locks.
#[derive(Debug)]
pub(super) struct State {
    machine: NfsState,
    /// The filer's client for each client of version 4.
    clients: HashMap<Nfs4Client, ClientKey>,
    /// The opens and locks that clients name by state ids.
    states: opens::States,
    /// The identity of this server. By it, clients recognize that several addresses lead to the
    /// same server.
    owner: Vec<u8>,
}

impl State {
    pub(super) fn new(shared: &Shared) -> Self {
        let boot = shared.life.boot();
        let epoch = ((boot ^ boot >> 32) as u32).max(1);
        let lease = shared.filer.config().lease;
        let config = StateConfig { lease, ..StateConfig::new(epoch) };
        Self {
            machine: NfsState::new(config),
            clients: HashMap::new(),
            states: opens::States::default(),
            owner: format!("dafs-{boot:016x}").into_bytes(),
        }
    }

    /// Unbinds a connection that has ended from all sessions.
    pub(super) fn connection_lost(&mut self, link: dafs_dat::records::LinkId) {
        self.machine.connection_lost(dafs_nfs_state::ConnectionId(link.to_bits()));
    }

    /// Ends the clients whose leases have expired, and releases their state. Returns the filer's
    /// clients that have ended.
    pub(super) fn on_time(&mut self, reactor: &mut Reactor<'_>, now: Moment) -> Vec<ClientKey> {
        self.machine.on_time(now);
        self.act_on_notices(reactor, now)
    }

    /// Releases the state of clients that have ended. Returns the filer's clients that have ended.
    fn act_on_notices(&mut self, reactor: &mut Reactor<'_>, now: Moment) -> Vec<ClientKey> {
        let mut gone = Vec::new();
        while let Some(notice) = self.machine.poll_notice() {
            match notice {
                Notice::Ended(ended) => {
                    let Some(client) = self.clients.remove(&ended.key) else { continue };
                    let (client_id, reason) = (ended.id.0, ended.reason);
                    tracing::info!(client_id, ?reason, "an NFS client ends");
                    self.states.forget_client(client);
                    let how = match ended.reason {
                        EndReason::Destroyed | EndReason::Replaced => {
                            dafs_filer::LeaveReason::Orderly
                        }
                        EndReason::Expired | EndReason::Revoked => {
                            dafs_filer::LeaveReason::Lost { is_kept: false, has_replies: false }
                        }
                    };
                    let released = reactor.shared.filer.client_leave(client, how, now);
                    reactor.files().act_on_locks();
                    for closed in &released {
                        reactor.files().release_open(closed);
                    }
                    gone.push(client);
                }
                // No callback is sent: the reply to each SEQUENCE contains the number of slots,
                // too.
                Notice::Callback(_) | Notice::RecallSlots(_) => {}
            }
        }
        gone
    }
}

/// The result of an operation, or the status with which it fails.
type Result<T> = std::result::Result<T, Status>;

/// Returns the status for an operation that was not executed. An operation that would have to wait
/// for the recall of a delegation is refused, so that the client sends it again; meanwhile the
/// recall continues.
fn not_done(reactor: &mut Reactor<'_>, why: NotDone) -> Status {
    status_of(Fault::from(reactor.without_waiting(why)))
}

/// Returns the status for a failed operation. If the operation failed because the server must first
/// search for the object of the handle, this starts the search, so that the object is known when
/// the client sends the operation again.
fn failed(reactor: &mut Reactor<'_>, handle: &FileHandle, fault: impl Into<Fault>) -> Status {
    let fault = fault.into();
    if fault == Fault::Busy && reactor.shared.whole_store.must_search(handle) {
        reactor.search_later(handle);
    }
    status_of(fault)
}

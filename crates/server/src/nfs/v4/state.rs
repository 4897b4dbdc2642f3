//! The clients of version 4 and their sessions, and the end of clients.

use std::collections::HashMap;

use dafs_filer::ClientKey;
use dafs_nfs_state::{ClientKey as Nfs4Client, EndReason, NfsState, Notice, StateConfig};
use dafs_types::{Credentials, Moment};

use super::recalls::Callbacks;
use super::states::States;
use crate::nfs::calls::Desk;
use crate::reactor::{Reactor, Shared};

/// The clients of NFS version 4, their sessions, and their opens and locks.
#[derive(Debug)]
pub(in crate::nfs) struct State {
    pub(super) machine: NfsState,
    /// The filer's client for each client of version 4.
    pub(super) clients: HashMap<Nfs4Client, ClientKey>,
    /// The minor version that each client uses, which its callbacks must have, too.
    pub(super) minors: HashMap<Nfs4Client, u32>,
    /// The opens and delegations that clients name by state ids.
    pub(super) states: States,
    /// The callbacks that have not ended.
    pub(super) callbacks: Callbacks,
    /// The identity of this server. By it, clients recognize that several addresses lead to the
    /// same server, and that a server that has started again is the same one. Otherwise they would
    /// not reclaim their opens and locks.
    pub(super) owner: Vec<u8>,
}

/// Ends the clients whose leases have expired.
pub(in crate::nfs) fn end_leases(desk: &mut Desk<'_>, reactor: &mut Reactor<'_>, now: Moment) {
    desk.v4.machine.on_time(now);
    end_clients(desk, reactor, now);
}

/// Releases the state and the users of clients that have ended.
pub(super) fn end_clients(desk: &mut Desk<'_>, reactor: &mut Reactor<'_>, now: Moment) {
    for client in desk.v4.act_on_notices(reactor, now) {
        desk.users.forget_client(reactor.shared, client);
    }
}

/// Returns the identity of the server: the handle of the root of its exports. The handle stays the
/// same as long as handles stay valid, and its seal differs from that of other servers.
fn identity_of(shared: &Shared) -> Vec<u8> {
    let root = shared.whole_store.root(&Credentials::nobody()).map(|root| root.handle.0.to_vec());
    root.unwrap_or_else(|_| shared.life.boot().to_be_bytes().to_vec())
}

impl State {
    pub(in crate::nfs) fn new(shared: &Shared) -> Self {
        let boot = shared.life.boot();
        let epoch = ((boot ^ boot >> 32) as u32).max(1);
        let lease = shared.filer.config().lease;
        let config = StateConfig { lease, ..StateConfig::new(epoch) };
        Self {
            machine: NfsState::new(config),
            clients: HashMap::new(),
            minors: HashMap::new(),
            states: States::default(),
            callbacks: Callbacks::default(),
            owner: identity_of(shared),
        }
    }

    /// Unbinds a connection that has ended from all sessions.
    pub(in crate::nfs) fn connection_lost(&mut self, link: dafs_dat::records::LinkId) {
        self.forget_calls(link);
        self.machine.connection_lost(dafs_nfs_state::ConnectionId(link.to_bits()));
    }

    /// Releases the state of clients that have ended. Returns the filer's clients that have ended.
    fn act_on_notices(&mut self, reactor: &mut Reactor<'_>, now: Moment) -> Vec<ClientKey> {
        let mut gone = Vec::new();
        while let Some(notice) = self.machine.poll_notice() {
            match notice {
                Notice::Ended(ended) => {
                    self.minors.remove(&ended.key);
                    let Some(client) = self.clients.remove(&ended.key) else { continue };
                    if let Some(id) = reactor.shared.filer.client_id(client) {
                        self.forget_recalls(id);
                        reactor.shared.channels.guests_mut().end_delegations(id);
                    }
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
                // No session is persistent, so none has a record in the journal.
                Notice::SessionEnded(_) => {}
                Notice::Callback(event) => self.end_callback(reactor, event),
                // No callback is sent: the reply to each SEQUENCE contains the number of slots,
                // too.
                Notice::RecallSlots(_) => {}
            }
        }
        gone
    }
}

//! The clients of version 4 and their sessions, and the end of clients.

use std::collections::HashMap;

use dafs_filer::ClientKey;
use dafs_files::delegations::Told;
use dafs_files::outcome::Outcome;
use dafs_journal::RecordNumber;
use dafs_nfs_state::{
    ClientKey as Nfs4Client, EndReason, NfsState, Notice, SessionKey, SessionRecord, SlotEnd,
    SlotRecord, StateConfig, create_flags,
};
use dafs_ops::{Fault, Origin};
use dafs_types::{Credentials, Moment};

use super::copies::Copies;
use super::recalls::Callbacks;
use super::states::States;
use crate::guests::GuestResult;
use crate::nfs::calls::Desk;
use crate::persistent::{SlotNote, SlotState};
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
    /// True if clients were restored after a restart. They are added to the filer when they come
    /// back.
    pub(super) has_restored: bool,
    /// The callbacks that have not ended.
    pub(super) callbacks: Callbacks,
    /// The copies that continue after the reply to their COPY.
    pub(super) copies: Copies,
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

/// Continues what has waited for the replies of clients to callbacks.
pub(in crate::nfs) fn take_replies(desk: &mut Desk<'_>, reactor: &mut Reactor<'_>) {
    let now = reactor.shared.life.now();
    end_clients(desk, reactor, now);
}

/// Releases the state and the users of clients that have ended, and journals the end of persistent
/// sessions. Returns the number of the last of these records, or 0.
pub(super) fn end_clients(
    desk: &mut Desk<'_>,
    reactor: &mut Reactor<'_>,
    now: Moment,
) -> RecordNumber {
    let (gone, after) = desk.v4.act_on_notices(reactor, now);
    for client in gone {
        desk.users.forget_client(reactor.shared, client);
    }
    after
}

/// Returns the identity of the server: the handle of the root of its exports. The handle stays the
/// same as long as handles stay valid, and its seal differs from that of other servers.
fn identity_of(shared: &Shared) -> Vec<u8> {
    let root = shared.whole_store.root(&Credentials::nobody()).map(|root| root.handle.0.to_vec());
    root.unwrap_or_else(|_| shared.life.boot().to_be_bytes().to_vec())
}

impl State {
    /// Creates the state, with the persistent sessions that the journal has.
    pub(in crate::nfs) fn new(shared: &mut Shared) -> Self {
        let boot = shared.life.boot();
        let epoch = ((boot ^ boot >> 32) as u32).max(1);
        let lease = shared.filer.config().lease;
        let is_persistent = shared.ledger.is_some();
        let config = StateConfig { lease, is_persistent, ..StateConfig::new(epoch) };
        let mut state = Self {
            machine: NfsState::new(config),
            clients: HashMap::new(),
            minors: HashMap::new(),
            has_restored: false,
            states: States::default(),
            callbacks: Callbacks::default(),
            copies: Copies::default(),
            owner: identity_of(shared),
        };
        state.restore(shared);
        state
    }

    /// Restores the persistent sessions and their clients.
    fn restore(&mut self, shared: &mut Shared) {
        let (now, mut refused) = (shared.life.now(), Vec::new());
        let persistent = &shared.channels.guests().persistent;
        for (number, record) in persistent.sessions() {
            let slots = persistent.slots(number).map(slot_record_of);
            let restored = Self::decode_record(record).map(|(minor, record)| {
                self.machine.restore(record, slots, now).map(|key| (minor, key))
            });
            let client = match restored {
                Some(Ok((minor, key))) => {
                    self.machine.sessions().view(key).map(|view| (view.client, minor))
                }
                _ => None,
            };
            self.minors.extend(client);
            self.has_restored |= client.is_some();
            refused.extend(client.is_none().then_some(number));
        }
        for number in refused {
            shared.forget_persistent(number);
        }
        // If a client has two incarnations, the older one ends.
        while let Some(notice) = self.machine.poll_notice() {
            if let Notice::SessionEnded(session) = notice {
                shared.forget_persistent(session.number());
            }
        }
    }

    /// Returns the number of a session and its record for the journal. `None` if the session is not
    /// persistent.
    pub(super) fn record(&self, key: SessionKey) -> Option<(u64, Vec<u8>)> {
        let view = self.machine.sessions().view(key)?;
        (view.flags & create_flags::PERSIST != 0).then_some(())?;
        let minor = self.minors.get(&view.client).copied().unwrap_or_default();
        let mut bytes = vec![u8::try_from(minor).unwrap_or_default()];
        self.machine.record(key)?.encode(&mut bytes);
        Some((view.id.number(), bytes))
    }

    /// Decodes a record that [`State::record`] has made: the minor version that the client uses,
    /// and its session.
    pub(super) fn decode_record(record: &[u8]) -> Option<(u32, SessionRecord)> {
        let (minor, session) = record.split_first()?;
        Some((u32::from(*minor), SessionRecord::decode(session)?))
    }

    /// Unbinds a connection that has ended from all sessions.
    pub(in crate::nfs) fn connection_lost(&mut self, link: dafs_dat::records::LinkId) {
        self.forget_calls(link);
        self.machine.connection_lost(dafs_nfs_state::ConnectionId(link.to_bits()));
    }

    /// Releases the state of clients that have ended. Returns the filer's clients that have ended,
    /// and the number of the last record about a persistent session that has ended.
    fn act_on_notices(
        &mut self,
        reactor: &mut Reactor<'_>,
        now: Moment,
    ) -> (Vec<ClientKey>, RecordNumber) {
        let (mut gone, mut after) = (Vec::new(), RecordNumber(0));
        while let Some(notice) = self.machine.poll_notice() {
            match notice {
                Notice::Ended(ended) => {
                    self.minors.remove(&ended.key);
                    let Some(client) = self.clients.remove(&ended.key) else { continue };
                    let mut unanswered = Vec::new();
                    if let Some(id) = reactor.shared.filer.client_id(client) {
                        unanswered = self.forget_callbacks(id);
                        reactor.shared.channels.guests_mut().end_notices(id);
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
                    for waiter in unanswered {
                        reactor.on_holder_told(waiter, Told::Nothing);
                    }
                    // The calls that wait for the end of a copy.
                    for to in self.copies.forget_client(client) {
                        let outcome = Outcome::failed(Fault::Expired);
                        reactor.report_to_guest(to, GuestResult::Outcome(outcome));
                    }
                    gone.push(client);
                }
                Notice::SessionEnded(session) => {
                    after = reactor.shared.forget_persistent(session.number());
                }
                Notice::Callback(event) => self.end_callback(reactor, event),
                // No callback is sent: the reply to each SEQUENCE contains the number of slots,
                // too.
                Notice::RecallSlots(_) => {}
            }
        }
        (gone, after)
    }
}

fn slot_record_of((origin, note): (&Origin, &SlotNote)) -> SlotRecord {
    let end = match &note.state {
        SlotState::Replied(reply) => SlotEnd::Replied(reply.clone()),
        SlotState::NotKept | SlotState::LongProgress { .. } => SlotEnd::NotKept,
        SlotState::Progress(_) => SlotEnd::Unfinished,
    };
    let Origin { slot, sequence, .. } = *origin;
    SlotRecord { slot, sequence, checksum: note.checksum, end }
}

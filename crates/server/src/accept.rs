//! Connections: let in, refused, ended.
//!
//! Invariant: whatever a connection holds goes with it, as soon as its end is heard of.

use std::sync::Arc;

use dafs_dat::{Domain, EndpointConfig, EndpointId, Inbox, Peer, PendingId};
use dafs_filer::{ChannelDescription, ChannelEnd, ChannelKind, Party, PeerIdentity};
use dafs_types::{Credentials, NoSuchId, limits};
use dafs_wire::ConnectData;

use crate::authorize::PeerFacts;
use crate::channel::{Channel, RECEIVES_SPARE};
use crate::files::io::Recent;
use crate::meter::Traffic;
use crate::reactor::Reactor;
use crate::reply_to::ChainId;
use crate::session::Exchange;

/// iWARP devices tell a refusal from nobody being there by its words alone.
const REFUSED: &[u8] = b"refused";

impl Reactor {
    /// Somebody wants to connect.
    pub(crate) fn on_connection(&mut self, pending: PendingId, peer: &Peer, private_data: &[u8]) {
        let Ok((_, data)) = ConnectData::decode(private_data) else {
            tracing::debug!(peer = %peer.address, "connection without DAFS connect data");
            return self.interface.reject(pending, REFUSED);
        };
        let facts = PeerFacts::of(peer);
        let holder = facts.holder();
        if let Err(refusal) = self.entrance.may_come(&facts) {
            if self.entrance.may_tell(holder, self.life.now()) {
                tracing::warn!(from = %facts, %refusal, "connection refused");
            }
            return self.interface.reject(pending, REFUSED);
        }
        if let Some(certificate) = &peer.certificate {
            tracing::debug!(peer = %peer.address, %certificate, "connection by TLS");
        }
        let identity = match peer.process.as_ref().map(credentials_of) {
            Some(Ok(who)) => PeerIdentity::Local(who),
            Some(Err(error)) => {
                tracing::warn!(from = %facts, %error, "connection refused");
                return self.interface.reject(pending, REFUSED);
            }
            None => PeerIdentity::Remote,
        };
        let description = ChannelDescription {
            client_instance: data.client_instance,
            client_session: data.client_session,
            kind: ChannelKind::from_number(data.channel as u32).unwrap_or(ChannelKind::Operation),
        };
        let id = match self.filer.channel_opened_by(holder, identity, description, self.life.now())
        {
            Ok(id) => id,
            Err(refusal) => {
                if self.entrance.may_tell(holder, self.life.now()) {
                    tracing::warn!(from = %holder, %refusal, "connection refused");
                }
                return self.interface.reject(pending, REFUSED);
            }
        };
        for displaced in self.filer.take_displaced() {
            self.displace(displaced);
        }
        if self.accept(pending, id, facts).is_none() {
            self.filer.channel_closed(id, ChannelEnd::Lost, self.life.now());
        }
    }

    /// A connection that has not logged in gives way to a new one.
    fn displace(&mut self, id: dafs_filer::ChannelId) {
        let Some(endpoint) = self.channels.endpoint_of(id) else { return };
        let holder = self.channels.holder_of(endpoint);
        if self.entrance.may_tell(holder, self.life.now()) {
            let text = "too many connections have not logged in: one gives way";
            tracing::warn!(from = %holder, "{text}");
        }
        self.give_up(endpoint);
    }

    /// Accepts and posts the receive for the first message. `None` if out of memory.
    fn accept(
        &mut self,
        pending: PendingId,
        id: dafs_filer::ChannelId,
        peer: PeerFacts,
    ) -> Option<()> {
        // One for each credit, one for the message in hand, and those to spare.
        let slots = self.filer.config().credits_session_max + 1 + RECEIVES_SPARE;
        let request_bytes = self.entrance.request_bytes(peer.is_local);
        let Ok(inbox) = Inbox::new(&mut self.interface, Domain(0), slots, request_bytes) else {
            self.interface.reject(pending, REFUSED);
            return None;
        };
        let config = EndpointConfig {
            message_bytes_max: request_bytes,
            receives_max: u32::from(slots),
            crc: self.entrance.crc(),
            ..EndpointConfig::default()
        };
        let endpoint = self.interface.accept(pending, Domain(0), &config, b"");
        let mut channel = Channel {
            id,
            party: Party::default(),
            endpoint,
            order: None,
            checksums: false,
            inbox,
            receives_due: 0,
            sealed_bytes: 0,
            response_bytes_max: limits::CONNECT_MESSAGE_BYTES,
            who: Arc::new(self.entrance.stranger()),
            peer,
            recent: Recent::default(),
            pending_login: None,
            exchange: Exchange::default(),
            closing: None,
            back: None,
            reads_over: endpoint,
            open_chain: ChainId::NONE,
            batch_session: None,
            traffic: Traffic::default(),
        };
        // If the connection is gone already, its end is on the way as an event.
        for _ in 0..=RECEIVES_SPARE {
            channel.inbox.post(&mut self.interface, endpoint);
        }
        self.channels.insert(channel);
        Some(())
    }

    /// A connection has ended. What its session holds goes with it where the filer says so.
    pub(crate) fn on_broken(&mut self, endpoint: EndpointId) {
        if let Some(channel) = self.channels.remove(endpoint) {
            let end =
                if channel.closing.is_some() { ChannelEnd::Orderly } else { ChannelEnd::Lost };
            for closed in self.filer.channel_closed(channel.id, end, self.life.now()) {
                self.files().release_open(&closed);
            }
            self.interface.deregister(channel.inbox.key());
            self.meter.depart(channel.peer.transport, channel.traffic);
            if let Some(session) = channel.batch_session {
                self.end_batches(session);
            }
            self.end_back(&channel);
            self.entrance.logins().forget(endpoint);
            self.drop_waiting(endpoint, channel.party.fence);
            self.loans.files().end_of(&mut self.filer, endpoint);
            self.files().act_on_locks();
            for orphan in self.filer.take_orphans() {
                self.give_up_channel(orphan);
            }
        }
        self.interface.release(endpoint);
        self.files().note_forgotten();
        self.ask_again();
    }

    /// Breaks a connection after the present event.
    pub(crate) fn give_up(&mut self, endpoint: EndpointId) {
        self.channels.give_up(endpoint);
    }

    /// Breaks the connection of a filer's channel.
    pub(crate) fn give_up_channel(&mut self, id: dafs_filer::ChannelId) {
        if let Some(endpoint) = self.channels.endpoint_of(id) {
            self.give_up(endpoint);
        }
    }
}

/// The identity the kernel vouches for, as it was when the peer connected; it has none for a
/// process that is not there.
fn credentials_of(process: &dafs_dat::PeerProcess) -> Result<Credentials, NoSuchId> {
    Credentials::new(process.uid, process.gid, process.groups.clone())
}

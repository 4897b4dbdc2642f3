//! Accepts or refuses connections.
//!
//! Invariant: a refused connection leaves no state behind.

use std::sync::Arc;

use dafs_dat::{Domain, EndpointConfig, Inbox, Peer, PendingId, ServingInterface};
use dafs_filer::{Filer, Party};
use dafs_files::io::Recent;
use dafs_sessions::{
    ChannelDescription, ChannelEnd, ChannelId, ChannelKind, PeerIdentity, Sessions,
};
use dafs_types::{Credentials, Moment, NoSuchId, limits};
use dafs_wire::ConnectData;

use crate::access::authorize::PeerFacts;
use crate::access::entrance::Entrance;
use crate::channel::{Channel, Channels, RECEIVES_SPARE};
use crate::meter::Traffic;
use crate::reply_to::ChainId;
use crate::session::TokenExchange;

/// The private data of a refusal. Without this data, an iWARP client could not distinguish a
/// refusal from an address at which no server listens.
const REFUSED: &[u8] = b"refused";

/// The network interface that accepts a new connection, and the tables in which the connection is
/// registered.
pub(crate) struct Ways<'r> {
    pub interface: &'r mut ServingInterface,
    pub filer: &'r mut Filer,
    pub sessions: &'r mut Sessions,
    pub channels: &'r mut Channels,
}

/// A peer's connection request that is not accepted or refused yet.
pub(crate) struct Coming<'c> {
    pub pending: PendingId,
    pub peer: &'c Peer,
    pub private_data: &'c [u8],
}

impl Entrance {
    /// Accepts or refuses the connection request of a peer.
    pub(crate) fn admit(&mut self, ways: &mut Ways<'_>, coming: &Coming<'_>, now: Moment) {
        if !self.lets_in(ways, coming, now) {
            ways.interface.reject(coming.pending, REFUSED);
        }
    }

    fn lets_in(&mut self, ways: &mut Ways<'_>, coming: &Coming<'_>, now: Moment) -> bool {
        let &Coming { pending, peer, private_data } = coming;
        let Ok((_, data)) = ConnectData::decode(private_data) else {
            tracing::debug!(peer = %peer.address, "connection request without DAFS connect data");
            return false;
        };
        let facts = PeerFacts::of(peer);
        let holder = facts.holder();
        if let Err(refusal) = self.may_connect(&facts) {
            if self.may_log(holder, now) {
                tracing::warn!(from = %facts, %refusal, "connection refused");
            }
            return false;
        }
        if let Some(certificate) = &peer.certificate {
            tracing::debug!(peer = %peer.address, %certificate, "connection over TLS");
        }
        let identity = match peer.process.as_ref().map(credentials_of) {
            Some(Ok(who)) => PeerIdentity::Local(who),
            Some(Err(error)) => {
                tracing::warn!(from = %facts, %error, "connection refused");
                return false;
            }
            None => PeerIdentity::Remote,
        };
        let description = ChannelDescription {
            client_instance: data.client_instance,
            client_session: data.client_session,
            kind: ChannelKind::from_number(data.channel as u32).unwrap_or(ChannelKind::Operation),
        };
        let id = match ways.sessions.channel_opened_by(holder, identity, description, now) {
            Ok(id) => id,
            Err(refusal) => {
                if self.may_log(holder, now) {
                    tracing::warn!(from = %holder, %refusal, "connection refused");
                }
                return false;
            }
        };
        for displaced in ways.sessions.take_displaced() {
            self.displace(ways.channels, displaced, now);
        }
        let is_in = self.accept(ways, pending, id, facts);
        if !is_in {
            ways.sessions.channel_closed(ways.filer, id, ChannelEnd::Lost, now);
        }
        is_in
    }

    /// Breaks a connection on which no client has logged in yet, so that a new connection can use
    /// its entry in the table of channels.
    fn displace(&mut self, channels: &mut Channels, id: ChannelId, now: Moment) {
        let Some(endpoint) = channels.endpoint_of(id) else { return };
        let holder = channels.holder_of(endpoint);
        if self.may_log(holder, now) {
            let text = "too many connections have not logged in; one of them is closed";
            tracing::warn!(from = %holder, "{text}");
        }
        channels.give_up(endpoint);
    }

    /// Accepts a connection and posts the receive buffers for its first messages. Returns false if
    /// there is no memory for these buffers.
    fn accept(
        &self,
        ways: &mut Ways<'_>,
        pending: PendingId,
        id: ChannelId,
        peer: PeerFacts,
    ) -> bool {
        // One slot for each credit, one for the request being served, and the spare receives.
        let slots = ways.sessions.config().credits.session_max + 1 + RECEIVES_SPARE;
        let request_bytes = self.request_bytes(peer.is_local);
        let Ok(inbox) = Inbox::new(ways.interface, Domain(0), slots, request_bytes) else {
            return false;
        };
        let config = EndpointConfig {
            message_bytes_max: request_bytes,
            receives_max: u32::from(slots),
            crc: self.crc(),
            ..EndpointConfig::default()
        };
        let endpoint = ways.interface.accept(pending, Domain(0), &config, b"");
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
            who: Arc::new(self.unauthenticated()),
            peer,
            recent: Recent::default(),
            pending_login: None,
            exchange: TokenExchange::default(),
            closing: None,
            back: None,
            reads_over: endpoint,
            open_chain: ChainId::NONE,
            batch_session: None,
            traffic: Traffic::default(),
        };
        // If the connection has already ended, no receive can be posted; an event reports the end
        // later.
        for _ in 0..=RECEIVES_SPARE {
            channel.inbox.post(ways.interface, endpoint);
        }
        ways.channels.insert(channel);
        true
    }
}

/// Returns the credentials of the peer's process, as the kernel reported them when the peer
/// connected. Returns an error if an id of the process is not a valid user or group id.
fn credentials_of(process: &dafs_dat::PeerProcess) -> Result<Credentials, NoSuchId> {
    Credentials::new(process.uid, process.gid, process.groups.clone())
}

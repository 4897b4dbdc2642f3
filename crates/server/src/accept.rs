//! Connections: let in, refused, ended.
//!
//! Invariant: whatever a connection holds goes with it, as soon as its end is heard of.

use std::sync::Arc;

use dafs_dat::{Domain, EndpointConfig, EndpointId, Peer, PendingId, Rights};
use dafs_filer::{ChannelDescription, ChannelEnd, ChannelKind, PeerIdentity};
use dafs_memory::{Memory, Pages};
use dafs_types::{Credentials, limits};
use dafs_wire::ConnectData;

use crate::authorize::PeerFacts;
use crate::chain::ChainId;
use crate::channel::Channel;
use crate::credentials::Asker;
use crate::reactor::Reactor;
use crate::session::Exchange;
use crate::transfer::Cookie;

impl Reactor {
    /// Somebody wants to connect.
    pub(crate) fn on_connection(&mut self, pending: PendingId, peer: &Peer, private_data: &[u8]) {
        let Ok((_, data)) = ConnectData::decode(private_data) else {
            tracing::debug!(peer = %peer.address, "connection without DAFS connect data");
            return self.interface.reject(pending, b"");
        };
        let facts = PeerFacts::of(peer);
        if let Err(refusal) = self.access.may_come(&facts) {
            tracing::warn!(from = %facts, %refusal, "connection refused");
            return self.interface.reject(pending, b"");
        }
        if let Some(certificate) = &peer.certificate {
            tracing::debug!(peer = %peer.address, %certificate, "connection by TLS");
        }
        let identity = match &peer.process {
            Some(process) => PeerIdentity::Local(credentials_of(process)),
            None => PeerIdentity::Remote,
        };
        let description = ChannelDescription {
            client_instance: data.client_instance,
            client_session: data.client_session,
            kind: ChannelKind::from_number(data.channel as u32).unwrap_or(ChannelKind::Operation),
        };
        let id = match self.filer.channel_opened(identity, description, self.now) {
            Ok(id) => id,
            Err(refusal) => {
                tracing::warn!(peer = %peer.address, %refusal, "connection refused");
                return self.interface.reject(pending, b"");
            }
        };
        if self.accept(pending, id, facts).is_none() {
            self.filer.channel_closed(id, ChannelEnd::Lost, self.now);
        }
    }

    /// Accepts and posts the receive for the first message. `None` if out of memory.
    fn accept(
        &mut self,
        pending: PendingId,
        id: dafs_filer::ChannelId,
        peer: PeerFacts,
    ) -> Option<()> {
        let credits = self.filer.config().credits_session_max + 1;
        let request_bytes = match (&self.kerberos, peer.is_local) {
            // Room for tickets; what is not used is never touched.
            (Some(kerberos), false) => self.request_bytes.max(kerberos.request_bytes_max()),
            (Some(_), true) | (None, _) => self.request_bytes,
        };
        let stride = u64::from(request_bytes) + SLOT_GAP_BYTES;
        let bytes = usize::try_from(stride).ok()? * usize::from(credits);
        let registered = Memory::anonymous(bytes, Pages::Small).ok().and_then(|inbox| {
            self.interface.register(&inbox, Domain(0), Rights::LOCAL).map(|region| (inbox, region))
        });
        let Some((inbox, inbox_region)) = registered else {
            self.interface.reject(pending, b"");
            return None;
        };
        let config = EndpointConfig {
            message_bytes_max: request_bytes,
            receives_max: u32::from(credits),
            crc: self.crc,
            ..EndpointConfig::default()
        };
        let endpoint = self.interface.accept(pending, Domain(0), &config, b"");
        let slot = |slot: u16| inbox_region.local(u64::from(slot) * stride, request_bytes);
        let slots = (0..credits).map(slot).collect();
        let mut channel = Channel {
            id,
            endpoint,
            order: None,
            checksums: false,
            inbox,
            inbox_region,
            slot_bytes: request_bytes,
            slots,
            free_slots: (0..credits).rev().collect(),
            receives_due: 0,
            sealed_bytes: 0,
            response_bytes_max: limits::CONNECT_MESSAGE_BYTES,
            who: Arc::new(Asker::new(Credentials::nobody(), &self.whole_view)),
            peer,
            recent: [None; 16],
            pending_login: None,
            exchange: Exchange::default(),
            closing: None,
            back: None,
            reads_over: endpoint,
            open_chain: ChainId::NONE,
            batch_session: None,
        };
        let slot = channel.free_slots.pop()?;
        let cookie = Cookie::Slot(slot).pack();
        // If the connection is gone already, its end is on the way as an event.
        let _ = self.interface.post_receive(endpoint, cookie, channel.slot(slot));
        self.channels.insert(channel);
        Some(())
    }

    /// A connection has ended. What its session holds goes with it where the filer says so.
    pub(crate) fn on_broken(&mut self, endpoint: EndpointId) {
        if let Some(channel) = self.channels.remove(endpoint) {
            let end =
                if channel.closing.is_some() { ChannelEnd::Orderly } else { ChannelEnd::Lost };
            for closed in self.filer.channel_closed(channel.id, end, self.now) {
                self.release_open(&closed);
            }
            self.interface.deregister(channel.inbox_region.key);
            self.drop_chains(endpoint);
            if let Some(session) = channel.batch_session {
                self.end_batches(session);
            }
            self.end_back(&channel);
            self.forget_waiters_of(endpoint);
            self.drop_held(endpoint);
            self.act_on_locks();
            for orphan in self.filer.take_orphans() {
                self.give_up_channel(orphan);
            }
        }
        self.interface.release(endpoint);
        self.note_forgotten();
        self.ask_again();
    }

    /// Breaks a connection after the present event.
    pub(crate) fn give_up(&mut self, endpoint: EndpointId) {
        self.dropped.push(endpoint);
    }

    /// Breaks the connection of a filer's channel.
    pub(crate) fn give_up_channel(&mut self, id: dafs_filer::ChannelId) {
        if let Some(endpoint) = self.channels.endpoint_of(id) {
            self.give_up(endpoint);
        }
    }
}

/// The identity the kernel vouches for, as it was when the peer connected.
fn credentials_of(process: &dafs_dat::PeerProcess) -> Credentials {
    let mut groups = process.groups.clone();
    groups.sort_unstable();
    Credentials { uid: process.uid, gid: process.gid, groups }
}

/// Between two slots of an inbox: a power of two from slot to slot would have all of them in the
/// same few sets of the processor's caches, and each message would push the one before last out.
const SLOT_GAP_BYTES: u64 = 256;

//! The server's state of one client connection.
//!
//! Invariant: each slot of the inbox is posted as a receive, or free, or in use by the request
//! whose message it holds.

use std::sync::Arc;
use std::time::Duration;

use dafs_dat::{EndpointId, Inbox, ServingInterface};
use dafs_filer::{FenceKey, Holder, Party};
use dafs_files::caller::Identity;
use dafs_files::io::Recent;
use dafs_sessions::{ChannelId, Sessions};
use dafs_types::{Moment, SessionId};
use dafs_wire::ByteOrder;

use crate::access::authorize::PeerFacts;
use crate::meter::Traffic;
use crate::moving::stalls::Stalls;
use crate::reply_to::ChainId;
use crate::session::back::BackChannel;

/// An accepted connection.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The filer's id of the channel.
    pub id: ChannelId,
    /// The identity under which the filer handles the requests ([`Channel::know`]).
    pub party: Party,
    /// The transport's id of the connection.
    pub endpoint: EndpointId,
    /// The client's byte order, known after its first message.
    pub order: Option<ByteOrder>,
    /// True if messages carry checksums.
    pub checksums: bool,
    /// The memory where requests arrive.
    pub inbox: Inbox,
    /// The number of receives to post after the replies that grant their credits are sent.
    pub receives_due: u16,
    /// The bytes held for checksummed writes of this connection that are not verified yet.
    pub sealed_bytes: usize,
    /// The negotiated size of the largest reply, in bytes.
    pub response_bytes_max: usize,
    /// The caller of the requests.
    pub who: Arc<Identity>,
    /// The transport's facts about the client.
    pub peer: PeerFacts,
    /// The files that were read or written recently, by state id.
    pub recent: Recent,
    /// The login that waits for the check of its password or token.
    pub pending_login: Option<crate::session::PendingLogin>,
    /// The exchange of tokens that made, or is making, the session.
    pub exchange: crate::session::TokenExchange,
    /// When the client disconnected. It closes the connection when it has the reply.
    pub closing: Option<Moment>,
    /// The state of a channel that is bound to the session of another channel.
    pub back: Option<Box<BackChannel>>,
    /// The connection for the session's RDMA reads: this one, or a channel bound for them.
    pub reads_over: EndpointId,
    /// The chain that the last request has left open for another member.
    pub open_chain: ChainId,
    /// The session of the channel, once it has submitted a batch.
    pub batch_session: Option<SessionId>,
    /// Counters of the traffic over the channel.
    pub traffic: Traffic,
}

impl Channel {
    /// Updates the identity from the session. Must be called whenever that may have changed.
    pub(crate) fn know(&mut self, sessions: &Sessions) {
        self.party = sessions.party_of(self.id);
    }

    /// Posts the deferred receives.
    fn post_receives(&mut self, interface: &mut ServingInterface) {
        while self.receives_due > 0 && self.inbox.post(interface, self.endpoint) {
            self.receives_due -= 1;
        }
    }
}

/// The number of receives posted beyond one for each credit. That many receives may be deferred.
pub(crate) const RECEIVES_SPARE: u16 = 4;

/// The channels of all reactors, by endpoint.
#[derive(Debug)]
pub(crate) struct Channels {
    /// By endpoint. The endpoints of all reactors are interleaved.
    slots: Vec<Option<Channel>>,
    /// The number of reactors.
    reactors: usize,
    count: usize,
    /// The connections with deferred receives.
    owed: Vec<EndpointId>,
    /// The connections to break after the current event.
    given_up: Vec<EndpointId>,
    /// The transfers that other requests wait for.
    stalls: Stalls,
    /// The bytes held for checksummed writes that are not verified yet, including those of
    /// connections that have ended.
    sealed_bytes: usize,
}

impl Channels {
    /// Creates an empty table. A connection may delay others for `patience`.
    pub(crate) fn new(patience: Duration, reactors: usize) -> Self {
        let (slots, owed, given_up) = (Vec::new(), Vec::new(), Vec::new());
        let stalls = Stalls::new(patience);
        Self { slots, reactors, count: 0, owed, given_up, stalls, sealed_bytes: 0 }
    }

    /// The transfers that other requests wait for.
    #[inline]
    pub(crate) fn stalls(&mut self) -> &mut Stalls {
        &mut self.stalls
    }

    /// Breaks the connections whose transfers have delayed others too long.
    pub(crate) fn break_off(&mut self, late: Vec<EndpointId>) {
        for endpoint in late {
            if let Some(channel) = self.get(endpoint) {
                tracing::warn!(
                    from = %channel.peer,
                    "a transfer has delayed other requests too long; its connection is broken"
                );
                self.give_up(endpoint);
            }
        }
    }

    #[inline]
    fn place_of(&self, endpoint: EndpointId) -> usize {
        endpoint.index() * self.reactors + endpoint.owner()
    }

    /// The channel of a connection.
    #[inline]
    pub(crate) fn get(&self, endpoint: EndpointId) -> Option<&Channel> {
        self.slots.get(self.place_of(endpoint))?.as_ref().filter(|c| c.endpoint == endpoint)
    }

    /// The connection for the RDMA reads of a session.
    #[inline]
    pub(crate) fn reads_over(&self, endpoint: EndpointId) -> EndpointId {
        self.get(endpoint).map_or(endpoint, |channel| channel.reads_over)
    }

    /// Like [`Channels::get`], for changes.
    #[inline]
    pub(crate) fn get_mut(&mut self, endpoint: EndpointId) -> Option<&mut Channel> {
        let place = self.place_of(endpoint);
        self.slots.get_mut(place)?.as_mut().filter(|c| c.endpoint == endpoint)
    }

    pub(crate) fn insert(&mut self, channel: Channel) {
        let index = self.place_of(channel.endpoint);
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some(channel);
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, endpoint: EndpointId) -> Option<Channel> {
        self.get(endpoint)?;
        self.count -= 1;
        self.stalls.forget(endpoint);
        let place = self.place_of(endpoint);
        self.slots.get_mut(place)?.take()
    }

    /// The connections whose clients disconnected at a time that is due and that are still open.
    pub(crate) fn leaving(&self, is_due: impl Fn(Moment) -> bool) -> Vec<EndpointId> {
        let channels = self.slots.iter().flatten();
        channels.filter(|c| c.closing.is_some_and(&is_due)).map(|c| c.endpoint).collect()
    }

    /// Updates the identities of all channels from their sessions.
    pub(crate) fn know_all(&mut self, sessions: &Sessions) {
        self.slots.iter_mut().flatten().for_each(|channel| channel.know(sessions));
    }

    /// Iterates over all channels.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.slots.iter().flatten()
    }

    /// The number of channels.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Schedules a connection to be broken after the current event.
    pub(crate) fn give_up(&mut self, endpoint: EndpointId) {
        self.given_up.push(endpoint);
    }

    /// Takes the next connection to break.
    #[inline]
    pub(crate) fn next_given_up(&mut self) -> Option<EndpointId> {
        self.given_up.pop()
    }

    /// Defers one receive for a credit that a reply grants. It is posted after the replies are
    /// sent; until then the spare receives serve.
    #[inline]
    pub(crate) fn owe_receives(&mut self, endpoint: EndpointId, interface: &mut ServingInterface) {
        let Some(channel) = self.get_mut(endpoint) else { return };
        if channel.receives_due >= RECEIVES_SPARE {
            channel.post_receives(interface);
        } else if channel.receives_due > 0 && self.owed.last() != Some(&endpoint) {
            self.owed.push(endpoint);
        }
    }

    /// Posts all deferred receives, after the replies were sent.
    #[inline]
    pub(crate) fn pay_receives(&mut self, interface: &mut ServingInterface) {
        while let Some(endpoint) = self.owed.pop() {
            if let Some(channel) = self.get_mut(endpoint) {
                channel.post_receives(interface);
            }
        }
    }

    /// The bytes that all connections hold for checksummed writes.
    pub(crate) fn sealed_bytes(&self) -> usize {
        self.sealed_bytes
    }

    /// Counts memory that a connection takes for a checksummed write.
    pub(crate) fn hold_sealed(&mut self, endpoint: EndpointId, bytes: u32) {
        self.sealed_bytes += bytes as usize;
        if let Some(channel) = self.get_mut(endpoint) {
            channel.sealed_bytes += bytes as usize;
        }
    }

    /// Counts memory of a checksummed write that is released.
    pub(crate) fn release_sealed(&mut self, endpoint: EndpointId, bytes: u32) {
        self.sealed_bytes -= bytes as usize;
        if let Some(channel) = self.get_mut(endpoint) {
            channel.sealed_bytes -= bytes as usize;
        }
    }

    /// The holder whose limits count for a connection.
    pub(crate) fn holder_of(&self, endpoint: EndpointId) -> Holder {
        self.get(endpoint).map_or(Holder::Elsewhere, |channel| channel.peer.holder())
    }

    /// The origin of a connection, for the log.
    pub(crate) fn origin_of(&self, endpoint: EndpointId) -> String {
        let facts = self.get(endpoint).map(|channel| &channel.peer);
        match facts.map(|facts| (facts.address, facts.holder())) {
            Some((Some(address), _)) => address.to_string(),
            Some((None, holder)) => holder.to_string(),
            None => "a connection that has ended".to_owned(),
        }
    }

    /// The connection with a fence identity. Each connection has its own.
    pub(crate) fn endpoint_under(&self, fence: FenceKey) -> Option<EndpointId> {
        self.iter().find(|c| c.party.fence == Some(fence)).map(|c| c.endpoint)
    }

    /// The transport's id of a filer's channel.
    pub(crate) fn endpoint_of(&self, id: ChannelId) -> Option<EndpointId> {
        self.slots.iter().flatten().find(|c| c.id == id).map(|c| c.endpoint)
    }
}

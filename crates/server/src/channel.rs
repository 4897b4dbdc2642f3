//! The server's state of one client connection.
//!
//! Invariant: each slot of the inbox is in exactly one of three states: it is posted as a receive
//! buffer, it is free, or it contains the message of a request in progress.

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
use crate::guests::table::Guests;
use crate::meter::Traffic;
use crate::moving::stalls::Stalls;
use crate::reply_to::ChainId;
use crate::session::back::BackChannel;

/// An accepted connection.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The filer's id of the channel.
    pub id: ChannelId,
    /// The identity under which the filer handles the channel's requests ([`Channel::know`]).
    pub party: Party,
    /// The transport's id of the connection.
    pub endpoint: EndpointId,
    /// The client's byte order. `None` until its first message has arrived.
    pub order: Option<ByteOrder>,
    /// True if messages carry checksums.
    pub checksums: bool,
    /// The memory regions into which requests are received.
    pub inbox: Inbox,
    /// The number of receive buffers to post after the replies that grant the credits for them are
    /// sent.
    pub receives_due: u16,
    /// The number of bytes held for checksummed writes of this connection that are not verified
    /// yet.
    pub sealed_bytes: usize,
    /// The size of the largest reply, as negotiated, in bytes.
    pub response_bytes_max: usize,
    /// The identity of the caller of this channel's requests.
    pub who: Arc<Identity>,
    /// The facts that the transport knows about the client.
    pub peer: PeerFacts,
    /// The recently read or written files, by state id.
    pub recent: Recent,
    /// The login whose password or token is being checked. `None` if there is none.
    pub pending_login: Option<crate::session::PendingLogin>,
    /// The token exchange that authenticates the session.
    pub exchange: crate::session::TokenExchange,
    /// The time when the client sent DISCONNECT. `None` if it has not. The client closes the
    /// connection after it has received the reply.
    pub closing: Option<Moment>,
    /// The state of a channel that is bound to another channel's session, such as a back-control
    /// channel. `None` for an operation channel.
    pub back: Option<Box<BackChannel>>,
    /// The connection that carries the RDMA reads of the session: this connection, or a channel
    /// bound for RDMA reads.
    pub reads_over: EndpointId,
    /// The chain that is not complete yet, because the last request left it open for further
    /// members. [`ChainId::NONE`] if there is none.
    pub open_chain: ChainId,
    /// The id under which the channel's session is registered with the batch scheduler. `None`
    /// until the client submits a batch.
    pub batch_session: Option<SessionId>,
    /// Counters of the traffic over the channel.
    pub traffic: Traffic,
}

impl Channel {
    /// Updates `party` from the session. Must be called whenever the party may have changed.
    pub(crate) fn know(&mut self, sessions: &Sessions) {
        self.party = sessions.party_of(self.id);
    }

    /// Posts the channel's deferred receive buffers.
    fn post_receives(&mut self, interface: &mut ServingInterface) {
        while self.receives_due > 0 && self.inbox.post(interface, self.endpoint) {
            self.receives_due -= 1;
        }
    }
}

/// The number of receive buffers that a channel posts in addition to one for each credit. Therefore
/// the posting of up to this many receive buffers may be deferred.
pub(crate) const RECEIVES_SPARE: u16 = 4;

/// The channels of all reactors.
#[derive(Debug)]
pub(crate) struct Channels {
    /// The channels by endpoint. The endpoint ids of the reactors are interleaved.
    slots: Vec<Option<Channel>>,
    /// The number of reactors.
    reactors: usize,
    count: usize,
    /// The connections that have receive buffers to post.
    owed: Vec<EndpointId>,
    /// The connections to break after the current event is handled.
    given_up: Vec<EndpointId>,
    /// The transfers that other requests wait for, and how long these requests have waited.
    stalls: Stalls,
    /// The number of bytes held for checksummed writes that are not verified yet, including writes
    /// of connections that have ended.
    sealed_bytes: usize,
    /// The guests, which are callers without a DAFS connection, such as users of NFS clients.
    guests: Guests,
}

impl Channels {
    /// Creates an empty table for this number of reactors. A connection whose transfers block other
    /// requests for longer than `patience` is broken.
    pub(crate) fn new(patience: Duration, reactors: usize, guest_reactor: Option<usize>) -> Self {
        let (slots, owed, given_up) = (Vec::new(), Vec::new(), Vec::new());
        let (stalls, guests) = (Stalls::new(patience), Guests::new(guest_reactor));
        Self { slots, reactors, count: 0, owed, given_up, stalls, sealed_bytes: 0, guests }
    }

    /// Returns the guests, which are callers without a DAFS connection.
    #[inline]
    pub(crate) fn guests(&self) -> &Guests {
        &self.guests
    }

    /// Returns the guests, which are callers without a DAFS connection, to modify them.
    #[inline]
    pub(crate) fn guests_mut(&mut self) -> &mut Guests {
        &mut self.guests
    }

    /// Returns the client and the fence identity of a connection or guest. `None` if it has ended.
    #[inline]
    pub(crate) fn party_of(&self, endpoint: EndpointId) -> Option<Party> {
        match self.get(endpoint) {
            Some(channel) => Some(channel.party),
            None => self.guests.get(endpoint).map(|guest| guest.party),
        }
    }

    /// Returns the record of transfers that block other requests, to update it.
    #[inline]
    pub(crate) fn stalls(&mut self) -> &mut Stalls {
        &mut self.stalls
    }

    /// Breaks the connections whose transfers have blocked other requests for too long.
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

    /// Returns the channel of a connection. `None` if the connection has ended.
    #[inline]
    pub(crate) fn get(&self, endpoint: EndpointId) -> Option<&Channel> {
        self.slots.get(self.place_of(endpoint))?.as_ref().filter(|c| c.endpoint == endpoint)
    }

    /// Returns the connection that carries the RDMA reads of the session of `endpoint`.
    #[inline]
    pub(crate) fn reads_over(&self, endpoint: EndpointId) -> EndpointId {
        self.get(endpoint).map_or(endpoint, |channel| channel.reads_over)
    }

    /// Returns the channel of a connection for changes. See [`Channels::get`].
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

    /// Returns the open connections whose clients sent DISCONNECT at a time for which `is_due` is
    /// true.
    pub(crate) fn leaving(&self, is_due: impl Fn(Moment) -> bool) -> Vec<EndpointId> {
        let channels = self.slots.iter().flatten();
        channels.filter(|c| c.closing.is_some_and(&is_due)).map(|c| c.endpoint).collect()
    }

    /// Updates `party` of every channel from the channel's session.
    pub(crate) fn know_all(&mut self, sessions: &Sessions) {
        self.slots.iter_mut().flatten().for_each(|channel| channel.know(sessions));
    }

    /// Iterates over all channels.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.slots.iter().flatten()
    }

    /// Returns the number of open channels.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Schedules a connection to be broken after the current event is handled.
    pub(crate) fn give_up(&mut self, endpoint: EndpointId) {
        self.given_up.push(endpoint);
    }

    /// Removes and returns the next connection to break.
    #[inline]
    pub(crate) fn next_given_up(&mut self) -> Option<EndpointId> {
        self.given_up.pop()
    }

    /// Defers the posting of the receive buffer for a credit that a reply grants, until the replies
    /// are sent. Until then, a spare receive buffer takes its place.
    #[inline]
    pub(crate) fn owe_receives(&mut self, endpoint: EndpointId, interface: &mut ServingInterface) {
        let Some(channel) = self.get_mut(endpoint) else { return };
        if channel.receives_due >= RECEIVES_SPARE {
            channel.post_receives(interface);
        } else if channel.receives_due > 0 && self.owed.last() != Some(&endpoint) {
            self.owed.push(endpoint);
        }
    }

    /// Posts all deferred receive buffers. Called after the replies are sent.
    #[inline]
    pub(crate) fn pay_receives(&mut self, interface: &mut ServingInterface) {
        while let Some(endpoint) = self.owed.pop() {
            if let Some(channel) = self.get_mut(endpoint) {
                channel.post_receives(interface);
            }
        }
    }

    /// Returns the number of bytes that all connections hold for checksummed writes.
    pub(crate) fn sealed_bytes(&self) -> usize {
        self.sealed_bytes
    }

    /// Counts `bytes` that are held for a checksummed write of a connection.
    pub(crate) fn hold_sealed(&mut self, endpoint: EndpointId, bytes: u32) {
        self.sealed_bytes += bytes as usize;
        if let Some(channel) = self.get_mut(endpoint) {
            channel.sealed_bytes += bytes as usize;
        }
    }

    /// Stops counting `bytes` that a checksummed write has released.
    pub(crate) fn release_sealed(&mut self, endpoint: EndpointId, bytes: u32) {
        self.sealed_bytes -= bytes as usize;
        if let Some(channel) = self.get_mut(endpoint) {
            channel.sealed_bytes -= bytes as usize;
        }
    }

    /// Returns the holder (a local user or an address) whose limits apply to a connection.
    pub(crate) fn holder_of(&self, endpoint: EndpointId) -> Holder {
        self.get(endpoint).map_or(Holder::Elsewhere, |channel| channel.peer.holder())
    }

    /// Describes where a connection comes from, for the log.
    pub(crate) fn origin_of(&self, endpoint: EndpointId) -> String {
        let facts = self.get(endpoint).map(|channel| &channel.peer);
        match facts.map(|facts| (facts.address, facts.holder())) {
            Some((Some(address), _)) => address.to_string(),
            Some((None, holder)) => holder.to_string(),
            None => "a connection that has ended".to_owned(),
        }
    }

    /// Returns the connection whose session has this fence identity. No two connections have the
    /// same fence identity.
    pub(crate) fn endpoint_under(&self, fence: FenceKey) -> Option<EndpointId> {
        self.iter().find(|c| c.party.fence == Some(fence)).map(|c| c.endpoint)
    }

    /// Returns the transport's connection id for a channel id of the filer.
    pub(crate) fn endpoint_of(&self, id: ChannelId) -> Option<EndpointId> {
        self.slots.iter().flatten().find(|c| c.id == id).map(|c| c.endpoint)
    }
}

//! One client connection as the server keeps it.
//!
//! Invariant: a slot of the inbox is posted as a receive, or free, or in the hands of whoever
//! serves the message in it.

use std::sync::Arc;
use std::time::Duration;

use dafs_dat::{EndpointId, Inbox, ServingInterface};
use dafs_filer::{FenceKey, Holder, Party};
use dafs_files::caller::Asker;
use dafs_files::io::Recent;
use dafs_sessions::{ChannelId, Sessions};
use dafs_types::{Moment, SessionId};
use dafs_wire::ByteOrder;

use crate::access::authorize::PeerFacts;
use crate::meter::Traffic;
use crate::moving::stalls::Stalls;
use crate::reply_to::ChainId;
use crate::session::back::BackChannel;

/// A connection that was accepted.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The filer's name for it.
    pub id: ChannelId,
    /// As whom the filer knows whoever sends its requests ([`Channel::know`]).
    pub party: Party,
    /// The transport's name for it.
    pub endpoint: EndpointId,
    /// The client's byte order, once its first message has shown it.
    pub order: Option<ByteOrder>,
    /// Whether messages carry checksums.
    pub checksums: bool,
    /// Where requests arrive.
    pub inbox: Inbox,
    /// Receives to post once the answers that bring their credits are out.
    pub receives_due: u16,
    /// Bytes of its writes with checksums that are held before they are looked at.
    pub sealed_bytes: usize,
    /// Largest response, negotiated.
    pub response_bytes_max: usize,
    /// Who asks.
    pub who: Arc<Asker>,
    /// What the transport knows of the client.
    pub peer: PeerFacts,
    /// Files lately read or written, by state id.
    pub recent: Recent,
    /// What waits for a check of a password or token.
    pub pending_login: Option<crate::session::PendingLogin>,
    /// The exchange of tokens that made its session, or is on the way to.
    pub exchange: crate::session::Exchange,
    /// When the client has left: it closes the connection once it has its answer.
    pub closing: Option<Moment>,
    /// What a channel has that is bound to another's session.
    pub back: Option<Box<BackChannel>>,
    /// Where its session's RDMA reads go; itself, or a channel bound for them.
    pub reads_over: EndpointId,
    /// The chain that its last request announced another member of.
    pub open_chain: ChainId,
    /// Its session, once that has submitted a batch.
    pub batch_session: Option<SessionId>,
    /// What has come over it.
    pub traffic: Traffic,
}

impl Channel {
    /// Takes over who it is by now. To be called whenever that may have changed.
    pub fn know(&mut self, sessions: &Sessions) {
        self.party = sessions.party_of(self.id);
    }

    /// Posts the receives that are owed.
    fn post_receives(&mut self, interface: &mut ServingInterface) {
        while self.receives_due > 0 && self.inbox.post(interface, self.endpoint) {
            self.receives_due -= 1;
        }
    }
}

/// Receives that are posted beyond one for each credit: so many may be owed for a while.
pub(crate) const RECEIVES_SPARE: u16 = 4;

/// Channels by endpoint.
#[derive(Debug)]
pub(crate) struct Channels {
    /// By endpoint, of all reactors in turns.
    slots: Vec<Option<Channel>>,
    /// Reactors there are.
    reactors: usize,
    count: usize,
    /// Those that are owed receives.
    owed: Vec<EndpointId>,
    /// Those whose connections are broken once the present event is dealt with.
    given_up: Vec<EndpointId>,
    /// Transfers of theirs that others wait for.
    stalls: Stalls,
    /// Bytes of writes with checksums that are held before they are looked at, also of connections
    /// that have ended.
    sealed_bytes: usize,
}

impl Channels {
    /// None yet. A connection that keeps others waiting is given so much time.
    pub fn new(patience: Duration, reactors: usize) -> Self {
        let (slots, owed, given_up) = (Vec::new(), Vec::new(), Vec::new());
        let stalls = Stalls::new(patience);
        Self { slots, reactors, count: 0, owed, given_up, stalls, sealed_bytes: 0 }
    }

    /// Transfers that others wait for.
    #[inline]
    pub fn stalls(&mut self) -> &mut Stalls {
        &mut self.stalls
    }

    /// Breaks the connections of transfers that others wait for in vain.
    pub fn break_off(&mut self, late: Vec<EndpointId>) {
        for endpoint in late {
            if let Some(channel) = self.get(endpoint) {
                tracing::warn!(
                    from = %channel.peer,
                    "others wait for a transfer that does not end: the connection is broken"
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
    pub fn get(&self, endpoint: EndpointId) -> Option<&Channel> {
        self.slots.get(self.place_of(endpoint))?.as_ref().filter(|c| c.endpoint == endpoint)
    }

    /// Where the RDMA reads of a session go.
    #[inline]
    pub fn reads_over(&self, endpoint: EndpointId) -> EndpointId {
        self.get(endpoint).map_or(endpoint, |channel| channel.reads_over)
    }

    /// As [`Channels::get`].
    #[inline]
    pub fn get_mut(&mut self, endpoint: EndpointId) -> Option<&mut Channel> {
        let place = self.place_of(endpoint);
        self.slots.get_mut(place)?.as_mut().filter(|c| c.endpoint == endpoint)
    }

    /// Adds one.
    pub fn insert(&mut self, channel: Channel) {
        let index = self.place_of(channel.endpoint);
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some(channel);
        self.count += 1;
    }

    /// Takes one out.
    pub fn remove(&mut self, endpoint: EndpointId) -> Option<Channel> {
        self.get(endpoint)?;
        self.count -= 1;
        self.stalls.forget(endpoint);
        let place = self.place_of(endpoint);
        self.slots.get_mut(place)?.take()
    }

    /// Connections whose clients have left at such a moment, and that are not closed yet.
    pub fn leaving(&self, is_due: impl Fn(Moment) -> bool) -> Vec<EndpointId> {
        let channels = self.slots.iter().flatten();
        channels.filter(|c| c.closing.is_some_and(&is_due)).map(|c| c.endpoint).collect()
    }

    /// All take over who they are by now.
    pub fn know_all(&mut self, sessions: &Sessions) {
        self.slots.iter_mut().flatten().for_each(|channel| channel.know(sessions));
    }

    /// Every connection.
    pub fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.slots.iter().flatten()
    }

    /// Connections there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// A connection is to be broken after the present event.
    pub fn give_up(&mut self, endpoint: EndpointId) {
        self.given_up.push(endpoint);
    }

    /// The next connection to be broken.
    #[inline]
    pub fn next_given_up(&mut self) -> Option<EndpointId> {
        self.given_up.pop()
    }

    /// Replies have brought a client credits: receives are to be posted for them, once the
    /// replies are out. Until then there are spare ones.
    #[inline]
    pub fn owe_receives(&mut self, endpoint: EndpointId, interface: &mut ServingInterface) {
        let Some(channel) = self.get_mut(endpoint) else { return };
        if channel.receives_due >= RECEIVES_SPARE {
            channel.post_receives(interface);
        } else if channel.receives_due > 0 && self.owed.last() != Some(&endpoint) {
            self.owed.push(endpoint);
        }
    }

    /// Posts all receives that are owed. The replies are out.
    #[inline]
    pub fn pay_receives(&mut self, interface: &mut ServingInterface) {
        while let Some(endpoint) = self.owed.pop() {
            if let Some(channel) = self.get_mut(endpoint) {
                channel.post_receives(interface);
            }
        }
    }

    /// Bytes of writes with checksums that all connections hold.
    pub fn sealed_bytes(&self) -> usize {
        self.sealed_bytes
    }

    /// A connection takes memory for a write with a checksum.
    pub fn hold_sealed(&mut self, endpoint: EndpointId, bytes: u32) {
        self.sealed_bytes += bytes as usize;
        if let Some(channel) = self.get_mut(endpoint) {
            channel.sealed_bytes += bytes as usize;
        }
    }

    /// It gives its memory back.
    pub fn release_sealed(&mut self, endpoint: EndpointId, bytes: u32) {
        self.sealed_bytes -= bytes as usize;
        if let Some(channel) = self.get_mut(endpoint) {
            channel.sealed_bytes -= bytes as usize;
        }
    }

    /// Whom a connection's limits are counted for.
    pub fn holder_of(&self, endpoint: EndpointId) -> Holder {
        self.get(endpoint).map_or(Holder::Elsewhere, |channel| channel.peer.holder())
    }

    /// Where a connection comes from, for the log.
    pub fn origin_of(&self, endpoint: EndpointId) -> String {
        let facts = self.get(endpoint).map(|channel| &channel.peer);
        match facts.map(|facts| (facts.address, facts.holder())) {
            Some((Some(address), _)) => address.to_string(),
            Some((None, holder)) => holder.to_string(),
            None => "a connection that has ended".to_owned(),
        }
    }

    /// The connection under a fence identity: each has one of its own.
    pub fn endpoint_under(&self, fence: FenceKey) -> Option<EndpointId> {
        self.iter().find(|c| c.party.fence == Some(fence)).map(|c| c.endpoint)
    }

    /// The transport's name for a channel of the filer's.
    pub fn endpoint_of(&self, id: ChannelId) -> Option<EndpointId> {
        self.slots.iter().flatten().find(|c| c.id == id).map(|c| c.endpoint)
    }
}

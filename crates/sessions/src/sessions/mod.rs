//! The state machine of all channels and their sessions, which the server owns.
//!
//! Invariant: the counts here agree with the channels after every public call.
//!
//! A channel is split in two: [`HotChannel`] has the fields that every request uses,
//! [`ColdChannel`] has all other fields.

mod bind;
mod connect;
mod impersonation;
mod replies;
mod requests;
mod shares;
mod view;

use std::collections::BTreeMap;

pub use bind::BindArguments;
use dafs_filer::{ClientKey, Closed, FenceKey, Filer, Holder, LeaveReason, Principal};
use dafs_types::{ClientId, Credentials, Moment, SessionId, StreamId, Verifier};
use dafs_wire::ByteOrder;
pub use view::SessionView;

use crate::chain::ChainState;
use crate::config_error::ConfigError;
use crate::credits::{Budget, Window};
use crate::replies::{KeptSession, KeptSessions};
use crate::{
    ChannelDescription, ChannelEnd, ChannelId, ChannelKind, ChannelRefusal, CloseReason,
    CredentialTable, CredentialUse, CreditView, Negotiated, PeerIdentity, SessionConfig,
    SessionCounters, TickActions,
};

/// The sessions of one server, their credits and their stored replies.
#[derive(Debug)]
pub struct Sessions {
    config: SessionConfig,
    budget: Budget,
    /// The [`HotChannel`] half of each channel, by channel index. These halves are stored
    /// separately, so that the data that every request uses is close together in memory.
    hot: Vec<HotChannel>,
    /// The [`ColdChannel`] half of each channel, by channel index. `None` if the slot has no open
    /// channel.
    cold: Vec<Option<ColdChannel>>,
    free: Vec<u32>,
    by_id: BTreeMap<SessionId, u32>,
    /// The credentials that trusted clients have registered.
    credentials: CredentialTable,
    kept: KeptSessions,
    /// The ids of sessions whose stored replies were removed. They were not reported to the server
    /// yet.
    forgotten: Vec<SessionId>,
    /// The channels of incarnations that have ended. They were not reported to the server yet.
    condemned: Vec<ChannelId>,
    /// The channels whose session has ended. They were not reported to the server yet.
    orphans: Vec<ChannelId>,
    /// The number of channels of each holder (a local user or an address).
    shares: shares::Shares,
    open_count: u32,
    authenticated_count: u32,
    counters: SessionCounters,
}

/// The phase of a channel (see the diagram in the crate's comment).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Vacant,
    Opened,
    Connected,
    Verifying,
    /// The session has authenticated, but has not sent a request yet.
    Proven,
    Authenticated,
    /// The session was authenticated, but its proof has expired and may be renewed.
    Lapsed,
    /// The channel is bound to the session of another channel.
    Bound,
    Condemned,
}

/// The fields of a channel that the server uses at every request.
#[derive(Debug)]
struct HotChannel {
    generation: u32,
    phase: Phase,
    /// The state of the channel's chain after the channel's last request.
    chain: ChainState,
    /// The number of requests in flight that use registered credentials.
    acting: u16,
    client: ClientKey,
    /// The key of the session's stored replies, or [`KeptSession::NONE`].
    kept: KeptSession,
    last_heard: Moment,
    window: Window,
}

/// The fields of a channel that are used when it opens, connects, authenticates or closes.
#[derive(Debug)]
struct ColdChannel {
    peer: PeerIdentity,
    /// The holder (a local user or an address) for which the channel is counted.
    holder: Holder,
    /// True if the channel has not authenticated and no other channel has displaced it.
    is_waiting: bool,
    description: ChannelDescription,
    opened_at: Moment,
    authentication_failures: u32,
    session: Option<Session>,
    /// The credentials with which requests are executed. `None` before authentication.
    credentials: Option<Credentials>,
    /// The reason why the channel must be closed, until `on_tick` has reported it. `None` if there
    /// is none.
    close_reason: Option<CloseReason>,
    /// The operation channel of a session, if this channel is bound, or is being bound, to that
    /// session.
    binding: Option<ChannelId>,
    /// The principal that the peer claims to be while the channel is being bound. `None` if the
    /// bind request does not name a principal.
    claim: Option<Principal>,
    /// True if the mechanism needs another token from the client.
    awaits_token: bool,
    /// True if an authenticated session is renewing its proof.
    is_renewing: bool,
    /// The registered credentials that requests in flight use, by stream.
    acting: Vec<(StreamId, CredentialUse)>,
}

/// The session that CONNECT has created.
#[derive(Debug)]
struct Session {
    id: SessionId,
    client_id: ClientId,
    granted: Negotiated,
    /// The key of the session's fence identity.
    fence: FenceKey,
    client_name: Box<[u8]>,
    client_verifier: Verifier,
    order: ByteOrder,
    /// True if a record with the client's id existed when the client got the id, or later. If the
    /// record no longer exists when the client authenticates, the client's state was lost, and the
    /// client must be told so.
    expects_record: bool,
    /// The principal that the client tries to authenticate as. `None` if it is not known yet.
    principal: Option<Principal>,
    /// True if the client may register credentials and use them.
    trusted: bool,
    /// The time at which the proof of the client's identity expires. `None` if it does not expire.
    expires: Option<Moment>,
    /// The channel that carries the server's requests. `None` if none is bound.
    back_control: Option<ChannelId>,
    /// The channel that carries the server's RDMA reads. `None` if none is bound.
    rdma_read: Option<ChannelId>,
}

impl Sessions {
    /// Creates a state machine without channels. `boot_seed` must differ between runs of the
    /// server.
    ///
    /// # Errors
    /// [`ConfigError`] with the name of the first invalid limit in `config`.
    pub fn new(config: SessionConfig, boot_seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let budget = Budget::new(config.credits.budget, config.channels_max);
        let mut kept = KeptSessions::new(config.lost_sessions_max);
        kept.reuses_replies = config.reuses_replies;
        let credentials = CredentialTable::new(boot_seed, config.credentials.clone());
        Ok(Self {
            config,
            budget,
            hot: Vec::new(),
            cold: Vec::new(),
            free: Vec::new(),
            by_id: BTreeMap::new(),
            credentials,
            kept,
            forgotten: Vec::new(),
            condemned: Vec::new(),
            orphans: Vec::new(),
            shares: shares::Shares::default(),
            open_count: 0,
            authenticated_count: 0,
            counters: SessionCounters::default(),
        })
    }

    /// Adds a new connection, which must authenticate within [`crate::AuthPolicy::timeout`]. The
    /// server must already have posted a receive buffer of
    /// [`dafs_types::limits::CONNECT_MESSAGE_BYTES`] bytes on the connection.
    ///
    /// # Errors
    /// The reason why the server must close the connection immediately.
    pub fn channel_opened(
        &mut self,
        peer: PeerIdentity,
        description: ChannelDescription,
        now: Moment,
    ) -> Result<ChannelId, ChannelRefusal> {
        let holder = match &peer {
            PeerIdentity::Local(who) => Holder::User(who.uid()),
            PeerIdentity::Remote => Holder::Elsewhere,
        };
        self.channel_opened_by(holder, peer, description, now)
    }

    /// Adds a new connection of a peer whose holder (a local user or an address) is known. The
    /// channel counts against the share of that holder. Another channel may be displaced
    /// ([`Sessions::take_displaced`]).
    ///
    /// # Errors
    /// The errors of [`Sessions::channel_opened`].
    pub fn channel_opened_by(
        &mut self,
        holder: Holder,
        peer: PeerIdentity,
        description: ChannelDescription,
        now: Moment,
    ) -> Result<ChannelId, ChannelRefusal> {
        let may_open = self.may_open(description.kind, holder);
        if let Err(refusal) = may_open.and_then(|()| self.make_room(holder)) {
            self.counters.channels_refused += 1;
            return Err(refusal);
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.hot.push(HotChannel::vacant());
                self.cold.push(None);
                (self.hot.len() - 1) as u32
            }
        };
        self.cold[index as usize] = Some(ColdChannel {
            peer,
            holder,
            is_waiting: true,
            description,
            opened_at: now,
            authentication_failures: 0,
            session: None,
            credentials: None,
            close_reason: None,
            binding: None,
            claim: None,
            awaits_token: false,
            is_renewing: false,
            acting: Vec::new(),
        });
        let hot = &mut self.hot[index as usize];
        *hot = HotChannel {
            phase: Phase::Opened,
            last_heard: now,
            generation: hot.generation,
            ..HotChannel::vacant()
        };
        self.budget.channel_opened();
        self.shares.opened(holder);
        self.open_count += 1;
        Ok(ChannelId { index, generation: hot.generation })
    }

    fn may_open(&self, kind: ChannelKind, holder: Holder) -> Result<(), ChannelRefusal> {
        let is_served = match kind {
            ChannelKind::Operation => true,
            ChannelKind::BackControl => self.config.back_control,
            ChannelKind::RdmaRead => self.config.rdma_read,
        };
        if is_served { self.check_share(holder) } else { Err(ChannelRefusal::Kind) }
    }

    /// Removes a channel whose connection has ended, or whose client got the reply to DISCONNECT,
    /// and ends its session (draft 3.1.2.5). With a client's last session, the client's state is
    /// released, unless the state is kept ([`SessionConfig::keep_state_after_loss`]). Returns the
    /// released opens, so that the caller can close them in the store. Has no effect for an unknown
    /// channel.
    pub fn channel_closed(
        &mut self,
        filer: &mut Filer,
        channel: ChannelId,
        end: ChannelEnd,
        now: Moment,
    ) -> Vec<Closed> {
        if self.live(channel).is_none() {
            return Vec::new();
        }
        let hot = &mut self.hot[channel.index()];
        let (client, kept) = (hot.client, hot.kept);
        self.budget.channel_closed(&hot.window);
        *hot = HotChannel { generation: hot.generation.wrapping_add(1), ..HotChannel::vacant() };
        self.free.push(channel.index);
        self.open_count -= 1;
        if let Some(mut cold) = self.cold[channel.index()].take() {
            self.shares.closed(&mut cold);
            self.authenticated_count -= u32::from(cold.credentials.is_some());
            for (_, held) in cold.acting {
                self.credentials.finish(held);
            }
            if let Some(session) = cold.session {
                self.by_id.remove(&session.id);
                filer.remove_identity(session.fence);
                self.end_kept(kept, session.id, end, now);
                self.orphan([session.back_control, session.rdma_read]);
            }
            if let Some(operation) = cold.binding {
                self.unbind(channel, operation);
            }
        }
        let how = match end {
            ChannelEnd::Orderly => LeaveReason::Orderly,
            ChannelEnd::Lost => LeaveReason::Lost {
                is_kept: kept.is_some() || self.config.keep_state_after_loss,
                has_replies: kept.is_some(),
            },
        };
        self.leave(filer, client, how, now)
    }

    /// Handles DISCONNECT: removes the session from its client immediately, so that this can be
    /// recorded on stable storage before the reply is sent. Returns the released opens.
    /// [`Sessions::channel_closed`] must follow.
    pub fn disconnect(
        &mut self,
        filer: &mut Filer,
        channel: ChannelId,
        now: Moment,
    ) -> Vec<Closed> {
        let Some((hot, _)) = self.live(channel) else { return Vec::new() };
        let client = std::mem::replace(&mut hot.client, ClientKey::NONE);
        self.leave(filer, client, LeaveReason::Orderly, now)
    }

    /// Removes a session from its client. With the last session, the client's state is released
    /// too.
    fn leave(
        &mut self,
        filer: &mut Filer,
        client: ClientKey,
        how: LeaveReason,
        now: Moment,
    ) -> Vec<Closed> {
        let released = filer.client_leave(client, how, now);
        self.forget_ended(filer);
        released
    }

    /// Removes the registered credentials of clients that have ended.
    fn forget_ended(&mut self, filer: &mut Filer) {
        for client in filer.take_ended() {
            self.credentials.client_gone(client);
        }
    }

    /// Handles expired timers; it must be called about once a second. Ends channels that take too
    /// long to authenticate or have been silent too long. Ends state whose lease has expired. Takes
    /// credits back from sessions that do not use them.
    pub fn on_tick(&mut self, filer: &mut Filer, now: Moment) -> TickActions {
        let mut actions = TickActions::default();
        for index in 0..self.hot.len() {
            if let Some(reason) = self.tick_channel(filer, index, now) {
                let generation = self.hot[index].generation;
                actions.close.push((ChannelId { index: index as u32, generation }, reason));
            }
        }
        actions.released = filer.on_tick(now);
        self.forget_ended(filer);
        self.forgotten.extend(self.kept.expire(now));
        actions
    }

    fn tick_channel(
        &mut self,
        filer: &mut Filer,
        index: usize,
        now: Moment,
    ) -> Option<CloseReason> {
        let hot = &mut self.hot[index];
        let cold = self.cold[index].as_mut()?;
        let reason = match hot.phase {
            Phase::Vacant | Phase::Bound => None,
            Phase::Condemned => cold.close_reason.take(),
            Phase::Opened | Phase::Connected | Phase::Verifying => {
                let late = now.since(cold.opened_at) >= self.config.authentication.timeout;
                late.then_some(CloseReason::NotAuthenticatedInTime)
            }
            Phase::Proven => {
                // If the client had already been dead when its connect request arrived, its
                // connection would be lost by now.
                if now.since(cold.opened_at) >= self.config.authentication.timeout {
                    let generation = hot.generation;
                    self.begin_incarnation(
                        filer,
                        ChannelId { index: index as u32, generation },
                        now,
                    );
                }
                return None;
            }
            Phase::Lapsed => {
                let expires = cold.session.as_ref().and_then(|session| session.expires);
                let late = expires.is_none_or(|at| now.since(at) >= filer.config().lease);
                late.then_some(CloseReason::AuthenticationExpired)
            }
            Phase::Authenticated => {
                let expires = cold.session.as_ref().and_then(|session| session.expires);
                if expires.is_some_and(|at| at <= now) {
                    hot.phase = Phase::Lapsed;
                    self.counters.authentications_expired += 1;
                    return None;
                }
                hot.window.shrink_if_idle(self.config.credits.initial, &mut self.budget);
                let withholds = self
                    .config
                    .credits
                    .withheld_max
                    .is_some_and(|most| hot.window.withholds(most, now, &self.budget));
                let silence = now.since(hot.last_heard);
                let too_long = self.config.silence_max.is_some_and(|most| silence >= most);
                let is_silent = too_long && hot.window.outstanding() == 0;
                let withheld = withholds.then_some(CloseReason::CreditsWithheld);
                is_silent.then_some(CloseReason::Silent).or(withheld)
            }
        }?;
        hot.phase = Phase::Condemned;
        self.counters.channels_expired += 1;
        Some(reason)
    }

    /// Iterates over all sessions, and returns for each its credits and the limit that keeps it
    /// from having more.
    pub fn credit_views(&self) -> impl Iterator<Item = CreditView> {
        let halves = self.hot.iter().zip(&self.cold);
        halves.filter_map(|(hot, cold)| {
            let session = cold.as_ref()?.session.as_ref()?;
            hot.phase.has_session().then(|| hot.window.view(session.id))
        })
    }

    /// Returns the limits in force.
    #[must_use]
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Returns the present values of the counters and gauges.
    #[must_use]
    pub fn counters(&self) -> SessionCounters {
        SessionCounters {
            channels: self.open_count,
            unauthenticated: self.open_count - self.authenticated_count,
            sessions: self.authenticated_count,
            credits: self.budget.charged(),
            sessions_kept: self.kept.counts().0,
            sessions_lost: self.kept.counts().1,
            ..self.counters
        }
    }

    /// Returns the hot and the cold half of a channel. `None` if the channel is not open any more.
    fn live(&mut self, channel: ChannelId) -> Option<(&mut HotChannel, &mut ColdChannel)> {
        let hot = self.hot.get_mut(channel.index())?;
        let cold = self.cold.get_mut(channel.index())?.as_mut()?;
        (hot.generation == channel.generation).then_some((hot, cold))
    }

    fn cold(&self, channel: ChannelId) -> Option<&ColdChannel> {
        let hot = self.hot.get(channel.index())?;
        if hot.generation == channel.generation {
            self.cold[channel.index()].as_ref()
        } else {
            None
        }
    }
}

impl HotChannel {
    fn vacant() -> Self {
        Self {
            generation: 0,
            phase: Phase::Vacant,
            chain: ChainState::Closed,
            acting: 0,
            client: ClientKey::NONE,
            kept: KeptSession::NONE,
            last_heard: Moment(0),
            window: Window::new(),
        }
    }
}

//! The machine the driver owns: channels come, time passes, channels go.
//!
//! Invariant: every public call leaves the counts here in agreement with the channels.
//!
//! A channel is split in two: [`HotChannel`] is what every request touches, the rest
//! lies apart in [`ColdChannel`].

mod acting;
mod bind;
mod connect;
mod replies;
mod requests;
mod shares;
mod view;

use std::collections::BTreeMap;

pub use bind::BindArguments;
use dafs_filer::{ClientKey, Closed, FenceKey, Filer, Holder, Leaving, Principal};
use dafs_types::{ClientId, Credentials, Moment, SessionId, StreamId, Verifier};
use dafs_wire::ByteOrder;
pub use view::SessionView;

use crate::chain::ChainState;
use crate::credits::{Budget, Window};
use crate::replies::{KeptSession, KeptSessions};
use crate::unkept::ConfigError;
use crate::{
    ChannelDescription, ChannelEnd, ChannelId, ChannelKind, ChannelRefusal, CloseReason,
    CredentialTable, CredentialUse, CreditView, Negotiated, PeerIdentity, SessionConfig,
    SessionCounters, TickActions,
};

/// Sessions of one server, their credits and what is kept of them.
#[derive(Debug)]
pub struct Sessions {
    config: SessionConfig,
    budget: Budget,
    /// By the index of a channel: its two halves, which keeps what every request touches close
    /// together.
    hot: Vec<HotChannel>,
    /// `None` where no channel is open.
    cold: Vec<Option<ColdChannel>>,
    free: Vec<u32>,
    by_id: BTreeMap<SessionId, u32>,
    /// What trusted clients have registered.
    credentials: CredentialTable,
    kept: KeptSessions,
    /// Sessions forgotten, not yet told of.
    forgotten: Vec<SessionId>,
    /// Channels of lives that are over, not yet told of.
    condemned: Vec<ChannelId>,
    /// Channels whose session is gone, not yet told of.
    orphans: Vec<ChannelId>,
    /// What each holder has of channels.
    shares: shares::Shares,
    open_count: u32,
    authenticated_count: u32,
    counters: SessionCounters,
}

/// Where a channel is in its life (diagram at the top of the crate).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Vacant,
    Opened,
    Connected,
    Verifying,
    /// It has proved who it is, and has asked for nothing yet.
    Proven,
    Authenticated,
    /// As before, but its proof is past its time: it may be given anew.
    Lapsed,
    /// Belongs to the session of another channel.
    Bound,
    Condemned,
}

/// What every request touches.
#[derive(Debug)]
struct HotChannel {
    generation: u32,
    phase: Phase,
    /// What the last request leaves for the next one.
    chain: ChainState,
    /// Requests under way that act with registered credentials.
    acting: u16,
    client: ClientKey,
    /// Where its results are kept.
    kept: KeptSession,
    last_heard: Moment,
    window: Window,
}

/// What is looked at when a channel opens, connects, authenticates or closes.
#[derive(Debug)]
struct ColdChannel {
    peer: PeerIdentity,
    /// Whom its place is counted for.
    holder: Holder,
    /// It has not authenticated, and has not given way to another.
    is_waiting: bool,
    description: ChannelDescription,
    opened_at: Moment,
    authentication_failures: u32,
    session: Option<Session>,
    /// The identity requests act with, once authenticated.
    credentials: Option<Credentials>,
    /// Why the channel is condemned, until `on_tick` has said so.
    close_reason: Option<CloseReason>,
    /// The operation channel of the session it belongs to, or shall belong to.
    binding: Option<ChannelId>,
    /// As whom it wants to be bound, where the request says it.
    claim: Option<Principal>,
    /// The mechanism wants another token.
    awaits_token: bool,
    /// An authenticated session proves itself again.
    is_renewing: bool,
    /// The credentials that requests under way act with, by stream.
    acting: Vec<(StreamId, CredentialUse)>,
}

/// What CONNECT has made.
#[derive(Debug)]
struct Session {
    id: SessionId,
    client_id: ClientId,
    granted: Negotiated,
    /// As whom fences know it.
    fence: FenceKey,
    client_name: Box<[u8]>,
    client_verifier: Verifier,
    order: ByteOrder,
    /// The client was told the id of a record that stood then (or stands by now).
    /// Should it be gone at authentication, its state is lost and the client must not
    /// believe otherwise.
    expects_record: bool,
    /// As whom the client tries to authenticate, as far as it is known.
    principal: Option<Principal>,
    /// Whether it may register credentials and name them.
    trusted: bool,
    /// When its proof is past its time.
    expires: Option<Moment>,
    /// Carries the server's requests.
    back_control: Option<ChannelId>,
    /// Carries the server's RDMA reads.
    rdma_read: Option<ChannelId>,
}

impl Sessions {
    /// No channels yet. `boot_seed` must differ between runs of the server.
    ///
    /// # Errors
    /// The first limit in `config` that cannot be kept.
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

    /// A connection was established. It may take
    /// [`crate::AuthPolicy::timeout`] to authenticate. One receive of
    /// [`dafs_types::limits::CONNECT_MESSAGE_BYTES`] must be posted for it.
    ///
    /// # Errors
    /// Why the driver must close the connection at once.
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

    /// The same for a peer of whom more is known: its share is counted for `holder`. Another
    /// channel may have to give way ([`Sessions::take_displaced`]).
    ///
    /// # Errors
    /// As [`Sessions::channel_opened`].
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

    /// The connection is gone, or DISCONNECT was answered. Ends the session (draft
    /// 3.1.2.5) and, with a client's last session, its state, unless that is kept
    /// ([`SessionConfig::keep_state_after_loss`]); returns the opens released, for the
    /// store. An unknown channel is no error.
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
                filer.identity_gone(session.fence);
                self.end_kept(kept, session.id, end, now);
                self.orphan([session.back_control, session.rdma_read]);
            }
            if let Some(operation) = cold.binding {
                self.unbind(channel, operation);
            }
        }
        let how = match end {
            ChannelEnd::Orderly => Leaving::Orderly,
            ChannelEnd::Lost => Leaving::Lost {
                is_kept: kept.is_some() || self.config.keep_state_after_loss,
                has_replies: kept.is_some(),
            },
        };
        self.leave(filer, client, how, now)
    }

    /// DISCONNECT: the session leaves its client now, so that this can be written down before
    /// it is answered. Returns the opens released; [`Sessions::channel_closed`] follows.
    pub fn depart(&mut self, filer: &mut Filer, channel: ChannelId, now: Moment) -> Vec<Closed> {
        let Some((hot, _)) = self.live(channel) else { return Vec::new() };
        let client = std::mem::replace(&mut hot.client, ClientKey::NOBODY);
        self.leave(filer, client, Leaving::Orderly, now)
    }

    /// A session leaves its client; with the last one the client's state goes, too.
    fn leave(
        &mut self,
        filer: &mut Filer,
        client: ClientKey,
        how: Leaving,
        now: Moment,
    ) -> Vec<Closed> {
        let released = filer.client_leave(client, how, now);
        self.forget_ended(filer);
        released
    }

    /// Nothing is kept for clients that are gone.
    fn forget_ended(&mut self, filer: &mut Filer) {
        for client in filer.take_ended() {
            self.credentials.client_gone(client);
        }
    }

    /// Lets time pass: call about once a second. Finds channels that take too long to
    /// authenticate or have fallen silent, state whose lease has run out, and sessions
    /// that do not use their credits.
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
                // Whoever was dead when its connect came has lost its connection by now.
                if now.since(cold.opened_at) >= self.config.authentication.timeout {
                    let generation = hot.generation;
                    self.begin_life(filer, ChannelId { index: index as u32, generation }, now);
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

    /// The credits of every session: who is throttled, and by which limit.
    pub fn credit_views(&self) -> impl Iterator<Item = CreditView> {
        let halves = self.hot.iter().zip(&self.cold);
        halves.filter_map(|(hot, cold)| {
            let session = cold.as_ref()?.session.as_ref()?;
            hot.phase.has_session().then(|| hot.window.view(session.id))
        })
    }

    /// The limits in force.
    #[must_use]
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// The numbers now.
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

    /// The channel's two halves, if the id is that of an open channel.
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
            client: ClientKey::NOBODY,
            kept: KeptSession::NONE,
            last_heard: Moment(0),
            window: Window::new(),
        }
    }
}

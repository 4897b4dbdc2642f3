//! The machine the driver owns: channels come, time passes, channels go.
//!
//! Invariant: every channel slot, client record and open belongs to exactly one of
//! the tables here, and every public call leaves their counts in agreement.
//!
//! A channel is split in two: [`HotChannel`] is what every request touches, the rest
//! lies apart in [`ColdChannel`].

mod acting;
mod bind;
mod connect;
mod delegations;
mod fencing;
mod files;
mod grace;
mod locks;
mod replies;
mod requests;
mod shares;
mod view;

use std::collections::BTreeMap;

pub use bind::BindArguments;
use dafs_base::Slab;
use dafs_types::{ClientId, Credentials, Moment, SessionId, StreamId, Verifier};
use dafs_wire::ByteOrder;
pub use delegations::DelegationWish;
pub use fencing::{FenceKey, Party, RunningRequest};
pub use grace::ClientRecord;
pub use view::SessionView;

use crate::chain::ChainState;
use crate::clients::{ClientTable, Principal};
use crate::credits::{Budget, Window};
use crate::locks::LockTable;
use crate::opens::OpenTable;
use crate::replies::{KeptSession, KeptSessions};
use crate::{
    ChannelDescription, ChannelEnd, ChannelId, ChannelKind, ChannelRefusal, ClientKey, CloseReason,
    Closed, ConfigError, Counters, CredentialTable, CredentialUse, CreditView, DelegationPolicy,
    DelegationTable, FenceId, FenceTable, FilerConfig, Holder, Negotiated, PeerIdentity,
    Succession, TickActions,
};

/// Sessions, credits, clients and opens of one file server.
#[derive(Debug)]
pub struct Filer {
    config: FilerConfig,
    budget: Budget,
    hot: Vec<HotChannel>,
    /// `None` where no channel is open.
    cold: Vec<Option<ColdChannel>>,
    free: Vec<u32>,
    sessions: BTreeMap<SessionId, u32>,
    clients: ClientTable,
    opens: OpenTable,
    /// What trusted clients have registered.
    credentials: CredentialTable,
    locks: LockTable,
    kept: KeptSessions,
    fences: FenceTable,
    /// Fence identities of those who ask.
    identities: Slab<FenceId>,
    delegations: DelegationTable,
    /// Sessions forgotten, not yet told of.
    forgotten: Vec<SessionId>,
    grace: Option<grace::Grace>,
    /// A time of taking back has ended, and nobody was told.
    has_grace_ended: bool,
    /// Clients without state, not yet told of.
    lapsed: Vec<Box<[u8]>>,
    /// What lives that have begun did to those before, not yet told of.
    succession: Succession,
    /// Channels whose session is gone, not yet told of.
    orphans: Vec<ChannelId>,
    /// What each holder has of channels.
    shares: shares::Shares,
    open_count: u32,
    authenticated_count: u32,
    counters: Counters,
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

impl Filer {
    /// A filer without channels. `boot_seed` must differ between runs of the server:
    /// state ids made before a restart are told from new ones by 24 bits of it.
    ///
    /// # Errors
    /// The first limit in `config` that cannot be kept.
    pub fn new(config: FilerConfig, boot_seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let budget = Budget::new(config.credits_budget, config.channels_max);
        let opens = OpenTable::new(boot_seed, config.opens_max, config.opens_per_client_max);
        let locks = LockTable::new(config.locks.clone());
        let mut kept = KeptSessions::new(config.lost_sessions_max);
        kept.reuses_replies = config.reuses_replies;
        let credentials = CredentialTable::new(boot_seed, config.credentials.clone());
        let fences = FenceTable::new(config.fences.clone());
        // Within its lease a client learns that it has lost a delegation, and not before.
        let recall_timeout = config.delegations.recall_timeout.max(config.lease);
        let policy = DelegationPolicy { recall_timeout, ..config.delegations.clone() };
        let delegations = DelegationTable::new(boot_seed, policy);
        Ok(Self {
            config,
            budget,
            hot: Vec::new(),
            cold: Vec::new(),
            free: Vec::new(),
            sessions: BTreeMap::new(),
            clients: ClientTable::default(),
            opens,
            credentials,
            locks,
            kept,
            fences,
            identities: Slab::new(),
            delegations,
            forgotten: Vec::new(),
            grace: None,
            has_grace_ended: false,
            lapsed: Vec::new(),
            succession: Succession::default(),
            orphans: Vec::new(),
            shares: shares::Shares::default(),
            open_count: 0,
            authenticated_count: 0,
            counters: Counters::default(),
        })
    }

    /// A connection was established. It may take
    /// [`FilerConfig::authentication_timeout`] to authenticate. One receive of
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
    /// channel may have to give way ([`Filer::take_displaced`]).
    ///
    /// # Errors
    /// As [`Filer::channel_opened`].
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
    /// ([`FilerConfig::keep_state_after_loss`]); returns the opens released, for the
    /// store. An unknown channel is no error.
    pub fn channel_closed(
        &mut self,
        channel: ChannelId,
        end: ChannelEnd,
        now: Moment,
    ) -> Vec<Closed> {
        let mut released = Vec::new();
        if self.live(channel).is_none() {
            return released;
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
                self.sessions.remove(&session.id);
                self.identity_gone(session.fence);
                self.end_kept(kept, session.id, end, now);
                self.orphan([session.back_control, session.rdma_read]);
            }
            if let Some(operation) = cold.binding {
                self.unbind(channel, operation);
            }
        }
        let is_kept = kept.is_some() || self.config.keep_state_after_loss;
        self.leave_client(client, kept.is_some(), is_kept, end, now, &mut released);
        released
    }

    /// DISCONNECT: the session leaves its client now, so that this can be written down before
    /// it is answered. Returns the opens released; [`Filer::channel_closed`] follows.
    pub fn depart(&mut self, channel: ChannelId, now: Moment) -> Vec<Closed> {
        let mut released = Vec::new();
        if let Some((hot, _)) = self.live(channel) {
            let client = std::mem::replace(&mut hot.client, ClientKey::NOBODY);
            self.leave_client(client, false, false, ChannelEnd::Orderly, now, &mut released);
        }
        released
    }

    /// A session leaves its client; with the last one the client's state goes, too.
    fn leave_client(
        &mut self,
        slot: ClientKey,
        has_replies: bool,
        is_kept: bool,
        end: ChannelEnd,
        now: Moment,
        released: &mut Vec<Closed>,
    ) {
        let may_be_kept = self.may_be_kept(slot);
        let has_begun = self.clients.has_begun(slot);
        let Some(client) = self.clients.get_mut(slot) else { return };
        client.sessions -= 1;
        if client.sessions > 0 {
            return;
        }
        // Kept clients are bounded like channels, by the same number, and shared out like them.
        let keep = is_kept
            && has_begun
            && end == ChannelEnd::Lost
            && (client.opens.count > 0 || has_replies || self.delegations.holds_any(client.id))
            && may_be_kept;
        if keep {
            self.clients.keep(slot, now.after(self.config.lease));
        } else {
            let id = client.id;
            match end {
                ChannelEnd::Orderly => {
                    self.locks.release_client(id, now);
                    self.end_reclaims_of(slot, now);
                }
                ChannelEnd::Lost => self.locks.lease_expired(id, now),
            }
            self.release_client(slot, now, released);
        }
    }

    /// Ends a client's opens and delegations, and forgets it.
    fn release_client(&mut self, slot: ClientKey, now: Moment, released: &mut Vec<Closed>) {
        if let Some(client) = self.clients.get_mut(slot) {
            self.opens.release(&mut client.opens, released);
            self.credentials.client_gone(client.id);
            self.delegations.client_gone(client.id, now);
            if client.is_recorded {
                self.lapsed.push(client.name.clone());
            }
            self.clients.remove(slot);
        }
    }

    /// Lets time pass: call about once a second. Finds channels that take too long to
    /// authenticate or have fallen silent, state whose lease has run out, and sessions
    /// that do not use their credits.
    pub fn on_tick(&mut self, now: Moment) -> TickActions {
        let mut actions = TickActions::default();
        for index in 0..self.hot.len() {
            if let Some(reason) = self.tick_channel(index, now) {
                let generation = self.hot[index].generation;
                actions.close.push((ChannelId { index: index as u32, generation }, reason));
            }
        }
        for slot in self.clients.expired(now) {
            if let Some(client) = self.clients.get(slot) {
                self.locks.lease_expired(client.id, now);
            }
            self.release_client(slot, now, &mut actions.released);
        }
        self.tick_grace(now);
        self.locks.on_tick(now);
        self.delegations.tick(now);
        self.forgotten.extend(self.kept.expire(now));
        actions
    }

    fn tick_channel(&mut self, index: usize, now: Moment) -> Option<CloseReason> {
        let hot = &mut self.hot[index];
        let cold = self.cold[index].as_mut()?;
        let reason = match hot.phase {
            Phase::Vacant | Phase::Bound => None,
            Phase::Condemned => cold.close_reason.take(),
            Phase::Opened | Phase::Connected | Phase::Verifying => {
                let late = now.since(cold.opened_at) >= self.config.authentication_timeout;
                late.then_some(CloseReason::NotAuthenticatedInTime)
            }
            Phase::Proven => {
                // Whoever was dead when its connect came has lost its connection by now.
                if now.since(cold.opened_at) >= self.config.authentication_timeout {
                    let generation = hot.generation;
                    self.begin_life(ChannelId { index: index as u32, generation }, now);
                }
                return None;
            }
            Phase::Lapsed => {
                let expires = cold.session.as_ref().and_then(|session| session.expires);
                let late = expires.is_none_or(|at| now.since(at) >= self.config.lease);
                late.then_some(CloseReason::AuthenticationExpired)
            }
            Phase::Authenticated => {
                let expires = cold.session.as_ref().and_then(|session| session.expires);
                if expires.is_some_and(|at| at <= now) {
                    hot.phase = Phase::Lapsed;
                    self.counters.authentications_expired += 1;
                    return None;
                }
                hot.window.shrink_if_idle(self.config.credits_initial, &mut self.budget);
                let withholds = self
                    .config
                    .credits_withheld_max
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
    pub fn config(&self) -> &FilerConfig {
        &self.config
    }

    /// The numbers now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = Counters {
            channels: self.open_count,
            unauthenticated: self.open_count - self.authenticated_count,
            sessions: self.authenticated_count,
            clients: self.clients.count() as u32,
            opens: self.opens.count(),
            files: self.opens.file_count() as u32,
            credits: self.budget.charged(),
            sessions_kept: self.kept.counts().0,
            sessions_lost: self.kept.counts().1,
            ..self.counters
        };
        self.count_grace(&mut counters);
        counters
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

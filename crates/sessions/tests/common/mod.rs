//! Sessions, a filer, entropy and well-behaved clients for the tests.

use dafs_filer::*;
use dafs_sessions::*;
use dafs_types::*;

/// Predictable "entropy".
pub(crate) struct Counting(pub u64);

impl Entropy for Counting {
    fn next_u64(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

pub(crate) const LATER: Moment = Moment(3_600_000_000_000);

pub(crate) fn description(kind: ChannelKind) -> ChannelDescription {
    ChannelDescription { client_instance: 1, client_session: 1, kind }
}

pub(crate) fn head(class: RequestClass, stream: u16) -> RequestHead {
    RequestHead {
        stream: StreamId(stream),
        sequence: SequenceNumber(0),
        desired_credits: 0,
        chain_flags: ChainFlags(0),
        procedure: 132,
        cred_handle: CredHandle(0),
        class,
    }
}

pub(crate) fn arguments(name: &str, life: u8) -> ConnectArguments<'_> {
    ConnectArguments {
        protocol_version: PROTOCOL_VERSION,
        wanted: Negotiated::default(),
        fence_id: "fence",
        client_id_string: name.as_bytes(),
        client_verifier: Verifier([life; 8]),
        order: dafs_wire::ByteOrder::NATIVE,
    }
}

pub(crate) fn open_for<'a>(file: u64, owner: &'a str, access: ShareAccess) -> OpenArguments<'a> {
    OpenArguments::plain(FileKey(file), owner.as_bytes(), access)
}

/// The limits of both crates.
#[derive(Clone, Default)]
pub(crate) struct Config {
    pub filer: FilerConfig,
    pub sessions: SessionConfig,
}

impl From<SessionConfig> for Config {
    fn from(sessions: SessionConfig) -> Self {
        let filer = FilerConfig { clients_kept_max: sessions.channels_max, ..Default::default() };
        Self { filer, sessions }
    }
}

pub(crate) struct Bench {
    pub filer: Filer,
    pub sessions: Sessions,
    pub entropy: Counting,
}

impl Bench {
    pub(crate) fn new(config: impl Into<Config>) -> Self {
        Self::seeded(config, 0xabcdef)
    }

    pub(crate) fn seeded(config: impl Into<Config>, seed: u64) -> Self {
        let Config { filer, sessions } = config.into();
        let filer = Filer::new(filer, seed).unwrap();
        Self { filer, sessions: Sessions::new(sessions, seed).unwrap(), entropy: Counting(100) }
    }

    pub(crate) fn channel(&mut self) -> ChannelId {
        self.channel_from(PeerIdentity::Remote)
    }

    pub(crate) fn channel_from(&mut self, peer: PeerIdentity) -> ChannelId {
        let description = description(ChannelKind::Operation);
        self.sessions.channel_opened(peer, description, Moment(0)).unwrap()
    }

    pub(crate) fn admit(
        &mut self,
        channel: ChannelId,
        head: &RequestHead,
        now: Moment,
    ) -> Result<Admitted, Refusal> {
        self.sessions.admit(&mut self.filer, channel, head, now)
    }

    /// Sends one request of this class on stream 0, and its reply.
    pub(crate) fn exchange(
        &mut self,
        channel: ChannelId,
        class: RequestClass,
    ) -> Result<(), Refusal> {
        let outcome = self.admit(channel, &head(class, 0), Moment(0));
        if !matches!(outcome, Err(Refusal::Break(_))) {
            self.sessions.finish(channel, StreamId(0));
        }
        outcome.map(|_| ())
    }

    pub(crate) fn connect_with(
        &mut self,
        channel: ChannelId,
        arguments: &ConnectArguments<'_>,
    ) -> Result<ConnectResults, ConnectRefusal> {
        self.sessions.connect(&mut self.filer, channel, arguments, &mut self.entropy)
    }

    pub(crate) fn connect(&mut self, channel: ChannelId, name: &str, life: u8) -> ConnectResults {
        self.admit(channel, &head(RequestClass::Connect, 0), Moment(0)).unwrap();
        let results = self.connect_with(channel, &arguments(name, life)).unwrap();
        self.sessions.finish(channel, StreamId(0));
        results
    }

    pub(crate) fn connect_failed(&mut self, channel: ChannelId) {
        self.sessions.connect_failed(&mut self.filer, channel);
    }

    pub(crate) fn finish_auth(
        &mut self,
        channel: ChannelId,
        verified: Result<Verified, Status>,
        now: Moment,
    ) -> Result<Authenticated, Status> {
        self.sessions.finish_auth(&mut self.filer, channel, verified, now)
    }

    pub(crate) fn authenticate(&mut self, channel: ChannelId) -> Result<Authenticated, Status> {
        match self.sessions.begin_auth(channel, AuthRequest::None) {
            AuthDecision::Accept(who) => self.finish_auth(channel, Ok(who.into()), Moment(0)),
            AuthDecision::VerifyPassword | AuthDecision::VerifyToken => panic!("NONE needs none"),
            AuthDecision::Reject(status) => Err(status),
        }
    }

    /// Makes an authenticated session of an anonymous client whose incarnation has begun.
    pub(crate) fn session(&mut self, name: &str) -> ChannelId {
        let channel = self.channel();
        self.connect(channel, name, 1);
        self.authenticate(channel).unwrap();
        self.exchange(channel, RequestClass::Ordinary).unwrap();
        channel
    }

    pub(crate) fn channel_closed(
        &mut self,
        channel: ChannelId,
        end: ChannelEnd,
        now: Moment,
    ) -> Vec<Closed> {
        self.sessions.channel_closed(&mut self.filer, channel, end, now)
    }

    /// Closes a channel and returns the opens that ended.
    pub(crate) fn drop_channel(&mut self, channel: ChannelId) -> Vec<Closed> {
        self.channel_closed(channel, ChannelEnd::Lost, Moment(0))
    }

    pub(crate) fn on_tick(&mut self, now: Moment) -> TickActions {
        self.sessions.on_tick(&mut self.filer, now)
    }

    pub(crate) fn client(&self, channel: ChannelId) -> ClientKey {
        self.sessions.party_of(channel).client
    }

    pub(crate) fn open(
        &mut self,
        channel: ChannelId,
        arguments: &OpenArguments<'_>,
    ) -> Result<Opened, dafs_ops::Fault> {
        let client = self.client(channel);
        self.filer.open(client, arguments, Moment(0))
    }

    pub(crate) fn check_io(
        &mut self,
        channel: ChannelId,
        state: StateId,
        file: FileKey,
        kind: IoKind,
    ) -> Result<(), dafs_ops::Fault> {
        let client = self.client(channel);
        self.filer.check_io(client, state, file, kind, Moment(0))
    }

    /// Checks that all gauges except `channels` are zero when there is no authenticated session.
    pub(crate) fn assert_empty(&self) {
        let (sessions, filer) = (self.sessions.counters(), self.filer.counters());
        let of_sessions =
            [sessions.channels, sessions.unauthenticated, sessions.sessions, sessions.credits];
        assert_eq!(of_sessions, [0; 4], "{sessions:?}");
        assert_eq!([filer.clients, filer.opens, filer.files], [0; 3], "{filer:?}");
    }
}

//! What the tests share: a filer, its entropy, and clients that do as they should.

use dafs_filer::*;
use dafs_ops::Fault;
use dafs_types::*;

/// Predictable "entropy".
pub struct Counting(pub u64);

impl Entropy for Counting {
    fn next_u64(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

pub const LATER: Moment = Moment(3_600_000_000_000);

pub fn description(kind: ChannelKind) -> ChannelDescription {
    ChannelDescription { client_instance: 1, client_session: 1, kind }
}

pub fn head(class: RequestClass, stream: u16) -> RequestHead {
    RequestHead {
        stream: StreamId(stream),
        sequence: SequenceNumber(0),
        desired_nreq: 0,
        chain_flags: ChainFlags(0),
        procedure: 132,
        cred_handle: CredHandle(0),
        class,
    }
}

pub fn arguments(name: &str, life: u8) -> ConnectArguments<'_> {
    ConnectArguments {
        protocol_version: PROTOCOL_VERSION,
        wanted: Negotiated::default(),
        fence_id: "fence",
        client_id_string: name.as_bytes(),
        client_verifier: Verifier([life; 8]),
        order: dafs_wire::ByteOrder::NATIVE,
    }
}

pub fn open_for<'a>(file: u64, owner: &'a str, access: ShareAccess) -> OpenArguments<'a> {
    OpenArguments::plain(FileKey(file), owner.as_bytes(), access)
}

pub struct Bench {
    pub filer: Filer,
    pub entropy: Counting,
}

impl Bench {
    pub fn new(config: FilerConfig) -> Self {
        Self { filer: Filer::new(config, 0xabcdef).unwrap(), entropy: Counting(100) }
    }

    pub fn channel(&mut self) -> ChannelId {
        self.channel_from(PeerIdentity::Remote)
    }

    pub fn channel_from(&mut self, peer: PeerIdentity) -> ChannelId {
        self.filer.channel_opened(peer, description(ChannelKind::Operation), Moment(0)).unwrap()
    }

    /// One request of this class on stream 0, and its response.
    pub fn exchange(&mut self, channel: ChannelId, class: RequestClass) -> Result<(), Refusal> {
        let outcome = self.filer.admit(channel, &head(class, 0), Moment(0));
        if !matches!(outcome, Err(Refusal::Break(_))) {
            self.filer.finish(channel, StreamId(0));
        }
        outcome.map(|_| ())
    }

    pub fn connect(&mut self, channel: ChannelId, name: &str, life: u8) -> ConnectResults {
        self.filer.admit(channel, &head(RequestClass::Connect, 0), Moment(0)).unwrap();
        let results =
            self.filer.connect(channel, &arguments(name, life), &mut self.entropy).unwrap();
        self.filer.finish(channel, StreamId(0));
        results
    }

    pub fn authenticate(&mut self, channel: ChannelId) -> Result<Authenticated, Status> {
        match self.filer.begin_auth(channel, AuthRequest::None) {
            AuthDecision::Accept(who) => self.filer.finish_auth(channel, Ok(who.into()), Moment(0)),
            AuthDecision::VerifyPassword | AuthDecision::VerifyToken => panic!("NONE needs none"),
            AuthDecision::Reject(status) => Err(status),
        }
    }

    /// An authenticated session of an anonymous client that lives.
    pub fn session(&mut self, name: &str) -> ChannelId {
        let channel = self.channel();
        self.connect(channel, name, 1);
        self.authenticate(channel).unwrap();
        self.exchange(channel, RequestClass::Ordinary).unwrap();
        channel
    }

    pub fn open(
        &mut self,
        channel: ChannelId,
        arguments: &OpenArguments<'_>,
    ) -> Result<Opened, Fault> {
        self.filer.open(self.filer.party_of(channel).client, arguments, Moment(0))
    }

    pub fn open_downgrade(
        &mut self,
        channel: ChannelId,
        state: StateId,
        file: FileKey,
        access: ShareAccess,
        deny: ShareDeny,
        key: Option<ShareKey>,
    ) -> Result<(), Fault> {
        self.filer.open_downgrade(
            self.filer.party_of(channel).client,
            state,
            file,
            access,
            deny,
            key,
        )
    }

    pub fn close(
        &mut self,
        channel: ChannelId,
        state: StateId,
        file: FileKey,
    ) -> Result<Closed, Fault> {
        self.filer.close(self.filer.party_of(channel).client, state, file, Moment(0))
    }

    pub fn check_io(
        &mut self,
        channel: ChannelId,
        state: StateId,
        file: FileKey,
        kind: IoKind,
    ) -> Result<(), Fault> {
        self.filer.check_io(self.filer.party_of(channel).client, state, file, kind, Moment(0))
    }

    /// Closes a channel and returns the files whose last open went with it.
    pub fn drop_channel(&mut self, channel: ChannelId) -> Vec<Closed> {
        self.filer.channel_closed(channel, ChannelEnd::Lost, Moment(0))
    }

    /// No gauge but `channels` may be above zero without an authenticated session.
    pub fn assert_empty(&self) {
        let counters = self.filer.counters();
        let gauges = [
            counters.channels,
            counters.unauthenticated,
            counters.sessions,
            counters.clients,
            counters.opens,
            counters.files,
            counters.credits,
        ];
        assert_eq!(gauges, [0; 7], "{counters:?}");
    }
}

//! A server's machine with clients, for tests.

use std::time::Duration;

use dafs_nfs_state::{
    Admitted, Caller, ChannelAttributes, ConnectionId, CreateSession, CreateSessionOutcome,
    CreatedSession, ExchangeId, Exchanged, Nfs4Error, NfsState, Notice, PeerId, Principal,
    ProtectionAsk, SequenceAsk, Sequenced, Service, SessionId4, StateConfig, create_flags,
};
use dafs_types::{ClientId, Moment, Verifier};

/// The principals that most tests need.
pub(crate) const ROOT: &Principal = &Principal::System(0);
pub(crate) const OTHER: &Principal = &Principal::System(1000);

/// A machine, its clock and its random numbers.
pub(crate) struct World {
    pub(crate) state: NfsState,
    pub(crate) now: Moment,
    pub(crate) random: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(StateConfig::new(7))
    }

    pub(crate) fn with(config: StateConfig) -> Self {
        Self { state: NfsState::new(config), now: Moment(1), random: 0x1234_5678_9abc_def0 }
    }

    /// Lets time pass, and the machine notice it.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.state.on_time(self.now);
    }

    pub(crate) fn exchange(
        &mut self,
        owner: &str,
        verifier: u8,
        flags: u32,
        principal: &Principal,
    ) -> Result<Exchanged, Nfs4Error> {
        self.exchange_as(owner, verifier, flags, &caller(principal))
    }

    pub(crate) fn exchange_as(
        &mut self,
        owner: &str,
        verifier: u8,
        flags: u32,
        caller: &Caller<'_>,
    ) -> Result<Exchanged, Nfs4Error> {
        let ask = ExchangeId {
            owner: owner.as_bytes(),
            verifier: Verifier([verifier; 8]),
            flags,
            protection: ProtectionAsk::None,
        };
        self.state.exchange_id(&ask, caller, self.now)
    }

    pub(crate) fn create(
        &mut self,
        client: ClientId,
        sequence: u32,
        principal: &Principal,
    ) -> Result<CreateSessionOutcome, Nfs4Error> {
        self.create_with(&create_ask(client, sequence), &caller(principal))
    }

    pub(crate) fn create_with(
        &mut self,
        ask: &CreateSession<'_>,
        caller: &Caller<'_>,
    ) -> Result<CreateSessionOutcome, Nfs4Error> {
        self.random = self.random.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        self.state.create_session(ask, caller, self.random, self.now)
    }

    /// Creates a client with a session.
    pub(crate) fn client(&mut self, owner: &str) -> (Exchanged, CreatedSession) {
        let exchanged = self.exchange(owner, 1, 0, ROOT).unwrap();
        let created = created(self.create(exchanged.id, exchanged.sequence, ROOT));
        (exchanged, created)
    }

    pub(crate) fn sequence(&mut self, ask: &SequenceAsk) -> Result<Sequenced, Nfs4Error> {
        self.state.sequence(ask, &caller(ROOT), self.now)
    }

    /// Carries out a whole request whose reply is kept.
    pub(crate) fn request(&mut self, session: SessionId4, slot: u32, sequence: u32) -> Admitted {
        let admitted = new(self.sequence(&ask(session, slot, sequence)));
        assert!(self.state.finish(admitted.request, Some(b"reply"), self.now));
        admitted
    }

    pub(crate) fn notices(&mut self) -> Vec<Notice> {
        std::iter::from_fn(|| self.state.poll_notice()).collect()
    }
}

pub(crate) fn caller(principal: &Principal) -> Caller<'_> {
    Caller { principal, service: Service::Plain, connection: ConnectionId(1), peer: PeerId(1) }
}

pub(crate) fn attributes(slots: u32) -> ChannelAttributes {
    ChannelAttributes {
        header_padding: 0,
        request_bytes_max: 8192,
        reply_bytes_max: 8192,
        kept_bytes_max: 4096,
        operations_max: 16,
        requests_max: slots,
    }
}

pub(crate) fn create_ask(client: ClientId, sequence: u32) -> CreateSession<'static> {
    CreateSession {
        client,
        sequence,
        flags: create_flags::CONN_BACK_CHAN,
        fore: attributes(8),
        back: attributes(4),
        callback_program: 0x4000_0000,
        callback_security: &[],
    }
}

pub(crate) fn created(outcome: Result<CreateSessionOutcome, Nfs4Error>) -> CreatedSession {
    match outcome {
        Ok(CreateSessionOutcome::Created(_, created)) => *created,
        other => panic!("not created: {other:?}"),
    }
}

pub(crate) fn new(outcome: Result<Sequenced, Nfs4Error>) -> Admitted {
    match outcome {
        Ok(Sequenced::New(admitted)) => admitted,
        other => panic!("not new: {other:?}"),
    }
}

pub(crate) fn ask(session: SessionId4, slot: u32, sequence: u32) -> SequenceAsk {
    SequenceAsk {
        session,
        sequence,
        slot,
        highest_slot: slot,
        must_keep: true,
        checksum: 0,
        operation_count: 2,
        request_bytes: 200,
    }
}

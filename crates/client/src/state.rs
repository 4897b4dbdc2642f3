//! The state of one session with one server.
//!
//! Invariant: each pending operation of a session is in exactly one place: among its requests in
//! flight or in its recovery machine, with all data that is needed to send it again.

use std::rc::Rc;

use dafs_dat::{EndpointId, RegionPath};
use dafs_types::{ClientId, FileHandle, SequenceNumber, SessionId, StateId, StreamId, limits};
use dafs_wire::messages::SessionOptions as WireOptions;
use dafs_wire::seal;

use crate::back_channels::BackChannelState;
use crate::channels::Role;
use crate::delegation_cache::DelegationCache;
use crate::error::{ClientError, Result};
use crate::impersonation::Registrations;
use crate::in_flight::InFlight;
use crate::login::identity::{Identity, message_bytes_max};
use crate::login::tokens::{Binding, Prover};
use crate::opens::Opened;
use crate::options::SessionOptions;
use crate::recovery::machine::RecoveryMachine;
use crate::recovery::server_addresses::ServerAddress;
use crate::result_sinks::ReplyTicket;
use crate::sizes::SLOT_BYTES;
use crate::work::QueuedCall;

/// The state of one session with one server.
pub(crate) struct SessionState {
    pub phase: Phase,
    /// The current connection or, while the session reconnects, the lost one.
    pub endpoint: EndpointId,
    pub address: String,
    pub place: ServerAddress,
    /// The ticket of the future that waits until the connection is established or has failed.
    pub connect_waiter: Option<ReplyTicket>,
    pub in_flight: InFlight,
    pub terms: Terms,
    pub standing: Standing,
    pub options: Rc<SessionOptions>,
    /// The label in the session's requests, by which the server's operator can follow them.
    pub label: u64,
    pub back_state: BackChannelState,
    /// The cached files under delegations; `None` if the session uses no delegations.
    pub delegated: Option<Box<DelegationCache>>,
    /// The role of this session if one session of the application uses several channels.
    pub role: Role,
    /// The recovery state; `None` if the session ends when its connection ends.
    pub recovery: Option<Box<RecoveryMachine>>,
    /// True if the session has reconnected and no request has received a reply since.
    pub is_unconfirmed: bool,
    /// True if a message has arrived since the last check for a silent server.
    pub has_spoken: bool,
}

pub(crate) enum Phase {
    Connecting,
    Open,
    /// The connection is lost; requests wait until the session has reconnected.
    Recovering,
    Ended(ClientError),
}

/// The session parameters that were negotiated with the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The number of credits that the client requests.
    pub wanted_credits: u16,
    /// The maximum size in bytes of a request, within the limits of both the server and the
    /// transport.
    pub request_bytes_max: u32,
    /// The maximum size in bytes of a reply that the server sends.
    pub response_bytes_max: u32,
    /// The maximum size in bytes that the server accepts for a request with an authentication
    /// token.
    pub token_bytes_max: u32,
    pub checksums: bool,
    /// True if the data of small writes is sent inside their requests.
    pub writes_inline: bool,
}

/// The server's ids for the client and the session, and the client's identity.
#[derive(Default)]
pub(crate) struct Standing {
    /// The server's id for the session.
    pub session: SessionId,
    /// The server's id for the client.
    pub client: ClientId,
    /// The identity under which the session was established; `None` before that.
    pub identity: Option<Identity>,
    /// The Kerberos tickets that authenticate the client; `None` with other methods.
    pub prover: Option<Rc<Prover>>,
    /// The credentials that the session has registered for impersonation.
    pub registered: Registrations,
}

impl SessionState {
    /// Creates the state of a session whose connection is being established.
    pub(crate) fn begun(
        endpoint: EndpointId,
        place: &ServerAddress,
        options: Rc<SessionOptions>,
        recovery: Option<Box<RecoveryMachine>>,
    ) -> Self {
        let credits = options.credits.clamp(1, limits::CREDITS_MAX);
        Self {
            phase: Phase::Connecting,
            endpoint,
            address: place.address.to_string(),
            place: place.clone(),
            connect_waiter: None,
            in_flight: InFlight::new(credits),
            terms: Terms::before_connecting(credits),
            standing: Standing::default(),
            label: options.label.get(),
            back_state: BackChannelState::default(),
            delegated: options.delegations.then(Box::default),
            role: Role::Alone,
            recovery,
            options,
            is_unconfirmed: false,
            has_spoken: false,
        }
    }

    /// Checks that the session accepts requests.
    ///
    /// # Errors
    /// The reason why the session has ended.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        match &self.phase {
            Phase::Connecting | Phase::Open | Phase::Recovering => Ok(()),
            Phase::Ended(error) => Err(error.clone()),
        }
    }

    /// Returns true if the session's connection is open.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Returns true if the session waits for a reply, or if requests wait for credits.
    pub(crate) fn owes_an_answer(&self) -> bool {
        let waits = self.in_flight.has_waiting() || self.in_flight.credits.outstanding() > 0;
        waits && !matches!(self.phase, Phase::Ended(_))
    }

    /// Writes the stream and sequence number into an encoded request.
    pub(crate) fn stamp(&self, message: &mut [u8], stream: StreamId, sequence: SequenceNumber) {
        message[12..14].copy_from_slice(&stream.0.to_ne_bytes());
        message[14..16].copy_from_slice(&sequence.0.to_ne_bytes());
        self.standing.registered.fill_in_handle(message);
        // The message may contain the checksum of an earlier session.
        message[24..28].fill(0);
        if self.terms.checksums {
            seal(message, &[]);
        }
    }

    /// Disables recovery. Returns true if the session was established and its connection is open.
    pub(crate) fn begin_to_leave(&mut self) -> bool {
        let was_established = self.recovery.as_mut().is_some_and(|machine| machine.leave());
        was_established && self.is_open()
    }

    /// Replaces state ids from before a restart of the server in an encoded request by the current
    /// ones.
    #[inline]
    pub(crate) fn rewrite_state_ids(&self, message: &mut [u8]) {
        if let Some(machine) = &self.recovery {
            machine.opens().rewrite_state_ids(message);
        }
    }

    /// Records that a request received a reply, which shows that the session works.
    #[inline]
    pub(crate) fn note_progress(&mut self) {
        if self.is_unconfirmed {
            self.stand();
        }
    }

    #[cold]
    fn stand(&mut self) {
        self.is_unconfirmed = false;
        if let Some(machine) = &mut self.recovery {
            machine.note_progress();
        }
    }

    /// Returns the open that has or had this state id, or a new one that cannot be reclaimed.
    pub(crate) fn opened(&self, handle: FileHandle, state: StateId) -> Rc<Opened> {
        let known = self.recovery.as_ref().and_then(|machine| machine.opens().get(state));
        match known {
            Some(opened) if opened.handle == handle => opened.clone(),
            _ => Rc::new(Opened::plain(handle, state)),
        }
    }

    /// Returns the values that bind a Kerberos token to a channel of the session.
    pub(crate) fn binding(&self, channel: u8) -> Binding {
        Binding { session: self.standing.session, client: self.standing.client, channel }
    }

    /// Returns the maximum size in bytes that the transport allows for a request with an
    /// authentication token.
    pub(crate) fn token_request_bytes(&self) -> u32 {
        message_bytes_max(&self.place.address, &self.options.login)
    }

    /// Holds back a request that must not overtake transfers on other channels. Returns the request
    /// if it need not wait.
    pub(crate) fn hold(&mut self, call: QueuedCall) -> Option<QueuedCall> {
        let Some(machine) = &self.recovery else { return Some(call) };
        match machine.opens().ended_by(&call.message).cloned() {
            Some(opened) => self.role.hold(call, opened),
            None => Some(call),
        }
    }

    /// Returns true if the session is recovering or has delayed requests, so that events are
    /// expected even if no reply is.
    pub(crate) fn is_awaited(&self) -> bool {
        let has_waiting = self.in_flight.has_waiting();
        let is_held = self.role.holds_any();
        is_held || self.recovery.as_ref().is_some_and(|machine| machine.is_awaited(has_waiting))
    }

    /// Returns the time of the session's next timer, if it has one.
    pub(crate) fn next_timer(&self) -> Option<std::time::Duration> {
        let machine = self.recovery.as_ref()?;
        let others = [self.back_state.due, self.role.next_look()];
        machine.next_timer().into_iter().chain(others.into_iter().flatten()).min()
    }
}

impl Terms {
    /// Returns the parameters that apply before the negotiation (draft 3.1).
    pub(crate) fn before_connecting(wanted_credits: u16) -> Self {
        Self {
            wanted_credits,
            request_bytes_max: limits::CONNECT_MESSAGE_BYTES as u32,
            response_bytes_max: limits::CONNECT_MESSAGE_BYTES as u32,
            token_bytes_max: 0,
            checksums: false,
            writes_inline: true,
        }
    }

    /// Applies the granted parameters. The server may change any value; a grant that exceeds the
    /// request is not used.
    pub(crate) fn agree(&mut self, granted: &WireOptions, token_bytes: u32) {
        self.checksums = granted.checksums;
        self.request_bytes_max = granted.request_bytes_max.min(SLOT_BYTES as u32);
        self.token_bytes_max = granted.request_bytes_max.min(token_bytes);
        self.response_bytes_max = granted.response_bytes_max.min(SLOT_BYTES as u32);
    }

    /// Chooses whether the data of small writes is sent inside requests, based on how data reaches
    /// this client's memory.
    pub(crate) fn choose_write_form(&mut self, path: RegionPath) {
        self.writes_inline = matches!(path, RegionPath::Network | RegionPath::Staged);
    }

    /// Returns how many bytes of data fit in a request after the arguments of WRITE_INLINE.
    #[inline]
    pub(crate) fn inline_bytes_max(&self) -> u32 {
        self.request_bytes_max.saturating_sub(INLINE_HEAD_BYTES)
    }
}

/// The size in bytes of the header and the arguments of WRITE_INLINE.
const INLINE_HEAD_BYTES: u32 = 136;

//! One session with one server, as this side knows it.
//!
//! Invariant: what a session has to do is in exactly one of its requests under way and its
//! machine, and holds all that is needed to ask for it again.

use std::rc::Rc;

use dafs_dat::{EndpointId, RegionPath};
use dafs_types::{ClientId, FileHandle, SequenceNumber, SessionId, StateId, StreamId, limits};
use dafs_wire::messages::SessionOptions as WireOptions;
use dafs_wire::seal;

use crate::acting::Registrations;
use crate::backs::BackWish;
use crate::channels::Role;
use crate::delegated::Delegated;
use crate::ends::ReplyTicket;
use crate::error::{ClientError, Result};
use crate::login::identity::{Identity, message_bytes_max};
use crate::login::tokens::{Binding, Prover};
use crate::opens::Opened;
use crate::options::SessionOptions;
use crate::recovery::machine::RecoveryMachine;
use crate::recovery::places::Place;
use crate::sizes::SLOT_BYTES;
use crate::under_way::UnderWay;
use crate::work::QueuedCall;

/// One session with one server.
pub(crate) struct SessionState {
    pub phase: Phase,
    /// The connection that it has, or had last.
    pub endpoint: EndpointId,
    pub address: String,
    pub place: Place,
    /// Who waits for the connection to stand or fail.
    pub greeting: Option<ReplyTicket>,
    pub under_way: UnderWay,
    pub terms: Terms,
    pub standing: Standing,
    pub options: Rc<SessionOptions>,
    /// What its requests bear for whoever watches the server.
    pub label: u64,
    pub back_wish: BackWish,
    /// What is kept under delegations, if it wants any.
    pub delegated: Option<Box<Delegated>>,
    /// Whether it is one of several channels.
    pub role: Role,
    /// What it needs to come back; `None` if it ends with its connection.
    pub recovery: Option<Box<RecoveryMachine>>,
    /// It has come back, and no request has been answered since.
    pub is_frail: bool,
    /// Answers have come since the silence was looked at last.
    pub has_spoken: bool,
}

pub(crate) enum Phase {
    Connecting,
    Open,
    /// The connection is gone; requests wait until there is another.
    Recovering,
    Ended(ClientError),
}

/// What the two sides have agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Credits to wish for.
    pub wish: u16,
    /// Longest request the server takes and the transport was set up for, in bytes.
    pub request_bytes_max: u32,
    /// Longest answer the server gives, in bytes.
    pub response_bytes_max: u32,
    /// The longest request with a token that the server takes, in bytes.
    pub token_bytes_max: u32,
    pub checksums: bool,
    /// Small writes travel inside their requests.
    pub writes_inline: bool,
}

/// Who the client is to the server.
#[derive(Default)]
pub(crate) struct Standing {
    /// What the server calls the session.
    pub session: SessionId,
    /// What the server calls its client.
    pub client: ClientId,
    /// As what the session was established; `None` until it is.
    pub identity: Option<Identity>,
    /// Proves the client by tickets, if that is how it is known.
    pub prover: Option<Rc<Prover>>,
    /// Whom it may act for.
    pub registered: Registrations,
}

impl SessionState {
    /// A session whose connection is begun.
    pub fn begun(
        endpoint: EndpointId,
        place: &Place,
        options: Rc<SessionOptions>,
        recovery: Option<Box<RecoveryMachine>>,
    ) -> Self {
        let credits = options.credits.clamp(1, limits::CREDITS_MAX);
        Self {
            phase: Phase::Connecting,
            endpoint,
            address: place.address.to_string(),
            place: place.clone(),
            greeting: None,
            under_way: UnderWay::new(credits),
            terms: Terms::before_connecting(credits),
            standing: Standing::default(),
            label: options.label.get(),
            back_wish: BackWish::default(),
            delegated: options.delegations.then(Box::default),
            role: Role::Alone,
            recovery,
            options,
            is_frail: false,
            has_spoken: false,
        }
    }

    /// Whether requests are taken in.
    ///
    /// # Errors
    /// Why the session has ended.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        match &self.phase {
            Phase::Connecting | Phase::Open | Phase::Recovering => Ok(()),
            Phase::Ended(error) => Err(error.clone()),
        }
    }

    /// Whether its connection stands.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Whether the server has requests, or would have if it let them in.
    pub fn owes_an_answer(&self) -> bool {
        let waits = self.under_way.has_waiting() || self.under_way.credits.outstanding() > 0;
        waits && !matches!(self.phase, Phase::Ended(_))
    }

    /// Gives an encoded request its place among all others.
    pub fn stamp(&self, message: &mut [u8], stream: StreamId, sequence: SequenceNumber) {
        message[12..14].copy_from_slice(&stream.0.to_ne_bytes());
        message[14..16].copy_from_slice(&sequence.0.to_ne_bytes());
        self.standing.registered.name_in(message);
        // It may have been sealed for another session.
        message[24..28].fill(0);
        if self.terms.checksums {
            seal(message, &[]);
        }
    }

    /// From here on it ends with its connection. Whether that stands, and it was established.
    pub fn begin_to_leave(&mut self) -> bool {
        let was_established = self.recovery.as_mut().is_some_and(|machine| machine.leave());
        was_established && self.is_open()
    }

    /// Puts the present state ids into a request that may have some from before a restart.
    #[inline]
    pub fn restate(&self, message: &mut [u8]) {
        if let Some(machine) = &self.recovery {
            machine.opens().restate(message);
        }
    }

    /// A request was answered: the session stands.
    #[inline]
    pub fn note_progress(&mut self) {
        if self.is_frail {
            self.stand();
        }
    }

    #[cold]
    fn stand(&mut self) {
        self.is_frail = false;
        if let Some(machine) = &mut self.recovery {
            machine.note_progress();
        }
    }

    /// An open by one of its state ids.
    pub fn opened(&self, handle: FileHandle, state: StateId) -> Rc<Opened> {
        let known = self.recovery.as_ref().and_then(|machine| machine.opens().get(state));
        match known {
            Some(opened) if opened.handle == handle => opened.clone(),
            _ => Rc::new(Opened::plain(handle, state)),
        }
    }

    /// What a token for a channel of the session is bound to.
    pub fn binding(&self, channel: u8) -> Binding {
        Binding { session: self.standing.session, client: self.standing.client, channel }
    }

    /// The longest request the transport was set up for.
    pub fn token_request_bytes(&self) -> u32 {
        message_bytes_max(&self.place.address, &self.options.login)
    }

    /// Keeps a request for later that must not overtake transfers over other channels; gives it
    /// back if it need not wait.
    pub fn hold(&mut self, call: QueuedCall) -> Option<QueuedCall> {
        let Some(machine) = &self.recovery else { return Some(call) };
        match machine.opens().ended_by(&call.message).cloned() {
            Some(opened) => self.role.hold(call, opened),
            None => Some(call),
        }
    }

    /// Whether something will come, though no answer is on its way: a session that recovers,
    /// or requests that were put off.
    pub fn is_awaited(&self) -> bool {
        let has_waiting = self.under_way.has_waiting();
        let is_held = self.role.holds_any();
        is_held || self.recovery.as_ref().is_some_and(|machine| machine.is_awaited(has_waiting))
    }

    /// When something must be seen to by itself.
    pub fn next_timer(&self) -> Option<std::time::Duration> {
        let machine = self.recovery.as_ref()?;
        let others = [self.back_wish.due, self.role.next_look()];
        machine.next_timer().into_iter().chain(others.into_iter().flatten()).min()
    }
}

impl Terms {
    /// Until sizes are negotiated (draft 3.1).
    pub fn before_connecting(wish: u16) -> Self {
        Self {
            wish,
            request_bytes_max: limits::CONNECT_MESSAGE_BYTES as u32,
            response_bytes_max: limits::CONNECT_MESSAGE_BYTES as u32,
            token_bytes_max: 0,
            checksums: false,
            writes_inline: true,
        }
    }

    /// The server may change any value; what it grants beyond ours is not used.
    pub fn agree(&mut self, granted: &WireOptions, token_bytes: u32) {
        self.checksums = granted.checksums;
        self.request_bytes_max = granted.request_bytes_max.min(SLOT_BYTES as u32);
        self.token_bytes_max = granted.request_bytes_max.min(token_bytes);
        self.response_bytes_max = granted.response_bytes_max.min(SLOT_BYTES as u32);
    }

    /// How small writes should travel, by how bytes get to this client's memory.
    pub fn choose_write_form(&mut self, path: RegionPath) {
        self.writes_inline = matches!(path, RegionPath::Network | RegionPath::Staged);
    }

    /// Bytes of data that fit a request behind WRITE_INLINE's arguments.
    #[inline]
    pub fn inline_bytes_max(&self) -> u32 {
        self.request_bytes_max.saturating_sub(INLINE_HEAD_BYTES)
    }
}

/// Header and arguments of WRITE_INLINE.
const INLINE_HEAD_BYTES: u32 = 136;

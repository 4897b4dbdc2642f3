//! The back-control channel, over which a server sends requests to this client (draft 3.1.2.1,
//! 6.6).
//!
//! Invariants:
//!
//! - The client keeps a receive posted for each request that the server may have in flight on the
//!   channel, that is, for each of the server's credits.
//! - The client replies to each request of the server immediately.
//! - A channel closes when its session's connection closes, and is opened again after the session
//!   has reconnected. Batches whose completions were due on the old channel are then submitted
//!   again (`batch/resubmit.rs`), or fail if that is impossible.

use std::time::Duration;

use dafs_dat::{EndpointId, Gather, InboxSlot, coarse_now};
use dafs_gss::Initiator;
use dafs_types::limits::CONNECT_MESSAGE_BYTES;
use dafs_types::{SequenceNumber, Status, StreamId};
use dafs_wire::messages::{AuthRequest, ChannelUse, ConnectBind, Empty, GssProcedure};
use dafs_wire::{
    ByteOrder, ChannelType, ConnectData, Procedure, Request, RequestHeader, Response,
    ResponseHeader, decode_request, encode_request, encode_response, is_intact, seal,
};

use crate::back_channels::{BackChannelPhase, BackChannelState, LockReady};
use crate::core::Core;
use crate::decode::{decode_any, unexpected};
use crate::delegation_cache::encode_told;
use crate::disconnect_reasons::Loss;
use crate::error::{ClientError, Result};
use crate::ids::SessionKey;
use crate::login::tokens::{
    AuthFailure, AuthStep, BACK_CONTROL_CHANNEL, Prover, TOKEN_ROOM, token_request,
};
use crate::session::Session;
use crate::sizes::SLOT_BYTES;
use crate::state::{Phase, SessionState};
use crate::transport::{Opening, Owner};

impl Session {
    /// Opens the back-control channel unless it is open. Over this channel the server reports
    /// completions of submitted batches, and that a lock requested earlier is now free. Submitting
    /// a batch that needs the channel opens it too. In a session authenticated by Kerberos the call
    /// blocks until it has obtained a token, as connecting does.
    ///
    /// # Errors
    /// If the session has ended, if the client cannot make a second connection to the server, or if
    /// the server does not support back-control channels.
    pub fn listen(&self) -> Result<()> {
        self.shared.turn_until(self.key, |core| core.await_back(self.key))
    }

    /// Removes and returns the oldest of the server's reports that a lock is free, or `None` if
    /// there is none. The server sends reports only while the channel is open
    /// ([`Session::listen`]).
    #[must_use]
    pub fn next_lock_ready(&self) -> Option<LockReady> {
        self.shared.borrow_mut().back_channels.of_mut(self.key)?.next_ready()
    }

    /// Returns true if the server has reported exactly this lock to be free, and removes the
    /// report.
    pub(crate) fn take_lock_ready(&self, ready: &LockReady) -> bool {
        let mut core = self.shared.borrow_mut();
        core.back_channels.of_mut(self.key).is_some_and(|back| back.take_ready(ready))
    }
}

impl Core {
    /// Opens the session's back-control channel if there is none. Returns the result of opening, or
    /// `None` while the channel is still being opened.
    fn await_back(&mut self, key: SessionKey) -> Option<Result<()>> {
        let session = match self.sessions.open_mut(key) {
            Ok(session) => session,
            Err(error) => return Some(Err(error)),
        };
        let known = match self.back_channels.of(key).map(|back| &back.phase) {
            Some(BackChannelPhase::Connecting | BackChannelPhase::Binding(_)) => return None,
            Some(BackChannelPhase::Bound) => return Some(Ok(())),
            Some(BackChannelPhase::Ended(error)) => Some(error.clone()),
            None => None,
        };
        if let Some(error) = known {
            // The stored error is the reason why an earlier channel was lost; it says nothing about
            // a new channel.
            let is_wanted = std::mem::take(&mut session.back_state.is_wanted);
            self.close_back(key);
            if !is_wanted {
                return Some(Err(error));
            }
        }
        match self.sessions[key].phase {
            Phase::Open => self.connect_back(key).err().map(Err),
            Phase::Connecting | Phase::Recovering | Phase::Ended(_) => None,
        }
    }

    fn connect_back(&mut self, key: SessionKey) -> Result<()> {
        let session = &self.sessions[key];
        let opening = Opening {
            owner: Owner::BackControl(key),
            place: &session.place,
            options: &session.options,
            // A Kerberos token may be longer than any message on this channel.
            message_bytes_max: match &session.standing.prover {
                Some(_) => session.token_request_bytes(),
                None => SLOT_BYTES as u32,
            },
            receives: RECEIVES,
            data: ConnectData {
                client_instance: std::process::id(),
                client_session: key.index(),
                channel: ChannelType::BackControl,
            },
        };
        let opened = self.transport.open(&opening);
        let endpoint = opened.map_err(|failure| failure.at(&session.place.address))?;
        self.back_channels.add(key, endpoint);
        Ok(())
    }

    /// Sends CONNECT_BIND over a channel whose connection has been established, to bind the channel
    /// to its session.
    pub(crate) fn on_back_established(&mut self, key: SessionKey) {
        let session = &self.sessions[key];
        let bound = match &session.standing.prover {
            None => {
                let authentication = session.options.login.plain();
                session.bind_request(authentication).map(|message| (None, message))
            }
            Some(prover) => bind_by_token(session, prover),
        };
        let Some(back) = self.back_channels.of_mut(key) else { return };
        match bound {
            Ok((party, message)) => {
                back.phase = BackChannelPhase::Binding(party);
                let endpoint = back.endpoint;
                self.send_back(endpoint, &message);
            }
            Err(error) => self.refuse_back(key, error),
        }
    }

    /// Handles a message on the channel: a request from the server or the reply to CONNECT_BIND.
    pub(crate) fn on_asked(
        &mut self,
        key: SessionKey,
        endpoint: EndpointId,
        mut slot: InboxSlot,
        length: u32,
    ) {
        let message = slot.message(length).to_vec();
        self.transport.give_back_at_once(endpoint, slot);
        let Some(back) = self.back_channels.of_mut(key) else { return };
        match &mut back.phase {
            BackChannelPhase::Binding(party) => {
                let party = party.take();
                self.on_bound(key, party, &message);
            }
            BackChannelPhase::Bound => self.answer_back(key, endpoint, &message),
            BackChannelPhase::Connecting | BackChannelPhase::Ended(_) => {}
        }
    }

    fn on_bound(&mut self, key: SessionKey, party: Option<Box<Initiator>>, message: &[u8]) {
        let session = &mut self.sessions[key];
        match session.judge_bound(party, message) {
            Ok(()) => {
                (session.back_state.is_wanted, session.back_state.due) = (true, None);
                if let Some(back) = self.back_channels.of_mut(key) {
                    back.phase = BackChannelPhase::Bound;
                }
                self.submit_again(key);
            }
            Err(error) => self.refuse_back(key, error),
        }
    }

    fn answer_back(&mut self, key: SessionKey, endpoint: EndpointId, message: &[u8]) {
        let session = &mut self.sessions[key];
        let checksums = session.terms.checksums;
        let decoded = decode_request(ByteOrder::NATIVE, message);
        let (header, request) = match decoded {
            Ok(decoded) if !checksums || is_intact(message) => decoded,
            _ => {
                let what = "the back-control channel".to_owned();
                let address = session.address.clone();
                return self.refuse_back(key, ClientError::Protocol { address, what });
            }
        };
        let (status, response) = match &request {
            Request::BcNull(_) => (Status::Ok, Response::BcNull(Empty)),
            Request::BcLockReady(ready) => {
                let (file, state) = (ready.file, ready.state);
                let (offset, length) = (ready.offset, ready.length);
                if let Some(back) = self.back_channels.of_mut(key) {
                    back.note_ready(LockReady { file, state, offset, length });
                }
                (Status::Ok, Response::BcLockReady(Empty))
            }
            Request::BcBatchCompletion(done) => {
                session.back_state.losses = 0;
                // Completions of batches that this session no longer has are ignored: those batches
                // failed when an earlier channel was lost.
                self.take_completions(key, &done.completions);
                (Status::Ok, Response::BcBatchCompletion(Empty))
            }
            Request::BcRecall(_) => (Status::Ok, Response::BcRecall(Empty)),
            // Encoded below by `encode_told`.
            Request::BcGetAttr(_) => (Status::Ok, Response::Failed),
            _ => (Status::NotSupp, Response::Failed),
        };
        let answer = ResponseHeader::answering(&header, status, CREDITS);
        let mut bytes = [0; ANSWER_BYTES_MAX];
        let encoded = match &request {
            Request::BcGetAttr(wanted) => encode_told(&answer, wanted, &mut bytes),
            _ => encode_response(ByteOrder::NATIVE, &answer, &response, &mut bytes),
        };
        if let Ok(length) = encoded {
            if checksums {
                seal(&mut bytes[..length], &[]);
            }
            self.send_back(endpoint, &bytes[..length]);
        }
        if let Request::BcRecall(recall) = &request {
            self.on_recall(key, &recall.file, recall.state);
        }
        // The completed requests have freed resources at the server, which may have refused other
        // requests because it was busy.
        self.send_refused(key);
    }

    fn send_back(&mut self, endpoint: EndpointId, message: &[u8]) {
        // A failure means that the connection is ending, which an event will report.
        let _ = self.transport.post(endpoint, &[Gather::Bytes(message)]);
    }

    // ---- losing and closing the channel ------------------------------------------------

    /// Handles the loss of a channel's connection.
    pub(crate) fn end_back(&mut self, key: SessionKey, loss: Loss) {
        let Some(back) = self.back_channels.of_mut(key) else { return };
        let was_new = match back.phase {
            BackChannelPhase::Connecting | BackChannelPhase::Binding(_) => true,
            BackChannelPhase::Bound => false,
            BackChannelPhase::Ended(_) => return,
        };
        let session = &mut self.sessions[key];
        let address = session.address.clone();
        let Loss { text, system } = loss;
        let reason = format!("the back-control channel: {text}");
        let has_submitted = !self.batches.submitted(key).is_empty();
        let error = if was_new {
            ClientError::Connect { address, reason: reason.clone(), system }
        } else {
            ClientError::SessionEnded { address, reason: reason.clone() }
        };
        // In most cases the server itself is unreachable. Besides, only a reconnect of the whole
        // session makes it certain that no submitted batch is still running.
        let state = &mut session.back_state;
        if has_submitted && session.recovery.is_some() && state.losses < LOSSES_MAX {
            state.losses += 1;
            return self.on_connection_lost(key, reason.into());
        }
        back.phase = BackChannelPhase::Ended(error.clone());
        state.due = None;
        self.batches.fail_submitted(key, &error);
        self.return_all(key);
    }

    /// Closes a channel that cannot be used, and fails the batches whose completions were due on
    /// it.
    fn refuse_back(&mut self, key: SessionKey, error: ClientError) {
        let Some(back) = self.back_channels.of_mut(key) else { return };
        let endpoint = back.endpoint;
        back.phase = BackChannelPhase::Ended(error.clone());
        self.batches.fail_submitted(key, &error);
        self.sessions[key].back_state = BackChannelState::default();
        self.return_all(key);
        self.transport.close(endpoint);
    }

    /// Closes the back-control channel of a session that has lost its connection.
    pub(crate) fn close_back_of_lost(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        session.back_state.due = None;
        if let Some(delegated) = &mut session.delegated {
            delegated.set_aside();
        }
        self.close_back(key);
    }

    /// Opens the channel again after its session has reconnected.
    pub(crate) fn rebind_back(&mut self, key: SessionKey) {
        self.return_owed(key);
        let session = &mut self.sessions[key];
        let Some(machine) = &session.recovery else { return };
        if !session.back_state.is_wanted {
            return;
        }
        session.back_state.due = Some(coarse_now() + machine.attempt_timeout());
        self.sessions.note_timer();
        if let Err(error) = self.connect_back(key) {
            self.sessions[key].back_state.due = None;
            self.batches.fail_submitted(key, &error);
        }
    }

    /// Closes the channel and fails its batches if the deadline for reopening the channel has
    /// passed.
    pub(crate) fn check_back_timer(&mut self, key: SessionKey, now: Duration) {
        let session = &mut self.sessions[key];
        if session.back_state.due.take_if(|due| *due <= now).is_some() {
            let address = session.address.clone();
            let reason = "the back-control channel could not be opened again in time".into();
            self.refuse_back(key, ClientError::Connect { address, reason, system: None });
        }
    }

    /// Closes the channel and fails all batches of a session that has ended.
    pub(crate) fn end_back_of(&mut self, key: SessionKey, error: &ClientError) {
        self.batches.fail_all(key, error);
        self.close_back_of_lost(key);
        self.sessions[key].back_state = BackChannelState::default();
    }

    fn close_back(&mut self, key: SessionKey) {
        if let Some(endpoint) = self.back_channels.remove(key) {
            self.transport.close(endpoint);
        }
    }
}

impl SessionState {
    /// Checks the reply to CONNECT_BIND: its status and, with Kerberos, the server's proof of
    /// identity.
    fn judge_bound(&self, party: Option<Box<Initiator>>, message: &[u8]) -> Result<()> {
        let address = &self.address;
        let (header, response) = decode_any(Procedure::ConnectBind, message, address)?;
        let result = match &response {
            Response::ConnectBind(result) => Some(&result.authentication),
            _ => None,
        };
        if let (Some(party), Some(prover)) = (party, &self.standing.prover) {
            let outlook = prover.process_reply(*party, header.status, result);
            return match outlook.map_err(|unproved| unproved.at(address))? {
                AuthStep::Proved(_) => Ok(()),
                // A second token is an error, because the draft binds a channel with a single
                // request.
                AuthStep::Token(..) => Err(unexpected(address, "CONNECT_BIND")),
            };
        }
        match header.status {
            Status::Ok => Ok(()),
            status => {
                let what = format!("opening a back-control channel to {address}");
                Err(ClientError::Status { what, status })
            }
        }
    }

    /// Encodes CONNECT_BIND for the session's back-control channel.
    fn bind_request(&self, authentication: AuthRequest<'_>) -> Result<Vec<u8>> {
        let token_bytes = match &authentication {
            AuthRequest::Gss { token, .. } => token.len() + TOKEN_ROOM,
            AuthRequest::None | AuthRequest::Text { .. } | AuthRequest::Default => 0,
        };
        let request = Request::ConnectBind(ConnectBind {
            session: self.standing.session,
            channel_use: ChannelUse::BackControl,
            request_bytes_max: SLOT_BYTES as u32,
            response_bytes_max: SLOT_BYTES as u32,
            requests_max: u32::from(CREDITS),
            authentication,
        });
        let header = RequestHeader::new(StreamId(0), SequenceNumber(0));
        let mut message = vec![0; token_bytes.max(CONNECT_MESSAGE_BYTES)];
        match encode_request(ByteOrder::NATIVE, &header, &request, &mut message) {
            Ok(length) => {
                message.truncate(length);
                Ok(message)
            }
            Err(error) => {
                let what = format!("CONNECT_BIND: {error}");
                Err(ClientError::Status { what, status: error.status() })
            }
        }
    }
}

/// Encodes CONNECT_BIND with a new Kerberos token, and returns the context that checks the reply.
fn bind_by_token(
    session: &SessionState,
    prover: &Prover,
) -> Result<(Option<Box<Initiator>>, Vec<u8>)> {
    let failed = |unproved: AuthFailure| unproved.at(&session.address);
    let (party, token) = prover.begin(session.binding(BACK_CONTROL_CHANNEL)).map_err(failed)?;
    let procedure = GssProcedure::Init;
    let authentication =
        token_request(procedure, &token, session.terms.token_bytes_max).map_err(failed)?;
    Ok((Some(Box::new(party)), session.bind_request(authentication)?))
}

/// The number of requests that a server may have in flight on the channel.
const CREDITS: u16 = 16;

/// The number of posted receives. One is spare, because the server's next message may arrive before
/// the client has processed the previous one.
const RECEIVES: u16 = CREDITS + 1;

/// The number of consecutive losses of the channel, without a completion report between them, after
/// which the session no longer reconnects to restore the channel.
const LOSSES_MAX: u32 = 3;

/// The maximum size in bytes of replies on this channel; the largest replies contain attributes.
const ANSWER_BYTES_MAX: usize = 1024;

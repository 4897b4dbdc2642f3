//! The back-control channel: what a server asks of this client (draft 3.1.2.1, 6.6).
//!
//! Invariant: a receive is posted for every request the server has a credit for; each request is
//! answered at once. A session has one channel at most. It goes with the session's connection, and
//! is opened again when the session has come back; what was to be told over it is then asked for
//! anew (`batch/again.rs`), and fails if that cannot be done.

use std::collections::VecDeque;
use std::time::Duration;

use dafs_dat::{
    EndpointConfig, EndpointId, Gather, Inbox, MpaOptions, SendOptions, Signal, coarse_now,
};
use dafs_gss::Initiator;
use dafs_types::limits::CONNECT_MESSAGE_BYTES;
use dafs_types::{FileHandle, SequenceNumber, StateId, Status, StreamId};
use dafs_wire::messages::{AuthRequest, ChannelUse, ConnectBind, Empty, GssProcedure};
use dafs_wire::{
    ByteOrder, ChannelType, ConnectData, Procedure, Request, RequestHeader, Response,
    ResponseHeader, decode_request, encode_request, encode_response, is_intact, seal,
};

use crate::core::{Core, DOMAIN, Phase as SessionPhase, SLOT_BYTES, SessionState};
use crate::decode::decode_any;
use crate::delegations::encode_told;
use crate::error::{ClientError, Result};
use crate::login::{BACK_CONTROL_CHANNEL, Outlook, Prover, TOKEN_ROOM, Unproved, token_request};
use crate::session::{Session, tls_target, unexpected};

/// The turn of a lock that was asked for, and denied, has come: ask for it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockReady {
    /// The file.
    pub file: FileHandle,
    /// The open that it was asked for under.
    pub state: StateId,
    /// First octet of the lock.
    pub offset: u64,
    /// Its octets; all ones to the end of the file.
    pub length: u64,
}

/// One channel.
pub(crate) struct Back {
    endpoint: EndpointId,
    session: usize,
    phase: Phase,
    inbox: Inbox,
    locks_ready: VecDeque<LockReady>,
}

enum Phase {
    Connecting,
    /// CONNECT_BIND is under way, with a token of this party's or without.
    Binding(Option<Box<Initiator>>),
    Bound,
    Ended(ClientError),
}

/// Whether a session wants a channel.
#[derive(Debug, Default)]
pub(crate) struct BackWish {
    /// It had one: when it comes back it has one again.
    is_wanted: bool,
    /// When one that is opened again must stand.
    pub due: Option<Duration>,
    /// How often in a row the channel was lost with nothing told over it.
    losses: u32,
}

impl Session {
    /// Opens the back-control channel, unless there is one: over it the server tells of the ends
    /// of submitted batches, and that the turn of a lock has come. Batches that need it open it
    /// by themselves. In a session by Kerberos this blocks for a token as connecting does.
    ///
    /// # Errors
    /// If the session has ended, the server cannot be reached a second time, or takes no such
    /// channel.
    pub fn listen(&self) -> Result<()> {
        self.shared.turn_until(self.index, |core| core.await_back(self.index))
    }

    /// The next lock that the server has said to be ready, if the channel is open
    /// ([`Session::listen`]).
    #[must_use]
    pub fn next_lock_ready(&self) -> Option<LockReady> {
        let mut core = self.shared.borrow_mut();
        let mut backs = core.backs.iter_mut();
        backs.find(|back| back.session == self.index)?.locks_ready.pop_front()
    }
}

impl Session {
    /// Whether the server has said that the turn of just this lock has come; said once.
    pub(crate) fn take_lock_ready(&self, ready: &LockReady) -> bool {
        let mut core = self.shared.borrow_mut();
        let mut backs = core.backs.iter_mut();
        let Some(back) = backs.find(|back| back.session == self.index) else { return false };
        let place = back.locks_ready.iter().position(|other| other == ready);
        place.is_some_and(|place| back.locks_ready.remove(place).is_some())
    }
}

impl Core {
    /// Whether the server can tell a session something.
    pub fn listens(&self, index: usize) -> bool {
        let mut backs = self.backs.iter();
        backs.any(|back| back.session == index && matches!(back.phase, Phase::Bound))
    }

    /// Whether the channel of a session stands, which is opened if there is none; `None` while
    /// that is not known.
    fn await_back(&mut self, index: usize) -> Option<Result<()>> {
        if let Err(error) = self.check_open(index) {
            return Some(Err(error));
        }
        if let Some(back) = self.backs.iter().find(|back| back.session == index) {
            let error = match &back.phase {
                Phase::Connecting | Phase::Binding(_) => return None,
                Phase::Bound => return Some(Ok(())),
                Phase::Ended(error) => error.clone(),
            };
            self.close_back(back.endpoint);
            // That one was lost which stood says nothing about another.
            if !std::mem::take(&mut self.sessions[index].back_wish.is_wanted) {
                return Some(Err(error));
            }
        }
        match self.sessions[index].phase {
            SessionPhase::Open => self.connect_back(index).err().map(Err),
            SessionPhase::Connecting | SessionPhase::Recovering | SessionPhase::Ended(_) => None,
        }
    }

    fn connect_back(&mut self, index: usize) -> Result<()> {
        let session = &self.sessions[index];
        let (place, options) = (session.place.clone(), session.options.clone());
        let address = place.address;
        let failed = |reason: String| ClientError::Connect { address: address.to_string(), reason };
        let tls = tls_target(&address, &options).map_err(|error| failed(error.to_string()))?;
        let mut inbox = Inbox::new(&mut self.interface, DOMAIN, RECEIVES, SLOT_BYTES as u32)
            .map_err(|error| failed(error.to_string()))?;
        let config = EndpointConfig {
            // A token may be longer than anything that is told.
            message_bytes_max: match &session.prover {
                Some(_) => session.token_request_bytes(),
                None => SLOT_BYTES as u32,
            },
            receives_max: u32::from(RECEIVES),
            crc: options.crc,
            tls,
            mpa: MpaOptions { long_frames: true, ..MpaOptions::default() },
            socket_trust: place.trust,
            ..EndpointConfig::default()
        };
        let data = ConnectData {
            client_instance: std::process::id(),
            client_session: index as u32,
            channel: ChannelType::BackControl,
        };
        let data = data.encode(ByteOrder::NATIVE);
        let endpoint = match self.interface.connect(&address, DOMAIN, &config, &data) {
            Ok(endpoint) => endpoint,
            Err(error) => {
                self.interface.deregister(inbox.key());
                return Err(failed(error.to_string()));
            }
        };
        while inbox.post(&mut self.interface, endpoint) {}
        self.backs.push(Back {
            endpoint,
            session: index,
            phase: Phase::Connecting,
            inbox,
            locks_ready: VecDeque::new(),
        });
        Ok(())
    }

    /// The connection stands: it is bound to its session.
    pub fn on_back_established(&mut self, endpoint: EndpointId) {
        let Some(place) = self.backs.iter().position(|back| back.endpoint == endpoint) else {
            return;
        };
        let session = &self.sessions[self.backs[place].session];
        let bound = match &session.prover {
            None => {
                let authentication = session.options.login.plain();
                session.bind_request(authentication).map(|message| (None, message))
            }
            Some(prover) => bind_by_token(session, prover),
        };
        match bound {
            Ok((party, message)) => {
                self.backs[place].phase = Phase::Binding(party);
                self.send_back(endpoint, &message);
            }
            Err(error) => self.refuse_back(endpoint, error),
        }
    }

    /// The first completion is a receive's: the server asks something, or has answered
    /// CONNECT_BIND.
    pub fn on_back_received(&mut self, endpoint: EndpointId, length: u32, is_good: bool) {
        let place = self.backs.iter().position(|back| back.endpoint == endpoint);
        let slot =
            place.and_then(|place| self.interface.pass_message(&mut self.backs[place].inbox));
        let (Some(place), Some(mut slot)) = (place, slot) else {
            return self.interface.pass_completion();
        };
        if !is_good {
            return;
        }
        let back = &mut self.backs[place];
        // What is answered frees the server to ask once more.
        let message = slot.message(length).to_vec();
        back.inbox.give_back(slot);
        back.inbox.post(&mut self.interface, endpoint);
        match &mut back.phase {
            Phase::Binding(party) => {
                let party = party.take();
                self.on_bound(place, party, &message);
            }
            Phase::Bound => self.answer_back(place, &message),
            Phase::Connecting | Phase::Ended(_) => {}
        }
    }

    /// CONNECT_BIND was answered.
    fn on_bound(&mut self, place: usize, party: Option<Box<Initiator>>, message: &[u8]) {
        let (endpoint, index) = (self.backs[place].endpoint, self.backs[place].session);
        match self.judge_bound(index, party, message) {
            Ok(()) => {
                self.backs[place].phase = Phase::Bound;
                let wish = &mut self.sessions[index].back_wish;
                (wish.is_wanted, wish.due) = (true, None);
                self.submit_again(index);
            }
            Err(error) => self.refuse_back(endpoint, error),
        }
    }

    /// Whether the server has bound the channel, and is who it must be.
    fn judge_bound(
        &self,
        index: usize,
        party: Option<Box<Initiator>>,
        message: &[u8],
    ) -> Result<()> {
        let session = &self.sessions[index];
        let address = &session.address;
        let (header, response) = decode_any(Procedure::ConnectBind, message, address)?;
        let result = match &response {
            Response::ConnectBind(result) => Some(&result.authentication),
            _ => None,
        };
        if let (Some(party), Some(prover)) = (party, &session.prover) {
            let outlook = prover.go_on(*party, header.status, result);
            return match outlook.map_err(|unproved| unproved.at(address))? {
                Outlook::Proved(_) => Ok(()),
                // Kerberos needs one; and the draft binds by one request.
                Outlook::Token(..) => Err(unexpected(address, "CONNECT_BIND")),
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

    fn answer_back(&mut self, place: usize, message: &[u8]) {
        let (endpoint, session) = (self.backs[place].endpoint, self.backs[place].session);
        let checksums = self.sessions[session].checksums;
        let decoded = decode_request(ByteOrder::NATIVE, message);
        let (header, request) = match decoded {
            Ok(decoded) if !checksums || is_intact(message) => decoded,
            _ => {
                let what = "the back-control channel".to_owned();
                let address = self.sessions[session].address.clone();
                return self.refuse_back(endpoint, ClientError::Protocol { address, what });
            }
        };
        let (status, response) = match &request {
            Request::BcNull(_) => (Status::Ok, Response::BcNull(Empty)),
            Request::BcLockReady(ready) => {
                let locks = &mut self.backs[place].locks_ready;
                if locks.len() == LOCKS_READY_MAX {
                    locks.pop_front();
                }
                let (file, state) = (ready.file, ready.state);
                let (offset, length) = (ready.offset, ready.length);
                locks.push_back(LockReady { file, state, offset, length });
                (Status::Ok, Response::BcLockReady(Empty))
            }
            Request::BcBatchCompletion(done) => {
                self.sessions[session].back_wish.losses = 0;
                // What is not of this session's any more has failed with an earlier channel.
                self.take_completions(session, &done.completions);
                (Status::Ok, Response::BcBatchCompletion(Empty))
            }
            Request::BcRecall(_) => (Status::Ok, Response::BcRecall(Empty)),
            // Encoded further down.
            Request::BcGetAttr(_) => (Status::Ok, Response::Failed),
            _ => (Status::NotSupp, Response::Failed),
        };
        let answer = ResponseHeader::answering(&header, status, CREDITS);
        let mut octets = [0; ANSWER_BYTES_MAX];
        let encoded = match &request {
            Request::BcGetAttr(wanted) => encode_told(&answer, wanted, &mut octets),
            _ => encode_response(ByteOrder::NATIVE, &answer, &response, &mut octets),
        };
        if let Ok(length) = encoded {
            if checksums {
                seal(&mut octets[..length], &[]);
            }
            self.send_back(endpoint, &octets[..length]);
        }
        if let Request::BcRecall(recall) = &request {
            self.on_recall(session, &recall.file, recall.state);
        }
        // There may be room now for what the server was too busy for.
        self.send_refused(session);
    }

    fn send_back(&mut self, endpoint: EndpointId, message: &[u8]) {
        let options = SendOptions { signal: Signal::OnError, invalidate: None };
        let gather = [Gather::Bytes(message)];
        // A failure means that the connection is ending, which an event tells.
        let _ = self.interface.post_send(endpoint, u64::MAX, &gather, options);
    }

    // ---- the end --------------------------------------------------------------------

    /// A channel is gone, if this is one.
    pub fn end_back(&mut self, endpoint: EndpointId, reason: &str) {
        let Some(back) = self.backs.iter_mut().find(|back| back.endpoint == endpoint) else {
            return;
        };
        let index = back.session;
        let session = &mut self.sessions[index];
        let address = session.address.clone();
        let reason = format!("the back-control channel: {reason}");
        let was_new = matches!(back.phase, Phase::Connecting | Phase::Binding(_));
        if matches!(back.phase, Phase::Ended(_)) {
            return;
        }
        let has_submitted = !self.batches.submitted(index).is_empty();
        let error = if was_new {
            ClientError::Connect { address, reason: reason.clone() }
        } else {
            ClientError::SessionEnded { address, reason: reason.clone() }
        };
        // Mostly the server is gone altogether. And only a session that comes back as a whole knows
        // that nothing of what was submitted before runs any more.
        let wish = &mut session.back_wish;
        if has_submitted && session.keeper.is_some() && wish.losses < LOSSES_MAX {
            wish.losses += 1;
            return self.lose(index, reason);
        }
        back.phase = Phase::Ended(error.clone());
        wish.due = None;
        self.fail_submitted(index, &error);
        self.return_all(index);
    }

    /// A channel is of no use; what was to be told over it fails.
    fn refuse_back(&mut self, endpoint: EndpointId, error: ClientError) {
        let Some(back) = self.backs.iter_mut().find(|back| back.endpoint == endpoint) else {
            return;
        };
        let index = back.session;
        back.phase = Phase::Ended(error.clone());
        self.fail_submitted(index, &error);
        self.sessions[index].back_wish = BackWish::default();
        self.return_all(index);
        self.interface.disconnect(endpoint);
    }

    fn fail_submitted(&mut self, index: usize, error: &ClientError) {
        self.batches.fail_all(index, error, false);
    }

    /// The connection of a session is gone, and its channel with it.
    pub fn part_back_of(&mut self, index: usize) {
        self.sessions[index].back_wish.due = None;
        if let Some(delegated) = &mut self.sessions[index].delegated {
            delegated.set_aside();
        }
        while let Some(back) = self.backs.iter().find(|back| back.session == index) {
            self.close_back(back.endpoint);
        }
    }

    /// A session has come back: so does its channel.
    pub fn rebind_back(&mut self, index: usize) {
        self.return_owed(index);
        let session = &mut self.sessions[index];
        let Some(keeper) = &session.keeper else { return };
        if !session.back_wish.is_wanted {
            return;
        }
        session.back_wish.due = Some(coarse_now() + keeper.recovery.attempt_timeout);
        self.has_timers = true;
        if let Err(error) = self.connect_back(index) {
            self.sessions[index].back_wish.due = None;
            self.fail_submitted(index, &error);
        }
    }

    /// Looks whether a channel that is opened again takes too long.
    pub fn mind_back(&mut self, index: usize, now: Duration) {
        if self.sessions[index].back_wish.due.take_if(|due| *due <= now).is_none() {
            return;
        }
        let open = self.backs.iter().find(|back| back.session == index);
        if let Some(endpoint) = open.map(|back| back.endpoint) {
            let address = self.sessions[index].address.clone();
            let reason = "the back-control channel could not be opened again in time".into();
            self.refuse_back(endpoint, ClientError::Connect { address, reason });
        }
    }

    /// A session has ended: its channel and its batches end with it.
    pub fn end_backs_of(&mut self, session: usize, error: &ClientError) {
        self.batches.fail_all(session, error, true);
        self.part_back_of(session);
        self.sessions[session].back_wish = BackWish::default();
    }

    fn close_back(&mut self, endpoint: EndpointId) {
        self.interface.disconnect(endpoint);
        if let Some(place) = self.backs.iter().position(|back| back.endpoint == endpoint) {
            let back = self.backs.swap_remove(place);
            self.interface.deregister(back.inbox.key());
        }
    }
}

impl SessionState {
    /// CONNECT_BIND for its back-control channel.
    fn bind_request(&self, authentication: AuthRequest<'_>) -> Result<Vec<u8>> {
        let token_bytes = match &authentication {
            AuthRequest::Gss { token, .. } => token.len() + TOKEN_ROOM,
            AuthRequest::None | AuthRequest::Text { .. } | AuthRequest::Default => 0,
        };
        let request = Request::ConnectBind(ConnectBind {
            session: self.id,
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

/// CONNECT_BIND with a token made for this channel, and who reads the answer.
fn bind_by_token(
    session: &SessionState,
    prover: &Prover,
) -> Result<(Option<Box<Initiator>>, Vec<u8>)> {
    let failed = |unproved: Unproved| unproved.at(&session.address);
    let (party, token) = prover.begin(session.binding(BACK_CONTROL_CHANNEL)).map_err(failed)?;
    let procedure = GssProcedure::Init;
    let authentication =
        token_request(procedure, &token, session.token_bytes_max).map_err(failed)?;
    Ok((Some(Box::new(party)), session.bind_request(authentication)?))
}

/// Requests that a server may have outstanding.
const CREDITS: u16 = 16;
/// Receives posted: one to spare, since the next may come before an answer is looked at.
const RECEIVES: u16 = CREDITS + 1;
/// Losses of the channel in a row, with nothing told over it, that a session comes back from.
const LOSSES_MAX: u32 = 3;
/// Locks that are ready and not asked about; hints beyond them are forgotten.
const LOCKS_READY_MAX: usize = 1024;
/// Answers on this channel have attributes at most.
const ANSWER_BYTES_MAX: usize = 1024;

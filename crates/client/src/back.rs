//! The back-control channel: what a server asks of this client (draft 3.1.2.1, 6.6).
//!
//! Invariant: a receive is posted for every request the server has a credit for; each request is
//! answered at once. A session has one channel at most, which ends with it; what was to be told
//! over one that is gone fails.

use std::collections::VecDeque;

use dafs_dat::{EndpointConfig, EndpointId, Gather, Region, Rights, SendOptions, Signal};
use dafs_memory::{Memory, Pages};
use dafs_types::{FileHandle, SequenceNumber, StateId, Status, StreamId};
use dafs_wire::messages::{AuthRequest, ChannelUse, ConnectBind, Empty};
use dafs_wire::{
    ByteOrder, ChannelType, Checksum, ConnectData, Procedure, Request, RequestHeader, Response,
    ResponseHeader, SpecialConditions, decode_request, encode_request, encode_response, is_intact,
    seal,
};

use crate::core::{Core, DOMAIN, SLOT_BYTES, decode_any, slot_segment, system};
use crate::error::{ClientError, Result};
use crate::session::{Login, Session, tls_target};

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
    inbox: Memory,
    region: Region,
    locks_ready: VecDeque<LockReady>,
}

enum Phase {
    Connecting,
    Connected,
    /// The answer to CONNECT_BIND.
    Answered(Vec<u8>),
    Bound,
    Ended(String),
}

impl Session {
    /// Opens the back-control channel, unless there is one: over it the server tells of the ends
    /// of submitted batches, and that the turn of a lock has come. Batches that need it open it
    /// by themselves.
    ///
    /// # Errors
    /// If the session has ended, the server cannot be reached a second time, or takes no such
    /// channel.
    pub fn listen(&self) -> Result<()> {
        let mut core = self.shared.borrow_mut();
        core.check_open(self.index)?;
        core.forget_ended_back(self.index);
        if core.backs.iter().any(|back| back.session == self.index) {
            return Ok(());
        }
        let endpoint = core.connect_back(self)?;
        let outcome = core.bind_back(self, endpoint);
        if outcome.is_err() {
            core.close_back(endpoint);
        }
        outcome
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

impl Core {
    fn connect_back(&mut self, session: &Session) -> Result<EndpointId> {
        let (address, options) = (session.address(), session.options());
        let failed = |reason: String| ClientError::Connect { address: address.to_string(), reason };
        let inbox = Memory::anonymous(usize::from(RECEIVES) * SLOT_BYTES, Pages::Small)
            .map_err(|error| system("allocating memory", error))?;
        let region = self
            .interface
            .register(&inbox, DOMAIN, Rights::LOCAL)
            .ok_or_else(|| failed("too many registered regions".into()))?;
        let config = EndpointConfig {
            message_bytes_max: SLOT_BYTES as u32,
            receives_max: u32::from(RECEIVES),
            crc: options.crc,
            tls: tls_target(address, options)?,
            ..EndpointConfig::default()
        };
        let data = ConnectData {
            client_instance: std::process::id(),
            client_session: session.index as u32,
            channel: ChannelType::BackControl,
        };
        let data = data.encode(ByteOrder::NATIVE);
        let endpoint = match self.interface.connect(address, DOMAIN, &config, &data) {
            Ok(endpoint) => endpoint,
            Err(error) => {
                self.interface.deregister(region.key);
                return Err(failed(error.to_string()));
            }
        };
        for slot in 0..u64::from(RECEIVES) {
            // A failure means that the connection is ending, which an event tells.
            let _ = self.interface.post_receive(endpoint, slot, &[slot_segment(&region, slot)]);
        }
        let (phase, locks_ready) = (Phase::Connecting, VecDeque::new());
        let index = session.index;
        self.backs.push(Back { endpoint, session: index, phase, inbox, region, locks_ready });
        Ok(endpoint)
    }

    /// Waits for the connection, and binds it to the session.
    fn bind_back(&mut self, session: &Session, endpoint: EndpointId) -> Result<()> {
        let address = self.sessions[session.index].address.clone();
        self.await_back(session.index, endpoint, |phase| matches!(phase, Phase::Connected))?;
        let options = session.options();
        let authentication = match &options.login {
            Login::None => AuthRequest::None,
            Login::Password { user, password } => AuthRequest::Text { identity: user, password },
        };
        let request = Request::ConnectBind(ConnectBind {
            session: self.sessions[session.index].id,
            channel_use: ChannelUse::BackControl,
            request_bytes_max: SLOT_BYTES as u32,
            response_bytes_max: SLOT_BYTES as u32,
            requests_max: u32::from(CREDITS),
            authentication,
        });
        let header = RequestHeader::new(StreamId(0), SequenceNumber(0));
        let mut message = vec![0; dafs_types::limits::CONNECT_MESSAGE_BYTES];
        let encoded = encode_request(ByteOrder::NATIVE, &header, &request, &mut message);
        let length = encoded.map_err(|error| ClientError::Status {
            what: format!("CONNECT_BIND: {error}"),
            status: error.status(),
        })?;
        self.send_back(endpoint, &message[..length]);
        let is_answered = |phase: &Phase| matches!(phase, Phase::Answered(_) | Phase::Bound);
        self.await_back(session.index, endpoint, is_answered)?;
        let Some(back) = self.backs.iter_mut().find(|back| back.endpoint == endpoint) else {
            return Err(ClientError::Cancelled);
        };
        if let Phase::Answered(reply) = std::mem::replace(&mut back.phase, Phase::Bound) {
            let (header, _) = decode_any(Procedure::ConnectBind, &reply, &address)?;
            if header.status != Status::Ok {
                let what = format!("opening a back-control channel to {address}");
                return Err(ClientError::Status { what, status: header.status });
            }
        }
        Ok(())
    }

    /// Turns until a channel has come as far as is wanted, or has ended.
    fn await_back(
        &mut self,
        session: usize,
        endpoint: EndpointId,
        is_there: impl Fn(&Phase) -> bool,
    ) -> Result<()> {
        let address = self.sessions[session].address.clone();
        self.turn_until(session, |core| {
            core.check_open(session).err().map(Err).or_else(|| {
                let back = core.backs.iter().find(|back| back.endpoint == endpoint);
                match back.map(|back| &back.phase) {
                    Some(phase) if is_there(phase) => Some(Ok(())),
                    Some(Phase::Ended(reason)) => {
                        let (address, reason) = (address.clone(), reason.clone());
                        Some(Err(ClientError::Connect { address, reason }))
                    }
                    Some(_) => None,
                    None => Some(Err(ClientError::Cancelled)),
                }
            })
        })
    }

    pub fn on_back_established(&mut self, endpoint: EndpointId) {
        if let Some(back) = self.backs.iter_mut().find(|back| back.endpoint == endpoint) {
            back.phase = Phase::Connected;
        }
    }

    /// The server asks something, or has answered CONNECT_BIND.
    pub fn on_back_message(&mut self, endpoint: EndpointId, slot: u64, length: usize) {
        let Some(place) = self.backs.iter().position(|back| back.endpoint == endpoint) else {
            return;
        };
        let back = &mut self.backs[place];
        let at = slot as usize * SLOT_BYTES;
        let message = back.inbox.to_vec(at, length.min(SLOT_BYTES));
        let _ = self.interface.post_receive(endpoint, slot, &[slot_segment(&back.region, slot)]);
        match back.phase {
            // Behind the answer the server may ask before anybody has looked at it.
            Phase::Connected => back.phase = Phase::Answered(message),
            Phase::Answered(_) | Phase::Bound => self.answer_back(place, &message),
            Phase::Connecting | Phase::Ended(_) => {}
        }
    }

    fn answer_back(&mut self, place: usize, message: &[u8]) {
        let (endpoint, session) = (self.backs[place].endpoint, self.backs[place].session);
        let checksums = self.sessions[session].checksums;
        let decoded = decode_request(ByteOrder::NATIVE, message);
        let (header, request) = match decoded {
            Ok(decoded) if !checksums || is_intact(message) => decoded,
            _ => {
                self.end_back(endpoint, "the server broke the protocol on it");
                return self.interface.disconnect(endpoint);
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
                // What is not of this session's any more has failed with an earlier channel.
                self.take_completions(session, &done.completions);
                (Status::Ok, Response::BcBatchCompletion(Empty))
            }
            _ => (Status::NotSupp, Response::Failed),
        };
        let answer = ResponseHeader {
            version: header.version,
            target_credits: CREDITS,
            conditions: SpecialConditions(0),
            stream: header.stream,
            sequence: header.sequence,
            analyzer: header.analyzer,
            checksum: Checksum::NONE,
            status,
            length: 0,
        };
        let mut octets = [0; ANSWER_BYTES_MAX];
        if let Ok(length) = encode_response(ByteOrder::NATIVE, &answer, &response, &mut octets) {
            if checksums {
                seal(&mut octets[..length], &[]);
            }
            self.send_back(endpoint, &octets[..length]);
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
        if matches!(back.phase, Phase::Ended(_)) {
            return;
        }
        back.phase = Phase::Ended(reason.to_owned());
        let session = back.session;
        let address = self.sessions[session].address.clone();
        let reason = format!("the back-control channel is gone: {reason}");
        let error = ClientError::SessionEnded { address, reason };
        self.batches.fail_all(session, &error, false);
    }

    /// A session has ended: its channel and its batches end with it.
    pub fn end_backs_of(&mut self, session: usize, error: &ClientError) {
        self.batches.fail_all(session, error, true);
        let of_session = self.backs.iter().filter(|back| back.session == session);
        for endpoint in of_session.map(|back| back.endpoint).collect::<Vec<_>>() {
            self.close_back(endpoint);
        }
    }

    fn close_back(&mut self, endpoint: EndpointId) {
        self.end_back(endpoint, "closed");
        self.interface.disconnect(endpoint);
        if let Some(place) = self.backs.iter().position(|back| back.endpoint == endpoint) {
            let back = self.backs.swap_remove(place);
            self.interface.deregister(back.region.key);
        }
    }

    fn forget_ended_back(&mut self, session: usize) {
        let is_over =
            |back: &&Back| back.session == session && matches!(back.phase, Phase::Ended(_));
        if let Some(endpoint) = self.backs.iter().find(is_over).map(|back| back.endpoint) {
            self.close_back(endpoint);
        }
    }
}

/// Requests that a server may have outstanding.
const CREDITS: u16 = 16;
/// Receives posted: one to spare, since the next may come before an answer is looked at.
const RECEIVES: u16 = CREDITS + 1;
/// Locks that are ready and not asked about; hints beyond them are forgotten.
const LOCKS_READY_MAX: usize = 1024;
/// Answers on this channel have no results.
const ANSWER_BYTES_MAX: usize = 64;

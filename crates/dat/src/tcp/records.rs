//! TLS records of one connection: bytes of the socket in, bytes of the stream out, and
//! back.
//!
//! Invariants: a byte of the stream is handed on only out of a record that the library
//! has opened, in order; records go to the socket in the order made, each byte once; what
//! is held of the peer's is less than [`HELD_BYTES_MAX`](super::layer::HELD_BYTES_MAX) and has no whole record in it, unless
//! the connection is about to end. The library keeps places in what it was shown, so it is
//! always shown just that, with what it has discarded taken off.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{SendFlags, Shutdown};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};

use super::establish::io_reason;
use super::layer::{Deliver, PLAIN_BYTES_MAX, Step};
use crate::tls::failure_of;
use crate::{BreakReason, CertificateIdentity, TlsFailure, TlsServer, TlsTarget};

/// See the module.
pub(super) struct Records {
    side: Side,
    /// Bytes of the peer's that make no whole record yet.
    held: Vec<u8>,
    /// Bytes of records that the socket has not taken, behind the first `sent`.
    unsent: Vec<u8>,
    sent: usize,
    /// What this side says as soon as it may.
    first_word: Vec<u8>,
    has_heard: bool,
    /// The peer has said that this is all.
    pub has_ended: bool,
    /// What the peer says from here on is of no interest.
    pub is_ending: bool,
    /// The library will have no more of it, or this side has said that this is all.
    is_over: bool,
}

enum Side {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// Why a step failed.
enum Trouble {
    Library(rustls::Error),
    /// What the bytes of the stream led to.
    Stream(BreakReason),
}

thread_local! {
    static SEALED: RefCell<Vec<u8>> = RefCell::new(vec![0; SEALED_BYTES]);
}

impl Records {
    /// The side that connects; `begin` it when the socket is connected.
    pub fn connecting(target: &TlsTarget) -> Result<Self, TlsFailure> {
        let (config, name) = (target.config.clone(), target.name.clone());
        let connection = UnbufferedClientConnection::new(config, name).map_err(failure_of)?;
        Ok(Self::new(Side::Client(Box::new(connection))))
    }

    /// The side that listens.
    pub fn answering(server: &TlsServer) -> Result<Self, TlsFailure> {
        let config = Arc::clone(&server.config);
        let connection = UnbufferedServerConnection::new(config).map_err(failure_of)?;
        Ok(Self::new(Side::Server(Box::new(connection))))
    }

    fn new(side: Side) -> Self {
        Self {
            side,
            held: Vec::new(),
            unsent: Vec::new(),
            sent: 0,
            first_word: Vec::new(),
            has_heard: false,
            has_ended: false,
            is_ending: false,
            is_over: false,
        }
    }

    /// Speaks first: the handshake, and `first_word` as soon as it may be said.
    pub fn begin(&mut self, socket: &OwnedFd, first_word: &[u8]) -> Result<(), BreakReason> {
        self.first_word.extend_from_slice(first_word);
        while self.step(&mut [], &mut |_| Ok(())).1? == Step::Again {}
        self.flush(socket).map(|_| ())
    }

    /// Who the peer has proved to be, once the handshake is done.
    pub fn identity(&self) -> Option<CertificateIdentity> {
        CertificateIdentity::of(self.common().peer_certificates()?.first()?)
    }

    // ---- in -------------------------------------------------------------------

    /// Bytes that are held of the peer's.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Puts what is held at the beginning of a buffer. How much it is.
    pub fn unhold(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.held.len();
        buffer[..count].copy_from_slice(&self.held);
        self.held.clear();
        count
    }

    /// Keeps what makes no whole record, or what an end has left over.
    pub fn hold(&mut self, bytes: &[u8]) {
        self.held.clear();
        self.held.extend_from_slice(bytes);
    }

    /// Goes one step on with the bytes that are there. How many of them are done with, and
    /// what it came to.
    pub fn step(
        &mut self,
        bytes: &mut [u8],
        deliver: Deliver<'_>,
    ) -> (usize, Result<Step, BreakReason>) {
        if self.is_over || self.has_ended {
            // What comes behind the end is nobody's.
            return (bytes.len(), Ok(Step::Blocked));
        }
        if let Some(failure) = self.on_first(bytes) {
            self.is_over = true;
            return (bytes.len(), Err(failure.into()));
        }
        let (discard, stepped) = self.step_library(bytes, deliver);
        let stepped = stepped.map_err(|trouble| match trouble {
            Trouble::Stream(reason) => reason,
            Trouble::Library(error) => {
                self.gather_alerts(&mut bytes[discard..]);
                self.is_over = true;
                failure_of(error).into()
            }
        });
        (discard, stepped)
    }

    /// Before the first record the connecting side looks whether it is one at all.
    fn on_first(&mut self, bytes: &[u8]) -> Option<TlsFailure> {
        let first = *bytes.first()?;
        let is_first = !std::mem::replace(&mut self.has_heard, true);
        let is_odd = is_first && !RECORD_TYPES.contains(&first);
        (is_odd && matches!(self.side, Side::Client(_))).then_some(TlsFailure::NotSpoken)
    }

    /// The stream has ended. Whether that was the peer's own word.
    pub fn on_end(&self) -> Result<(), TlsFailure> {
        match self.side {
            _ if self.has_ended => Ok(()),
            Side::Client(_) if !self.has_heard => Err(TlsFailure::NotSpoken),
            Side::Client(_) | Side::Server(_) => Err(TlsFailure::Truncated),
        }
    }

    /// The stream was reset.
    pub fn on_reset(&self) -> BreakReason {
        match self.on_end() {
            Err(TlsFailure::NotSpoken) => TlsFailure::NotSpoken.into(),
            Ok(()) | Err(_) => BreakReason::Peer,
        }
    }

    fn step_library(
        &mut self,
        bytes: &mut [u8],
        deliver: Deliver<'_>,
    ) -> (usize, Result<Step, Trouble>) {
        let Self { side, unsent, first_word, has_ended, .. } = self;
        let mut turn = Turn { unsent, first_word, has_ended, deliver };
        match side {
            Side::Client(connection) => turn.settle(connection.process_tls_records(bytes)),
            Side::Server(connection) => turn.settle(connection.process_tls_records(bytes)),
        }
    }

    /// The library has refused what came: what it tells the peer of that. It is not to look
    /// at those bytes again, and does not while it has something to say.
    fn gather_alerts(&mut self, bytes: &mut [u8]) {
        for _ in 0..ALERTS_MAX {
            if !self.common().wants_write() {
                return;
            }
            let _ = self.step_library(bytes, &mut |_| Ok(()));
        }
    }

    fn common(&self) -> &rustls::CommonState {
        match &self.side {
            Side::Client(connection) => connection,
            Side::Server(connection) => connection,
        }
    }

    // ---- out ------------------------------------------------------------------

    /// Bytes that the socket has not taken.
    pub fn unsent(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Whether the socket still has something to take.
    pub fn owes(&self) -> bool {
        self.sent < self.unsent.len()
    }

    /// Offers the socket what it has not taken. True if it takes no more.
    pub fn flush(&mut self, socket: &OwnedFd) -> Result<bool, BreakReason> {
        while self.owes() {
            let count = send(socket, &self.unsent[self.sent..])?;
            if count == 0 {
                return Ok(true);
            }
            self.sent += count;
        }
        // Room for a backlog is held only while there is one.
        if self.sent > 0 {
            (self.unsent, self.sent) = (Vec::new(), 0);
        }
        Ok(false)
    }

    /// Makes records of bytes of the stream, at most [`PLAIN_BYTES_MAX`], and offers them to
    /// the socket. True if it takes no more.
    pub fn say(&mut self, socket: &OwnedFd, plain: &[u8]) -> Result<bool, BreakReason> {
        SEALED.with_borrow_mut(|sealed| {
            let length = self.seal(plain, sealed)?;
            let sealed = &sealed[..length];
            if self.flush(socket)? {
                self.unsent.extend_from_slice(sealed);
                return Ok(true);
            }
            let mut sent = 0;
            while sent < sealed.len() {
                let count = send(socket, &sealed[sent..])?;
                if count == 0 {
                    self.unsent.extend_from_slice(&sealed[sent..]);
                    return Ok(true);
                }
                sent += count;
            }
            Ok(false)
        })
    }

    fn seal(&mut self, plain: &[u8], sealed: &mut [u8]) -> Result<usize, BreakReason> {
        self.write_traffic(|writer| match writer {
            Writer::Client(mut writer) => writer.encrypt(plain, sealed),
            Writer::Server(mut writer) => writer.encrypt(plain, sealed),
        })
    }

    /// Lets `write` make records once the library is ready for it. Bytes of the peer's that
    /// are half there stay where they are.
    fn write_traffic(
        &mut self,
        write: impl FnOnce(Writer<'_>) -> Result<usize, EncryptError>,
    ) -> Result<usize, BreakReason> {
        let not_ready = || TlsFailure::Protocol("nothing can be said now".into()).into();
        let impossible = |error: EncryptError| TlsFailure::Protocol(error.to_string()).into();
        if self.is_over {
            return Err(not_ready());
        }
        let drops = self.is_ending;
        loop {
            let (discard, failed, passed) = match &mut self.side {
                Side::Client(connection) => {
                    let status = connection.process_tls_records(&mut self.held);
                    let (discard, state) = (status.discard, status.state);
                    match state {
                        Ok(ConnectionState::WriteTraffic(writer)) => {
                            return write(Writer::Client(writer)).map_err(impossible);
                        }
                        other => (discard, other.is_err(), pass(other, &mut self.unsent, drops)),
                    }
                }
                Side::Server(connection) => {
                    let status = connection.process_tls_records(&mut self.held);
                    let (discard, state) = (status.discard, status.state);
                    match state {
                        Ok(ConnectionState::WriteTraffic(writer)) => {
                            return write(Writer::Server(writer)).map_err(impossible);
                        }
                        other => (discard, other.is_err(), pass(other, &mut self.unsent, drops)),
                    }
                }
            };
            self.held.drain(..discard);
            // It would fail again, and say so twice.
            self.is_over = failed;
            // Each step takes something off what is held, or off what the library has to say.
            if !passed {
                return Err(not_ready());
            }
        }
    }

    /// Says that this is all, and whatever else is to be said, as far as the socket takes it
    /// at once; then closes this direction.
    pub fn part(&mut self, socket: &OwnedFd) {
        let mut goodbye = [0; GOODBYE_BYTES_MAX];
        let said = self.write_traffic(|writer| match writer {
            Writer::Client(mut writer) => writer.queue_close_notify(&mut goodbye),
            Writer::Server(mut writer) => writer.queue_close_notify(&mut goodbye),
        });
        // Before the handshake is done, or after a failure, there is no goodbye.
        if let Ok(length) = said {
            self.unsent.extend_from_slice(&goodbye[..length]);
        }
        self.is_over = true;
        let _ = self.flush(socket);
        let _ = rustix::net::shutdown(socket, Shutdown::Write);
    }
}

/// The library's leave to make records, of either side.
enum Writer<'c> {
    Client(WriteTraffic<'c, rustls::client::ClientConnectionData>),
    Server(WriteTraffic<'c, rustls::server::ServerConnectionData>),
}

/// What one step of the library may change.
struct Turn<'t, 'd> {
    unsent: &'t mut Vec<u8>,
    first_word: &'t mut Vec<u8>,
    has_ended: &'t mut bool,
    deliver: Deliver<'d>,
}

impl Turn<'_, '_> {
    fn settle<D>(&mut self, status: UnbufferedStatus<'_, '_, D>) -> (usize, Result<Step, Trouble>) {
        let UnbufferedStatus { mut discard, state } = status;
        let state = match state {
            Ok(state) => state,
            Err(error) => return (discard, Err(Trouble::Library(error))),
        };
        let stepped = match state {
            ConnectionState::ReadTraffic(mut traffic) => loop {
                match traffic.next_record() {
                    None => break Ok(Step::Again),
                    Some(Err(error)) => break Err(Trouble::Library(error)),
                    Some(Ok(record)) => {
                        discard += record.discard;
                        if let Err(reason) = (self.deliver)(record.payload) {
                            break Err(Trouble::Stream(reason));
                        }
                    }
                }
            },
            ConnectionState::WriteTraffic(writer) => self.say_first(writer),
            ConnectionState::PeerClosed | ConnectionState::Closed => {
                *self.has_ended = true;
                Ok(Step::Blocked)
            }
            ConnectionState::BlockedHandshake => Ok(Step::Blocked),
            other => {
                let passed = pass(Ok(other), self.unsent, false);
                let failure = || TlsFailure::Protocol("the library is in an unknown state".into());
                if passed { Ok(Step::Again) } else { Err(Trouble::Stream(failure().into())) }
            }
        };
        (discard, stepped)
    }

    /// The handshake is done.
    fn say_first<D>(&mut self, mut writer: WriteTraffic<'_, D>) -> Result<Step, Trouble> {
        if self.first_word.is_empty() {
            return Ok(Step::Blocked);
        }
        let mut sealed = [0; FIRST_WORD_BYTES_MAX];
        let length = writer
            .encrypt(self.first_word, &mut sealed)
            .map_err(|error| Trouble::Stream(TlsFailure::Protocol(error.to_string()).into()))?;
        self.unsent.extend_from_slice(&sealed[..length]);
        *self.first_word = Vec::new();
        Ok(Step::Blocked)
    }
}

/// Takes over what the library itself has to say, and passes by what the peer says if that
/// is of no interest. False if it is neither.
fn pass<D>(
    state: Result<ConnectionState<'_, '_, D>, rustls::Error>,
    unsent: &mut Vec<u8>,
    drops: bool,
) -> bool {
    match state {
        Ok(ConnectionState::ReadTraffic(mut traffic)) if drops => {
            while traffic.next_record().is_some() {}
            true
        }
        Ok(ConnectionState::PeerClosed) => drops,
        Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, unsent),
        Ok(ConnectionState::TransmitTlsData(data)) => {
            // It is in `unsent`, which goes out before all that follows.
            data.done();
            true
        }
        _ => false,
    }
}

fn encode<D>(data: &mut EncodeTlsData<'_, D>, unsent: &mut Vec<u8>) -> bool {
    let start = unsent.len();
    // The first try tells the length; a message is as long as our own certificates make it.
    let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) else { return false };
    unsent.resize(start + needed.required_size, 0);
    data.encode(&mut unsent[start..]).is_ok()
}

/// Sends what the socket takes now; 0 if it takes nothing.
fn send(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, BreakReason> {
    loop {
        match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(count) => return Ok(count),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(0),
            Err(error) => return Err(io_reason(error)),
        }
    }
}

/// Change of cipher, alert, handshake, data.
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 0x14..=0x17;
/// Bytes they become at most, with a change of keys before them.
const SEALED_BYTES: usize = PLAIN_BYTES_MAX + 2048;
/// An MPA request and the record around it.
const FIRST_WORD_BYTES_MAX: usize = 1024;
/// A close_notify, and answers to changed keys that wait to go with it.
const GOODBYE_BYTES_MAX: usize = 512;
/// Messages of the library's own that one failure may bring.
const ALERTS_MAX: usize = 8;

//! The TLS records of one connection: converts bytes of the socket to bytes of the stream, and
//! back.
//!
//! Invariants:
//!
//! - Bytes of the stream are passed on in order, and only from records that the TLS library has
//!   opened.
//! - Records are sent in the order in which they were made, each byte once.
//! - Fewer than [`HELD_BYTES_MAX`](super::layer::HELD_BYTES_MAX) bytes of the peer are held. They
//!   contain no complete record, unless the connection is about to end.
//! - The library keeps positions in the bytes that it has seen. So it is always passed the same
//!   bytes again, except those that it has discarded.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{SendFlags, Shutdown};
use rustls::ServerConfig;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};

use super::establish::io_reason;
use super::layer::{Deliver, PLAIN_BYTES_MAX, Step};
use crate::tls::failure_of;
use crate::{BreakReason, CertificateIdentity, TlsFailure, TlsServer, TlsTarget};

/// The TLS state and buffers of one connection.
pub(crate) struct Records {
    side: Side,
    /// The received bytes that form no complete record yet.
    held: Vec<u8>,
    /// The bytes of records to send; the socket has accepted the first `sent` bytes.
    unsent: Vec<u8>,
    sent: usize,
    /// The first data of this side, which is sent when the handshake is done.
    first_word: Vec<u8>,
    has_heard: bool,
    /// True if the peer has sent its close_notify.
    pub has_ended: bool,
    /// True if further data from the peer is to be ignored.
    pub is_ending: bool,
    /// True if the library has failed or this side has sent its close_notify.
    is_over: bool,
}

enum Side {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// The reason why a step of the TLS library failed.
enum Trouble {
    Library(rustls::Error),
    /// Processing the bytes of the stream failed.
    Stream(BreakReason),
}

thread_local! {
    static SEALED: RefCell<Vec<u8>> = RefCell::new(vec![0; SEALED_BYTES]);
}

impl Records {
    /// Creates the records of the connecting side. The caller must call `begin` when the socket is
    /// connected.
    pub(super) fn connecting(target: &TlsTarget) -> Result<Self, TlsFailure> {
        let (config, name) = (target.config.clone(), target.name.clone());
        let connection = UnbufferedClientConnection::new(config, name).map_err(failure_of)?;
        Ok(Self::new(Side::Client(Box::new(connection))))
    }

    /// Creates the records of the accepting side.
    pub(crate) fn answering(server: &TlsServer) -> Result<Self, TlsFailure> {
        Self::answering_as(Arc::clone(&server.current().config))
    }

    /// Creates the records of the accepting side of a connection that carries ONC RPC.
    pub(crate) fn answering_rpc(server: &TlsServer) -> Result<Self, TlsFailure> {
        Self::answering_as(Arc::clone(&server.current().rpc))
    }

    fn answering_as(config: Arc<ServerConfig>) -> Result<Self, TlsFailure> {
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

    /// Starts the handshake. `first_word` is sent as soon as the handshake is done.
    pub(super) fn begin(&mut self, socket: &OwnedFd, first_word: &[u8]) -> Result<(), BreakReason> {
        self.first_word.extend_from_slice(first_word);
        while self.step(&mut [], &mut |_| Ok(())).1? == Step::Again {}
        self.flush(socket).map(|_| ())
    }

    /// Returns true until the handshake is done.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.common().is_handshaking()
    }

    /// Returns the identity that the peer has proved, once the handshake is done.
    pub(crate) fn identity(&self) -> Option<CertificateIdentity> {
        CertificateIdentity::of(self.common().peer_certificates()?.first()?)
    }

    // ---- in -------------------------------------------------------------------

    /// Returns the number of held bytes of the peer.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Moves the held bytes to the start of a buffer. Returns their number.
    pub(crate) fn unhold(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.held.len();
        buffer[..count].copy_from_slice(&self.held);
        self.held.clear();
        count
    }

    /// Stores bytes that form no complete record, or that are left when the connection ends.
    pub(crate) fn hold(&mut self, bytes: &[u8]) {
        self.held.clear();
        self.held.extend_from_slice(bytes);
    }

    /// Performs one step with the received bytes. Returns how many of them were used, and the
    /// result.
    pub(crate) fn step(
        &mut self,
        bytes: &mut [u8],
        deliver: Deliver<'_>,
    ) -> (usize, Result<Step, BreakReason>) {
        if self.is_over || self.has_ended {
            // Bytes after the end are ignored.
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

    /// Checks, on the connecting side, that the first byte belongs to a TLS record.
    fn on_first(&mut self, bytes: &[u8]) -> Option<TlsFailure> {
        let first = *bytes.first()?;
        let is_first = !std::mem::replace(&mut self.has_heard, true);
        let is_odd = is_first && !RECORD_TYPES.contains(&first);
        (is_odd && matches!(self.side, Side::Client(_))).then_some(TlsFailure::NotSpoken)
    }

    /// Handles the end of the stream. Returns an error unless the peer has sent its close_notify.
    pub(super) fn on_end(&self) -> Result<(), TlsFailure> {
        match self.side {
            _ if self.has_ended => Ok(()),
            Side::Client(_) if !self.has_heard => Err(TlsFailure::NotSpoken),
            Side::Client(_) | Side::Server(_) => Err(TlsFailure::Truncated),
        }
    }

    /// Returns the reason for a reset of the stream.
    pub(super) fn on_reset(&self) -> BreakReason {
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

    /// Collects the alerts by which the library informs the peer why it refused the bytes. The
    /// library must not process these bytes again, and does not do so while it has alerts to send.
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

    /// Returns the number of bytes that the socket has not accepted.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Returns true if the socket has not accepted all bytes.
    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.unsent.len()
    }

    /// Sends the bytes that the socket has not accepted. Returns true if it accepts no more.
    pub(crate) fn flush(&mut self, socket: &OwnedFd) -> Result<bool, BreakReason> {
        while self.has_unsent() {
            let count = send(socket, &self.unsent[self.sent..])?;
            if count == 0 {
                return Ok(true);
            }
            self.sent += count;
        }
        // The memory of a backlog is released when the backlog has been sent.
        if self.sent > 0 {
            (self.unsent, self.sent) = (Vec::new(), 0);
        }
        Ok(false)
    }

    /// Seals at most [`PLAIN_BYTES_MAX`] bytes of the stream into records and sends them. Returns
    /// true if the socket accepts no more.
    pub(crate) fn say(&mut self, socket: &OwnedFd, plain: &[u8]) -> Result<bool, BreakReason> {
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

    /// Calls `write` to make records once the library is ready for it. Incomplete records of the
    /// peer stay stored.
    fn write_traffic(
        &mut self,
        write: impl FnOnce(Writer<'_>) -> Result<usize, EncryptError>,
    ) -> Result<usize, BreakReason> {
        let not_ready = || TlsFailure::Protocol("no data can be sent in this state".into()).into();
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
            // After a failure, the next call would fail again and send a second alert.
            self.is_over = failed;
            // Each step consumes held bytes or output of the library, so the loop ends.
            if !passed {
                return Err(not_ready());
            }
        }
    }

    /// Sends the close_notify and other pending output, as far as the socket accepts it without
    /// blocking. Then shuts down the sending direction.
    pub(crate) fn part(&mut self, socket: &OwnedFd) {
        let mut goodbye = [0; GOODBYE_BYTES_MAX];
        let said = self.write_traffic(|writer| match writer {
            Writer::Client(mut writer) => writer.queue_close_notify(&mut goodbye),
            Writer::Server(mut writer) => writer.queue_close_notify(&mut goodbye),
        });
        // Before the end of the handshake, or after a failure, there is no close_notify.
        if let Ok(length) = said {
            self.unsent.extend_from_slice(&goodbye[..length]);
        }
        self.is_over = true;
        let _ = self.flush(socket);
        let _ = rustix::net::shutdown(socket, Shutdown::Write);
    }
}

/// The library's permission to make records, for either side.
enum Writer<'c> {
    Client(WriteTraffic<'c, rustls::client::ClientConnectionData>),
    Server(WriteTraffic<'c, rustls::server::ServerConnectionData>),
}

/// The state that one step of the library may change.
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
            ConnectionState::WriteTraffic(writer) => self.send_first(writer),
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

    /// Sends the first data, after the handshake is done.
    fn send_first<D>(&mut self, mut writer: WriteTraffic<'_, D>) -> Result<Step, Trouble> {
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

/// Takes output from the library, or skips data of the peer if it must be ignored. Returns false if
/// the library is in neither of these two states.
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
            // The output is in `unsent`, which is sent before everything that follows.
            data.done();
            true
        }
        _ => false,
    }
}

fn encode<D>(data: &mut EncodeTlsData<'_, D>, unsent: &mut Vec<u8>) -> bool {
    let start = unsent.len();
    // The first attempt returns the required length, which is limited by this side's own
    // certificates.
    let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) else { return false };
    unsent.resize(start + needed.required_size, 0);
    data.encode(&mut unsent[start..]).is_ok()
}

/// Sends as many bytes as the socket accepts now, and returns their number, which may be 0.
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

/// The record types: change of cipher, alert, handshake, data.
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 0x14..=0x17;
/// The maximum number of bytes that [`PLAIN_BYTES_MAX`] bytes become when sealed, including a key
/// update before them.
const SEALED_BYTES: usize = PLAIN_BYTES_MAX + 2048;
/// The maximum length in bytes of an MPA request with the record around it.
const FIRST_WORD_BYTES_MAX: usize = 1024;
/// The maximum length in bytes of a close_notify and of the pending key updates that are sent with
/// it.
const GOODBYE_BYTES_MAX: usize = 512;
/// The maximum number of messages that the library may send because of one failure.
const ALERTS_MAX: usize = 8;

//! The layer between the stream and the socket: either none or TLS.
//!
//! A listener that allows connections with and without TLS decides by the peer's first byte. If
//! only one side uses TLS, each side informs the other in the other's protocol: by an MPA rejection
//! that carries a mark.
//!
//! Invariants:
//!
//! - A connection that has begun with TLS sends and accepts only TLS.
//! - After a turn of reading, no complete record is left in memory, because epoll would not report
//!   it.
//! - No byte of the stream is sent during a turn of reading.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::RecvFlags;

use super::establish::{Phase, io_reason};
use super::receive::{Pending, TURN_BYTES_MAX};
use super::records::Records;
use super::{Connection, outgoing::Outgoing};
use crate::connection::{Context, Interest};
use crate::{BreakReason, TlsFailure, TlsServer};

/// The layer between the stream and the socket of one connection.
pub(super) enum Layer {
    Plain,
    /// The peer's first byte, which decides between TLS and no TLS, has not arrived.
    Undecided(TlsServer),
    Tls(Box<Records>),
    /// TLS, while the call that reads from the socket has borrowed the TLS records.
    Lent,
}

/// The result of one step with the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The received bytes may allow another step.
    Again,
    /// Further steps need more bytes.
    Blocked,
}

/// The function that receives bytes of the stream.
pub(crate) type Deliver<'d> = &'d mut dyn FnMut(&[u8]) -> Result<(), BreakReason>;

/// Buffers that all connections of a thread share; each call has exclusive use of them.
struct Buffers {
    /// The bytes read from the socket, after an incomplete record from earlier calls.
    intake: Vec<u8>,
    /// Bytes of the stream that are about to be sealed into records.
    plain: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = const {
        RefCell::new(Buffers { intake: Vec::new(), plain: Vec::new() })
    };
}

impl Layer {
    pub(super) fn of_listener(tls: Option<&TlsServer>) -> Self {
        tls.map_or(Self::Plain, |server| Self::Undecided(server.clone()))
    }

    pub(super) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Returns true while a call that reads from the socket has borrowed the TLS records.
    pub(super) fn is_lent(&self) -> bool {
        matches!(self, Self::Lent)
    }

    /// Returns the number of received bytes that form no complete record.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::Tls(records) => records.held(),
            Self::Plain | Self::Undecided(_) | Self::Lent => 0,
        }
    }

    /// Returns the number of bytes of records that the socket has not accepted.
    pub(super) fn unsent(&self) -> usize {
        match self {
            Self::Tls(records) => records.unsent(),
            Self::Plain | Self::Undecided(_) | Self::Lent => 0,
        }
    }
}

impl Connection {
    // ---- in -------------------------------------------------------------------

    /// Performs a turn of reading for a connection that uses TLS or has not decided yet.
    #[inline(never)]
    pub(super) fn read_layer(&mut self, context: &mut Context<'_>) -> Result<bool, BreakReason> {
        if let Layer::Undecided(server) = &self.layer {
            let server = server.clone();
            return match self.peek()? {
                Some(first) => {
                    self.decide(&server, first)?;
                    self.read_turn(context)
                }
                None => Ok(false),
            };
        }
        let Layer::Tls(mut records) = std::mem::replace(&mut self.layer, Layer::Lent) else {
            return Ok(false);
        };
        let taken = BUFFERS.with_borrow_mut(|buffers| {
            buffers.intake.resize(INTAKE_BYTES, 0);
            self.read_records(context, &mut records, &mut buffers.intake)
        });
        self.layer = Layer::Tls(records);
        match (taken, &self.phase) {
            // The application does not know this endpoint before `accept`, which reports it.
            (Err(_), Phase::Pending(_)) => self.vanish(),
            (taken, Phase::Closed | Phase::Vanished) => {
                self.part();
                return taken;
            }
            (taken, _) => return taken,
        }
        Ok(false)
    }

    /// Returns the first byte from the peer without consuming it.
    fn peek(&mut self) -> Result<Option<u8>, BreakReason> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let mut first = [0];
        match rustix::net::recv(socket, &mut first, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.on_end().map(|()| None),
            Ok(_) => Ok(Some(first[0])),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(io_reason(error)),
        }
    }

    fn decide(&mut self, server: &TlsServer, first: u8) -> Result<(), BreakReason> {
        if first == HANDSHAKE_RECORD {
            self.layer = Layer::Tls(Box::new(Records::answering(server)?));
            return Ok(());
        }
        self.layer = Layer::Plain;
        if let Phase::Answering { turns_away, .. } = &mut self.phase {
            *turns_away = server.is_required();
        }
        Ok(())
    }

    /// Reads data from the socket, up to a limit. Returns true if there was any data.
    fn read_records(
        &mut self,
        context: &mut Context<'_>,
        records: &mut Records,
        intake: &mut [u8],
    ) -> Result<bool, BreakReason> {
        let (mut filled, mut total) = (records.unhold(intake), 0);
        let ended = loop {
            let room = &mut intake[filled..];
            let wanted = room.len();
            let Some(socket) = &self.socket else { break Ok(()) };
            let received = match receive(socket, room) {
                Ok(Some(0)) => {
                    break records.on_end().map_err(Into::into).and_then(|()| self.on_end());
                }
                Ok(Some(received)) => received,
                Ok(None) => break Ok(()),
                Err(BreakReason::Peer) => break Err(records.on_reset()),
                Err(reason) => break Err(reason),
            };
            total += received;
            filled += received;
            let (used, taken) = self.take_records(context, records, &mut intake[..filled]);
            intake.copy_within(used..filled, 0);
            filled -= used;
            if taken.is_err() {
                break taken;
            }
            // The start-up was rejected, or the peer sent data without waiting for the reply.
            if matches!(self.phase, Phase::Closed | Phase::Vanished) {
                break Ok(());
            }
            if records.has_ended {
                break self.on_end();
            }
            if filled > HELD_BYTES_MAX {
                break Err(TlsFailure::Protocol(
                    "a handshake message exceeds the length limit".into(),
                )
                .into());
            }
            if received < wanted || total >= TURN_BYTES_MAX {
                break Ok(());
            }
        };
        records.hold(&intake[..filled]);
        records.is_ending |= ended.is_err();
        if let Some(socket) = &self.socket {
            // The peer is informed why TLS failed, if it is still connected.
            let flushed = records.flush(socket);
            ended.and(flushed)?;
        } else {
            ended?;
        }
        Ok(total > 0)
    }

    /// Processes all complete records. Returns their total length in bytes.
    fn take_records(
        &mut self,
        context: &mut Context<'_>,
        records: &mut Records,
        bytes: &mut [u8],
    ) -> (usize, Result<(), BreakReason>) {
        let mut used = 0;
        loop {
            let deliver = &mut |plain: &[u8]| self.on_plain(context, plain);
            let (count, stepped) = records.step(&mut bytes[used..], deliver);
            used += count;
            let stepped = stepped.and_then(|step| self.start_up(context, records).map(|()| step));
            match stepped {
                Ok(Step::Again) => {}
                Ok(Step::Blocked) => return (used, Ok(())),
                Err(reason) => return (used, Err(reason)),
            }
        }
    }

    /// Passes bytes of the stream to their destination. Bytes of the start-up wait until the step
    /// has ended, because the peer's identity is known only then.
    fn on_plain(&mut self, context: &mut Context<'_>, plain: &[u8]) -> Result<(), BreakReason> {
        self.inbound.flows = true;
        let count = u32::try_from(plain.len()).unwrap_or(u32::MAX);
        self.inbound.warm = self.inbound.warm.saturating_sub(count);
        if self.stream.is_none() {
            self.inbound.kept.extend_from_slice(plain);
            return Ok(());
        }
        let joined = self.join(context, plain)?;
        let rest = &plain[joined..];
        if !rest.is_empty() {
            let used = self.take(context, rest, &Pending::NONE)?;
            self.keep(&rest[used..]);
        }
        Ok(())
    }

    /// Processes the kept bytes together with the first bytes of `plain`. Copies only as many bytes
    /// as are needed to complete the header or trailer (with CRC, the frame). Returns the number of
    /// bytes of `plain` that were used. If bytes are left over, no kept bytes remain.
    fn join(&mut self, context: &mut Context<'_>, plain: &[u8]) -> Result<usize, BreakReason> {
        let (mut joined, mut step) = (0, JOINED_BYTES_MIN);
        while !self.inbound.kept.is_empty() && joined < plain.len() {
            let before = self.inbound.kept.len();
            let end = plain.len().min(joined + step);
            let mut bytes = std::mem::take(&mut self.inbound.kept);
            bytes.extend_from_slice(&plain[joined..end]);
            let used = self.take(context, &bytes, &Pending::NONE)?;
            if used >= before {
                joined += used - before;
                bytes.clear();
            } else {
                joined = end;
                bytes.drain(..used);
                step *= 2;
            }
            self.inbound.kept = bytes;
        }
        Ok(joined)
    }

    /// Processes bytes of the connection's start-up.
    fn start_up(
        &mut self,
        context: &mut Context<'_>,
        records: &Records,
    ) -> Result<(), BreakReason> {
        if self.stream.is_some() || self.inbound.kept.is_empty() {
            return Ok(());
        }
        if self.certificate.is_none() {
            self.certificate = records.identity().map(Arc::new);
        }
        let bytes = std::mem::take(&mut self.inbound.kept);
        let used = self.take(context, &bytes, &Pending::NONE)?;
        self.keep(&bytes[used..]);
        Ok(())
    }

    // ---- out ------------------------------------------------------------------

    /// Writes framed bytes to the socket. Returns true if the socket accepts no more.
    #[inline]
    pub(super) fn write_out(&mut self) -> Result<bool, BreakReason> {
        match &self.socket {
            Some(socket) if self.layer.is_plain() => self.outgoing.write(socket),
            Some(_) => self.write_layer(),
            None => Ok(false),
        }
    }

    #[inline(never)]
    fn write_layer(&mut self) -> Result<bool, BreakReason> {
        match (&mut self.layer, &self.socket) {
            (Layer::Tls(records), Some(socket)) => {
                write_records(&mut self.outgoing, records, socket)
            }
            // Nothing is sent during a turn of reading.
            _ => Ok(true),
        }
    }

    /// Sends a frame of the start-up or of the end, which must be sent completely.
    pub(super) fn send_whole(&mut self, bytes: &[u8]) -> Result<(), BreakReason> {
        let Some(socket) = &self.socket else { return Err(BreakReason::Peer) };
        match &mut self.layer {
            Layer::Tls(records) => records.say(socket, bytes).map(|_| ()),
            Layer::Plain => {
                let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
                match rustix::net::send(socket, bytes, flags) {
                    Ok(sent) if sent == bytes.len() => Ok(()),
                    Ok(_) => Err(BreakReason::System("the socket took half a frame".into())),
                    Err(error) => Err(io_reason(error)),
                }
            }
            Layer::Undecided(_) | Layer::Lent => Err(BreakReason::Peer),
        }
    }

    /// Sends pending TLS handshake data during the start-up.
    #[cold]
    pub(super) fn push_start(&mut self, context: &Context<'_>) -> Result<(), BreakReason> {
        let (Some(socket), Layer::Tls(records)) = (&self.socket, &mut self.layer) else {
            return Ok(());
        };
        if matches!(self.phase, Phase::Connecting(_)) {
            return Ok(());
        }
        let blocked = records.flush(socket)?;
        let interest = if blocked { Interest::ReadWrite } else { Interest::Read };
        self.watch(context, interest)
    }

    /// Closes TLS in the regular way, and then the socket. The last sent data must arrive even if
    /// the peer has sent data that this side never reads.
    pub(super) fn part(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        if let Layer::Tls(records) = &mut self.layer {
            records.part(&socket);
        }
        drain(&socket);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.part();
    }
}

/// Seals framed bytes into records while the socket accepts them. Returns true if it accepts no
/// more.
fn write_records(
    outgoing: &mut Outgoing,
    records: &mut Records,
    socket: &OwnedFd,
) -> Result<bool, BreakReason> {
    BUFFERS.with_borrow_mut(|buffers| {
        buffers.plain.resize(PLAIN_BYTES_MAX, 0);
        loop {
            if records.flush(socket)? {
                return Ok(true);
            }
            let count = outgoing.take(&mut buffers.plain);
            if count == 0 {
                return Ok(false);
            }
            if records.say(socket, &buffers.plain[..count])? {
                return Ok(true);
            }
        }
    })
}

/// Reads and discards pending input. Closing a socket with unread input would send a reset, which
/// could overtake the last sent data.
pub(crate) fn drain(socket: &OwnedFd) {
    let mut rest = [0; 4096];
    for _ in 0..DRAINS_MAX {
        if !matches!(receive(socket, &mut rest), Ok(Some(1..))) {
            break;
        }
    }
}

/// Receives pending data. Returns `None` if no data has arrived, and 0 at the end of the stream.
pub(crate) fn receive(socket: &OwnedFd, room: &mut [u8]) -> Result<Option<usize>, BreakReason> {
    loop {
        match rustix::net::recv(socket, &mut *room, RecvFlags::DONTWAIT) {
            Ok((count, _)) => return Ok(Some(count)),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(io_reason(error)),
        }
    }
}

/// The type byte of a handshake record. Every TLS connection begins with it, and no MPA frame does.
pub(super) const HANDSHAKE_RECORD: u8 = 0x16;
/// The number of bytes of the stream that are sealed together, which fill four records.
pub(crate) const PLAIN_BYTES_MAX: usize = 64 << 10;
/// The maximum length in bytes of a partly received handshake message, including certificates. A
/// record has at most a quarter of this length.
pub(crate) const HELD_BYTES_MAX: usize = 64 << 10;
/// The number of bytes for one read from the socket, including an incomplete record.
const INTAKE_BYTES: usize = HELD_BYTES_MAX + (128 << 10);
/// The minimum number of bytes to join. Half of it is sufficient for a header and a trailer.
const JOINED_BYTES_MIN: usize = 64;
/// The limit for the number of reads of pending input before a close.
const DRAINS_MAX: usize = 64;

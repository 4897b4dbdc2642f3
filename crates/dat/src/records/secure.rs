//! TLS of one connection that carries records (RFC 9289).
//!
//! Invariants:
//!
//! - Once TLS has started, every byte of the socket belongs to TLS, in both directions.
//! - Bytes of replies are sealed only when the socket has accepted everything that was sealed
//!   before. So the sealed bytes that wait are limited.
//! - After a turn of reading, no complete TLS record is left in memory, because epoll would not
//!   report it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::RecordEvent;
use super::outgoing::Outgoing;
use crate::tcp::layer::{HELD_BYTES_MAX, PLAIN_BYTES_MAX, Step, drain, receive};
use crate::tcp::records::Records as TlsRecords;
use crate::{BreakReason, CertificateIdentity, TlsFailure, TlsServer};

/// The state of TLS of one connection.
pub(super) struct Secure {
    records: TlsRecords,
    /// The time at which the handshake has begun; `None` when it is done.
    handshake_since: Option<Duration>,
    /// The reason why TLS has failed.
    failure: Option<TlsFailure>,
}

/// Buffers that all connections share; each call has exclusive use of them. They are allocated for
/// the first connection with TLS.
#[derive(Default)]
pub(super) struct Buffers {
    /// The bytes read from the socket, after an incomplete TLS record from earlier reads.
    intake: Vec<u8>,
    /// Bytes of replies that are about to be sealed.
    plain: Vec<u8>,
}

/// The function that receives bytes of the stream.
pub(super) type Deliver<'d> = &'d mut dyn FnMut(&[u8]) -> Result<(), &'static str>;

impl Secure {
    /// Starts the handshake of the accepting side.
    pub(super) fn answering(server: &TlsServer, now: Duration) -> Result<Self, TlsFailure> {
        let records = TlsRecords::answering_rpc(server)?;
        Ok(Self { records, handshake_since: Some(now), failure: None })
    }

    /// Returns the time at which the handshake has begun; `None` when it is done.
    pub(super) fn handshake_since(&self) -> Option<Duration> {
        self.handshake_since
    }

    /// Returns true once, after the handshake is done.
    pub(super) fn take_done(&mut self) -> bool {
        let is_done = self.handshake_since.is_some() && !self.records.is_handshaking();
        if is_done {
            self.handshake_since = None;
        }
        is_done
    }

    /// Returns the identity in the certificate of the peer. `None` if the peer has shown none.
    pub(super) fn identity(&self) -> Option<CertificateIdentity> {
        self.records.identity()
    }

    /// Removes and returns the reason why TLS has failed.
    pub(super) fn take_failure(&mut self) -> Option<TlsFailure> {
        self.failure.take()
    }

    /// Returns true if a part of a TLS record has arrived.
    pub(super) fn is_incomplete(&self) -> bool {
        self.records.held() > 0
    }

    /// Returns the number of sealed bytes that the socket has not accepted.
    pub(super) fn backlog(&self) -> usize {
        self.records.unsent()
    }

    /// Returns true if the socket may be read. A peer that does not read cannot make this side
    /// collect answers to its messages.
    pub(super) fn is_read(&self) -> bool {
        self.backlog() <= BACKLOG_BYTES_MAX
    }

    /// Reads once from the socket and passes on the bytes of the stream. Returns true if more bytes
    /// may have arrived.
    pub(super) fn receive(
        &mut self,
        socket: &OwnedFd,
        buffers: &mut Buffers,
        deliver: Deliver<'_>,
    ) -> Result<bool, &'static str> {
        let intake = &mut buffers.intake;
        intake.resize(INTAKE_BYTES, 0);
        let held = self.records.unhold(intake);
        let room = intake.len() - held;
        let received = receive(socket, &mut intake[held..]);
        let count = match &received {
            Ok(count) => count.unwrap_or(0),
            Err(_) => 0,
        };
        let filled = held + count;
        let (used, stepped) = match count {
            0 => (0, Ok(())),
            _ => self.take(&mut intake[..filled], deliver),
        };
        self.records.hold(&intake[used..filled]);
        let flushed = self.records.flush(socket);
        stepped?;
        if received.map_err(|reason| self.fail(reason))? == Some(0) || self.records.has_ended {
            return Err(CLOSED);
        }
        flushed.map_err(|reason| self.fail(reason))?;
        if filled - used > HELD_BYTES_MAX {
            let what = "a handshake message exceeds the length limit".to_owned();
            return Err(self.fail(TlsFailure::Protocol(what).into()));
        }
        Ok(count == room)
    }

    /// Takes all complete TLS records. Returns the number of bytes that were used.
    fn take(
        &mut self,
        bytes: &mut [u8],
        deliver: Deliver<'_>,
    ) -> (usize, Result<(), &'static str>) {
        let (mut used, mut fault) = (0, None);
        loop {
            let mut pass = |plain: &[u8]| {
                deliver(plain).map_err(|reason| {
                    fault = Some(reason);
                    BreakReason::Peer
                })
            };
            let (count, stepped) = self.records.step(&mut bytes[used..], &mut pass);
            used += count;
            match stepped {
                Ok(Step::Again) => {}
                Ok(Step::Blocked) => return (used, Ok(())),
                Err(reason) => return (used, Err(fault.unwrap_or_else(|| self.fail(reason)))),
            }
        }
    }

    /// Seals replies and writes them to the socket until it accepts no more. Before the end of the
    /// handshake, replies wait.
    pub(super) fn transmit(
        &mut self,
        socket: &OwnedFd,
        outgoing: &mut Outgoing,
        buffers: &mut Buffers,
        events: &mut VecDeque<RecordEvent>,
    ) -> Result<(), &'static str> {
        loop {
            let is_blocked = self.records.flush(socket).map_err(|reason| self.fail(reason))?;
            if is_blocked || self.handshake_since.is_some() || outgoing.unsent() == 0 {
                return Ok(());
            }
            buffers.plain.resize(PLAIN_BYTES_MAX, 0);
            let count = outgoing.take(&mut buffers.plain, events);
            let said = self.records.say(socket, &buffers.plain[..count]);
            if said.map_err(|reason| self.fail(reason))? {
                return Ok(());
            }
        }
    }

    /// Closes TLS in the regular way, or sends the alert that says why TLS has failed.
    pub(super) fn part(&mut self, socket: &OwnedFd) {
        self.records.is_ending = true;
        self.records.part(socket);
        // Closing a socket with unread input would send a reset, which could overtake the alert.
        drain(socket);
    }

    /// Keeps the reason of a failure of TLS. Returns the reason in words.
    fn fail(&mut self, reason: BreakReason) -> &'static str {
        match reason {
            BreakReason::Tls(failure) => {
                self.failure = Some(failure);
                "TLS has failed"
            }
            BreakReason::Peer => CLOSED,
            _ => "the connection broke",
        }
    }
}

/// The reason for the end of a connection that the peer has closed.
pub(super) const CLOSED: &str = "the peer closed the connection";
/// The number of bytes for one read from the socket, including an incomplete TLS record.
const INTAKE_BYTES: usize = HELD_BYTES_MAX + (64 << 10);
/// The number of sealed bytes that the socket has not accepted, above which it is not read.
const BACKLOG_BYTES_MAX: usize = PLAIN_BYTES_MAX + (4 << 10);

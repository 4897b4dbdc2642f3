//! One connection that carries records.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll;

use super::clock::Clock;
use super::inbox::Inbox;
use super::input::{Input, Sink};
use super::outgoing::Outgoing;
use super::secure::{self, Secure};
use super::socket::Socket;
use super::{LinkId, RecordEvent, SCRATCH_BYTES};
use crate::{CertificateIdentity, TlsFailure, TlsServer};

/// An open connection.
pub(super) struct Link {
    pub id: LinkId,
    pub address: IpAddr,
    socket: Socket,
    /// The state of TLS. `None` for a plain connection.
    tls: Option<Box<Secure>>,
    input: Input,
    pub inbox: Inbox,
    /// True if the connection is in the list of connections that take turns with their records.
    pub is_ready: bool,
    /// The reason why the connection ends when all records are handled.
    ending: Option<&'static str>,
    /// The time since which a record is incomplete; `None` if no part of a record has arrived, or
    /// if the connection was not read all the time.
    pub incomplete_since: Option<Duration>,
    pub outgoing: Outgoing,
    /// True if the connection is in the list of connections with pending replies.
    pub is_unflushed: bool,
    pub is_paused: bool,
    /// The time at which replies have become pending, moved on by the time that the bytes sent
    /// since then take at [`BYTES_PER_SECOND_MIN`]; `None` if no reply is pending.
    pub stalled_since: Option<Duration>,
    /// The events that the epoll instance reports for the socket.
    interest: epoll::EventFlags,
}

impl Link {
    pub(super) fn new(id: LinkId, socket: Socket, address: IpAddr) -> Self {
        Self {
            id,
            address,
            socket,
            tls: None,
            input: Input::default(),
            inbox: Inbox::default(),
            is_ready: false,
            ending: None,
            incomplete_since: None,
            outgoing: Outgoing::default(),
            is_unflushed: false,
            is_paused: false,
            stalled_since: None,
            interest: epoll::EventFlags::IN,
        }
    }

    /// Receives bytes that have arrived, up to a limit. If more bytes have arrived, epoll reports
    /// the socket again.
    pub(super) fn receive(
        &mut self,
        scratch: &mut [u8],
        buffers: &mut Vec<Vec<u8>>,
        bytes_max: usize,
    ) -> Result<(), &'static str> {
        for _ in 0..READS_IN_TURN {
            if !self.is_read() {
                return Ok(());
            }
            let mut sink = Sink { inbox: &mut self.inbox, buffers: &mut *buffers, bytes_max };
            let (count, room) = if let Some((record, room)) = self.input.direct(SCRATCH_BYTES / 2) {
                let before = record.len();
                let spare = &mut record.spare_capacity_mut()[..room];
                let read = self.socket.read_uninitialized(spare)?;
                let Some(count) = read else { return Ok(()) };
                // SAFETY: `count` bytes from `before` on, which lie within the capacity, were
                // initialized.
                unsafe { record.set_len(before + count) };
                self.input.took(count, &mut sink);
                (count, room)
            } else {
                let Some(count) = self.socket.read(scratch)? else { return Ok(()) };
                self.input.take(&scratch[..count], &mut sink)?;
                (count, scratch.len())
            };
            if count < room {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Receives like [`Link::receive`], from a connection with TLS.
    pub(super) fn receive_sealed(
        &mut self,
        own: &mut secure::Buffers,
        buffers: &mut Vec<Vec<u8>>,
        bytes_max: usize,
    ) -> Result<(), &'static str> {
        for _ in 0..READS_IN_TURN {
            if !self.is_read() {
                return Ok(());
            }
            let Self { tls: Some(tls), socket, inbox, input, .. } = self else { return Ok(()) };
            let Some(socket) = socket.system() else { return Ok(()) };
            let mut sink = Sink { inbox, buffers: &mut *buffers, bytes_max };
            if !tls.receive(socket, own, &mut |plain| input.take(plain, &mut sink))? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Starts TLS. The peer must not have sent anything that was not handled yet, because such
    /// bytes would be mistaken for bytes that TLS protects.
    pub(super) fn start_tls(
        &mut self,
        server: &TlsServer,
        now: Duration,
    ) -> Result<(), &'static str> {
        let has_more = !self.inbox.is_empty() || self.input.is_incomplete();
        if self.socket.system().is_none() {
            return Err("a simulated connection has no TLS");
        }
        if has_more || self.ending.is_some() || self.tls.is_some() {
            return Err("the peer did not wait for the answer to its request to start TLS");
        }
        let secure = Secure::answering(server, now);
        self.tls = Some(Box::new(secure.map_err(|_| "TLS cannot be started")?));
        Ok(())
    }

    /// Returns true if TLS has started.
    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the time at which a TLS handshake has begun that is not done.
    pub(super) fn handshake_since(&self) -> Option<Duration> {
        self.tls.as_ref()?.handshake_since()
    }

    /// Returns the identity in the peer's certificate, if any, once after the handshake is done.
    pub(super) fn take_secured(&mut self) -> Option<Option<CertificateIdentity>> {
        let tls = self.tls.as_mut()?;
        tls.take_done().then(|| tls.identity())
    }

    /// Ends TLS before the socket is closed. Returns the reason if TLS has failed.
    pub(super) fn part(&mut self) -> Option<TlsFailure> {
        let tls = self.tls.as_mut()?;
        tls.part(self.socket.system()?);
        tls.take_failure()
    }

    /// Returns the number of bytes, sealed or not, that the kernel has not accepted.
    fn pending(&self) -> u64 {
        self.outgoing.unsent() + self.tls.as_ref().map_or(0, |tls| tls.backlog() as u64)
    }

    /// Returns true if epoll must report when the socket accepts bytes.
    fn wants_to_write(&self) -> bool {
        match &self.tls {
            None => self.outgoing.unsent() > 0,
            // Replies wait for the end of the handshake.
            Some(tls) if tls.handshake_since().is_some() => tls.backlog() > 0,
            Some(_) => self.pending() > 0,
        }
    }

    /// Writes pending replies to the socket until the kernel accepts no more bytes.
    pub(super) fn transmit(
        &mut self,
        own: &mut secure::Buffers,
        events: &mut VecDeque<RecordEvent>,
        clock: Clock,
    ) -> Result<(), &'static str> {
        let before = self.pending();
        match (&mut self.tls, &mut self.socket) {
            (None, Socket::System(socket)) => self.outgoing.write(socket.as_fd(), events)?,
            (Some(tls), Socket::System(socket)) => {
                tls.transmit(socket, &mut self.outgoing, own, events)?;
            }
            (_, Socket::Simulated(stream)) => self.outgoing.write_simulated(stream, events),
        }
        let left = self.pending();
        if left == 0 {
            self.stalled_since = None;
            return Ok(());
        }
        let now = clock.now();
        let since = self.stalled_since.unwrap_or(now);
        let credit = Duration::from_secs(before.saturating_sub(left)) / BYTES_PER_SECOND_MIN;
        self.stalled_since = Some(now.min(since + credit));
        Ok(())
    }

    /// Returns true if the socket is read.
    fn is_read(&self) -> bool {
        !self.is_paused
            && self.input.kept_max() > 0
            && !self.inbox.is_full()
            && self.ending.is_none()
            && self.tls.as_ref().is_none_or(|tls| tls.is_read())
    }

    /// Sets the number of bytes of a record that are kept. Returns false if bytes that are wanted
    /// now were dropped, of the record that is arriving or of one that was not handled yet.
    pub(super) fn keep(&mut self, bytes_max: usize) -> bool {
        let before = self.input.kept_max();
        let has_cut = bytes_max > before && self.inbox.has_records_of(before);
        self.input.keep(bytes_max) && !has_cut
    }

    /// Returns true if a part of a record has arrived.
    fn is_incomplete(&self) -> bool {
        self.input.is_incomplete() || self.tls.as_ref().is_some_and(|tls| tls.is_incomplete())
    }

    /// Adds the connection to the list of connections that take turns, if it has records.
    pub(super) fn list_if_ready(&mut self, ready: &mut VecDeque<LinkId>) {
        if !self.is_ready && !self.is_paused && !self.inbox.is_empty() {
            self.is_ready = true;
            ready.push_back(self.id);
        }
    }

    /// Records that the connection has ended. It is closed when all of its records are handled.
    pub(super) fn end(&mut self, epoll: &OwnedFd, reason: &'static str) {
        self.ending = Some(reason);
        self.socket.stop_watching(epoll);
    }

    /// Returns true if the connection has ended.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Returns the reason why the connection must be closed now.
    pub(super) fn ending(&self) -> Option<&'static str> {
        self.ending.filter(|_| self.inbox.is_empty())
    }

    /// Updates the events that the epoll instance reports for the socket, and the time since which
    /// a record is incomplete. Must be called when the connection was read, written or paused.
    pub(super) fn update_interest(&mut self, epoll: &OwnedFd, clock: Clock) {
        self.incomplete_since = match self.is_read() && self.is_incomplete() {
            true => self.incomplete_since.or_else(|| Some(clock.now())),
            false => None,
        };
        if self.ending.is_some() {
            return;
        }
        let mut wanted = epoll::EventFlags::empty();
        wanted.set(epoll::EventFlags::IN, self.is_read());
        wanted.set(epoll::EventFlags::OUT, self.wants_to_write());
        // If the kernel has no memory, the next call of this function tries again.
        if wanted != self.interest && self.socket.watch(epoll, self.id.to_bits(), wanted) {
            self.interest = wanted;
        }
    }

    /// Returns true if a simulated connection can be read or written now.
    pub(super) fn is_due(&mut self) -> bool {
        let is_read = self.is_read();
        let Socket::Simulated(stream) = &mut self.socket else { return false };
        is_read && stream.is_readable() || self.outgoing.unsent() > 0 && stream.has_room()
    }
}

/// The maximum number of reads from a connection before other connections are served again.
const READS_IN_TURN: usize = 16;
/// The rate in bytes per second at which a peer must read pending replies.
const BYTES_PER_SECOND_MIN: u32 = 64 << 10;

//! The provider `tcp` implements software iWARP over TCP sockets.
//!
//! The crate `dafs_iwarp` implements the protocol and does not access payload. This provider
//! connects sockets and moves the bytes. Its modules:
//!
//! - `listener`, `establish`: sockets, and the MPA frames that begin a stream; `options`: the form
//!   of these frames.
//! - `transmit`: converts posted work into frames; `outgoing`: sends the frames, with one system
//!   call for all posted work, and payload directly from registered memory.
//! - `receive`: receives and checks bytes; `place`: finds the destination of payload.
//! - `plan`: lays out one receive call for many frames, with payload directly to its destination;
//!   `expect`: predicts the next frames.
//! - `layer`, `records`: TLS between the stream and the socket, if the connection uses it.
//!
//! Invariant: work is framed and completes in the order posted. The ledger has one entry for each
//! work request until the completion of that request is reported.

mod establish;
mod expect;
pub(crate) mod layer;
mod listener;
mod options;
mod outgoing;
mod place;
mod plan;
mod receive;
#[cfg(feature = "tls")]
pub(crate) mod records;
#[cfg(not(feature = "tls"))]
#[path = "no_records.rs"]
pub(crate) mod records;
mod segments;
mod transmit;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use dafs_iwarp::{Receiver, Transmitter};

use self::establish::Phase;
use self::layer::Layer;
pub(crate) use self::listener::{Listener, listening_socket};
pub use self::options::MpaOptions;
use self::outgoing::Outgoing;
use self::place::Receive;
use self::receive::Inbound;
use self::records::Records;
use self::segments::SegmentList;
use self::transmit::{PartialMessage, Work};
use crate::connection::{Context, Interest, Readiness};
use crate::region::RegionEntry;
use crate::{
    Address, AddressError, BreakReason, CertificateIdentity, CompletionStatus, EndpointConfig,
    Forecast, Gather, Holder, ListenerId, LocalSegment, Operation, PostError, RegionPath,
    RemoteSegment, SendOptions, Signal, TlsServer,
};

/// One TCP connection, of either role.
pub(crate) struct Connection {
    socket: Option<OwnedFd>,
    layer: Layer,
    peer: SocketAddr,
    /// The identity that the peer has proved by its TLS certificate.
    certificate: Option<Arc<CertificateIdentity>>,
    phase: Phase,
    deadline: Instant,
    config: EndpointConfig,
    stream: Option<Stream>,
    /// True if both sides accept frames longer than a TCP segment: [`MpaOptions::long_frames`].
    long_frames: bool,
    /// True if the first message may be the empty Send by which the initiator shows that it is
    /// ready.
    awaits_ready: bool,
    receives: VecDeque<Receive>,
    /// The posted work that waits to be framed.
    work: VecDeque<Work>,
    /// The message of which only some frames have been made.
    underway: Option<PartialMessage>,
    outgoing: Outgoing,
    inbound: Inbound,
    /// The kinds of events that epoll is currently asked to report.
    interest: Interest,
    is_watched: bool,
    /// The number of bytes that must have arrived before epoll reports the socket as readable.
    low_water: usize,
}

/// The sending and the receiving half of the protocol.
struct Stream {
    transmitter: Transmitter,
    receiver: Receiver,
    /// True if this side may send before the peer has sent anything.
    speaks_first: bool,
}

impl Stream {
    /// Returns true if this side may send. An acceptor must not send before the initiator has sent
    /// (RFC 5044 7.1.2).
    fn may_speak(&self) -> bool {
        self.speaks_first || self.receiver.has_heard()
    }
}

impl Connection {
    pub(crate) fn connect(
        address: SocketAddr,
        config: &EndpointConfig,
        private_data: &[u8],
        deadline: Instant,
    ) -> Result<Self, AddressError> {
        let initiator = establish::initiator(config, private_data)?;
        let layer = match &config.tls {
            None => Layer::Plain,
            Some(target) => Layer::Tls(Box::new(Records::connecting(target)?)),
        };
        let socket = listener::connect(&address).map_err(|error| AddressError::System {
            address: Address::Tcp(address),
            source: error.into(),
        })?;
        let phase = Phase::Connecting(Box::new(initiator));
        let mut connection = Self::new(socket, layer, address, phase, deadline);
        connection.config = config.clone();
        Ok(connection)
    }

    pub(crate) fn inbound(
        socket: OwnedFd,
        listener: ListenerId,
        peer: SocketAddr,
        tls: Option<&TlsServer>,
        deadline: Instant,
    ) -> Self {
        let phase = Phase::Answering { listener, responder: Box::default(), turns_away: false };
        Self::new(socket, Layer::of_listener(tls), peer, phase, deadline)
    }

    fn new(
        socket: OwnedFd,
        layer: Layer,
        peer: SocketAddr,
        phase: Phase,
        deadline: Instant,
    ) -> Self {
        establish::watch_over(&socket);
        Self {
            socket: Some(socket),
            layer,
            peer,
            certificate: None,
            phase,
            deadline,
            config: EndpointConfig::default(),
            stream: None,
            long_frames: false,
            awaits_ready: false,
            receives: VecDeque::new(),
            work: VecDeque::new(),
            underway: None,
            outgoing: Outgoing::default(),
            inbound: Inbound::default(),
            interest: Interest::Read,
            is_watched: false,
            low_water: 1,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Established)
    }

    /// Sets the events that epoll reports, if they have changed.
    fn watch(&mut self, context: &Context<'_>, interest: Interest) -> Result<(), BreakReason> {
        let Some(socket) = &self.socket else { return Ok(()) };
        if !self.is_watched {
            context.watch(socket.as_fd(), SOCKET, interest).map_err(system)?;
        } else if self.interest != interest {
            context.rewatch(socket.as_fd(), SOCKET, interest).map_err(system)?;
        }
        self.is_watched = true;
        self.interest = interest;
        Ok(())
    }

    /// Sets how many bytes must have arrived before epoll reports the socket (SO_RCVLOWAT), if the
    /// value has changed. Returns false if the kernel refuses.
    fn set_low_water(&mut self, bytes: usize) -> bool {
        if self.low_water == bytes {
            return true;
        }
        let Some(socket) = &self.socket else { return false };
        let value = bytes as libc::c_int;
        // SAFETY: the kernel reads one integer, whose size is passed.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if result == 0 {
            self.low_water = bytes;
        }
        result == 0
    }

    /// Completes all outstanding work as flushed.
    fn abandon(&mut self, context: &mut Context<'_>) {
        self.outgoing.abandon(context);
        self.abandon_work(context);
        for receive in self.receives.drain(..) {
            let flushed = CompletionStatus::Flushed;
            context.complete(Operation::Receive, receive.cookie, flushed, 0);
        }
    }
}

impl crate::connection::Connection for Connection {
    fn post_receive(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        scatter: &[LocalSegment],
    ) -> Result<(), PostError> {
        if matches!(self.phase, Phase::Closed) {
            return Err(PostError::NotConnected);
        }
        if self.receives.len() >= self.config.receives_max as usize {
            return Err(PostError::QueueFull);
        }
        for segment in scatter {
            context.regions.local(context.domain, segment)?;
        }
        self.receives.push_back(Receive { cookie, scatter: SegmentList::new(scatter) });
        Ok(())
    }

    fn post_send(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        gather: &[Gather<'_>],
        options: SendOptions,
    ) -> Result<(), PostError> {
        self.queue_send(context, cookie, gather, options)
    }

    fn post_rdma_write(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
        signal: Signal,
    ) -> Result<(), PostError> {
        self.queue_transfer(context, cookie, local, transmit::Kind::Write(remote, signal), remote)
    }

    fn post_rdma_read(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
    ) -> Result<(), PostError> {
        if self.outgoing.reads.is_empty() {
            self.inbound.warm = 0;
        }
        self.queue_transfer(context, cookie, local, transmit::Kind::Read(remote), remote)
    }

    fn expect(&mut self, forecast: &Forecast<'_>) {
        if self.inbound.expectations.outstanding() == 0 {
            self.inbound.warm = 0;
        }
        self.inbound.expectations.add(forecast);
    }

    fn flush(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        self.push_out(context)
    }

    fn progress(&mut self, context: &mut Context<'_>) -> Result<bool, BreakReason> {
        if !self.is_watched {
            self.begin(context)?;
            return Ok(false);
        }
        self.read_in(context)
    }

    fn ready(
        &mut self,
        context: &mut Context<'_>,
        _which: u8,
        readiness: Readiness,
    ) -> Result<(), BreakReason> {
        if matches!(self.phase, Phase::Connecting(_)) && (readiness.writable || readiness.closed) {
            return self.on_connected(context);
        }
        if readiness.writable {
            self.push_out(context)?;
        }
        if readiness.readable {
            self.read_in(context)?;
        }
        Ok(())
    }

    fn is_polled(&self) -> bool {
        false
    }

    fn awaits_one(&self) -> bool {
        self.inbound.expectations.outstanding() == 1
    }

    fn idle(&mut self, context: &mut Context<'_>) {
        self.warm_up(context);
    }

    fn gather(&mut self, threshold: usize) -> bool {
        let due = self.bytes_due(threshold).saturating_sub(self.layer.held());
        let bytes = due.min(GATHERED_BYTES_MAX);
        // Gather only once after each arrival: if the peer stops sending, the next sleep is a
        // normal one.
        let is_worth_it = bytes >= GATHERED_BYTES_MIN && std::mem::take(&mut self.inbound.flows);
        is_worth_it && self.set_low_water(bytes)
    }

    fn gathered(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        if !self.inbound.flows {
            self.read_in(context)?;
        }
        Ok(())
    }

    fn end_gathering(&mut self) {
        self.set_low_water(1);
    }

    fn accept(
        &mut self,
        context: &mut Context<'_>,
        config: &EndpointConfig,
        private_data: &[u8],
    ) -> Result<(), BreakReason> {
        self.config = config.clone();
        self.answer(context, private_data)
    }

    fn reject(&mut self, _context: &mut Context<'_>, private_data: &[u8]) {
        self.refuse(private_data);
    }

    fn is_established(&self) -> bool {
        self.is_open()
    }

    fn has_asked(&self) -> bool {
        !matches!(self.phase, Phase::Answering { .. })
    }

    fn holder(&self) -> Holder {
        Holder::of_address(self.peer.ip())
    }

    fn held_bytes(&self) -> usize {
        self.layer.held() + self.layer.unsent() + self.inbound.kept.len()
    }

    fn deadline(&self) -> Option<Instant> {
        (!self.is_open() && !matches!(self.phase, Phase::Closed)).then_some(self.deadline)
    }

    fn expose(
        &mut self,
        _context: &mut Context<'_>,
        _entry: &RegionEntry,
    ) -> Result<(), BreakReason> {
        // Over iWARP, peers name regions in their frames, so nothing is sent in advance.
        Ok(())
    }

    fn withdraw(&mut self, _entry: &RegionEntry) {}

    fn path(&self, _entry: &RegionEntry) -> RegionPath {
        RegionPath::Network
    }

    fn shutdown(&mut self, context: &mut Context<'_>, _reason: &BreakReason) {
        self.send_terminate();
        self.phase = Phase::Closed;
        self.abandon(context);
        self.part();
    }
}

fn system(error: std::io::Error) -> BreakReason {
    BreakReason::System(error.into())
}

/// The minimum number of bytes for which a gathering sleep is worthwhile. Smaller amounts usually
/// arrive in one piece anyway.
const GATHERED_BYTES_MIN: usize = 32 << 10;
/// The maximum number of bytes for which a gathering sleep waits. If more are expected, it is
/// better to copy some while the others arrive.
const GATHERED_BYTES_MAX: usize = 256 << 10;
/// The token of the only descriptor of a connection.
const SOCKET: u8 = 0;

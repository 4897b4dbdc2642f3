//! One side of a simulated connection.
//!
//! Invariants:
//!
//! - Work completes in the order posted, and so do receives. Each completes exactly once, at the
//!   latest in [`Connection::shutdown`].
//! - This side uses only the region table of its own interface. Arriving data is placed, and data
//!   that a peer reads is fetched, while this side makes progress.

use std::collections::VecDeque;
use std::time::Instant;

use dafs_memory::Memory;

use super::Network;
use super::device::alias;
use super::packet::{Cause, Greeting, Packet, Payload, Piece, length_of, scatter};
use crate::connection::{Alarm, Context, Readiness};
use crate::region::{AccessError, DmabufError, RegionEntry};
use crate::{
    Address, AddressError, BreakReason, Completion, CompletionStatus, EndpointConfig, Event,
    Gather, ListenerId, LocalKey, LocalSegment, Operation, Peer, PendingId, PostError, Region,
    RegionPath, RemoteSegment, SendOptions, Signal, Stag,
};

pub(crate) struct Connection {
    network: Network,
    link: u64,
    /// The number of this side: 0 for the initiator, 1 for the acceptor.
    side: usize,
    /// The number of this side's device, if its node has one.
    device: Option<u32>,
    phase: Phase,
    limits: EndpointConfig,
    /// The maximum number of reads in flight from this side: the smaller of the limits of both
    /// sides.
    read_depth: u16,
    reads: u16,
    receives: VecDeque<Receive>,
    works: VecDeque<Work>,
    /// The number of entries at the front of `works` that are in flight or done.
    sent: usize,
    /// The sequence number of the first entry of `works`.
    sequence: u64,
    /// The reason that is reported to the peer when this side closes.
    cause: Cause,
}

enum Phase {
    Connecting,
    Pending { listener: ListenerId, greeting: Greeting, announced: bool },
    Established,
    Over,
}

struct Receive {
    cookie: u64,
    pieces: Vec<Piece>,
}

struct Work {
    cookie: u64,
    pieces: Vec<Piece>,
    kind: Kind,
    signal: Signal,
    length: u32,
    done: bool,
    failed: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Send { invalidate: Option<Stag> },
    Write { remote: RemoteSegment },
    Read { remote: RemoteSegment },
}

impl Connection {
    pub(crate) fn connect(
        network: &Network,
        to: (u32, u16),
        config: &EndpointConfig,
        private_data: &[u8],
    ) -> Result<Self, AddressError> {
        let (length, limit) = (private_data.len(), PRIVATE_BYTES_MAX);
        if length > limit {
            return Err(AddressError::PrivateData { length, limit });
        }
        let greeting = Greeting {
            private_data: private_data.into(),
            read_depth: config.read_depth,
            node: network.node(),
        };
        let link = network.state().connect(to, greeting);
        Ok(Self::new(network, link, 0, Phase::Connecting, config))
    }

    pub(crate) fn pending(
        network: &Network,
        link: u64,
        greeting: Greeting,
        listener: ListenerId,
    ) -> Self {
        let phase = Phase::Pending { listener, greeting, announced: false };
        Self::new(network, link, 1, phase, &EndpointConfig::default())
    }

    fn new(
        network: &Network,
        link: u64,
        side: usize,
        phase: Phase,
        limits: &EndpointConfig,
    ) -> Self {
        let device = network.state().nodes.get(&network.node()).and_then(|node| node.device);
        Self {
            network: network.clone(),
            link,
            side,
            device,
            phase,
            limits: limits.clone(),
            read_depth: limits.read_depth,
            reads: 0,
            receives: VecDeque::new(),
            works: VecDeque::new(),
            sent: 0,
            sequence: 0,
            cause: Cause::Orderly,
        }
    }

    // ---- outward --------------------------------------------------------------

    fn post(&mut self, work: Work) -> Result<(), PostError> {
        if self.works.len() >= self.limits.work_max as usize {
            return Err(PostError::QueueFull);
        }
        self.works.push_back(work);
        Ok(())
    }

    fn check_established(&self) -> Result<(), PostError> {
        match self.phase {
            Phase::Established => Ok(()),
            Phase::Connecting | Phase::Pending { .. } | Phase::Over => Err(PostError::NotConnected),
        }
    }

    /// Sends as many waiting work requests as the network and the read depth allow.
    fn pump(&mut self, context: &mut Context<'_>) -> bool {
        if !matches!(self.phase, Phase::Established) {
            return false;
        }
        let before = self.sent;
        while self.transmit_next() {}
        let moved = self.sent > before;
        self.release(context);
        moved
    }

    fn transmit_next(&mut self) -> bool {
        let sequence = self.sequence + self.sent as u64;
        let Some(work) = self.works.get_mut(self.sent) else { return false };
        let is_read = matches!(work.kind, Kind::Read { .. });
        let mut state = self.network.state();
        if is_read && self.reads >= self.read_depth || !state.has_room(self.link, self.side) {
            return false;
        }
        let chance = state.config.early_success_ppm;
        let early = !is_read && state.random.chance(chance);
        let packet = work.packet(sequence, early);
        state.transmit(self.link, self.side, packet);
        work.done = early;
        self.reads += u16::from(is_read);
        self.sent += 1;
        true
    }

    /// Reports completed work in the order posted.
    fn release(&mut self, context: &mut Context<'_>) {
        while self.works.front().is_some_and(|work| work.done) {
            let Some(work) = self.works.pop_front() else { return };
            self.sequence += 1;
            self.sent -= 1;
            if work.signal == Signal::Always {
                let operation = work.kind.operation();
                context.complete(operation, work.cookie, CompletionStatus::Success, work.length);
            }
        }
    }

    fn answer(&self, packet: Packet) {
        self.network.state().transmit(self.link, self.side, packet);
    }

    // ---- inward ---------------------------------------------------------------

    fn take_in(&mut self, context: &mut Context<'_>, packet: Packet) -> Result<(), BreakReason> {
        match packet {
            Packet::Accept { private_data, read_depth } => {
                self.phase = Phase::Established;
                self.read_depth = self.read_depth.min(read_depth);
                context
                    .events
                    .push(Event::Established { endpoint: context.endpoint, private_data });
            }
            Packet::Reject { private_data } => {
                self.flush_all(context);
                self.phase = Phase::Over;
                self.network.state().leave(self.link, self.side, Cause::Orderly);
                context.events.push(Event::Rejected { endpoint: context.endpoint, private_data });
            }
            Packet::Send { sequence, mut payload, invalidate, early } => {
                self.take_message(context, sequence, payload.fetch(), invalidate)?;
                self.acknowledge(sequence, early);
            }
            Packet::Write { sequence, mut payload, stag, address, early } => {
                self.take_write(context, sequence, payload.fetch(), stag, address)?;
                self.acknowledge(sequence, early);
            }
            Packet::ReadRequest { sequence, stag, address, length } => {
                let found = reach(self.device, context, stag, address, length, false);
                let (memory, offset) =
                    found.map_err(|error| refused(&mut self.cause, sequence, error))?;
                let payload = Payload::Bytes(memory.to_vec(offset, length as usize));
                self.answer(Packet::ReadResponse { sequence, payload });
            }
            Packet::ReadResponse { sequence, mut payload } => {
                if let Some(work) = self.work(sequence) {
                    scatter(&work.pieces, payload.fetch());
                    work.done = true;
                    self.reads -= 1;
                }
            }
            Packet::Acknowledge { sequence } => {
                if let Some(work) = self.work(sequence) {
                    work.done = true;
                }
            }
            Packet::Close(cause) => return Err(self.closed_by_peer(cause)),
            Packet::Lost(reason) => return Err(reason),
            Packet::Connect(_) => unreachable!("goes to the listener"),
        }
        Ok(())
    }

    fn take_message(
        &mut self,
        context: &mut Context<'_>,
        sequence: u64,
        bytes: &[u8],
        invalidate: Option<Stag>,
    ) -> Result<(), BreakReason> {
        let unready = || Cause::Refused { sequence, reason: BreakReason::ReceiverNotReady };
        let Some(receive) = self.receives.pop_front() else {
            self.cause = unready();
            return Err(BreakReason::ReceiverNotReady);
        };
        let mut completion = Completion {
            endpoint: context.endpoint,
            cookie: receive.cookie,
            operation: Operation::Receive,
            status: CompletionStatus::Failed,
            length: 0,
            invalidated: None,
        };
        if length_of(&receive.pieces) < bytes.len() as u64 {
            context.events.push_completion(completion);
            self.cause = unready();
            return Err(BreakReason::ReceiverNotReady);
        }
        let invalidate = invalidate.map(|stag| alias(self.device, stag));
        if let Some(stag) = invalidate
            && let Err(error) = context.regions.invalidate(stag, context.domain)
        {
            context.events.push_completion(completion);
            return Err(refused(&mut self.cause, sequence, error));
        }
        scatter(&receive.pieces, bytes);
        completion.status = CompletionStatus::Success;
        completion.length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        completion.invalidated = invalidate;
        context.events.push_completion(completion);
        Ok(())
    }

    fn take_write(
        &mut self,
        context: &mut Context<'_>,
        sequence: u64,
        bytes: &[u8],
        stag: Stag,
        address: u64,
    ) -> Result<(), BreakReason> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let (memory, offset) = reach(self.device, context, stag, address, length, true)
            .map_err(|error| refused(&mut self.cause, sequence, error))?;
        memory.write(offset, bytes);
        Ok(())
    }

    fn acknowledge(&self, sequence: u64, early: bool) {
        if !early {
            self.answer(Packet::Acknowledge { sequence });
        }
    }

    fn closed_by_peer(&mut self, cause: Cause) -> BreakReason {
        match cause {
            Cause::Orderly if matches!(self.phase, Phase::Connecting) => {
                BreakReason::Unreachable("the peer stopped listening".into())
            }
            Cause::Orderly => BreakReason::Peer,
            Cause::Refused { sequence, reason } => {
                if let Some(work) = self.work(sequence) {
                    work.failed = true;
                }
                reason
            }
        }
    }

    fn work(&mut self, sequence: u64) -> Option<&mut Work> {
        let index = sequence.checked_sub(self.sequence)?;
        self.works.get_mut(usize::try_from(index).ok()?)
    }

    /// Completes everything outstanding as flushed: first work, then receives.
    fn flush_all(&mut self, context: &mut Context<'_>) {
        self.sequence += self.works.len() as u64;
        self.sent = 0;
        for work in self.works.drain(..) {
            let status =
                if work.failed { CompletionStatus::Failed } else { CompletionStatus::Flushed };
            context.complete(work.kind.operation(), work.cookie, status, 0);
        }
        for receive in self.receives.drain(..) {
            context.complete(Operation::Receive, receive.cookie, CompletionStatus::Flushed, 0);
        }
    }
}

impl Work {
    fn packet(&self, sequence: u64, early: bool) -> Packet {
        let mut payload = Payload::Lent(self.pieces.clone());
        if early {
            payload.fetch();
        }
        match self.kind {
            Kind::Send { invalidate } => Packet::Send { sequence, payload, invalidate, early },
            Kind::Write { remote: RemoteSegment { stag, address, .. } } => {
                Packet::Write { sequence, payload, stag, address, early }
            }
            Kind::Read { remote: RemoteSegment { stag, address, length } } => {
                Packet::ReadRequest { sequence, stag, address, length }
            }
        }
    }
}

impl Kind {
    fn operation(self) -> Operation {
        match self {
            Kind::Send { .. } => Operation::Send,
            Kind::Write { .. } => Operation::RdmaWrite,
            Kind::Read { .. } => Operation::RdmaRead,
        }
    }
}

/// Records for the peer that its work was refused. Returns the reason why this side's connection
/// ends.
fn refused(cause: &mut Cause, sequence: u64, error: AccessError) -> BreakReason {
    let what = format!("{error:?}");
    *cause = Cause::Refused { sequence, reason: BreakReason::RemoteAccess(what.clone()) };
    BreakReason::PeerViolation(what)
}

/// Finds the memory that a peer names, possibly by an STag of a device of this side.
fn reach<'c>(
    device: Option<u32>,
    context: &'c Context<'_>,
    stag: Stag,
    address: u64,
    length: u32,
    write: bool,
) -> Result<(&'c Memory, usize), AccessError> {
    let regions = &*context.regions;
    let known = device.and_then(|device| regions.simulated.named(device, stag));
    let Some((key, memory)) = known else {
        return regions.remote(context.domain, alias(device, stag), address, length, write);
    };
    regions.check_remote(context.domain, key, address, length, write)?;
    let offset = usize::try_from(address).map_err(|_| AccessError::Bounds)?;
    Ok((memory, offset))
}

fn resolve(context: &Context<'_>, segments: &[LocalSegment]) -> Result<Vec<Piece>, PostError> {
    segments
        .iter()
        .map(|segment| {
            let (memory, offset) = context.regions.local(context.domain, segment)?;
            Ok(Piece { memory: memory.clone(), offset, length: segment.length as usize })
        })
        .collect()
}

/// Returns the pieces of a scatter list whose lengths add up to `length`.
fn resolve_exactly(
    context: &Context<'_>,
    segments: &[LocalSegment],
    length: u32,
) -> Result<Vec<Piece>, PostError> {
    let pieces = resolve(context, segments)?;
    if length_of(&pieces) != u64::from(length) {
        return Err(PostError::BadSegment);
    }
    Ok(pieces)
}

impl crate::connection::Connection for Connection {
    fn post_receive(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        scatter: &[LocalSegment],
    ) -> Result<(), PostError> {
        if !matches!(self.phase, Phase::Connecting | Phase::Established) {
            return Err(PostError::NotConnected);
        }
        let pieces = resolve(context, scatter)?;
        if self.receives.len() >= self.limits.receives_max as usize {
            return Err(PostError::QueueFull);
        }
        self.receives.push_back(Receive { cookie, pieces });
        Ok(())
    }

    fn post_send(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        gather: &[Gather<'_>],
        options: SendOptions,
    ) -> Result<(), PostError> {
        self.check_established()?;
        let mut pieces = Vec::with_capacity(gather.len());
        for element in gather {
            match element {
                Gather::Bytes(bytes) => {
                    let memory = Memory::from_heap((*bytes).into());
                    pieces.push(Piece { memory, offset: 0, length: bytes.len() });
                }
                Gather::Segment(segment) => {
                    pieces.append(&mut resolve(context, std::slice::from_ref(segment))?);
                }
            }
        }
        let length = u32::try_from(length_of(&pieces)).map_err(|_| PostError::TooLong)?;
        if length > self.limits.message_bytes_max {
            return Err(PostError::TooLong);
        }
        let kind = Kind::Send { invalidate: options.invalidate };
        let signal = options.signal;
        self.post(Work { cookie, pieces, kind, signal, length, done: false, failed: false })
    }

    fn post_rdma_write(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
        signal: Signal,
    ) -> Result<(), PostError> {
        self.check_established()?;
        let length = remote.length;
        let pieces = resolve_exactly(context, local, length)?;
        let kind = Kind::Write { remote };
        self.post(Work { cookie, pieces, kind, signal, length, done: false, failed: false })
    }

    fn move_now(
        &mut self,
        context: &mut Context<'_>,
        local: &[LocalSegment],
        remote: RemoteSegment,
        write: bool,
    ) -> bool {
        if self.check_established().is_err() || self.device.is_some() || !self.works.is_empty() {
            return false;
        }
        let Ok(pieces) = resolve_exactly(context, local, remote.length) else { return false };
        let side = (self.link, self.side);
        self.network.state().move_at_once(side, &pieces, &remote, write)
    }

    fn post_rdma_read(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
    ) -> Result<(), PostError> {
        self.check_established()?;
        let length = remote.length;
        let pieces = resolve_exactly(context, local, length)?;
        let (kind, signal) = (Kind::Read { remote }, Signal::Always);
        self.post(Work { cookie, pieces, kind, signal, length, done: false, failed: false })
    }

    fn flush(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        self.pump(context);
        Ok(())
    }

    fn progress(&mut self, context: &mut Context<'_>) -> Result<bool, BreakReason> {
        if let Phase::Pending { listener, greeting, announced } = &mut self.phase {
            if !std::mem::replace(announced, true) {
                context.events.push(Event::ConnectionRequest {
                    listener: *listener,
                    pending: PendingId(context.endpoint),
                    peer: Peer {
                        address: Address::sim(greeting.node),
                        process: None,
                        tls: false,
                        certificate: None,
                    },
                    private_data: std::mem::take(&mut greeting.private_data),
                });
            }
            // If the initiator ends now, accept detects it.
            return Ok(false);
        }
        let mut moved = false;
        while let Some(packet) = self.take() {
            moved = true;
            self.take_in(context, packet)?;
            self.release(context);
        }
        Ok(self.pump(context) || moved)
    }

    fn ready(
        &mut self,
        _context: &mut Context<'_>,
        _which: u8,
        _readiness: Readiness,
    ) -> Result<(), BreakReason> {
        Ok(())
    }

    fn is_polled(&self) -> bool {
        true
    }

    /// Returns false: no descriptor shows arrivals of a simulated network, so it must always be
    /// polled.
    fn arm(&mut self, _alarm: Alarm) -> bool {
        false
    }

    fn accept(
        &mut self,
        context: &mut Context<'_>,
        config: &EndpointConfig,
        private_data: &[u8],
    ) -> Result<(), BreakReason> {
        let Phase::Pending { greeting, .. } = &self.phase else {
            return Err(BreakReason::System("accepted twice".into()));
        };
        if private_data.len() > PRIVATE_BYTES_MAX {
            return Err(BreakReason::System("private data too long".into()));
        }
        self.read_depth = config.read_depth.min(greeting.read_depth);
        self.limits = config.clone();
        let packet =
            Packet::Accept { private_data: private_data.into(), read_depth: config.read_depth };
        self.network.state().answer(self.link, packet).ok_or(BreakReason::Peer)?;
        self.phase = Phase::Established;
        let private_data = Box::default();
        context.events.push(Event::Established { endpoint: context.endpoint, private_data });
        Ok(())
    }

    fn reject(&mut self, _context: &mut Context<'_>, private_data: &[u8]) {
        let private_data = private_data[..private_data.len().min(PRIVATE_BYTES_MAX)].into();
        let _ = self.network.state().answer(self.link, Packet::Reject { private_data });
    }

    fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established)
    }

    fn deadline(&self) -> Option<Instant> {
        // There is no deadline, because the network itself times out a connect in virtual time.
        None
    }

    fn expose(
        &mut self,
        _context: &mut Context<'_>,
        entry: &RegionEntry,
    ) -> Result<(), BreakReason> {
        self.network.state().expose(self.link, self.side, entry);
        Ok(())
    }

    fn withdraw(&mut self, entry: &RegionEntry) {
        self.network.state().withdraw(self.link, self.side, entry);
    }

    fn name(&self, context: &Context<'_>, region: &Region) -> Stag {
        let named = |device| context.regions.simulated.name(device, region.key);
        self.device.and_then(named).unwrap_or_else(|| alias(self.device, region.stag))
    }

    fn reach_dmabuf(
        &mut self,
        context: &mut Context<'_>,
        key: LocalKey,
    ) -> Result<(), DmabufError> {
        let device = self.device.ok_or(DmabufError::Transport)?;
        context.regions.dmabuf_to_simulated(&self.network, device, key)
    }

    fn path(&self, _entry: &RegionEntry) -> RegionPath {
        RegionPath::Network
    }

    fn shutdown(&mut self, context: &mut Context<'_>, _reason: &BreakReason) {
        self.phase = Phase::Over;
        let cause = std::mem::replace(&mut self.cause, Cause::Orderly);
        self.network.state().leave(self.link, self.side, cause);
        self.flush_all(context);
    }
}

impl Connection {
    fn take(&self) -> Option<Packet> {
        self.network.state().take(self.link, self.side)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.network.state().leave(self.link, self.side, Cause::Orderly);
    }
}

/// The maximum size in bytes of private data in a connect, accept or reject: the same as for MPA.
const PRIVATE_BYTES_MAX: usize = 512;

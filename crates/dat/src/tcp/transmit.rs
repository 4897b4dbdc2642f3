//! Sending: everything posted goes out in as few system calls as the socket takes.
//!
//! Invariants: work is framed in the order posted; its payload stays where it is,
//! named by the region, until the socket has it; a completion is reported when all
//! octets of the work, and of everything before it, are with the socket.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};

use dafs_iwarp::fpdu::{HEADER_OCTETS_MAX, TRAILER_OCTETS_MAX};
use dafs_iwarp::transmit::{READ_REQUEST_FPDU_OCTETS, TERMINATE_FPDU_OCTETS_MAX};
use dafs_iwarp::{
    Outbound, ReadRequest, Receiver, Segment, Stag as WireStag, TaggedOffset, Transmitter,
};
use dafs_memory::Memory;

use super::establish::io_reason;
use super::{Connection, Stream};
use crate::connection::{Context, Interest};
use crate::{
    BreakReason, CompletionStatus, Gather, LocalSegment, Operation, PostError, RemoteSegment,
    SendOptions, Signal,
};

/// Posted work that is not framed yet.
#[derive(Debug)]
pub(crate) struct Work {
    pub cookie: u64,
    kind: Kind,
    length: u32,
    pieces: Vec<Piece>,
}

/// What kind of work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Send(SendOptions),
    Write(RemoteSegment, Signal),
    Read(RemoteSegment),
}

/// One piece of a gather list.
#[derive(Clone, Debug)]
enum Piece {
    /// Octets taken over at the post.
    Octets(Vec<u8>),
    Segment(LocalSegment),
}

/// What is framed and not with the socket.
#[derive(Default)]
pub(crate) struct Outgoing {
    chunks: VecDeque<Chunk>,
    /// Headers, trailers and octets taken over; chunks name ranges of it.
    scratch: Vec<u8>,
    /// Octets of the first chunk that the socket has.
    sent: usize,
    /// Octets framed and octets sent, since the beginning.
    framed_total: u64,
    sent_total: u64,
    /// Work in posting order, until it is reported.
    ledger: VecDeque<Entry>,
    /// Scatter lists of reads under way, oldest first.
    pub reads: VecDeque<Box<[LocalSegment]>>,
    next_read: u32,
}

/// A run of octets on its way.
enum Chunk {
    Scratch { start: usize, length: usize },
    Memory { memory: Memory, offset: usize, length: usize },
}

/// One piece of work between framing and completion.
struct Entry {
    operation: Operation,
    cookie: u64,
    length: u32,
    signal: Signal,
    /// Complete when so many octets are with the socket; for reads, when answered.
    end: u64,
    is_answered: bool,
}

impl Work {
    pub fn operation(&self) -> Operation {
        match self.kind {
            Kind::Send(_) => Operation::Send,
            Kind::Write(..) => Operation::RdmaWrite,
            Kind::Read(_) => Operation::RdmaRead,
        }
    }
}

impl Connection {
    pub(super) fn queue_send(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        gather: &[Gather<'_>],
        options: SendOptions,
    ) -> Result<(), PostError> {
        self.check_post()?;
        let mut length = 0u64;
        let mut pieces = Vec::with_capacity(gather.len());
        for element in gather {
            match element {
                Gather::Bytes(octets) => {
                    length += octets.len() as u64;
                    pieces.push(Piece::Octets(octets.to_vec()));
                }
                Gather::Segment(segment) => {
                    context.regions.local(context.domain, segment)?;
                    length += u64::from(segment.length);
                    pieces.push(Piece::Segment(*segment));
                }
            }
        }
        let length = u32::try_from(length)
            .ok()
            .filter(|length| *length <= self.config.message_bytes_max)
            .ok_or(PostError::TooLong)?;
        self.work.push_back(Work { cookie, kind: Kind::Send(options), length, pieces });
        Ok(())
    }

    pub(super) fn queue_transfer(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        kind: Kind,
        remote: RemoteSegment,
    ) -> Result<(), PostError> {
        self.check_post()?;
        let mut total = 0u64;
        for segment in local {
            context.regions.local(context.domain, segment)?;
            total += u64::from(segment.length);
        }
        if total != u64::from(remote.length) {
            return Err(PostError::BadSegment);
        }
        let pieces = local.iter().map(|segment| Piece::Segment(*segment)).collect();
        self.work.push_back(Work { cookie, kind, length: remote.length, pieces });
        Ok(())
    }

    fn check_post(&self) -> Result<(), PostError> {
        if !self.is_open() {
            return Err(PostError::NotConnected);
        }
        if self.work.len() + self.outgoing.ledger.len() >= self.config.work_max as usize {
            return Err(PostError::QueueFull);
        }
        Ok(())
    }

    /// Frames what is posted, as far as the protocol lets it go now.
    pub(super) fn frame_work(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while let Some(work) = self.work.front() {
            let framed = match self.outgoing.frame(context, stream, work) {
                Ok(framed) => framed,
                Err(reason) => {
                    if let Some(work) = self.work.pop_front() {
                        let failed = CompletionStatus::Failed;
                        context.complete(work.operation(), work.cookie, failed, 0);
                    }
                    return Err(reason);
                }
            };
            if !framed {
                break;
            }
            self.work.pop_front();
        }
        Ok(())
    }

    /// Gives the socket what is framed; waits for room by way of epoll.
    pub(super) fn write_out(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let blocked = self.outgoing.write(socket)?;
        self.outgoing.report(context);
        let interest = if blocked { Interest::ReadWrite } else { Interest::Read };
        if self.is_watched { self.watch(context, interest) } else { Ok(()) }
    }

    /// Tells the peer why the stream ends, if that is owed and the socket takes it.
    pub(super) fn say_terminate(&mut self) {
        let (Some(stream), Some(socket)) = (&mut self.stream, &self.socket) else { return };
        let Some(terminate) = stream.receiver.take_terminate() else { return };
        let mut octets = [0; TERMINATE_FPDU_OCTETS_MAX];
        // Only between frames can another frame stand.
        if self.outgoing.chunks.is_empty()
            && let Ok(length) = stream.transmitter.terminate(&terminate, &mut octets)
        {
            let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
            let _ = rustix::net::send(socket, &octets[..length], flags);
            // What the peer still has on its way must not turn the close into a reset
            // that overtakes the message.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
            let mut rest = [0; 4096];
            for _ in 0..DRAINS_MAX {
                let flags = rustix::net::RecvFlags::DONTWAIT;
                if !matches!(rustix::net::recv(socket, &mut rest[..], flags), Ok((1.., _))) {
                    break;
                }
            }
        }
    }
}

impl Outgoing {
    /// The empty message by which an initiator says that it is ready.
    pub fn ready_to_receive(
        &mut self,
        transmitter: &mut Transmitter,
        receiver: &mut Receiver,
    ) -> Result<(), BreakReason> {
        let mut octets = [0; READ_REQUEST_FPDU_OCTETS];
        let length =
            transmitter.ready_to_receive(receiver, &mut octets).map_err(|e| refused(&e))?;
        self.put(&octets[..length]);
        Ok(())
    }

    /// Frames one piece of work. False if it must wait.
    fn frame(
        &mut self,
        context: &Context<'_>,
        stream: &mut Stream,
        work: &Work,
    ) -> Result<bool, BreakReason> {
        if !stream.speaks_first && !stream.receiver.has_heard() {
            // An acceptor is silent until the initiator has spoken: RFC 5044 7.1.2.
            return Ok(false);
        }
        let (operation, cookie, length) = (work.operation(), work.cookie, work.length);
        let mut entry =
            Entry { operation, cookie, length, signal: Signal::Always, end: 0, is_answered: true };
        let message = match work.kind {
            Kind::Send(options) => {
                entry.signal = options.signal;
                let invalidate = options.invalidate.map(|stag| WireStag(stag.0));
                Outbound::Send { solicited: false, invalidate }
            }
            Kind::Write(remote, signal) => {
                entry.signal = signal;
                let offset = TaggedOffset(remote.address);
                Outbound::Write { stag: WireStag(remote.stag.0), offset }
            }
            Kind::Read(remote) => {
                if !self.request_read(stream, work, remote)? {
                    return Ok(false);
                }
                entry.is_answered = false;
                entry.end = self.framed_total;
                self.ledger.push_back(entry);
                return Ok(true);
            }
        };
        let mut segments =
            stream.transmitter.begin(message, work.length).map_err(|e| refused(&e))?;
        let crc = stream.transmitter.crc_in_use();
        let mut header = [0; HEADER_OCTETS_MAX];
        while let Some(segment) = segments.next_segment(&mut header) {
            self.put(&header[..segment.header_length]);
            let window = (segment.offset, segment.length);
            if crc {
                self.copy_payload(context, work, &segment, &header)?;
            } else {
                self.name_payload(context, &work.pieces, window)?;
                self.put(&dafs_iwarp::fpdu::TRAILER_WITHOUT_CRC[..segment.trailer_length]);
            }
        }
        entry.end = self.framed_total;
        self.ledger.push_back(entry);
        Ok(true)
    }

    fn request_read(
        &mut self,
        stream: &mut Stream,
        work: &Work,
        remote: RemoteSegment,
    ) -> Result<bool, BreakReason> {
        if stream.receiver.open_read_count() >= stream.receiver.open_read_count_max() {
            return if stream.receiver.open_read_count_max() == 0 {
                Err(BreakReason::PeerViolation("the peer serves no RDMA reads".into()))
            } else {
                Ok(false)
            };
        }
        self.next_read = self.next_read.wrapping_add(1).max(1);
        let request = ReadRequest {
            // The answers name this sink; only this side gives it a meaning.
            sink_stag: WireStag(self.next_read),
            sink_offset: TaggedOffset(0),
            length: work.length,
            source_stag: WireStag(remote.stag.0),
            source_offset: TaggedOffset(remote.address),
        };
        let read = stream.receiver.open_read(request).map_err(|e| refused(&e))?;
        let mut octets = [0; READ_REQUEST_FPDU_OCTETS];
        let length = match stream.transmitter.read_request(&read, &mut octets) {
            Ok(length) => length,
            Err(refusal) => return Err(refused(&refusal)),
        };
        self.put(&octets[..length]);
        let scatter = work.pieces.iter().filter_map(|piece| match piece {
            Piece::Segment(segment) => Some(*segment),
            Piece::Octets(_) => None,
        });
        self.reads.push_back(scatter.collect());
        Ok(true)
    }

    /// Frames the answer to a peer's read out of `memory`.
    pub fn answer_read(
        &mut self,
        stream: &mut Stream,
        request: &ReadRequest,
        memory: Option<(&Memory, usize)>,
    ) -> Result<(), BreakReason> {
        let message = Outbound::answer_to(request);
        let mut segments =
            stream.transmitter.begin(message, request.length).map_err(|e| refused(&e))?;
        let crc = stream.transmitter.crc_in_use();
        let mut header = [0; HEADER_OCTETS_MAX];
        while let Some(segment) = segments.next_segment(&mut header) {
            self.put(&header[..segment.header_length]);
            let length = segment.length as usize;
            let source = memory.map(|(memory, at)| (memory, at + segment.offset as usize));
            if crc {
                let octets = source.map(|(m, at)| m.to_vec(at, length)).unwrap_or_default();
                self.put_checked(&octets, &segment, &header);
            } else {
                if let Some((memory, offset)) = source.filter(|_| length > 0) {
                    self.name(memory, offset, length);
                }
                self.put(&dafs_iwarp::fpdu::TRAILER_WITHOUT_CRC[..segment.trailer_length]);
            }
        }
        stream.receiver.on_read_answered().map_err(|e| refused(&e))
    }

    /// The oldest read has been answered whole.
    pub fn read_answered(&mut self, context: &mut Context<'_>) {
        self.reads.pop_front();
        let oldest = self.ledger.iter_mut().find(|entry| !entry.is_answered);
        if let Some(entry) = oldest {
            entry.is_answered = true;
        }
        self.report(context);
    }

    /// Octets to be sent, copied.
    fn put(&mut self, octets: &[u8]) {
        let start = self.scratch.len();
        self.scratch.extend_from_slice(octets);
        self.framed_total += octets.len() as u64;
        match self.chunks.back_mut() {
            Some(Chunk::Scratch { start: before, length }) if *before + *length == start => {
                *length += octets.len();
            }
            _ => self.chunks.push_back(Chunk::Scratch { start, length: octets.len() }),
        }
    }

    /// Octets to be sent from where they are.
    fn name(&mut self, memory: &Memory, offset: usize, length: usize) {
        self.framed_total += length as u64;
        self.chunks.push_back(Chunk::Memory { memory: memory.clone(), offset, length });
    }

    /// Names the part of the pieces that one frame carries.
    fn name_payload(
        &mut self,
        context: &Context<'_>,
        pieces: &[Piece],
        (offset, length): (u32, u32),
    ) -> Result<(), BreakReason> {
        let (mut skip, mut left) = (offset as usize, length as usize);
        for piece in pieces {
            let here = match piece {
                Piece::Octets(octets) => octets.len(),
                Piece::Segment(segment) => segment.length as usize,
            };
            if skip >= here {
                skip -= here;
                continue;
            }
            let count = (here - skip).min(left);
            match piece {
                Piece::Octets(octets) => self.put(&octets[skip..skip + count]),
                Piece::Segment(segment) => {
                    let (memory, at) = local(context, segment)?;
                    self.name(memory, at + skip, count);
                }
            }
            skip = 0;
            left -= count;
            if left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// With CRC the payload is copied: it may change before the socket has it.
    fn copy_payload(
        &mut self,
        context: &Context<'_>,
        work: &Work,
        segment: &Segment,
        header: &[u8; HEADER_OCTETS_MAX],
    ) -> Result<(), BreakReason> {
        let mut octets = Vec::with_capacity(segment.length as usize);
        let (mut skip, mut left) = (segment.offset as usize, segment.length as usize);
        for piece in &work.pieces {
            let here = match piece {
                Piece::Octets(octets) => octets.len(),
                Piece::Segment(segment) => segment.length as usize,
            };
            if skip >= here {
                skip -= here;
                continue;
            }
            let count = (here - skip).min(left);
            match piece {
                Piece::Octets(source) => octets.extend_from_slice(&source[skip..skip + count]),
                Piece::Segment(segment) => {
                    let (memory, at) = local(context, segment)?;
                    octets.extend_from_slice(&memory.to_vec(at + skip, count));
                }
            }
            skip = 0;
            left -= count;
        }
        self.put_checked(&octets, segment, header);
        Ok(())
    }

    fn put_checked(&mut self, octets: &[u8], segment: &Segment, header: &[u8; HEADER_OCTETS_MAX]) {
        self.put(octets);
        let mut checksum = segment.checksum(header);
        checksum.update(octets);
        let mut trailer = [0; TRAILER_OCTETS_MAX];
        let length = segment.finish(checksum, &mut trailer);
        self.put(&trailer[..length]);
    }

    /// Writes until everything is with the socket or it takes no more. True if it
    /// takes no more.
    fn write(&mut self, socket: &OwnedFd) -> Result<bool, BreakReason> {
        while !self.chunks.is_empty() {
            let mut vector = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; IOVECS];
            let mut count = 0;
            let mut skip = self.sent;
            for (chunk, slot) in self.chunks.iter().zip(&mut vector) {
                let (base, length) = match chunk {
                    Chunk::Scratch { start, length } => {
                        (self.scratch[*start..*start + *length].as_ptr().cast_mut(), *length)
                    }
                    Chunk::Memory { memory, offset, length } => {
                        (memory.pointer(*offset, *length), *length)
                    }
                };
                slot.iov_base = base.wrapping_add(skip).cast();
                slot.iov_len = length - skip;
                skip = 0;
                count += 1;
            }
            // SAFETY: a message header of zeros is valid; the vector's ranges lie in
            // `scratch` and in memories that the chunks keep, and are only read.
            let written = unsafe {
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = vector.as_mut_ptr();
                message.msg_iovlen = count;
                let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
                libc::sendmsg(socket.as_raw_fd(), &raw const message, flags)
            };
            match usize::try_from(written) {
                Ok(written) => self.advance(written),
                Err(_) => {
                    match rustix::io::Errno::from_io_error(&std::io::Error::last_os_error()) {
                        Some(rustix::io::Errno::AGAIN) => return Ok(true),
                        Some(rustix::io::Errno::INTR) => {}
                        Some(other) => return Err(io_reason(other)),
                        None => return Err(BreakReason::System("sendmsg failed".into())),
                    }
                }
            }
        }
        Ok(false)
    }

    fn advance(&mut self, written: usize) {
        self.sent_total += written as u64;
        self.sent += written;
        while let Some(chunk) = self.chunks.front() {
            let length = match chunk {
                Chunk::Scratch { length, .. } | Chunk::Memory { length, .. } => *length,
            };
            if self.sent < length {
                break;
            }
            self.sent -= length;
            self.chunks.pop_front();
        }
        if self.chunks.is_empty() {
            self.scratch.clear();
        }
    }

    /// Reports work whose time has come, in order.
    fn report(&mut self, context: &mut Context<'_>) {
        while let Some(entry) = self.ledger.front() {
            if entry.end > self.sent_total || !entry.is_answered {
                break;
            }
            if entry.signal == Signal::Always {
                let success = CompletionStatus::Success;
                context.complete(entry.operation, entry.cookie, success, entry.length);
            }
            self.ledger.pop_front();
        }
    }

    /// Reports all framed work as flushed.
    pub fn abandon(&mut self, context: &mut Context<'_>) {
        for entry in self.ledger.drain(..) {
            context.complete(entry.operation, entry.cookie, CompletionStatus::Flushed, 0);
        }
        self.chunks.clear();
        self.reads.clear();
        self.scratch = Vec::new();
    }
}

fn local<'c>(
    context: &'c Context<'_>,
    segment: &LocalSegment,
) -> Result<(&'c Memory, usize), BreakReason> {
    context.regions.local(context.domain, segment).map_err(|_| {
        BreakReason::System("a region was deregistered while posted work used it".into())
    })
}

fn refused(refusal: &dafs_iwarp::Refusal) -> BreakReason {
    BreakReason::System(format!("iWARP stream: {refusal}"))
}

/// Entries of one sendmsg; the kernel's limit.
const IOVECS: usize = 1024;
/// Reads of what is still coming in, before a close.
const DRAINS_MAX: usize = 64;

//! Sends posted work in as few system calls as the socket allows.
//!
//! Invariants:
//!
//! - Work is framed in the order posted, and at the time of the post unless the work must wait.
//! - A message is framed completely before the next one begins.
//! - Waiting work refers to its memory by key, so that a backlog of any size needs memory only for
//!   its list.

use dafs_iwarp::{
    HEADER_BYTES_MAX, MessageSequence, Outbound, PlacementError, READ_REQUEST_FPDU_BYTES,
    ReadRequest, Segment, Segments, Stag as WireStag, TERMINATE_FPDU_BYTES_MAX, TRAILER_BYTES_MAX,
    TRAILER_WITHOUT_CRC, TaggedOffset,
};
use dafs_memory::Memory;

use super::layer::drain;
use super::outgoing::Outgoing;
use super::place::access_error;
use super::receive::refused;
use super::segments::SegmentList;
use super::{Connection, Stream};
use crate::connection::{Context, Interest};
use crate::region::AccessError;
use crate::{
    BreakReason, CompletionStatus, Gather, LocalSegment, Operation, PostError, RemoteSegment,
    SendOptions, Signal, Stag,
};

/// Posted work that waits to be framed.
#[derive(Debug)]
pub(super) struct Work {
    pub cookie: u64,
    kind: Kind,
    length: u32,
    payload: Stored,
}

/// The kind of work.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Send(SendOptions),
    Write(RemoteSegment, Signal),
    Read(RemoteSegment),
}

/// The payload of a work request that waits to be framed.
#[derive(Debug)]
enum Stored {
    Segments(SegmentList),
    /// The payload of a send; `bytes` holds the copied bytes, in order.
    Mixed {
        pieces: Vec<StoredPiece>,
        data: Vec<u8>,
    },
}

#[derive(Debug)]
enum StoredPiece {
    Bytes { start: usize, length: usize },
    Segment(LocalSegment),
}

/// A gather list in one of its forms.
#[derive(Clone, Copy)]
enum Pieces<'a> {
    Gather(&'a [Gather<'a>]),
    Segments(&'a [LocalSegment]),
    Mixed(&'a [StoredPiece], &'a [u8]),
}

/// A read by the peer that waits for its response.
#[derive(Debug)]
pub(super) struct Answer {
    pub sequence: MessageSequence,
    pub request: ReadRequest,
}

/// A message that is partly framed.
#[derive(Debug)]
pub(super) struct PartialMessage {
    segments: Segments,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Work(Work),
    Answer(Answer),
}

impl Kind {
    pub(super) fn operation(&self) -> Operation {
        match self {
            Kind::Send(_) => Operation::Send,
            Kind::Write(..) => Operation::RdmaWrite,
            Kind::Read(_) => Operation::RdmaRead,
        }
    }

    fn signal(&self) -> Signal {
        match self {
            Kind::Send(options) => options.signal,
            Kind::Write(_, signal) => *signal,
            Kind::Read(_) => Signal::Always,
        }
    }

    /// Returns the message with payload, or `None` for a read, which has no payload.
    fn outbound(&self) -> Option<Outbound> {
        match self {
            Kind::Send(options) => {
                let invalidate = options.invalidate.map(|stag| WireStag(stag.0));
                Some(Outbound::Send { solicited: false, invalidate })
            }
            Kind::Write(remote, _) => {
                let offset = TaggedOffset(remote.address);
                Some(Outbound::Write { stag: WireStag(remote.stag.0), offset })
            }
            Kind::Read(_) => None,
        }
    }
}

impl Work {
    pub(super) fn operation(&self) -> Operation {
        self.kind.operation()
    }

    #[cold]
    fn new(cookie: u64, kind: Kind, length: u32, pieces: Pieces<'_>) -> Self {
        let payload = match pieces {
            Pieces::Segments(segments) => Stored::Segments(SegmentList::new(segments)),
            Pieces::Gather(_) | Pieces::Mixed(..) => {
                let (mut stored, mut data) = (Vec::new(), Vec::new());
                for piece in (0..).map_while(|index| pieces.get(index)) {
                    stored.push(match piece {
                        Gather::Bytes(bytes) => {
                            let start = data.len();
                            data.extend_from_slice(bytes);
                            StoredPiece::Bytes { start, length: bytes.len() }
                        }
                        Gather::Segment(segment) => StoredPiece::Segment(segment),
                    });
                }
                Stored::Mixed { pieces: stored, data }
            }
        };
        Self { cookie, kind, length, payload }
    }

    fn pieces(&self) -> Pieces<'_> {
        match &self.payload {
            Stored::Segments(segments) => Pieces::Segments(segments.as_slice()),
            Stored::Mixed { pieces, data } => Pieces::Mixed(pieces, data),
        }
    }
}

impl<'a> Pieces<'a> {
    #[inline(always)]
    fn get(&self, index: usize) -> Option<Gather<'a>> {
        match *self {
            Pieces::Gather(pieces) => pieces.get(index).copied(),
            Pieces::Segments(segments) => segments.get(index).copied().map(Gather::Segment),
            Pieces::Mixed(pieces, bytes) => pieces.get(index).map(|piece| match piece {
                StoredPiece::Bytes { start, length } => {
                    Gather::Bytes(&bytes[*start..*start + *length])
                }
                StoredPiece::Segment(segment) => Gather::Segment(*segment),
            }),
        }
    }

    /// Checks the segments of all pieces and returns their total length in bytes.
    #[inline(always)]
    fn measure(&self, context: &Context<'_>) -> Result<u64, PostError> {
        let mut length = 0;
        for piece in (0..).map_while(|index| self.get(index)) {
            length += match piece {
                Gather::Bytes(bytes) => bytes.len() as u64,
                Gather::Segment(segment) => {
                    context.regions.local(context.domain, &segment)?;
                    u64::from(segment.length)
                }
            };
        }
        Ok(length)
    }
}

impl Answer {
    /// Returns the memory of a part of the response, if the peer may read it at this time. A read
    /// of zero bytes is not checked.
    pub(super) fn source<'c>(
        &self,
        context: &'c Context<'_>,
        offset: u32,
        length: u32,
    ) -> Result<Option<(&'c Memory, usize)>, AccessError> {
        if length == 0 {
            return Ok(None);
        }
        let stag = Stag(self.request.source_stag.0);
        let address = self.request.source_offset.0.wrapping_add(u64::from(offset));
        context.regions.remote(context.domain, stag, address, length, false).map(Some)
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
        let pieces = Pieces::Gather(gather);
        let length = u32::try_from(pieces.measure(context)?)
            .ok()
            .filter(|length| *length <= self.config.message_bytes_max)
            .ok_or(PostError::TooLong)?;
        self.queue(context, cookie, Kind::Send(options), length, pieces);
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
        let pieces = Pieces::Segments(local);
        if pieces.measure(context)? != u64::from(remote.length) {
            return Err(PostError::BadSegment);
        }
        self.queue(context, cookie, kind, remote.length, pieces);
        Ok(())
    }

    fn check_post(&self) -> Result<(), PostError> {
        if !self.is_open() {
            return Err(PostError::NotConnected);
        }
        let waiting = self.work.len() + usize::from(self.underway.is_some());
        if waiting + self.outgoing.unreported() >= self.config.work_max as usize {
            return Err(PostError::QueueFull);
        }
        Ok(())
    }

    /// Frames work immediately if possible, and otherwise queues it. Inlined, because the kinds of
    /// the work and of the pieces are then known at compile time.
    #[inline(always)]
    fn queue(
        &mut self,
        context: &Context<'_>,
        cookie: u64,
        kind: Kind,
        length: u32,
        pieces: Pieces<'_>,
    ) {
        let is_first = self.work.is_empty()
            && self.underway.is_none()
            && self.outgoing.answers.is_empty()
            && !self.outgoing.is_full();
        if is_first
            && length <= AT_ONCE_BYTES_MAX
            && let Some(stream) = &mut self.stream
            && stream.may_speak()
            && let Some(message) = kind.outbound()
            && let Ok(mut segments) = stream.transmitter.begin(message, length)
        {
            let crc = stream.transmitter.crc_in_use();
            let mut header = [0; HEADER_BYTES_MAX];
            let mut is_whole = true;
            while let Some(segment) = segments.next_segment(&mut header) {
                let frame = Frame { segment: &segment, header: &header, crc };
                is_whole &= frame.put(&mut self.outgoing, context, pieces).is_ok();
            }
            // This call has checked the segments.
            debug_assert!(is_whole, "a checked segment is not in the region table");
            self.outgoing.enter(kind.operation(), cookie, length, kind.signal());
            return;
        }
        self.work.push_back(Work::new(cookie, kind, length, pieces));
    }

    /// Frames and writes until the socket accepts no more or all remaining work waits for the peer.
    pub(super) fn push_out(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        if !self.is_open() {
            return self.push_start(context);
        }
        let pushed = self.try_push(context);
        if let Err(BreakReason::Peer) = pushed {
            // Earlier data from the peer may contain the reason why it closed the connection.
            self.read_turn(context)?;
        }
        pushed
    }

    fn try_push(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        loop {
            let may_go_on = self.frame_work(context)?;
            if self.socket.is_none() {
                return Ok(());
            }
            let blocked = self.write_out()?;
            self.outgoing.report(context);
            if blocked || !may_go_on {
                let interest = if blocked { Interest::ReadWrite } else { Interest::Read };
                return if self.is_watched { self.watch(context, interest) } else { Ok(()) };
            }
        }
    }

    /// Frames waiting work as far as the limits and the protocol allow it now. Returns true if only
    /// the limits stopped the framing.
    fn frame_work(&mut self, context: &mut Context<'_>) -> Result<bool, BreakReason> {
        loop {
            if self.underway.is_none() && !self.begin_next(context)? {
                return Ok(false);
            }
            let Some(mut underway) = self.underway.take() else { continue };
            let framed = self.frame_some(context, &mut underway);
            match (framed, underway.source) {
                (Ok(true), Source::Work(work)) => {
                    let Work { cookie, kind, length, .. } = work;
                    self.outgoing.enter(kind.operation(), cookie, length, kind.signal());
                }
                (Ok(true), Source::Answer(_)) => {
                    let Some(stream) = &mut self.stream else { return Ok(false) };
                    stream.receiver.on_read_answered().map_err(|e| refused(&e))?;
                }
                (Ok(false), source) => {
                    self.underway = Some(PartialMessage { segments: underway.segments, source });
                    return Ok(true);
                }
                (Err(_), Source::Work(work)) => {
                    return Err(fail(context, &work, BreakReason::System(GONE.into())));
                }
                (Err(error), Source::Answer(answer)) => {
                    return Err(self.refuse_answer(&answer, error));
                }
            }
        }
    }

    /// Begins the next waiting message. Responses to the peer's reads come first, because they must
    /// not wait for responses to this side's reads. Returns false if no message may be sent.
    fn begin_next(&mut self, context: &mut Context<'_>) -> Result<bool, BreakReason> {
        let Some(stream) = &mut self.stream else { return Ok(false) };
        if !stream.may_speak() {
            return Ok(false);
        }
        if let Some(answer) = self.outgoing.answers.pop_front() {
            let message = Outbound::answer_to(&answer.request);
            let begun = stream.transmitter.begin(message, answer.request.length);
            let segments = begun.map_err(|e| refused(&e))?;
            self.underway = Some(PartialMessage { segments, source: Source::Answer(answer) });
            return Ok(true);
        }
        let Some(work) = self.work.front() else { return Ok(false) };
        let message = match (work.kind.outbound(), work.kind) {
            (None, Kind::Read(remote)) => {
                return match request_read(stream, &mut self.outgoing, work.length, remote) {
                    Ok(true) => {
                        self.enter_read();
                        Ok(true)
                    }
                    Ok(false) => Ok(false),
                    Err(reason) => Err(self.fail_first(context, reason)),
                };
            }
            (Some(message), _) => message,
            (None, _) => return Ok(false),
        };
        match stream.transmitter.begin(message, work.length) {
            Ok(segments) => {
                if let Some(work) = self.work.pop_front() {
                    self.underway = Some(PartialMessage { segments, source: Source::Work(work) });
                }
                Ok(true)
            }
            Err(refusal) => Err(self.fail_first(context, refused(&refusal))),
        }
    }

    fn enter_read(&mut self) {
        if let Some(Work { cookie, length, payload: Stored::Segments(scatter), .. }) =
            self.work.pop_front()
        {
            self.outgoing.enter_read(cookie, length, scatter);
        }
    }

    fn fail_first(&mut self, context: &mut Context<'_>, reason: BreakReason) -> BreakReason {
        match self.work.pop_front() {
            Some(work) => fail(context, &work, reason),
            None => reason,
        }
    }

    /// Makes frames of one message. Returns true when the message is complete, false at a limit.
    fn frame_some(
        &mut self,
        context: &Context<'_>,
        underway: &mut PartialMessage,
    ) -> Result<bool, PlacementError> {
        let crc = self.stream.as_ref().is_some_and(|s| s.transmitter.crc_in_use());
        let mut header = [0; HEADER_BYTES_MAX];
        loop {
            if underway.segments.is_exhausted() {
                return Ok(true);
            }
            if self.outgoing.is_full() {
                return Ok(false);
            }
            let Some(segment) = underway.segments.next_segment(&mut header) else {
                return Ok(true);
            };
            let frame = Frame { segment: &segment, header: &header, crc };
            match &underway.source {
                Source::Work(work) => frame.put(&mut self.outgoing, context, work.pieces()),
                Source::Answer(answer) => {
                    let source = answer.source(context, segment.offset, segment.length);
                    frame.put_run(&mut self.outgoing, source.map_err(access_error)?);
                    Ok(())
                }
            }?;
        }
    }

    /// Reports all waiting work as flushed.
    pub(super) fn abandon_work(&mut self, context: &mut Context<'_>) {
        let underway = self.underway.take().and_then(|underway| match underway.source {
            Source::Work(work) => Some(work),
            Source::Answer(_) => None,
        });
        for work in underway.into_iter().chain(self.work.drain(..)) {
            context.complete(work.operation(), work.cookie, CompletionStatus::Flushed, 0);
        }
    }

    /// Sends a pending Terminate, which informs the peer why the stream ends, if the socket accepts
    /// it.
    pub(super) fn send_terminate(&mut self) {
        if self.socket.is_none() {
            return;
        }
        let Some(terminate) =
            self.stream.as_mut().and_then(|stream| stream.receiver.take_terminate())
        else {
            return;
        };
        // A frame may only begin after a complete frame.
        let is_between = self.write_out().is_ok() && self.outgoing.is_empty();
        let mut bytes = [0; TERMINATE_FPDU_BYTES_MAX];
        if is_between
            && let Some(stream) = &mut self.stream
            && let Ok(length) = stream.transmitter.terminate(&terminate, &mut bytes)
        {
            let _ = self.send_whole(&bytes[..length]);
            if let (Some(socket), true) = (&self.socket, self.layer.is_plain()) {
                let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
                drain(socket);
            }
        }
    }
}

/// Frames a read request. Returns false if the agreed number of reads is already open.
fn request_read(
    stream: &mut Stream,
    outgoing: &mut Outgoing,
    length: u32,
    remote: RemoteSegment,
) -> Result<bool, BreakReason> {
    let depth = stream.receiver.open_read_count_max();
    if depth == 0 {
        return Err(BreakReason::PeerViolation("the peer allows no RDMA reads".into()));
    }
    if stream.receiver.open_read_count() >= depth {
        return Ok(false);
    }
    let request = ReadRequest {
        sink_stag: WireStag(outgoing.next_sink()),
        sink_offset: TaggedOffset(0),
        length,
        source_stag: WireStag(remote.stag.0),
        source_offset: TaggedOffset(remote.address),
    };
    let read = stream.receiver.open_read(request).map_err(|e| refused(&e))?;
    let mut bytes = [0; READ_REQUEST_FPDU_BYTES];
    let length = stream.transmitter.read_request(&read, &mut bytes).map_err(|e| refused(&e))?;
    outgoing.put(&bytes[..length]);
    Ok(true)
}

/// Completes, as failed, the work that breaks the connection.
fn fail(context: &mut Context<'_>, work: &Work, reason: BreakReason) -> BreakReason {
    context.complete(work.operation(), work.cookie, CompletionStatus::Failed, 0);
    reason
}

/// One frame that is about to be made.
struct Frame<'a> {
    segment: &'a Segment,
    header: &'a [u8; HEADER_BYTES_MAX],
    crc: bool,
}

impl Frame<'_> {
    /// Makes the frame, with its share of the bytes from the pieces.
    #[inline(always)]
    fn put(
        &self,
        outgoing: &mut Outgoing,
        context: &Context<'_>,
        pieces: Pieces<'_>,
    ) -> Result<(), PlacementError> {
        outgoing.put_first(self.header, self.segment.header_length);
        let (mut skip, mut left) = (self.segment.offset as usize, self.segment.length as usize);
        for piece in (0..).map_while(|index| pieces.get(index)) {
            if left == 0 {
                break;
            }
            let here = match piece {
                Gather::Bytes(bytes) => bytes.len(),
                Gather::Segment(segment) => segment.length as usize,
            };
            if skip >= here {
                skip -= here;
                continue;
            }
            let count = (here - skip).min(left);
            match piece {
                Gather::Bytes(bytes) => outgoing.put(&bytes[skip..skip + count]),
                Gather::Segment(segment) => {
                    let found = context.regions.local(context.domain, &segment);
                    let (memory, at) = found.map_err(|_| PlacementError::InvalidStag)?;
                    self.payload(outgoing, memory, at + skip, count);
                }
            }
            skip = 0;
            left -= count;
        }
        self.finish(outgoing);
        Ok(())
    }

    /// Makes the frame from one range of memory, or without payload.
    fn put_run(&self, outgoing: &mut Outgoing, source: Option<(&Memory, usize)>) {
        outgoing.put_first(self.header, self.segment.header_length);
        if let Some((memory, offset)) = source {
            self.payload(outgoing, memory, offset, self.segment.length as usize);
        }
        self.finish(outgoing);
    }

    /// Adds payload. With CRC, payload is copied, because it could change between the computation
    /// of the CRC and the sending.
    #[inline(always)]
    fn payload(&self, outgoing: &mut Outgoing, memory: &Memory, offset: usize, length: usize) {
        if self.crc {
            memory.read(offset, outgoing.room(length));
        } else {
            outgoing.name(memory, offset, length);
        }
    }

    #[inline(always)]
    fn finish(&self, outgoing: &mut Outgoing) {
        if self.crc {
            self.finish_checked(outgoing);
        } else {
            outgoing.put_first(&TRAILER_WITHOUT_CRC, self.segment.trailer_length);
        }
    }

    #[inline(never)]
    fn finish_checked(&self, outgoing: &mut Outgoing) {
        let mut checksum = self.segment.checksum(self.header);
        checksum.update(outgoing.last(self.segment.length as usize));
        let mut trailer = [0; TRAILER_BYTES_MAX];
        let length = self.segment.finish(checksum, &mut trailer);
        outgoing.put_first(&trailer, length);
    }
}

/// The reason of a failure when a gather list names a region that was deregistered.
const GONE: &str = "a region was deregistered while posted work used it";
/// The maximum length in bytes of a message that is framed by the post. Longer messages are framed
/// by the flush, piece by piece.
const AT_ONCE_BYTES_MAX: u32 = 64 << 10;

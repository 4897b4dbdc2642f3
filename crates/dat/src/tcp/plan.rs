//! Plans one receive call for many frames: headers, trailers and messages go to a staging buffer,
//! and payload goes directly to its likely destination.
//!
//! Invariant: a plan is only a guess about the layout of the stream. Each gap (a range that
//! bypasses the staging buffer) lies in memory that the peer may write at the time of the call, or
//! that awaits the peer's reply. No two gaps overlap. The headers show afterwards, frame by frame,
//! whether the guess was right. Misplaced bytes are collected in stream order and placed again.

use std::ops::Range;

use dafs_iwarp::{
    Receiver, Stag, Step, TAGGED_DDP_BYTES, TAGGED_HEADER_BYTES, TaggedOffset, UNTAGGED_DDP_BYTES,
    UNTAGGED_HEADER_BYTES, WriteHeader, payload_max, trailer_length, write_header,
};

use super::expect::Expectations;
use super::place::{Directory, Place, Run};
use super::receive::TURN_BYTES_MAX;
use super::segments::SegmentList;
use crate::{LocalKey, RemoteSegment};

/// A range of the stream that bypasses the staging buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// The number of staged bytes that come before the gap in the stream.
    pub at: usize,
    /// The key of the region that contains the gap.
    pub key: LocalKey,
    /// The offset of the gap in the region's memory, in bytes.
    pub offset: usize,
    /// The length of the gap in bytes.
    pub length: usize,
    /// The header of the frame whose payload is the gap, if that frame is a whole RDMA write.
    pub write: Option<WriteHeader>,
    /// The length in bytes of that frame's trailer.
    pub trailer_length: usize,
}

/// The data from which a plan is made.
pub(super) struct PlanInput<'a> {
    pub directory: Directory<'a>,
    pub receiver: &'a Receiver,
    /// The place of the frame that has partly arrived.
    pub place: Option<&'a Place>,
    pub expectations: &'a Expectations,
    /// The number of bytes of the oldest open read that have arrived, including the current frame.
    pub read_done: u32,
    pub habits: &'a Habits,
}

/// The observed behaviour of the peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// The number of payload bytes in each tagged frame of a message except the last frame.
    pub payload_max: u32,
    /// The number of gaps worth planning: twice the number that recently arrived in one call.
    pub reach: usize,
    /// The length in bytes of the most recent message.
    message_length: u32,
    /// The number of messages directly before the most recent one that had the same length.
    alike: u32,
}

/// The plan for one receive call. The object is reused, so that no call allocates.
#[derive(Default)]
pub(super) struct Plan {
    pub gaps: Vec<Gap>,
    /// The scatter vector that is passed to the kernel.
    pub vector: Vec<libc::iovec>,
    /// The total number of bytes that the receive call requests.
    pub wanted: usize,
    /// The range of addresses that contains all gaps.
    pub span: Range<usize>,
}

/// A plan under construction.
struct Layout<'b> {
    plan: &'b mut Plan,
    staging: &'b mut [u8],
    /// The number of staged bytes of the stream up to this point of the plan.
    at: usize,
    /// The number of staged bytes that have arrived or are in the vector.
    named: usize,
    /// The number of gaps that may still be added.
    gaps_left: usize,
}

/// The error for a plan that has no room for further expected bytes.
struct Full;

impl Habits {
    /// Creates the record for a new connection. The payload size starts at this side's own limit,
    /// because both ends of a path usually have the same limit.
    pub(super) fn new(mulpdu: u16) -> Self {
        let payload_max = payload_max(mulpdu, true);
        Self { payload_max, reach: REACH_MIN, message_length: 0, alike: 0 }
    }

    /// Records the number of gaps for which a plan was right.
    pub(super) fn on_gaps(&mut self, count: usize) {
        self.reach = (2 * count).clamp(REACH_MIN, GAPS_MAX);
    }

    /// Records the length of an arrived message.
    #[inline]
    pub(super) fn on_message(&mut self, length: u32) {
        self.alike = if length == self.message_length { self.alike.saturating_add(1) } else { 0 };
        self.message_length = length;
    }

    /// Returns the likely length of the next message, if it is worth a gap.
    fn next_message(&self) -> Option<u32> {
        let is_likely = self.alike >= ALIKE_MIN && self.message_length >= MESSAGE_GAP_MIN;
        is_likely.then_some(self.message_length)
    }
}

impl Plan {
    /// Plans one receive call after the `kept` bytes at the start of `staging`.
    pub(super) fn lay_out(
        &mut self,
        input: Option<&PlanInput<'_>>,
        staging: &mut [u8],
        kept: usize,
    ) {
        self.gaps.clear();
        self.vector.clear();
        self.wanted = 0;
        self.span = 0..0;
        let mut layout = Layout { plan: self, staging, at: 0, named: kept, gaps_left: 0 };
        let room = match input {
            Some(input) if !input.receiver.crc_in_use() => {
                layout.gaps_left = input.habits.reach;
                match layout.guess(input) {
                    Ok(room) => room,
                    Err(Full) if layout.plan.gaps.is_empty() => ROOM_UNEXPECTED,
                    // The staged bytes end with the trailer and header before a gap, so nothing may
                    // be added after them.
                    Err(Full) => 0,
                }
            }
            // With CRC, whole frames are collected, so the longest frame must fit in the staging
            // buffer.
            Some(_) => layout.staging.len(),
            None => ROOM_UNEXPECTED,
        };
        layout.finish(room);
    }
}

impl Layout<'_> {
    /// Plans the remainder of the current frame, then the frames that are likely to follow. Returns
    /// the number of bytes of staging room that are useful after them.
    fn guess(&mut self, input: &PlanInput<'_>) -> Result<usize, Full> {
        let directory = &input.directory;
        let mut room = ROOM_UNEXPECTED;
        let is_within = match input.receiver.next_step() {
            Step::Header { .. } => false,
            Step::Trailer { bytes } => {
                self.at = bytes;
                true
            }
            Step::Payload { bytes } => {
                let Some(place) = input.place.filter(|place| place.is_memory()) else {
                    return Ok(ROOM_UNEXPECTED);
                };
                self.runs(bytes, |ahead| place.run(directory, ahead).ok())?;
                self.stage(place.trailer_length)?;
                room = room_before(place.length());
                true
            }
            Step::Closed => return Ok(ROOM_UNEXPECTED),
        };
        let is_message = is_within && input.place.is_some_and(Place::is_message);
        if is_message && !input.expectations.awaits_message() {
            self.messages(input, 1)?;
            return Ok(room);
        }
        let mut is_any = false;
        for group in input.expectations.likely().skip(usize::from(is_message)) {
            is_any = true;
            if group.before > 0 {
                self.message(group.before)?;
            }
            for write in group.rest() {
                self.write(input, &write)?;
            }
            self.message(group.message_length)?;
        }
        if is_any || is_message {
            return Ok(ROOM_AFTER);
        }
        if let Some(scatter) = directory.reads.front() {
            self.response(input, scatter)?;
            let next = if input.read_done > 0 { directory.reads.get(1) } else { Some(scatter) };
            return Ok(next.map_or(room, |read| room_before(read.length())));
        }
        self.messages(input, 0)?;
        Ok(room)
    }

    /// Plans messages of the same length as before into the posted receives after the first `skip`
    /// receives. The memory of a posted receive may be written until the receive completes.
    fn messages(&mut self, input: &PlanInput<'_>, skip: usize) -> Result<(), Full> {
        let Some(length) = input.habits.next_message() else { return Ok(()) };
        let directory = &input.directory;
        let ulpdu = u16::try_from(UNTAGGED_DDP_BYTES as u32 + length).map_err(|_| Full)?;
        for receive in directory.receives.iter().skip(skip) {
            self.stage(UNTAGGED_HEADER_BYTES)?;
            let scatter = receive.scatter.as_slice();
            self.runs(length, |ahead| directory.local(scatter, ahead, length - ahead).ok())?;
            self.stage(trailer_length(ulpdu))?;
        }
        Ok(())
    }

    /// Plans the frames of an RDMA write that the application announced.
    fn write(&mut self, input: &PlanInput<'_>, write: &RemoteSegment) -> Result<(), Full> {
        let mut done = 0;
        while done < write.length {
            let count = (write.length - done).min(input.habits.payload_max);
            let address = write.address.wrapping_add(u64::from(done));
            let run = input.directory.remote(write.stag, address, count).map_err(|_| Full)?;
            self.stage(TAGGED_HEADER_BYTES)?;
            let trailer_length = tagged_trailer(count);
            let is_whole = count == write.length;
            let (stag, offset) = (Stag(write.stag.0), TaggedOffset(address));
            let header = if is_whole { write_header(stag, offset, count) } else { None };
            self.gap(&run, header, trailer_length)?;
            self.stage(trailer_length)?;
            done += count;
        }
        Ok(())
    }

    /// Plans a message of one frame. A longer message is not worth a guess.
    fn message(&mut self, length: u32) -> Result<(), Full> {
        let ulpdu = u16::try_from(UNTAGGED_DDP_BYTES as u32 + length).map_err(|_| Full)?;
        self.stage(UNTAGGED_HEADER_BYTES + length as usize + trailer_length(ulpdu))
    }

    /// Plans the remainder of a read response that has begun. A response that has not begun is not
    /// planned: the peer may refuse the read, and a refusal must leave the destination unchanged.
    fn response(&mut self, input: &PlanInput<'_>, scatter: &SegmentList) -> Result<(), Full> {
        let directory = &input.directory;
        let mut done = input.read_done;
        if done == 0 {
            return Ok(());
        }
        let length = u32::try_from(scatter.length()).map_err(|_| Full)?;
        while done < length {
            let count = (length - done).min(input.habits.payload_max);
            self.stage(TAGGED_HEADER_BYTES)?;
            self.runs(count, |ahead| {
                directory.local(scatter.as_slice(), done + ahead, count - ahead).ok()
            })?;
            self.stage(tagged_trailer(count))?;
            done += count;
        }
        Ok(())
    }

    /// Plans bytes that go through the staging buffer.
    fn stage(&mut self, count: usize) -> Result<(), Full> {
        if self.at + count > STAGED_MAX {
            return Err(Full);
        }
        self.at += count;
        Ok(())
    }

    /// Plans `length` bytes that go directly to the memory that `run` finds for each offset.
    fn runs<'r>(&mut self, length: u32, run: impl Fn(u32) -> Option<Run<'r>>) -> Result<(), Full> {
        let mut ahead = 0;
        while ahead < length {
            // Bytes without a known destination are handled when their header has arrived.
            let found = run(ahead).ok_or(Full)?;
            self.gap(&found, None, 0)?;
            ahead += found.length as u32;
        }
        Ok(())
    }

    fn gap(
        &mut self,
        run: &Run<'_>,
        write: Option<WriteHeader>,
        trailer_length: usize,
    ) -> Result<(), Full> {
        self.gaps_left = self.gaps_left.checked_sub(1).ok_or(Full)?;
        if self.plan.wanted >= TURN_BYTES_MAX || self.at < self.named {
            return Err(Full);
        }
        let base: *mut libc::c_void = run.memory.pointer(run.offset, run.length).cast();
        self.claim(base as usize..base as usize + run.length)?;
        self.name_staged();
        self.plan.vector.push(libc::iovec { iov_base: base, iov_len: run.length });
        self.plan.wanted += run.length;
        let Run { key, offset, length, .. } = *run;
        self.plan.gaps.push(Gap { at: self.at, key, offset, length, write, trailer_length });
        Ok(())
    }

    /// Checks that a gap overlaps no other gap. If one call stored two ranges of the stream at the
    /// same address, the first would be lost, which is fatal if the guess was wrong. The announced
    /// writes may overlap, and so may the writes that actually arrive.
    fn claim(&mut self, range: Range<usize>) -> Result<(), Full> {
        let span = &mut self.plan.span;
        if self.plan.gaps.is_empty() {
            *span = range;
            return Ok(());
        }
        // Usually the gaps are in ascending order, and no search is needed.
        let is_taken = overlap(&range, span)
            && self.plan.vector.iter().any(|piece| {
                let start = piece.iov_base as usize;
                overlap(&range, &(start..start + piece.iov_len))
            });
        if is_taken {
            return Err(Full);
        }
        *span = span.start.min(range.start)..span.end.max(range.end);
        Ok(())
    }

    /// Adds the staged bytes up to this position to the vector.
    fn name_staged(&mut self) {
        let piece = &mut self.staging[self.named..self.at];
        if !piece.is_empty() {
            let base = piece.as_mut_ptr().cast();
            self.plan.vector.push(libc::iovec { iov_base: base, iov_len: piece.len() });
            self.plan.wanted += piece.len();
            self.named = self.at;
        }
    }

    /// Adds staging room of `room` bytes, but at least one, at the end. A call that returns fewer
    /// bytes than requested then shows that the socket is empty.
    fn finish(mut self, room: usize) {
        self.at = (self.at.max(self.named) + room).min(self.staging.len());
        self.name_staged();
    }
}

/// Returns the staging room in bytes for data that nothing predicts, after payload of this length.
/// The room is large if many short frames would fill it. It is small if it would receive payload
/// that could be placed without a copy once its header is known.
fn room_before(payload_length: u64) -> usize {
    if payload_length < LONG_BYTES_MIN { ROOM_UNEXPECTED } else { ROOM_AFTER }
}

/// Returns true if two ranges of addresses overlap.
pub(super) fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Returns the number of pad and CRC bytes after a tagged frame with this payload.
fn tagged_trailer(payload_length: u32) -> usize {
    // The MPA limit keeps a frame's payload below 64 KiB.
    trailer_length(TAGGED_DDP_BYTES as u16 + payload_length as u16)
}

/// The size of the staging buffer in bytes: room for one kept frame and another one after it.
pub(super) const STAGING_BYTES: usize = 132 << 10;
/// The number of bytes of the staging buffer that a plan may use.
const STAGED_MAX: usize = STAGING_BYTES - ROOM_UNEXPECTED;
/// The staging room in bytes after the planned bytes if no data is expected.
const ROOM_UNEXPECTED: usize = 64 << 10;
/// The staging room in bytes after the planned bytes if data is expected.
const ROOM_AFTER: usize = 4 << 10;
/// The payload length in bytes from which waiting for the header costs less than copying the
/// payload.
const LONG_BYTES_MIN: u64 = 16 << 10;
/// The number of messages of equal length after which the next message is expected to have that
/// length too.
const ALIKE_MIN: u32 = 4;
/// The length in bytes of the shortest message that is worth a gap instead of a copy.
const MESSAGE_GAP_MIN: u32 = 2 << 10;
/// The maximum number of gaps in one plan. Together with the staged bytes between them they fit in
/// one call's vector.
const GAPS_MAX: usize = 256;
const REACH_MIN: usize = 16;
// The kernel accepts at most this many entries.
const _: () = assert!(2 * GAPS_MAX + 2 <= 1024);

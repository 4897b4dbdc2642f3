//! One receive call for many frames: headers, trailers and messages into a staging
//! buffer, payload straight to where it is likely to belong.
//!
//! Invariant: a plan is a guess about the layout of the stream and nothing more. Each
//! gap (bytes that bypass the staging buffer) lies in memory that the peer may write
//! at the moment of the call, or that waits for its answer, and overlaps no other;
//! whether the guess was right
//! is judged afterwards from the headers, frame by frame, and what was misplaced is
//! gathered in stream order and placed again.

use std::ops::Range;

use dafs_iwarp::fpdu::{
    TAGGED_DDP_BYTES, TAGGED_HEADER_BYTES, UNTAGGED_DDP_BYTES, UNTAGGED_HEADER_BYTES,
    trailer_length,
};
use dafs_iwarp::receive::{WriteHeader, write_header};
use dafs_iwarp::transmit::payload_max;
use dafs_iwarp::{Receiver, Stag, Step, TaggedOffset};

use super::expect::Expectations;
use super::place::{Directory, Place, Run};
use super::receive::TURN_BYTES_MAX;
use super::segments::SegmentList;
use crate::{LocalKey, RemoteSegment};

/// Bytes that go past the staging buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// Bytes of the staging buffer that come before it in the stream.
    pub at: usize,
    /// The region, the place in its memory, and the length.
    pub key: LocalKey,
    pub offset: usize,
    pub length: usize,
    /// If the gap is the payload of a whole RDMA write: the frame's header, and the bytes
    /// of its trailer.
    pub write: Option<WriteHeader>,
    pub trailer_length: usize,
}

/// What a guess is made from.
pub(super) struct Knowledge<'a> {
    pub directory: Directory<'a>,
    pub receiver: &'a Receiver,
    /// The place of the frame that is half there.
    pub place: Option<&'a Place>,
    pub expectations: &'a Expectations,
    /// Bytes of the oldest open read that have come, this frame's included.
    pub read_done: u32,
    pub habits: &'a Habits,
}

/// What has been learned of the peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// Payload of its tagged frames that are not the last of their message.
    pub payload_max: u32,
    /// Gaps worth laying out: what has arrived at once lately, and more.
    pub reach: usize,
    /// Bytes of its last message, and how many before it were as long.
    message_length: u32,
    alike: u32,
}

/// A plan for one receive call. Reused, so that no call allocates.
#[derive(Default)]
pub(super) struct Plan {
    pub gaps: Vec<Gap>,
    /// The kernel's form of it.
    pub vector: Vec<libc::iovec>,
    /// Bytes asked for.
    pub wanted: usize,
    /// Addresses that all gaps lie between.
    pub span: Range<usize>,
}

/// A plan in the making.
struct Layout<'b> {
    plan: &'b mut Plan,
    staging: &'b mut [u8],
    /// Bytes of staging that the stream has filled up to here, or will have.
    at: usize,
    /// Bytes of staging already held by, or named in, the vector.
    named: usize,
    /// Gaps that may still be added.
    gaps_left: usize,
}

/// No room for more of the guess.
struct Full;

impl Habits {
    /// A guess from our own limit: peers on one path mostly have the same.
    pub fn new(mulpdu: u16) -> Self {
        let payload_max = payload_max(mulpdu, true);
        Self { payload_max, reach: REACH_MIN, message_length: 0, alike: 0 }
    }

    /// A plan has held for so many gaps.
    pub fn on_gaps(&mut self, count: usize) {
        self.reach = (2 * count).clamp(REACH_MIN, GAPS_MAX);
    }

    /// A whole message has come.
    #[inline]
    pub fn on_message(&mut self, length: u32) {
        self.alike = if length == self.message_length { self.alike.saturating_add(1) } else { 0 };
        self.message_length = length;
    }

    /// The length of the next message, where that is likely and worth a gap.
    fn next_message(&self) -> Option<u32> {
        let is_likely = self.alike >= ALIKE_MIN && self.message_length >= MESSAGE_GAP_MIN;
        is_likely.then_some(self.message_length)
    }
}

impl Plan {
    /// Lays one receive out behind the `kept` bytes that `staging` begins with.
    pub fn lay_out(&mut self, knowledge: Option<&Knowledge<'_>>, staging: &mut [u8], kept: usize) {
        self.gaps.clear();
        self.vector.clear();
        self.wanted = 0;
        self.span = 0..0;
        let mut layout = Layout { plan: self, staging, at: 0, named: kept, gaps_left: 0 };
        let room = match knowledge {
            Some(knowledge) if !knowledge.receiver.crc_in_use() => {
                layout.gaps_left = knowledge.habits.reach;
                match layout.guess(knowledge) {
                    Ok(room) => room,
                    Err(Full) if layout.plan.gaps.is_empty() => ROOM_UNTOLD,
                    // The next bytes are the trailer and header that come before a gap.
                    Err(Full) => 0,
                }
            }
            // Whole frames are gathered, and the longest must fit.
            Some(_) => layout.staging.len(),
            None => ROOM_UNTOLD,
        };
        layout.finish(room);
    }
}

impl Layout<'_> {
    /// The rest of the present frame, then the frames that are likely to follow. The room
    /// that is worth having behind them.
    fn guess(&mut self, knowledge: &Knowledge<'_>) -> Result<usize, Full> {
        let directory = &knowledge.directory;
        let mut room = ROOM_UNTOLD;
        let is_within = match knowledge.receiver.next_step() {
            Step::Header { .. } => false,
            Step::Trailer { bytes } => {
                self.at = bytes;
                true
            }
            Step::Payload { bytes } => {
                let Some(place) = knowledge.place.filter(|place| place.is_memory()) else {
                    return Ok(ROOM_UNTOLD);
                };
                self.runs(bytes, |ahead| place.run(directory, ahead).ok())?;
                self.stage(place.trailer_length)?;
                room = room_before(place.length());
                true
            }
            Step::Closed => return Ok(ROOM_UNTOLD),
        };
        let is_message = is_within && knowledge.place.is_some_and(Place::is_message);
        if is_message && !knowledge.expectations.awaits_message() {
            self.messages(knowledge, 1)?;
            return Ok(room);
        }
        let mut is_any = false;
        for group in knowledge.expectations.likely().skip(usize::from(is_message)) {
            is_any = true;
            if group.before > 0 {
                self.message(group.before)?;
            }
            for write in group.rest() {
                self.write(knowledge, &write)?;
            }
            self.message(group.message_length)?;
        }
        if is_any || is_message {
            return Ok(ROOM_BEHIND);
        }
        if let Some(scatter) = directory.reads.front() {
            self.response(knowledge, scatter)?;
            let next = if knowledge.read_done > 0 { directory.reads.get(1) } else { Some(scatter) };
            return Ok(next.map_or(room, |read| room_before(read.length())));
        }
        self.messages(knowledge, 0)?;
        Ok(room)
    }

    /// Messages like those before, into the posted receives behind the first `skip`: they
    /// are ours to write until they complete.
    fn messages(&mut self, knowledge: &Knowledge<'_>, skip: usize) -> Result<(), Full> {
        let Some(length) = knowledge.habits.next_message() else { return Ok(()) };
        let directory = &knowledge.directory;
        let ulpdu = u16::try_from(UNTAGGED_DDP_BYTES as u32 + length).map_err(|_| Full)?;
        for receive in directory.receives.iter().skip(skip) {
            self.stage(UNTAGGED_HEADER_BYTES)?;
            let scatter = receive.scatter.as_slice();
            self.runs(length, |ahead| directory.local(scatter, ahead, length - ahead).ok())?;
            self.stage(trailer_length(ulpdu))?;
        }
        Ok(())
    }

    /// The frames of an RDMA write that the application foretold.
    fn write(&mut self, knowledge: &Knowledge<'_>, write: &RemoteSegment) -> Result<(), Full> {
        let mut done = 0;
        while done < write.length {
            let count = (write.length - done).min(knowledge.habits.payload_max);
            let address = write.address.wrapping_add(u64::from(done));
            let run = knowledge.directory.remote(write.stag, address, count).map_err(|_| Full)?;
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

    /// A message in one frame; longer ones are not worth a guess.
    fn message(&mut self, length: u32) -> Result<(), Full> {
        let ulpdu = u16::try_from(UNTAGGED_DDP_BYTES as u32 + length).map_err(|_| Full)?;
        self.stage(UNTAGGED_HEADER_BYTES + length as usize + trailer_length(ulpdu))
    }

    /// The rest of an answer that has begun. One that has not may be a refusal, and
    /// that must leave the sink as it is.
    fn response(&mut self, knowledge: &Knowledge<'_>, scatter: &SegmentList) -> Result<(), Full> {
        let directory = &knowledge.directory;
        let mut done = knowledge.read_done;
        if done == 0 {
            return Ok(());
        }
        let length = u32::try_from(scatter.length()).map_err(|_| Full)?;
        while done < length {
            let count = (length - done).min(knowledge.habits.payload_max);
            self.stage(TAGGED_HEADER_BYTES)?;
            self.runs(count, |ahead| {
                directory.local(scatter.as_slice(), done + ahead, count - ahead).ok()
            })?;
            self.stage(tagged_trailer(count))?;
            done += count;
        }
        Ok(())
    }

    /// Bytes that go through the staging buffer.
    fn stage(&mut self, count: usize) -> Result<(), Full> {
        if self.at + count > STAGED_MAX {
            return Err(Full);
        }
        self.at += count;
        Ok(())
    }

    /// `length` bytes that go straight to the runs that `run` finds for what is ahead.
    fn runs<'r>(&mut self, length: u32, run: impl Fn(u32) -> Option<Run<'r>>) -> Result<(), Full> {
        let mut ahead = 0;
        while ahead < length {
            // What cannot be placed will be judged when its header is there.
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

    /// Gaps must not overlap: where one call puts bytes twice, the first are lost, and if
    /// the guess was wrong they were the stream's. What is foretold may overlap, though,
    /// and so may what comes instead of it.
    fn claim(&mut self, range: Range<usize>) -> Result<(), Full> {
        let span = &mut self.plan.span;
        if self.plan.gaps.is_empty() {
            *span = range;
            return Ok(());
        }
        // Mostly one lies behind the other, and no search is needed.
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

    /// Puts the staged bytes up to here into the vector.
    fn name_staged(&mut self) {
        let piece = &mut self.staging[self.named..self.at];
        if !piece.is_empty() {
            let base = piece.as_mut_ptr().cast();
            self.plan.vector.push(libc::iovec { iov_base: base, iov_len: piece.len() });
            self.plan.wanted += piece.len();
            self.named = self.at;
        }
    }

    /// Room for what comes behind; never none, so that getting less than asked for tells
    /// that there is no more.
    fn finish(mut self, room: usize) {
        self.at = (self.at.max(self.named) + room).min(self.staging.len());
        self.name_staged();
    }
}

/// Room for what is not foretold, where so much payload at a time is likely: much where
/// it takes many short frames to fill it, little where payload would be copied that a look
/// at its header spares.
fn room_before(payload_length: u64) -> usize {
    if payload_length < LONG_BYTES_MIN { ROOM_UNTOLD } else { ROOM_BEHIND }
}

/// Whether two ranges of addresses have something in common.
pub(super) fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Bytes of pad and CRC behind a tagged frame with that payload.
fn tagged_trailer(payload_length: u32) -> usize {
    // A frame's payload is below 64 KiB by the MULPDU.
    trailer_length(TAGGED_DDP_BYTES as u16 + payload_length as u16)
}

/// Bytes of the staging buffer: a whole frame kept and another behind it.
pub(super) const STAGING_BYTES: usize = 132 << 10;
/// Of these, what a plan may use.
const STAGED_MAX: usize = STAGING_BYTES - ROOM_UNTOLD;
/// Room behind the plan when nothing is foretold, and when something is.
const ROOM_UNTOLD: usize = 64 << 10;
const ROOM_BEHIND: usize = 4 << 10;
/// Payload that is better waited for than copied.
const LONG_BYTES_MIN: u64 = 16 << 10;
/// Messages of one length after which the next is thought to be as long, and the shortest
/// that is not better copied.
const ALIKE_MIN: u32 = 4;
const MESSAGE_GAP_MIN: u32 = 2 << 10;
/// Gaps of one plan: with the staged bytes between them they fit one call's vector.
const GAPS_MAX: usize = 256;
const REACH_MIN: usize = 16;
/// The kernel takes at most this many pieces.
const _: () = assert!(2 * GAPS_MAX + 2 <= 1024);

//! One receive call for many frames: headers, trailers and messages into a staging
//! buffer, payload straight to where it is likely to belong.
//!
//! Invariant: a plan is a guess about the layout of the stream and nothing more. Each
//! gap (octets that bypass the staging buffer) lies in memory that the peer may write
//! at the moment of the call, or that waits for its answer, and overlaps no other;
//! whether the guess was right
//! is judged afterwards from the headers, frame by frame, and what was misplaced is
//! gathered in stream order and placed again.

use std::ops::Range;

use dafs_iwarp::fpdu::{
    TAGGED_DDP_OCTETS, TAGGED_HEADER_OCTETS, UNTAGGED_DDP_OCTETS, UNTAGGED_HEADER_OCTETS,
    trailer_length,
};
use dafs_iwarp::transmit::payload_max;
use dafs_iwarp::{Receiver, Step};

use super::expect::Expectations;
use super::place::{Directory, Place, Run};
use super::receive::TURN_BYTES_MAX;
use crate::{LocalKey, RemoteSegment};

/// Octets that go past the staging buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// Octets of the staging buffer that come before it in the stream.
    pub at: usize,
    /// The region, the place in its memory, and the length.
    pub key: LocalKey,
    pub offset: usize,
    pub length: usize,
}

/// What a guess is made from.
pub(super) struct Knowledge<'a> {
    pub directory: Directory<'a>,
    pub receiver: &'a Receiver,
    /// The place of the frame that is half there.
    pub place: Option<&'a Place>,
    pub expectations: &'a Expectations,
    /// Octets of the oldest open read that have come, this frame's included.
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
}

/// A plan for one receive call. Reused, so that no call allocates.
#[derive(Default)]
pub(super) struct Plan {
    pub gaps: Vec<Gap>,
    /// The kernel's form of it.
    pub vector: Vec<libc::iovec>,
    /// Octets asked for.
    pub wanted: usize,
    /// Addresses that all gaps lie between.
    pub span: Range<usize>,
}

/// A plan in the making.
struct Layout<'b> {
    plan: &'b mut Plan,
    staging: &'b mut [u8],
    /// Octets of staging that the stream has filled up to here, or will have.
    at: usize,
    /// Octets of staging already held by, or named in, the vector.
    named: usize,
    /// Gaps that may still be added.
    gaps_left: usize,
}

/// No room for more of the guess.
struct Full;

impl Habits {
    /// A guess from our own limit: peers on one path mostly have the same.
    pub fn new(mulpdu: u16) -> Self {
        Self { payload_max: payload_max(mulpdu, true), reach: REACH_MIN }
    }

    /// A plan has held for so many gaps.
    pub fn on_gaps(&mut self, count: usize) {
        self.reach = (2 * count).clamp(REACH_MIN, GAPS_MAX);
    }
}

impl Plan {
    /// Lays one receive out behind the `kept` octets that `staging` begins with.
    pub fn lay_out(&mut self, knowledge: Option<&Knowledge<'_>>, staging: &mut [u8], kept: usize) {
        self.gaps.clear();
        self.vector.clear();
        self.wanted = 0;
        self.span = 0..0;
        let mut layout = Layout { plan: self, staging, at: 0, named: kept, gaps_left: 0 };
        let complete = match knowledge {
            Some(knowledge) if !knowledge.receiver.crc_in_use() => {
                layout.gaps_left = knowledge.habits.reach;
                layout.guess(knowledge).is_ok()
            }
            _ => true,
        };
        layout.finish(knowledge, complete);
    }
}

impl Layout<'_> {
    /// The rest of the present frame, then the frames that are likely to follow.
    fn guess(&mut self, knowledge: &Knowledge<'_>) -> Result<(), Full> {
        let directory = &knowledge.directory;
        let is_within = match knowledge.receiver.next_step() {
            Step::Header { .. } => false,
            Step::Trailer { octets } => {
                self.at = octets;
                true
            }
            Step::Payload { octets } => {
                let Some(place) = knowledge.place.filter(|place| place.is_memory()) else {
                    return Ok(());
                };
                self.runs(octets, |ahead| place.run(directory, ahead).ok())?;
                self.stage(place.trailer_length)?;
                true
            }
            Step::Closed => return Ok(()),
        };
        let is_message = is_within && knowledge.place.is_some_and(Place::is_message);
        let awaits_message = knowledge.expectations.awaits_message();
        if is_message && !awaits_message {
            return Ok(());
        }
        let mut is_any = false;
        for group in knowledge.expectations.likely().skip(usize::from(is_message)) {
            is_any = true;
            for write in group.rest() {
                self.write(knowledge, &write)?;
            }
            self.message(group.message_length)?;
        }
        if is_any || is_message { Ok(()) } else { self.response(knowledge) }
    }

    /// The frames of an RDMA write that the application foretold.
    fn write(&mut self, knowledge: &Knowledge<'_>, write: &RemoteSegment) -> Result<(), Full> {
        let mut done = 0;
        while done < write.length {
            let count = (write.length - done).min(knowledge.habits.payload_max);
            self.stage(TAGGED_HEADER_OCTETS)?;
            self.runs(count, |ahead| {
                let address = write.address.wrapping_add(u64::from(done + ahead));
                knowledge.directory.remote(write.stag, address, count - ahead).ok()
            })?;
            self.stage(tagged_trailer(count))?;
            done += count;
        }
        Ok(())
    }

    /// A message in one frame; longer ones are not worth a guess.
    fn message(&mut self, length: u32) -> Result<(), Full> {
        let ulpdu = u16::try_from(UNTAGGED_DDP_OCTETS as u32 + length).map_err(|_| Full)?;
        self.stage(UNTAGGED_HEADER_OCTETS + length as usize + trailer_length(ulpdu))
    }

    /// The rest of an answer that has begun. One that has not may be a refusal, and
    /// that must leave the sink as it is.
    fn response(&mut self, knowledge: &Knowledge<'_>) -> Result<(), Full> {
        let directory = &knowledge.directory;
        let mut done = knowledge.read_done;
        let Some(scatter) = directory.reads.front().filter(|_| done > 0) else { return Ok(()) };
        let length = u32::try_from(scatter.length()).map_err(|_| Full)?;
        while done < length {
            let count = (length - done).min(knowledge.habits.payload_max);
            self.stage(TAGGED_HEADER_OCTETS)?;
            self.runs(count, |ahead| {
                directory.local(scatter.as_slice(), done + ahead, count - ahead).ok()
            })?;
            self.stage(tagged_trailer(count))?;
            done += count;
        }
        Ok(())
    }

    /// Octets that go through the staging buffer.
    fn stage(&mut self, count: usize) -> Result<(), Full> {
        if self.at + count > STAGED_MAX {
            return Err(Full);
        }
        self.at += count;
        Ok(())
    }

    /// `length` octets that go straight to the runs that `run` finds for what is ahead.
    fn runs<'r>(&mut self, length: u32, run: impl Fn(u32) -> Option<Run<'r>>) -> Result<(), Full> {
        let mut ahead = 0;
        while ahead < length {
            // What cannot be placed will be judged when its header is there.
            let found = run(ahead).ok_or(Full)?;
            self.gap(&found)?;
            ahead += found.length as u32;
        }
        Ok(())
    }

    fn gap(&mut self, run: &Run<'_>) -> Result<(), Full> {
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
        self.plan.gaps.push(Gap { at: self.at, key, offset, length });
        Ok(())
    }

    /// Gaps must not overlap: where one call puts octets twice, the first are lost, and if
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

    /// Puts the staged octets up to here into the vector.
    fn name_staged(&mut self) {
        let piece = &mut self.staging[self.named..self.at];
        if !piece.is_empty() {
            let base = piece.as_mut_ptr().cast();
            self.plan.vector.push(libc::iovec { iov_base: base, iov_len: piece.len() });
            self.plan.wanted += piece.len();
            self.named = self.at;
        }
    }

    /// Room for what comes behind. Much of it where nothing is foretold; little where
    /// more payload is likely, which must not be copied; never none, so that getting
    /// less than asked for tells that there is no more.
    fn finish(mut self, knowledge: Option<&Knowledge<'_>>, complete: bool) {
        let is_checked = knowledge.is_some_and(|knowledge| knowledge.receiver.crc_in_use());
        let room = match (self.plan.gaps.last(), complete) {
            // Whole frames are gathered, and the longest must fit.
            _ if is_checked => self.staging.len(),
            (None, _) => ROOM_UNTOLD,
            (Some(_), true) => ROOM_BEHIND,
            // The next octets are the trailer and header that come before a gap.
            (Some(_), false) => 0,
        };
        self.at = (self.at.max(self.named) + room).min(self.staging.len());
        self.name_staged();
    }
}

/// Whether two ranges of addresses have something in common.
pub(super) fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Octets of pad and CRC behind a tagged frame with that payload.
fn tagged_trailer(payload_length: u32) -> usize {
    // A frame's payload is below 64 KiB by the MULPDU.
    trailer_length(TAGGED_DDP_OCTETS as u16 + payload_length as u16)
}

/// Octets of the staging buffer: a whole frame kept and another behind it.
pub(super) const STAGING_BYTES: usize = 132 << 10;
/// Of these, what a plan may use.
const STAGED_MAX: usize = STAGING_BYTES - ROOM_UNTOLD;
/// Room behind the plan when nothing is foretold, and when something is.
const ROOM_UNTOLD: usize = 64 << 10;
const ROOM_BEHIND: usize = 4 << 10;
/// Gaps of one plan: with the staged octets between them they fit one call's vector.
const GAPS_MAX: usize = 256;
const REACH_MIN: usize = 16;
/// The kernel takes at most this many pieces.
const _: () = assert!(2 * GAPS_MAX + 2 <= 1024);

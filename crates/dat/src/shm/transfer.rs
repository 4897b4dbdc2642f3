//! Executes posted work.
//!
//! Invariants:
//!
//! - Work is executed in the order posted. Staged reads may overlap, but no other work starts
//!   before they end, so that completions keep that order too.
//! - A range is checked when it is posted and again when it is used, because its region may have
//!   been deregistered by then.

use std::collections::VecDeque;

use dafs_memory::Memory;

use super::delta::SHORT_BYTES_MAX;
use super::lane::Layout;
use super::remote::{self, Reach};
use super::ring::{FrameHeader, FrameKind};
use super::{
    BreakReason, CompletionStatus, Connection, Context, Gather, LocalSegment, Operation, PostError,
    RemoteSegment, SendOptions, Signal, no_rings,
};
use crate::region::RegionTable;
use crate::{Domain, Stag};

/// A posted receive. Nearly all receives have one segment, which needs no allocation.
#[derive(Debug)]
pub(super) struct Receive {
    pub cookie: u64,
    /// The number of bytes in all segments.
    pub room: u64,
    pub first: LocalSegment,
    pub rest: Box<[LocalSegment]>,
}

impl Receive {
    pub(super) fn segments(&self) -> impl Iterator<Item = &LocalSegment> {
        std::iter::once(&self.first).chain(self.rest.iter()).filter(|s| s.length > 0)
    }
}

/// Posted work that waits for `flush` or for space in the ring. The type has plain fields and no
/// enums with contents, because it is copied field by field, and the processor stalls on a load
/// that spans several recent stores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    cookie: u64,
    /// The peer's range. For a send, only the length is used.
    remote: RemoteSegment,
    /// The first segment of a transfer.
    first: LocalSegment,
    /// The number of bytes already put into the ring (staged writes).
    done: u32,
    /// The number of entries that this work has in the queue of pieces: for a send, all of its
    /// pieces; for a transfer, all but the first.
    pieces: u32,
    /// The STag that a send makes the peer invalidate; 0 for none.
    invalidate: u32,
    kind: WorkKind,
    signal: Signal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkKind {
    Send,
    Write,
    Read,
}

impl Work {
    #[inline]
    fn length(&self) -> u32 {
        self.remote.length
    }

    /// Returns the local segments of a transfer. `pieces` contains all segments but the first.
    #[inline]
    fn segments<'p>(
        &'p self,
        pieces: &'p VecDeque<Piece>,
    ) -> impl Iterator<Item = &'p LocalSegment> {
        let rest = pieces.iter().take(self.pieces as usize).filter_map(|piece| match piece {
            Piece::Segment(segment) => Some(segment),
            Piece::Inline { .. } => None,
        });
        std::iter::once(&self.first).chain(rest)
    }
}

/// One piece of a gather or scatter list.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    /// Bytes that the post has copied.
    Inline {
        start: usize,
        length: u32,
    },
    Segment(LocalSegment),
}

/// An RDMA read by this side whose response comes through the ring.
#[derive(Debug)]
pub(super) struct StagedRead {
    pub cookie: u64,
    pub scatter: Box<[LocalSegment]>,
    pub length: u32,
    pub done: u32,
}

/// An RDMA read by the peer whose response goes through the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub stag: Stag,
    pub address: u64,
    pub left: u32,
}

/// The result of executing one work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// The ring is full, or a staged read must end first.
    Blocked,
}

impl Connection {
    pub(super) fn queue_receive(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        scatter: &[LocalSegment],
    ) -> Result<(), PostError> {
        if self.receives.len() >= self.config.receives_max as usize {
            return Err(PostError::QueueFull);
        }
        let mut room = 0;
        for segment in scatter {
            context.regions.local(context.domain, segment)?;
            room += u64::from(segment.length);
        }
        let (first, rest) = match scatter {
            [] => (EMPTY_SEGMENT, Box::default()),
            [first] => (*first, Box::default()),
            [first, rest @ ..] => (*first, rest.into()),
        };
        self.receives.push_back(Receive { cookie, room, first, rest });
        Ok(())
    }

    pub(super) fn queue_send(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        gather: &[Gather<'_>],
        options: SendOptions,
    ) -> Result<(), PostError> {
        self.check_post()?;
        if let [Gather::Bytes(message)] = gather
            && self.put_at_once(message, options.invalidate)
        {
            if options.signal == Signal::Always {
                let length = u32::try_from(message.len()).unwrap_or(0);
                context.complete(Operation::Send, cookie, CompletionStatus::Success, length);
            }
            return Ok(());
        }
        let mut length = 0u64;
        for element in gather {
            length += match element {
                Gather::Bytes(bytes) => bytes.len() as u64,
                Gather::Segment(segment) => {
                    context.regions.local(context.domain, segment)?;
                    u64::from(segment.length)
                }
            };
        }
        let length = u32::try_from(length)
            .ok()
            .filter(|length| *length <= self.message_bytes_max())
            .ok_or(PostError::TooLong)?;
        for element in gather {
            self.pieces.push_back(match element {
                Gather::Bytes(bytes) => {
                    let start = self.inline.len();
                    self.inline.extend_from_slice(bytes);
                    Piece::Inline { start, length: u32::try_from(bytes.len()).unwrap_or(0) }
                }
                Gather::Segment(segment) => Piece::Segment(*segment),
            });
        }
        self.work.push_back(Work {
            cookie,
            remote: RemoteSegment { stag: Stag(0), address: 0, length },
            first: EMPTY_SEGMENT,
            done: 0,
            pieces: u32::try_from(gather.len()).unwrap_or(u32::MAX),
            invalidate: options.invalidate.map_or(0, |stag| stag.0),
            kind: WorkKind::Send,
            signal: options.signal,
        });
        Ok(())
    }

    pub(super) fn queue_write(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
        signal: Signal,
    ) -> Result<(), PostError> {
        self.check_post()?;
        check_local(context.regions, context.domain, local, remote.length)?;
        for segment in local {
            // The copy happens at the flush. Prefetching the source meanwhile hides much of the
            // memory's latency when several writes are posted.
            if let Ok((memory, offset)) = context.regions.local(context.domain, segment) {
                memory.prefetch(offset, segment.length as usize);
            }
        }
        self.queue_transfer(WorkKind::Write, cookie, local, remote, signal);
        Ok(())
    }

    pub(super) fn queue_read(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
    ) -> Result<(), PostError> {
        self.check_post()?;
        if self.move_at_once(context, local, &remote, false) {
            let length = remote.length;
            context.complete(Operation::RdmaRead, cookie, CompletionStatus::Success, length);
            return Ok(());
        }
        check_local(context.regions, context.domain, local, remote.length)?;
        self.queue_transfer(WorkKind::Read, cookie, local, remote, Signal::Always);
        Ok(())
    }

    /// Copies into or out of a mapped region of the peer if no earlier work is queued. Returns
    /// false if nothing was copied. The caller must then post the work, and an error in the work
    /// breaks the connection.
    #[inline]
    pub(super) fn move_at_once(
        &mut self,
        context: &Context<'_>,
        local: &[LocalSegment],
        remote: &RemoteSegment,
        write: bool,
    ) -> bool {
        let Some(rings) = &self.rings else { return false };
        let is_known = rings.consumer.revision() == self.revision_seen && !self.is_behind;
        let fits = check_local(context.regions, context.domain, local, remote.length).is_ok();
        if !self.is_idle() || !is_known || !fits {
            return false;
        }
        let Ok(Reach::Mapped(theirs, mut at)) = self.peer_regions.reach(remote, write) else {
            return false;
        };
        for segment in local {
            let Ok((ours, offset)) = context.regions.local(context.domain, segment) else {
                return false;
            };
            let length = segment.length as usize;
            if write {
                Memory::copy_forward(ours, offset, theirs, at, length);
            } else {
                Memory::copy_forward(theirs, at, ours, offset, length);
            }
            at += length;
        }
        true
    }

    /// Returns true if no posted work is waiting.
    #[inline]
    fn is_idle(&self) -> bool {
        self.work.is_empty() && self.staged_reads.is_empty()
    }

    #[inline]
    fn queue_transfer(
        &mut self,
        kind: WorkKind,
        cookie: u64,
        local: &[LocalSegment],
        remote: RemoteSegment,
        signal: Signal,
    ) {
        let (first, rest) = local.split_first().unwrap_or((&EMPTY_SEGMENT, &[]));
        self.pieces.extend(rest.iter().map(|segment| Piece::Segment(*segment)));
        self.work.push_back(Work {
            cookie,
            remote,
            first: *first,
            done: 0,
            pieces: u32::try_from(rest.len()).unwrap_or(u32::MAX),
            invalidate: 0,
            kind,
            signal,
        });
    }

    /// Executes posted work as far as the ring has room. Wakes the peer if it sleeps and enough
    /// messages have been sent to wake it.
    pub(super) fn execute(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        if self.is_executing {
            return Ok(());
        }
        self.is_executing = true;
        let result = self.execute_all(context);
        self.is_executing = false;
        result
    }

    fn execute_all(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        self.answer_reads(context)?;
        let mut blocked = !self.answers.is_empty();
        while let Some(work) = self.work.front().copied() {
            let outcome = match work.kind {
                WorkKind::Send => self.run_send(context, &work),
                WorkKind::Write => self.run_write(context, &work),
                WorkKind::Read => self.run_read(context, &work),
            };
            match outcome {
                Ok(Outcome::Done) => self.finish(context, &work),
                Ok(Outcome::Blocked) => {
                    blocked = true;
                    break;
                }
                Err(reason) => {
                    self.discard_front(&work);
                    let operation = operation_of(work.kind);
                    context.complete(operation, work.cookie, CompletionStatus::Failed, 0);
                    return Err(reason);
                }
            }
        }
        if self.work.is_empty() {
            self.inline.clear();
        }
        let rings = self.rings.as_ref().ok_or_else(no_rings)?;
        if rings.producer.must_wake(blocked) {
            self.wake_peer();
        }
        Ok(())
    }

    /// Completes all outstanding work as flushed.
    pub(super) fn abandon(&mut self, context: &mut Context<'_>) {
        let flushed = CompletionStatus::Flushed;
        for read in self.staged_reads.drain(..) {
            context.complete(Operation::RdmaRead, read.cookie, flushed, 0);
        }
        for work in self.work.drain(..) {
            context.complete(operation_of(work.kind), work.cookie, flushed, 0);
        }
        for receive in self.receives.drain(..) {
            context.complete(Operation::Receive, receive.cookie, flushed, 0);
        }
        self.pieces.clear();
        self.inline.clear();
        self.answers.clear();
    }

    // ---- outbound -----------------------------------------------------------------

    fn check_post(&self) -> Result<(), PostError> {
        if !self.is_open() {
            return Err(PostError::NotConnected);
        }
        if self.work.len() + self.staged_reads.len() >= self.config.work_max as usize {
            return Err(PostError::QueueFull);
        }
        Ok(())
    }

    fn message_bytes_max(&self) -> u32 {
        let ring = self.rings.as_ref().map_or(0, |rings| {
            Layout::body_bytes_max((rings.memory.length() - Layout::total_bytes(0)) / 2)
        });
        ring.min(self.config.message_bytes_max)
    }

    /// Writes a short message directly into the ring if no earlier work is queued.
    #[inline]
    fn put_at_once(&mut self, message: &[u8], invalidate: Option<Stag>) -> bool {
        let is_short = message.len() <= SHORT_BYTES_MAX.min(self.config.message_bytes_max as usize);
        let may_pass = is_short && self.is_idle();
        let word = invalidate.map_or(0, |stag| stag.0);
        may_pass && self.rings.as_mut().is_some_and(|rings| rings.producer.put(message, word))
    }

    #[inline]
    fn run_send(&mut self, context: &Context<'_>, work: &Work) -> Result<Outcome, BreakReason> {
        if !self.staged_reads.is_empty() {
            return Ok(Outcome::Blocked);
        }
        let rings = self.rings.as_mut().ok_or_else(no_rings)?;
        let length = work.length();
        let reserved = rings.producer.reserve_or_block(length);
        let Some(mut at) = reserved else { return Ok(Outcome::Blocked) };
        if let (1, Some(Piece::Inline { start, length })) = (work.pieces, self.pieces.front())
            && *length as usize <= SHORT_BYTES_MAX
        {
            let message = &self.inline[*start..*start + *length as usize];
            let is_put = rings.producer.put(message, work.invalidate);
            return Ok(if is_put { Outcome::Done } else { Outcome::Blocked });
        }
        for piece in self.pieces.iter().take(work.pieces as usize) {
            match piece {
                Piece::Inline { start, length } => {
                    let bytes = &self.inline[*start..*start + *length as usize];
                    rings.memory.write(at, bytes);
                    at += bytes.len();
                }
                Piece::Segment(segment) => {
                    let (memory, offset) = local(context, segment)?;
                    let length = segment.length as usize;
                    Memory::copy(memory, offset, &rings.memory, at, length);
                    at += length;
                }
            }
        }
        rings.producer.commit(FrameHeader { kind: FrameKind::Send, length, word: work.invalidate });
        Ok(Outcome::Done)
    }

    fn run_write(
        &mut self,
        context: &mut Context<'_>,
        work: &Work,
    ) -> Result<Outcome, BreakReason> {
        let remote = &work.remote;
        if !self.staged_reads.is_empty() {
            return Ok(Outcome::Blocked);
        }
        if remote.length == 0 {
            return Ok(Outcome::Done);
        }
        if !self.refresh_regions(context, remote.stag)? {
            return Ok(Outcome::Blocked);
        }
        let reach = self.peer_regions.reach(remote, true).map_err(BreakReason::RemoteAccess)?;
        if matches!(reach, Reach::Staged) {
            return self.stage_write(context, work);
        }
        // If more work follows, an early wakeup gains nothing.
        let is_last = self.work.len() == 2 && self.work[1].kind == WorkKind::Send;
        let early = (remote.length as usize).checked_sub(EARLY_BYTES).filter(|_| is_last);
        let mut done = 0;
        for segment in work.segments(&self.pieces) {
            let (memory, offset) = local(context, segment)?;
            let length = segment.length as usize;
            match &reach {
                Reach::Mapped(target, at) => {
                    let to = *at + done;
                    let here = early.filter(|early| (done..done + length).contains(early));
                    let first = here.map_or(0, |early| early - done);
                    Memory::copy_forward(memory, offset, target, to, first);
                    if here.is_some() {
                        self.rings.as_ref().ok_or_else(no_rings)?.wake_peer_early();
                    }
                    Memory::copy_forward(
                        memory,
                        offset + first,
                        target,
                        to + first,
                        length - first,
                    );
                }
                Reach::Process(pid) => {
                    let address = remote.address + done as u64;
                    remote::copy_process(*pid, memory, offset, address, length, true)
                        .map_err(BreakReason::RemoteAccess)?;
                }
                Reach::Staged => {}
            }
            done += length;
        }
        Ok(Outcome::Done)
    }

    fn run_read(&mut self, context: &mut Context<'_>, work: &Work) -> Result<Outcome, BreakReason> {
        let remote = &work.remote;
        if remote.length == 0 && self.staged_reads.is_empty() {
            return Ok(Outcome::Done);
        }
        if !self.refresh_regions(context, remote.stag)? {
            return Ok(Outcome::Blocked);
        }
        let reach = self.peer_regions.reach(remote, false).map_err(BreakReason::RemoteAccess)?;
        if matches!(reach, Reach::Staged) {
            return self.request_read(work);
        }
        let mut done = 0;
        for segment in work.segments(&self.pieces) {
            let (memory, offset) = local(context, segment)?;
            let length = segment.length as usize;
            match &reach {
                Reach::Mapped(source, at) => {
                    Memory::copy_forward(source, *at + done, memory, offset, length);
                }
                Reach::Process(pid) => {
                    let address = remote.address + done as u64;
                    remote::copy_process(*pid, memory, offset, address, length, false)
                        .map_err(BreakReason::RemoteAccess)?;
                }
                Reach::Staged => {}
            }
            done += length;
        }
        Ok(Outcome::Done)
    }

    /// Reads control packets if the peer may have exposed or withdrawn a region since they were
    /// last read. Returns false if there are more packets than one turn reads; the work then waits
    /// until they are read.
    #[inline]
    fn refresh_regions(
        &mut self,
        context: &mut Context<'_>,
        stag: Stag,
    ) -> Result<bool, BreakReason> {
        let rings = self.rings.as_ref().ok_or_else(no_rings)?;
        let revision = rings.consumer.revision();
        if revision == self.revision_seen && !self.is_behind && self.peer_regions.knows(stag) {
            return Ok(true);
        }
        self.revision_seen = revision;
        self.is_behind = !self.drain_control(context)?;
        Ok(!self.is_behind)
    }

    fn stage_write(&mut self, context: &Context<'_>, work: &Work) -> Result<Outcome, BreakReason> {
        let remote = &work.remote;
        let mut done = work.done;
        while done < remote.length {
            let count = (remote.length - done).min(STAGED_BYTES_MAX);
            let rings = self.rings.as_mut().ok_or_else(no_rings)?;
            let body = count + 8;
            let reserved = rings.producer.reserve_or_block(body);
            let Some(at) = reserved else {
                if let Some(front) = self.work.front_mut() {
                    front.done = done;
                }
                return Ok(Outcome::Blocked);
            };
            rings.memory.write(at, &(remote.address + u64::from(done)).to_le_bytes());
            let segments = work.segments(&self.pieces);
            let target = (&rings.memory, at + 8);
            copy_window(context, segments, u64::from(done), count, target)?;
            rings.producer.commit(FrameHeader {
                kind: FrameKind::Write,
                length: body,
                word: remote.stag.0,
            });
            done += count;
        }
        Ok(Outcome::Done)
    }

    fn request_read(&mut self, work: &Work) -> Result<Outcome, BreakReason> {
        let remote = &work.remote;
        if self.staged_reads.len() >= usize::from(self.config.read_depth.max(1)) {
            return Ok(Outcome::Blocked);
        }
        let rings = self.rings.as_mut().ok_or_else(no_rings)?;
        let reserved = rings.producer.reserve_or_block(12);
        let Some(at) = reserved else { return Ok(Outcome::Blocked) };
        rings.memory.write(at, &remote.address.to_le_bytes());
        rings.memory.write(at + 8, &remote.length.to_le_bytes());
        rings.producer.commit(FrameHeader {
            kind: FrameKind::ReadRequest,
            length: 12,
            word: remote.stag.0,
        });
        let scatter = work.segments(&self.pieces).copied().collect();
        let (cookie, length) = (work.cookie, work.length());
        self.staged_reads.push_back(StagedRead { cookie, scatter, length, done: 0 });
        Ok(Outcome::Done)
    }

    fn answer_reads(&mut self, context: &Context<'_>) -> Result<(), BreakReason> {
        while let Some(answer) = self.answers.front_mut() {
            let rings = self.rings.as_mut().ok_or_else(no_rings)?;
            let count = answer.left.min(STAGED_BYTES_MAX);
            let reserved = rings.producer.reserve_or_block(count);
            let Some(at) = reserved else { return Ok(()) };
            let (memory, offset) = context
                .regions
                .remote(context.domain, answer.stag, answer.address, count, false)
                .map_err(refuse_peer)?;
            Memory::copy(memory, offset, &rings.memory, at, count as usize);
            let kind = FrameKind::ReadResponse;
            rings.producer.commit(FrameHeader { kind, length: count, word: answer.stag.0 });
            answer.left -= count;
            answer.address += u64::from(count);
            if answer.left == 0 {
                self.answers.pop_front();
            }
        }
        Ok(())
    }

    /// Reports executed work. A read through the ring is reported later, when its response has
    /// arrived.
    fn finish(&mut self, context: &mut Context<'_>, work: &Work) {
        self.discard_front(work);
        if work.kind == WorkKind::Read && !self.staged_reads.is_empty() {
            return;
        }
        if work.signal == Signal::Always {
            let (operation, length) = (operation_of(work.kind), work.length());
            context.complete(operation, work.cookie, CompletionStatus::Success, length);
        }
    }

    fn discard_front(&mut self, work: &Work) {
        self.work.pop_front();
        if work.pieces > 0 {
            self.pieces.drain(..work.pieces as usize);
        }
    }
}

/// Copies the bytes `skip..skip + count` of the segments into shared memory.
fn copy_window<'p>(
    context: &Context<'_>,
    segments: impl Iterator<Item = &'p LocalSegment>,
    mut skip: u64,
    count: u32,
    (target, mut at): (&Memory, usize),
) -> Result<(), BreakReason> {
    let mut left = count;
    for segment in segments {
        let length = u64::from(segment.length);
        if skip >= length {
            skip -= length;
            continue;
        }
        let part = u32::try_from(length - skip).unwrap_or(u32::MAX).min(left);
        let (memory, offset) = local(context, segment)?;
        let from = offset + usize::try_from(skip).unwrap_or(0);
        Memory::copy(memory, from, target, at, part as usize);
        at += part as usize;
        left -= part;
        skip = 0;
        if left == 0 {
            break;
        }
    }
    Ok(())
}

fn check_local(
    regions: &RegionTable,
    domain: Domain,
    local: &[LocalSegment],
    length: u32,
) -> Result<(), PostError> {
    let mut total = 0u64;
    for segment in local {
        regions.local(domain, segment)?;
        total += u64::from(segment.length);
    }
    if total == u64::from(length) { Ok(()) } else { Err(PostError::BadSegment) }
}

#[inline]
pub(super) fn local<'c>(
    context: &'c Context<'_>,
    segment: &LocalSegment,
) -> Result<(&'c Memory, usize), BreakReason> {
    context.regions.local(context.domain, segment).map_err(|_| {
        BreakReason::System("a region was deregistered while posted work used it".into())
    })
}

fn operation_of(kind: WorkKind) -> Operation {
    match kind {
        WorkKind::Send => Operation::Send,
        WorkKind::Write => Operation::RdmaWrite,
        WorkKind::Read => Operation::RdmaRead,
    }
}

pub(super) fn refuse_peer(error: crate::region::AccessError) -> BreakReason {
    BreakReason::PeerViolation(format!("remote access refused: {error:?}"))
}

/// The number of bytes that a long write still has to copy when this side wakes a peer that sleeps
/// until the next message. Copying that many bytes takes about as long as the wakeup.
const EARLY_BYTES: usize = 64 << 10;
const EMPTY_SEGMENT: LocalSegment = LocalSegment { key: crate::LocalKey(0), offset: 0, length: 0 };
/// The maximum number of payload bytes in one frame of a staged transfer. Several such frames fit
/// in the smallest ring.
const STAGED_BYTES_MAX: u32 = 4000;

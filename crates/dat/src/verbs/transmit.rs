//! Converts posted work to requests for the device.
//!
//! Invariant: `work` contains posted work, oldest first, until it is reported. The first `posted`
//! tasks have been posted to the device. The number of a task is `first` plus its index. The memory
//! of a task stays registered until the task is removed: the region table, `staged` or `_sink`
//! keeps it.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Arc;

use dafs_memory::Memory;

use super::queues::{BATCH, Request, SGE_MAX};
use super::raw::{self, Sge, access, opcode, send_flag};
use super::staging::Staged;
use super::{Connection, ProtectionDomain, Registered, system};
use crate::connection::Context;
use crate::{
    BreakReason, CompletionStatus, Gather, LocalSegment, Operation, PostError, RemoteSegment,
    SendOptions, Signal,
};

/// The sending state of a connection.
#[derive(Default)]
pub(super) struct Outbound {
    pub work: VecDeque<Task>,
    /// The number of tasks that were posted to the device.
    posted: usize,
    /// The number of the first task in `work`.
    first: u64,
    /// The number of posted work requests; of the tasks of a request only the last one counts.
    count: usize,
    /// The number of requests after the latest one that reports success.
    silent: usize,
    /// The number of RDMA reads that are posted to the device and not complete.
    reads: usize,
    /// The maximum number of RDMA reads that may be posted to the device and incomplete. Further
    /// reads wait here, together with the work posted after them.
    pub reads_max: usize,
}

/// One request for the device, and the way to report it.
pub(super) struct Task {
    request: Request,
    pub cookie: u64,
    pub operation: Operation,
    /// The number of bytes of the whole work request.
    length: u32,
    signal: Signal,
    /// True for the last task of a work request. Work with more segments than a request supports
    /// has several tasks, and only the last one reports the work.
    pub is_last: bool,
    staged: Option<Staged>,
    is_done: bool,
    /// The registration of a read's target. Over iWARP, a read request reveals the STag of its
    /// target to the peer, so the target has a separate STag during the read.
    _sink: Option<Registered>,
}

/// The data needed to report posted work.
#[derive(Clone, Copy)]
struct Work {
    cookie: u64,
    operation: Operation,
    length: u32,
    signal: Signal,
}

impl Outbound {
    fn add(
        &mut self,
        work: Work,
        request: Request,
        staged: Option<Staged>,
        sink: Option<Registered>,
    ) {
        let Work { cookie, operation, length, signal } = work;
        let (is_last, is_done) = (false, false);
        self.work.push_back(Task {
            request,
            cookie,
            operation,
            length,
            signal,
            is_last,
            staged,
            is_done,
            _sink: sink,
        });
    }

    /// Returns the number of tasks, at most `room`, that may be posted to the device now.
    fn count_ready(&mut self, room: usize) -> usize {
        let end = self.work.len().min(self.posted + room);
        let (mut count, mut reads) = (0, self.reads);
        for task in self.work.range(self.posted..end) {
            let is_read = task.is_read();
            let waits = is_read && reads >= self.reads_max
                || task.request.flags & send_flag::FENCE != 0 && reads > 0;
            if waits {
                break;
            }
            reads += usize::from(is_read);
            count += 1;
        }
        self.reads = reads;
        count
    }

    /// Marks the most recent task as the last one of its work request.
    fn end_work(&mut self) {
        if let Some(last) = self.work.back_mut() {
            last.is_last = true;
            self.count += 1;
        }
    }

    /// Returns the index of the task with this number, if the device has the task.
    fn place_of(&self, number: u64) -> Option<usize> {
        let place = usize::try_from(number.wrapping_sub(self.first)).ok()?;
        (place < self.posted).then_some(place)
    }

    fn note_done_before(&mut self, place: usize) {
        for task in self.work.range_mut(..place) {
            task.is_done |= !task.is_read();
        }
    }
}

impl Task {
    /// Returns true if the device may complete this task after later ones.
    fn is_read(&self) -> bool {
        self.request.opcode == opcode::RDMA_READ
    }
}

/// The arguments of an RDMA transfer.
#[derive(Clone, Copy)]
pub(super) enum Transfer {
    Write(Signal),
    Read,
}

/// The memory segments of one request.
#[derive(Default)]
struct Pieces {
    sges: [Sge; SGE_MAX],
    count: u8,
}

impl Pieces {
    fn push(&mut self, sge: Sge) {
        self.sges[usize::from(self.count)] = sge;
        self.count += 1;
    }
}

impl Connection {
    /// Checks that more work may be posted.
    fn check_post(&self) -> Result<(), PostError> {
        if !self.is_open() {
            return Err(PostError::NotConnected);
        }
        if self.outbound.count >= self.config.work_max as usize {
            return Err(PostError::QueueFull);
        }
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
        let length = self.measure(context, gather)?;
        let (pieces, staged) = self.collect(context, gather)?;
        let mut flags = self.inline_flag(length);
        let (mut code, mut immediate, mut rkey) = (opcode::SEND, 0, 0);
        if let Some(stag) = options.invalidate {
            // Reads from the region must finish before the peer invalidates it.
            flags |= send_flag::FENCE;
            let is_iwarp = self.protection.as_ref().is_some_and(|p| p.device.is_iwarp);
            (code, immediate) = match is_iwarp {
                true => (opcode::SEND_WITH_INVALIDATE, stag.0),
                false => (opcode::SEND_WITH_IMMEDIATE, stag.0.to_be()),
            };
            if is_iwarp {
                // The system's provider for software iWARP supports no inline data in this request,
                // and expects the STag in the field where a write has it.
                flags &= !send_flag::INLINE;
                rkey = stag.0;
            }
        }
        let request = Request {
            opcode: code,
            flags,
            immediate,
            remote_address: 0,
            rkey,
            sge_count: pieces.count,
            sges: pieces.sges,
        };
        let signal = options.signal;
        let work = Work { cookie, operation: Operation::Send, length, signal };
        self.outbound.add(work, request, staged, None);
        self.outbound.end_work();
        Ok(())
    }

    /// Checks the pieces of a message and returns its length in bytes.
    fn measure(&self, context: &Context<'_>, gather: &[Gather<'_>]) -> Result<u32, PostError> {
        let mut total = 0u64;
        for piece in gather {
            total = total.saturating_add(match piece {
                Gather::Bytes(bytes) => bytes.len() as u64,
                Gather::Segment(segment) => {
                    context.regions.check(context.domain, segment)?;
                    u64::from(segment.length)
                }
            });
        }
        let fits = |length: &u32| *length <= self.config.message_bytes_max;
        u32::try_from(total).ok().filter(fits).ok_or(PostError::TooLong)
    }

    /// Returns the pieces of a message as segments for the device. Copies plain bytes, and copies
    /// everything if there are too many pieces.
    fn collect(
        &mut self,
        context: &mut Context<'_>,
        gather: &[Gather<'_>],
    ) -> Result<(Pieces, Option<Staged>), PostError> {
        let queues = self.lane.queues.as_ref().ok_or(PostError::NotConnected)?;
        let (mut count, mut plain, mut total, mut was_plain) = (0, 0, 0, false);
        for piece in gather {
            let (length, is_plain) = match piece {
                Gather::Bytes(bytes) => (bytes.len(), true),
                Gather::Segment(segment) => (segment.length as usize, false),
            };
            if length > 0 {
                count += usize::from(!(is_plain && was_plain));
                was_plain = is_plain;
                total += length;
                plain += if is_plain { length } else { 0 };
            }
        }
        let copies_all = count > queues.sge_max;
        let protection = &queues.protection;
        let staged = match if copies_all { total } else { plain } {
            0 => None,
            bytes => Some(self.staging.take(protection, bytes).map_err(unregistered)?),
        };
        let mut filling = Filling { pieces: Pieces::default(), staged, done: 0, begun: 0 };
        for piece in gather {
            let outcome = match piece {
                Gather::Bytes(bytes) => {
                    filling.copy(&self.staging, |memory, at| memory.write(at, bytes), bytes.len());
                    Ok(())
                }
                Gather::Segment(segment) if segment.length == 0 => Ok(()),
                Gather::Segment(segment) if copies_all => {
                    let length = segment.length as usize;
                    context.regions.local(context.domain, segment).map(|(source, offset)| {
                        let copy =
                            |memory: &Memory, at| Memory::copy(source, offset, memory, at, length);
                        filling.copy(&self.staging, copy, length);
                    })
                }
                Gather::Segment(segment) => {
                    filling.end_copy(&self.staging);
                    let piece = context.regions.device_piece(protection, context.domain, segment);
                    piece.map(|sge| filling.pieces.push(sge))
                }
            };
            if let Err(error) = outcome {
                if let Some(staged) = staged {
                    self.staging.give_back(staged);
                }
                return Err(error);
            }
        }
        filling.end_copy(&self.staging);
        Ok((filling.pieces, staged))
    }

    pub(super) fn queue_transfer(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        kind: Transfer,
        remote: RemoteSegment,
    ) -> Result<(), PostError> {
        self.check_post()?;
        let mut total = 0u64;
        for segment in local {
            context.regions.check(context.domain, segment)?;
            total += u64::from(segment.length);
        }
        if total != u64::from(remote.length) {
            return Err(PostError::BadSegment);
        }
        let before = self.outbound.work.len();
        let added = self.add_tasks(context, cookie, local, kind, remote);
        if added.is_err() {
            self.outbound.work.truncate(before);
            return added;
        }
        self.outbound.end_work();
        Ok(())
    }

    /// Adds one task, or several if the number of segments requires it.
    fn add_tasks(
        &mut self,
        context: &mut Context<'_>,
        cookie: u64,
        local: &[LocalSegment],
        kind: Transfer,
        remote: RemoteSegment,
    ) -> Result<(), PostError> {
        let queues = self.lane.queues.as_ref().ok_or(PostError::NotConnected)?;
        let (protection, sge_max) = (Arc::clone(&queues.protection), queues.sge_max);
        let (code, operation, signal) = match kind {
            Transfer::Write(signal) => (opcode::RDMA_WRITE, Operation::RdmaWrite, signal),
            Transfer::Read => (opcode::RDMA_READ, Operation::RdmaRead, Signal::Always),
        };
        let work = Work { cookie, operation, length: remote.length, signal };
        let mut rest = local.iter().filter(|segment| segment.length > 0).peekable();
        let mut address = remote.address;
        if protection.device.is_iwarp && operation == Operation::RdmaRead {
            for segment in rest {
                for part in parts_of(segment, address) {
                    self.add_sunk_read(context, &protection, work, &part, remote, address)?;
                    address = address.wrapping_add(u64::from(part.length));
                }
            }
            if address == remote.address {
                // The kernel's software iWARP replies to a read of zero bytes with data. A write of
                // zero bytes makes the same checks without that error.
                let nothing = Pieces::default();
                let request = request(opcode::RDMA_WRITE, 0, remote, address, &nothing);
                self.outbound.add(work, request, None, None);
            }
            return Ok(());
        }
        loop {
            let (mut pieces, mut bytes) = (Pieces::default(), 0u32);
            while usize::from(pieces.count) < sge_max
                && let Some(segment) = rest.next()
            {
                let domain = context.domain;
                pieces.push(context.regions.device_piece(&protection, domain, segment)?);
                bytes += segment.length;
            }
            let is_write = operation == Operation::RdmaWrite;
            let flags = if is_write { self.inline_flag(bytes) } else { 0 };
            self.outbound.add(work, request(code, flags, remote, address, &pieces), None, None);
            address = address.wrapping_add(u64::from(bytes));
            if rest.peek().is_none() {
                return Ok(());
            }
        }
    }

    /// Adds a read over iWARP. Its request reveals the STag of its target to the peer, and that
    /// STag gives access to nothing else.
    fn add_sunk_read(
        &mut self,
        context: &Context<'_>,
        protection: &Arc<ProtectionDomain>,
        work: Work,
        part: &LocalSegment,
        remote: RemoteSegment,
        address: u64,
    ) -> Result<(), PostError> {
        let (memory, offset) = context.regions.local(context.domain, part)?;
        let rights = access::LOCAL_WRITE | access::REMOTE_WRITE;
        let sink = Registered::new(protection, memory, offset, part.length as usize, rights);
        let sink = sink.map_err(unregistered)?;
        let mut pieces = Pieces::default();
        let start = memory.address() + offset as u64;
        pieces.push(Sge { address: start, length: part.length, lkey: sink.lkey() });
        let request = request(opcode::RDMA_READ, 0, remote, address, &pieces);
        self.outbound.add(work, request, None, Some(sink));
        Ok(())
    }

    fn inline_flag(&self, length: u32) -> u32 {
        let most = self.lane.queues.as_ref().map_or(0, |queues| queues.inline_bytes_max);
        if length <= most && length > 0 { send_flag::INLINE } else { 0 }
    }

    /// Posts as many tasks as the device accepts.
    pub(super) fn push_out(&mut self) -> Result<(), BreakReason> {
        let Some(queues) = &mut self.lane.queues else { return Ok(()) };
        let out = &mut self.outbound;
        loop {
            let room = (queues.send_depth - out.posted).min(BATCH);
            let count = out.count_ready(room);
            if count == 0 {
                return Ok(());
            }
            // Some requests must report success in any case, so that their queue entries are
            // released.
            let silent_max = (queues.send_depth / 4).max(1);
            for task in out.work.range_mut(out.posted..out.posted + count) {
                let is_awaited = task.is_last && task.signal == Signal::Always || task.is_read();
                out.silent += 1;
                if is_awaited || out.silent >= silent_max {
                    task.request.flags |= send_flag::SIGNALED;
                    out.silent = 0;
                }
            }
            let number = out.first + out.posted as u64;
            let tasks = out.work.range(out.posted..out.posted + count);
            let requests = (number..).zip(tasks.map(|task| &task.request));
            out.posted += queues.post(requests).map_err(system)?;
        }
    }

    /// Records that the device has completed the task with this number. All earlier tasks are
    /// complete too, except reads: over iWARP a read may take longer than work that was posted
    /// after it.
    pub(super) fn on_sent(&mut self, context: &mut Context<'_>, number: u64) {
        let out = &mut self.outbound;
        match out.place_of(number) {
            Some(place) => {
                out.work[place].is_done = true;
                out.note_done_before(place);
            }
            // The completion is that of the final empty write, which is not posted work.
            None => out.note_done_before(out.posted),
        }
        while self.outbound.posted > 0 && self.outbound.work.front().is_some_and(|t| t.is_done) {
            self.end_first(context, CompletionStatus::Success);
        }
    }

    /// Handles a task that broke the connection. Incomplete reads before it are flushed with the
    /// other work.
    pub(super) fn on_send_failed(&mut self, context: &mut Context<'_>, number: u64) {
        let Some(place) = self.outbound.place_of(number) else { return };
        self.outbound.note_done_before(place);
        for _ in 0..place {
            let is_done = self.outbound.work.front().is_some_and(|task| task.is_done);
            let status =
                if is_done { CompletionStatus::Success } else { CompletionStatus::Flushed };
            self.end_first(context, status);
        }
        // The last task of the same work request reports the failure.
        let mut is_over = false;
        while !is_over {
            is_over = self.outbound.work.front().is_none_or(|task| task.is_last);
            self.end_first(context, CompletionStatus::Failed);
        }
    }

    fn end_first(&mut self, context: &mut Context<'_>, status: CompletionStatus) {
        let Some(task) = self.outbound.work.pop_front() else { return };
        self.outbound.posted = self.outbound.posted.saturating_sub(1);
        self.outbound.first += 1;
        if task.is_read() {
            self.outbound.reads = self.outbound.reads.saturating_sub(1);
        }
        if let Some(staged) = task.staged {
            self.staging.give_back(staged);
        }
        if !task.is_last {
            return;
        }
        self.outbound.count -= 1;
        if task.signal == Signal::Always || status != CompletionStatus::Success {
            context.complete(task.operation, task.cookie, status, task.length);
        }
    }

    /// Returns true if the device may still have work of this connection.
    pub(super) fn has_posted(&self) -> bool {
        self.outbound.posted > 0
    }

    /// Posts an empty write, whose completion shows that all earlier posted work has reached the
    /// peer.
    pub(super) fn post_last(&mut self) -> Result<(), BreakReason> {
        let Some(queues) = &mut self.lane.queues else { return Ok(()) };
        if self.outbound.posted >= queues.send_depth {
            return Ok(());
        }
        let nothing = RemoteSegment { stag: crate::Stag(0), address: 0, length: 0 };
        let flags = send_flag::SIGNALED;
        let last = request(opcode::RDMA_WRITE, flags, nothing, 0, &Pieces::default());
        let number = self.outbound.first + self.outbound.posted as u64;
        queues.post(std::iter::once((number, &last))).map(|_| ()).map_err(system)
    }
}

/// The segments of a message that is being prepared.
struct Filling {
    pieces: Pieces,
    staged: Option<Staged>,
    /// The number of bytes that were copied into `staged`.
    done: usize,
    /// The number of copied bytes that a segment in `pieces` covers.
    begun: usize,
}

impl Filling {
    fn copy(&mut self, staging: &super::Staging, copy: impl FnOnce(&Memory, usize), length: usize) {
        if let (Some(staged), 1..) = (self.staged, length) {
            let (memory, at) = staging.memory(staged);
            copy(memory, at + self.done);
            self.done += length;
        }
    }

    /// Creates a segment that covers the bytes copied since the previous segment was created.
    fn end_copy(&mut self, staging: &super::Staging) {
        let length = (self.done - self.begun) as u32;
        if let (Some(staged), 1..) = (self.staged, length) {
            self.pieces.push(staging.sge(staged, self.begun, length));
            self.begun = self.done;
        }
    }
}

/// Returns the parts in which a segment is read over iWARP. The kernel's software iWARP (6.1 to
/// 6.12, `siw_try_1seg`) sends wrong bytes if a response of up to 24 bytes spans two pages of its
/// memory, so a short segment is read page by page.
fn parts_of(segment: &LocalSegment, address: u64) -> impl Iterator<Item = LocalSegment> {
    let left = dafs_memory::PAGE_BYTES as u64 - address % dafs_memory::PAGE_BYTES as u64;
    let first = match u32::try_from(left) {
        Ok(left) if left < segment.length && segment.length <= SHORT_BYTES => left,
        _ => segment.length,
    };
    let (head, tail) = (first, segment.length - first);
    let behind =
        LocalSegment { offset: segment.offset + u64::from(head), length: tail, ..*segment };
    let parts = [LocalSegment { length: head, ..*segment }, behind];
    parts.into_iter().filter(|part| part.length > 0)
}

/// The number of bytes up to which a device may treat a segment as short.
const SHORT_BYTES: u32 = 64;

fn request(
    opcode: c_int,
    flags: u32,
    remote: RemoteSegment,
    remote_address: u64,
    pieces: &Pieces,
) -> Request {
    Request {
        opcode,
        flags,
        immediate: 0,
        remote_address,
        rkey: remote.stag.0,
        sge_count: pieces.count,
        sges: pieces.sges,
    }
}

pub(super) fn unregistered(error: std::io::Error) -> PostError {
    PostError::Registration(error.raw_os_error().unwrap_or(0))
}

const _: () = assert!(size_of::<raw::SendRequest>() == 128);

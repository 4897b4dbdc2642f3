//! Executes READ: finds bytes in the cache ([`dafs_files::reading`]) and transfers them into the
//! client's memory.
//!
//! Invariant: the transport reads only from pinned cache blocks. Every pin is released with the
//! completion of the transfer, even if the connection breaks.

use dafs_dat::{EndpointId, LocalSegment, RemoteSegment, Signal};
use dafs_filer::IoKind;
use dafs_files::io::check_range;
use dafs_files::outcome::NotDone;
use dafs_files::reading::{Found, Look, Reading};
use dafs_store::cache::{CachedFile, Pieces, Read, Span};
use dafs_types::Status;
use dafs_wire::messages::{InlineData, ReadDirect, ReadInline, ReadInlineResult};
use dafs_wire::{Checksum, DirectBuffer, Response};

use crate::data::{Step, take_buffers};
use crate::guests::{GuestRead, GuestResult};
use crate::moving::hits::{Wanted, Way};
use crate::moving::transfer::{Cookie, Cut, Loan, Staging, remote_of};
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::requests::answers::read_response;
use crate::task::{Buffers, ReadTarget, ReadTask, Task, Work};

impl Reactor<'_> {
    #[inline]
    pub(crate) fn read_direct(
        &mut self,
        answer: ReplyTo,
        request: &ReadDirect<'_>,
    ) -> Result<(), NotDone> {
        check_range(request.offset, request.length)?;
        let buffers = take_buffers(&request.buffers, request.length)?;
        self.fetch_ahead();
        let reach = (request.offset, u64::from(request.length));
        self.check_locks(request.state, &request.file, reach, IoKind::Read)?;
        let io = self.io_file(answer, request.state, &request.file, IoKind::Read)?;
        self.fetch_ahead();
        let has_checksums = self.has_checksums(answer.endpoint);
        if let (Buffers::One(buffer), false) = (&buffers, has_checksums) {
            let (offset, length, way) = (request.offset, request.length, Way::Read(request.hint));
            self.want(Wanted { answer, io, offset, length, buffer: *buffer, way });
            return Ok(());
        }
        let (target, length) = if has_checksums {
            // The server may return fewer bytes than the client requested (draft 6.5.27).
            let length = request.length.min(SEALED_READ_BYTES_MAX);
            (ReadTarget::Sealed(buffers, Vec::new()), length)
        } else {
            (ReadTarget::Direct(buffers), request.length)
        };
        let reading = Reading::new(io, request.offset, length, request.hint);
        self.start_read(answer, ReadTask { reading, target });
        Ok(())
    }

    pub(crate) fn read_inline(
        &mut self,
        answer: ReplyTo,
        request: &ReadInline,
    ) -> Result<(), NotDone> {
        check_range(request.offset, request.length)?;
        let room = self.response_bytes_max(answer.endpoint).saturating_sub(INLINE_READ_HEAD);
        if request.length as usize > room {
            return Err(Status::TooSmall.into());
        }
        let reach = (request.offset, u64::from(request.length));
        self.check_locks(request.state, &request.file, reach, IoKind::Read)?;
        let io = self.io_file(answer, request.state, &request.file, IoKind::Read)?;
        let reading = Reading::new(io, request.offset, request.length, request.hint);
        self.start_read(answer, ReadTask { reading, target: ReadTarget::Inline });
        Ok(())
    }

    /// Starts a read of a guest. The result of the read is added to
    /// [`crate::guests::GuestResults`].
    pub(crate) fn read_for_guest(&mut self, to: ReplyTo, reading: Reading) {
        self.start_read(to, ReadTask { reading, target: ReadTarget::Guest { looks: 0 } });
    }

    /// Starts a read and replies immediately if all bytes are cached. On a miss the read becomes a
    /// task.
    fn start_read(&mut self, answer: ReplyTo, read: ReadTask) {
        let mut pieces = Pieces::new();
        let found = self.look_on(&read, &mut pieces);
        self.start_read_with(answer, read, found, pieces);
    }

    /// Starts a read that has already been looked up in the cache.
    pub(crate) fn start_read_found(
        &mut self,
        answer: ReplyTo,
        read: ReadTask,
        found: Read,
        mut pieces: Pieces,
    ) {
        let mut ahead = Vec::new();
        let found = self.files().look_on(&read.reading, found, &mut pieces, &mut ahead);
        self.submit_fills(ahead);
        self.start_read_with(answer, read, found, pieces);
    }

    fn start_read_with(
        &mut self,
        answer: ReplyTo,
        mut read: ReadTask,
        found: Look,
        pieces: Pieces,
    ) {
        match self.go_on_reading(answer, &mut read, found, pieces) {
            Step::Done(outcome) => self.report(answer, outcome),
            Step::Read { length, is_end, checksum } => {
                self.reply(answer, &read_response(length, is_end, checksum));
            }
            Step::HandedOver(_) | Step::Silent => {}
            Step::Broken => self.report_broken(answer),
            Step::Wait(wait) => {
                let id = self.shared.tasks.reserve();
                self.park(id, Task::new(answer, Work::Read(read)), wait);
            }
            Step::Become(left) => self.start(Task::new(answer, Work::from(*left))),
        }
    }

    pub(crate) fn step_read(&mut self, answer: ReplyTo, task: &mut ReadTask) -> Step {
        let Reading { file, borrowed, .. } = task.reading;
        if self.is_barred(answer, file) {
            self.give_back(file, borrowed);
            return Step::failed(Status::Access);
        }
        let mut pieces = Pieces::new();
        let found = self.look_on(task, &mut pieces);
        self.go_on_reading(answer, task, found, pieces)
    }

    /// Looks up the remaining part of a read in the cache.
    fn look_on(&mut self, task: &ReadTask, pieces: &mut Pieces) -> Look {
        let mut ahead = Vec::new();
        let found = self.files().look(&task.reading, pieces, &mut ahead);
        self.submit_fills(ahead);
        found
    }

    fn go_on_reading(
        &mut self,
        answer: ReplyTo,
        task: &mut ReadTask,
        mut found: Look,
        mut pieces: Pieces,
    ) -> Step {
        loop {
            match found {
                Look::Hit(Found { length, is_end }) => {
                    task.reading.done += length;
                    if let ReadTarget::Sealed(_, bytes) = &mut task.target {
                        for piece in &pieces {
                            let offset = usize::try_from(piece.offset).unwrap_or(usize::MAX);
                            bytes.extend(
                                self.shared.cache.arena().to_vec(offset, piece.length as usize),
                            );
                        }
                        self.unpin_all(&mut pieces);
                    }
                    if task.reading.left() == 0 || is_end {
                        return self.finish_read(answer, task, &mut pieces, is_end);
                    }
                    if matches!(task.target, ReadTarget::Direct(_)) {
                        self.place(answer, task, length, &mut pieces);
                    } else if length == 0
                        && matches!(task.target, ReadTarget::Inline | ReadTarget::Guest { .. })
                    {
                        // The read consists of more pieces than a reply can gather. Returning fewer
                        // bytes is allowed, because inline reads are small and guests ask again.
                        return self.finish_read(answer, task, &mut pieces, false);
                    }
                }
                Look::Needs(need) => {
                    if let Some(wait) = self.meet(need) {
                        if let ReadTarget::Guest { looks } = &mut task.target {
                            *looks += 1;
                            if *looks > GUEST_LOOKS_MAX && !pieces.is_empty() {
                                // The cache has no room for the whole read, so that its first bytes
                                // are removed before its last bytes arrive.
                                return self.finish_read(answer, task, &mut pieces, false);
                            }
                        }
                        // An inline read starts over, so the pieces found so far are released.
                        if matches!(task.target, ReadTarget::Inline | ReadTarget::Guest { .. }) {
                            task.reading.done = 0;
                        }
                        self.unpin_all(&mut pieces);
                        return Step::Wait(wait);
                    }
                }
            }
            found = self.look_on(task, &mut pieces);
        }
    }

    pub(crate) fn read_ahead(&mut self, file: CachedFile) {
        let mut jobs = Vec::new();
        self.shared.cache.plan_ahead(file, &mut jobs);
        self.submit_fills(jobs);
    }

    #[inline]
    fn finish_read(
        &mut self,
        answer: ReplyTo,
        task: &ReadTask,
        pieces: &mut Pieces,
        is_end: bool,
    ) -> Step {
        let Reading { file, done: length, borrowed, .. } = task.reading;
        let step = match &task.target {
            ReadTarget::Direct(_) => {
                let here: u32 = pieces.iter().map(|piece| piece.length).sum();
                self.place(answer, task, here, pieces);
                Step::Read { length, is_end, checksum: Checksum::NONE }
            }
            ReadTarget::Sealed(buffers, bytes) => {
                match self.place_bytes(answer, bytes, buffers.as_slice()) {
                    Ok(checksum) => Step::Read { length, is_end, checksum },
                    Err(status) => Step::failed(status),
                }
            }
            ReadTarget::Guest { .. } => {
                let found = pieces.iter().map(|piece| (piece.offset, piece.length)).collect();
                let length: u32 = pieces.iter().map(|piece| piece.length).sum();
                let cookie = self.lend(answer, pieces, length);
                if let Some(results) = &mut self.own.guest_results {
                    let read = GuestRead { pieces: found, is_end, cookie };
                    results.push(answer, GuestResult::Read(read));
                }
                Step::Silent
            }
            ReadTarget::Inline => {
                let segments: arrayvec::ArrayVec<
                    LocalSegment,
                    { dafs_store::cache::PIECE_COUNT_MAX },
                > = pieces.iter().map(|p| self.own.arena.local(p.offset, p.length)).collect();
                let length: u32 = pieces.iter().map(|piece| piece.length).sum();
                let cookie = self.lend(answer, pieces, length);
                let data = InlineData::Follows { length };
                let result = ReadInlineResult { end_of_file: is_end, data };
                let response = Response::ReadInline(result);
                self.reply_with_data(answer, &response, &segments, cookie);
                Step::Silent
            }
        };
        self.give_back(file, borrowed);
        step
    }

    /// Posts RDMA writes from `pieces` into the client's buffers. The pieces contain the `length`
    /// bytes of the read that were found last.
    #[inline]
    fn place(&mut self, answer: ReplyTo, task: &ReadTask, length: u32, pieces: &mut Pieces) {
        let ReadTarget::Direct(buffers) = &task.target else { return };
        if length == 0 {
            return;
        }
        let start = task.reading.done - length;
        let spans: arrayvec::ArrayVec<Span, { dafs_store::cache::PIECE_COUNT_MAX }> =
            pieces.iter().map(|p| Span { offset: p.offset, length: p.length }).collect();
        let cookie = self.lend(answer, pieces, length);
        let mut cut = Cut::new(&spans, buffers.as_slice(), start, length);
        while let Some((local, remote)) = cut.next(&self.own.arena) {
            if !self.post_write(answer.endpoint, &local, remote, cookie, cut.is_empty()) {
                break;
            }
        }
    }

    /// Lends `length` bytes of pieces to the connection that carries the reply. Returns the cookie
    /// of the loan.
    #[inline]
    fn lend(&mut self, answer: ReplyTo, pieces: &mut Pieces, length: u32) -> Cookie {
        let Some(loan) = Loan::of(pieces) else { return Cookie::Silent };
        self.shared.loans.insert(answer.endpoint, loan, length)
    }

    pub(crate) fn unpin_all(&mut self, pieces: &mut Pieces) {
        for piece in pieces.drain(..) {
            self.shared.cache.unpin(piece.pin);
        }
    }

    // ---- into the client's memory -----------------------------------------------------

    /// Transfers bytes into the client's buffers, where they arrive before the reply. Returns the
    /// bytes' checksum, which the reply contains.
    pub(crate) fn place_bytes(
        &mut self,
        answer: ReplyTo,
        bytes: &[u8],
        buffers: &[DirectBuffer],
    ) -> Result<Checksum, Status> {
        let room: u64 = buffers.iter().map(|buffer| u64::from(buffer.length)).sum();
        if (bytes.len() as u64) > room {
            return Err(Status::TooSmall);
        }
        let checksum =
            if self.has_checksums(answer.endpoint) { Checksum::of(bytes) } else { Checksum::NONE };
        if bytes.is_empty() {
            return Ok(checksum);
        }
        let staging = Staging::of(&mut self.own.interface, bytes.into())?;
        let loan = Loan::Staging(staging.region.key);
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let cookie = self.shared.loans.insert(answer.endpoint, loan, length);
        let mut done = 0;
        for buffer in buffers {
            let left = bytes.len() - done;
            let length = u32::try_from(left).unwrap_or(u32::MAX).min(buffer.length);
            if length == 0 {
                continue;
            }
            let local = [staging.region.local(done as u64, length)];
            let remote = remote_of(buffer, length);
            done += length as usize;
            let is_last = done == bytes.len();
            if !self.post_write(answer.endpoint, &local, remote, cookie, is_last) || is_last {
                break;
            }
        }
        Ok(checksum)
    }

    /// Posts one RDMA write from the memory lent under `cookie`. The loan ends with the completion
    /// of the last write. Returns false if the connection is closing; the loan has then ended.
    pub(crate) fn post_write(
        &mut self,
        endpoint: EndpointId,
        local: &[LocalSegment],
        remote: RemoteSegment,
        cookie: Cookie,
        is_last: bool,
    ) -> bool {
        let (signal, word) = if is_last {
            (Signal::Always, cookie.pack())
        } else {
            (Signal::OnError, Cookie::Silent.pack())
        };
        let posted =
            self.own.interface.post_rdma_write(endpoint, word, local, remote, signal).is_ok();
        if !posted {
            self.give_up(endpoint);
            self.on_loan_done(cookie);
        }
        posted
    }
}

/// The maximum number of bytes that one read returns in a session with checksums.
const SEALED_READ_BYTES_MAX: u32 = 1 << 20;
/// The length in bytes of the header and fixed section of READ_INLINE's results.
const INLINE_READ_HEAD: usize = 48;
/// The number of times that a read of a guest starts over because bytes are not cached. After that,
/// it returns the bytes that are cached.
const GUEST_LOOKS_MAX: u32 = 8;

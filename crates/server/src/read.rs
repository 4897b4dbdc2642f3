//! READ: from the cache into the client's memory.
//!
//! Invariant: bytes are posted from pinned pieces only, and every pin comes back with
//! the completion of what was posted, whatever happens to the connection.

use dafs_dat::{EndpointId, LocalSegment, RemoteSegment};
use dafs_filer::IoKind;
use dafs_store::cache::{CachedFile, Piece, Pieces, Pin, Planned, Read, Span};
use dafs_types::Status;
use dafs_wire::messages::{InlineData, ReadDirect, ReadDirectResult, ReadInline, ReadInlineResult};
use dafs_wire::{Checksum, DirectBuffer, Response, TRANSFER_ANSWER_BYTES};

use crate::data::{Step, check_range, fills_are_few, take_buffers};
use crate::direct::remote_of;
use crate::jobs::Job;
use crate::reactor::Reactor;
use crate::task::{Answer, Buffers, ReadTarget, ReadTask, Task, Wait};
use crate::transfer::{Cookie, Cut, Loan};

/// A read whose bytes lie in one piece of the cache, on their way into the processor's
/// own while other requests are looked at. All that is needed to move and answer it is
/// made beforehand: what is stored right behind the copy of a page and loaded again in
/// other words waits until the page is through (docs/decisions/0003).
#[derive(Debug)]
pub(crate) struct Hit {
    endpoint: EndpointId,
    local: LocalSegment,
    remote: RemoteSegment,
    pin: Pin,
    answer: [u8; TRANSFER_ANSWER_BYTES],
    file: CachedFile,
    borrowed: bool,
}

impl Reactor {
    #[inline]
    pub(crate) fn read_direct(
        &mut self,
        answer: Answer,
        request: &ReadDirect<'_>,
    ) -> Result<(), Status> {
        check_range(request.offset, request.length)?;
        let buffers = take_buffers(&request.buffers, request.length)?;
        let io = self.io_file(answer, request.state, &request.file, IoKind::Read)?;
        let (target, length) = if self.has_checksums(answer.endpoint) {
            // A server may move less than was asked for (draft 6.5.27).
            let length = request.length.min(SEALED_READ_BYTES_MAX);
            (ReadTarget::Sealed(buffers, Vec::new()), length)
        } else {
            (ReadTarget::Direct(buffers), request.length)
        };
        self.start_read(
            answer,
            ReadTask {
                file: io.file,
                offset: request.offset,
                length,
                done: 0,
                hint: request.hint,
                target,
                borrowed: io.borrowed,
            },
        );
        Ok(())
    }

    pub(crate) fn read_inline(
        &mut self,
        answer: Answer,
        request: &ReadInline,
    ) -> Result<(), Status> {
        check_range(request.offset, request.length)?;
        let room = self.response_bytes_max(answer.endpoint).saturating_sub(INLINE_READ_HEAD);
        if request.length as usize > room {
            return Err(Status::TooSmall);
        }
        let io = self.io_file(answer, request.state, &request.file, IoKind::Read)?;
        self.start_read(
            answer,
            ReadTask {
                file: io.file,
                offset: request.offset,
                length: request.length,
                done: 0,
                hint: request.hint,
                target: ReadTarget::Inline,
                borrowed: io.borrowed,
            },
        );
        Ok(())
    }

    /// Reads what is cached at once; only a miss makes a task of it.
    #[inline]
    pub(crate) fn start_read(&mut self, answer: Answer, mut read: ReadTask) {
        match self.step_read(answer, &mut read) {
            Step::Done => {}
            Step::Wait(wait) => {
                let id = self.tasks.reserve();
                self.park(id, Task::Read(answer, read), wait);
            }
            Step::Become(task) => self.start(*task),
        }
    }

    #[inline]
    pub(crate) fn step_read(&mut self, answer: Answer, task: &mut ReadTask) -> Step {
        let mut pieces = Pieces::new();
        loop {
            let at = task.offset + u64::from(task.done);
            match self.cache.read(task.file, at, task.length - task.done, &mut pieces) {
                Read::Hit { length, is_end, wants_more } => {
                    if wants_more {
                        self.read_ahead(task.file);
                    }
                    task.done += length;
                    if let ReadTarget::Sealed(_, bytes) = &mut task.target {
                        for piece in &pieces {
                            let offset = usize::try_from(piece.offset).unwrap_or(usize::MAX);
                            bytes.extend(self.cache.arena().to_vec(offset, piece.length as usize));
                        }
                        self.unpin_all(&mut pieces);
                    }
                    if task.done == task.length || is_end {
                        return self.finish_read(answer, task, &mut pieces, is_end);
                    }
                    if matches!(task.target, ReadTarget::Direct(_)) {
                        self.place(answer, task, length, &mut pieces);
                    } else if length == 0 && matches!(task.target, ReadTarget::Inline) {
                        // More pieces than an answer gathers: such a read is too scattered
                        // to be inline, and small enough to be short.
                        return self.finish_read(answer, task, &mut pieces, false);
                    }
                }
                Read::Miss => {
                    if let Some(wait) = self.fill(task, at) {
                        // An inline answer starts over; what it found is let go.
                        if matches!(task.target, ReadTarget::Inline) {
                            task.done = 0;
                        }
                        self.unpin_all(&mut pieces);
                        return Step::Wait(wait);
                    }
                }
            }
        }
    }

    /// Plans what a miss needs. `None` if it is there now.
    fn fill(&mut self, task: &ReadTask, at: u64) -> Option<Wait> {
        let mut jobs = Vec::new();
        let left = task.length - task.done;
        match self.cache.plan_fill(task.file, at, left, task.hint, &mut jobs) {
            Planned::Ready => None,
            Planned::Wait => Some(Wait::File(task.file)),
            Planned::Pressure => {
                self.flush_due();
                Some(Wait::Room)
            }
            Planned::Jobs => {
                let quick = self.now >= self.slow_until && fills_are_few(&jobs);
                if !quick {
                    for job in jobs {
                        self.pool.submit(Job::Fill(job));
                    }
                    return Some(Wait::File(task.file));
                }
                self.run_fills(jobs);
                None
            }
        }
    }

    fn read_ahead(&mut self, file: CachedFile) {
        let mut jobs = Vec::new();
        self.cache.plan_ahead(file, &mut jobs);
        for job in jobs {
            self.pool.submit(Job::Fill(job));
        }
    }

    #[inline]
    fn finish_read(
        &mut self,
        answer: Answer,
        task: &ReadTask,
        pieces: &mut Pieces,
        is_end: bool,
    ) -> Step {
        match &task.target {
            ReadTarget::Direct(buffers) => {
                if let (Buffers::One(buffer), [piece]) = (buffers, &pieces[..])
                    && piece.length == task.done
                    && let Some(piece) = pieces.pop()
                {
                    self.keep_hit(answer, task, piece, buffer, is_end);
                    return Step::Done;
                }
                let here: u32 = pieces.iter().map(|piece| piece.length).sum();
                self.place(answer, task, here, pieces);
                self.reply_read(answer, task.done, is_end, Checksum::NONE);
            }
            ReadTarget::Sealed(buffers, bytes) => {
                match self.place_bytes(answer, bytes, buffers.as_slice()) {
                    Ok(checksum) => self.reply_read(answer, task.done, is_end, checksum),
                    Err(status) => self.fail(answer, status),
                }
            }
            ReadTarget::Inline => {
                let segments: arrayvec::ArrayVec<
                    LocalSegment,
                    { dafs_store::cache::PIECE_COUNT_MAX },
                > = pieces.iter().map(|p| self.arena.local(p.offset, p.length)).collect();
                let length: u32 = pieces.iter().map(|piece| piece.length).sum();
                let cookie =
                    Loan::of(pieces).map_or(Cookie::Silent, |loan| self.loans.insert(loan));
                let data = InlineData::Follows { length };
                let result = ReadInlineResult { end_of_file: is_end, data };
                let response = Response::ReadInline(result);
                self.reply_with_data(answer, &response, &segments, cookie);
            }
        }
        self.give_back(task.file, task.borrowed);
        Step::Done
    }

    /// Keeps a read that needs one copy until others have been looked at.
    #[inline]
    fn keep_hit(
        &mut self,
        answer: Answer,
        task: &ReadTask,
        piece: Piece,
        buffer: &DirectBuffer,
        is_end: bool,
    ) {
        let length = piece.length;
        let at = usize::try_from(piece.offset).unwrap_or(usize::MAX);
        self.cache.arena().prefetch(at, length as usize);
        let mut message = [0; TRANSFER_ANSWER_BYTES];
        let response = read_response(length, is_end, Checksum::NONE);
        if let Err(error) = self.encode(answer, Status::Ok, &response, &mut message) {
            self.cache.unpin(piece.pin);
            self.send_failure(answer, error.status());
            return self.give_back(task.file, task.borrowed);
        }
        self.hits.push(Hit {
            endpoint: answer.endpoint,
            local: self.arena.local(piece.offset, length),
            remote: remote_of(buffer, length),
            pin: piece.pin,
            answer: message,
            file: task.file,
            borrowed: task.borrowed,
        });
        if self.hits.len() == HITS_MAX {
            self.move_hits();
        }
    }

    /// Moves hits to the clients, and answers.
    #[inline]
    pub(crate) fn move_hits(&mut self) {
        let mut all = std::mem::take(&mut self.hits);
        for hit in all.drain(..) {
            let (endpoint, remote) = (hit.endpoint, hit.remote);
            let local = std::slice::from_ref(&hit.local);
            if self.interface.rdma_write_now(endpoint, local, remote) {
                self.cache.unpin(hit.pin);
            } else {
                let cookie = self.loans.insert(Loan::Pin(hit.pin));
                self.post_write(endpoint, local, remote, cookie, true);
            }
            self.send(endpoint, &hit.answer);
            self.give_back(hit.file, hit.borrowed);
        }
        self.hits = all;
    }

    /// Posts RDMA writes of the pieces, which are the last `length` octets done so far,
    /// into the client's buffers.
    #[inline]
    fn place(&mut self, answer: Answer, task: &ReadTask, length: u32, pieces: &mut Pieces) {
        let ReadTarget::Direct(buffers) = &task.target else { return };
        if length == 0 {
            return;
        }
        let start = task.done - length;
        let spans: arrayvec::ArrayVec<Span, { dafs_store::cache::PIECE_COUNT_MAX }> =
            pieces.iter().map(|p| Span { offset: p.offset, length: p.length }).collect();
        let cookie = Loan::of(pieces).map_or(Cookie::Silent, |loan| self.loans.insert(loan));
        let mut cut = Cut::new(&spans, buffers.as_slice(), start, length);
        while let Some((local, remote)) = cut.next(&self.arena) {
            if !self.post_write(answer.endpoint, &local, remote, cookie, cut.is_empty()) {
                break;
            }
        }
    }

    fn reply_read(&mut self, answer: Answer, length: u32, is_end: bool, checksum: Checksum) {
        self.reply(answer, &read_response(length, is_end, checksum));
    }

    pub(crate) fn unpin_all(&mut self, pieces: &mut Pieces) {
        for piece in pieces.drain(..) {
            self.cache.unpin(piece.pin);
        }
    }
}

fn read_response(length: u32, end_of_file: bool, checksum: Checksum) -> Response<'static> {
    Response::ReadDirect(ReadDirectResult { end_of_file, length, checksum })
}

/// Hits kept before the first of them is moved: by then its bytes are near.
const HITS_MAX: usize = 8;
/// Octets gathered for one read in a session with checksums.
const SEALED_READ_BYTES_MAX: u32 = 1 << 20;
/// Header and fixed section of READ_INLINE's results.
const INLINE_READ_HEAD: usize = 48;

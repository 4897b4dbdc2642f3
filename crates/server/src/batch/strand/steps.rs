//! The steps of a strand: start, transfer bytes, end.

use dafs_dat::{LocalSegment, RemoteSegment, Signal};
use dafs_filer::IoKind;
use dafs_files::io::IoFile;
use dafs_files::reading::{Found, Look};
use dafs_files::writing::Room;
use dafs_sessions::{Piece, PieceOutcome};
use dafs_store::StoreError;
use dafs_store::cache::{Pieces, Progress, Span, Spans, WriteToken};
use dafs_types::{SessionId, Status};
use dafs_wire::Procedure;

use super::{LentMemory, Strand, answer_to};
use crate::data::Step;
use crate::meter::Moved;
use crate::meter::reading::Reading;
use crate::moving::transfer::{Cookie, Cut, Staging, remote_of};
use crate::reactor::Reactor;
use crate::reply_to::{ReplyTo, TaskId};
use crate::task::{Task, Wait, Work};

impl Reactor<'_> {
    /// Starts the transfer of a piece, or queues the piece if its session has reached its limits.
    pub(in crate::batch) fn begin_piece(&mut self, piece: Piece, kind: IoKind) {
        let session = self.shared.batches.scheduler.request(&piece).session;
        let Some(session) = session else { return self.give_piece_back(piece, Status::Io) };
        let Some(entry) = self.shared.batches.sessions.get_mut(&session) else {
            return self.give_piece_back(piece, Status::Io);
        };
        if entry.waiting.is_empty() && !entry.is_full() {
            return self.begin_strand(session, piece, kind);
        }
        if entry.waiting.is_empty() {
            self.shared.batches.stalled.push_back(session);
        }
        entry.waiting.push_back((piece, kind));
    }

    pub(in crate::batch) fn begin_strand(
        &mut self,
        session: SessionId,
        piece: Piece,
        kind: IoKind,
    ) {
        let strand = match self.prepare_strand(session, &piece, kind) {
            Ok(strand) => strand,
            Err(status) => return self.give_piece_back(piece, status),
        };
        let Some(entry) = self.shared.batches.sessions.get_mut(&session) else {
            self.give_back(strand.file, strand.borrowed);
            return self.give_piece_back(piece, Status::Io);
        };
        entry.strands += 1;
        entry.bytes += u64::from(strand.length);
        let answer = answer_to(entry.operation);
        let strand = Strand { piece: Some(piece), ..strand };
        self.start(Task::new(answer, Work::Strand(Box::new(strand))));
    }

    /// Checks the open, the locks and the fencing lists before a READ or WRITE starts.
    fn prepare_strand(
        &mut self,
        session: SessionId,
        piece: &Piece,
        kind: IoKind,
    ) -> Result<Strand, Status> {
        let view = self.shared.batches.scheduler.request(piece);
        if let Some(status) = view.failed {
            return Err(status);
        }
        let entry = self.shared.batches.sessions.get(&session).ok_or(Status::Io)?;
        let (answer, back) = (answer_to(entry.operation), entry.back);
        let over = if view.synchronous { Some(entry.operation) } else { back };
        let over = over.filter(|_| !entry.is_ending).ok_or(Status::Io)?;
        let reach = (piece.offset, u64::from(piece.buffer.length));
        self.check_fence(answer, &view.handle)?;
        self.check_locks(view.state, &view.handle, reach, kind)?;
        let found = self.io_file(answer, view.state, &view.handle, kind);
        // A piece does not wait for the recall of a delegation; the scheduler retries its request.
        let found = found.map_err(|why| self.without_waiting(why))?;
        let IoFile { file, borrowed, undo_seen } = found;
        Ok(Strand {
            piece: None,
            kind,
            session,
            over,
            file,
            offset: piece.offset,
            length: piece.buffer.length,
            borrowed,
            undo_seen,
            hint: piece.hint,
            done: 0,
            is_whole: false,
            transfers_left: 0,
            lent: LentMemory::default(),
            transfer_failed: false,
            token: None,
            data: view.data.map(|bytes| (bytes, piece.at as usize)),
            stable: None,
            is_in_flight: false,
        })
    }

    fn give_piece_back(&mut self, piece: Piece, status: Status) {
        self.shared.batches.scheduler.piece_done(
            piece,
            PieceOutcome::Failed(status),
            self.shared.life.now(),
        );
        self.shared.batches.wake();
    }

    /// Ends a strand (a transfer of a batch) and reports its outcome.
    fn end_strand(&mut self, strand: &mut Strand, outcome: PieceOutcome) -> Step {
        self.leave_disk(strand);
        debug_assert!(strand.lent.pins.is_empty() && strand.token.is_none());
        self.give_back(strand.file, strand.borrowed);
        if let Some(entry) = self.shared.batches.sessions.get_mut(&strand.session) {
            entry.strands -= 1;
            entry.bytes -= u64::from(strand.length);
        }
        if let Some(piece) = strand.piece.take() {
            self.shared.batches.scheduler.piece_done(piece, outcome, self.shared.life.now());
        }
        self.shared.batches.wake();
        // A client may wait for a lock until this strand ends.
        self.on_progress(Progress { file: strand.file, error: None });
        Step::Silent
    }

    /// Ends a strand (a transfer of a batch) with the error of its failed job.
    pub(crate) fn fail_strand(&mut self, strand: &mut Strand, error: StoreError) {
        self.end_strand(strand, PieceOutcome::Failed(error.into()));
    }

    fn leave_disk(&mut self, strand: &mut Strand) {
        self.shared.batches.in_flight -= u32::from(std::mem::take(&mut strand.is_in_flight));
    }

    pub(crate) fn step_strand(&mut self, id: TaskId, answer: ReplyTo, strand: &mut Strand) -> Step {
        self.leave_disk(strand);
        let step = match strand.kind {
            IoKind::Read => self.step_strand_read(id, answer, strand),
            IoKind::Write => self.step_strand_write(id, answer, strand),
        };
        if let Step::Silent = step {
            let moved = match strand.kind {
                IoKind::Read => Moved::Read(strand.done),
                IoKind::Write => Moved::Written(strand.done),
            };
            self.note_moved(answer.endpoint, Reading::of(Procedure::BatchSubmit), moved);
        }
        if let Step::Wait(Wait::File(_) | Wait::Room) = step {
            strand.is_in_flight = true;
            self.shared.batches.in_flight += 1;
        }
        step
    }

    /// Returns true if the connection of a session has ended. The transfers of the session's
    /// batches must not write any more then, because the client submits their requests again after
    /// it reconnects.
    fn is_ending(&self, session: SessionId) -> bool {
        self.shared.batches.sessions.get(&session).is_none_or(|entry| entry.is_ending)
    }

    // ---- reading --------------------------------------------------------------------

    fn step_strand_read(&mut self, id: TaskId, answer: ReplyTo, strand: &mut Strand) -> Step {
        if strand.transfers_left == 0 {
            self.release_lent(strand);
        }
        strand.transfer_failed |= self.is_ending(strand.session);
        if !strand.is_whole && !strand.transfer_failed && self.is_barred(answer, strand.file) {
            return self.end_strand(strand, PieceOutcome::Failed(Status::Access));
        }
        while !strand.is_whole && !strand.transfer_failed {
            let (mut pieces, mut ahead) = (Pieces::new(), Vec::new());
            let (reading, mut files) = (strand.reading(), self.files());
            // While the strand has transfers in progress, no further blocks are prefetched for it.
            let found = match strand.transfers_left {
                0 => Some(files.look(&reading, &mut pieces, &mut ahead)),
                _ => files.look_now(&reading, &mut pieces, &mut ahead).map(Look::Hit),
            };
            self.submit_fills(ahead);
            match found {
                Some(Look::Hit(Found { length, is_end })) => {
                    self.send_read(id, answer, strand, &mut pieces, length);
                    strand.is_whole = strand.done == strand.length || is_end;
                }
                Some(Look::Needs(need)) => {
                    if let Some(wait) = self.meet(need) {
                        return Step::Wait(wait);
                    }
                }
                None => return Step::Wait(Wait::Transfers),
            }
        }
        if strand.transfers_left > 0 {
            return Step::Wait(Wait::Transfers);
        }
        self.release_lent(strand);
        let outcome = if strand.transfer_failed {
            PieceOutcome::Failed(Status::Io)
        } else {
            PieceOutcome::Moved(strand.done)
        };
        self.end_strand(strand, outcome)
    }

    /// Sends `length` bytes, which were found in the cache, to the client.
    fn send_read(
        &mut self,
        id: TaskId,
        answer: ReplyTo,
        strand: &mut Strand,
        pieces: &mut Pieces,
        length: u32,
    ) {
        let Some(buffer) = strand.piece.as_ref().map(|piece| piece.buffer) else { return };
        if length > 0 && self.has_checksums(answer.endpoint) {
            return self.send_read_sealed(id, strand, pieces, length);
        }
        let spans: Spans =
            pieces.iter().map(|p| Span { offset: p.offset, length: p.length }).collect();
        let mut cut = Cut::new(&spans, std::slice::from_ref(&buffer), strand.done, length);
        strand.done += length;
        let mut is_posted = false;
        // The client's buffer and the bytes in the cache are both contiguous, so one transfer
        // suffices.
        if let Some((local, remote)) = cut.next(&self.own.arena)
            && !(self.own.may_move(remote.length)
                && self.own.interface.rdma_write_now(strand.over, &local, remote))
        {
            is_posted = self.post_for(id, strand, &local, remote);
        }
        if is_posted {
            strand.lent.pins.extend(pieces.drain(..).map(|piece| piece.pin));
        } else {
            self.unpin_all(pieces);
        }
    }

    /// Sends the bytes and their checksum. The bytes are copied first, because a write could change
    /// them in the cache between the checksum and the transfer.
    fn send_read_sealed(
        &mut self,
        id: TaskId,
        strand: &mut Strand,
        pieces: &mut Pieces,
        length: u32,
    ) {
        let mut bytes = Vec::with_capacity(length as usize);
        for piece in pieces.iter() {
            let at = usize::try_from(piece.offset).unwrap_or(usize::MAX);
            bytes.extend(self.shared.cache.arena().to_vec(at, piece.length as usize));
        }
        self.unpin_all(pieces);
        let Some(piece) = &strand.piece else { return };
        let at = piece.at + strand.done;
        let mut remote = remote_of(&piece.buffer, length);
        remote.address = remote.address.wrapping_add(u64::from(strand.done));
        self.shared.batches.scheduler.add_checksum(piece, at, &bytes);
        strand.done += length;
        let Ok(staging) = Staging::of(&mut self.own.interface, bytes.into()) else {
            strand.transfer_failed = true;
            return;
        };
        let local = [staging.region.local(0, length)];
        let is_there = self.own.may_move(length)
            && self.own.interface.rdma_write_now(strand.over, &local, remote);
        if is_there || !self.post_for(id, strand, &local, remote) {
            self.own.interface.deregister(staging.region.key);
        } else {
            strand.lent.staged.push(staging);
        }
    }

    /// Posts an RDMA write for a strand (a transfer of a batch). Returns false if the connection is
    /// closing.
    fn post_for(
        &mut self,
        id: TaskId,
        strand: &mut Strand,
        local: &[LocalSegment],
        remote: RemoteSegment,
    ) -> bool {
        let word = Cookie::Task(id).pack();
        let posted =
            self.own.interface.post_rdma_write(strand.over, word, local, remote, Signal::Always);
        if posted.is_err() {
            self.give_up(strand.over);
            strand.transfer_failed = true;
            return false;
        }
        strand.transfers_left += 1;
        strand.lent.posted += remote.length;
        true
    }

    /// Releases the memory of a READ after all its transfers are done.
    fn release_lent(&mut self, strand: &mut Strand) {
        strand.lent.posted = 0;
        for pin in strand.lent.pins.drain(..) {
            self.shared.cache.unpin(pin);
        }
        for staging in strand.lent.staged.drain(..) {
            self.own.interface.deregister(staging.region.key);
        }
    }

    // ---- writing --------------------------------------------------------------------

    fn step_strand_write(&mut self, id: TaskId, answer: ReplyTo, strand: &mut Strand) -> Step {
        if let Some(result) = strand.stable.take() {
            let whole = PieceOutcome::Moved(strand.length);
            let failed = |error: StoreError| PieceOutcome::Failed(error.into());
            return self.end_strand(strand, result.map_or_else(failed, |()| whole));
        }
        if let Some(step) = self.end_strand_room(strand) {
            return step;
        }
        if strand.done < strand.length && self.is_ending(strand.session) {
            return self.end_strand(strand, PieceOutcome::Failed(Status::Io));
        }
        if strand.done < strand.length && self.is_barred(answer, strand.file) {
            return self.end_strand(strand, PieceOutcome::Failed(Status::Access));
        }
        let by = self.party_of(answer).ok();
        while strand.done < strand.length {
            let part = strand.part();
            let reach = (part.place, u64::from(part.left));
            match self.pass_undo(id, strand.file, reach, strand.undo_seen) {
                Ok(None) => {}
                Ok(Some(wait)) => return Step::Wait(wait),
                Err(status) => {
                    return self.end_strand(strand, PieceOutcome::Failed(status));
                }
            }
            let mut spans = Spans::new();
            let wait = match self.files().room(by, part, &mut spans) {
                Room::Ready(token) => {
                    self.fetch_into_room(id, answer, strand, token, &spans);
                    (strand.transfers_left > 0).then_some(Wait::Transfers)
                }
                Room::Needs(need) => self.meet(need),
                Room::Failed(error) => {
                    return self.end_strand(strand, PieceOutcome::Failed(error.into()));
                }
            };
            if let Some(wait) = wait {
                return Step::Wait(wait);
            }
            if let Some(step) = self.end_strand_room(strand) {
                return step;
            }
        }
        self.shared.batches.make_stable(id, strand.file, strand.offset, strand.length);
        Step::Wait(Wait::Commit)
    }

    /// Fetches bytes from the client's memory into the reserved cache space.
    fn fetch_into_room(
        &mut self,
        id: TaskId,
        answer: ReplyTo,
        strand: &mut Strand,
        token: WriteToken,
        spans: &Spans,
    ) {
        let (from, length) = (strand.done, token.length());
        strand.token = Some(token);
        if let Some((bytes, start)) = &strand.data {
            let from = start + from as usize;
            return self.copy_in(&bytes[from..from + length as usize], spans);
        }
        let Some(buffer) = strand.piece.as_ref().map(|piece| piece.buffer) else { return };
        let cut = Cut::new(spans, std::slice::from_ref(&buffer), from, length);
        (strand.transfers_left, strand.transfer_failed) =
            self.fetch_all(id, answer.endpoint, cut, self.own.arena);
    }

    /// Adds the filled cache space to the file. Returns a step if the transfer ends here.
    fn end_strand_room(&mut self, strand: &mut Strand) -> Option<Step> {
        let token = strand.token.take()?;
        let has_arrived = !strand.transfer_failed;
        if has_arrived {
            strand.done += token.length();
        }
        let progress = self.files().filled(token, has_arrived);
        self.on_progress(progress);
        match has_arrived {
            true => None,
            false => Some(self.end_strand(strand, PieceOutcome::Failed(Status::Io))),
        }
    }
}

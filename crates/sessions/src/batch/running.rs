//! Hands out runs to the server and takes them back.
//!
//! Invariant: every running transfer is in exactly one run that was handed out. Its request is kept
//! until that run is returned.

use dafs_base::Key;
use dafs_types::{Moment, Status};
use dafs_wire::ChecksumPart;

use super::{
    BatchScheduler, DeviceLoad, Failure, Piece, PieceOutcome, Request, RequestView, Run, RunOutcome,
};

/// The maximum number of empty piece lists that are kept to reuse their memory.
const SPARE_MAX: usize = 64;

impl BatchScheduler {
    /// Returns the next run to start. The server must call this until it returns `None` whenever a
    /// run has ended, a batch was accepted, or the time of [`BatchScheduler::next_due`] has come.
    /// It must call this even if the device is full, because otherwise [`BatchScheduler::next_due`]
    /// still returns the time of transfers that are already due.
    pub fn poll_run(&mut self, now: Moment, device: DeviceLoad) -> Option<Run> {
        self.queue.promote(now);
        if device.in_flight >= device.in_flight_max {
            return None;
        }
        let early = device.in_flight < self.limits.early_start_below;
        let (bytes_max, pieces_max) = (self.limits.run_bytes_max, self.limits.run_pieces_max);
        if !self.queue.next_run(early, bytes_max, pieces_max) {
            return None;
        }
        let members = self.queue.members();
        let first = &self.queue.transfers[members[0]];
        let mut pieces = self.spare.pop().unwrap_or_default();
        let mut end = first.offset;
        for &index in members {
            let transfer = &self.queue.transfers[index];
            end = end.max(transfer.end());
            pieces.push(Piece {
                offset: transfer.offset,
                buffer: transfer.buffer,
                at: transfer.at,
                hint: transfer.hint,
                failed: None,
                transfer: index,
                request: transfer.request,
            });
        }
        let length = (end - first.offset) as u32;
        Some(Run { file: first.file, kind: first.kind, offset: first.offset, length, pieces })
    }

    /// Returns a description of the request to which a piece belongs. The description shows whether
    /// the result is still needed.
    #[must_use]
    pub fn request(&self, piece: &Piece) -> RequestView {
        let request = &self.requests[piece.request];
        RequestView {
            session: (request.session != Key::NULL).then(|| self.sessions[request.session].id),
            request: request.name,
            handle: request.handle,
            state: request.state,
            synchronous: self.batches[request.batch].synchronous,
            data: request.data.clone(),
            length: request.length,
            checksum: request.checksum,
            failed: request.failure.map(|failure| failure.status),
        }
    }

    /// Adds bytes of a read, which start at offset `at` of the request's data, to the checksum that
    /// the completion reports. Bytes may be added in any order, but each byte only once.
    pub fn add_checksum(&mut self, piece: &Piece, at: u32, bytes: &[u8]) {
        self.requests[piece.request].sums.push(ChecksumPart::of(at, bytes));
    }

    /// Takes back a run, whether or not it was executed.
    pub fn run_done(&mut self, run: Run, outcome: RunOutcome, now: Moment) {
        let Run { offset, mut pieces, .. } = run;
        for piece in pieces.drain(..) {
            let outcome = match (piece.failed, outcome) {
                (Some(status), _) | (None, RunOutcome::Failed(status)) => {
                    PieceOutcome::Failed(status)
                }
                (None, RunOutcome::Moved(bytes)) => {
                    let reached = offset.saturating_add(bytes).saturating_sub(piece.offset);
                    PieceOutcome::Moved(u32::try_from(reached).unwrap_or(u32::MAX))
                }
            };
            self.piece_done(piece, outcome, now);
        }
        self.keep_spare(pieces);
    }

    /// Splits a run into its pieces, for a server that executes the pieces one by one. Each piece
    /// must be returned with [`BatchScheduler::piece_done`], independently of the others.
    pub fn take_apart(&mut self, run: Run, pieces: &mut Vec<Piece>) {
        let mut of_run = run.pieces;
        pieces.append(&mut of_run);
        self.keep_spare(of_run);
    }

    /// Takes back a piece of a split run, whether or not it was executed.
    pub fn piece_done(&mut self, piece: Piece, outcome: PieceOutcome, now: Moment) {
        self.queue.end(piece.transfer);
        let request = &mut self.requests[piece.request];
        request.unfinished -= 1;
        match outcome {
            PieceOutcome::Moved(bytes) if bytes >= piece.buffer.length => {}
            PieceOutcome::Moved(bytes) => request.moved = request.moved.min(piece.at + bytes),
            PieceOutcome::Failed(status) => {
                request.fail(piece.at, status);
                self.drop_transfers(piece.request);
            }
        }
        if self.requests[piece.request].unfinished == 0 {
            self.complete(piece.request, now);
        }
    }

    fn keep_spare(&mut self, pieces: Vec<Piece>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(pieces);
        }
    }
}

impl Request {
    /// Records that the bytes of a request from offset `at` on were not moved. The completion
    /// reports the failure that comes first in the order of the data, even if another failure
    /// happened earlier.
    pub(super) fn fail(&mut self, at: u32, status: Status) {
        self.moved = self.moved.min(at);
        if self.failure.is_none_or(|failure| at < failure.at) {
            self.failure = Some(Failure { at, status });
        }
    }
}

//! Operations: an operation is submitted by one call, or is one request of a batch.
//!
//! Invariant: an operation has ended only when all of its transfers have ended, so that its memory
//! belongs to the program again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use dafs_client::{ClientError, OperationId, Transferred};

use crate::failure::Failure;
use crate::file::FileObject;
use crate::memory::{Piece, RegionObject, Target};

/// An operation in flight.
pub(crate) struct Operation {
    context: usize,
    kind: OperationKind,
    /// The way in which the end of the operation is detected.
    pub submission: Submission,
    /// The file of the operation, which may have been closed meanwhile.
    file: Weak<FileObject>,
    parts: Vec<Part>,
    left: usize,
    /// The error of the first part that could not be submitted, if there is one.
    refusal: Option<Failure>,
    /// The regions that the operation uses, so that they cannot be released before it ends.
    _regions: Vec<Arc<RegionObject>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    Read,
    Write,
    Commit,
}

pub(crate) enum Submission {
    /// The operation has ended when the client has completed all of these transfers.
    Transfers(Vec<OperationId>),
    /// The operation has ended when the batch that contains its request reports the request as
    /// complete.
    Batch,
}

struct Part {
    /// The memory of the part; `None` for a commit, which transfers no data.
    piece: Option<Piece>,
    result: Option<Result<Transferred, ClientError>>,
}

/// The completion of an operation.
pub(crate) struct Ended {
    pub number: u64,
    pub context: usize,
    /// The number of bytes transferred, or the error.
    pub result: Result<u64, Failure>,
    pub end_of_file: bool,
}

impl Operation {
    /// Makes an operation without parts.
    pub(crate) fn new(
        kind: OperationKind,
        submission: Submission,
        file: &Arc<FileObject>,
        targets: &[Target],
        context: usize,
    ) -> Self {
        let regions = targets.iter().filter_map(|target| target.region.as_ref());
        let regions = regions.map(|(region, _)| region.clone()).collect();
        let file = Arc::downgrade(file);
        let (parts, refusal) = (Vec::new(), None);
        Self { context, kind, submission, file, parts, left: 0, refusal, _regions: regions }
    }

    /// Returns a number that no other operation of this process has.
    pub(crate) fn next_number() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// Encodes the number of an operation and of one of its parts into one word, the context of the
    /// client's transfer.
    pub(crate) fn word_of(number: u64, part: usize) -> u64 {
        number << PART_BITS | part as u64
    }

    /// Decodes the number of the operation and of its part from a word that `word_of` returned.
    pub(crate) fn place_of(word: u64) -> (u64, usize) {
        (word >> PART_BITS, (word % (1 << PART_BITS)) as usize)
    }

    /// Returns the number of parts that were added.
    pub(crate) fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Adds a transfer that is in flight.
    pub(crate) fn add_part(&mut self, piece: Option<Piece>, id: OperationId) {
        self.add_piece(piece);
        if let Submission::Transfers(ids) = &mut self.submission {
            ids.push(id);
        }
    }

    /// Adds the memory of a request in a batch.
    pub(crate) fn add_piece(&mut self, piece: Option<Piece>) {
        self.parts.push(Part { piece, result: None });
        self.left += 1;
    }

    /// Notes that the remaining parts could not be submitted.
    pub(crate) fn set_refusal(&mut self, failure: Failure) {
        self.refusal = Some(failure);
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.left == 0
    }

    /// Notes the result of a transfer that has ended.
    pub(crate) fn note_part(&mut self, part: usize, result: Result<Transferred, ClientError>) {
        if let Some(part) = self.parts.get_mut(part)
            && part.result.is_none()
        {
            part.result = Some(result);
            self.left -= 1;
        }
    }

    /// Notes the result of a request in a batch: the number of bytes that were transferred from the
    /// beginning of the request, or an error.
    pub(crate) fn note_whole(&mut self, outcome: Result<u32, ClientError>) {
        let mut left = outcome.as_ref().copied().unwrap_or(0);
        for part in &mut self.parts {
            let length = part.piece.as_ref().map_or(0, |piece| piece.length);
            // A part is not longer than a request.
            let moved = left.min(u32::try_from(length).unwrap_or(u32::MAX));
            left -= moved;
            let mut transferred = Transferred::default();
            transferred.length = moved;
            part.result = Some(outcome.clone().map(|_| transferred));
        }
        self.left = 0;
    }

    /// Returns the completion of the operation. Its result is the number of contiguous bytes that
    /// were transferred from the beginning.
    pub(crate) fn end(mut self, number: u64) -> Ended {
        let file = self.file.upgrade();
        let (mut moved, mut end_of_file, mut failure, mut is_finished) = (0, false, None, false);
        for part in std::mem::take(&mut self.parts) {
            let result = part.result.unwrap_or(Err(ClientError::Cancelled));
            let length = part.piece.as_ref().map_or(0, |piece| piece.length);
            match self.record_loss(file.as_deref(), result) {
                Ok(transferred) => {
                    if let (OperationKind::Read, Some(piece)) = (self.kind, &part.piece) {
                        piece.copy_out(transferred.length as usize);
                    }
                    if !is_finished {
                        moved += u64::from(transferred.length);
                        end_of_file = transferred.end_of_file;
                        is_finished = (transferred.length as usize) < length;
                    }
                }
                Err(error) => {
                    is_finished = true;
                    failure.get_or_insert(error);
                }
            }
        }
        let result = match failure.or(self.refusal.take()) {
            None => Ok(moved),
            Some(failure) if moved == 0 => Err(failure),
            Some(failure) => {
                if let (OperationKind::Write, Some(file)) = (self.kind, &file) {
                    file.keep_failure(failure);
                }
                Ok(moved)
            }
        };
        Ended { number, context: self.context, result, end_of_file }
    }

    /// Records the loss of data that the reply to a write or a commit may report.
    fn record_loss(
        &self,
        file: Option<&FileObject>,
        result: Result<Transferred, ClientError>,
    ) -> Result<Transferred, Failure> {
        let transferred = result?;
        // Batches return no verifier, because their written data is stable.
        if let (Some(file), Submission::Transfers(_)) = (file, &self.submission) {
            let verifier = transferred.verifier;
            match self.kind {
                OperationKind::Read => {}
                OperationKind::Write => file.ask(|file| file.note_unstable(verifier))?,
                OperationKind::Commit => file.ask(|file| file.note_committed(verifier))?,
            }
        }
        Ok(transferred)
    }
}

/// The binary logarithm of the maximum number of parts of an operation.
const PART_BITS: u32 = 16;

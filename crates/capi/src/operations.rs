//! Operations: what was submitted by one call, or as one request of a batch.
//!
//! Invariant: an operation has ended when all of its transfers have, so that its memory is the
//! program's again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use dafs_client::{ClientError, OperationId, Transferred};

use crate::failure::Failure;
use crate::file::FileObject;
use crate::memory::{Piece, RegionObject, Target};

/// An operation under way.
pub(crate) struct Operation {
    context: usize,
    kind: OperationKind,
    /// How its end is heard of.
    pub way: Way,
    /// What it is of; it may have been closed meanwhile.
    file: Weak<FileObject>,
    parts: Vec<Part>,
    left: usize,
    /// Why not all of it was submitted.
    refusal: Option<Failure>,
    /// Kept from being given back.
    _regions: Vec<Arc<RegionObject>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    Read,
    Write,
    Commit,
}

pub(crate) enum Way {
    /// By the client's own completions.
    Transfers(Vec<OperationId>),
    /// By the batch that it is in.
    Batch,
}

struct Part {
    /// A commit moves nothing.
    piece: Option<Piece>,
    result: Option<Result<Transferred, ClientError>>,
}

/// The end of an operation.
pub(crate) struct Ended {
    pub number: u64,
    pub context: usize,
    /// Bytes.
    pub result: Result<u64, Failure>,
    pub end_of_file: bool,
}

impl Operation {
    /// One without parts.
    pub fn new(
        kind: OperationKind,
        way: Way,
        file: &Arc<FileObject>,
        targets: &[Target],
        context: usize,
    ) -> Self {
        let regions = targets.iter().filter_map(|target| target.region.as_ref());
        let regions = regions.map(|(region, _)| region.clone()).collect();
        let file = Arc::downgrade(file);
        let (parts, refusal) = (Vec::new(), None);
        Self { context, kind, way, file, parts, left: 0, refusal, _regions: regions }
    }

    /// A number that no other operation of this process has.
    pub fn next_number() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// What the client is told of a part, and hands back.
    pub fn word_of(number: u64, part: usize) -> u64 {
        number << PART_BITS | part as u64
    }

    /// The operation and the part of such a word.
    pub fn place_of(word: u64) -> (u64, usize) {
        (word >> PART_BITS, (word % (1 << PART_BITS)) as usize)
    }

    /// Parts so far.
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// A transfer of it is under way.
    pub fn add_part(&mut self, piece: Option<Piece>, id: OperationId) {
        self.add_piece(piece);
        if let Way::Transfers(ids) = &mut self.way {
            ids.push(id);
        }
    }

    /// Some memory of a request in a batch.
    pub fn add_piece(&mut self, piece: Option<Piece>) {
        self.parts.push(Part { piece, result: None });
        self.left += 1;
    }

    /// The rest of it could not be submitted.
    pub fn refuse(&mut self, failure: Failure) {
        self.refusal = Some(failure);
    }

    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// A transfer has ended.
    pub fn note_part(&mut self, part: usize, result: Result<Transferred, ClientError>) {
        if let Some(part) = self.parts.get_mut(part)
            && part.result.is_none()
        {
            part.result = Some(result);
            self.left -= 1;
        }
    }

    /// A request of a batch has ended, and has moved so many bytes from its start.
    pub fn note_whole(&mut self, outcome: Result<u32, ClientError>) {
        let mut left = outcome.as_ref().copied().unwrap_or(0);
        for part in &mut self.parts {
            let length = part.piece.as_ref().map_or(0, |piece| piece.length);
            // A part is no longer than a request.
            let moved = left.min(u32::try_from(length).unwrap_or(u32::MAX));
            left -= moved;
            let transferred = Transferred { length: moved, ..Transferred::default() };
            part.result = Some(outcome.clone().map(|_| transferred));
        }
        self.left = 0;
    }

    /// What became of it: bytes in a row from its start, up to the first that was not moved.
    pub fn end(mut self, number: u64) -> Ended {
        let file = self.file.upgrade();
        let (mut moved, mut end_of_file, mut failure, mut is_over) = (0, false, None, false);
        for part in std::mem::take(&mut self.parts) {
            let result = part.result.unwrap_or(Err(ClientError::Cancelled));
            let length = part.piece.as_ref().map_or(0, |piece| piece.length);
            match self.noted(file.as_deref(), result) {
                Ok(transferred) => {
                    if let (OperationKind::Read, Some(piece)) = (self.kind, &part.piece) {
                        piece.spill(transferred.length as usize);
                    }
                    if !is_over {
                        moved += u64::from(transferred.length);
                        end_of_file = transferred.end_of_file;
                        is_over = (transferred.length as usize) < length;
                    }
                }
                Err(error) => {
                    is_over = true;
                    failure.get_or_insert(error);
                }
            }
        }
        let result = match failure.or(self.refusal.take()) {
            None => Ok(moved),
            Some(failure) if moved == 0 => Err(failure),
            Some(failure) => {
                if let (OperationKind::Write, Some(file)) = (self.kind, &file) {
                    file.owe(failure);
                }
                Ok(moved)
            }
        };
        Ended { number, context: self.context, result, end_of_file }
    }

    /// Has the file take note of what a write or a commit says of data that may be lost.
    fn noted(
        &self,
        file: Option<&FileObject>,
        result: Result<Transferred, ClientError>,
    ) -> Result<Transferred, Failure> {
        let transferred = result?;
        // The ends of batches carry no verifier: what they have written is stable.
        if let (Some(file), Way::Transfers(_)) = (file, &self.way) {
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

/// Most parts of one operation, as a power of two.
const PART_BITS: u32 = 16;

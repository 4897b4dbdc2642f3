//! What a file held, read in batches to be put back.
//!
//! Of what was cloned only as much is put back as may have changed: all the rest is in the file
//! still, perhaps in blocks that are shared yet, and to write them would take room that a full
//! disk does not have. A server that has let in every change since the clone was made knows
//! which they were; another one looks at both.
//!
//! Invariant: an octet that was changed under the lock is in some batch, as it was before.

use std::ops::Range;
use std::sync::Arc;

use dafs_journal::undo::{Content, SavedUndo};
use dafs_journal::{Ranges, Shelf, ShelfError, UndoError, UndoId, UndoLog};
use dafs_memory::{Memory, Pages};
use dafs_store::File;

/// Where batches come from.
pub struct Source {
    shelf: Arc<dyn Shelf>,
    id: UndoId,
    /// Once it has begun.
    saved: Option<SavedUndo>,
    /// What is left of a cloned piece.
    cloned: Range<u64>,
    /// What is put back; nothing else is asked for.
    wanted: Range<u64>,
    changed: Changed,
}

/// What of cloned pieces may have changed.
pub enum Changed {
    /// This at most.
    Within(Ranges),
    /// What differs in the file, to which all has been written that was changed.
    Unknown(Arc<dyn File>),
}

/// Some of what a file held, and how to get more.
pub struct Batch {
    pub pieces: Vec<(u64, Vec<u8>)>,
    /// `None` behind the last piece.
    pub more: Option<Box<Source>>,
    /// Octets of the file when the undo data began.
    pub size: u64,
}

impl Source {
    pub fn new(shelf: Arc<dyn Shelf>, id: UndoId, wanted: Range<u64>, changed: Changed) -> Self {
        Self { shelf, id, saved: None, cloned: 0..0, wanted, changed }
    }

    /// The next batch; `None` if nothing was ever saved. Blocks.
    pub fn read(mut self: Box<Self>) -> Result<Option<Batch>, UndoError> {
        let mut saved = match self.saved.take() {
            Some(saved) => saved,
            None => match UndoLog::open(&*self.shelf, self.id) {
                Ok(saved) => saved,
                // It never began.
                Err(
                    UndoError::Unfinished { .. }
                    | UndoError::Shelf { source: ShelfError::NotFound { .. } },
                ) => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        let size = saved.original_size();
        // What was looked at counts as well as what was found: others have their turn.
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES {
            if !self.cloned.is_empty() {
                bytes += self.read_cloned(&saved, &mut pieces)?;
                continue;
            }
            match saved.next_piece()? {
                Some(piece) => match piece.content {
                    Content::Copied(octets) => {
                        bytes += octets.len() as u64;
                        pieces.push((piece.offset, octets.to_vec()));
                    }
                    Content::Cloned { length } => {
                        let end = piece.offset.saturating_add(length).min(self.wanted.end);
                        self.cloned = piece.offset.max(self.wanted.start)..end;
                    }
                },
                None => return Ok(Some(Batch { pieces, more: None, size })),
            }
        }
        self.saved = Some(saved);
        Ok(Some(Batch { pieces, more: Some(self), size }))
    }

    /// Goes a chunk on with a cloned piece. How many octets were read.
    fn read_cloned(
        &mut self,
        saved: &SavedUndo,
        pieces: &mut Vec<(u64, Vec<u8>)>,
    ) -> Result<u64, UndoError> {
        let rest = self.cloned.clone();
        let chunk = match &self.changed {
            Changed::Within(ranges) => ranges.within(rest.clone()).next(),
            Changed::Unknown(_) => Some(rest.clone()),
        };
        let Some(chunk) = chunk else {
            self.cloned = 0..0;
            return Ok(0);
        };
        let chunk = chunk.start..chunk.end.min(chunk.start.saturating_add(CHUNK_BYTES));
        self.cloned = chunk.end..rest.end;
        let mut before = vec![0; (chunk.end - chunk.start) as usize];
        saved.read_cloned(chunk.start, &mut before)?;
        match &self.changed {
            Changed::Within(_) => pieces.push((chunk.start, before)),
            Changed::Unknown(file) => {
                let now = present(&**file, chunk.start, before.len());
                let differing = differing(&before, &now);
                let pieces_of =
                    |part: Range<usize>| (chunk.start + part.start as u64, before[part].to_vec());
                pieces.extend(differing.into_iter().map(pieces_of));
            }
        }
        Ok(chunk.end - chunk.start)
    }
}

/// What a file holds now; nothing if it cannot be read, so that all of it is put back.
fn present(file: &dyn File, offset: u64, length: usize) -> Vec<u8> {
    let Ok(memory) = Memory::anonymous(length, Pages::Small) else { return Vec::new() };
    let count = file.read_at(&memory, 0, length, offset).unwrap_or(0);
    memory.to_vec(0, count)
}

/// The stretches of blocks in which two versions differ. What one lacks differs.
fn differing(before: &[u8], now: &[u8]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for start in (0..before.len()).step_by(BLOCK_BYTES) {
        let end = before.len().min(start + BLOCK_BYTES);
        if now.get(start..end) == Some(&before[start..end]) {
            continue;
        }
        match found.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => found.push(start..end),
        }
    }
    found
}

/// Octets read at once, more or less.
const BATCH_BYTES: u64 = 4 << 20;
/// Of cloned pieces.
const CHUNK_BYTES: u64 = 1 << 20;
/// Octets that are compared as one.
const BLOCK_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_differ_are_found_in_whole_blocks() {
        let before: Vec<u8> = vec![1; 4 * BLOCK_BYTES + 100];
        assert_eq!(differing(&before, &before), []);
        let mut now = before.clone();
        now[BLOCK_BYTES - 1] = 2;
        now[BLOCK_BYTES] = 2;
        now[4 * BLOCK_BYTES] = 2;
        let end = before.len();
        assert_eq!(differing(&before, &now), [0..2 * BLOCK_BYTES, 4 * BLOCK_BYTES..end]);
        let short = &before[..3 * BLOCK_BYTES + 1];
        assert_eq!(differing(&before, short), [Range { start: 3 * BLOCK_BYTES, end }]);
        let whole = [Range { start: 0, end }];
        assert_eq!(differing(&before, &[]), whole);
    }
}

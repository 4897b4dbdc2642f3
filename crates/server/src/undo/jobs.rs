//! What of undo may block.
//!
//! Invariant: a job has its undo data for itself: it is `Busy` meanwhile, or a group of it is
//! under way, or it is read for a rollback, when nobody changes what it is of.

use std::sync::Arc;

use dafs_filer::locks::RollbackId;
use dafs_journal::undo::{SavedUndo, UndoDone, UndoJob};
use dafs_journal::{Shelf, ShelfError, UndoConfig, UndoError, UndoId, UndoLog};
use dafs_types::Entropy;

/// Something about undo data that may block.
pub enum UndoTask {
    /// It begins, for a file of `size` octets.
    Create { shelf: Arc<dyn Shelf>, id: UndoId, config: UndoConfig, stream: u64, size: u64 },
    /// It goes on where the last server left it.
    Resume { shelf: Arc<dyn Shelf>, id: UndoId, config: UndoConfig },
    /// A group of it becomes durable.
    Save { id: UndoId, job: UndoJob },
    /// Part of it is read, to be put back.
    Read { rollback: RollbackId, shelf: Arc<dyn Shelf>, id: UndoId, from: Option<Box<SavedUndo>> },
    /// Nobody needs it any more.
    Remove { shelf: Arc<dyn Shelf>, id: UndoId },
}

/// Some of what a file held, and how to get more.
pub struct Batch {
    pub pieces: Vec<(u64, Vec<u8>)>,
    /// `None` behind the last piece.
    pub more: Option<Box<SavedUndo>>,
    /// Octets of the file when the undo data began.
    pub size: u64,
}

/// What came of it.
pub enum UndoTaskDone {
    Opened {
        id: UndoId,
        result: Result<Box<UndoLog>, UndoError>,
    },
    Saved {
        id: UndoId,
        done: UndoDone,
    },
    /// `None`: nothing was ever saved.
    Read {
        rollback: RollbackId,
        result: Result<Option<Batch>, UndoError>,
    },
    Removed {
        id: UndoId,
        result: Result<(), UndoError>,
    },
}

impl UndoTask {
    /// Does it, on this thread.
    pub fn run(self) -> UndoTaskDone {
        match self {
            Self::Create { shelf, id, config, stream, size } => {
                let created = UndoLog::create(&*shelf, id, config, &mut Once(stream), size, &[]);
                UndoTaskDone::Opened { id, result: created.map(Box::new) }
            }
            Self::Resume { shelf, id, config } => {
                let resumed = UndoLog::resume(&*shelf, id, config);
                UndoTaskDone::Opened { id, result: resumed.map(Box::new) }
            }
            Self::Save { id, job } => UndoTaskDone::Saved { id, done: job.run() },
            Self::Read { rollback, shelf, id, from } => {
                UndoTaskDone::Read { rollback, result: read(&*shelf, id, from) }
            }
            Self::Remove { shelf, id } => {
                UndoTaskDone::Removed { id, result: UndoLog::remove(&*shelf, id) }
            }
        }
    }
}

fn read(
    shelf: &dyn Shelf,
    id: UndoId,
    from: Option<Box<SavedUndo>>,
) -> Result<Option<Batch>, UndoError> {
    let mut saved = match from {
        Some(saved) => saved,
        None => match UndoLog::open(shelf, id) {
            Ok(saved) => Box::new(saved),
            // It never began.
            Err(
                UndoError::Unfinished { .. }
                | UndoError::Shelf { source: ShelfError::NotFound { .. } },
            ) => return Ok(None),
            Err(error) => return Err(error),
        },
    };
    let size = saved.original_size();
    let (mut pieces, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_BYTES {
        match saved.next_piece()? {
            Some(piece) => {
                bytes += piece.octets.len();
                pieces.push((piece.offset, piece.octets.to_vec()));
            }
            None => return Ok(Some(Batch { pieces, more: None, size })),
        }
    }
    Ok(Some(Batch { pieces, more: Some(saved), size }))
}

/// A number drawn before, by the thread that has the source of all of them.
struct Once(u64);

impl Entropy for Once {
    fn next_u64(&mut self) -> u64 {
        self.0
    }
}

/// Octets read at once, more or less.
const BATCH_BYTES: usize = 4 << 20;

//! What of undo may block.
//!
//! Invariant: a job has its undo data for itself: it is `Busy` meanwhile, or a group of it or a
//! clone is under way, or it is read for a rollback, when nobody changes what it is of.

use std::sync::Arc;

use dafs_filer::locks::RollbackId;
use dafs_journal::undo::{CloneJob, Cloned, UndoDone, UndoJob};
use dafs_journal::{CloneError, Shelf, UndoConfig, UndoError, UndoId, UndoLog};
use dafs_store::{File, StoreError};
use dafs_types::Entropy;

use super::batch::{Batch, Source};

/// Something about undo data that may block.
pub enum UndoTask {
    /// It begins, for a file of `size` bytes.
    Create {
        /// Where undo data lies.
        shelf: Arc<dyn Shelf>,
        /// Which undo data it is.
        id: UndoId,
        /// How much it may become.
        config: UndoConfig,
        /// A number that tells it from older data.
        stream: u64,
        /// The size.
        size: u64,
    },
    /// It goes on where the last server left it.
    Resume {
        /// Where undo data lies.
        shelf: Arc<dyn Shelf>,
        /// Which undo data it is.
        id: UndoId,
        /// How much it may become.
        config: UndoConfig,
    },
    /// A group of it becomes durable.
    Save {
        /// Which undo data it is.
        id: UndoId,
        /// The group.
        job: UndoJob,
    },
    /// Part of it is read, to be put back.
    Read {
        /// For which rollback.
        rollback: RollbackId,
        /// What is read.
        source: Box<Source>,
    },
    /// Part of a file is saved by sharing blocks with it.
    Clone {
        /// Which undo data it is.
        id: UndoId,
        /// Where undo data lies.
        shelf: Arc<dyn Shelf>,
        /// The file, open.
        file: Arc<dyn File>,
        /// What is shared.
        job: CloneJob,
    },
    /// Nobody needs it any more.
    Remove {
        /// Where undo data lies.
        shelf: Arc<dyn Shelf>,
        /// Which undo data it is.
        id: UndoId,
    },
}

/// What came of it.
pub enum UndoTaskDone {
    /// Undo data is open, or cannot be had.
    Opened {
        /// Which undo data it is.
        id: UndoId,
        /// The undo data, open.
        result: Result<Box<UndoLog>, UndoError>,
    },
    /// A group of it is durable, or never will be.
    Saved {
        /// Which undo data it is.
        id: UndoId,
        /// What came of the group.
        done: UndoDone,
    },
    /// `None`: nothing was ever saved.
    Read {
        /// For which rollback.
        rollback: RollbackId,
        /// Some of what was saved.
        result: Result<Option<Batch>, UndoError>,
    },
    /// Blocks are shared, or are not.
    Cloned {
        /// Which undo data it is.
        id: UndoId,
        /// What was shared.
        result: Result<Cloned, CloneFailure>,
    },
    /// It is gone, or stays for now.
    Removed {
        /// Which undo data it is.
        id: UndoId,
        /// Whether that went well.
        result: Result<(), UndoError>,
    },
}

/// Why nothing was cloned.
#[derive(Debug, thiserror::Error)]
pub enum CloneFailure {
    /// Its store does not share blocks.
    #[error("files of this store do not share blocks")]
    NoSource,
    /// The file cannot be had.
    #[error("the file cannot be opened to share its blocks")]
    Store { source: StoreError },
    #[error(transparent)]
    Shelf(#[from] CloneError),
}

impl CloneFailure {
    /// Whether other files of the same file system will fare no better.
    pub fn is_for_good(&self) -> bool {
        match self {
            Self::NoSource | Self::Shelf(CloneError::Unable { .. }) => true,
            Self::Store { .. } | Self::Shelf(CloneError::Failed { .. }) => false,
        }
    }
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
            Self::Read { rollback, source } => {
                UndoTaskDone::Read { rollback, result: source.read() }
            }
            Self::Clone { id, shelf, file, job } => {
                UndoTaskDone::Cloned { id, result: share(&*shelf, &*file, job) }
            }
            Self::Remove { shelf, id } => {
                UndoTaskDone::Removed { id, result: UndoLog::remove(&*shelf, id) }
            }
        }
    }
}

impl UndoTask {
    /// What it comes to if it cannot be finished.
    pub fn failed(&self, why: &'static str) -> UndoTaskDone {
        let error = || UndoError::Poisoned { cause: why.to_owned() };
        match self {
            Self::Create { id, .. } | Self::Resume { id, .. } => {
                UndoTaskDone::Opened { id: *id, result: Err(error()) }
            }
            Self::Save { id, .. } => UndoTaskDone::Saved { id: *id, done: UndoJob::failed(why) },
            Self::Read { rollback, .. } => {
                UndoTaskDone::Read { rollback: *rollback, result: Err(error()) }
            }
            Self::Clone { id, .. } => {
                let source = StoreError::Fault;
                UndoTaskDone::Cloned { id: *id, result: Err(CloneFailure::Store { source }) }
            }
            Self::Remove { id, .. } => UndoTaskDone::Removed { id: *id, result: Err(error()) },
        }
    }
}

fn share(shelf: &dyn Shelf, file: &dyn File, job: CloneJob) -> Result<Cloned, CloneFailure> {
    let source = file.clone_source().map_err(|source| CloneFailure::Store { source })?;
    let source = source.ok_or(CloneFailure::NoSource)?;
    Ok(job.run(shelf, &*source)?)
}

/// A number drawn before, by the thread that has the source of all of them.
struct Once(u64);

impl Entropy for Once {
    fn next_u64(&mut self) -> u64 {
        self.0
    }
}

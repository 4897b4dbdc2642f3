//! The jobs about undo data that may block.
//!
//! Invariant: a job has exclusive use of its undo data. During the job, the undo data is marked
//! `Busy`, or a group or a clone is being written, or a rollback reads the undo data. No change of
//! the file is possible during a rollback.

use std::sync::Arc;

use dafs_filer::locks::RollbackId;
use dafs_journal::undo::{CloneJob, Cloned, UndoDone, UndoJob};
use dafs_journal::{CloneError, Storage, UndoConfig, UndoError, UndoId, UndoLog};
use dafs_store::{File, StoreError};
use dafs_types::Entropy;

use super::batch::{Batch, Source};

/// A job about undo data that may block.
pub enum UndoTask {
    /// Creates undo data for a file of `size` bytes.
    Create {
        /// The storage of undo data.
        storage: Arc<dyn Storage>,
        /// The id of the undo data.
        id: UndoId,
        /// The size limits of the undo data.
        config: UndoConfig,
        /// A random number that distinguishes this undo data from older data in the same storage.
        stream: u64,
        /// The size of the file in bytes.
        size: u64,
    },
    /// Opens undo data that the previous server has written, so that more can be added to it.
    Resume {
        /// The storage of undo data.
        storage: Arc<dyn Storage>,
        /// The id of the undo data.
        id: UndoId,
        /// The size limits of the undo data.
        config: UndoConfig,
    },
    /// Makes a group of undo data durable.
    Save {
        /// The id of the undo data.
        id: UndoId,
        /// The job that writes the group.
        job: UndoJob,
    },
    /// Reads a batch of undo data for a rollback.
    Read {
        /// The rollback that needs the batch.
        rollback: RollbackId,
        /// The source of the next batch.
        source: Box<Source>,
    },
    /// Saves a range of a file by sharing its blocks.
    Clone {
        /// The id of the undo data.
        id: UndoId,
        /// The storage of undo data.
        storage: Arc<dyn Storage>,
        /// The file, open in the store.
        file: Arc<dyn File>,
        /// The job that shares the blocks.
        job: CloneJob,
    },
    /// Removes undo data that is no longer needed.
    Remove {
        /// The storage of undo data.
        storage: Arc<dyn Storage>,
        /// The id of the undo data.
        id: UndoId,
    },
}

/// The result of an [`UndoTask`].
pub enum UndoTaskDone {
    /// Undo data was opened, or the opening has failed.
    Opened {
        /// The id of the undo data.
        id: UndoId,
        /// The open undo data.
        result: Result<Box<UndoLog>, UndoError>,
    },
    /// A group of undo data is durable, or its write has failed.
    Saved {
        /// The id of the undo data.
        id: UndoId,
        /// The result of the write.
        done: UndoDone,
    },
    /// A batch was read, or the read has failed.
    Read {
        /// The rollback that needs the batch.
        rollback: RollbackId,
        /// The batch that was read. `None` if no undo data was ever saved.
        result: Result<Option<Batch>, UndoError>,
    },
    /// Blocks were shared, or the sharing has failed.
    Cloned {
        /// The id of the undo data.
        id: UndoId,
        /// The record of the shared blocks.
        result: Result<Cloned, CloneFailure>,
    },
    /// Undo data was removed, or the removal has failed.
    Removed {
        /// The id of the undo data.
        id: UndoId,
        /// The result of the removal.
        result: Result<(), UndoError>,
    },
}

/// The reason why no blocks were shared.
#[derive(Debug, thiserror::Error)]
pub enum CloneFailure {
    /// The store of the file does not support sharing blocks.
    #[error("files of this store do not share blocks")]
    NoSource,
    /// The file could not be opened for sharing its blocks.
    #[error("the file cannot be opened to share its blocks")]
    Store { source: StoreError },
    #[error(transparent)]
    Storage(#[from] CloneError),
}

impl CloneFailure {
    /// Returns true if cloning will fail for every file of the same file system.
    pub fn is_for_good(&self) -> bool {
        match self {
            Self::NoSource | Self::Storage(CloneError::Unable { .. }) => true,
            Self::Store { .. } | Self::Storage(CloneError::Failed { .. }) => false,
        }
    }
}

impl UndoTask {
    /// Executes the job on this thread. This may block.
    pub fn run(self) -> UndoTaskDone {
        match self {
            Self::Create { storage, id, config, stream, size } => {
                let created = UndoLog::create(&*storage, id, config, &mut Once(stream), size, &[]);
                UndoTaskDone::Opened { id, result: created.map(Box::new) }
            }
            Self::Resume { storage, id, config } => {
                let resumed = UndoLog::resume(&*storage, id, config);
                UndoTaskDone::Opened { id, result: resumed.map(Box::new) }
            }
            Self::Save { id, job } => UndoTaskDone::Saved { id, done: job.run() },
            Self::Read { rollback, source } => {
                UndoTaskDone::Read { rollback, result: source.read() }
            }
            Self::Clone { id, storage, file, job } => {
                UndoTaskDone::Cloned { id, result: share(&*storage, &*file, job) }
            }
            Self::Remove { storage, id } => {
                UndoTaskDone::Removed { id, result: UndoLog::remove(&*storage, id) }
            }
        }
    }
}

impl UndoTask {
    /// Returns the failed result of a job that could not be completed.
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

fn share(storage: &dyn Storage, file: &dyn File, job: CloneJob) -> Result<Cloned, CloneFailure> {
    let source = file.clone_source().map_err(|source| CloneFailure::Store { source })?;
    let source = source.ok_or(CloneFailure::NoSource)?;
    Ok(job.run(storage, &*source)?)
}

/// A source of a single random number. The thread that owns the real generator has drawn the number
/// in advance.
struct Once(u64);

impl Entropy for Once {
    fn next_u64(&mut self) -> u64 {
        self.0
    }
}

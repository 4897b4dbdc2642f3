//! Jobs of undo that may block.
//!
//! Invariant: a job is the only user of its undo data. Meanwhile the undo data is `Busy`, or a
//! group of it or a clone is being written, or it is read for a rollback, during which nothing
//! changes its file.

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
        /// A number that distinguishes the undo data from older data.
        stream: u64,
        /// The size of the file in bytes.
        size: u64,
    },
    /// Opens undo data of the previous server to continue it.
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
        /// The write of the group.
        job: UndoJob,
    },
    /// Reads part of the undo data, to put it back.
    Read {
        /// The rollback that needs the data.
        rollback: RollbackId,
        /// The source of the next batch.
        source: Box<Source>,
    },
    /// Saves part of a file by sharing its blocks.
    Clone {
        /// The id of the undo data.
        id: UndoId,
        /// The storage of undo data.
        storage: Arc<dyn Storage>,
        /// The open file.
        file: Arc<dyn File>,
        /// The blocks to share.
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
    /// Undo data is open, or could not be opened.
    Opened {
        /// The id of the undo data.
        id: UndoId,
        /// The open undo data.
        result: Result<Box<UndoLog>, UndoError>,
    },
    /// A group is durable, or failed.
    Saved {
        /// The id of the undo data.
        id: UndoId,
        /// The result of the write.
        done: UndoDone,
    },
    /// A batch was read, or failed.
    Read {
        /// The rollback that needs the data.
        rollback: RollbackId,
        /// The batch; `None` if nothing was ever saved.
        result: Result<Option<Batch>, UndoError>,
    },
    /// Blocks are shared, or that failed.
    Cloned {
        /// The id of the undo data.
        id: UndoId,
        /// The shared blocks.
        result: Result<Cloned, CloneFailure>,
    },
    /// Undo data was removed, or stays for now.
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
    /// The store of the file does not share blocks.
    #[error("files of this store do not share blocks")]
    NoSource,
    /// The file could not be opened.
    #[error("the file cannot be opened to share its blocks")]
    Store { source: StoreError },
    #[error(transparent)]
    Storage(#[from] CloneError),
}

impl CloneFailure {
    /// Returns true if cloning will fail for all files of the same file system.
    pub fn is_for_good(&self) -> bool {
        match self {
            Self::NoSource | Self::Storage(CloneError::Unable { .. }) => true,
            Self::Store { .. } | Self::Storage(CloneError::Failed { .. }) => false,
        }
    }
}

impl UndoTask {
    /// Runs the job on this thread.
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
    /// The result if the job cannot be finished.
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

/// A random number drawn in advance by the thread that owns the generator.
struct Once(u64);

impl Entropy for Once {
    fn next_u64(&mut self) -> u64 {
        self.0
    }
}

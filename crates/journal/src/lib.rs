//! Stable storage for a server: a write-ahead log and undo data.
//!
//! The [`log`] stores records that must survive a crash, many of them with one sync, and
//! checkpoints of the state that they result in. [`undo`] stores the former contents of a file that
//! is changed under an auto-recovery lock, so that the changes can be rolled back. Both use a
//! [`storage`], a flat directory of named blobs. In production it is a real directory; in tests it
//! is a model of a disk that crashes.
//!
//! Invariant: data that was reported as durable survives every crash, and data that recovery has
//! once found lost never reappears. `docs/spec/journal.md` specifies the bytes on disk and the
//! guarantees of recovery. This crate handles bytes, records and files, and knows no protocol
//! messages or sessions.
#![forbid(unsafe_code)]

mod group;
pub mod log;
pub mod storage;
mod test_hooks;
pub mod undo;

pub use log::{Log, LogConfig, LogError, RecordKind, RecordNumber};
pub use storage::{
    Blob, BlobName, CloneError, CrashStorage, DirectoryStorage, Storage, StorageError, chain_of,
};
pub use undo::{Ranges, UndoConfig, UndoError, UndoId, UndoLog};

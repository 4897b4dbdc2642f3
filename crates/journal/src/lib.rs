//! Stable storage for a server: a write-ahead log and undo data.
//!
//! [`log`] keeps records that must outlive a crash, many of them to one sync, and a
//! checkpoint of what they amount to. [`undo`] keeps what a file held before it was
//! changed under a lock that promises to take the changes back. Both live on a
//! [`shelf`], a flat directory of named blobs, which is a real directory in production
//! and a model of a crashing disk in tests.
//!
//! Invariant: nothing is reported durable that a crash could take; nothing that was once
//! found lost comes back. What is on the disk, byte by byte, and what recovery promises
//! is `docs/spec/journal.md`. This crate knows bytes, records and files; no message of a
//! protocol and no session.
#![forbid(unsafe_code)]

mod group;
pub mod log;
pub mod shelf;
mod test_hooks;
pub mod undo;

pub use log::{Log, LogConfig, LogError, RecordKind, RecordNumber};
pub use shelf::{
    Blob, BlobName, CloneError, CrashShelf, DirectoryShelf, Shelf, ShelfError, chain_of,
};
pub use undo::{Ranges, UndoConfig, UndoError, UndoId, UndoLog};

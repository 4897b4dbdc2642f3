//! Operations, as the application names them and hears of their ends.
//!
//! Invariant: no two operations of a client have the same name.

use dafs_types::Verifier;

use crate::error::Result;

/// Names an operation of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(pub(crate) u64);

/// What an operation moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Bytes.
    pub length: u32,
    /// For a read: the file ends here.
    pub end_of_file: bool,
    /// For a write or commit: changes when unstable data may have been lost.
    pub verifier: Verifier,
}

/// The end of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which.
    pub operation: OperationId,
    /// The caller's own word, given at the submission.
    pub context: u64,
    /// How it ended.
    pub result: Result<Transferred>,
}

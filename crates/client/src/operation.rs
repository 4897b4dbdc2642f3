//! Operations and completions, as the application sees them.
//!
//! Invariant: operation ids are unique in a client.

use dafs_types::Verifier;

use crate::error::Result;

/// The id of an operation, unique within its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(pub(crate) u64);

/// The result of a read, write or commit that succeeded.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transferred {
    /// The number of bytes that were transferred.
    pub length: u32,
    /// For a read: true if the file ends after these bytes.
    pub end_of_file: bool,
    /// For a write or commit: the server's write verifier, which changes when the server may have
    /// lost unstable data. Compare the verifiers of a write and of the commit after it.
    pub verifier: Verifier,
}

/// The report that an operation has ended, and its result.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The id of the operation that has ended.
    pub operation: OperationId,
    /// The value that the caller passed when it submitted the operation.
    pub context: u64,
    /// The result of the operation if it succeeded, and otherwise its error.
    pub result: Result<Transferred>,
}

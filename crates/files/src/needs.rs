//! What a read or write must wait for.

use dafs_store::cache::{CachedFile, FillJob};

/// What must happen before data can be read or written.
#[derive(Debug)]
pub enum Need {
    /// These jobs of this file must be run.
    Fills(CachedFile, Vec<FillJob>),
    /// Jobs or transfers of this file that are in progress must end.
    Progress(CachedFile),
    /// The cache must have room; flushes must be run.
    Room,
}

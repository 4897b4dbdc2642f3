//! The work and events for which a read or write must wait.

use dafs_store::cache::{CachedFile, FillJob};

/// The work or event for which a read or write must wait.
#[derive(Debug)]
pub enum Need {
    /// These jobs of the file must be executed.
    Fills(CachedFile, Vec<FillJob>),
    /// The jobs or transfers of the file that are in progress must end.
    Progress(CachedFile),
    /// The cache has no free space. Dirty blocks must be flushed, so that their space can be
    /// reused.
    Room,
}

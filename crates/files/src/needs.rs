//! What data must wait for before it can be read or written.

use dafs_store::cache::{CachedFile, FillJob};

/// What comes first.
#[derive(Debug)]
pub enum Need {
    /// These jobs, for this file: somebody has to do them.
    Fills(CachedFile, Vec<FillJob>),
    /// Others' jobs or transfers on this file, which are under way.
    Progress(CachedFile),
    /// Room in the cache: flushes are due.
    Room,
}

//! Tracks which appends own the end of a file.
//!
//! Invariant: at most one append owns the end of a file.

use dafs_store::cache::CachedFile;

/// The files whose ends are owned by appends.
#[derive(Debug, Default)]
pub struct FileEnds {
    taken: Vec<CachedFile>,
}

impl FileEnds {
    /// Acquires the end of a file for an append. Returns false if another append owns it.
    pub fn take(&mut self, file: CachedFile) -> bool {
        let is_free = !self.taken.contains(&file);
        if is_free {
            self.taken.push(file);
        }
        is_free
    }

    /// Releases the end of a file, so that the next append can acquire it.
    pub fn leave(&mut self, file: CachedFile) {
        self.taken.retain(|other| *other != file);
    }
}

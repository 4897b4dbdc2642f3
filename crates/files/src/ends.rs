//! The ends of files that appends are extending.
//!
//! Invariant: at most one append owns the end of a file.

use dafs_store::cache::CachedFile;

/// All ends of files that appends own.
#[derive(Debug, Default)]
pub struct FileEnds {
    taken: Vec<CachedFile>,
}

impl FileEnds {
    /// Takes the end of a file. Returns false if another append owns it.
    pub fn take(&mut self, file: CachedFile) -> bool {
        let is_free = !self.taken.contains(&file);
        if is_free {
            self.taken.push(file);
        }
        is_free
    }

    /// Releases the end of a file.
    pub fn leave(&mut self, file: CachedFile) {
        self.taken.retain(|other| *other != file);
    }
}

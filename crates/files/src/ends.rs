//! Tracks which appends have reserved the end of a file.
//!
//! Invariant: at most one append at a time has reserved the end of a file.

use dafs_store::cache::CachedFile;

/// The files whose ends are reserved by appends.
#[derive(Debug, Default)]
pub struct FileEnds {
    taken: Vec<CachedFile>,
}

impl FileEnds {
    /// Reserves the end of a file for an append. Returns false if another append has reserved it.
    pub fn take(&mut self, file: CachedFile) -> bool {
        let is_free = !self.taken.contains(&file);
        if is_free {
            self.taken.push(file);
        }
        is_free
    }

    /// Gives up the reservation of a file's end, so that the next append can reserve it.
    pub fn leave(&mut self, file: CachedFile) {
        self.taken.retain(|other| *other != file);
    }
}

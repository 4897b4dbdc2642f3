//! Ends of files that appends are about to move.
//!
//! Invariant: the end of a file belongs to one append at most.

use dafs_store::cache::CachedFile;

/// All ends that are taken.
#[derive(Debug, Default)]
pub struct Ends {
    taken: Vec<CachedFile>,
}

impl Ends {
    /// Takes the end of a file. False if another append has it.
    pub fn take(&mut self, file: CachedFile) -> bool {
        let is_free = !self.taken.contains(&file);
        if is_free {
            self.taken.push(file);
        }
        is_free
    }

    /// Gives the end of a file back.
    pub fn leave(&mut self, file: CachedFile) {
        self.taken.retain(|other| *other != file);
    }
}

//! What writes hold besides room in the cache: ends of files, and memory of their own.

use dafs_store::cache::CachedFile;

/// What all writes hold together.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// Files whose end an append is about to move.
    appending: Vec<CachedFile>,
    /// Bytes that writes with checksums hold before they are looked at.
    sealed_bytes: usize,
}

impl Writes {
    /// Takes the end of a file. False if another append has it.
    pub fn take_end(&mut self, file: CachedFile) -> bool {
        let is_free = !self.appending.contains(&file);
        if is_free {
            self.appending.push(file);
        }
        is_free
    }

    /// Gives the end of a file back.
    pub fn leave_end(&mut self, file: CachedFile) {
        self.appending.retain(|other| *other != file);
    }

    /// Bytes that writes with checksums hold.
    pub fn sealed_bytes(&self) -> usize {
        self.sealed_bytes
    }

    /// A write with a checksum takes memory.
    pub fn hold_sealed(&mut self, bytes: u32) {
        self.sealed_bytes += bytes as usize;
    }

    /// It gives its memory back.
    pub fn release_sealed(&mut self, bytes: u32) {
        self.sealed_bytes -= bytes as usize;
    }
}

//! What writes hold besides room in the cache: ends of files, and memory of their own.

use dafs_files::ends::Ends;

/// What all writes hold together.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// Ends of files that appends are about to move.
    pub ends: Ends,
    /// Bytes that writes with checksums hold before they are looked at.
    sealed_bytes: usize,
}

impl Writes {
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

//! The interface through which the journal shares the blocks of a file that the store has opened.
//!
//! Invariant: shared ranges begin and end at multiples of the source's block size.

use std::fs::File;
use std::io;

/// An open file whose blocks another file can share, on file systems with reflinks. All methods may
/// block.
pub trait CloneSource: Send + Sync {
    /// Returns the file as the operating system knows it. `None` for a simulated file, whose bytes
    /// must be read with [`CloneSource::read_at`].
    fn file(&self) -> Option<&File>;

    /// Returns the current size in bytes.
    ///
    /// # Errors
    /// The error of the system.
    fn size(&self) -> io::Result<u64>;

    /// Returns the block size in bytes.
    ///
    /// # Errors
    /// The error of the system.
    fn block_bytes(&self) -> io::Result<u64>;

    /// Reads bytes, starting at `offset`. Returns the number of bytes read, which is less than the
    /// buffer's length only at the end of the file.
    ///
    /// # Errors
    /// The error of the system.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

//! The interface between journal and store for a file that shares its blocks with another file.
//!
//! Invariant: shared ranges begin and end at multiples of the source's block size.

use std::fs::File;
use std::io;

/// An open file that another file can share blocks with, on file systems with reflinks. All methods
/// may block.
pub trait CloneSource: Send + Sync {
    /// Returns the file as the system knows it; `None` for a simulated file, for which
    /// [`CloneSource::read_at`] must be used.
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

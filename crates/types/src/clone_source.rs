//! What journal and store tell each other about a file whose blocks another file is to share.
//!
//! Invariant: ranges that are shared begin and end at multiples of what the source says.

use std::fs::File;
use std::io;

/// An open file that another file may share blocks with, where the file system has reflinks.
/// All calls may block.
pub trait CloneSource: Send + Sync {
    /// The file as the system knows it; `None` for one that is only simulated, of which
    /// [`CloneSource::read_at`] must do.
    fn file(&self) -> Option<&File>;

    /// Bytes it has now.
    ///
    /// # Errors
    /// What the system says.
    fn size(&self) -> io::Result<u64>;

    /// Bytes of a block.
    ///
    /// # Errors
    /// What the system says.
    fn block_bytes(&self) -> io::Result<u64>;

    /// Reads bytes from `offset` on; fewer than asked for only at the end.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

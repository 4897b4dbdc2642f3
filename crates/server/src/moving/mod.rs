//! Bytes on their way between the cache and clients.
//!
//! Invariant: bytes are posted from pinned pieces alone, and pins come back whatever happens to the
//! connection.

pub(crate) mod hits;
pub(crate) mod read;
pub(crate) mod sealed;
pub(crate) mod shares;
pub(crate) mod stalls;
pub(crate) mod sums;
pub(crate) mod transfer;
pub(crate) mod write;

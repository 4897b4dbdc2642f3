//! Transfers of bytes between the cache and clients.
//!
//! Invariant: the transport reads only from pinned cache blocks, and every pin is released, even if
//! the connection breaks.

pub(crate) mod hits;
pub(crate) mod read;
pub(crate) mod sealed;
pub(crate) mod shares;
pub(crate) mod stalls;
pub(crate) mod sums;
pub(crate) mod transfer;
pub(crate) mod write;

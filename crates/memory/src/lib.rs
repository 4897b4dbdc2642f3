//! Memory that somebody else may change: huge-page arenas, sealed memory files
//! shared with another process, and plain buffers lent to a transport.
//!
//! Invariant: a [`Memory`] never hands out a Rust reference to its bytes. Another
//! process, a transport or the kernel may write them at any moment, so every
//! access is a copy of bytes in or out, or a system call on a range, each checked
//! against the length first. That makes the type safe to share freely; what a
//! racing reader sees is some mix of old and new bytes, which is all that any
//! network file system promises for overlapping I/O.
//!
//! This crate, `dat` and `gss` are the only ones below the faces with `unsafe` blocks.
//! Both floors (`dat` and `store`) stand on it; see `docs/decisions/0002`.

mod backing;
mod copy;
mod file_io;
mod forward;
pub mod kernel_handle;
mod pages;
pub mod quota;
pub mod registrations;
mod view;
mod watch;

pub use backing::{ImportError, Memory, Pages, Pinned, lost_mappings};
pub use copy::prefetch;
pub use registrations::{CacheCounters, CacheLimits, RegistrationCache};
pub use view::{Cut, FileView, VIEWS_MAX};
pub use watch::{WatchError, Watched};

/// Bytes in the smallest page the processor maps.
pub const PAGE_BYTES: usize = 4096;
/// Bytes in a cache line.
pub const LINE_BYTES: usize = 64;
/// Bytes in a huge page.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

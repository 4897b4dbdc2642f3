//! Memory that other parties may change at any time: huge-page arenas, sealed memory files shared
//! with another process, and plain buffers lent to a transport.
//!
//! Invariant: a [`Memory`] never returns a Rust reference to its bytes, because another process, a
//! transport or the kernel may write them at any time. So every access is a copy of bytes in or
//! out, or a system call on a range, and checks the range against the length first. That makes the
//! type safe to share. A reader that races with a writer sees a mix of old and new bytes, which is
//! all that any network file system guarantees for overlapping I/O.
//!
//! Apart from the programs and the libraries for applications, only this crate, `dat` and `gss`
//! have `unsafe` blocks. Both `dat` and `store` use this crate; see `docs/decisions/0002`.

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

/// The number of bytes of the smallest page that the processor maps.
pub const PAGE_BYTES: usize = 4096;
/// The number of bytes of a cache line.
pub const LINE_BYTES: usize = 64;
/// The number of bytes of a huge page.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

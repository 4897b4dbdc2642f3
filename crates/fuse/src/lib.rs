//! DAFS as a mounted file system.
//!
//! [`Mount::new`] mounts a directory with the crate `fuser`, which implements mounting as root and
//! through `fusermount3`, and the negotiation of version and capabilities with the kernel. This
//! crate reads the requests that follow (`abi.rs`), in the thread that owns the session with the
//! server. That thread sends a request to the server when it receives one, and a reply to the
//! kernel when the server's reply arrives. Data moves between `/dev/fuse` and registered memory
//! without a further copy. `docs/decisions/0023-mount.md` gives the reasons.
//!
//! Invariant: the server is authoritative. The kernel caches attributes and names only for the time
//! that the mount options set.
#![forbid(unsafe_code)]

mod abi;
mod attributes;
mod data;
mod directories;
mod dispatch;
mod engine;
mod files;
mod interrupts;
mod locks;
mod mount;
mod names;
mod nodes;
mod options;
mod reply;
mod requests;
mod tasks;
mod uncovered;
mod unstable;
mod xattrs;

pub use mount::{Mount, MountError, Unmounted, Unmounter, unmount};
pub use options::{MountOptions, OptionError};

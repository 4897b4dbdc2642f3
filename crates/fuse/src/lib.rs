//! DAFS as a mounted file system.
//!
//! [`Mount::new`] mounts a directory by the crate `fuser`, which knows how that is done as root
//! and through `fusermount3`, and agrees with the kernel on a version and on capabilities. The
//! requests that follow are read here (`abi.rs`), by the thread that owns the session with the
//! server: a request is sent on by whoever takes it in, and its answer given by whoever gets it.
//! Reads and writes move between `/dev/fuse` and registered memory without a copy between.
//! `docs/decisions/0023-mount.md` says why.
//!
//! Invariant: the server decides. What the kernel keeps, it keeps for as long as the options of
//! the mount say.
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

//! A store in memory, with size limits.
//!
//! Invariants:
//! - The number of bytes and objects never exceeds the limits. A call that would exceed a limit
//!   fails with `NoSpace` and changes nothing.
//! - Time stamps always rise: two changes never have the same stamp.

mod file;
mod ops;
mod tree;

use std::sync::{Arc, Mutex};

use tree::Tree;

/// The limits of a [`MemoryStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The maximum number of bytes of file data; holes count like data.
    pub bytes_max: u64,
    /// The maximum number of objects of all types, including the root.
    pub object_count_max: usize,
}

/// A store that keeps a tree in memory. The tree is lost when the process ends.
pub struct MemoryStore {
    tree: Arc<Mutex<Tree>>,
}

impl MemoryStore {
    /// Creates a store with an empty root directory that belongs to the superuser and has mode
    /// 0755.
    #[must_use]
    pub fn new(limits: MemoryLimits) -> Self {
        Self::owned_by(limits, 0, 0)
    }

    /// Creates a store with an empty root directory that belongs to this user and group.
    #[must_use]
    pub fn owned_by(limits: MemoryLimits, uid: u32, gid: u32) -> Self {
        Self { tree: Arc::new(Mutex::new(Tree::new(limits, (uid, gid)))) }
    }
}

//! A store in memory, with size limits.
//!
//! Invariants:
//! - Bytes and objects never exceed the limits. A call that would exceed them fails with `NoSpace`
//!   and changes nothing.
//! - Time never stands still: two changes never have the same stamp.

mod file;
mod ops;
mod tree;

use std::sync::{Arc, Mutex};

use tree::Tree;

/// The limits of a [`MemoryStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The most bytes of file data; holes count like data.
    pub bytes_max: u64,
    /// The most objects of all types, including the root.
    pub object_count_max: usize,
}

/// A tree in memory. It is lost when the process ends.
pub struct MemoryStore {
    tree: Arc<Mutex<Tree>>,
}

impl MemoryStore {
    /// Creates an empty tree whose root belongs to the superuser and has mode 0755.
    #[must_use]
    pub fn new(limits: MemoryLimits) -> Self {
        Self::owned_by(limits, 0, 0)
    }

    /// Creates an empty tree whose root belongs to this user and group.
    #[must_use]
    pub fn owned_by(limits: MemoryLimits, uid: u32, gid: u32) -> Self {
        Self { tree: Arc::new(Mutex::new(Tree::new(limits, (uid, gid)))) }
    }
}

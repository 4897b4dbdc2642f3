//! A store that lives in memory, within bounds.
//!
//! Invariant: bytes and objects never exceed the limits given; whatever would gets
//! `NoSpace` and changes nothing. Time never stands still: two changes never carry
//! the same stamp.

mod file;
mod ops;
mod tree;

use std::sync::{Arc, Mutex};

use tree::Tree;

/// Bounds of a [`MemoryStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Bytes of file data; a hole counts like data.
    pub bytes_max: u64,
    /// Objects of all kinds, the root among them.
    pub object_count_max: usize,
}

/// A tree in memory. Nothing survives it.
pub struct MemoryStore {
    tree: Arc<Mutex<Tree>>,
}

impl MemoryStore {
    /// An empty tree whose root belongs to the superuser with mode 0755.
    #[must_use]
    pub fn new(limits: MemoryLimits) -> Self {
        Self::owned_by(limits, 0, 0)
    }

    /// The same, with a root that belongs to a user and a group.
    #[must_use]
    pub fn owned_by(limits: MemoryLimits, uid: u32, gid: u32) -> Self {
        Self { tree: Arc::new(Mutex::new(Tree::new(limits, (uid, gid)))) }
    }
}

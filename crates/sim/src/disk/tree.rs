//! Objects, names and block maps: the metadata in a file system's journal.
//!
//! Invariant: a tree changes only by [`Tree::apply`]. The same changes in the same order result in
//! the same tree, so that the disk's copy after some operations equals the tree that processes saw
//! after these operations.

use std::collections::BTreeMap;
use std::sync::Arc;

use dafs_store::store::FIRST_COOKIE;
use dafs_store::{Attributes, Result, StoreError};
use dafs_types::{ObjectType, Verifier};

use super::platter::{BLOCK_BYTES, BlockId};

/// The number of an object. It is never reused, even if a crash has undone the creation of the
/// object.
pub(super) type Number = u64;

/// All objects.
#[derive(Clone, Default)]
pub(super) struct Tree {
    pub inodes: BTreeMap<Number, Inode>,
    /// The number of bytes of file data, including holes.
    pub bytes: u64,
}

/// One object.
#[derive(Clone)]
pub(super) struct Inode {
    pub meta: Meta,
    pub content: Content,
}

/// The metadata of an object, which is set as a whole.
#[derive(Clone, Copy)]
pub(super) struct Meta {
    pub attributes: Attributes,
    /// The parent of a directory; the root is its own parent.
    pub parent: Number,
    /// The verifier of the exclusive creation that made the object.
    pub verifier: Option<Verifier>,
}

/// The content of an object.
#[derive(Clone)]
pub(super) enum Content {
    /// The data of a file: the block for each 4 KiB. Parts without a block are zeros.
    Data(BTreeMap<u64, BlockId>),
    Directory(Entries),
    Text(Arc<[u8]>),
    Nothing,
}

/// The entries of a directory in the order of their cookies, which are never reused.
#[derive(Clone, Default)]
pub(super) struct Entries {
    pub by_cookie: BTreeMap<u64, (Arc<[u8]>, Number)>,
    by_name: BTreeMap<Arc<[u8]>, u64>,
    next_cookie: u64,
}

impl Entries {
    pub(super) fn get(&self, name: &[u8]) -> Option<Number> {
        self.by_name.get(name).map(|cookie| self.by_cookie[cookie].1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    fn insert(&mut self, name: &Arc<[u8]>, number: Number) {
        self.remove(name);
        let cookie = self.next_cookie.max(FIRST_COOKIE);
        self.next_cookie = cookie + 1;
        self.by_name.insert(name.clone(), cookie);
        self.by_cookie.insert(cookie, (name.clone(), number));
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some(cookie) = self.by_name.remove(name) {
            self.by_cookie.remove(&cookie);
        }
    }
}

/// The smallest change of a tree, of which operations consist.
#[derive(Clone)]
pub(super) enum Change {
    /// Adds an object.
    Make(Inode),
    /// Sets the metadata of an object.
    Set(Number, Meta),
    /// Adds a name, or replaces an existing one.
    Enter { directory: Number, name: Arc<[u8]>, number: Number },
    /// Removes a name.
    Leave { directory: Number, name: Arc<[u8]> },
    /// Adds a block for 4 KiB that had none.
    Map { number: Number, index: u64, block: BlockId },
    /// Removes the data of a file beyond its size.
    Cut(Number),
    /// Removes an object that nothing refers to.
    Free(Number),
}

/// The effect of a change of the tree on the blocks of data.
#[derive(Default)]
pub(super) struct DataEffects {
    /// The blocks that no longer belong to any file.
    pub freed: Vec<BlockId>,
    /// A block, and the offset in bytes from which on the block must be zeros. `None` if there is
    /// no such block.
    pub tail: Option<(BlockId, usize)>,
}

impl Tree {
    pub(super) fn get(&self, number: Number) -> Result<&Inode> {
        self.inodes.get(&number).ok_or(StoreError::Stale)
    }

    pub(super) fn attributes(&self, number: Number) -> Result<Attributes> {
        self.get(number).map(|inode| inode.meta.attributes)
    }

    pub(super) fn entries(&self, number: Number) -> Result<&Entries> {
        match &self.get(number)?.content {
            Content::Directory(entries) => Ok(entries),
            Content::Data(_) | Content::Text(_) | Content::Nothing => Err(StoreError::NotDirectory),
        }
    }

    pub(super) fn blocks(&self, number: Number) -> Result<&BTreeMap<u64, BlockId>> {
        match &self.get(number)?.content {
            Content::Data(blocks) => Ok(blocks),
            Content::Directory(_) | Content::Text(_) | Content::Nothing => Err(StoreError::Invalid),
        }
    }

    /// Applies a change. The caller must have checked that the objects in the change exist, on this
    /// tree or on the tree of which this tree is a delayed copy.
    pub(super) fn apply(&mut self, change: &Change) -> DataEffects {
        match change {
            Change::Make(inode) => {
                self.inodes.insert(inode.meta.attributes.file_id, inode.clone());
            }
            Change::Set(number, meta) => self.set(*number, meta),
            Change::Enter { directory, name, number } => {
                self.change_entries(*directory, |entries| entries.insert(name, *number));
            }
            Change::Leave { directory, name } => {
                self.change_entries(*directory, |entries| entries.remove(name));
            }
            Change::Map { number, index, block } => {
                if let Content::Data(blocks) = &mut self.known(*number).content {
                    blocks.insert(*index, *block);
                }
            }
            Change::Cut(number) => return self.cut(*number),
            Change::Free(number) => return self.free(*number),
        }
        DataEffects::default()
    }

    fn set(&mut self, number: Number, meta: &Meta) {
        let inode = self.known(number);
        let (before, after) = (inode.meta.attributes.size, meta.attributes.size);
        let has_data = inode.meta.attributes.kind == ObjectType::Regular;
        inode.meta = *meta;
        if has_data {
            self.bytes = self.bytes - before + after;
        }
    }

    fn cut(&mut self, number: Number) -> DataEffects {
        let inode = self.known(number);
        let size = inode.meta.attributes.size;
        let Content::Data(blocks) = &mut inode.content else { return DataEffects::default() };
        let freed = blocks.split_off(&size.div_ceil(BLOCK_BYTES as u64));
        let within = (size % BLOCK_BYTES as u64) as usize;
        let last = blocks.get(&(size / BLOCK_BYTES as u64)).filter(|_| within > 0);
        DataEffects {
            tail: last.map(|block| (*block, within)),
            freed: freed.into_values().collect(),
        }
    }

    pub(super) fn free(&mut self, number: Number) -> DataEffects {
        let Some(inode) = self.inodes.remove(&number) else { return DataEffects::default() };
        let Content::Data(blocks) = inode.content else { return DataEffects::default() };
        self.bytes -= inode.meta.attributes.size;
        DataEffects { freed: blocks.into_values().collect(), tail: None }
    }

    fn change_entries(&mut self, directory: Number, change: impl FnOnce(&mut Entries)) {
        if let Content::Directory(entries) = &mut self.known(directory).content {
            change(entries);
        }
    }

    fn known(&mut self, number: Number) -> &mut Inode {
        self.inodes.get_mut(&number).expect("a change names an existing object")
    }
}

/// The number of the root directory.
pub(super) const ROOT: Number = 1;

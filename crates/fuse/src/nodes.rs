//! Nodes, which identify objects to the kernel.
//!
//! Invariant: a node number is never reused, so the kernel cannot confuse two objects. An object
//! keeps its node as long as the kernel holds a lookup of it.

use std::collections::HashMap;

use dafs_client::Metadata;
use dafs_posix::stat::Stat;
use dafs_types::FileHandle;

use crate::abi::ROOT;

/// The state of an object that the kernel knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub handle: FileHandle,
    /// The number of lookups that the kernel holds.
    lookups: u64,
    /// The mode of the object at the most recent query.
    pub mode: u32,
    /// The group id of the object at the most recent query.
    pub gid: u32,
    /// All attributes at the most recent query. `None` for the root before its first query.
    pub last: Option<Stat>,
    /// The change attribute of the object when the page cache was last known to be valid.
    pub cached_change: Option<u64>,
}

impl Node {
    /// Stores the attributes of a query.
    pub(crate) fn seen(&mut self, stat: &Stat) {
        (self.mode, self.gid) = (stat.mode, stat.gid);
        self.last = Some(*stat);
    }

    /// Returns the attributes to report for a directory that was removed while a process still uses
    /// it: the last attributes, with a link count of zero. Returns `None` for other objects.
    pub(crate) fn removed_directory(&self) -> Option<Stat> {
        let is_directory = self.mode & FILE_TYPE == DIRECTORY;
        self.last.filter(|_| is_directory).map(|stat| Stat { links: 0, ..stat })
    }
}

/// All nodes that the kernel knows.
#[derive(Debug)]
pub(crate) struct Nodes {
    by_number: HashMap<u64, Node>,
    by_handle: HashMap<FileHandle, u64>,
    next: u64,
}

impl Nodes {
    /// Makes a table with only the root.
    pub(crate) fn new(root: FileHandle) -> Self {
        let node =
            Node { handle: root, lookups: 1, mode: 0, gid: 0, last: None, cached_change: None };
        Self {
            by_number: HashMap::from([(ROOT, node)]),
            by_handle: HashMap::from([(root, ROOT)]),
            next: ROOT + 1,
        }
    }

    /// Returns the node with a number, or `None` if the kernel has forgotten it.
    pub(crate) fn get(&self, number: u64) -> Option<Node> {
        self.by_number.get(&number).copied()
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Node> {
        self.by_number.get_mut(&number)
    }

    /// Counts a lookup of an object that is about to be sent to the kernel. Returns the node
    /// number.
    pub(crate) fn look_up(&mut self, metadata: &Metadata, stat: &Stat) -> u64 {
        let number = *self.by_handle.entry(metadata.handle).or_insert_with(|| {
            self.next += 1;
            self.next - 1
        });
        let node = self.by_number.entry(number).or_insert(Node {
            handle: metadata.handle,
            lookups: 0,
            mode: 0,
            gid: 0,
            last: None,
            cached_change: None,
        });
        node.lookups += 1;
        node.seen(stat);
        number
    }

    /// Subtracts lookups that the kernel has forgotten. Removes the node if none are left.
    pub(crate) fn forget(&mut self, number: u64, count: u64) {
        let Some(node) = self.by_number.get_mut(&number) else { return };
        node.lookups = node.lookups.saturating_sub(count);
        if node.lookups == 0 && number != ROOT {
            let handle = node.handle;
            self.by_number.remove(&number);
            self.by_handle.remove(&handle);
        }
    }
}

const FILE_TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;

#[cfg(test)]
mod tests {
    use dafs_client::ObjectType;
    use dafs_posix::stat::Names;

    use super::*;

    fn object(byte: u8) -> Metadata {
        let mut object = Metadata::new(ObjectType::Regular, FileHandle([byte; FileHandle::LENGTH]));
        (object.mode, object.file_id) = (0o644, byte.into());
        object
    }

    fn shown(byte: u8) -> Stat {
        Stat::of(&object(byte), &Names::default())
    }

    #[test]
    fn a_node_lasts_until_all_its_look_ups_are_given_back() {
        let mut nodes = Nodes::new(FileHandle::NULL);
        let number = nodes.look_up(&object(1), &shown(1));
        assert_eq!(nodes.look_up(&object(1), &shown(1)), number);
        nodes.forget(number, 1);
        assert!(nodes.get(number).is_some());
        nodes.forget(number, 1);
        assert!(nodes.get(number).is_none());
        assert_ne!(nodes.look_up(&object(1), &shown(1)), number, "numbers are not used again");
    }

    #[test]
    fn only_directories_are_shown_when_they_are_removed() {
        let mut nodes = Nodes::new(FileHandle::NULL);
        let file = nodes.look_up(&object(1), &shown(1));
        assert_eq!(nodes.get(file).unwrap().removed_directory(), None);
        let mut directory = object(2);
        (directory.kind, directory.link_count) = (ObjectType::Directory, 2);
        let stat = Stat::of(&directory, &Names::default());
        let directory = nodes.look_up(&directory, &stat);
        let removed = nodes.get(directory).unwrap().removed_directory();
        assert_eq!(removed, Some(Stat { links: 0, ..stat }));
    }

    #[test]
    fn the_root_stays() {
        let mut nodes = Nodes::new(FileHandle::NULL);
        nodes.forget(ROOT, 5);
        assert!(nodes.get(ROOT).is_some());
    }
}

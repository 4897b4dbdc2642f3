//! Nodes: what the kernel knows objects by.
//!
//! Invariant: a node's number is never used again, so the kernel cannot take one object for
//! another; an object has one node for as long as the kernel holds a look-up of it.

use std::collections::HashMap;

use dafs_client::Metadata;
use dafs_posix::stat::Stat;
use dafs_types::FileHandle;

use crate::abi::ROOT;

/// What is known of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub handle: FileHandle,
    /// Look-ups that the kernel holds.
    lookups: u64,
    /// The mode when it was last looked at.
    pub mode: u32,
    /// The group then.
    pub gid: u32,
    /// All that was seen then; nothing of the root before it was looked at.
    pub last: Option<Stat>,
    /// Its change attribute when the page cache was last known to be good.
    pub cached_change: Option<u64>,
}

impl Node {
    /// It was looked at.
    pub fn seen(&mut self, stat: &Stat) {
        (self.mode, self.gid) = (stat.mode, stat.gid);
        self.last = Some(*stat);
    }

    /// What is shown of a directory that is not there any more, as a local file system shows one
    /// that somebody still works in: nothing leads to it. `None` for others.
    pub fn removed_directory(&self) -> Option<Stat> {
        let is_directory = self.mode & FILE_TYPE == DIRECTORY;
        self.last.filter(|_| is_directory).map(|stat| Stat { links: 0, ..stat })
    }
}

/// All nodes.
#[derive(Debug)]
pub(crate) struct Nodes {
    by_number: HashMap<u64, Node>,
    by_handle: HashMap<FileHandle, u64>,
    next: u64,
}

impl Nodes {
    /// The root alone.
    pub fn new(root: FileHandle) -> Self {
        let node =
            Node { handle: root, lookups: 1, mode: 0, gid: 0, last: None, cached_change: None };
        Self {
            by_number: HashMap::from([(ROOT, node)]),
            by_handle: HashMap::from([(root, ROOT)]),
            next: ROOT + 1,
        }
    }

    /// The node of a number; `None` for one the kernel has forgotten.
    pub fn get(&self, number: u64) -> Option<Node> {
        self.by_number.get(&number).copied()
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut Node> {
        self.by_number.get_mut(&number)
    }

    /// The kernel is about to be told of an object: its number.
    pub fn look_up(&mut self, metadata: &Metadata, stat: &Stat) -> u64 {
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

    /// The kernel gives look-ups back.
    pub fn forget(&mut self, number: u64, count: u64) {
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
    use dafs_client::{DeviceNumber, ObjectType, Timestamp};
    use dafs_posix::stat::Names;

    use super::*;

    fn object(byte: u8) -> Metadata {
        Metadata {
            kind: ObjectType::Regular,
            mode: 0o644,
            link_count: 1,
            size: 0,
            file_id: byte.into(),
            space_used: 0,
            time_access: Timestamp::default(),
            time_modify: Timestamp::default(),
            time_metadata: Timestamp::default(),
            owner: String::new(),
            owner_group: String::new(),
            change: 0,
            handle: FileHandle([byte; FileHandle::LENGTH]),
            device: DeviceNumber::default(),
        }
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
        let directory = Metadata { kind: ObjectType::Directory, link_count: 2, ..object(2) };
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

//! The tables of recently used objects: their nodes, and the names under which they were last seen.
//!
//! Invariant: the size of both tables is limited. An object that was dropped from the tables can be
//! found again by its handle.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dafs_types::{FileHandle, QuickMap};

use super::node::{Inode, Node};

/// The nodes of recently used objects. The clock algorithm chooses the node to drop.
pub(super) struct NodeTable {
    /// The nodes, each with a flag that says whether it was used recently. A node keeps its slot,
    /// because moving it would touch memory that is not in the processor's cache.
    slots: Vec<Option<(Arc<Node>, bool)>>,
    /// The free slots.
    free: Vec<usize>,
    places: QuickMap<FileHandle, usize>,
    /// The slot of the node of each inode. If an inode has several nodes, it is the slot of the
    /// newest node.
    inodes: QuickMap<Inode, usize>,
    count_max: usize,
    hand: usize,
    /// The slot after which the next call of [`NodeTable::next_part`] continues.
    look: usize,
    /// The nodes of removed objects. They are closed later, when no client waits for a reply.
    dead: Vec<Arc<Node>>,
}

impl NodeTable {
    pub(super) fn new(count_max: usize) -> Self {
        let (places, inodes) = (QuickMap::default(), QuickMap::default());
        let (slots, free, dead) = (Vec::new(), Vec::new(), Vec::new());
        Self { slots, free, places, inodes, count_max: count_max.max(8), hand: 0, look: 0, dead }
    }

    /// Removes the node of a removed object. The node's descriptor stays open until the caller
    /// takes the dead nodes, because closing the last descriptor makes the system free the object's
    /// storage.
    pub(super) fn retire(&mut self, node: Arc<Node>) {
        self.remove(&node.handle);
        if self.dead.len() >= DEAD_COUNT_MAX {
            self.dead.clear();
        }
        self.dead.push(node);
    }

    pub(super) fn take_dead(&mut self) -> Vec<Arc<Node>> {
        std::mem::take(&mut self.dead)
    }

    pub(super) fn get(&mut self, handle: &FileHandle) -> Option<Arc<Node>> {
        let place = *self.places.get(handle)?;
        self.take(place)
    }

    pub(super) fn of_inode(&mut self, inode: &Inode) -> Option<Arc<Node>> {
        let place = *self.inodes.get(inode)?;
        self.take(place)
    }

    fn take(&mut self, place: usize) -> Option<Arc<Node>> {
        let (node, was_used) = self.slots[place].as_mut()?;
        *was_used = true;
        Some(node.clone())
    }

    /// Returns the nodes to check now. `elapsed` is the time since the last call. Each node is
    /// checked once in every [`LOOK_PERIOD`].
    pub(super) fn next_part(&mut self, elapsed: Duration) -> Vec<Arc<Node>> {
        let part = elapsed.as_secs_f64() / LOOK_PERIOD.as_secs_f64();
        let count = ((self.slots.len() as f64 * part).ceil() as usize).min(self.slots.len());
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            self.look = self.behind(self.look);
            taken.extend(self.slots[self.look].as_ref().map(|(node, _)| node.clone()));
        }
        taken
    }

    /// Returns the slot after `place`, wrapping around from the last slot to the first.
    fn behind(&self, place: usize) -> usize {
        if place + 1 >= self.slots.len() { 0 } else { place + 1 }
    }

    pub(super) fn insert(&mut self, node: Arc<Node>) {
        self.remove(&node.handle);
        while self.places.len() >= self.count_max {
            self.hand = self.behind(self.hand);
            if let Some((node, was_used)) = &mut self.slots[self.hand]
                && !std::mem::take(was_used)
            {
                let victim = node.handle;
                self.remove(&victim);
            }
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.places.insert(node.handle, place);
        self.inodes.insert(node.inode, place);
        self.slots[place] = Some((node, false));
    }

    pub(super) fn remove(&mut self, handle: &FileHandle) {
        let Some(place) = self.places.remove(handle) else { return };
        self.free.push(place);
        if let Some((gone, _)) = self.slots[place].take()
            && self.inodes.get(&gone.inode) == Some(&place)
        {
            self.inodes.remove(&gone.inode);
        }
    }
}

/// The names under which objects without kernel handles were last seen. The number of entries is
/// limited.
#[derive(Default)]
pub(super) struct Hints {
    seen: QuickMap<FileHandle, (FileHandle, Box<[u8]>)>,
    order: VecDeque<FileHandle>,
}

impl Hints {
    pub(super) fn get(&self, handle: &FileHandle) -> Option<(FileHandle, Box<[u8]>)> {
        self.seen.get(handle).cloned()
    }

    pub(super) fn insert(&mut self, handle: FileHandle, parent: FileHandle, name: &[u8]) {
        if self.seen.insert(handle, (parent, name.into())).is_some() {
            return;
        }
        self.order.push_back(handle);
        if self.order.len() > HINT_COUNT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
    }
}

/// The maximum number of removed objects that are kept open until they are closed later. One tick
/// finds fewer, even if local processes have removed all known objects.
const DEAD_COUNT_MAX: usize = 256;
/// The period in which every node is checked once.
const LOOK_PERIOD: Duration = Duration::from_secs(10);
/// The maximum number of names remembered for objects without kernel handles.
const HINT_COUNT_MAX: usize = 262_144;

//! What is remembered of objects: their nodes, and where they were seen.
//!
//! Invariant: both are bounded; what falls out is found again by its handle.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use dafs_types::{FileHandle, QuickMap};

use super::node::{Inode, Node};

/// Nodes in recent use, with a bound; a clock chooses who goes.
pub(super) struct NodeTable {
    slots: Vec<(Arc<Node>, bool)>,
    places: QuickMap<FileHandle, usize>,
    /// Of several nodes of one inode, the newest.
    inodes: QuickMap<Inode, usize>,
    count_max: usize,
    hand: usize,
    /// Who was looked at last, by [`NodeTable::next_part`].
    look: usize,
    /// Removed objects whose last descriptor is closed when nobody waits for it.
    dead: Vec<Arc<Node>>,
}

impl NodeTable {
    pub fn new(count_max: usize) -> Self {
        let (places, inodes) = (QuickMap::default(), QuickMap::default());
        let (slots, dead) = (Vec::new(), Vec::new());
        Self { slots, places, inodes, count_max: count_max.max(8), hand: 0, look: 0, dead }
    }

    /// Forgets an object that was removed; its descriptor stays open until the dead are taken,
    /// for the system frees what the object held when that is closed.
    pub fn bury(&mut self, node: Arc<Node>) {
        self.remove(&node.handle);
        if self.dead.len() >= DEAD_COUNT_MAX {
            self.dead.clear();
        }
        self.dead.push(node);
    }

    pub fn take_dead(&mut self) -> Vec<Arc<Node>> {
        std::mem::take(&mut self.dead)
    }

    pub fn get(&mut self, handle: &FileHandle) -> Option<Arc<Node>> {
        let place = *self.places.get(handle)?;
        Some(self.take(place))
    }

    pub fn of_inode(&mut self, inode: &Inode) -> Option<Arc<Node>> {
        let place = *self.inodes.get(inode)?;
        Some(self.take(place))
    }

    fn take(&mut self, place: usize) -> Arc<Node> {
        let (node, was_used) = &mut self.slots[place];
        *was_used = true;
        node.clone()
    }

    /// The nodes to be looked at after so much time, so that all are in [`LOOK_PERIOD`].
    pub fn next_part(&mut self, elapsed: Duration) -> Vec<Arc<Node>> {
        let part = elapsed.as_secs_f64() / LOOK_PERIOD.as_secs_f64();
        let count = ((self.slots.len() as f64 * part).ceil() as usize).min(self.slots.len());
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            // Backwards: who takes the place of one that goes has been looked at.
            let before = if self.look == 0 { self.slots.len() } else { self.look };
            self.look = before.min(self.slots.len()) - 1;
            taken.push(self.slots[self.look].0.clone());
        }
        taken
    }

    pub fn insert(&mut self, node: Arc<Node>) {
        self.remove(&node.handle);
        while self.slots.len() >= self.count_max {
            self.hand = if self.hand + 1 >= self.slots.len() { 0 } else { self.hand + 1 };
            if !std::mem::take(&mut self.slots[self.hand].1) {
                let victim = self.slots[self.hand].0.handle;
                self.remove(&victim);
            }
        }
        self.places.insert(node.handle, self.slots.len());
        self.inodes.insert(node.inode, self.slots.len());
        self.slots.push((node, false));
    }

    pub fn remove(&mut self, handle: &FileHandle) {
        if let Some(place) = self.places.remove(handle) {
            let (gone, _) = self.slots.swap_remove(place);
            if self.inodes.get(&gone.inode) == Some(&place) {
                self.inodes.remove(&gone.inode);
            }
            let last = self.slots.len();
            if let Some((moved, _)) = self.slots.get(place) {
                self.places.insert(moved.handle, place);
                if let Some(known) = self.inodes.get_mut(&moved.inode)
                    && *known == last
                {
                    *known = place;
                }
            }
        }
    }
}

/// Where objects without kernel handles were seen last, with a bound.
#[derive(Default)]
pub(super) struct Hints {
    seen: QuickMap<FileHandle, (FileHandle, Box<[u8]>)>,
    order: VecDeque<FileHandle>,
}

impl Hints {
    pub fn get(&self, handle: &FileHandle) -> Option<(FileHandle, Box<[u8]>)> {
        self.seen.get(handle).cloned()
    }

    pub fn insert(&mut self, handle: FileHandle, parent: FileHandle, name: &[u8]) {
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

/// Removed objects that may be kept open.
const DEAD_COUNT_MAX: usize = 64;
/// Time in which every node is looked at once.
const LOOK_PERIOD: Duration = Duration::from_secs(10);
/// Names remembered for objects without kernel handles.
const HINT_COUNT_MAX: usize = 262_144;

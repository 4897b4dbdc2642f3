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
    /// A node keeps its place: to move another one would touch what is not at hand.
    slots: Vec<Option<(Arc<Node>, bool)>>,
    /// Places of nobody.
    free: Vec<usize>,
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
        let (slots, free, dead) = (Vec::new(), Vec::new(), Vec::new());
        Self { slots, free, places, inodes, count_max: count_max.max(8), hand: 0, look: 0, dead }
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
        self.take(place)
    }

    pub fn of_inode(&mut self, inode: &Inode) -> Option<Arc<Node>> {
        let place = *self.inodes.get(inode)?;
        self.take(place)
    }

    fn take(&mut self, place: usize) -> Option<Arc<Node>> {
        let (node, was_used) = self.slots[place].as_mut()?;
        *was_used = true;
        Some(node.clone())
    }

    /// The nodes to be looked at after so much time, so that all are in [`LOOK_PERIOD`].
    pub fn next_part(&mut self, elapsed: Duration) -> Vec<Arc<Node>> {
        let part = elapsed.as_secs_f64() / LOOK_PERIOD.as_secs_f64();
        let count = ((self.slots.len() as f64 * part).ceil() as usize).min(self.slots.len());
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            self.look = self.behind(self.look);
            taken.extend(self.slots[self.look].as_ref().map(|(node, _)| node.clone()));
        }
        taken
    }

    /// The next place, behind the last one the first.
    fn behind(&self, place: usize) -> usize {
        if place + 1 >= self.slots.len() { 0 } else { place + 1 }
    }

    pub fn insert(&mut self, node: Arc<Node>) {
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

    pub fn remove(&mut self, handle: &FileHandle) {
        let Some(place) = self.places.remove(handle) else { return };
        self.free.push(place);
        if let Some((gone, _)) = self.slots[place].take()
            && self.inodes.get(&gone.inode) == Some(&place)
        {
            self.inodes.remove(&gone.inode);
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

/// Removed objects that may be kept open. It is more than one tick finds, even if local processes
/// have removed everything that is known.
const DEAD_COUNT_MAX: usize = 256;
/// Time in which every node is looked at once.
const LOOK_PERIOD: Duration = Duration::from_secs(10);
/// Names remembered for objects without kernel handles.
const HINT_COUNT_MAX: usize = 262_144;

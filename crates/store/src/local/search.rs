//! Looking for objects whose handles the kernel cannot open: by walking through an export.
//!
//! Invariant: a walk takes long, so whoever must not wait never makes one. It is told `Busy`,
//! and has [`LocalStore::search_for`] called elsewhere. One walk looks for many objects. What
//! it has not found is not looked for again for [`ABSENCE_AGE_MS`].

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use dafs_types::{FileHandle, QuickMap};

use super::node::{Node, open_settled};
use super::seal::{Facet, Identity, Parts};
use super::{LocalStore, lock, sys};
use crate::error::{Result, StoreError};

/// What is known of searches.
#[derive(Default)]
pub(super) struct Searches {
    /// Whether whoever asks for an object must not wait for a walk.
    is_deferred: AtomicBool,
    absent: Mutex<Absent>,
}

impl Searches {
    pub fn absent(&self) -> MutexGuard<'_, Absent> {
        lock(&self.absent)
    }
}

/// Objects that are not in the tree, with a bound.
#[derive(Default)]
pub(super) struct Absent {
    /// Until when, by [`sys::millis`].
    until: QuickMap<FileHandle, u64>,
    order: VecDeque<FileHandle>,
}

impl Absent {
    fn has(&self, handle: &FileHandle) -> bool {
        self.until.get(handle).is_some_and(|until| *until > sys::millis())
    }

    /// Whether this store itself has removed it.
    pub fn is_removed(&self, handle: &FileHandle) -> bool {
        self.until.get(handle) == Some(&FOR_EVER)
    }

    /// An object has lost its last name: its handle never leads anywhere again.
    pub fn note_removed(&mut self, handle: FileHandle) {
        self.insert(handle, FOR_EVER);
    }

    fn note_not_found(&mut self, handle: FileHandle) {
        let until = sys::millis().saturating_add(ABSENCE_AGE_MS);
        self.insert(handle, until);
    }

    fn insert(&mut self, handle: FileHandle, until: u64) {
        if self.until.insert(handle, until).is_some() {
            return;
        }
        self.order.push_back(handle);
        if self.order.len() > ABSENT_COUNT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.until.remove(&oldest);
        }
    }

    /// Somebody has met it.
    pub fn note_present(&mut self, handle: &FileHandle) {
        // Its place in the order stays until it is old, and takes nothing along then.
        if let Some(until) = self.until.get_mut(handle) {
            *until = 0;
        }
    }
}

impl LocalStore {
    /// From now on nobody waits for a walk. False if there never is one to be made.
    pub(super) fn defer(&self) -> bool {
        self.searches.is_deferred.store(true, Ordering::Relaxed);
        !self.uses_kernel_handles || self.exports.iter().any(|export| !export.is_whole)
    }

    pub(super) fn is_to_be_searched(&self, handle: &FileHandle) -> bool {
        self.searches.is_deferred.load(Ordering::Relaxed)
            && matches!(self.resolve(handle), Err(StoreError::Busy))
    }

    /// Looks for an object by name: first where it was seen last, then everywhere, up to a
    /// bound.
    pub(super) fn find(&self, export: usize, handle: &FileHandle) -> Result<Arc<Node>> {
        if let Some(node) = self.find_where_seen(export, handle) {
            return Ok(node);
        }
        if self.searches.is_deferred.load(Ordering::Relaxed) {
            let is_absent = self.searches.absent().has(handle);
            return Err(if is_absent { StoreError::Stale } else { StoreError::Busy });
        }
        let found = self.search_for(&[*handle]);
        found.into_iter().find(|node| node.handle == *handle).ok_or(StoreError::Stale)
    }

    fn find_where_seen(&self, export: usize, handle: &FileHandle) -> Option<Arc<Node>> {
        let (parent, name) = lock(&self.hints).get(handle)?;
        let directory = self.known(export, &parent)?;
        self.prove_again(&directory).ok()?;
        let (node, _) = self.child(&directory, &name).ok()?;
        (node.handle == *handle).then_some(node)
    }

    fn known(&self, export: usize, handle: &FileHandle) -> Option<Arc<Node>> {
        let root = &self.exports[export].root;
        if root.handle == *handle { Some(root.clone()) } else { lock(&self.nodes).get(handle) }
    }

    /// Looks for all of these by one walk through each export. Those that are found are known
    /// from then on. Blocks, for as long as it takes to read all directories.
    pub(super) fn search_for(&self, handles: &[FileHandle]) -> Vec<Arc<Node>> {
        let mut found = Vec::new();
        for export in 0..self.exports.len() {
            let mut walk = Walk::new(self, export);
            for handle in handles {
                walk.look_for(handle);
            }
            found.append(&mut walk.run());
        }
        let mut nodes = lock(&self.nodes);
        for node in &found {
            nodes.insert(node.clone());
        }
        found
    }
}

/// One walk through an export, breadth first.
struct Walk<'s> {
    store: &'s LocalStore,
    export: usize,
    /// What is looked for, by inode number.
    wanted: QuickMap<u64, Vec<FileHandle>>,
    found: Vec<Arc<Node>>,
    /// Paths, not descriptors, wait for their turn: there may be more directories than a
    /// process may open.
    waiting: VecDeque<Vec<u8>>,
    /// Entries that may still be looked at.
    budget: usize,
}

impl<'s> Walk<'s> {
    fn new(store: &'s LocalStore, export: usize) -> Self {
        Self {
            store,
            export,
            wanted: QuickMap::default(),
            found: Vec::new(),
            waiting: VecDeque::from([Vec::new()]),
            budget: store.search_entry_count_max,
        }
    }

    fn look_for(&mut self, handle: &FileHandle) {
        let store = self.store;
        let renewed = store.renew(handle);
        let Some(parts) = store.sealer.open(renewed.as_ref().unwrap_or(handle)) else { return };
        if parts.export != store.export_ids[self.export] {
            return;
        }
        let object = store.sealer.seal(&Parts { facet: Facet::Object, ..parts });
        let number = match parts.identity {
            Identity::Inode { number, .. } => number,
            // The kernel knows what is there; where that is, it may not.
            Identity::Kernel(kernel) => {
                let opened = store.mount_of(self.export, parts.file_system);
                let opened = opened.map(|mount| open_settled(&kernel, mount.as_fd()));
                let Ok(Ok(fd)) = opened else { return };
                let Ok(status) = sys::status(fd.as_fd()) else { return };
                status.attributes.file_id
            }
            Identity::VirtualRoot => return,
        };
        let same = self.wanted.entry(number).or_default();
        if !same.contains(&object) {
            same.push(object);
        }
    }

    fn run(mut self) -> Vec<Arc<Node>> {
        while !self.wanted.is_empty()
            && self.budget > 0
            && let Some(path) = self.waiting.pop_front()
        {
            // A directory that went away or may not be read has nothing for us.
            let _ = self.look_through(&path);
        }
        let mut absent = self.store.searches.absent();
        for handle in self.wanted.into_values().flatten() {
            absent.note_not_found(handle);
        }
        drop(absent);
        self.found
    }

    /// Looks one directory through. It is not remembered: others are in use.
    fn look_through(&mut self, path: &[u8]) -> Result<()> {
        let (store, root) = (self.store, &self.store.exports[self.export].root);
        let directory = if path.is_empty() {
            root.clone()
        } else {
            match sys::open_beneath(root.fd(), path) {
                // Through a mount, or too far for one call: each step is looked at.
                Err(StoreError::CrossDevice | StoreError::NameTooLong) => {
                    store.walk(self.export, path)?
                }
                opened => {
                    let fd = opened?;
                    let status = sys::status(fd.as_fd())?;
                    // Nothing in there is any client's.
                    if store.own_directories.is_private(status.device, status.attributes.file_id) {
                        return Ok(());
                    }
                    let file_system = store.file_system_of(self.export, fd.as_fd(), &status)?;
                    let directory = store.make(fd, self.export, file_system, &status);
                    directory.note_reach(path.len());
                    Arc::new(directory)
                }
            }
        };
        let fd = sys::open_directory(directory.fd())?;
        let mut buffer = [std::mem::MaybeUninit::uninit(); SEARCH_BUFFER_BYTES];
        let mut entries = rustix::fs::RawDir::new(fd, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if self.budget == 0 {
                break;
            }
            self.budget -= 1;
            if self.wanted.contains_key(&entry.ino()) {
                self.try_entry(&directory, name, entry.ino());
            }
            if entry.file_type() == rustix::fs::FileType::Directory {
                let parts = if path.is_empty() { name.to_vec() } else { [path, name].join(&b'/') };
                self.waiting.push_back(parts);
            }
        }
        Ok(())
    }

    /// Whether an entry with the right number is what is looked for.
    fn try_entry(&mut self, directory: &Node, name: &[u8], number: u64) {
        let Ok((node, _)) = self.store.child(directory, name) else { return };
        let Some(same) = self.wanted.get_mut(&number) else { return };
        let Some(place) = same.iter().position(|handle| *handle == node.handle) else { return };
        self.store.remember(&node, directory, name);
        same.swap_remove(place);
        if same.is_empty() {
            self.wanted.remove(&number);
        }
        self.found.push(node);
    }
}

const SEARCH_BUFFER_BYTES: usize = 16 << 10;
/// Milliseconds for which what a walk has not found is not looked for again. A local process
/// may have moved it out of the export, and may move it back.
const ABSENCE_AGE_MS: u64 = 10_000;
/// Of an object that was removed.
const FOR_EVER: u64 = u64::MAX;
/// Objects known not to be there.
const ABSENT_COUNT_MAX: usize = 32_768;

//! Looking for objects whose handles the kernel cannot open: by walking through an export.
//!
//! Invariant: a walk takes long, so whoever must not wait never makes one. It is told `Busy`,
//! and has [`LocalStore::search_for`] called elsewhere. One walk looks for many objects. What
//! it has not found is not looked for again for [`ABSENCE_AGE_MS`].
//!
//! Only a walk that has seen everything says that an object is not there. A directory that cannot
//! be opened for want of descriptors or memory, or that cannot be read, may hold it: whoever asks
//! is told `Unseen`, to ask again, and another walk is made after a pause that doubles each time.
//! After [`MISSES_MAX`] such walks whoever asks is told why they fail. What a client may not see
//! counts as absent, and so does what lies behind as many entries as
//! [`LocalConfig`](super::LocalConfig) lets a walk look at.

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

/// Objects that are not in the tree, or were not met there, with a bound.
#[derive(Default)]
pub(super) struct Absent {
    known: QuickMap<FileHandle, Known>,
    order: VecDeque<FileHandle>,
}

/// What is known of an object that was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    /// Until then it is not looked for again, by [`sys::millis`].
    until: u64,
    /// Walks that have not seen everything, one after another, and why the last has not.
    missed: Option<(u32, StoreError)>,
}

impl Absent {
    /// What whoever asks for an object is told without another walk, at such a time.
    fn verdict(&self, handle: &FileHandle, now: u64) -> Option<StoreError> {
        let known = self.known.get(handle).filter(|known| known.until > now)?;
        Some(match known.missed {
            None => StoreError::Stale,
            Some((count, why)) if count > MISSES_MAX => why,
            Some(_) => StoreError::Unseen,
        })
    }

    /// Whether this store itself has removed it.
    pub fn is_removed(&self, handle: &FileHandle) -> bool {
        self.known.get(handle).is_some_and(|known| known.until == FOR_EVER)
    }

    /// An object has lost its last name: its handle never leads anywhere again.
    pub fn note_removed(&mut self, handle: FileHandle) {
        self.insert(handle, Known { until: FOR_EVER, missed: None });
    }

    fn note_not_found(&mut self, handle: FileHandle, now: u64) {
        if !self.is_removed(&handle) {
            let until = now.saturating_add(ABSENCE_AGE_MS);
            self.insert(handle, Known { until, missed: None });
        }
    }

    /// A walk has neither found an object nor seen everything.
    fn note_unseen(&mut self, handle: FileHandle, why: StoreError, now: u64) {
        if self.is_removed(&handle) {
            return;
        }
        let before = self.known.get(&handle).and_then(|known| known.missed);
        let count = before.map_or(0, |(count, _)| count).saturating_add(1);
        let pause = MISSED_PAUSE_MS << (count - 1).min(MISSED_DOUBLINGS_MAX);
        let until = now.saturating_add(pause);
        self.insert(handle, Known { until, missed: Some((count, why)) });
    }

    fn insert(&mut self, handle: FileHandle, known: Known) {
        if self.known.insert(handle, known).is_some() {
            return;
        }
        self.order.push_back(handle);
        if self.order.len() > ABSENT_COUNT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Somebody has met it.
    pub fn note_present(&mut self, handle: &FileHandle) {
        // Its place in the order stays until it is old, and takes nothing along then.
        if let Some(known) = self.known.get_mut(handle) {
            *known = Known { until: 0, missed: None };
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
            let verdict = self.searches.absent().verdict(handle, sys::millis());
            return Err(verdict.unwrap_or(StoreError::Busy));
        }
        let found = self.search_for(&[*handle]).into_iter().find(|node| node.handle == *handle);
        found.ok_or_else(|| {
            let verdict = self.searches.absent().verdict(handle, sys::millis());
            verdict.unwrap_or(StoreError::Stale)
        })
    }

    fn find_where_seen(&self, export: usize, handle: &FileHandle) -> Option<Arc<Node>> {
        let (parent, name) = lock(&self.hints).get(handle)?;
        let directory = self.known(export, &parent)?;
        self.prove_again(&directory, sys::millis()).ok()?;
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
    /// Why something was not looked at that may hold what is looked for.
    missed: Option<StoreError>,
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
            missed: None,
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
            if let Err(error) = self.look_through(&path) {
                self.note_missed(error);
            }
        }
        let (mut absent, now) = (self.store.searches.absent(), sys::millis());
        for handle in self.wanted.into_values().flatten() {
            match self.missed {
                Some(why) => absent.note_unseen(handle, why, now),
                None => absent.note_not_found(handle, now),
            }
        }
        drop(absent);
        self.found
    }

    /// Something could not be looked at.
    fn note_missed(&mut self, error: StoreError) {
        // What went away or may not be seen has nothing for us.
        let is_seen = matches!(
            error,
            StoreError::NotFound
                | StoreError::NotDirectory
                | StoreError::NotPermitted
                | StoreError::Access
                | StoreError::CrossDevice
                | StoreError::IsSymlink
                | StoreError::Stale
        );
        if !is_seen {
            self.missed = Some(error);
        }
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
        let node = match self.store.child(directory, name) {
            Ok((node, _)) => node,
            Err(error) => return self.note_missed(error),
        };
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
/// Walks that may miss something, one after another, until whoever asks is told why.
const MISSES_MAX: u32 = 8;
/// Milliseconds until the second walk; later ones wait twice as long each, up to a bound.
const MISSED_PAUSE_MS: u64 = 250;
const MISSED_DOUBLINGS_MAX: u32 = 6;
/// Of an object that was removed.
const FOR_EVER: u64 = u64::MAX;
/// Objects known not to be there.
const ABSENT_COUNT_MAX: usize = 32_768;

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(number: u8) -> FileHandle {
        FileHandle([number; 64])
    }

    #[test]
    fn what_was_not_seen_is_looked_for_again_ever_later_and_never_called_absent() {
        let (mut absent, mut now) = (Absent::default(), 1000);
        for count in 1..=MISSES_MAX + 3 {
            assert_eq!(absent.verdict(&handle(1), now), None, "it is looked for");
            absent.note_unseen(handle(1), StoreError::Resource, now);
            let told = if count > MISSES_MAX { StoreError::Resource } else { StoreError::Unseen };
            let pause = MISSED_PAUSE_MS << (count - 1).min(MISSED_DOUBLINGS_MAX);
            assert_eq!(absent.verdict(&handle(1), now), Some(told));
            assert_eq!(absent.verdict(&handle(1), now + pause - 1), Some(told));
            now += pause;
        }
        absent.note_not_found(handle(1), now);
        assert_eq!(absent.verdict(&handle(1), now), Some(StoreError::Stale), "all was seen");
        now += ABSENCE_AGE_MS;
        absent.note_unseen(handle(1), StoreError::Io, now);
        assert_eq!(absent.verdict(&handle(1), now), Some(StoreError::Unseen), "a first time again");
        absent.note_present(&handle(1));
        assert_eq!(absent.verdict(&handle(1), now), None);
        absent.note_removed(handle(1));
        absent.note_unseen(handle(1), StoreError::Io, now);
        assert!(absent.is_removed(&handle(1)), "for good");
    }
}

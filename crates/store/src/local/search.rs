//! Searches for objects whose handles the kernel cannot open, by walking through an export.
//!
//! Invariant: a walk takes long, so a thread that must not block never walks. Its call fails with
//! `Busy`, and [`LocalStore::search_for`] must be called on another thread. One walk looks for many
//! objects. If an object was not found, it is not searched for again for [`ABSENCE_AGE_MS`]
//! milliseconds.
//!
//! Only a complete walk shows that an object does not exist. If a directory cannot be read, or
//! cannot be opened for lack of descriptors or memory, the object may be in it. The caller then
//! gets `Unseen` and should try again; another walk is made after a pause that doubles each time.
//! After [`MISSES_MAX`] incomplete walks the caller gets the error that made the walks incomplete.
//! A walk ends after as many entries as [`LocalConfig`](super::LocalConfig) allows; objects that
//! are not reached count as missing, and so do objects in directories that no client may see.

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

/// The state of the searches of a store.
#[derive(Default)]
pub(super) struct Searches {
    /// True if a call that would need a walk must return `Busy` and must not block.
    is_deferred: AtomicBool,
    absent: Mutex<Absent>,
}

impl Searches {
    pub(super) fn absent(&self) -> MutexGuard<'_, Absent> {
        lock(&self.absent)
    }
}

/// The objects that were removed or not found. The number of entries is limited.
#[derive(Default)]
pub(super) struct Absent {
    known: QuickMap<FileHandle, Known>,
    order: VecDeque<FileHandle>,
}

/// The state of an object that was removed or not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    /// The time until which the object is not searched for again, on the clock of [`sys::millis`].
    until: u64,
    /// The number of successive incomplete walks, and the error of the last one. `None` if the last
    /// walk was complete.
    missed: Option<(u32, StoreError)>,
}

impl Absent {
    /// Returns the error for a call with this handle at time `now`, or `None` if a walk is needed.
    fn verdict(&self, handle: &FileHandle, now: u64) -> Option<StoreError> {
        let known = self.known.get(handle).filter(|known| known.until > now)?;
        Some(match known.missed {
            None => StoreError::Stale,
            Some((count, why)) if count > MISSES_MAX => why,
            Some(_) => StoreError::Unseen,
        })
    }

    /// Returns true if this store itself has removed the object.
    pub(super) fn is_removed(&self, handle: &FileHandle) -> bool {
        self.known.get(handle).is_some_and(|known| known.until == FOR_EVER)
    }

    /// Records that this store has removed the last name of an object, so that the object's handle
    /// never becomes valid again.
    pub(super) fn note_removed(&mut self, handle: FileHandle) {
        self.insert(handle, Known { until: FOR_EVER, missed: None });
    }

    fn note_not_found(&mut self, handle: FileHandle, now: u64) {
        if !self.is_removed(&handle) {
            let until = now.saturating_add(ABSENCE_AGE_MS);
            self.insert(handle, Known { until, missed: None });
        }
    }

    /// Records that an incomplete walk has not found an object.
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

    /// Records that an object exists, because it was seen.
    pub(super) fn note_present(&mut self, handle: &FileHandle) {
        // The entry in `order` remains until it is old, and then removes nothing.
        if let Some(known) = self.known.get_mut(handle) {
            *known = Known { until: 0, missed: None };
        }
    }
}

impl LocalStore {
    /// Makes calls return `Busy` instead of blocking for a walk. Returns false if no call ever
    /// needs a walk.
    pub(super) fn defer(&self) -> bool {
        self.searches.is_deferred.store(true, Ordering::Relaxed);
        !self.uses_kernel_handles || self.exports.iter().any(|export| !export.is_whole)
    }

    pub(super) fn is_to_be_searched(&self, handle: &FileHandle) -> bool {
        self.searches.is_deferred.load(Ordering::Relaxed)
            && matches!(self.resolve(handle), Err(StoreError::Busy))
    }

    /// Searches for an object: first under the name where it was last seen, then in the whole
    /// export, up to a limit.
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

    /// Searches for all of these objects with one walk through each export. Returns the found nodes
    /// and keeps them in the table, so that later calls find them. Blocks as long as it takes to
    /// read all directories.
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

/// One breadth-first walk through an export.
struct Walk<'s> {
    store: &'s LocalStore,
    export: usize,
    /// The objects that the walk looks for, by inode number.
    wanted: QuickMap<u64, Vec<FileHandle>>,
    found: Vec<Arc<Node>>,
    /// The directories to visit, as paths and not as descriptors, because there may be more than a
    /// process may open.
    waiting: VecDeque<Vec<u8>>,
    /// The number of entries that may still be read.
    budget: usize,
    /// The error because of which the walk could not read a directory, or an object that may be
    /// among those it looks for. `None` if it could read everything.
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
            // The kernel can open the object, but perhaps cannot report its path.
            Identity::Kernel(kernel) => {
                let opened = store.mount_of(self.export, parts.file_system);
                let opened = opened.map(|mount| open_settled(&kernel, mount.as_fd()));
                let Ok(Ok(fd)) = opened else { return };
                let Ok(status) = sys::status(fd.as_fd()) else { return };
                status.attributes.file_id
            }
            Identity::Virtual(_) => return,
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

    /// Records that a directory or an object could not be read.
    fn note_missed(&mut self, error: StoreError) {
        // An object that was removed, or that clients may not see, is not a wanted object.
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

    /// Reads one directory. Its entries are not added to the tables, because that would drop
    /// objects that are in use.
    fn look_through(&mut self, path: &[u8]) -> Result<()> {
        let (store, root) = (self.store, &self.store.exports[self.export].root);
        let directory = if path.is_empty() {
            root.clone()
        } else {
            match sys::open_beneath(root.fd(), path) {
                // The path leads through a mount or is too long for one call, so walk component by
                // component.
                Err(StoreError::CrossDevice | StoreError::NameTooLong) => {
                    store.walk(self.export, path)?
                }
                opened => {
                    let fd = opened?;
                    let status = sys::status(fd.as_fd())?;
                    // Skip the state directory, because no client may see its entries.
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

    /// Checks whether an entry with the inode number of a wanted object is that object.
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
/// The time in milliseconds for which an object that a complete walk has not found is not searched
/// for again. It is limited, because a local process may have moved the object out of the export
/// and may move it back.
const ABSENCE_AGE_MS: u64 = 10_000;
/// The number of successive incomplete walks after which the caller gets the error that made them
/// incomplete.
const MISSES_MAX: u32 = 8;
/// The pause, in milliseconds, before a search walks through the export a second time. It doubles
/// for each later walk, up to a limit.
const MISSED_PAUSE_MS: u64 = 250;
const MISSED_DOUBLINGS_MAX: u32 = 6;
/// The value of `until` for an object that was removed.
const FOR_EVER: u64 = u64::MAX;
/// The maximum number of objects that are remembered as missing.
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

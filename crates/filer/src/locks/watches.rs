//! Watches: the wishes of lock owners to be told when a range can be locked.
//!
//! A watch is only a hint. It has no place in the queue of a file and reserves nothing, so that an
//! owner who has given up does not keep others waiting.
//!
//! Invariants:
//! - A lock, or an earlier request that waits, stands against each watch.
//! - A watch ends when its owner is told, or when its time is over.
//! - The number of watches is limited, for all clients, for one client and for one file.

use std::collections::BTreeMap;

use dafs_types::{ClientId, FileHandle, Moment};

use super::range::ByteRange;
use super::request::LockMode;
use crate::FileKey;

/// A wish to be told when a range can be locked, for `LockTable::watch`.
#[derive(Clone, Copy, Debug)]
pub struct LockWatch {
    /// The handle of the file, which is returned with `LockAction::Free`.
    pub handle: FileHandle,
    /// A number that the caller chooses, which is returned with `LockAction::Free`.
    pub word: u64,
    /// The time at which the watch ends.
    pub until: Moment,
}

/// The watches of all files.
#[derive(Debug, Default)]
pub(super) struct Watches {
    files: BTreeMap<FileKey, Vec<Watch>>,
    clients: BTreeMap<ClientId, u32>,
    count: u32,
}

#[derive(Debug)]
pub(super) struct Watch {
    pub client: ClientId,
    pub owner: Box<[u8]>,
    pub range: ByteRange,
    pub mode: LockMode,
    pub of: LockWatch,
}

impl Watch {
    fn is_same(&self, other: &Self) -> bool {
        let key = |watch: &Self| (watch.client, watch.range, watch.mode);
        key(self) == key(other) && self.owner == other.owner
    }
}

impl Watches {
    /// Returns the files that have watches.
    pub(super) fn files(&self) -> Vec<FileKey> {
        self.files.keys().copied().collect()
    }

    /// Adds a watch. It replaces one of the same owner for the same range in the same mode. Returns
    /// false if there are too many.
    pub(super) fn add(&mut self, file: FileKey, watch: Watch) -> bool {
        let of_file = self.files.entry(file).or_default();
        if let Some(same) = of_file.iter_mut().find(|other| other.is_same(&watch)) {
            *same = watch;
            return true;
        }
        let of_client = self.clients.get(&watch.client).copied().unwrap_or(0);
        if self.count >= WATCHES_MAX
            || of_client >= WATCHES_PER_CLIENT_MAX
            || of_file.len() >= WATCHES_PER_FILE_MAX
        {
            if of_file.is_empty() {
                self.files.remove(&file);
            }
            return false;
        }
        self.count += 1;
        *self.clients.entry(watch.client).or_default() += 1;
        of_file.push(watch);
        true
    }

    /// Removes and returns the watches at these places of a file's list.
    pub(super) fn remove(&mut self, file: FileKey, places: &[usize]) -> Vec<Watch> {
        let Some(of_file) = self.files.get_mut(&file) else { return Vec::new() };
        let mut place = 0..;
        let removed =
            of_file.extract_if(.., |_| place.next().is_some_and(|at| places.contains(&at)));
        let removed: Vec<Watch> = removed.collect();
        if of_file.is_empty() {
            self.files.remove(&file);
        }
        for watch in &removed {
            self.count -= 1;
            let Some(count) = self.clients.get_mut(&watch.client) else { continue };
            *count -= 1;
            if *count == 0 {
                self.clients.remove(&watch.client);
            }
        }
        removed
    }

    /// Returns the places in a file's list whose watches `which` selects.
    pub(super) fn places(&self, file: FileKey, which: impl Fn(&Watch) -> bool) -> Vec<usize> {
        let of_file = self.files.get(&file).into_iter().flatten().enumerate();
        of_file.filter(|(_, watch)| which(watch)).map(|(place, _)| place).collect()
    }
}

/// The maximum number of watches.
const WATCHES_MAX: u32 = 4096;
/// The maximum number of watches of one client.
const WATCHES_PER_CLIENT_MAX: u32 = 256;
/// The maximum number of watches of one file. It is small because each change of the file's locks
/// checks all of them.
const WATCHES_PER_FILE_MAX: usize = 64;

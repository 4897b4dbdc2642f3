//! A model, in memory, of a disk that crashes. Tests use it to simulate restarts.
//!
//! Invariant: synced data is never lost. Of data that was not synced, a crash keeps a subset that a
//! real disk could have kept, sector by sector. The given entropy decides which.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dafs_types::{CloneSource, Entropy};

use super::{Blob, BlobName, CloneError, Result, Storage, StorageError};

/// Storage in memory that can lose power. Clones of this value share one disk.
///
/// [`CrashStorage::crash`] or [`CrashStorage::kill`] and a new open simulate the restart of a
/// server. Blobs opened before the restart no longer work, so a job of the old server that is still
/// running changes nothing.
#[derive(Clone, Default)]
pub struct CrashStorage {
    disk: Arc<Mutex<Disk>>,
}

/// An operation that a test can make fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A write. Its first half is executed before it fails.
    Write,
    /// A sync of a blob. Reads still return the data that the sync should have written, but no
    /// later sync writes this data (as on Linux).
    Sync,
    /// A read, which fails with an I/O error.
    Read,
    /// The creation of a blob. No blob is created.
    Create,
    /// A sync of names. It has no effect.
    SyncNames,
    /// The sharing of blocks. It has no effect.
    Clone,
}

impl CrashStorage {
    /// Creates an empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Simulates a power failure and restart. Each sector that was written but not synced gets one
    /// of the states that it has had since its last sync. Of the creations and removals of names
    /// since the last sync of names, the first few survive. Scheduled power failures and injected
    /// errors are cancelled.
    pub fn crash(&self, entropy: &mut dyn Entropy) {
        let mut disk = self.lock();
        disk.restart();
        let changes = std::mem::take(&mut disk.name_changes);
        let kept = below(entropy, changes.len() as u64 + 1) as usize;
        let mut names = std::mem::take(&mut disk.durable_names);
        for change in changes.into_iter().take(kept) {
            change.apply(&mut names);
        }
        for contents in names.values() {
            lock(contents).crash(entropy);
        }
        disk.durable_names = names.clone();
        disk.names = names;
    }

    /// Simulates the killing of the process. All written data remains, but a later crash may still
    /// lose data that was not synced.
    pub fn kill(&self) {
        self.lock().restart();
    }

    /// Makes the next operation of a kind fail with an I/O error, once.
    pub fn fail_next(&self, operation: Operation) {
        self.lock().failing = Some(operation);
    }

    /// Makes the power fail during a later operation, after `operation_count` further changes. From
    /// then on every operation fails, until a crash or kill is simulated.
    pub fn power_off_after(&self, operation_count: u64) {
        self.lock().fuse = Some(operation_count);
    }

    /// Returns true if the power has failed.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.lock().is_off
    }

    /// Sets the number of bytes by which blobs can still grow. `None` means without limit.
    pub fn set_space_left(&self, space_left: Option<u64>) {
        self.lock().space_left = space_left;
    }

    /// Sets whether blobs can share blocks with other files of the simulation.
    pub fn set_reflinks(&self, has_reflinks: bool) {
        self.lock().has_reflinks = has_reflinks;
    }

    /// Overwrites bytes of a blob durably without the journal's knowledge, so that tests can check
    /// how recovery handles damage.
    ///
    /// # Errors
    /// [`StorageError::NotFound`] if the blob does not exist.
    pub fn corrupt(&self, name: &BlobName, offset: u64, bytes: &[u8]) -> Result<()> {
        let disk = self.lock();
        let contents = disk.names.get(name).cloned();
        let contents = contents.ok_or_else(|| StorageError::NotFound { name: name.clone() })?;
        let mut contents = lock(&contents);
        let synced = contents.dirty.is_empty();
        contents.write(offset as usize, bytes);
        if synced {
            contents.sync();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }

    fn blob(&self, disk: &Disk, name: &BlobName, contents: Arc<Mutex<Contents>>) -> Arc<dyn Blob> {
        let generation = disk.generation;
        Arc::new(CrashBlob { storage: self.clone(), generation, name: name.clone(), contents })
    }
}

impl Storage for CrashStorage {
    fn create(&self, name: &BlobName) -> Result<Arc<dyn Blob>> {
        let mut disk = self.lock();
        disk.admit(Operation::Create, name.as_str()).map_err(|(error, _)| error)?;
        if disk.names.contains_key(name) {
            return Err(StorageError::Exists { name: name.clone() });
        }
        let contents = Arc::<Mutex<Contents>>::default();
        disk.change_name(NameChange { name: name.clone(), contents: Some(contents.clone()) });
        Ok(self.blob(&disk, name, contents))
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>> {
        let mut disk = self.lock();
        disk.admit(Operation::Read, name.as_str()).map_err(|(error, _)| error)?;
        match disk.names.get(name).cloned() {
            Some(contents) => Ok(self.blob(&disk, name, contents)),
            None => Err(StorageError::NotFound { name: name.clone() }),
        }
    }

    fn list(&self) -> Result<Vec<BlobName>> {
        let mut disk = self.lock();
        disk.admit(Operation::Read, "names").map_err(|(error, _)| error)?;
        Ok(disk.names.keys().cloned().collect())
    }

    fn remove(&self, name: &BlobName) -> Result<()> {
        let mut disk = self.lock();
        // No test makes a removal fail, but the power may be off.
        disk.admit(Operation::Create, name.as_str()).map_err(|(error, _)| error)?;
        if !disk.names.contains_key(name) {
            return Err(StorageError::NotFound { name: name.clone() });
        }
        disk.change_name(NameChange { name: name.clone(), contents: None });
        Ok(())
    }

    fn sync_names(&self) -> Result<()> {
        let mut disk = self.lock();
        disk.admit(Operation::SyncNames, "names").map_err(|(error, _)| error)?;
        disk.durable_names = disk.names.clone();
        disk.name_changes.clear();
        Ok(())
    }

    fn has_reflinks(&self) -> bool {
        self.lock().has_reflinks
    }
}

/// The whole disk, and the failures that tests have scheduled.
#[derive(Default)]
struct Disk {
    /// The number of restarts so far. Handles from before a restart do not work.
    generation: u64,
    /// The present names, as programs see them.
    names: BTreeMap<BlobName, Arc<Mutex<Contents>>>,
    durable_names: BTreeMap<BlobName, Arc<Mutex<Contents>>>,
    /// The changes that turn the durable names into the present names, oldest first.
    name_changes: Vec<NameChange>,
    failing: Option<Operation>,
    fuse: Option<u64>,
    is_off: bool,
    space_left: Option<u64>,
    has_reflinks: bool,
}

impl Disk {
    fn restart(&mut self) {
        self.generation += 1;
        self.failing = None;
        self.fuse = None;
        self.is_off = false;
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.name_changes.push(change);
    }

    /// Allows an operation, or makes it fail. If it fails, returns the effect that the operation
    /// has nevertheless.
    fn admit(
        &mut self,
        operation: Operation,
        name: &str,
    ) -> std::result::Result<(), (StorageError, Harm)> {
        let (text, harm) = if self.is_off {
            ("the power is off", Harm::None)
        } else if operation != Operation::Read && self.fuse == Some(0) {
            self.is_off = true;
            ("the power failed", Harm::Torn)
        } else if self.failing == Some(operation) {
            self.failing = None;
            ("an injected failure", Harm::Failed)
        } else {
            if operation != Operation::Read {
                self.fuse = self.fuse.map(|left| left - 1);
            }
            return Ok(());
        };
        let source = io::Error::other(text);
        Err((StorageError::Io { action: "use", name: name.to_owned(), source }, harm))
    }
}

/// The effect that a failed operation has nevertheless.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Harm {
    None,
    /// The power failed: a write is half done, and a sync has not begun.
    Torn,
    /// The disk failed: a write is half done, and a sync has dropped the data it should write.
    Failed,
}

/// A change of names: the creation of a name (with contents) or its removal (without contents).
#[derive(Clone)]
struct NameChange {
    name: BlobName,
    contents: Option<Arc<Mutex<Contents>>>,
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<BlobName, Arc<Mutex<Contents>>>) {
        match &self.contents {
            Some(contents) => names.insert(self.name.clone(), contents.clone()),
            None => names.remove(&self.name),
        };
    }
}

/// A blob on the disk.
#[derive(Default)]
struct Contents {
    /// The bytes that reads return.
    cached: Vec<u8>,
    /// The bytes that are on the disk with certainty, except for the sectors in the next fields.
    durable: Vec<u8>,
    /// The sectors that were written since the last sync. For each there is a list of the states of
    /// which any may have reached the disk.
    dirty: BTreeMap<usize, Vec<[u8; SECTOR]>>,
    /// The sectors that a failed sync has left unwritten. No later sync writes them.
    doubtful: BTreeMap<usize, Vec<[u8; SECTOR]>>,
    /// The lengths that the blob has had since the last sync.
    lengths: Vec<usize>,
}

impl Contents {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if bytes.is_empty() {
            return;
        }
        if end > self.cached.len() {
            self.cached.resize(end, 0);
            self.lengths.push(end);
        }
        self.cached[offset..end].copy_from_slice(bytes);
        self.soil(offset, end);
    }

    fn set_length(&mut self, length: usize) {
        let before = self.cached.len();
        self.cached.resize(length, 0);
        self.lengths.push(length);
        // The bytes that are cut off may or may not be gone from the disk, sector by sector.
        self.soil(length.min(before), before.max(length));
    }

    /// Records the current state of the sectors from `from` to `to` as a state that may reach the
    /// disk.
    fn soil(&mut self, from: usize, to: usize) {
        for sector in from / SECTOR..to.div_ceil(SECTOR) {
            let state = sector_of(&self.cached, sector);
            self.dirty.entry(sector).or_default().push(state);
        }
    }

    fn sync(&mut self) {
        self.durable.resize(self.cached.len(), 0);
        for (sector, _) in std::mem::take(&mut self.dirty) {
            self.doubtful.remove(&sector);
            let state = sector_of(&self.cached, sector);
            put_sector(&mut self.durable, sector, &state);
        }
        self.lengths.clear();
    }

    fn fail_sync(&mut self) {
        for (sector, states) in std::mem::take(&mut self.dirty) {
            self.doubtful.entry(sector).or_default().extend(states);
        }
    }

    fn crash(&mut self, entropy: &mut dyn Entropy) {
        let choice = below(entropy, self.lengths.len() as u64 + 1) as usize;
        let length = self.lengths.get(choice).copied().unwrap_or(self.durable.len());
        let mut states = std::mem::take(&mut self.doubtful);
        for (sector, more) in std::mem::take(&mut self.dirty) {
            states.entry(sector).or_default().extend(more);
        }
        self.durable.resize(length, 0);
        for (sector, states) in states {
            // The last choice is the synced state.
            let choice = below(entropy, states.len() as u64 + 1) as usize;
            if let Some(state) = states.get(choice) {
                put_sector(&mut self.durable, sector, state);
            }
        }
        self.lengths.clear();
        self.cached = self.durable.clone();
    }
}

/// Returns a sector's bytes, with zeros beyond the end.
fn sector_of(bytes: &[u8], sector: usize) -> [u8; SECTOR] {
    let mut state = [0; SECTOR];
    let from = (sector * SECTOR).min(bytes.len());
    let part = &bytes[from..bytes.len().min(from + SECTOR)];
    state[..part.len()].copy_from_slice(part);
    state
}

fn put_sector(bytes: &mut [u8], sector: usize, state: &[u8; SECTOR]) {
    let from = (sector * SECTOR).min(bytes.len());
    let to = bytes.len().min(from + SECTOR);
    bytes[from..to].copy_from_slice(&state[..to - from]);
}

/// A handle of a blob, valid until the next restart.
struct CrashBlob {
    storage: CrashStorage,
    generation: u64,
    name: BlobName,
    contents: Arc<Mutex<Contents>>,
}

impl CrashBlob {
    /// Runs an operation if the disk allows it. Otherwise applies the effect of the failure.
    fn run<T>(
        &self,
        operation: Operation,
        growth: impl FnOnce(&Contents) -> usize,
        act: impl FnOnce(&mut Contents) -> T,
        harm: impl FnOnce(&mut Contents, Harm),
    ) -> Result<T> {
        let mut disk = self.storage.lock();
        let mut contents = lock(&self.contents);
        if disk.generation != self.generation {
            let source = io::Error::other("the machine was restarted since this was opened");
            return Err(StorageError::Io { action: "use", name: self.name.to_string(), source });
        }
        if let Err((error, what)) = disk.admit(operation, self.name.as_str()) {
            harm(&mut contents, what);
            return Err(error);
        }
        if let Some(left) = &mut disk.space_left {
            let growth = growth(&contents) as u64;
            if growth > *left {
                return Err(StorageError::NoSpace { name: self.name.to_string() });
            }
            *left -= growth;
        }
        Ok(act(&mut contents))
    }
}

impl Blob for CrashBlob {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let read = |contents: &mut Contents| {
            let from = (offset as usize).min(contents.cached.len());
            let to = contents.cached.len().min(from + buffer.len());
            buffer[..to - from].copy_from_slice(&contents.cached[from..to]);
            to - from
        };
        self.run(Operation::Read, |_| 0, read, |_, _| ())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let offset = offset as usize;
        self.run(
            Operation::Write,
            |contents| (offset + bytes.len()).saturating_sub(contents.cached.len()),
            |contents| contents.write(offset, bytes),
            |contents, harm| {
                if harm != Harm::None {
                    contents.write(offset, &bytes[..bytes.len() / 2]);
                }
            },
        )
    }

    fn sync(&self) -> Result<()> {
        self.run(
            Operation::Sync,
            |_| 0,
            Contents::sync,
            |contents, harm| {
                if harm == Harm::Failed {
                    contents.fail_sync();
                }
            },
        )
    }

    /// Copies the bytes in place of sharing blocks, which differs only in time and space. Before a
    /// sync, any part of the copied bytes may be on the disk; a real file system guarantees more.
    fn share_blocks(
        &self,
        source: &dyn CloneSource,
        range: Range<u64>,
    ) -> std::result::Result<(), CloneError> {
        if !self.storage.lock().has_reflinks {
            return Err(CloneError::Unable { source: io::ErrorKind::Unsupported.into() });
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let failed =
            |source| StorageError::from_io("share blocks with", self.name.as_str(), source);
        let count = source.read_at(range.start, &mut bytes).map_err(failed)?;
        if count < bytes.len() {
            return Err(failed(io::ErrorKind::InvalidInput.into()).into());
        }
        let write = |contents: &mut Contents| contents.write(range.start as usize, &bytes);
        Ok(self.run(Operation::Clone, |_| 0, write, |_, _| ())?)
    }

    fn length(&self) -> Result<u64> {
        self.run(Operation::Read, |_| 0, |contents| contents.cached.len() as u64, |_, _| ())
    }

    fn set_length(&self, length: u64) -> Result<()> {
        let set = |contents: &mut Contents| contents.set_length(length as usize);
        self.run(Operation::Write, |_| 0, set, |_, _| ())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn below(entropy: &mut dyn Entropy, bound: u64) -> u64 {
    entropy.next_u64() % bound
}

/// The number of bytes that a disk writes completely or not at all.
const SECTOR: usize = 512;

#[cfg(test)]
mod tests {
    use dafs_types::Random;

    use super::*;

    fn name(name: &str) -> BlobName {
        BlobName::new(name).unwrap()
    }

    fn contents(storage: &CrashStorage, blob: &str) -> Vec<u8> {
        let blob = storage.open(&name(blob)).unwrap();
        let mut bytes = vec![0; blob.length().unwrap() as usize];
        blob.read_at(0, &mut bytes).unwrap();
        bytes
    }

    /// Creates a disk with one synced blob of ones, which is overwritten with twos that are not
    /// synced.
    fn half_written() -> CrashStorage {
        let storage = CrashStorage::new();
        let blob = storage.create(&name("a")).unwrap();
        blob.write_at(0, &[1; 4 * SECTOR]).unwrap();
        blob.sync().unwrap();
        storage.sync_names().unwrap();
        blob.write_at(0, &[2; 4 * SECTOR]).unwrap();
        storage
    }

    #[test]
    fn unsynced_sectors_survive_in_any_subset() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..400 {
            let storage = half_written();
            storage.crash(&mut Random::new(seed));
            let bytes = contents(&storage, "a");
            for sector in bytes.chunks(SECTOR) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "seed {seed}");
            }
            seen.insert(bytes.chunks(SECTOR).map(|s| s[0]).collect::<Vec<_>>());
            // The surviving bytes also survive further crashes.
            storage.crash(&mut Random::new(seed + 1));
            assert_eq!(contents(&storage, "a"), bytes, "seed {seed}");
        }
        assert_eq!(seen.len(), 16);
    }

    #[test]
    fn a_kill_keeps_what_a_later_crash_may_take() {
        let mut lost = 0;
        for seed in 0..50 {
            let storage = half_written();
            storage.kill();
            assert_eq!(contents(&storage, "a"), [2; 4 * SECTOR]);
            storage.crash(&mut Random::new(seed));
            lost += usize::from(contents(&storage, "a") != [2; 4 * SECTOR]);
        }
        assert!(lost > 0);
        let storage = half_written();
        storage.kill();
        storage.open(&name("a")).unwrap().sync().unwrap();
        storage.crash(&mut Random::new(1));
        assert_eq!(contents(&storage, "a"), [2; 4 * SECTOR]);
    }

    #[test]
    fn a_failed_sync_is_not_made_good_by_the_next() {
        let mut lost = 0;
        for seed in 0..50 {
            let storage = half_written();
            let blob = storage.open(&name("a")).unwrap();
            storage.fail_next(Operation::Sync);
            blob.sync().unwrap_err();
            blob.sync().unwrap();
            assert_eq!(contents(&storage, "a"), [2; 4 * SECTOR]);
            storage.crash(&mut Random::new(seed));
            lost += usize::from(contents(&storage, "a") != [2; 4 * SECTOR]);
        }
        assert!(lost > 0);
    }

    #[test]
    fn names_survive_from_the_first_on() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let storage = CrashStorage::new();
            storage.create(&name("a")).unwrap();
            storage.sync_names().unwrap();
            storage.create(&name("b")).unwrap();
            storage.remove(&name("a")).unwrap();
            storage.create(&name("c")).unwrap();
            storage.crash(&mut Random::new(seed));
            let names: Vec<_> = storage.list().unwrap();
            seen.insert(names.iter().map(BlobName::as_str).collect::<String>());
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["a", "ab", "b", "bc"]);
    }

    #[test]
    fn power_space_and_old_handles_end() {
        let storage = half_written();
        let old = storage.open(&name("a")).unwrap();
        storage.power_off_after(1);
        old.write_at(0, &[3; 2]).unwrap();
        old.write_at(0, &[4; 2 * SECTOR]).unwrap_err();
        assert!(storage.is_off());
        old.read_at(0, &mut [0]).unwrap_err();
        storage.kill();
        old.write_at(0, &[5]).unwrap_err();
        let bytes = contents(&storage, "a");
        assert_eq!((bytes[0], bytes[SECTOR]), (4, 2), "half of the write is made");
        storage.set_space_left(Some(10));
        let blob = storage.create(&name("b")).unwrap();
        blob.write_at(0, &[0; 10]).unwrap();
        blob.write_at(5, &[0; 5]).unwrap();
        assert!(matches!(blob.write_at(5, &[0; 6]), Err(StorageError::NoSpace { .. })));
    }

    #[test]
    fn a_length_survives_or_not() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let storage = half_written();
            let blob = storage.open(&name("a")).unwrap();
            blob.sync().unwrap();
            blob.set_length(SECTOR as u64).unwrap();
            blob.set_length(2 * SECTOR as u64).unwrap();
            storage.crash(&mut Random::new(seed));
            seen.insert(contents(&storage, "a").len() / SECTOR);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2, 4]);
    }
}

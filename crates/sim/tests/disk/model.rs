//! Random operations, syncs and crashes, checked against a model without block maps and journals:
//! it keeps every state since the last crash, and the bytes of each file in each state.

use std::collections::BTreeMap;
use std::sync::Arc;

use dafs_sim::Random;
use dafs_sim::disk::{CrashStore, Fault};
use dafs_store::{AttributeChanges, Attributes, File, Store, StoreError};
use dafs_types::{Entropy, FileHandle, Moment, ObjectType};

use super::tools::{
    create, create_directory, disk, find, list, open, read, read_handle, top, who, write,
};

const BLOCK: usize = 4096;
const SECTOR: usize = 512;

/// A file handle with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handle(FileHandle);

impl Ord for Handle {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.0.cmp(&other.0.0)
    }
}

impl PartialOrd for Handle {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// What a walk through the store sees of an object, except its bytes and times.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    kind: ObjectType,
    mode: u32,
    links: u32,
    size: u64,
    entries: BTreeMap<String, Handle>,
}

type State = BTreeMap<Handle, Node>;

/// The bytes of a file at the last sync and after each change since.
#[derive(Clone, Debug)]
struct Bytes {
    versions: Vec<Vec<u8>>,
    /// True if the file was truncated since: the sector of the cut may be a mix of old and new.
    was_cut: bool,
    /// True if a sync has failed in the middle: it is unknown what a later one writes to the disk.
    is_tainted: bool,
}

impl Bytes {
    fn new(bytes: Vec<u8>) -> Self {
        Self { versions: vec![bytes], was_cut: false, is_tainted: false }
    }

    fn now(&self) -> &Vec<u8> {
        self.versions.last().unwrap()
    }

    /// Returns true if a crash may leave these bytes.
    fn permits(&self, left: &[u8]) -> bool {
        let at = |version: &Vec<u8>, index| version.get(index).copied().unwrap_or(0);
        left.chunks(SECTOR).enumerate().all(|(number, sector)| {
            let byte_is = |version: &Vec<u8>, (index, byte): (usize, &u8)| {
                at(version, number * SECTOR + index) == *byte
            };
            if self.was_cut {
                let mut bytes = sector.iter().enumerate();
                bytes.all(|byte| self.versions.iter().any(|version| byte_is(version, byte)))
            } else {
                let mut versions = self.versions.iter();
                versions.any(|v| sector.iter().enumerate().all(|byte| byte_is(v, byte)))
            }
        })
    }
}

struct Model {
    store: CrashStore,
    random: Random,
    /// Every state since the last power failure; the last one is what processes see.
    states: Vec<State>,
    /// The oldest state that a crash may leave.
    floor: usize,
    bytes: BTreeMap<Handle, Bytes>,
    opens: Vec<Arc<dyn File>>,
    crashes: u64,
    /// Crashes that lost something, and crashes that kept something unsynced.
    took: u64,
    left: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let store = disk();
        let states = vec![walk(&store)];
        Self {
            store,
            random: Random::new(seed),
            states,
            floor: 0,
            bytes: BTreeMap::new(),
            opens: Vec::new(),
            crashes: 0,
            took: 0,
            left: 0,
        }
    }

    fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    /// Adds a state, as `change` makes it from the present one.
    fn change(&mut self, change: impl FnOnce(&mut State)) {
        let mut state = self.now().clone();
        change(&mut state);
        self.states.push(state);
    }

    /// Notes what a sync makes durable: all operations that touched an object, or only those that
    /// its size needs.
    fn raise_floor(&mut self, handle: &Handle, size_only: bool) {
        let differs = |pair: &[State]| {
            let [before, after] = [0, 1].map(|index| pair[index].get(handle));
            match (before, after) {
                (Some(before), Some(after)) if size_only => before.size != after.size,
                _ => before != after,
            }
        };
        let last = self.states.windows(2).rposition(differs).map_or(0, |index| index + 1);
        self.floor = self.floor.max(last);
    }

    // ---- steps ------------------------------------------------------------------------

    fn step(&mut self) {
        if self.random.percent(20) {
            self.store.set_time(Moment(self.random.next_u64() >> 20));
        }
        match self.random.below(100) {
            0..18 => self.create(),
            18..24 => self.create_unlinked(),
            24..30 => self.link(),
            30..38 => self.remove(),
            38..46 => self.rename(),
            46..49 => self.set_mode(),
            49..70 => self.write(),
            70..75 => self.set_size(),
            75..84 => self.sync_file(),
            84..88 => self.sync_by_handle(),
            88..91 => self.reopen(),
            91..95 => self.store.settle(&mut self.random),
            95..97 => self.close(),
            97 => self.kill(),
            _ => self.power_loss(),
        }
        // Processes see the last state, without objects that have no name.
        assert_eq!(walk(&self.store), reachable(self.now()));
        self.compare_bytes();
    }

    fn directory(&mut self) -> Handle {
        let directories: Vec<_> = reachable(self.now())
            .into_iter()
            .filter(|(_, node)| node.kind == ObjectType::Directory)
            .map(|(handle, _)| handle)
            .collect();
        directories[self.random.below(directories.len())]
    }

    fn name(&mut self) -> String {
        ["a", "b", "c", "d"][self.random.below(4)].into()
    }

    fn file(&mut self) -> Option<Arc<dyn File>> {
        match self.opens.len() {
            0 => None,
            count => Some(self.opens[self.random.below(count)].clone()),
        }
    }

    fn create(&mut self) {
        let (directory, name) = (self.directory(), self.name());
        let is_there = self.now()[&directory].entries.contains_key(&name);
        let is_directory = self.random.percent(15) && !is_there;
        let (handle, kind, mode, links) = if is_directory {
            let handle = Handle(create_directory(&self.store, &directory.0, &name));
            (handle, ObjectType::Directory, 0o700, 2)
        } else {
            match create(&self.store, &directory.0, &name) {
                Ok(file) => {
                    self.opens.push(file.clone());
                    (Handle(file.handle()), ObjectType::Regular, 0o600, 1)
                }
                Err(error) => return assert!(is_there && error == StoreError::Exists),
            }
        };
        assert!(!is_there);
        let node = Node { kind, mode, links, size: 0, entries: BTreeMap::new() };
        self.change(|state| {
            state.insert(handle, node);
            let parent = state.get_mut(&directory).unwrap();
            parent.entries.insert(name, handle);
            parent.links += u32::from(is_directory);
        });
        if !is_directory {
            self.bytes.insert(handle, Bytes::new(Vec::new()));
        }
    }

    fn create_unlinked(&mut self) {
        let directory = self.directory();
        let none = AttributeChanges::default();
        let file = self.store.create_unlinked(&who(), &directory.0, &none).unwrap().1;
        let handle = Handle(file.handle());
        let (kind, entries) = (ObjectType::Regular, BTreeMap::new());
        let node = Node { kind, mode: 0o600, links: 0, size: 0, entries };
        self.change(|state| drop(state.insert(handle, node)));
        self.bytes.insert(handle, Bytes::new(Vec::new()));
        self.opens.push(file);
    }

    fn link(&mut self) {
        let (Some(file), directory, name) = (self.file(), self.directory(), self.name()) else {
            return;
        };
        let handle = Handle(file.handle());
        match self.store.link(&who(), &handle.0, &directory.0, name.as_bytes()) {
            Ok(_) => self.change(|state| {
                state.get_mut(&handle).unwrap().links += 1;
                let before = state.get_mut(&directory).unwrap().entries.insert(name, handle);
                assert_eq!(before, None);
            }),
            Err(error) => {
                assert_eq!(error, StoreError::Exists);
                assert!(self.now()[&directory].entries.contains_key(&name));
            }
        }
    }

    fn remove(&mut self) {
        let (directory, name) = (self.directory(), self.name());
        let removed = self.store.remove(&who(), &directory.0, name.as_bytes());
        let found = self.now()[&directory].entries.get(&name).copied();
        match removed {
            Ok(removed) => {
                let handle = Handle(removed.handle);
                assert_eq!(Some(handle), found);
                self.change(|state| {
                    let parent = state.get_mut(&directory).unwrap();
                    parent.entries.remove(&name);
                    unlink(state, &directory, &handle);
                });
            }
            Err(StoreError::NotFound) => assert_eq!(found, None),
            Err(error) => {
                assert_eq!(error, StoreError::NotEmpty);
                assert!(!self.now()[&found.unwrap()].entries.is_empty());
            }
        }
    }

    fn rename(&mut self) {
        let (from, old, to, new) = (self.directory(), self.name(), self.directory(), self.name());
        let renamed = self.store.rename(&who(), &from.0, old.as_bytes(), &to.0, new.as_bytes());
        if renamed.is_err() {
            // The conformance suite checks which errors are returned.
            return;
        }
        let moved = self.now()[&from].entries[&old];
        let present = self.now()[&to].entries.get(&new).copied();
        if present == Some(moved) {
            return;
        }
        self.change(|state| {
            state.get_mut(&from).unwrap().entries.remove(&old);
            state.get_mut(&to).unwrap().entries.insert(new, moved);
            if state[&moved].kind == ObjectType::Directory {
                state.get_mut(&from).unwrap().links -= 1;
                state.get_mut(&to).unwrap().links += 1;
            }
            if let Some(victim) = present {
                unlink(state, &to, &victim);
            }
        });
    }

    fn set_mode(&mut self) {
        let handles: Vec<_> = reachable(self.now()).into_keys().collect();
        let handle = handles[self.random.below(handles.len())];
        let mode = self.random.below(0o1000) as u32;
        let changes = AttributeChanges { mode: Some(mode), ..AttributeChanges::default() };
        self.store.set_attributes(&who(), &handle.0, &changes).unwrap();
        self.change(|state| state.get_mut(&handle).unwrap().mode = mode);
    }

    fn write(&mut self) {
        let Some(file) = self.file() else { return };
        let handle = Handle(file.handle());
        let size = self.bytes[&handle].now().len();
        let (behind, length_max) = (self.random.below(3), self.random.below(3));
        let offset = self.random.below(size + [1, 600, 9_000][behind]);
        let length = 1 + self.random.below([100, 5_000, 20_000][length_max]);
        let bytes = self.random.bytes(length);
        if self.random.percent(5) {
            self.store.inject(Fault::draw(&mut self.random, 1));
        }
        let mut after = self.bytes[&handle].now().clone();
        after.resize(after.len().max(offset + length), 0);
        after[offset..offset + length].copy_from_slice(&bytes);
        let written = write(&*file, &bytes, offset as u64);
        self.store.clear_faults();
        if written.is_err() {
            // A first part of the operation was done, or all of it, or nothing.
            let found = read(&*file);
            let before = self.bytes[&handle].now();
            let mut part = before.clone();
            part.resize(found.len(), 0);
            let is_part = (0..=length).any(|done| {
                part[offset.min(found.len())..(offset + done).min(found.len())].copy_from_slice(
                    &bytes[..(offset + done).min(found.len()) - offset.min(found.len())],
                );
                part == found
            });
            assert!(is_part);
            after = found;
        }
        self.grow(&handle, after.len());
        self.bytes.get_mut(&handle).unwrap().versions.push(after);
    }

    /// Notes that a growing file may have every intermediate size at the end of a block.
    fn grow(&mut self, handle: &Handle, size: usize) {
        let before = self.now()[handle].size as usize;
        let ends = (before / BLOCK + 1..).map(|block| block * BLOCK);
        let between: Vec<_> = ends.take_while(|end| *end < size).collect();
        for size in between.into_iter().chain((size > before).then_some(size)) {
            self.change(|state| state.get_mut(handle).unwrap().size = size as u64);
        }
    }

    fn set_size(&mut self) {
        let Some(file) = self.file() else { return };
        let handle = Handle(file.handle());
        let bytes = self.bytes.get_mut(&handle).unwrap();
        let mut after = bytes.now().clone();
        let size = self.random.below(after.len() + 5_000);
        bytes.was_cut |= size < after.len();
        after.resize(size, 0);
        bytes.versions.push(after);
        file.set_size(size as u64).unwrap();
        self.change(|state| state.get_mut(&handle).unwrap().size = size as u64);
    }

    fn sync_file(&mut self) {
        let Some(file) = self.file() else { return };
        let handle = Handle(file.handle());
        let data_only = self.random.percent(50);
        if self.random.percent(10) {
            self.store.inject(Fault::draw(&mut self.random, 1));
        }
        let synced = file.sync(data_only);
        self.store.clear_faults();
        let bytes = self.bytes.get_mut(&handle).unwrap();
        if synced.is_err() {
            bytes.is_tainted = true;
            return;
        }
        if !bytes.is_tainted {
            *bytes = Bytes::new(bytes.now().clone());
        }
        self.raise_floor(&handle, data_only);
    }

    fn sync_by_handle(&mut self) {
        let handles: Vec<_> = reachable(self.now()).into_keys().collect();
        let handle = handles[self.random.below(handles.len())];
        self.store.sync(&handle.0).unwrap();
        self.raise_floor(&handle, false);
    }

    fn reopen(&mut self) {
        let files: Vec<_> = reachable(self.now())
            .into_iter()
            .filter(|(_, node)| node.kind == ObjectType::Regular)
            .map(|(handle, _)| handle)
            .collect();
        if !files.is_empty() {
            let handle = files[self.random.below(files.len())];
            self.opens.push(open(&self.store, &handle.0).unwrap());
        }
    }

    fn close(&mut self) {
        if !self.opens.is_empty() {
            let index = self.random.below(self.opens.len());
            self.opens.swap_remove(index);
        }
    }

    // ---- crashes ----------------------------------------------------------------------

    fn kill(&mut self) {
        self.store.kill();
        self.bury_opens();
        let alive = reachable(self.now());
        self.states.push(alive);
        self.check_room();
    }

    /// Checks that no object without a name is left, and that no space is lost.
    fn check_room(&self) {
        let room = self.store.fs_attributes(&who(), &top(&self.store)).unwrap();
        let nodes = self.now().values();
        let bytes = nodes.filter(|n| n.kind == ObjectType::Regular).map(|n| n.size).sum();
        assert_eq!(room.space_total.unwrap() - room.space_free.unwrap(), bytes);
        let objects = room.files_total.unwrap() - room.files_free.unwrap();
        assert_eq!(objects, self.now().len() as u64);
    }

    fn bury_opens(&mut self) {
        for file in self.opens.drain(..) {
            assert_eq!(file.attributes().err(), Some(StoreError::Stale));
            assert_eq!(write(&*file, b"late", 0), Err(StoreError::Stale));
        }
    }

    fn power_loss(&mut self) {
        let pending = self.store.pending();
        let loss = self.store.power_loss(&mut self.random);
        assert_eq!(loss.operations_kept + loss.operations_lost, pending.operations as u64);
        let of_blocks = loss.blocks_kept + loss.blocks_lost + loss.blocks_torn;
        assert_eq!(of_blocks, pending.blocks as u64);
        self.bury_opens();
        let left = walk(&self.store);
        let candidates = &self.states[self.floor..];
        let is_permitted = candidates.iter().any(|state| reachable(state) == left);
        assert!(is_permitted, "{left:#?}\nis not one of {candidates:#?}");
        let mut bytes = BTreeMap::new();
        for (handle, _) in left.iter().filter(|(_, node)| node.kind == ObjectType::Regular) {
            let found = read_handle(&self.store, &handle.0);
            let known = &self.bytes[handle];
            assert!(known.permits(&found), "{handle:?}: bytes that were never in the file");
            let was_changed = known.versions.len() > 1;
            let is_now = found[..] == known.now()[..found.len().min(known.now().len())];
            self.took += u64::from(was_changed && !is_now);
            self.left += u64::from(was_changed && is_now);
            bytes.insert(*handle, Bytes::new(found));
        }
        self.bytes = bytes;
        self.states = vec![left];
        self.floor = 0;
        self.crashes += 1;
        self.check_room();
    }

    fn compare_bytes(&mut self) {
        if let Some(file) = self.file() {
            assert_eq!(read(&*file), *self.bytes[&Handle(file.handle())].now());
        }
    }
}

/// Removes a link; a directory that is removed takes one link from its parent.
fn unlink(state: &mut State, parent: &Handle, handle: &Handle) {
    if state[handle].kind == ObjectType::Directory {
        state.remove(handle);
        state.get_mut(parent).unwrap().links -= 1;
    } else {
        state.get_mut(handle).unwrap().links -= 1;
    }
}

/// Returns the objects that have a name.
fn reachable(state: &State) -> State {
    state.iter().filter(|(_, n)| n.links > 0).map(|(h, n)| (*h, n.clone())).collect()
}

/// Returns what a process sees when it reads everything.
fn walk(store: &CrashStore) -> State {
    let mut state = State::new();
    let root = store.root(&who()).unwrap();
    let mut waiting = vec![(Handle(root.handle), root.attributes)];
    while let Some((handle, found)) = waiting.pop() {
        let Attributes { kind, mode, link_count: links, size, .. } = found;
        let mut node = Node { kind, mode, links, size, entries: BTreeMap::new() };
        if kind == ObjectType::Directory {
            for (name, object) in list(store, &handle.0) {
                node.entries.insert(name, Handle(object.handle));
                waiting.push((Handle(object.handle), object.attributes));
            }
        }
        let before = state.insert(handle, node.clone());
        assert!(before.is_none_or(|before| before == node && kind != ObjectType::Directory));
    }
    state
}

#[test]
fn a_crash_leaves_one_of_the_permitted_states() {
    let (mut crashes, mut took, mut left) = (0, 0, 0);
    for seed in 0..200 {
        let _guard = Seed(seed);
        let mut model = Model::new(seed);
        for _ in 0..200 {
            model.step();
        }
        crashes += model.crashes;
        took += model.took;
        left += model.left;
    }
    // The runs must really meet the cases they are meant for.
    assert!(crashes > 500 && took > 300 && left > 100, "{crashes} {took} {left}");
}

/// Prints the seed of the run if a panic ends it.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("it was seed {}", self.0);
        }
    }
}

/// Returns everything that can be observed in a run.
fn trace(seed: u64) -> Vec<String> {
    let (store, mut random) = (disk(), Random::new(seed));
    let mut lines = Vec::new();
    for step in 0..300 {
        let name = format!("f{}", random.below(5));
        let root = top(&store);
        let line = match random.below(8) {
            0 => format!("{:?}", create(&store, &root, &name).map(|file| file.attributes())),
            1 => format!("{:?}", store.remove(&who(), &root, name.as_bytes())),
            2 => format!("{:?}", store.sync(&root)),
            3 => {
                store.inject(Fault::draw(&mut random, 4));
                store.settle(&mut random);
                format!("{:?}", store.pending())
            }
            4 if random.percent(20) => format!("{:?}", store.power_loss(&mut random)),
            _ => match find(&store, &root, &name).map(|found| open(&store, &found).unwrap()) {
                None => String::new(),
                Some(file) => {
                    let bytes = random.bytes(9_000);
                    let offset = random.below(9_000) as u64;
                    let done = write(&*file, &bytes, offset);
                    let synced = random.percent(20).then(|| file.sync(true));
                    format!("{done:?} {synced:?} {:?} {:?}", file.attributes(), read(&*file))
                }
            },
        };
        lines.push(format!("{step}: {line} {:?}", list(&store, &root)));
    }
    lines
}

#[test]
fn the_same_calls_have_the_same_results() {
    for seed in [1, 2, 3] {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
    }
    assert_ne!(trace(1), trace(2));
}

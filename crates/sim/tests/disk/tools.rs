//! Helpers for these tests.

use std::sync::Arc;

use dafs_memory::{Memory, Pages};
use dafs_sim::Random;
use dafs_sim::disk::CrashStore;
use dafs_store::memory::MemoryLimits;
use dafs_store::{
    AttributeChanges, Credentials, File, ListRequest, NewNode, Object, Result, Store,
};
use dafs_types::{CookieVerifier, CreateMode, FileHandle, ReaddirCookie, ShareAccess};

pub(crate) fn who() -> Credentials {
    Credentials::superuser()
}

pub(crate) fn disk() -> CrashStore {
    CrashStore::new(MemoryLimits { bytes_max: 4 << 20, object_count_max: 1_000 })
}

pub(crate) fn top(store: &CrashStore) -> FileHandle {
    store.root(&who()).unwrap().handle
}

pub(crate) fn create(
    store: &CrashStore,
    directory: &FileHandle,
    name: &str,
) -> Result<Arc<dyn File>> {
    let (mode, access) = (CreateMode::Guarded, ShareAccess::Both);
    let changes = AttributeChanges::default();
    let made = store.create_file(&who(), directory, name.as_bytes(), mode, &changes, access);
    made.map(|(_, file)| file)
}

pub(crate) fn create_directory(store: &CrashStore, parent: &FileHandle, name: &str) -> FileHandle {
    let changes = AttributeChanges::default();
    let made = store.create_node(&who(), parent, name.as_bytes(), NewNode::Directory, &changes);
    made.unwrap().object.handle
}

pub(crate) fn open(store: &CrashStore, handle: &FileHandle) -> Result<Arc<dyn File>> {
    store.open(&who(), handle, ShareAccess::Both)
}

pub(crate) fn find(store: &CrashStore, directory: &FileHandle, name: &str) -> Option<FileHandle> {
    store.lookup(&who(), directory, name.as_bytes()).ok().map(|object| object.handle)
}

pub(crate) fn write(file: &dyn File, bytes: &[u8], offset: u64) -> Result<()> {
    let memory = Memory::from_heap(bytes.to_vec().into_boxed_slice());
    file.write_at(&memory, 0, bytes.len(), offset)
}

/// Reads a whole open file.
pub(crate) fn read(file: &dyn File) -> Vec<u8> {
    let length = file.attributes().unwrap().size as usize;
    let memory = Memory::anonymous(length.max(1), Pages::Small).unwrap();
    memory.write(0, &vec![0xee; length]);
    assert_eq!(file.read_at(&memory, 0, length + 1, 0).err(), None);
    memory.to_vec(0, length)
}

/// Reads a whole file without leaving it open.
pub(crate) fn read_handle(store: &CrashStore, handle: &FileHandle) -> Vec<u8> {
    read(&*open(store, handle).unwrap())
}

/// Lists a directory.
pub(crate) fn list(store: &CrashStore, directory: &FileHandle) -> Vec<(String, Object)> {
    let request = ListRequest {
        cookie: ReaddirCookie(0),
        verifier: CookieVerifier::default(),
        entry_count_max: usize::MAX,
        name_bytes_max: usize::MAX,
        want_objects: true,
    };
    let page = store.readdir(&who(), directory, &request).unwrap();
    assert!(page.is_end);
    let entries = page.entries.into_iter();
    entries.map(|e| (String::from_utf8(e.name).unwrap(), e.object.unwrap())).collect()
}

/// Counts for how many seeds a condition is true.
pub(crate) fn count(seeds: u64, mut is_so: impl FnMut(u64, &mut Random) -> bool) -> u64 {
    (0..seeds).filter(|seed| is_so(*seed, &mut Random::new(*seed))).count() as u64
}

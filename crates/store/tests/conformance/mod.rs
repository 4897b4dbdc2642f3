//! One test suite for all implementations of `Store` and `File`.

use std::sync::Arc;

use dafs_memory::Memory;
use dafs_store::local::{LocalConfig, LocalStore};
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_store::{Store, StoreError};
use dafs_types::ShareAccess;
use suite::{create, list, make, mode, root, top};

mod suite;

pub(crate) use suite::settled;

fn is_privileged() -> bool {
    dafs_tests::is_root()
}

/// Runs a check on every store.
fn everywhere(check: impl Fn(&dyn Store)) {
    let limits = MemoryLimits { bytes_max: 64 << 20, object_count_max: 10_000 };
    check(&MemoryStore::new(limits));
    for kernel_handles in [true, false] {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        let mut config = LocalConfig::new(&tree, place.path().join("state"));
        config.kernel_handles = kernel_handles;
        check(&LocalStore::new(&config).unwrap());
    }
}

#[test]
fn the_memory_store_stays_within_its_bounds() {
    let store = MemoryStore::new(MemoryLimits { bytes_max: 1000, object_count_max: 3 });
    let top = top(&store);
    let file = store.open(&root(), &make(&store, &top, "a", 0o600), ShareAccess::Both).unwrap();
    let memory = Memory::from_heap(vec![1; 1001].into_boxed_slice());
    assert_eq!(file.write_at(&memory, 0, 1001, 0), Err(StoreError::NoSpace));
    assert_eq!(file.write_at(&memory, 0, 1, u64::MAX / 2), Err(StoreError::NoSpace));
    assert_eq!(file.write_at(&memory, 0, 1000, 0), Ok(()));
    make(&store, &top, "b", 0o600);
    let third = create(&store, &root(), &top, "c", &mode(0));
    assert_eq!(third.unwrap_err(), StoreError::NoSpace);
    store.remove(&root(), &top, b"a").unwrap();
    drop(file);
    make(&store, &top, "c", 0o600);
    assert_eq!(store.fs_attributes(&root(), &top).unwrap().space_free, Some(1000));
}

#[test]
fn stores_can_be_shared_between_threads() {
    let limits = MemoryLimits { bytes_max: 1 << 20, object_count_max: 100 };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(limits));
    let other = store.clone();
    std::thread::spawn(move || make(&*other, &top(&*other), "f", 0o600)).join().unwrap();
    assert_eq!(list(&*store, &top(&*store), 5), ["f"]);
}

//! Replays the fuzz corpus, and pseudo-random requests, in every test run.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use dafs_server::fuzzing;
use dafs_store::local::{LocalConfig, LocalStore};
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_store::{AttributeChanges, Credentials, NewNode, Store};
use dafs_types::{CreateMode, FileHandle, Random, ShareAccess};

#[test]
fn the_corpus_harms_no_server() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/server_request");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        fuzzing::request(&fs::read(path).unwrap());
    }
}

#[test]
fn random_requests_harm_no_server() {
    let mut random = Random::new(1);
    for _ in 0..300 {
        let mut data = Vec::new();
        for _ in 0..random.below(8) {
            let length = random.below(100);
            data.extend(random.bytes(2));
            data.push(length as u8);
            // Mostly zeros, as in real requests.
            data.extend((0..2 * length).map(|_| (random.below(8) / 7 * random.below(256)) as u8));
        }
        fuzzing::request(&data);
    }
}

/// Creates a file and a directory with an entry. Returns their handles and that of the root.
fn furnish(store: &dyn Store) -> Vec<FileHandle> {
    let (who, none) = (Credentials::superuser(), AttributeChanges::default());
    let top = store.root(&who).unwrap().handle;
    let make = |directory: &FileHandle, name: &[u8]| {
        let (mode, access) = (CreateMode::Guarded, ShareAccess::Both);
        store.create_file(&who, directory, name, mode, &none, access).unwrap().1.handle()
    };
    let file = make(&top, b"file");
    let directory = store.create_node(&who, &top, b"d", NewNode::Directory, &none).unwrap();
    make(&directory.object.handle, b"entry");
    vec![file, directory.object.handle, top]
}

#[test]
fn extreme_numbers_harm_no_server_on_memory() {
    for seed in 0..3 {
        let limits = MemoryLimits { bytes_max: 1 << 20, object_count_max: 100 };
        let store = Arc::new(MemoryStore::new(limits));
        let mut handles = furnish(&*store);
        // In one of the rounds, each procedure is sent with each of the handles.
        handles.rotate_left(seed);
        fuzzing::extremes(store, &handles, &mut Random::new(seed as u64), 2000);
    }
}

#[test]
fn extreme_numbers_harm_no_server_on_directories() {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let config = LocalConfig::new(tree, directory.path().join("state"));
    let store = Arc::new(LocalStore::new(&config).unwrap());
    let handles = furnish(&*store);
    fuzzing::extremes(store, &handles, &mut Random::new(9), 2000);
}

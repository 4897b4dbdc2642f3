//! Attempts to escape from an export, and the validity of handles.

use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dafs_store::local::{Export, LocalConfig, LocalStore};
use dafs_store::{AttributeChanges, Credentials, ListRequest, NewNode, Store, StoreError};
use dafs_types::{CookieVerifier, CreateMode, FileHandle, ReaddirCookie, ShareAccess};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Gid, Uid};

use crate::conformance::settled;

mod by_name;
mod mounts;
mod permission;

/// A guard against hanging. No test measures time.
const HANG: Duration = Duration::from_secs(60);

struct Place {
    _directory: tempfile::TempDir,
    tree: PathBuf,
    outside: PathBuf,
    state: PathBuf,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let (tree, outside) = (directory.path().join("tree"), directory.path().join("outside"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "secret").unwrap();
    let state = directory.path().join("state");
    Place { _directory: directory, tree, outside, state }
}

fn start(place: &Place, kernel_handles: bool) -> LocalStore {
    let mut config = LocalConfig::new(&place.tree, &place.state);
    config.kernel_handles = kernel_handles;
    LocalStore::new(&config).unwrap()
}

/// Runs a check with the kernel's handles and without them.
fn both_ways(check: impl Fn(bool)) {
    check(true);
    check(false);
}

fn root() -> Credentials {
    Credentials::superuser()
}

fn top(store: &LocalStore) -> FileHandle {
    store.root(&root()).unwrap().handle
}

fn find(store: &LocalStore, path: &str) -> FileHandle {
    let names: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
    let found = store.lookup_path(&root(), &top(store), &names);
    assert_eq!(found.error, None, "{path}");
    found.handle
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

const ANN: u32 = 1001;
const BOB: u32 = 1002;

fn user(uid: u32) -> Credentials {
    Credentials::plain(uid, uid).unwrap()
}

fn mode(mode: u32) -> AttributeChanges {
    AttributeChanges { mode: Some(mode), ..AttributeChanges::default() }
}

fn is_privileged() -> bool {
    dafs_tests::is_root()
}

/// Makes this thread act as a user of the host for the rest of its life.
fn become_user(uid: u32) {
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
    rustix::thread::set_thread_groups(&[]).unwrap();
    rustix::thread::set_thread_res_gid(Some(group), Some(group), Some(group)).unwrap();
    rustix::thread::set_thread_res_uid(Some(user), Some(user), Some(user)).unwrap();
}

/// Creates a directory in the export that belongs to a user.
fn directory_of(place: &Place, name: &str, uid: u32, mode: u32) -> OwnedFd {
    let path = place.tree.join(name);
    std::fs::create_dir(&path).unwrap();
    chown(&path, Some(uid), Some(uid)).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    rustix::fs::open(&path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

#[test]
fn symbolic_links_are_objects_and_never_ways() {
    both_ways(|kernel| {
        let place = place();
        symlink(&place.outside, place.tree.join("absolute")).unwrap();
        symlink("../outside", place.tree.join("relative")).unwrap();
        symlink("../outside/secret", place.tree.join("file")).unwrap();
        let store = start(&place, kernel);
        for name in ["absolute", "relative", "file"] {
            let link = find(&store, name);
            let opened = store.open(&root(), &link, ShareAccess::Read);
            assert_eq!(opened.err(), Some(StoreError::IsSymlink));
            let into = store.lookup(&root(), &link, b"secret");
            assert_eq!(into.unwrap_err(), StoreError::NotDirectory);
            let none = AttributeChanges::default();
            let (mode, access) = (CreateMode::Unchecked, ShareAccess::Both);
            let made = store.create_file(&root(), &link, b"x", mode, &none, access);
            assert_eq!(made.err(), Some(StoreError::NotDirectory));
            let cut = AttributeChanges { size: Some(0), ..none };
            assert_eq!(store.set_attributes(&root(), &link, &cut), Err(StoreError::Invalid));
            let mode = AttributeChanges { mode: Some(0o777), ..none };
            store.set_attributes(&root(), &link, &mode).unwrap();
        }
        let cut = AttributeChanges { size: Some(0), ..AttributeChanges::default() };
        let (mode, access) = (CreateMode::Unchecked, ShareAccess::Both);
        let through = store.create_file(&root(), &top(&store), b"file", mode, &cut, access);
        assert_eq!(through.err(), Some(StoreError::IsSymlink));
        assert_eq!(std::fs::read(place.outside.join("secret")).unwrap(), b"secret");
        assert_ne!(std::fs::metadata(place.outside.join("secret")).unwrap().mode() & 0o777, 0o777);
    });
}

#[test]
fn a_name_leads_to_what_it_leads_to_now() {
    both_ways(|kernel| {
        let place = place();
        let (name, other) = (place.tree.join("name"), place.tree.join("other"));
        write(&name, "first");
        let store = start(&place, kernel);
        let open = |path: &str| {
            let (mode, none) = (CreateMode::NoCreate, AttributeChanges::default());
            let (access, name) = (ShareAccess::Read, path.as_bytes());
            let opened = store.create_file(&root(), &top(&store), name, mode, &none, access);
            let (found, file) = opened.unwrap();
            assert_eq!(found.object.handle, find(&store, path));
            assert_eq!(found.object.handle, file.handle());
            (found.object.handle, found.object.attributes.size)
        };
        let first = open("name");
        assert_eq!(open("name"), first);
        // The size of a growing file is the present one.
        write(&name, "longer");
        assert_eq!(open("name"), (first.0, 6));
        std::fs::hard_link(&name, &other).unwrap();
        assert_eq!(open("other"), (first.0, 6));
        // The file is removed and created again, and replaced. Only the store holds the old one.
        for text in ["another", "yet another"] {
            let before = open("name").0;
            std::fs::remove_file(&name).unwrap();
            write(&name, text);
            let after = open("name");
            assert!(after.0 != before);
            assert_eq!(after.1, text.len() as u64);
        }
        assert_eq!(open("other"), (first.0, 6));
        std::fs::rename(&other, &name).unwrap();
        assert_eq!(open("name"), (first.0, 6));
        let (top, name) = (top(&store), &b"other"[..]);
        assert_eq!(store.lookup(&root(), &top, name).err(), Some(StoreError::NotFound));
    });
}

#[test]
fn a_link_swapped_in_between_gains_nothing() {
    both_ways(|kernel| {
        let place = place();
        std::fs::create_dir(place.tree.join("d")).unwrap();
        write(&place.tree.join("d/secret"), "public");
        symlink(&place.outside, place.tree.join("evil")).unwrap();
        let store = start(&place, kernel);
        let (stop, tree) = (AtomicBool::new(false), place.tree.clone());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let (a, b) = (tree.join("d"), tree.join("evil"));
                while !stop.load(Ordering::Relaxed) {
                    let cwd = rustix::fs::CWD;
                    if rustix::fs::renameat_with(cwd, &a, cwd, &b, flags).is_err() {
                        return;
                    }
                }
            });
            let _stopper = Stopper(&stop);
            for _ in 0..3000 {
                let top = top(&store);
                let found = store.lookup_path(&root(), &top, &[b"d", b"secret"]);
                if found.error.is_none() {
                    assert_eq!(found.attributes.unwrap().size, 6);
                    let file = store.open(&root(), &found.handle, ShareAccess::Read).unwrap();
                    let memory = dafs_memory::Memory::from_heap(vec![0; 6].into_boxed_slice());
                    file.read_at(&memory, 0, 6, 0).unwrap();
                    assert_eq!(memory.to_vec(0, 6), b"public");
                }
            }
        });
    });
}

/// Stops the other thread, even if an assertion fails.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_leaves_the_export_is_stale() {
    both_ways(|kernel| {
        let place = place();
        std::fs::create_dir_all(place.tree.join("d/e")).unwrap();
        write(&place.tree.join("f"), "text");
        let store = start(&place, kernel);
        let (d, e, f) = (find(&store, "d"), find(&store, "d/e"), find(&store, "f"));
        std::fs::rename(place.tree.join("d"), place.outside.join("d")).unwrap();
        std::fs::rename(place.tree.join("f"), place.outside.join("f")).unwrap();
        let climbed = store.lookup_parent(&root(), &d);
        assert_eq!(climbed.unwrap_err(), StoreError::Stale, "never above the export");
        let begun = Instant::now();
        for handle in [d, e, f] {
            // A recent proof that an object is beneath the export stays valid for a moment.
            while store.attributes(&root(), &handle).is_ok() {
                assert!(begun.elapsed() < HANG, "what has left is served for ever");
                std::thread::yield_now();
            }
            assert_eq!(settled(&store, &root(), &handle).unwrap_err(), StoreError::Stale);
        }
        let fresh = start(&place, kernel);
        for handle in [d, e, f] {
            assert_eq!(settled(&fresh, &root(), &handle).unwrap_err(), StoreError::Stale);
        }
        std::fs::rename(place.outside.join("f"), place.tree.join("back")).unwrap();
        assert_eq!(fresh.attributes(&root(), &f).unwrap().size, 4);
    });
}

#[test]
fn handles_survive_renames_and_restarts() {
    both_ways(|kernel| {
        let place = place();
        std::fs::create_dir_all(place.tree.join("a/b")).unwrap();
        write(&place.tree.join("a/b/f"), "one");
        let store = start(&place, kernel);
        let (f, b) = (find(&store, "a/b/f"), find(&store, "a/b"));
        let a = find(&store, "a");
        store.rename(&root(), &b, b"f", &a, b"g").unwrap();
        std::fs::rename(place.tree.join("a"), place.tree.join("z")).unwrap();
        assert_eq!(store.attributes(&root(), &f).unwrap().size, 3);
        assert_eq!(find(&store, "z/g"), f);
        drop(store);
        let store = start(&place, kernel);
        assert_eq!(store.attributes(&root(), &f).unwrap().size, 3);
        assert_eq!(store.lookup_parent(&root(), &b).unwrap().handle, a);
        assert_eq!(find(&store, "z/g"), f);
        let key = std::fs::metadata(place.state.join("handle.key")).unwrap();
        assert_eq!((key.permissions().mode() & 0o777, key.len()), (0o600, 16));
        std::fs::remove_file(place.tree.join("z/g")).unwrap();
        assert_eq!(settled(&store, &root(), &f).unwrap_err(), StoreError::Stale);
        write(&place.tree.join("z/g"), "another");
        let store = start(&place, kernel);
        let seen = store.attributes(&root(), &f);
        assert_eq!(seen.unwrap_err(), StoreError::Stale, "a new file is not the old one");
    });
}

#[test]
fn another_key_makes_all_handles_bad() {
    let place = place();
    write(&place.tree.join("f"), "text");
    let handle = find(&start(&place, true), "f");
    std::fs::remove_dir_all(&place.state).unwrap();
    let store = start(&place, true);
    assert_eq!(store.attributes(&root(), &handle), Err(StoreError::BadHandle));
    for byte in 0..FileHandle::LENGTH {
        let mut forged = find(&store, "f");
        forged.0[byte] ^= 0x80;
        assert_eq!(store.attributes(&root(), &forged), Err(StoreError::BadHandle));
    }
}

#[test]
fn several_exports_are_listed_and_kept_apart() {
    let place = place();
    write(&place.tree.join("f"), "text");
    let mut config = LocalConfig::new(&place.tree, &place.state);
    config.exports = [("one", &place.tree, false), ("two", &place.outside, true)]
        .map(|(name, path, read_only)| Export { read_only, ..Export::new(name, path) })
        .to_vec();
    let store = LocalStore::new(&config).unwrap();
    let (who, top) = (root(), top(&store));
    let request = ListRequest {
        cookie: ReaddirCookie(0),
        verifier: CookieVerifier::default(),
        entry_count_max: 10,
        name_bytes_max: 100,
        want_objects: true,
    };
    let page = store.readdir(&who, &top, &request).unwrap();
    assert!(page.is_end);
    assert_eq!(page.entries.iter().map(|e| &e.name[..]).collect::<Vec<_>>(), [b"one", b"two"]);
    let (one, two) = (find(&store, "one"), find(&store, "two"));
    assert_eq!(store.lookup_parent(&who, &one).unwrap().handle, top);
    assert_ne!(one.fs(), two.fs());
    let none = AttributeChanges::default();
    let made = store.create_node(&who, &two, b"d", NewNode::Directory, &none);
    assert_eq!(made.unwrap_err(), StoreError::ReadOnly);
    assert_eq!(store.remove(&who, &two, b"secret").unwrap_err(), StoreError::ReadOnly);
    let secret = find(&store, "two/secret");
    assert_eq!(store.open(&who, &secret, ShareAccess::Both).err(), Some(StoreError::ReadOnly));
    assert!(store.open(&who, &secret, ShareAccess::Read).is_ok());
    assert_eq!(store.remove(&who, &top, b"one").unwrap_err(), StoreError::ReadOnly);
    let across = store.link(&who, &secret, &one, b"l");
    assert_eq!(across.unwrap_err(), StoreError::CrossDevice);
    config.exports.remove(0);
    let store = LocalStore::new(&config).unwrap();
    assert_eq!(settled(&store, &who, &one).unwrap_err(), StoreError::Stale);
    assert_eq!(store.attributes(&who, &secret).unwrap().size, 6);
}

#[test]
fn few_descriptors_serve_many_handles() {
    both_ways(|kernel| {
        let place = place();
        let mut config = LocalConfig::new(&place.tree, &place.state);
        config.descriptor_count_max = 64;
        config.kernel_handles = kernel;
        let store = LocalStore::new(&config).unwrap();
        for index in 0..500 {
            write(&place.tree.join(index.to_string()), "x");
        }
        let handles: Vec<_> = (0..500).map(|i| find(&store, &i.to_string())).collect();
        for handle in handles {
            assert_eq!(store.attributes(&root(), &handle).unwrap().size, 1);
        }
    });
}

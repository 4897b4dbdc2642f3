//! Handles that clients have kept from before handles had room for the server's node.

use std::hash::Hasher;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use dafs_store::local::{LocalConfig, LocalStore};
use dafs_store::{Credentials, Store, StoreError};
use dafs_types::{FileHandle, ShareAccess, Status};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use siphasher::sip::SipHasher24;

fn root() -> Credentials {
    Credentials::superuser()
}

/// The hash that servers compute with the key in their state directory.
fn hash(state: &Path, purpose: &[u8], bytes: &[u8]) -> [u8; 8] {
    let key: [u8; 16] = std::fs::read(state.join("handle.key")).unwrap().try_into().unwrap();
    let mut hasher = SipHasher24::new_with_key(&key);
    hasher.write(purpose);
    hasher.write(bytes);
    hasher.finish().to_le_bytes()
}

/// The handle of the same object with another first word.
fn sealed_with(state: &Path, handle: &FileHandle, word: [u8; 8]) -> FileHandle {
    let mut other = *handle;
    other.0[..8].copy_from_slice(&word);
    let seal = hash(state, b"handle", &other.0[..56]);
    other.0[56..].copy_from_slice(&seal);
    other
}

/// The handle in the old form, in which the export takes the whole first word.
fn old_form(state: &Path, handle: &FileHandle) -> FileHandle {
    sealed_with(state, handle, hash(state, b"export", b"export"))
}

fn over_each(check: impl Fn(&LocalConfig, &LocalStore)) {
    for kernel_handles in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let (tree, state) = (directory.path().join("tree"), directory.path().join("state"));
        std::fs::create_dir_all(tree.join("d")).unwrap();
        std::fs::write(tree.join("d/file"), b"data").unwrap();
        let mut config = LocalConfig::new(&tree, state);
        config.kernel_handles = kernel_handles;
        let store = LocalStore::new(&config).unwrap();
        check(&config, &store);
    }
}

/// A server that has just started and cannot open objects by handle.
fn restarted(config: &LocalConfig) -> LocalStore {
    let config = LocalConfig { kernel_handles: false, ..config.clone() };
    LocalStore::new(&config).unwrap()
}

fn walk(store: &LocalStore, names: &[&str]) -> FileHandle {
    let top = store.root(&root()).unwrap().handle;
    names.iter().fold(top, |at, name| store.lookup(&root(), &at, name.as_bytes()).unwrap().handle)
}

#[test]
fn a_handle_made_before_the_node_had_room_is_good_for_ever() {
    over_each(|config, store| {
        let state = &config.state_directory;
        let anew = LocalStore::new(config).unwrap();
        for names in [&[][..], &["d"], &["d", "file"]] {
            let handle = walk(store, names);
            let old = old_form(state, &handle);
            assert_ne!(old, handle);
            for store in [&anew, store] {
                let number = |handle| store.attributes(&root(), handle).unwrap().file_id;
                assert_eq!(number(&old), number(&handle), "{names:?}");
                assert_eq!(store.renewed(&old), Some(handle), "{names:?}");
                assert_eq!(store.renewed(&handle), None);
            }
        }
        // Results contain handles of the present form.
        let (directory, file) = (walk(store, &["d"]), walk(store, &["d", "file"]));
        let found = store.lookup(&root(), &old_form(state, &directory), b"file").unwrap();
        assert_eq!(found.handle, file);
        let open = |handle| store.open(&root(), handle, ShareAccess::Read).unwrap();
        let (one, two) = (open(&file), open(&old_form(state, &file)));
        assert_eq!((one.key(), one.handle()), (two.key(), two.handle()), "one object, one file");
    });
}

#[test]
fn a_handle_has_room_for_the_node_and_names_none_alone() {
    over_each(|config, store| {
        let state = &config.state_directory;
        let file = walk(store, &["d", "file"]);
        assert_eq!(file.birth_node(), 0);
        let mut word = *file.0.first_chunk().unwrap();
        word[6] = 5;
        let of_another = sealed_with(state, &file, word);
        assert_eq!(of_another.birth_node(), 5);
        assert_eq!(store.attributes(&root(), &of_another).err(), Some(StoreError::Stale));
        assert_eq!(store.renewed(&of_another), None);
    });
}

#[test]
fn only_what_was_sealed_is_renewed() {
    over_each(|config, store| {
        let file = walk(store, &["d", "file"]);
        let mut forged = old_form(&config.state_directory, &file);
        forged.0[30] ^= 1;
        assert_eq!(store.renewed(&forged), None);
        assert_eq!(store.attributes(&root(), &forged).err(), Some(StoreError::BadHandle));
        // The handle of a file system alone has no seal and leads to no object.
        let alone = |handle: &FileHandle| FileHandle::new(handle.fs(), [0; 48]);
        let old = alone(&old_form(&config.state_directory, &file));
        assert_eq!(store.renewed(&old), Some(alone(&file)));
        assert_eq!(store.attributes(&root(), &old).err(), Some(StoreError::BadHandle));
    });
}

#[test]
fn who_must_not_wait_is_told_to_have_an_object_searched_for() {
    over_each(|config, _| {
        let before = restarted(config);
        let (directory, file) = (walk(&before, &["d"]), walk(&before, &["d", "file"]));
        let top = walk(&before, &[]);
        let store = restarted(config);
        assert!(store.defer_searches());
        assert!(!store.must_search(&top), "the root is always at hand");
        for handle in [file, directory, old_form(&config.state_directory, &file)] {
            assert!(store.must_search(&handle));
            assert_eq!(store.attributes(&root(), &handle).err(), Some(StoreError::Busy));
        }
        store.search(&[file, old_form(&config.state_directory, &directory)]);
        for handle in [file, directory] {
            assert!(!store.must_search(&handle));
            store.attributes(&root(), &handle).unwrap();
        }
        // A lookup by name finds it without a search.
        let store = restarted(config);
        store.defer_searches();
        assert_eq!(walk(&store, &["d", "file"]), file);
        assert!(!store.must_search(&file));
    });
}

#[test]
fn an_object_that_is_gone_is_searched_for_once() {
    over_each(|config, _| {
        let store = restarted(config);
        store.defer_searches();
        let (directory, file) = (walk(&store, &["d"]), walk(&store, &["d", "file"]));
        store.remove(&root(), &directory, b"file").unwrap();
        assert!(!store.must_search(&file), "this store has removed it");
        assert_eq!(store.attributes(&root(), &file).err(), Some(StoreError::Stale));
        let store = restarted(config);
        store.defer_searches();
        assert!(store.must_search(&file));
        store.search(&[file, directory]);
        for _ in 0..3 {
            assert!(!store.must_search(&file), "it has been looked for");
            assert_eq!(store.attributes(&root(), &file).err(), Some(StoreError::Stale));
        }
        store.attributes(&root(), &directory).unwrap();
    });
}

#[test]
fn an_object_that_comes_back_is_there_again() {
    over_each(|config, _| {
        let tree = &config.exports[0].path;
        let (inside, outside) = (tree.join("d/file"), tree.with_extension("outside"));
        let store = restarted(config);
        store.defer_searches();
        let file = walk(&restarted(config), &["d", "file"]);
        std::fs::rename(&inside, &outside).unwrap();
        store.search(&[file]);
        assert_eq!(store.attributes(&root(), &file).err(), Some(StoreError::Stale));
        std::fs::rename(&outside, &inside).unwrap();
        assert_eq!(walk(&store, &["d", "file"]), file);
        store.attributes(&root(), &file).unwrap();
    });
}

#[test]
fn one_search_finds_many_and_forgets_nobody_in_use() {
    over_each(|config, _| {
        let tree = &config.exports[0].path;
        for number in 0..60 {
            let directory = tree.join(format!("{}/{number}", number % 7));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("file"), b"").unwrap();
        }
        let before = restarted(config);
        let path = |number: usize| [(number % 7).to_string(), number.to_string()];
        let handles: Vec<_> = (0..60)
            .map(|number| {
                let [first, second] = path(number);
                walk(&before, &[&first, &second, "file"])
            })
            .collect();
        let store = restarted(config);
        store.defer_searches();
        store.search(&handles);
        assert!(handles.iter().all(|handle| store.attributes(&root(), handle).is_ok()));
    });
}

/// The environment variable that tells a process that it may use up its own descriptors.
const WITHIN: &str = "DAFS_TEST_HANDLES_WITHIN";
/// After this time, a repeated search counts as hanging.
const HANG: Duration = Duration::from_secs(60);

/// Opens descriptors until only `left` more can be opened.
fn use_up_descriptors(left: usize) -> Vec<std::os::fd::OwnedFd> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum: limit.maximum }).unwrap();
    let open = || rustix::fs::open("/dev/null", OFlags::RDONLY, Mode::empty());
    let mut held: Vec<_> = std::iter::from_fn(|| open().ok()).collect();
    held.truncate(held.len() - left);
    held
}

#[test]
fn a_search_that_cannot_see_everything_calls_nothing_absent() {
    if std::env::var_os(WITHIN).is_none() {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again
            .args(["--exact", "handles::a_search_that_cannot_see_everything_calls_nothing_absent"]);
        let ended = again.arg("--nocapture").env(WITHIN, "1").status().unwrap();
        assert!(ended.success(), "{ended}");
        return;
    }
    over_each(|config, _| {
        let file = walk(&restarted(config), &["d", "file"]);
        let store = restarted(config);
        store.defer_searches();
        assert!(store.must_search(&file));
        // Enough for the root directory, but not for the objects in it.
        let held = use_up_descriptors(1);
        store.search(&[file]);
        let refused = store.attributes(&root(), &file).err();
        assert!(!store.must_search(&file), "not at once");
        drop(held);
        assert_eq!(refused, Some(StoreError::Unseen));
        assert_eq!(Status::from(StoreError::Unseen), Status::Delay);
        let begun = Instant::now();
        while !store.must_search(&file) {
            assert!(begun.elapsed() < HANG, "it is never searched for again");
            std::thread::yield_now();
        }
        store.search(&[file]);
        store.attributes(&root(), &file).unwrap();
    });
}

//! One store with different terms.

use dafs_store::local::{Export, LocalConfig, LocalStore, Squash};
use dafs_store::{AttributeChanges, Credentials, ExportTerms, ListRequest, Store, StoreError};
use dafs_types::{CookieVerifier, CreateMode, FileHandle, ReaddirCookie, ShareAccess};

struct Place {
    _directory: tempfile::TempDir,
    store: LocalStore,
}

/// Creates two exports. The export `one` refuses all changes.
fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let mut config = LocalConfig::new(".", directory.path().join("state"));
    config.exports.clear();
    for name in ["one", "two"] {
        let path = directory.path().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("file"), name).unwrap();
        config.exports.push(Export { read_only: name == "one", ..Export::new(name, path) });
    }
    let store = LocalStore::new(&config).unwrap();
    Place { _directory: directory, store }
}

fn hidden() -> ExportTerms {
    ExportTerms { is_visible: false, ..ExportTerms::open() }
}

/// The user who runs this test, who owns the exported files.
fn me() -> Credentials {
    let uid = rustix::process::geteuid().as_raw();
    Credentials::plain(uid, rustix::process::getegid().as_raw()).unwrap()
}

fn find(store: &dyn Store, path: &[&[u8]]) -> Result<FileHandle, StoreError> {
    let walked = store.lookup_path(&me(), &store.root(&me())?.handle, path);
    walked.error.map_or(Ok(walked.handle), Err)
}

fn make(store: &dyn Store, who: &Credentials, export: &[u8]) -> Result<u32, StoreError> {
    let directory = find(store, &[export])?;
    let changes = AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() };
    let (mode, access) = (CreateMode::Unchecked, ShareAccess::Both);
    let made = store.create_file(who, &directory, b"made", mode, &changes, access);
    made.map(|(created, _)| created.object.attributes.uid)
}

fn names(store: &dyn Store) -> Vec<String> {
    let request = ListRequest {
        cookie: ReaddirCookie(0),
        verifier: CookieVerifier::default(),
        entry_count_max: 10,
        name_bytes_max: 1000,
        want_objects: true,
    };
    let root = store.root(&me()).unwrap().handle;
    let page = store.readdir(&me(), &root, &request).unwrap();
    page.entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
}

#[test]
fn what_is_hidden_is_not_there() {
    let place = place();
    assert_eq!(place.store.export_names(), ["one", "two"]);
    let secret = find(&place.store, &[b"one", b"file"]).unwrap();
    let part = place.store.on_terms(&[hidden(), ExportTerms::open()]).unwrap();
    assert_eq!(
        (names(&place.store), names(&*part)),
        (vec!["one".into(), "two".into()], vec!["two".into()])
    );
    assert_eq!(find(&*part, &[b"one"]), Err(StoreError::NotFound));
    assert!(place.store.shows(&secret) && !part.shows(&secret));
    // Handles that were obtained elsewhere do not lead there either.
    let attributes = part.attributes(&me(), &secret).map(|_| ());
    assert_eq!(attributes, Err(StoreError::Access));
    let opened = part.open(&me(), &secret, ShareAccess::Read).map(|_| ());
    assert_eq!(opened, Err(StoreError::Access));
    // Handles are the same with all terms.
    let both = [&place.store as &dyn Store, &*part].map(|store| find(store, &[b"two", b"file"]));
    assert_eq!(both[0], both[1]);
}

#[test]
fn who_names_fewer_exports_hides_the_others() {
    let place = place();
    let part = place.store.on_terms(&[ExportTerms::open()]).unwrap();
    assert_eq!(names(&*part), ["one"]);
}

#[test]
fn terms_take_away_and_never_give() {
    let place = place();
    let open = [ExportTerms::open(), ExportTerms::open()];
    let part = place.store.on_terms(&open).unwrap();
    assert_eq!(make(&*part, &me(), b"one"), Err(StoreError::ReadOnly));
    assert_eq!(make(&*part, &me(), b"two"), Ok(me().uid()));
    let read_only = ExportTerms { read_only: true, ..ExportTerms::open() };
    let part = place.store.on_terms(&[ExportTerms::open(), read_only]).unwrap();
    assert_eq!(make(&*part, &me(), b"two"), Err(StoreError::ReadOnly));
}

#[test]
fn an_identity_counts_where_it_is_let() {
    let place = place();
    let squash = ExportTerms { squash: Squash::All, ..ExportTerms::open() };
    let part = place.store.on_terms(&[ExportTerms::open(), squash]).unwrap();
    // Other users may not write here, but the owner may.
    assert_eq!(make(&*part, &me(), b"two"), Err(StoreError::Access));
    assert_eq!(make(&place.store, &me(), b"two"), Ok(me().uid()));
}

#[test]
fn an_export_with_slashes_in_its_name_is_at_the_end_of_virtual_directories() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = LocalConfig::new(".", directory.path().join("state"));
    config.exports.clear();
    for (index, name) in ["srv/a", "srv/deep/b", "srv"].into_iter().enumerate() {
        let path = directory.path().join(index.to_string());
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("file"), name).unwrap();
        config.exports.push(Export::new(name, path));
    }
    let store = LocalStore::new(&config).unwrap();
    let handle = |store: &dyn Store, path: &[&[u8]]| find(store, path);
    // A caller that sees the export `srv` gets it, and not the virtual directory with its name.
    assert_eq!(names(&store), ["srv"]);
    handle(&store, &[b"srv", b"file"]).unwrap();
    assert_eq!(handle(&store, &[b"srv", b"a"]), Err(StoreError::NotFound));
    // Other callers reach the exports beneath it.
    let open = ExportTerms::open;
    let part = store.on_terms(&[open(), open(), hidden()]).unwrap();
    assert_eq!(names(&*part), ["srv"]);
    let virtual_one = handle(&*part, &[b"srv", b"deep"]).unwrap();
    let export = handle(&*part, &[b"srv", b"deep", b"b"]).unwrap();
    handle(&*part, &[b"srv", b"a", b"file"]).unwrap();
    let parent = |handle| part.lookup_parent(&me(), &handle).unwrap().handle;
    assert_eq!(parent(export), virtual_one);
    assert_eq!(parent(parent(virtual_one)), part.root(&me()).unwrap().handle);
    assert_eq!(part.remove(&me(), &virtual_one, b"b").map(|_| ()), Err(StoreError::ReadOnly));
    // A caller that sees no export beneath a directory does not see the directory.
    let less = store.on_terms(&[open(), hidden(), hidden()]).unwrap();
    assert_eq!(handle(&*less, &[b"srv", b"deep"]), Err(StoreError::NotFound));
    // Handles remain valid after a restart, and a single such export is not the root.
    config.exports.truncate(2);
    let again = LocalStore::new(&config).unwrap();
    assert_eq!(again.attributes(&me(), &virtual_one).map(|found| found.link_count), Ok(3));
    config.exports.truncate(1);
    let single = LocalStore::new(&config).unwrap();
    assert_eq!(names(&single), ["srv"]);
    assert_eq!(single.attributes(&me(), &virtual_one).map(|_| ()), Err(StoreError::Stale));
    assert_eq!(single.export_paths(), ["/srv/a"]);
    for name in ["/srv", "srv/", "a//b", "a/../b"] {
        config.exports[0].name = name.into();
        assert!(LocalStore::new(&config).is_err(), "{name}");
    }
}

#[test]
fn a_single_export_is_the_root_or_an_entry_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("file"), "text").unwrap();
    let mut config = LocalConfig::new(".", directory.path().join("state"));
    config.exports = vec![Export::new("data", path)];
    let root = LocalStore::new(&config).unwrap();
    assert_eq!((names(&root), root.export_paths()), (vec!["file".into()], vec!["/".into()]));
    config.lists_single_export = true;
    let entry = LocalStore::new(&config).unwrap();
    assert_eq!((names(&entry), entry.export_paths()), (vec!["data".into()], vec!["/data".into()]));
    // Handles are the same in both.
    assert_eq!(find(&entry, &[b"data", b"file"]), find(&root, &[b"file"]));
}

//! Objects that local processes or the store remove. The store must not keep their space in use.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dafs_store::local::{LocalConfig, LocalStore};
use dafs_store::{AttributeChanges, Created, File, Store};
use dafs_types::{CreateMode, Credentials, ShareAccess};

/// The number of this process's descriptors of objects beneath a directory that have no name.
fn held_without_name(beneath: &str) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    let is_it = |target: &String| target.starts_with(beneath) && target.ends_with(" (deleted)");
    targets.map(|target| target.to_string_lossy().into_owned()).filter(is_it).count()
}

/// A store of a new directory inside the scratch directory.
fn new_store() -> (tempfile::TempDir, PathBuf, LocalStore) {
    let place = tempfile::tempdir().unwrap();
    let export = place.path().canonicalize().unwrap().join("export");
    std::fs::create_dir(&export).unwrap();
    let store = LocalStore::new(&LocalConfig::new(&export, place.path().join("state"))).unwrap();
    (place, export, store)
}

fn myself() -> Credentials {
    Credentials::plain(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        .unwrap()
}

fn make(store: &LocalStore, name: &str) -> (Created, Arc<dyn File>) {
    let (who, changes) = (myself(), AttributeChanges::default());
    let root = store.root(&who).unwrap().handle;
    let (mode, access) = (CreateMode::Guarded, ShareAccess::Both);
    store.create_file(&who, &root, name.as_bytes(), mode, &changes, access).unwrap()
}

#[test]
fn what_the_store_has_removed_it_closes_when_it_is_told_that_nobody_waits() {
    let (_place, export, store) = new_store();
    let beneath = export.to_str().unwrap();
    let (who, root) = (myself(), store.root(&myself()).unwrap().handle);
    for number in 0..600 {
        make(&store, &format!("{number}"));
        let name = number.to_string();
        let removed = store.remove_if(&who, &root, name.as_bytes(), &mut |_| true).unwrap();
        assert!(removed.unwrap().was_last);
        assert!((1..=256).contains(&held_without_name(beneath)), "a bounded number waits");
    }
    store.close_removed();
    assert_eq!(held_without_name(beneath), 0);
    make(&store, "alone");
    store.remove(&who, &root, b"alone").unwrap();
    assert_eq!(held_without_name(beneath), 0);
}

#[test]
fn what_was_removed_beside_the_store_is_let_go_unless_it_is_open() {
    let (_place, export, store) = new_store();
    let (who, root) = (myself(), store.root(&myself()).unwrap().handle);
    let make = |name: &str| make(&store, name);
    let mut closed = Vec::new();
    for number in 0..20 {
        closed.push(make(&format!("closed-{number}")).0.object.handle);
    }
    let (kept, file) = make("open");
    make("stays");
    for name in (0..20).map(|number| format!("closed-{number}")).chain(["open".to_owned()]) {
        std::fs::remove_file(export.join(name)).unwrap();
    }
    let beneath = export.to_str().unwrap();
    assert!(held_without_name(beneath) > 20);
    let mut gone = store.release_removed(Duration::from_secs(5));
    assert!((1..20).contains(&gone.len()), "{} in half of the time", gone.len());
    for _ in 0..10 {
        gone.extend(store.release_removed(Duration::from_secs(5)));
    }
    gone.sort_unstable_by_key(|handle| handle.0);
    closed.sort_unstable_by_key(|handle| handle.0);
    assert!(gone == closed);
    assert!(held_without_name(beneath) > 20, "who looks for them waits for none of them");
    store.close_removed();
    assert!((1..=2).contains(&held_without_name(beneath)), "one is open");
    drop(file);
    assert_eq!(store.release_removed(Duration::from_secs(10)), [kept.object.handle]);
    store.close_removed();
    assert_eq!(held_without_name(beneath), 0);
    assert_eq!(store.release_removed(Duration::from_secs(10)), []);
    store.lookup(&who, &root, b"stays").unwrap();
}

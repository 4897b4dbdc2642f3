//! Objects that local processes remove: the store must not keep their space.

use std::time::Duration;

use dafs_store::local::{LocalConfig, LocalStore};
use dafs_store::{AttributeChanges, Store};
use dafs_types::{CreateMode, Credentials, ShareAccess};

/// Descriptors of this process whose objects beneath a directory have no name.
fn held_without_name(beneath: &str) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    let is_it = |target: &String| target.starts_with(beneath) && target.ends_with(" (deleted)");
    targets.map(|target| target.to_string_lossy().into_owned()).filter(is_it).count()
}

#[test]
fn what_was_removed_beside_the_store_is_let_go_unless_it_is_open() {
    let place = tempfile::tempdir().unwrap();
    let export = place.path().canonicalize().unwrap().join("export");
    std::fs::create_dir(&export).unwrap();
    let store = LocalStore::new(&LocalConfig::new(&export, place.path().join("state"))).unwrap();
    let who = Credentials {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: Box::default(),
    };
    let root = store.root(&who).unwrap().handle;
    let make = |name: &str| {
        let (changes, access) = (AttributeChanges::default(), ShareAccess::Both);
        let mode = CreateMode::Guarded;
        store.create_file(&who, &root, name.as_bytes(), mode, &changes, access).unwrap()
    };
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
    let mut gone = store.let_go_of_removed(Duration::from_secs(5));
    assert!((1..20).contains(&gone.len()), "{} in half of the time", gone.len());
    for _ in 0..10 {
        gone.extend(store.let_go_of_removed(Duration::from_secs(5)));
    }
    gone.sort_unstable_by_key(|handle| handle.0);
    closed.sort_unstable_by_key(|handle| handle.0);
    assert!(gone == closed);
    assert!(held_without_name(beneath) > 0, "it is open");
    drop(file);
    assert_eq!(store.let_go_of_removed(Duration::from_secs(10)), [kept.object.handle]);
    assert_eq!(held_without_name(beneath), 0);
    assert_eq!(store.let_go_of_removed(Duration::from_secs(10)), []);
    store.lookup(&who, &root, b"stays").unwrap();
}

//! Extended attributes of users, on a real file system and in memory.

use std::path::PathBuf;

use dafs_ops::XattrMode;
use dafs_store::local::{Export, LocalConfig, LocalStore};
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_store::{
    AttributeChanges, Created, Credentials, NewNode, Store, StoreError, XattrListRequest,
};
use dafs_types::{CreateMode, FileHandle, ShareAccess};
use rustix::fs::XattrFlags;

fn root() -> Credentials {
    Credentials::superuser()
}

fn user() -> Credentials {
    Credentials::plain(1000, 1000).unwrap()
}

fn make(store: &dyn Store, name: &str, mode: u32) -> FileHandle {
    let top = store.root(&root()).unwrap().handle;
    let changes = AttributeChanges { mode: Some(mode), ..AttributeChanges::default() };
    let (how, access) = (CreateMode::Guarded, ShareAccess::Both);
    let (created, _) =
        store.create_file(&root(), &top, name.as_bytes(), how, &changes, access).unwrap();
    created.object.handle
}

fn make_node(store: &dyn Store, name: &str, node: NewNode<'_>, mode: u32) -> FileHandle {
    let top = store.root(&root()).unwrap().handle;
    let changes = AttributeChanges { mode: Some(mode), ..AttributeChanges::default() };
    let Created { object, .. } =
        store.create_node(&root(), &top, name.as_bytes(), node, &changes).unwrap();
    object.handle
}

/// Runs a check on a store in memory and on a directory whose file system keeps attributes.
fn over_each(check: impl Fn(&dyn Store)) {
    check(&MemoryStore::new(MemoryLimits { bytes_max: 1 << 20, object_count_max: 100 }));
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    if rustix::fs::setxattr(&tree, "user.probe", b"1", XattrFlags::empty()).is_err() {
        return dafs_tests::skip("this file system keeps no extended attributes");
    }
    check(&LocalStore::new(&LocalConfig::new(&tree, place.path().join("state"))).unwrap());
}

fn set(store: &dyn Store, file: &FileHandle, name: &[u8], value: &[u8]) -> Result<(), StoreError> {
    store.set_xattr(&root(), file, name, value, XattrMode::Either).map(|_| ())
}

fn names(store: &dyn Store, file: &FileHandle, name_bytes_max: usize) -> Vec<Vec<u8>> {
    let (mut cookie, mut all) = (0, Vec::new());
    loop {
        let request = XattrListRequest { cookie, count_max: 3, name_bytes_max };
        let page = store.xattrs(&root(), file, &request).unwrap();
        all.extend(page.names);
        cookie = page.cookie;
        if page.is_end {
            all.sort();
            return all;
        }
    }
}

#[test]
fn values_come_back_are_replaced_and_removed() {
    over_each(|store| {
        for file in [make(store, "file", 0o600), make_node(store, "dir", NewNode::Directory, 0o700)]
        {
            assert_eq!(store.xattr(&root(), &file, b"a"), Err(StoreError::NoXattr));
            set(store, &file, b"a", b"first").unwrap();
            set(store, &file, b"a/b c", &[0, 255, 7]).unwrap();
            assert_eq!(store.xattr(&root(), &file, b"a").unwrap(), b"first");
            assert_eq!(store.xattr(&root(), &file, b"a/b c").unwrap(), [0, 255, 7]);
            let try_as = |mode, name: &[u8]| {
                store.set_xattr(&root(), &file, name, b"next", mode).map(|_| ())
            };
            assert_eq!(try_as(XattrMode::Create, b"a"), Err(StoreError::Exists));
            assert_eq!(try_as(XattrMode::Replace, b"b"), Err(StoreError::NoXattr));
            assert_eq!(store.xattr(&root(), &file, b"a").unwrap(), b"first");
            assert_eq!(try_as(XattrMode::Replace, b"a"), Ok(()));
            assert_eq!(try_as(XattrMode::Create, b"b"), Ok(()));
            assert_eq!(store.xattr(&root(), &file, b"a").unwrap(), b"next");
            let altered = store.remove_xattr(&root(), &file, b"a").unwrap();
            assert!(altered.before.change < altered.after.change);
            assert_eq!(store.xattr(&root(), &file, b"a"), Err(StoreError::NoXattr));
            let gone = store.remove_xattr(&root(), &file, b"a").map(|_| ());
            assert_eq!(gone, Err(StoreError::NoXattr));
        }
    });
}

#[test]
fn lists_are_whole_in_pages_of_any_size() {
    over_each(|store| {
        let file = make(store, "file", 0o600);
        assert!(names(store, &file, 100).is_empty());
        let mut expected: Vec<_> = (0..30).map(|n| format!("name{n}").into_bytes()).collect();
        for name in &expected {
            set(store, &file, name, b"").unwrap();
        }
        expected.sort();
        for bytes in [14, 50, 4096] {
            assert_eq!(names(store, &file, bytes), expected);
        }
        let tiny = XattrListRequest { cookie: 0, count_max: 3, name_bytes_max: 5 };
        assert_eq!(store.xattrs(&root(), &file, &tiny), Err(StoreError::TooSmall));
    });
}

#[test]
fn names_and_values_have_bounds() {
    over_each(|store| {
        let file = make(store, "file", 0o600);
        assert_eq!(set(store, &file, b"", b"x"), Err(StoreError::Invalid));
        assert_eq!(set(store, &file, b"a\0b", b"x"), Err(StoreError::Invalid));
        assert_eq!(set(store, &file, &[b'n'; 251], b"x"), Err(StoreError::NameTooLong));
        assert_eq!(set(store, &file, &[b'n'; 250], b"x"), Ok(()));
        assert_eq!(set(store, &file, b"a", &[7; 65_537]), Err(StoreError::XattrTooBig));
        let link = make_node(store, "link", NewNode::SymbolicLink(b"to"), 0o777);
        assert_eq!(set(store, &link, b"a", b"x"), Err(StoreError::NotSupported));
    });
}

#[test]
fn the_objects_permissions_decide() {
    let check = |store: &dyn Store| {
        let (secret, shown) = (make(store, "secret", 0o600), make(store, "shown", 0o644));
        let request = XattrListRequest { cookie: 0, count_max: 9, name_bytes_max: 999 };
        for file in [secret, shown] {
            set(store, &file, b"a", b"value").unwrap();
            let change = |mode| store.set_xattr(&user(), &file, b"b", b"", mode).map(|_| ());
            assert_eq!(change(XattrMode::Either), Err(StoreError::Access));
            let removed = store.remove_xattr(&user(), &file, b"a").map(|_| ());
            assert_eq!(removed, Err(StoreError::Access));
        }
        assert_eq!(store.xattr(&user(), &secret, b"a"), Err(StoreError::Access));
        assert_eq!(store.xattrs(&user(), &secret, &request), Err(StoreError::Access));
        assert_eq!(store.xattr(&user(), &shown, b"a").unwrap(), b"value");
        assert_eq!(store.xattrs(&user(), &shown, &request).unwrap().names, [b"a"]);
        // As for local users, a sticky directory belongs to its owner in this respect.
        let common = make_node(store, "common", NewNode::Directory, 0o1777);
        let marked = store.set_xattr(&user(), &common, b"a", b"", XattrMode::Either).map(|_| ());
        assert_eq!(marked, Err(StoreError::NotPermitted));
        set(store, &common, b"a", b"").unwrap();
    };
    if !dafs_tests::is_root() {
        return;
    }
    over_each(check);
}

#[test]
fn only_attributes_of_users_are_reached_and_local_processes_see_them() {
    let place = tempfile::tempdir().unwrap();
    let tree: PathBuf = place.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    if rustix::fs::setxattr(&tree, "user.probe", b"1", XattrFlags::empty()).is_err() {
        return dafs_tests::skip("this file system keeps no extended attributes");
    }
    let store = LocalStore::new(&LocalConfig::new(&tree, place.path().join("state"))).unwrap();
    let file = make(&store, "file", 0o600);
    set(&store, &file, b"system.posix_acl_access", b"harmless").unwrap();
    set(&store, &file, b"security.capability", b"harmless").unwrap();
    let mut value = [0; 64];
    let path = tree.join("file");
    let mut read = |name: &str| {
        let length = rustix::fs::getxattr(&path, name, &mut value[..])?;
        Ok::<_, rustix::io::Errno>(value[..length].to_vec())
    };
    assert_eq!(read("user.security.capability").unwrap(), b"harmless");
    assert!(read("security.capability").is_err());
    let mut export = Export::new("export", &tree);
    export.read_only = true;
    let config = LocalConfig {
        exports: vec![export],
        ..LocalConfig::new(&tree, place.path().join("state"))
    };
    let store = LocalStore::new(&config).unwrap();
    assert_eq!(set(&store, &file, b"a", b""), Err(StoreError::ReadOnly));
    let removed = store.remove_xattr(&root(), &file, b"security.capability").map(|_| ());
    assert_eq!(removed, Err(StoreError::ReadOnly));
    assert_eq!(store.xattr(&root(), &file, b"security.capability").unwrap(), b"harmless");
}

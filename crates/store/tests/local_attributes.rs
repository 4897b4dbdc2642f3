//! Features that need a kernel: named attributes as extended attributes, exports that replace
//! identities, and attributes of file systems.

use std::path::PathBuf;
use std::sync::Arc;

use dafs_memory::{Memory, Pages};
use dafs_store::local::{Export, LocalConfig, LocalStore, Squash};
use dafs_store::{
    AttributeChanges, Attributes, Created, Credentials, ExtraChanges, ExtrasWanted, File,
    ListRequest, NewNode, Object, Store, StoreError,
};
use dafs_types::{
    AccessMask, CookieVerifier, CreateMode, FileHandle, ObjectType, ReaddirCookie, ShareAccess,
    Verifier,
};
use rustix::fs::XattrFlags;

use crate::conformance::settled;

struct Place {
    _directory: tempfile::TempDir,
    tree: PathBuf,
    state: PathBuf,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let (tree, state) = (directory.path().join("tree"), directory.path().join("state"));
    std::fs::create_dir(&tree).unwrap();
    Place { tree, state, _directory: directory }
}

/// Attributes without the change attribute, which differs at each look just after a change.
fn at_rest(attributes: Attributes) -> Attributes {
    Attributes { change: 0, ..attributes }
}

fn root() -> Credentials {
    Credentials::superuser()
}

fn user(uid: u32) -> Credentials {
    Credentials::plain(uid, uid).unwrap()
}

fn is_privileged() -> bool {
    dafs_tests::is_root()
}

/// Runs a check on a file and on a directory, with kernel handles and without. Skipped if the file
/// system does not support extended attributes.
fn over_each(check: impl Fn(&LocalConfig, &LocalStore, &FileHandle)) {
    for kernel_handles in [true, false] {
        let place = place();
        let probe = rustix::fs::setxattr(&place.tree, "user.probe", b"1", XattrFlags::empty());
        let mut config = LocalConfig::new(&place.tree, &place.state);
        config.kernel_handles = kernel_handles;
        std::fs::write(place.tree.join("object"), b"data").unwrap();
        let store = LocalStore::new(&config).unwrap();
        if probe.is_err() {
            dafs_tests::skip("this file system keeps no extended attributes");
            let refused = store.open_attributes(&root(), &object(&store));
            assert_eq!(refused.err(), Some(StoreError::NotSupported), "and must say so");
            return;
        }
        check(&config, &store, &object(&store));
        drop(store);
        std::fs::remove_file(place.tree.join("object")).unwrap();
        std::fs::create_dir(place.tree.join("object")).unwrap();
        let store = LocalStore::new(&config).unwrap();
        check(&config, &store, &object(&store));
    }
}

fn object(store: &LocalStore) -> FileHandle {
    let top = store.root(&root()).unwrap().handle;
    store.lookup(&root(), &top, b"object").unwrap().handle
}

fn create(
    store: &LocalStore,
    directory: &FileHandle,
    name: &str,
    mode: CreateMode,
) -> dafs_store::Result<(Created, Arc<dyn File>)> {
    let changes = AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() };
    store.create_file(&root(), directory, name.as_bytes(), mode, &changes, ShareAccess::Both)
}

fn write(file: &dyn File, bytes: &[u8], offset: u64) -> dafs_store::Result<()> {
    let memory = Memory::from_heap(bytes.to_vec().into_boxed_slice());
    file.write_at(&memory, 0, bytes.len(), offset)
}

fn read(file: &dyn File) -> dafs_store::Result<Vec<u8>> {
    let memory = Memory::anonymous(70_000, Pages::Small).unwrap();
    let count = file.read_at(&memory, 0, 70_000, 0)?;
    Ok(memory.to_vec(0, count))
}

fn list(store: &LocalStore, directory: &FileHandle, at_once: usize) -> Vec<String> {
    let mut request = ListRequest {
        cookie: ReaddirCookie(0),
        verifier: CookieVerifier::default(),
        entry_count_max: at_once,
        name_bytes_max: 1 << 20,
        want_objects: true,
    };
    let mut names = Vec::new();
    loop {
        let page = store.readdir(&root(), directory, &request).unwrap();
        assert!(page.entries.len() <= at_once);
        for entry in &page.entries {
            assert!(entry.cookie.0 > 2);
            let object = entry.object.unwrap();
            assert_eq!(object.attributes.file_id, entry.file_id);
            let found = store.attributes(&root(), &object.handle).unwrap();
            assert_eq!(at_rest(found), at_rest(object.attributes));
            names.push(String::from_utf8(entry.name.clone()).unwrap());
        }
        if page.is_end {
            names.sort();
            return names;
        }
        request.cookie = page.entries.last().unwrap().cookie;
        request.verifier = page.verifier;
    }
}

#[test]
fn named_attributes_are_the_extended_attributes_of_users() {
    over_each(|config, store, object| {
        let path = config.exports[0].path.join("object");
        let directory = store.open_attributes(&root(), object).unwrap();
        assert_eq!(directory.attributes.kind, ObjectType::AttributeDirectory);
        let found = store.attributes(&root(), &directory.handle).unwrap();
        assert_eq!(at_rest(found), at_rest(directory.attributes));
        let back = store.lookup_parent(&root(), &directory.handle).unwrap();
        assert_eq!(back.handle, *object);
        let directory = directory.handle;
        assert_eq!(list(store, &directory, 10), Vec::<String>::new());

        let (made, file) = create(store, &directory, "a", CreateMode::Guarded).unwrap();
        assert!(made.is_new && made.change.before != made.change.after);
        assert_eq!(made.object.attributes.kind, ObjectType::NamedAttribute);
        assert_eq!(read(&*file), Ok(Vec::new()));
        write(&*file, b"xyz", 2).unwrap();
        assert_eq!(read(&*file), Ok(b"\0\0xyz".to_vec()));
        let mut value = [0; 16];
        let length = rustix::fs::getxattr(&path, "user.a", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"\0\0xyz");
        file.set_size(3).unwrap();
        file.sync(false).unwrap();
        let found = store.lookup(&root(), &directory, b"a").unwrap();
        assert_eq!((found.handle, found.attributes.size), (file.handle(), 3));
        assert_eq!(at_rest(found.attributes), at_rest(file.attributes().unwrap()));

        // Local processes see the attribute, and the store sees their changes.
        let before = file.version().unwrap();
        rustix::fs::setxattr(&path, "user.a", b"other", XattrFlags::empty()).unwrap();
        assert_eq!(read(&*file), Ok(b"other".to_vec()));
        assert_ne!(file.version().unwrap(), before);

        assert_eq!(
            create(store, &directory, "a", CreateMode::Guarded).err(),
            Some(StoreError::Exists)
        );
        let again = create(store, &directory, "a", CreateMode::Unchecked).unwrap();
        assert!(!again.0.is_new && again.1.key() == file.key());
        let missing = create(store, &directory, "b", CreateMode::NoCreate).err();
        assert_eq!(missing, Some(StoreError::NotFound));
        let exclusive = create(store, &directory, "b", CreateMode::Exclusive(Verifier([1; 8])));
        assert_eq!(exclusive.err(), Some(StoreError::NotSupported));
    });
}

#[test]
fn attributes_have_no_attributes_links_or_modes_of_their_own() {
    over_each(|_, store, object| {
        let directory = store.open_attributes(&root(), object).unwrap().handle;
        let (made, _) = create(store, &directory, "a", CreateMode::Guarded).unwrap();
        let attribute = made.object.handle;
        for handle in [directory, attribute] {
            let refused = store.open_attributes(&root(), &handle);
            assert_eq!(refused.err(), Some(StoreError::NotSupported));
            let mode = AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() };
            let refused = store.set_attributes(&root(), &handle, &mode);
            assert_eq!(refused.err(), Some(StoreError::NotSupported));
            let top = store.root(&root()).unwrap().handle;
            let refused = store.link(&root(), &handle, &top, b"linked");
            assert_eq!(refused.err(), Some(StoreError::NotSupported));
            let (node, none) = (NewNode::Directory, AttributeChanges::default());
            let refused = store.create_node(&root(), &handle, b"d", node, &none);
            assert_eq!(refused.err(), Some(StoreError::NotSupported));
            assert!(store.create_unlinked(&root(), &handle, &none).is_err());
            assert!(store.readlink(&root(), &handle).is_err());
            let extras = ExtraChanges { mime_type: Some("a/b".into()), acl: None };
            assert!(store.set_extras(&root(), &handle, &extras).is_err());
            let wanted = ExtrasWanted { named_attributes: true, acl: true, mime_type: true };
            let told = store.extras(&root(), &handle, wanted).unwrap();
            assert_eq!((told.named_attributes, told.acl), (Some(false), None));
            assert_eq!(store.sync(&handle), Ok(()));
            assert!(store.fs_attributes(&root(), &handle).unwrap().space_total.is_some());
        }
        assert_eq!(
            store.open(&root(), &directory, ShareAccess::Read).err(),
            Some(StoreError::IsDirectory)
        );
        let beneath = store.lookup(&root(), &attribute, b"x").err();
        assert_eq!(beneath, Some(StoreError::NotDirectory));
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(store.lookup(&root(), &directory, name).err(), Some(StoreError::Invalid));
        }
        let long = [b'n'; 251];
        assert_eq!(store.lookup(&root(), &directory, &long).err(), Some(StoreError::NameTooLong));
        assert_eq!(store.lookup(&root(), &directory, &long[1..]).err(), Some(StoreError::NotFound));
        let top = store.root(&root()).unwrap().handle;
        let made =
            store.create_node(&root(), &top, b"p", NewNode::Fifo, &AttributeChanges::default());
        let refused = store.open_attributes(&root(), &made.unwrap().object.handle);
        assert_eq!(refused.err(), Some(StoreError::NotSupported));
        store.remove(&root(), &top, b"p").unwrap();
    });
}

#[test]
fn removed_and_renamed_attributes_are_gone_under_their_names() {
    over_each(|_, store, object| {
        let directory = store.open_attributes(&root(), object).unwrap().handle;
        for name in ["a", "b", "c"] {
            let (_, file) = create(store, &directory, name, CreateMode::Guarded).unwrap();
            write(&*file, name.as_bytes(), 0).unwrap();
        }
        let open = create(store, &directory, "a", CreateMode::Unchecked).unwrap();
        let busy = store.rename(&root(), &directory, b"a", &directory, b"z");
        assert_eq!(busy.err(), Some(StoreError::Busy));
        let removed = store.remove(&root(), &directory, b"a").unwrap();
        assert_eq!((removed.handle, removed.was_last), (open.0.object.handle, true));
        // A write does not create it again.
        assert_eq!(write(&*open.1, b"back", 0), Err(StoreError::Stale));
        assert_eq!(read(&*open.1), Err(StoreError::Stale));
        assert_eq!(settled(store, &root(), &removed.handle).unwrap_err(), StoreError::Stale);
        assert_eq!(store.remove(&root(), &directory, b"a").err(), Some(StoreError::NotFound));

        let target = store.lookup(&root(), &directory, b"c").unwrap().handle;
        let renamed = store.rename(&root(), &directory, b"b", &directory, b"c").unwrap();
        assert_eq!(renamed.replaced, Some(target));
        let file = store.open(&root(), &target, ShareAccess::Read).unwrap();
        assert_eq!(read(&*file), Ok(b"b".to_vec()));
        assert_eq!(write(&*file, b"x", 0), Err(StoreError::Access), "opened for reading");
        drop(file);
        let top = store.root(&root()).unwrap().handle;
        for (from, to) in [(&directory, &top), (&top, &directory)] {
            let refused = store.rename(&root(), from, b"c", to, b"c").err();
            assert_eq!(refused, Some(StoreError::CrossDevice));
        }
        let names = || list(store, &directory, 1);
        assert_eq!(names(), ["c"]);
    });
}

#[test]
fn listings_of_attributes_are_whole_while_others_come_and_go() {
    over_each(|_, store, object| {
        let directory = store.open_attributes(&root(), object).unwrap().handle;
        let kept: Vec<String> = (0..20).map(|number| format!("kept-{number:02}")).collect();
        for name in kept.iter().map(String::as_str).chain(["gone-1", "gone-2"]) {
            create(store, &directory, name, CreateMode::Guarded).unwrap();
        }
        let request = ListRequest {
            cookie: ReaddirCookie(0),
            verifier: CookieVerifier::default(),
            entry_count_max: 7,
            name_bytes_max: 1 << 20,
            want_objects: false,
        };
        let first = store.readdir(&root(), &directory, &request).unwrap();
        store.remove(&root(), &directory, b"gone-1").unwrap();
        store.remove(&root(), &directory, b"gone-2").unwrap();
        create(store, &directory, "new", CreateMode::Guarded).unwrap();
        let cookie = first.entries.last().unwrap().cookie;
        let rest = ListRequest { cookie, verifier: first.verifier, entry_count_max: 99, ..request };
        let rest = store.readdir(&root(), &directory, &rest).unwrap();
        assert!(rest.is_end);
        let both = first.entries.iter().chain(&rest.entries).map(|entry| entry.name.clone());
        let mut names: Vec<_> = both.map(|name| String::from_utf8(name).unwrap()).collect();
        names.retain(|name| name.starts_with("kept"));
        names.sort();
        assert_eq!(names, kept);
        let other = ListRequest { cookie, ..request };
        let refused = store.readdir(&root(), &directory, &other).err();
        assert_eq!(refused, Some(StoreError::BadCookie));
        assert_eq!(list(store, &directory, 3).len(), 21);
    });
}

#[test]
fn sizes_are_bounded_by_the_kernel_and_the_file_system() {
    over_each(|_, store, object| {
        let directory = store.open_attributes(&root(), object).unwrap().handle;
        let (_, file) = create(store, &directory, "a", CreateMode::Guarded).unwrap();
        write(&*file, b"kept", 0).unwrap();
        assert_eq!(file.set_size(65_537), Err(StoreError::TooBig));
        assert_eq!(write(&*file, b"x", 65_536), Err(StoreError::TooBig));
        assert_eq!(write(&*file, b"x", u64::MAX), Err(StoreError::TooBig));
        // The kernel would accept this, but the file system may have no room for it.
        assert!(matches!(file.set_size(65_536), Ok(()) | Err(StoreError::NoSpace)));
        assert_eq!(&read(&*file).unwrap()[..4], b"kept");
    });
}

#[test]
fn handles_of_attributes_are_kept_and_cannot_be_forged() {
    over_each(|config, store, object| {
        let directory = store.open_attributes(&root(), object).unwrap().handle;
        let (made, _) = create(store, &directory, "a", CreateMode::Guarded).unwrap();
        let attribute = made.object.handle;
        assert!(directory != *object && attribute != directory);
        let mut handle_bits = (0..512).filter(|bit| bit % 3 == 0);
        assert!(handle_bits.all(|bit| {
            let flipped = |handle: FileHandle| {
                let mut handle = handle;
                handle.0[bit / 8] ^= 1 << (bit % 8);
                store.attributes(&root(), &handle).err()
            };
            flipped(directory) == Some(StoreError::BadHandle)
                && flipped(attribute) == Some(StoreError::BadHandle)
        }));
        let again = LocalStore::new(config).unwrap();
        // Without kernel handles the object is searched for by name, and found.
        for handle in [directory, attribute] {
            let known = |store: &LocalStore| store.attributes(&root(), &handle).map(at_rest);
            assert_eq!(known(store), known(&again));
        }
        assert_eq!(list(&again, &directory, 9), ["a"]);
    });
}

#[test]
fn attributes_are_as_open_to_others_as_their_object() {
    if !is_privileged() {
        return;
    }
    over_each(|_, store, object| {
        let directory = store.open_attributes(&root(), object).unwrap().handle;
        create(store, &directory, "a", CreateMode::Guarded).unwrap();
        let set = |mode| {
            let changes = AttributeChanges {
                mode: Some(mode),
                uid: Some(1),
                gid: Some(1),
                ..AttributeChanges::default()
            };
            store.set_attributes(&root(), object, &changes).unwrap();
        };
        let (owner, other) = (user(1), user(2));
        let none = AttributeChanges::default();
        let look =
            |who: &Credentials| store.lookup(who, &directory, b"a").map(|found| found.handle);
        set(0o600);
        let attribute = look(&owner).unwrap();
        assert_eq!(look(&other), Err(StoreError::Access));
        assert_eq!(store.open_attributes(&other, object).err(), Some(StoreError::Access));
        assert_eq!(
            store.open(&other, &attribute, ShareAccess::Read).err(),
            Some(StoreError::Access)
        );
        assert!(store.open(&owner, &attribute, ShareAccess::Both).is_ok());
        set(0o604);
        assert!(store.open(&other, &attribute, ShareAccess::Read).is_ok());
        let all = AccessMask::ALL;
        let rights = store.access(&other, &attribute, all).unwrap();
        assert_eq!(rights, AccessMask::READ);
        let rights = store.access(&other, &directory, all).unwrap();
        assert_eq!(rights, AccessMask::READ | AccessMask::LOOKUP);
        for refused in [
            store.open(&other, &attribute, ShareAccess::Write).err(),
            store.remove(&other, &directory, b"a").err(),
            store.rename(&other, &directory, b"a", &directory, b"b").err(),
            store
                .create_file(
                    &other,
                    &directory,
                    b"b",
                    CreateMode::Unchecked,
                    &none,
                    ShareAccess::Read,
                )
                .err(),
            store
                .set_attributes(&other, &attribute, &AttributeChanges { size: Some(0), ..none })
                .err(),
        ] {
            assert_eq!(refused, Some(StoreError::Access));
        }
        set(0o602);
        assert!(store.open(&other, &attribute, ShareAccess::Write).is_ok());
        let access = ShareAccess::Write;
        store.create_file(&other, &directory, b"b", CreateMode::Guarded, &none, access).unwrap();
        let request = ListRequest {
            cookie: ReaddirCookie(0),
            verifier: CookieVerifier::default(),
            entry_count_max: 9,
            name_bytes_max: 99,
            want_objects: false,
        };
        assert_eq!(store.readdir(&other, &directory, &request).err(), Some(StoreError::Access));
    });
}

#[test]
fn nothing_changes_in_an_export_that_is_read_only() {
    let place = place();
    std::fs::write(place.tree.join("f"), b"text").unwrap();
    let has_attributes =
        rustix::fs::setxattr(place.tree.join("f"), "user.a", b"1", XattrFlags::empty()).is_ok();
    let mut config = LocalConfig::new(&place.tree, &place.state);
    config.exports[0].read_only = true;
    let store = LocalStore::new(&config).unwrap();
    let who = root();
    let top = store.root(&who).unwrap().handle;
    let file = store.lookup(&who, &top, b"f").unwrap().handle;
    let none = AttributeChanges::default();
    let cut = AttributeChanges { size: Some(0), ..none };
    let create = |directory: &FileHandle, name: &[u8], mode| {
        store.create_file(&who, directory, name, mode, &none, ShareAccess::Read).err()
    };
    let mime = ExtraChanges { mime_type: Some("a/b".into()), acl: None };
    let mut refused = vec![
        store.open(&who, &file, ShareAccess::Write).err(),
        store.open(&who, &file, ShareAccess::Both).err(),
        store.set_attributes(&who, &file, &cut).err(),
        store.set_extras(&who, &file, &mime).err(),
        store.create_file(&who, &top, b"f", CreateMode::Unchecked, &cut, ShareAccess::Read).err(),
        create(&top, b"new", CreateMode::Unchecked),
        create(&top, b"new", CreateMode::Guarded),
        store.create_unlinked(&who, &top, &none).err(),
        store.create_node(&who, &top, b"d", NewNode::Directory, &none).err(),
        store.link(&who, &file, &top, b"g").err(),
        store.remove(&who, &top, b"f").err(),
        store.rename(&who, &top, b"f", &top, b"g").err(),
    ];
    assert!(store.open(&who, &file, ShareAccess::Read).is_ok());
    assert_eq!(create(&top, b"f", CreateMode::Unchecked), None);
    if has_attributes {
        let directory = store.open_attributes(&who, &file).unwrap().handle;
        let attribute = store.lookup(&who, &directory, b"a").unwrap().handle;
        assert!(store.open(&who, &attribute, ShareAccess::Read).is_ok());
        refused.extend([
            create(&directory, b"b", CreateMode::Unchecked),
            store.open(&who, &attribute, ShareAccess::Write).err(),
            store.set_attributes(&who, &attribute, &cut).err(),
            store.remove(&who, &directory, b"a").err(),
            store.rename(&who, &directory, b"a", &directory, b"b").err(),
        ]);
    }
    for (index, error) in refused.into_iter().enumerate() {
        assert_eq!(error, Some(StoreError::ReadOnly), "change {index}");
    }
    let rights = store.access(&who, &file, AccessMask::ALL).unwrap();
    assert_eq!(rights, AccessMask::READ);
}

#[test]
fn an_export_says_as_whom_it_is_entered() {
    let anonymous = user(65_000);
    let member = Credentials::new(5, 0, [0, 7]).unwrap();
    let plain = Credentials::new(5, 6, [7]).unwrap();
    let mapped = Credentials::new(5, 65_000, [7, 65_000]).unwrap();
    for (squash, who, expected) in [
        (Squash::Nobody, &root(), &root()),
        (Squash::Root, &root(), &anonymous),
        (Squash::Root, &plain, &plain),
        (Squash::Root, &member, &mapped),
        (Squash::All, &root(), &anonymous),
        (Squash::All, &plain, &anonymous),
    ] {
        assert_eq!(&*squash.apply(who, &anonymous), expected, "{squash:?} {who:?}");
    }

    if !is_privileged() {
        return;
    }
    let place = place();
    let names = [("nobody", Squash::Nobody), ("root", Squash::Root), ("all", Squash::All)];
    let mut config = LocalConfig::new(&place.tree, &place.state);
    config.exports = names
        .map(|(name, squash)| {
            let path = place.tree.join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("private"), b"x").unwrap();
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(path.join("private"), private).unwrap();
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(&path, open).unwrap();
            Export { squash, anonymous: anonymous.clone(), ..Export::new(name, path) }
        })
        .to_vec();
    let store = LocalStore::new(&config).unwrap();
    let top = store.root(&root()).unwrap().handle;
    let make = |who: &Credentials, export: &str, name: &[u8]| -> Object {
        let directory = store.lookup(who, &top, export.as_bytes()).unwrap().handle;
        let none = AttributeChanges::default();
        let access = ShareAccess::Both;
        let made = store.create_file(who, &directory, name, CreateMode::Guarded, &none, access);
        made.unwrap().0.object
    };
    let owner = |object: Object| object.attributes.uid;
    assert_eq!(owner(make(&root(), "nobody", b"r")), 0);
    assert_eq!(owner(make(&root(), "root", b"r")), 65_000);
    assert_eq!(owner(make(&plain, "root", b"p")), 5);
    assert_eq!(owner(make(&plain, "all", b"p")), 65_000);
    for (export, expected) in [("nobody", None), ("root", Some(StoreError::Access))] {
        let directory = store.lookup(&root(), &top, export.as_bytes()).unwrap().handle;
        let private = store.lookup(&root(), &directory, b"private").unwrap().handle;
        let none = AttributeChanges::default();
        let mode = CreateMode::Unchecked;
        let give = AttributeChanges { uid: Some(9), ..none };
        let set = store.set_attributes(&root(), &private, &give).err();
        let access = store.access(&root(), &private, AccessMask::READ).unwrap();
        let device =
            NewNode::CharacterDevice(dafs_types::attributes::DeviceNumber { major: 1, minor: 3 });
        let node = store.create_node(&root(), &directory, b"null", device, &none).err();
        let opened = store.open(&root(), &private, ShareAccess::Read).err();
        let found =
            store.create_file(&root(), &directory, b"private", mode, &none, ShareAccess::Read);
        assert_eq!((opened, found.err()), (expected, expected), "{export}");
        let squashed = expected.is_some();
        assert_eq!(set.is_some(), squashed, "giving a file away in {export}");
        assert_eq!(access == AccessMask::default(), squashed, "{export}");
        assert_eq!(node.is_some(), squashed, "a device in {export}");
    }
}

#[test]
fn file_systems_say_what_they_can() {
    let place = place();
    let store = LocalStore::new(&LocalConfig::new(&place.tree, &place.state)).unwrap();
    let top = store.root(&root()).unwrap().handle;
    let told = store.fs_attributes(&root(), &top).unwrap();
    let space = rustix::fs::statvfs(&place.tree).unwrap();
    assert_eq!(told.max_name, Some(u32::try_from(space.f_namemax).unwrap().min(255)));
    assert_eq!(told.files_total, Some(space.f_files));
    assert_eq!(told.case_insensitive, Some(false));
    assert!(matches!(told.acl_support, Some(0 | 3)));
}

//! The contract of `Store` and `File`, as tests. A module that includes this one must have
//! `everywhere`, which runs a check on every store, and `is_privileged`, which returns true if
//! objects there can belong to other users.

use dafs_memory::{Memory, Pages};
use dafs_store::{
    Altered, AttributeChanges, Attributes, Created, Credentials, File, FileVersion, ListRequest,
    NewNode, Object, Store, StoreError,
};
use dafs_types::{
    AccessMask, CookieVerifier, CreateMode, FileHandle, ObjectType, ReaddirCookie, SetTime,
    ShareAccess, Timestamp, Verifier,
};

use super::{everywhere, is_privileged};

pub(super) fn root() -> Credentials {
    Credentials::superuser()
}

fn user(uid: u32) -> Credentials {
    Credentials::plain(uid, uid).unwrap()
}

pub(super) fn mode(mode: u32) -> AttributeChanges {
    AttributeChanges { mode: Some(mode), ..AttributeChanges::default() }
}

pub(super) fn top(store: &dyn Store) -> FileHandle {
    store.root(&root()).unwrap().handle
}

/// Creates a file that must not exist, and closes it.
pub(super) fn create(
    store: &dyn Store,
    who: &Credentials,
    directory: &FileHandle,
    name: &str,
    changes: &AttributeChanges,
) -> dafs_store::Result<Created> {
    let (mode, access) = (CreateMode::Guarded, ShareAccess::Both);
    store.create_file(who, directory, name.as_bytes(), mode, changes, access).map(|made| made.0)
}

/// Reads attributes, again and again as long as the store says that it cannot tell. That happens at
/// the moment in which a process on the same disk creates an object that reuses the number of a
/// removed one.
pub(crate) fn settled(
    store: &dyn Store,
    who: &Credentials,
    handle: &FileHandle,
) -> Result<Attributes, StoreError> {
    for _ in 0..ASKED_MAX {
        match store.attributes(who, handle) {
            Err(StoreError::Busy) => std::thread::yield_now(),
            answer => return answer,
        }
    }
    Err(StoreError::Busy)
}

/// The number of attempts with a store that cannot tell.
const ASKED_MAX: usize = 10_000;

pub(super) fn make(store: &dyn Store, directory: &FileHandle, name: &str, bits: u32) -> FileHandle {
    let made = create(store, &root(), directory, name, &mode(bits)).unwrap();
    assert!(made.is_new);
    made.object.handle
}

fn make_directory(store: &dyn Store, parent: &FileHandle, name: &str, bits: u32) -> FileHandle {
    store
        .create_node(&root(), parent, name.as_bytes(), NewNode::Directory, &mode(bits))
        .unwrap()
        .object
        .handle
}

fn write(file: &dyn File, bytes: &[u8], offset: u64) {
    let memory = Memory::from_heap(bytes.to_vec().into_boxed_slice());
    file.write_at(&memory, 0, bytes.len(), offset).unwrap();
}

fn read(file: &dyn File, length: usize, offset: u64) -> Vec<u8> {
    let memory = Memory::anonymous(length.max(1), Pages::Small).unwrap();
    let count = file.read_at(&memory, 0, length, offset).unwrap();
    memory.to_vec(0, count)
}

pub(super) fn list(store: &dyn Store, directory: &FileHandle, at_once: usize) -> Vec<String> {
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
            assert_eq!(entry.object.unwrap().attributes.file_id, entry.file_id);
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
fn bytes_come_back_and_the_end_is_the_end() {
    everywhere(|store| {
        let handle = make(store, &top(store), "f", 0o600);
        let file = store.open(&root(), &handle, ShareAccess::Both).unwrap();
        let before = file.version().unwrap();
        write(&*file, b"hello", 10);
        assert_ne!(file.version().unwrap(), before);
        assert_eq!(read(&*file, 100, 0), b"\0\0\0\0\0\0\0\0\0\0hello");
        assert_eq!(read(&*file, 100, 15), b"");
        file.set_size(12).unwrap();
        file.set_size(14).unwrap();
        assert_eq!(read(&*file, 100, 8), b"\0\0he\0\0");
        file.sync(true).unwrap();
        file.sync(false).unwrap();
        assert_eq!(store.attributes(&root(), &handle).unwrap().size, 14);
    });
}

#[test]
fn all_opens_of_an_object_share_its_key_and_links_share_its_handle() {
    everywhere(|store| {
        let top = top(store);
        let handle = make(store, &top, "a", 0o600);
        store.link(&root(), &handle, &top, b"b").unwrap();
        let other = store.lookup(&root(), &top, b"b").unwrap();
        assert_eq!(other.handle, handle);
        assert_eq!(other.attributes.link_count, 2);
        let one = store.open(&root(), &handle, ShareAccess::Read).unwrap();
        let two = store.open(&root(), &handle, ShareAccess::Both).unwrap();
        assert_eq!(one.key(), two.key());
        let c = make(store, &top, "c", 0o600);
        assert_ne!(store.open(&root(), &c, ShareAccess::Read).unwrap().key(), one.key());
        assert_eq!(store.link(&root(), &handle, &top, b"c"), Err(StoreError::Exists));
        assert_eq!(store.link(&root(), &top, &top, b"d"), Err(StoreError::IsDirectory));
    });
}

#[test]
fn creation_modes_keep_their_promises() {
    everywhere(|store| {
        let top = top(store);
        let none = AttributeChanges::default();
        let access = ShareAccess::Both;
        let create =
            |mode| store.create_file(&root(), &top, b"f", mode, &none, access).map(|made| made.0);
        assert_eq!(create(CreateMode::NoCreate), Err(StoreError::NotFound));
        let first = Verifier(*b"\x11\x22\x33\x44\x55\x66\x77\x08");
        let made = create(CreateMode::Exclusive(first)).unwrap();
        assert!(made.is_new && made.change.before != made.change.after);
        let again = create(CreateMode::Exclusive(first)).unwrap();
        assert!(!again.is_new && again.object.handle == made.object.handle);
        let other = create(CreateMode::Exclusive(Verifier(*b"otherone")));
        assert_eq!(other, Err(StoreError::Exists));
        assert_eq!(create(CreateMode::Guarded), Err(StoreError::Exists));
        let file = store.open(&root(), &made.object.handle, ShareAccess::Both).unwrap();
        write(&*file, b"data", 0);
        assert!(!create(CreateMode::Unchecked).unwrap().is_new);
        assert_eq!(read(&*file, 9, 0), b"data");
        let cut = AttributeChanges { size: Some(0), ..none };
        store.create_file(&root(), &top, b"f", CreateMode::Unchecked, &cut, access).unwrap();
        assert_eq!(read(&*file, 9, 0), b"");
        assert!(!create(CreateMode::NoCreate).unwrap().is_new);
    });
}

/// Attributes without the change attribute, which differs at each look just after a change.
fn at_rest(attributes: Attributes) -> Attributes {
    Attributes { change: 0, ..attributes }
}

#[test]
fn what_is_created_comes_open_and_as_it_is() {
    everywhere(|store| {
        let top = top(store);
        let (guarded, access) = (CreateMode::Guarded, ShareAccess::Both);
        let (made, file) =
            store.create_file(&root(), &top, b"f", guarded, &mode(0o400), access).unwrap();
        assert_eq!(file.handle(), made.object.handle);
        assert_eq!(file.version().unwrap(), FileVersion::from(&made.object.attributes));
        let found = store.attributes(&root(), &file.handle()).unwrap();
        assert_eq!(at_rest(found), at_rest(made.object.attributes));
        write(&*file, b"data", 0);
        assert_eq!(read(&*file, 9, 0), b"data");
        // All opens of an object have the same file, whatever their access.
        let unchecked = CreateMode::Unchecked;
        let none = AttributeChanges::default();
        let (found, again) =
            store.create_file(&root(), &top, b"f", unchecked, &none, access).unwrap();
        assert!(!found.is_new && again.key() == file.key());
        assert_eq!(found.object.attributes.size, 4);
        // The object outlives its opens, by its handle and by its name.
        drop((file, again));
        assert_eq!(store.attributes(&root(), &made.object.handle).unwrap().size, 4);
        store.remove(&root(), &top, b"f").unwrap();
        assert_eq!(settled(store, &root(), &made.object.handle).unwrap_err(), StoreError::Stale);
    });
}

#[test]
fn what_is_there_is_opened_by_its_own_rules() {
    everywhere(|store| {
        let (who, top) = (root(), top(store));
        let none = AttributeChanges::default();
        make_directory(store, &top, "d", 0o755);
        store.create_node(&who, &top, b"l", NewNode::SymbolicLink(b"f"), &none).unwrap();
        store.create_node(&who, &top, b"p", NewNode::Fifo, &none).unwrap();
        for (name, expected) in [
            (b"d", StoreError::IsDirectory),
            (b"l", StoreError::IsSymlink),
            (b"p", StoreError::BadType),
        ] {
            let cut = AttributeChanges { size: Some(0), ..none };
            let (mode, access) = (CreateMode::Unchecked, ShareAccess::Both);
            let opened = store.create_file(&who, &top, name, mode, &cut, access);
            assert_eq!(opened.err(), Some(expected));
        }
    });
}

#[test]
fn a_failed_open_cuts_nothing() {
    if !is_privileged() {
        return; // Without privilege nothing can belong to another user.
    }
    everywhere(|store| {
        let top = top(store);
        store.set_attributes(&root(), &top, &mode(0o755)).unwrap();
        let handle = make(store, &top, "f", 0o602);
        let file = store.open(&root(), &handle, ShareAccess::Both).unwrap();
        write(&*file, b"data", 0);
        let cut = AttributeChanges { size: Some(0), ..AttributeChanges::default() };
        let (mode, access) = (CreateMode::Unchecked, ShareAccess::Both);
        let opened = store.create_file(&user(1001), &top, b"f", mode, &cut, access);
        assert_eq!(opened.err(), Some(StoreError::Access));
        assert_eq!(read(&*file, 9, 0), b"data");
        let access = ShareAccess::Write;
        store.create_file(&user(1001), &top, b"f", mode, &cut, access).unwrap();
        assert_eq!(read(&*file, 9, 0), b"");
    });
}

#[test]
fn names_that_are_none_are_refused_by_every_call() {
    everywhere(|store| {
        let (who, top, none) = (root(), top(store), AttributeChanges::default());
        let handle = make(store, &top, "f", 0o600);
        let long = [b'x'; 256];
        for name in [&b""[..], b".", b"..", b"a/b", b"/etc", b"a\0b", &long] {
            let expected =
                if name.len() > 255 { StoreError::NameTooLong } else { StoreError::Invalid };
            assert_eq!(store.lookup(&who, &top, name).unwrap_err(), expected);
            let (mode, access) = (CreateMode::Unchecked, ShareAccess::Both);
            let file = store.create_file(&who, &top, name, mode, &none, access);
            assert_eq!(file.err(), Some(expected));
            let node = store.create_node(&who, &top, name, NewNode::Directory, &none);
            assert_eq!(node.unwrap_err(), expected);
            assert_eq!(store.link(&who, &handle, &top, name).unwrap_err(), expected);
            assert_eq!(store.remove(&who, &top, name).unwrap_err(), expected);
            assert_eq!(store.rename(&who, &top, b"f", &top, name).unwrap_err(), expected);
            assert_eq!(store.rename(&who, &top, name, &top, b"g").unwrap_err(), expected);
        }
    });
}

#[test]
fn a_removed_object_is_stale_but_serves_those_who_have_it_open() {
    everywhere(|store| {
        let top = top(store);
        let handle = make(store, &top, "f", 0o600);
        let file = store.open(&root(), &handle, ShareAccess::Both).unwrap();
        let removed = store.remove(&root(), &top, b"f").unwrap();
        assert!(removed.was_last && removed.handle == handle);
        write(&*file, b"still here", 0);
        assert_eq!(read(&*file, 99, 6), b"here");
        assert_eq!(store.attributes(&root(), &handle).unwrap().link_count, 0);
        drop(file);
        assert_eq!(settled(store, &root(), &handle).unwrap_err(), StoreError::Stale);
        assert!(store.open(&root(), &handle, ShareAccess::Read).is_err());
        assert_eq!(store.remove(&root(), &top, b"f").unwrap_err(), StoreError::NotFound);
    });
}

#[test]
fn who_has_a_say_in_a_removal_is_asked_about_the_object_that_has_the_name() {
    everywhere(|store| {
        let top = top(store);
        let handle = make(store, &top, "f", 0o600);
        let mut asked = Vec::new();
        let mut answer = |object: &FileHandle, may: bool| {
            asked.push(*object);
            may
        };
        let kept = store.remove_if(&root(), &top, b"f", &mut |object| answer(object, false));
        assert!(kept.unwrap().is_none());
        assert_eq!(store.lookup(&root(), &top, b"f").unwrap().handle, handle);
        let removed = store.remove_if(&root(), &top, b"f", &mut |object| answer(object, true));
        let removed = removed.unwrap().expect("the second answer was yes");
        assert!(removed.was_last && removed.handle == handle);
        let missing = store.remove_if(&root(), &top, b"f", &mut |_| panic!("asked of nothing"));
        assert_eq!(missing.unwrap_err(), StoreError::NotFound);
        assert_eq!(asked, [handle, handle]);
    });
}

#[test]
fn a_file_without_a_name_can_get_one() {
    everywhere(|store| {
        let top = top(store);
        let (object, file) = store.create_unlinked(&root(), &top, &mode(0o640)).unwrap();
        assert_eq!((object.attributes.link_count, object.attributes.mode), (0, 0o640));
        write(&*file, b"hidden", 0);
        assert!(list(store, &top, 10).is_empty());
        store.link(&root(), &object.handle, &top, b"seen").unwrap();
        drop(file);
        let found = store.lookup(&root(), &top, b"seen").unwrap();
        assert_eq!((found.handle, found.attributes.size), (object.handle, 6));
        let (lost, file) = store.create_unlinked(&root(), &top, &mode(0o640)).unwrap();
        drop(file);
        assert_eq!(settled(store, &root(), &lost.handle).unwrap_err(), StoreError::Stale);
    });
}

#[test]
fn renames_move_replace_and_refuse() {
    everywhere(|store| {
        let (who, top) = (root(), top(store));
        let file = make(store, &top, "f", 0o600);
        let directory = make_directory(store, &top, "d", 0o755);
        let moved = store.rename(&who, &top, b"f", &directory, b"g").unwrap();
        assert!(moved.replaced.is_none() && moved.source.before != moved.source.after);
        assert_eq!(store.lookup(&who, &directory, b"g").unwrap().handle, file);
        assert_eq!(store.attributes(&who, &file).unwrap().link_count, 1);
        let victim = make(store, &top, "h", 0o600);
        let moved = store.rename(&who, &directory, b"g", &top, b"h").unwrap();
        assert_eq!(moved.replaced, Some(victim));
        assert_eq!(settled(store, &who, &victim).unwrap_err(), StoreError::Stale);
        let inner = make_directory(store, &directory, "inner", 0o755);
        let into_itself = store.rename(&who, &top, b"d", &inner, b"x");
        assert_eq!(into_itself.unwrap_err(), StoreError::Invalid);
        let onto_directory = store.rename(&who, &top, b"h", &top, b"d").unwrap_err();
        assert!(matches!(onto_directory, StoreError::IsDirectory | StoreError::NotEmpty));
        let onto_file = store.rename(&who, &top, b"d", &top, b"h").unwrap_err();
        assert_eq!(onto_file, StoreError::NotDirectory);
        let full = make_directory(store, &top, "e", 0o755);
        let onto_full = store.rename(&who, &top, b"e", &top, b"d").unwrap_err();
        assert_eq!(onto_full, StoreError::NotEmpty);
        assert_eq!(store.remove(&who, &top, b"d").unwrap_err(), StoreError::NotEmpty);
        store.rename(&who, &top, b"e", &directory, b"inner").unwrap();
        assert_eq!(store.lookup_parent(&who, &full).unwrap().handle, directory);
        assert_eq!(settled(store, &who, &inner).unwrap_err(), StoreError::Stale);
    });
}

/// A new file may get the number of a removed one at the very moment at which the handle of the
/// removed one is used. The result must be `Stale` all the same.
#[test]
fn a_stale_handle_stays_stale_while_its_number_is_given_away() {
    everywhere(|store| {
        let (who, top) = (root(), top(store));
        let (one, other) =
            (make_directory(store, &top, "one", 0o755), make_directory(store, &top, "two", 0o755));
        std::thread::scope(|scope| {
            // It runs as many rounds as the other side. It does not wait for a signal from it,
            // which would never come after a panic.
            scope.spawn(|| {
                for _ in 0..2000 {
                    make(store, &other, "f", 0o600);
                    store.remove(&who, &other, b"f").unwrap();
                }
            });
            for _ in 0..2000 {
                let file = make(store, &one, "f", 0o600);
                store.remove(&who, &one, b"f").unwrap();
                assert_eq!(settled(store, &who, &file).unwrap_err(), StoreError::Stale);
            }
        });
    });
}

#[test]
fn paths_resolve_as_far_as_they_go_and_never_above_the_root() {
    everywhere(|store| {
        let (who, top) = (root(), top(store));
        let a = make_directory(store, &top, "a", 0o755);
        let b = make_directory(store, &a, "b", 0o755);
        make(store, &b, "f", 0o600);
        let text = NewNode::SymbolicLink(b"../../etc");
        store.create_node(&who, &a, b"l", text, &AttributeChanges::default()).unwrap();
        let all = store.lookup_path(&who, &top, &[b"a", b"b", b"f"]);
        assert_eq!((all.component_count, all.error), (3, None));
        let part = store.lookup_path(&who, &top, &[b"a", b"x", b"f"]);
        assert_eq!((part.component_count, part.error), (1, Some(StoreError::NotFound)));
        assert_eq!(part.handle, a);
        let link = store.lookup_path(&who, &top, &[b"a", b"l", b"passwd"]);
        assert_eq!((link.component_count, link.error), (2, Some(StoreError::IsSymlink)));
        assert_eq!(store.readlink(&who, &link.handle).unwrap(), b"../../etc");
        let opened = store.open(&who, &link.handle, ShareAccess::Read);
        assert_eq!(opened.err(), Some(StoreError::IsSymlink));
        assert_eq!(store.lookup_parent(&who, &b).unwrap().handle, a);
        assert_eq!(store.lookup_parent(&who, &a).unwrap().handle, top);
        assert_eq!(store.lookup_parent(&who, &top).unwrap_err(), StoreError::NotFound);
        assert_eq!(store.readlink(&who, &a).unwrap_err(), StoreError::Invalid);
    });
}

#[test]
fn listings_are_whole_in_any_page_size_while_entries_come_and_go() {
    everywhere(|store| {
        let top = top(store);
        let mut names: Vec<String> = (0..300).map(|i| format!("entry-{i:03}")).collect();
        for name in &names {
            make(store, &top, name, 0o600);
        }
        for at_once in [1, 7, 1000] {
            assert_eq!(list(store, &top, at_once), names);
        }
        let mut request = ListRequest {
            cookie: ReaddirCookie(0),
            verifier: CookieVerifier::default(),
            entry_count_max: 10,
            name_bytes_max: 1000,
            want_objects: false,
        };
        let mut seen = Vec::new();
        loop {
            let page = store.readdir(&root(), &top, &request).unwrap();
            for entry in &page.entries {
                store.remove(&root(), &top, &entry.name).unwrap();
                seen.push(String::from_utf8(entry.name.clone()).unwrap());
            }
            if page.is_end {
                break;
            }
            request.cookie = page.entries.last().unwrap().cookie;
            request.verifier = page.verifier;
        }
        seen.sort();
        names.sort();
        assert_eq!(seen, names, "removing while listing must neither skip nor repeat");
        make(store, &top, "last", 0o600);
        request.cookie = ReaddirCookie(0);
        request.name_bytes_max = 3;
        let tight = store.readdir(&root(), &top, &request);
        assert_eq!(tight.unwrap_err(), StoreError::TooSmall);
        request.cookie = ReaddirCookie(2);
        let reserved = store.readdir(&root(), &top, &request);
        assert_eq!(reserved.unwrap_err(), StoreError::BadCookie);
        request.name_bytes_max = 4096;
        for cookie in [1, 2, 3, 1 << 31, 1 << 32, 1 << 63, u64::MAX - 1, u64::MAX] {
            request.cookie = ReaddirCookie(cookie);
            // Only the store can tell whether such a position exists.
            match store.readdir(&root(), &top, &request) {
                Ok(page) => assert!(page.entries.len() <= 1 && cookie > 2),
                Err(error) => assert_eq!(error, StoreError::BadCookie),
            }
        }
        request.cookie = ReaddirCookie(77);
        request.verifier = CookieVerifier([9; 8]);
        let foreign = store.readdir(&root(), &top, &request);
        assert_eq!(foreign.unwrap_err(), StoreError::BadCookie);
    });
}

#[test]
fn permission_bits_bind_everybody_but_the_superuser() {
    if !is_privileged() {
        return; // Without privilege nothing can belong to another user.
    }
    everywhere(|store| {
        let (ann, bob, top) = (user(1001), user(1002), top(store));
        let home = make_directory(store, &top, "home", 0o755);
        let give = AttributeChanges { uid: Some(1001), gid: Some(1001), ..Default::default() };
        store.set_attributes(&root(), &home, &give).unwrap();
        let made = create(store, &ann, &home, "f", &mode(0o640)).unwrap();
        let (f, found) = (made.object.handle, made.object.attributes);
        assert_eq!((found.uid, found.gid, found.mode), (1001, 1001, 0o640));
        assert_eq!(store.open(&bob, &f, ShareAccess::Read).err(), Some(StoreError::Access));
        assert!(store.open(&ann, &f, ShareAccess::Both).is_ok());
        let all = store.access(&ann, &f, AccessMask::ALL).unwrap();
        assert_eq!(all, AccessMask::READ | AccessMask::MODIFY | AccessMask::EXTEND);
        assert_eq!(store.access(&bob, &f, AccessMask::ALL).unwrap(), AccessMask(0));
        let refused = create(store, &bob, &home, "g", &mode(0o600));
        assert_eq!(refused.unwrap_err(), StoreError::Access);
        assert_eq!(store.remove(&bob, &home, b"f").unwrap_err(), StoreError::Access);
        let chmod = store.set_attributes(&bob, &f, &mode(0o777));
        assert_eq!(chmod.unwrap_err(), StoreError::NotPermitted);
        let away = AttributeChanges { uid: Some(1002), ..Default::default() };
        assert_eq!(store.set_attributes(&ann, &f, &away).unwrap_err(), StoreError::NotPermitted);
        let group = AttributeChanges { gid: Some(4), ..Default::default() };
        assert_eq!(store.set_attributes(&ann, &f, &group).unwrap_err(), StoreError::NotPermitted);
        let cut = AttributeChanges { size: Some(0), ..Default::default() };
        assert_eq!(store.set_attributes(&bob, &f, &cut).unwrap_err(), StoreError::Access);
        let closed = make_directory(store, &home, "closed", 0o600);
        assert_eq!(store.lookup(&bob, &closed, b"x").unwrap_err(), StoreError::Access);
    });
}

#[test]
fn only_the_owner_names_the_owner_there_is() {
    if !is_privileged() {
        return;
    }
    everywhere(|store| {
        let (ann, bob, top) = (user(1001), user(1002), top(store));
        let program = make(store, &top, "program", 0o755);
        let give = AttributeChanges { uid: Some(1001), gid: Some(1001), ..mode(0o4755) };
        let before = store.set_attributes(&root(), &program, &give).unwrap().after;
        assert_eq!(before.mode, 0o4755);
        let uid = AttributeChanges { uid: Some(1001), ..Default::default() };
        let gid = AttributeChanges { gid: Some(1001), ..Default::default() };
        let both = AttributeChanges { gid: Some(1001), ..uid };
        for nothing_new in [uid, gid, both, mode(0o4755)] {
            let refused = store.set_attributes(&bob, &program, &nothing_new);
            assert_eq!(refused, Err(StoreError::NotPermitted), "{nothing_new:?}");
        }
        let cut = AttributeChanges { size: Some(before.size), ..Default::default() };
        assert_eq!(store.set_attributes(&bob, &program, &cut), Err(StoreError::Access));
        assert_eq!(store.attributes(&root(), &program).map(at_rest), Ok(at_rest(before)));
        assert!(store.set_attributes(&ann, &program, &both).is_ok());
    });
}

#[test]
fn numbers_that_are_words_of_system_calls_are_no_attributes() {
    everywhere(|store| {
        let top = top(store);
        let none = u32::MAX;
        let uid = AttributeChanges { uid: Some(none), ..Default::default() };
        let gid = AttributeChanges { gid: Some(none), ..Default::default() };
        // The values of UTIME_OMIT and UTIME_NOW.
        let [omit, now] = [0x3fff_fffe, 0x3fff_ffff].map(|nanoseconds| {
            let time = SetTime::Client(Timestamp { seconds: 1, nanoseconds });
            AttributeChanges { time_modify: Some(time), ..Default::default() }
        });
        for changes in [uid, gid, omit, now] {
            let made = create(store, &root(), &top, "new", &changes);
            assert_eq!(made.err(), Some(StoreError::Invalid), "{changes:?}");
            let made = store.create_node(&root(), &top, b"new", NewNode::Directory, &changes);
            assert_eq!(made.err(), Some(StoreError::Invalid), "{changes:?}");
        }
        assert_eq!(list(store, &top, 10), Vec::<String>::new(), "nothing was made");
        let file = make(store, &top, "file", 0o600);
        for changes in [uid, gid, omit, now] {
            let set = store.set_attributes(&root(), &file, &changes);
            assert_eq!(set, Err(StoreError::Invalid), "{changes:?}");
        }
        let size = AttributeChanges { size: Some(u64::MAX), ..Default::default() };
        let made = create(store, &root(), &top, "large", &size);
        assert_eq!(made.err(), Some(StoreError::TooBig));
        assert_eq!(list(store, &top, 10), ["file"]);
    });
}

#[test]
fn who_may_not_read_and_write_a_file_makes_no_link_to_it() {
    if !is_privileged() {
        return;
    }
    everywhere(|store| {
        let (ann, bob, top) = (user(1001), user(1002), top(store));
        let home = make_directory(store, &top, "home", 0o777);
        let give = AttributeChanges { uid: Some(1001), gid: Some(1001), ..Default::default() };
        let made = [("secret", 0o600), ("readable", 0o644), ("set-user", 0o4777)];
        for (name, bits) in [made.as_slice(), &[("set-group", 0o2777)]].concat() {
            let file = make(store, &top, name, bits);
            store.set_attributes(&root(), &file, &AttributeChanges { ..give }).unwrap();
            store.set_attributes(&root(), &file, &mode(bits)).unwrap();
            let refused = store.link(&bob, &file, &home, b"link");
            assert_eq!(refused, Err(StoreError::NotPermitted), "{name}");
            store.link(&ann, &file, &home, format!("{name} of ann's").as_bytes()).unwrap();
            store.link(&root(), &file, &home, format!("{name} of root's").as_bytes()).unwrap();
        }
        let pipe = store.create_node(&ann, &home, b"pipe", NewNode::Fifo, &mode(0o666)).unwrap();
        let refused = store.link(&bob, &pipe.object.handle, &home, b"link");
        assert_eq!(refused, Err(StoreError::NotPermitted));
        let open = make(store, &top, "open", 0o666);
        store.link(&bob, &open, &home, b"link").unwrap();
        // Mandatory locking: without the group's right to execute, the bit means locking.
        let locked = make(store, &top, "locked", 0o666);
        store.set_attributes(&root(), &locked, &mode(0o2666)).unwrap();
        store.link(&bob, &locked, &home, b"link to a locked one").unwrap();
    });
}

#[test]
fn a_directory_that_may_not_be_searched_lists_names_alone() {
    if !is_privileged() {
        return;
    }
    everywhere(|store| {
        let (bob, top) = (user(1002), top(store));
        let closed = make_directory(store, &top, "closed", 0o744);
        make(store, &closed, "f", 0o644);
        let request = ListRequest {
            cookie: ReaddirCookie(0),
            verifier: CookieVerifier::default(),
            entry_count_max: 10,
            name_bytes_max: 1000,
            want_objects: true,
        };
        let page = store.readdir(&bob, &closed, &request).unwrap();
        assert_eq!(page.entries.iter().map(|entry| &entry.name[..]).collect::<Vec<_>>(), [b"f"]);
        assert_eq!(page.entries[0].object, None, "what only a search gives");
        assert_eq!(store.lookup(&bob, &closed, b"f").err(), Some(StoreError::Access));
        store.set_attributes(&root(), &closed, &mode(0o755)).unwrap();
        let page = store.readdir(&bob, &closed, &request).unwrap();
        let at_rest = |object: Object| (object.handle, at_rest(object.attributes));
        let found = store.lookup(&bob, &closed, b"f").ok().map(at_rest);
        assert_eq!(page.entries[0].object.map(at_rest), found);
        let missing = store.readdir(&bob, &make_directory(store, &top, "dark", 0o711), &request);
        assert_eq!(missing, Err(StoreError::Access));
    });
}

#[test]
fn who_may_only_execute_a_file_does_not_read_it() {
    if !is_privileged() {
        return;
    }
    everywhere(|store| {
        let (bob, top) = (user(1002), top(store));
        let program = make(store, &top, "program", 0o711);
        assert_eq!(store.access(&bob, &program, AccessMask::ALL), Ok(AccessMask::EXECUTE));
        for access in [ShareAccess::Read, ShareAccess::Write, ShareAccess::Both] {
            assert_eq!(store.open(&bob, &program, access).err(), Some(StoreError::Access));
        }
        store.set_attributes(&root(), &program, &mode(0o713)).unwrap();
        assert!(store.open(&bob, &program, ShareAccess::Write).is_ok());
        assert_eq!(store.open(&bob, &program, ShareAccess::Both).err(), Some(StoreError::Access));
    });
}

#[test]
fn the_sticky_bit_and_inherited_groups_work() {
    if !is_privileged() {
        return;
    }
    everywhere(|store| {
        let (ann, bob, top) = (user(1001), user(1002), top(store));
        let shared = make_directory(store, &top, "shared", 0o1777);
        create(store, &ann, &shared, "f", &mode(0o666)).unwrap();
        assert_eq!(store.remove(&bob, &shared, b"f").unwrap_err(), StoreError::NotPermitted);
        let renamed = store.rename(&bob, &shared, b"f", &shared, b"g");
        assert_eq!(renamed.unwrap_err(), StoreError::NotPermitted);
        store.remove(&ann, &shared, b"f").unwrap();
        let team = make_directory(store, &top, "team", 0o755);
        let give = AttributeChanges { gid: Some(77), ..mode(0o2777) };
        assert_eq!(store.set_attributes(&root(), &team, &give).unwrap().after.mode, 0o2777);
        let made = store.create_node(&ann, &team, b"sub", NewNode::Directory, &mode(0o755));
        let found = made.unwrap().object.attributes;
        assert_eq!((found.uid, found.gid, found.mode), (1001, 77, 0o2755));
        let made = create(store, &ann, &team, "f", &mode(0o2755));
        let found = made.unwrap().object.attributes;
        assert_eq!((found.gid, found.mode), (77, 0o755), "set-group-id needs membership");
    });
}

#[test]
fn times_are_set_as_asked() {
    everywhere(|store| {
        let handle = make(store, &top(store), "f", 0o600);
        let time = Timestamp { seconds: 1_000_000_000, nanoseconds: 123_456_789 };
        let changes = AttributeChanges {
            time_access: Some(SetTime::Client(time)),
            time_modify: Some(SetTime::Server),
            ..AttributeChanges::default()
        };
        let before = store.attributes(&root(), &handle).unwrap();
        let Altered { before: told, after } =
            store.set_attributes(&root(), &handle, &changes).unwrap();
        assert_eq!(told.time_modify, before.time_modify);
        assert_eq!(after.time_access, time);
        assert!(after.time_modify >= before.time_modify);
        let bad = Timestamp { seconds: 0, nanoseconds: 1_000_000_000 };
        let changes = AttributeChanges {
            time_access: Some(SetTime::Client(bad)),
            ..AttributeChanges::default()
        };
        let refused = store.set_attributes(&root(), &handle, &changes);
        assert_eq!(refused.unwrap_err(), StoreError::Invalid);
    });
}

#[test]
fn special_objects_are_made_and_not_opened() {
    everywhere(|store| {
        let (who, top) = (root(), top(store));
        for (name, node, kind) in [
            (b"fifo", NewNode::Fifo, ObjectType::Fifo),
            (b"sock", NewNode::Socket, ObjectType::Socket),
        ] {
            let made = store.create_node(&who, &top, name, node, &mode(0o600)).unwrap();
            assert_eq!(made.object.attributes.kind, kind);
            let opened = store.open(&who, &made.object.handle, ShareAccess::Read);
            assert_eq!(opened.err(), Some(StoreError::BadType));
        }
        let device = dafs_types::attributes::DeviceNumber { major: 1, minor: 3 };
        let refused =
            store.create_node(&user(5), &top, b"dev", NewNode::CharacterDevice(device), &mode(0));
        assert!(refused.is_err());
        let opened = store.open(&who, &top, ShareAccess::Read);
        assert_eq!(opened.err(), Some(StoreError::IsDirectory));
        let sum = store.fs_attributes(&who, &top).unwrap();
        assert!(sum.space_total.unwrap() > 0 && sum.max_name == Some(255));
    });
}

#[test]
fn every_kind_of_object_can_be_synced_by_its_handle() {
    everywhere(|store| {
        let top = top(store);
        let file = make(store, &top, "f", 0o000);
        let directory = make_directory(store, &top, "d", 0o700);
        for (name, node) in [("l", NewNode::SymbolicLink(b"nowhere")), ("p", NewNode::Fifo)] {
            let made = store.create_node(&root(), &top, name.as_bytes(), node, &mode(0o600));
            assert_eq!(store.sync(&made.unwrap().object.handle), Ok(()), "{name}");
        }
        for handle in [top, file, directory] {
            assert_eq!(store.sync(&handle), Ok(()));
        }
        store.remove(&root(), &top, b"f").unwrap();
        assert_eq!(store.sync(&file), Err(StoreError::Stale));
    });
}

#[test]
fn forged_truncated_and_flipped_handles_are_refused() {
    everywhere(|store| {
        let (who, top) = (root(), top(store));
        let handle = make(store, &top, "f", 0o600);
        assert_eq!(store.attributes(&who, &FileHandle::NULL), Err(StoreError::BadHandle));
        let mut refused = 0;
        for bit in 0..FileHandle::LENGTH * 8 {
            let mut forged = handle;
            forged.0[bit / 8] ^= 1 << (bit % 8);
            // The memory store has no secret, so another number may name another object.
            refused += usize::from(match store.attributes(&who, &forged) {
                Err(StoreError::BadHandle) => true,
                Err(StoreError::Stale) | Ok(_) => false,
                Err(other) => panic!("{other}"),
            });
        }
        assert!(refused >= 500, "{refused}");
        let mut cut = handle;
        cut.0[32..].fill(0);
        assert!(store.attributes(&who, &cut).is_err() || cut == handle);
    });
}

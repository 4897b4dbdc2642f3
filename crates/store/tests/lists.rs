//! Access control lists and MIME types, in every store that keeps them.

use dafs_store::local::{LocalConfig, LocalStore};
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_store::{
    AttributeChanges, Credentials, ExtraChanges, ExtrasWanted, NewNode, Store, StoreError,
};
use dafs_types::acl::{EVERYONE, GROUP, OWNER};
use dafs_types::{
    AccessMask, Ace, AceFlags, AceKind, AceRights, CreateMode, FileHandle, ShareAccess,
};

const READ: u32 = 0x1;
const WRITE: u32 = 0x6;
const EXECUTE: u32 = 0x20;
const DELETE_CHILD: u32 = 0x40;

fn root() -> Credentials {
    Credentials::superuser()
}

fn user(uid: u32, groups: &[u32]) -> Credentials {
    Credentials::new(uid, uid, groups).unwrap()
}

fn allow(who: &str, rights: u32) -> Ace {
    let is_group = who.starts_with('g');
    let flags = if is_group { AceFlags::IDENTIFIER_GROUP } else { AceFlags::default() };
    let who = who.trim_start_matches('g').to_owned();
    Ace { kind: AceKind::Allow, flags, rights: AceRights(rights), who }
}

fn inherited(entry: Ace) -> Ace {
    Ace { flags: entry.flags.with(AceFlags::INHERITED), ..entry }
}

fn acl(entries: &[Ace]) -> ExtraChanges {
    ExtraChanges { acl: Some(entries.to_vec()), ..ExtraChanges::default() }
}

fn mode(mode: u32) -> AttributeChanges {
    AttributeChanges { mode: Some(mode), ..AttributeChanges::default() }
}

/// Runs a check on every store that keeps lists here, as the user that owns its root.
fn everywhere(check: impl Fn(&dyn Store)) {
    let limits = MemoryLimits { bytes_max: 1 << 20, object_count_max: 100 };
    check(&MemoryStore::new(limits));
    if !rustix::process::geteuid().is_root() {
        dafs_tests::skip_part("only root can give files of local directories away");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let store = LocalStore::new(&LocalConfig::new(&tree, place.path().join("state"))).unwrap();
    let top = top(&store);
    if store.fs_attributes(&root(), &top).unwrap().acl_support == Some(0) {
        dafs_tests::skip_part("this file system keeps no access control lists");
        return;
    }
    check(&store);
}

fn top(store: &dyn Store) -> FileHandle {
    store.root(&root()).unwrap().handle
}

/// Creates a file of user 1 and group 10.
fn file(store: &dyn Store, name: &str, bits: u32) -> FileHandle {
    let top = top(store);
    let (guarded, access) = (CreateMode::Guarded, ShareAccess::Both);
    let (made, _) =
        store.create_file(&root(), &top, name.as_bytes(), guarded, &mode(bits), access).unwrap();
    let handle = made.object.handle;
    let owner = AttributeChanges { uid: Some(1), gid: Some(10), ..AttributeChanges::default() };
    store.set_attributes(&root(), &handle, &owner).unwrap();
    handle
}

fn entries(store: &dyn Store, handle: &FileHandle) -> Vec<Ace> {
    let wanted = ExtrasWanted { acl: true, ..ExtrasWanted::default() };
    store.extras(&root(), handle, wanted).unwrap().acl.unwrap()
}

fn may(store: &dyn Store, who: &Credentials, handle: &FileHandle, access: ShareAccess) -> bool {
    match store.open(who, handle, access) {
        Ok(_) => true,
        Err(StoreError::Access) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_mode_is_told_as_a_list_and_a_list_of_three_is_a_mode() {
    everywhere(|store| {
        let handle = file(store, "f", 0o640);
        let told = entries(store, &handle);
        assert_eq!(
            told.iter().map(|entry| entry.who.as_str()).collect::<Vec<_>>(),
            [OWNER, GROUP, EVERYONE]
        );
        let three = [allow(OWNER, READ | EXECUTE), allow(GROUP, READ), allow(EVERYONE, 0)];
        store.set_extras(&root(), &handle, &acl(&three)).unwrap();
        assert_eq!(store.attributes(&root(), &handle).unwrap().mode, 0o540);
    });
}

#[test]
fn lists_decide_in_the_order_of_posix() {
    everywhere(|store| {
        let handle = file(store, "f", 0o600);
        let list = [
            allow(OWNER, READ | WRITE),
            allow("2", READ | WRITE),
            Ace { kind: AceKind::Deny, ..allow("3", READ) },
            allow("g50", WRITE),
            allow("g60", READ),
            allow(EVERYONE, READ),
        ];
        store.set_extras(&user(1, &[]), &handle, &acl(&list)).unwrap();
        let before = store.attributes(&root(), &handle).unwrap();
        assert_eq!(before.mode, 0o664, "the group bits are the mask");
        use ShareAccess::{Both, Read, Write};
        for (who, access, expected) in [
            (user(1, &[]), Both, true),
            (user(2, &[]), Both, true),
            // A named user does not get the rights of its groups.
            (user(3, &[60]), Read, false),
            (user(4, &[10]), Read, true),
            (user(4, &[10]), Write, false),
            // Group 50 gets by its own entry what everyone has.
            (user(4, &[50]), Both, true),
            (user(4, &[60]), Write, false),
            (user(5, &[]), Read, true),
            (user(5, &[]), Write, false),
        ] {
            assert_eq!(may(store, &who, &handle, access), expected, "{who:?} {access:?}");
            let wanted = if access == Read { AccessMask::READ } else { AccessMask::MODIFY };
            let told = store.access(&who, &handle, wanted).unwrap();
            assert_eq!(told == wanted, expected, "{who:?} {access:?}");
        }
        // The mask limits all entries except those of the owner and of everyone.
        store.set_attributes(&user(1, &[]), &handle, &mode(0o644)).unwrap();
        assert!(!may(store, &user(2, &[]), &handle, Write));
        assert!(may(store, &user(2, &[]), &handle, Read));
        store.set_attributes(&user(1, &[]), &handle, &mode(0o664)).unwrap();
        assert!(may(store, &user(2, &[]), &handle, Both), "what the mask hid is there again");
    });
}

#[test]
fn two_groups_do_not_add_up_to_one_open() {
    everywhere(|store| {
        let handle = file(store, "f", 0o600);
        let list = [allow(OWNER, READ), allow("g50", WRITE), allow("g60", READ)];
        store.set_extras(&root(), &handle, &acl(&list)).unwrap();
        let who = user(4, &[50, 60]);
        assert!(may(store, &who, &handle, ShareAccess::Read));
        assert!(may(store, &who, &handle, ShareAccess::Write));
        assert!(!may(store, &who, &handle, ShareAccess::Both));
        let all = AccessMask::READ | AccessMask::MODIFY;
        assert_eq!(store.access(&who, &handle, all), Ok(all), "each right by itself");
    });
}

#[test]
fn lists_of_directories_guard_names_and_are_inherited() {
    everywhere(|store| {
        let top = top(store);
        let made = store.create_node(&root(), &top, b"d", NewNode::Directory, &mode(0o700));
        let directory = made.unwrap().object.handle;
        let all = READ | WRITE | EXECUTE | DELETE_CHILD;
        let list = [
            allow(OWNER, all),
            allow("2", all),
            allow("3", EXECUTE),
            allow(EVERYONE, 0),
            inherited(allow(OWNER, READ | WRITE | EXECUTE | DELETE_CHILD)),
            inherited(allow("3", READ)),
            inherited(allow(EVERYONE, 0)),
        ];
        store.set_extras(&root(), &directory, &acl(&list)).unwrap();
        let told = entries(store, &directory);
        store.set_extras(&root(), &directory, &acl(&told)).unwrap();
        assert_eq!(entries(store, &directory), told, "what is told can be set");

        let create = |who: &Credentials, name: &[u8], changes: &AttributeChanges| {
            let (guarded, access) = (CreateMode::Guarded, ShareAccess::Both);
            let made = store.create_file(who, &directory, name, guarded, changes, access);
            made.map(|(made, _)| made.object)
        };
        let refused = create(&user(4, &[]), b"no", &mode(0o666));
        assert_eq!(refused.unwrap_err(), StoreError::Access);
        assert_eq!(create(&user(3, &[]), b"no", &mode(0o666)).unwrap_err(), StoreError::Access);
        // The requested mode removes rights from the list, but adds none.
        let file = create(&user(2, &[]), b"f", &mode(0o666)).unwrap();
        assert_eq!(file.attributes.mode, 0o640);
        assert!(may(store, &user(3, &[]), &file.handle, ShareAccess::Read));
        assert!(!may(store, &user(3, &[]), &file.handle, ShareAccess::Write));
        assert!(!may(store, &user(4, &[]), &file.handle, ShareAccess::Read));
        let private = create(&user(2, &[]), b"g", &mode(0o600)).unwrap();
        assert!(!may(store, &user(3, &[]), &private.handle, ShareAccess::Read));
        let plain = create(&user(2, &[]), b"h", &AttributeChanges::default()).unwrap();
        assert_eq!(plain.attributes.mode, 0o640, "without a mode the list alone says who may");
        assert_eq!(store.lookup(&user(3, &[]), &directory, b"f").unwrap().handle, file.handle);

        let node = NewNode::Directory;
        let made = store.create_node(&user(2, &[]), &directory, b"s", node, &mode(0o777)).unwrap();
        let inner = entries(store, &made.object.handle);
        let default = |list: &[Ace]| -> Vec<Ace> {
            let is_default = |entry: &&Ace| entry.flags.contains(AceFlags::INHERIT_ONLY);
            list.iter().filter(is_default).cloned().collect()
        };
        assert!(!default(&inner).is_empty());
        assert_eq!(default(&inner), default(&told), "a new directory passes it on");
        store.remove(&user(2, &[]), &directory, b"f").unwrap();
    });
}

#[test]
fn lists_belong_to_the_owner_and_not_to_links() {
    everywhere(|store| {
        let handle = file(store, "f", 0o666);
        let list = acl(&[allow(OWNER, READ), allow(EVERYONE, READ)]);
        let refused = store.set_extras(&user(2, &[]), &handle, &list);
        assert_eq!(refused, Err(StoreError::NotPermitted));
        let link = NewNode::SymbolicLink(b"f");
        let made = store.create_node(&root(), &top(store), b"l", link, &mode(0o777)).unwrap();
        let refused = store.set_extras(&root(), &made.object.handle, &list);
        assert_eq!(refused, Err(StoreError::NotSupported));
        let inherits = acl(&[inherited(allow(OWNER, READ))]);
        let refused = store.set_extras(&root(), &handle, &inherits);
        assert_eq!(refused, Err(StoreError::Invalid));
        // The set-group-id bit is cleared if the caller is not in the group.
        store.set_attributes(&root(), &handle, &mode(0o2775)).unwrap();
        store.set_extras(&user(1, &[]), &handle, &list).unwrap();
        assert_eq!(store.attributes(&root(), &handle).unwrap().mode, 0o444);
    });
}

#[test]
fn types_of_bodies_are_kept_within_their_bound() {
    everywhere(|store| {
        let handle = file(store, "f", 0o640);
        let set = |who: &Credentials, text: &str| {
            let mime_type = Some(text.to_owned());
            store.set_extras(who, &handle, &ExtraChanges { mime_type, ..ExtraChanges::default() })
        };
        let told = |who: &Credentials| {
            let wanted = ExtrasWanted { mime_type: true, ..ExtrasWanted::default() };
            store.extras(who, &handle, wanted).unwrap().mime_type
        };
        assert_eq!(told(&root()), None);
        assert_eq!(set(&user(2, &[10]), "text/plain"), Err(StoreError::Access));
        set(&user(1, &[]), "text/plain").unwrap();
        assert_eq!(told(&user(2, &[10])).as_deref(), Some("text/plain"));
        assert_eq!(told(&user(3, &[])), None, "not to whoever may not read it");
        assert_eq!(set(&root(), &"x".repeat(256)), Err(StoreError::Invalid));
        set(&root(), "").unwrap();
        assert_eq!(told(&root()), None);
    });
}

/// Encodes a list in the form of the kernel.
fn kernel_form(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0];
    for (tag, bits, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Asks the kernel whether a user may read a file, write it, or do both. A separate thread becomes
/// that user and then ends.
fn kernel_says(path: &std::path::Path, who: &Credentials) -> [bool; 3] {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_res_uid};
    let groups: Vec<_> = who.groups().iter().map(|gid| Gid::from_raw(*gid)).collect();
    std::thread::scope(|scope| {
        let asking = scope.spawn(move || {
            let uid = Uid::from_raw(who.uid());
            set_thread_groups(&groups).unwrap();
            set_thread_gid(Gid::from_raw(who.gid())).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            [(true, false), (false, true), (true, true)].map(|(read, write)| {
                std::fs::OpenOptions::new().read(read).write(write).open(path).is_ok()
            })
        });
        asking.join().unwrap()
    })
}

#[test]
fn the_kernel_would_have_said_the_same() {
    use std::os::unix::fs::{PermissionsExt, chown};
    if !dafs_tests::is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for directory in [place.path(), &tree] {
        std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let path = tree.join("f");
    std::fs::write(&path, b"text").unwrap();
    chown(&path, Some(1), Some(10)).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    if kernel_says(&path, &user(5, &[])) != [true; 3] {
        dafs_tests::skip(format_args!("the way to {} is closed to others", path.display()));
        return;
    }
    let store = LocalStore::new(&LocalConfig::new(&tree, place.path().join("state"))).unwrap();
    let handle = store.lookup(&root(), &top(&store), b"f").unwrap().handle;
    let seed = std::env::var("DAFS_LIST_SEED").map_or(1, |text| text.parse().unwrap());
    let mut numbers = dafs_types::Random::new(seed);
    for round in 0..300 {
        let mut bits = || numbers.below(8) as u16;
        let entries = [
            (1, bits(), u32::MAX),
            (2, bits(), 2),
            (2, bits(), 3),
            (4, bits(), u32::MAX),
            (8, bits(), 50),
            (8, bits(), 60),
            // With an empty mask, Linux ignores the list and gives the named users what others
            // have; acl(5) and the server do not.
            (0x10, bits().max(2), u32::MAX),
            (0x20, bits(), u32::MAX),
        ];
        let list = kernel_form(&entries);
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(&path, "system.posix_acl_access", &list, flags).is_err() {
            dafs_tests::skip("this file system keeps no access control lists");
            return;
        }
        let groups: Vec<u32> = [10, 50, 60].into_iter().filter(|_| numbers.percent(50)).collect();
        let uid = 1 + numbers.below(4) as u32;
        let who = Credentials::new(uid, 99, groups).unwrap();
        let store_says = [ShareAccess::Read, ShareAccess::Write, ShareAccess::Both]
            .map(|access| may(&store, &who, &handle, access));
        assert_eq!(
            store_says,
            kernel_says(&path, &who),
            "round {round}, {who:?}, {entries:?}; again with DAFS_LIST_SEED={seed}"
        );
    }
}

//! What other users of this host may not do with objects that are not theirs, according to the
//! kernel's rules.

use std::os::unix::fs::{MetadataExt, chown, symlink};

use dafs_store::{AttributeChanges, Store, StoreError};
use dafs_types::{CreateMode, FileHandle, ShareAccess};

use super::{
    ANN, BOB, become_user, directory_of, find, is_privileged, mode, place, root, start, user,
};

#[test]
fn a_link_to_anothers_file_is_refused_as_the_kernel_refuses_it() {
    if !is_privileged() {
        return;
    }
    let place = place();
    directory_of(&place, "mine", ANN, 0o755);
    std::fs::write(place.tree.join("secret"), "secret").unwrap();
    symlink("secret", place.tree.join("link")).unwrap();
    let mut permissions = std::fs::metadata(place.tree.join("secret")).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
    std::fs::set_permissions(place.tree.join("secret"), permissions).unwrap();
    let store = start(&place, true);
    let mine: FileHandle = find(&store, "mine");
    for name in ["secret", "link"] {
        let linked = store.link(&user(ANN), &find(&store, name), &mine, b"x");
        assert_eq!(linked, Err(StoreError::NotPermitted), "{name}");
        let path = place.tree.join(name);
        assert_eq!(std::fs::symlink_metadata(path).unwrap().nlink(), 1);
    }
}

#[test]
fn no_write_leaves_set_id_bits_however_old_its_open_is() {
    if !is_privileged() {
        return;
    }
    let place = place();
    let path = place.tree.join("program");
    std::fs::write(&path, "ann's").unwrap();
    chown(&path, Some(ANN), Some(ANN)).unwrap();
    let set_mode = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&path, permissions).unwrap();
    };
    let store = start(&place, true);
    let program = find(&store, "program");
    let mode_now = || std::fs::metadata(&path).unwrap().mode() & 0o7777;
    set_mode(0o666);
    let file = store.open(&user(BOB), &program, ShareAccess::Both).unwrap();
    let memory = dafs_memory::Memory::from_heap(b"bob's".to_vec().into_boxed_slice());
    let write = || file.write_at(&memory, 0, 5, 0).unwrap();
    write();
    for _ in 0..3 {
        // Ann removes the right, and makes the file a set-id program of hers.
        store.set_attributes(&user(ANN), &program, &mode(0o6755)).unwrap();
        assert_eq!(mode_now(), 0o6755);
        write();
        assert_eq!(mode_now(), 0o755, "set through the server");
        set_mode(0o6755);
        write();
        assert_eq!(mode_now(), 0o755, "set beside it");
        set_mode(0o4711);
        file.set_size(3).unwrap();
        assert_eq!(mode_now(), 0o711);
        // A bit for mandatory locking, not a program.
        set_mode(0o2644);
        write();
        assert_eq!(mode_now(), 0o2644);
    }
    drop(file);
    let cut = AttributeChanges { size: Some(0), ..AttributeChanges::default() };
    set_mode(0o4777);
    store.set_attributes(&user(BOB), &program, &cut).unwrap();
    assert_eq!(mode_now(), 0o777, "cut by a change of attributes");
    set_mode(0o4777);
    let (top, how, access) = (super::top(&store), CreateMode::Unchecked, ShareAccess::Read);
    store.create_file(&user(BOB), &top, b"program", how, &cut, access).unwrap();
    assert_eq!(mode_now(), 0o777, "cut by an open");
    set_mode(0o4755);
    let file = store.open(&root(), &program, ShareAccess::Both).unwrap();
    file.write_at(&memory, 0, 5, 0).unwrap();
    assert_eq!(mode_now(), 0o4755, "the superuser's write takes nothing away");
}

#[test]
fn a_server_that_is_not_root_writes_to_anothers_set_id_file_as_the_kernel_lets_it() {
    if !is_privileged() {
        return;
    }
    let place = place();
    let path = place.tree.join("program");
    std::fs::write(&path, "ann's").unwrap();
    chown(&path, Some(ANN), Some(BOB)).unwrap();
    let set_mode = |path: &std::path::Path, mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, permissions).unwrap();
    };
    set_mode(place.tree.parent().unwrap(), 0o755);
    std::fs::create_dir(&place.state).unwrap();
    chown(&place.state, Some(BOB), Some(BOB)).unwrap();
    // Groups share whole directories with bits like these.
    set_mode(&path, 0o6775);
    std::thread::scope(|scope| {
        let bobs = || {
            become_user(BOB);
            let store = start(&place, true);
            let program = store.lookup_path(&user(BOB), &super::top(&store), &[b"program"]).handle;
            let file = store.open(&user(BOB), &program, ShareAccess::Both).unwrap();
            let memory = dafs_memory::Memory::from_heap(b"bob's".to_vec().into_boxed_slice());
            file.write_at(&memory, 0, 5, 0).unwrap();
            file.set_size(4).unwrap();
        };
        scope.spawn(bobs).join().unwrap();
    });
    assert_eq!(std::fs::read(&path).unwrap(), b"bob'");
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o775);
}

#[test]
fn what_a_server_that_is_not_root_cannot_give_to_its_maker_runs_as_nobody_else() {
    if !is_privileged() {
        return;
    }
    let place = place();
    let open_to = |path: &std::path::Path, uid, mode| {
        chown(path, Some(uid), Some(uid)).unwrap();
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    open_to(place.tree.parent().unwrap(), ANN, 0o755);
    std::fs::create_dir(&place.state).unwrap();
    open_to(&place.state, ANN, 0o700);
    open_to(&place.tree, ANN, 0o777);
    std::thread::scope(|scope| {
        let anns = || {
            become_user(ANN);
            let store = start(&place, true);
            let make = |who, name: &[u8]| {
                let (at, how) = (super::top(&store), CreateMode::Unchecked);
                store.create_file(&user(who), &at, name, how, &mode(0o6777), ShareAccess::Both)
            };
            // The object belongs to her, no matter which user has created and filled it.
            let (made, _) = make(BOB, b"bobs").unwrap();
            assert_eq!((made.object.attributes.uid, made.object.attributes.mode), (ANN, 0o777));
            make(ANN, b"anns").unwrap();
        };
        scope.spawn(anns).join().unwrap();
    });
    let mode_of = |name| std::fs::metadata(place.tree.join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode_of("bobs"), mode_of("anns")), (0o777, 0o6777));
}

//! What users of this host that own a directory of an export try, to get what is another's.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dafs_store::{AttributeChanges, Credentials, NewNode, Store, StoreError};
use dafs_types::{CreateMode, FileHandle, ShareAccess};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::process::{Gid, Uid};

use super::{Place, Stopper, find, place, root, start};

const ANN: u32 = 1001;
const BOB: u32 = 1002;
/// Tries of a race. Before there was a guard, a few won.
const ROUNDS: usize = 100;

fn user(uid: u32) -> Credentials {
    Credentials::plain(uid, uid).unwrap()
}

fn mode(mode: u32) -> AttributeChanges {
    AttributeChanges { mode: Some(mode), ..AttributeChanges::default() }
}

fn is_privileged() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: not the superuser, who can give files away");
    }
    is_root
}

/// This thread is a user of the host from now on, for good.
fn become_user(uid: u32) {
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
    rustix::thread::set_thread_groups(&[]).unwrap();
    rustix::thread::set_thread_res_gid(Some(group), Some(group), Some(group)).unwrap();
    rustix::thread::set_thread_res_uid(Some(user), Some(user), Some(user)).unwrap();
}

/// A directory of a user's in the export.
fn directory_of(place: &Place, name: &str, uid: u32, mode: u32) -> OwnedFd {
    let path = place.tree.join(name);
    std::fs::create_dir(&path).unwrap();
    chown(&path, Some(uid), Some(uid)).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    rustix::fs::open(&path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// Makes an object of root's at `name` in ann's directory, for the attack to have given to her.
type Victim = fn(&OwnedFd, &str);

fn victim_file(directory: &OwnedFd, name: &str) {
    rustix::fs::mknodat(directory, name, FileType::RegularFile, Mode::RUSR, 0).unwrap();
}

fn victim_directory(directory: &OwnedFd, name: &str) {
    rustix::fs::mkdirat(directory, name, Mode::RWXU).unwrap();
}

/// As like a new directory as an old one can be.
fn victim_of_no_mode(directory: &OwnedFd, name: &str) {
    rustix::fs::mkdirat(directory, name, Mode::empty()).unwrap();
    // Files keep times no more finely than the clock for them ticks.
    let tick = || rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    let begun = tick();
    while (tick().tv_sec, tick().tv_nsec / 20_000_000) == (begun.tv_sec, begun.tv_nsec / 20_000_000)
    {
        std::thread::yield_now();
    }
}

fn victim_link(directory: &OwnedFd, name: &str) {
    rustix::fs::symlinkat("elsewhere", directory, name).unwrap();
}

/// Whose an object is, of which group, and with which mode.
fn ownership(directory: &OwnedFd, name: &str) -> (u64, (u32, u32, u32)) {
    let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    (found.st_ino, (found.st_uid, found.st_gid, found.st_mode))
}

#[test]
fn what_is_swapped_in_for_a_new_object_is_never_given_to_who_asked_for_one() {
    if !is_privileged() {
        return;
    }
    let link = NewNode::SymbolicLink(b"place");
    let attacks: [(NewNode<'_>, Victim); 6] = [
        (NewNode::Directory, victim_file),
        (NewNode::Directory, victim_directory),
        (NewNode::Directory, victim_of_no_mode),
        (NewNode::Fifo, victim_file),
        (NewNode::Socket, victim_file),
        (link, victim_link),
    ];
    for (node, victim) in attacks {
        race_for(node, victim);
    }
}

/// Ann asks for objects while a thread of hers swaps another's object in.
fn race_for(node: NewNode<'_>, victim: Victim) {
    let place = place();
    let mine = directory_of(&place, "mine", ANN, 0o755);
    victim(&mine, "victim");
    let before = ownership(&mine, "victim");
    // Births have the coarse clock's time: the victim is to be older than all that is made.
    let born = std::time::Instant::now();
    while born.elapsed() < std::time::Duration::from_millis(50) {
        std::thread::yield_now();
    }
    let store = start(&place, true);
    let directory = find(&store, "mine");
    let (stop, round) = (AtomicBool::new(false), AtomicUsize::new(0));
    let swapped = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            become_user(ANN);
            while !stop.load(Ordering::Acquire) {
                let name = format!("x{}", round.load(Ordering::Acquire));
                let flags = RenameFlags::EXCHANGE;
                if rustix::fs::renameat_with(&mine, "victim", &mine, &name, flags).is_ok() {
                    swapped.fetch_add(1, Ordering::Relaxed);
                    // Until there is another to take.
                    while round.load(Ordering::Acquire) == name[1..].parse().unwrap()
                        && !stop.load(Ordering::Acquire)
                    {
                        std::thread::yield_now();
                    }
                }
            }
        });
        let _stopper = Stopper(&stop);
        for index in 1..=ROUNDS {
            let name = format!("x{index}");
            round.store(index, Ordering::Release);
            let made =
                store.create_node(&user(ANN), &directory, name.as_bytes(), node, &mode(0o755));
            match made {
                Ok(made) => assert_eq!(made.object.attributes.uid, ANN),
                Err(error) => assert_eq!(error, StoreError::Exists),
            }
            // The thread waits for the next round, once it has swapped in this one.
            while swapped.load(Ordering::Relaxed) < index {
                std::thread::yield_now();
            }
            assert_eq!(ownership(&mine, &name), before, "round {index}: it was given away");
            let flags = RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(&mine, &name, &mine, "victim", flags).unwrap();
        }
    });
}

#[test]
fn nobody_but_its_owner_removes_what_comes_to_a_name_in_a_sticky_directory() {
    if !is_privileged() {
        return;
    }
    let place = place();
    let shared = directory_of(&place, "shared", 0, 0o1777);
    let store = start(&place, true);
    let directory = find(&store, "shared");
    let put = |uid: u32| {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        rustix::fs::openat(&shared, "name", flags, Mode::RUSR).unwrap();
        chown(place.tree.join("shared/name"), Some(uid), Some(uid)).unwrap();
    };
    put(ANN);
    // Between the look and the removal ann takes her file away, and bob puts his there.
    let removed = store.remove_if(&user(ANN), &directory, b"name", &mut |_| {
        rustix::fs::unlinkat(&shared, "name", AtFlags::empty()).unwrap();
        put(BOB);
        true
    });
    assert_eq!(removed.unwrap_err(), StoreError::NotPermitted);
    assert_eq!(ownership(&shared, "name").1.0, BOB);
    // The thread is itself again, and what is one's own goes.
    assert!(rustix::process::geteuid().is_root());
    assert!(std::fs::metadata("/proc/1/environ").is_ok());
    store.remove(&user(BOB), &directory, b"name").unwrap();
    put(ANN);
    store.rename(&user(ANN), &directory, b"name", &directory, b"other").unwrap();
    store.remove(&root(), &directory, b"other").unwrap();
}

#[test]
fn a_rename_in_a_sticky_directory_replaces_nothing_that_comes_meanwhile() {
    if !is_privileged() {
        return;
    }
    let place = place();
    let shared = directory_of(&place, "shared", 0, 0o1777);
    let store = start(&place, true);
    let directory = find(&store, "shared");
    let (stop, round) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (tried, lost) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            become_user(BOB);
            while !stop.load(Ordering::Acquire) {
                let index = round.load(Ordering::Acquire);
                if index == tried.load(Ordering::Acquire) {
                    continue;
                }
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                let made = rustix::fs::openat(&shared, "target", flags, Mode::RUSR);
                tried.store(index, Ordering::Release);
                let Ok(made) = made else { continue };
                // Bob's file is there until bob takes it away.
                while round.load(Ordering::Acquire) == index && !stop.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                let is_lost = rustix::fs::fstat(made.as_fd()).unwrap().st_nlink == 0;
                lost.fetch_add(usize::from(is_lost), Ordering::Relaxed);
                let _ = rustix::fs::unlinkat(&shared, "target", AtFlags::empty());
            }
        });
        let _stopper = Stopper(&stop);
        for index in 1..=ROUNDS {
            let (how, access) = (CreateMode::Unchecked, ShareAccess::Both);
            let who = user(ANN);
            store.create_file(&who, &directory, b"own", how, &mode(0o600), access).unwrap();
            round.store(index, Ordering::Release);
            match store.rename(&who, &directory, b"own", &directory, b"target") {
                Ok(_) => {}
                Err(error) => assert_eq!(error, StoreError::NotPermitted),
            }
            while tried.load(Ordering::Acquire) < index {
                std::thread::yield_now();
            }
            // Hers may be removed, his may not.
            let _ = store.remove(&who, &directory, b"target");
        }
    });
    assert_eq!(lost.load(Ordering::Relaxed), 0, "bob's files that ann's replaced");
}

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
        // Ann takes the right away, and makes a program of hers of it.
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
        // Locks of the old way, and no program.
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
    // Whole directories are shared in a group by bits like these.
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
            // It stays hers, whoever has made it and fills it.
            let (made, _) = make(BOB, b"bobs").unwrap();
            assert_eq!((made.object.attributes.uid, made.object.attributes.mode), (ANN, 0o777));
            make(ANN, b"anns").unwrap();
        };
        scope.spawn(anns).join().unwrap();
    });
    let mode_of = |name| std::fs::metadata(place.tree.join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode_of("bobs"), mode_of("anns")), (0o777, 0o6777));
}

//! Names that lead to another object a moment later: users of this host who own a directory of an
//! export use this to get objects of other users.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::chown;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dafs_store::{NewNode, Store, StoreError};
use dafs_types::{CreateMode, ShareAccess};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, inotify};
use rustix::thread::CpuSet;

use super::{
    ANN, BOB, HANG, Stopper, become_user, directory_of, find, is_privileged, mode, place, root,
    start, user,
};

/// The number of attempts in a race.
const ROUNDS: usize = 20;
/// The number of attempts in a race that is won only by chance. Without the guard, a few were won.
const CHANCES: usize = 400;

/// Creates an object of root at `name` in Ann's directory, which the attack tries to get for her.
type Victim = fn(&OwnedFd, &str);

fn victim_file(directory: &OwnedFd, name: &str) {
    rustix::fs::mknodat(directory, name, FileType::RegularFile, Mode::RUSR, 0).unwrap();
}

fn victim_directory(directory: &OwnedFd, name: &str) {
    rustix::fs::mkdirat(directory, name, Mode::RWXU).unwrap();
}

/// An old directory that looks as much as possible like a new one.
fn victim_of_no_mode(directory: &OwnedFd, name: &str) {
    rustix::fs::mkdirat(directory, name, Mode::empty()).unwrap();
    // Times of files have the resolution of the coarse clock.
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

/// The owner, group and mode of an object, and its inode number.
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

/// Ann creates objects, while a thread of hers replaces each one by another user's object as soon
/// as it exists.
fn race_for(node: NewNode<'_>, victim: Victim) {
    let place = place();
    let mine = directory_of(&place, "mine", ANN, 0o755);
    victim(&mine, "victim");
    let before = ownership(&mine, "victim");
    // Times of creation come from the coarse clock; the victim must be older than all new objects.
    let born = Instant::now();
    while born.elapsed() < Duration::from_millis(50) {
        std::thread::yield_now();
    }
    let store = start(&place, true);
    let directory = find(&store, "mine");
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, place.tree.join("mine"), inotify::WatchFlags::CREATE).unwrap();
    let (swapped, is_ready) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (watch, mine, swapped, is_ready) = (&watch, &mine, &swapped, &is_ready);
        scope.spawn(move || {
            comes_first();
            become_user(ANN);
            is_ready.store(true, Ordering::Release);
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut made = inotify::Reader::new(watch, &mut buffer);
            loop {
                let event = made.next().unwrap();
                let name = event.file_name().unwrap();
                if name == c"enough" {
                    return;
                }
                let flags = RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(mine, "victim", mine, name, flags).unwrap();
                swapped.fetch_add(1, Ordering::Release);
            }
        });
        let asking = scope.spawn(move || {
            let _enough = Enough(mine);
            stays_here();
            while !is_ready.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            for index in 1..=ROUNDS {
                let name = format!("x{index}");
                let (who, mode) = (user(ANN), mode(0o755));
                match store.create_node(&who, &directory, name.as_bytes(), node, &mode) {
                    Ok(made) => assert_eq!(made.object.attributes.uid, ANN),
                    Err(error) => assert_eq!(error, StoreError::Exists),
                }
                let asked = Instant::now();
                while swapped.load(Ordering::Acquire) < index {
                    assert!(asked.elapsed() < HANG, "nothing is swapped in");
                    std::thread::yield_now();
                }
                assert_eq!(ownership(mine, &name), before, "round {index}: it was given away");
                let flags = RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(mine, &name, mine, "victim", flags).unwrap();
            }
        });
        asking.join().unwrap();
    });
}

/// When dropped, ends the wait of the thread that waits for new objects.
struct Enough<'a>(&'a OwnedFd);

impl Drop for Enough<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::mknodat(self.0, "enough", FileType::RegularFile, Mode::RUSR, 0);
    }
}

/// Binds the thread to the only processor of a race. There the thread with the higher priority runs
/// as soon as it is woken, before the thread that woke it leaves the system call.
fn stays_here() {
    static HERE: LazyLock<usize> = LazyLock::new(rustix::thread::sched_getcpu);
    let mut here = CpuSet::new();
    here.set(*HERE);
    rustix::thread::sched_setaffinity(None, &here).unwrap();
}

/// Gives this thread priority over all others. Where that is not allowed, the race depends on
/// chance.
fn comes_first() {
    stays_here();
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let told = Command::new("chrt").args(["--fifo", "--pid", "1", &own]).output();
    if !told.is_ok_and(|told| told.status.success()) {
        dafs_tests::skip_part("no thread can get priority, so the race depends on chance");
    }
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
    // Between lookup and removal, Ann takes her file away and Bob puts his there.
    let removed = store.remove_if(&user(ANN), &directory, b"name", &mut |_| {
        rustix::fs::unlinkat(&shared, "name", AtFlags::empty()).unwrap();
        put(BOB);
        true
    });
    assert_eq!(removed.unwrap_err(), StoreError::NotPermitted);
    assert_eq!(ownership(&shared, "name").1.0, BOB);
    // The thread acts as root again, and a user can remove an own object.
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
                // The delay varies, because the critical moment is short.
                for _ in 0..index * 137 % 2000 {
                    std::hint::spin_loop();
                }
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                let made = rustix::fs::openat(&shared, "target", flags, Mode::RUSR);
                tried.store(index, Ordering::Release);
                let Ok(made) = made else { continue };
                // Bob's file is there until Bob takes it away.
                while round.load(Ordering::Acquire) == index && !stop.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                let is_lost = rustix::fs::fstat(made.as_fd()).unwrap().st_nlink == 0;
                lost.fetch_add(usize::from(is_lost), Ordering::Relaxed);
                let _ = rustix::fs::unlinkat(&shared, "target", AtFlags::empty());
            }
        });
        let _stopper = Stopper(&stop);
        for index in 1..=CHANCES {
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
            // Her file may be removed; his may not.
            let _ = store.remove(&who, &directory, b"target");
        }
    });
    assert_eq!(lost.load(Ordering::Relaxed), 0, "bob's files that ann's replaced");
}

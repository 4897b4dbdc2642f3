//! Names that lead to something else a moment later: what users of this host that own a directory
//! of an export put there, to get what is another's.

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

/// Tries of a race.
const ROUNDS: usize = 20;
/// Tries of one that nobody can be sure to win. Before there was a guard, a few won.
const CHANCES: usize = 400;

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

/// Ann asks for objects while a thread of hers swaps another's object in as soon as there is one.
fn race_for(node: NewNode<'_>, victim: Victim) {
    let place = place();
    let mine = directory_of(&place, "mine", ANN, 0o755);
    victim(&mine, "victim");
    let before = ownership(&mine, "victim");
    // Births have the coarse clock's time: the victim is to be older than all that is made.
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

/// Has a thread that waits for objects to be made wait no more when it goes.
struct Enough<'a>(&'a OwnedFd);

impl Drop for Enough<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::mknodat(self.0, "enough", FileType::RegularFile, Mode::RUSR, 0);
    }
}

/// The one processor of a race: whoever comes first there takes over the moment it is woken, before
/// whoever has woken it gets out of the system call.
fn stays_here() {
    static HERE: LazyLock<usize> = LazyLock::new(rustix::thread::sched_getcpu);
    let mut here = CpuSet::new();
    here.set(*HERE);
    rustix::thread::sched_setaffinity(None, &here).unwrap();
}

/// This thread comes before all that have no priority; where that may not be, it comes by chance.
fn comes_first() {
    stays_here();
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let told = Command::new("chrt").args(["--fifo", "--pid", "1", &own]).output();
    if !told.is_ok_and(|told| told.status.success()) {
        eprintln!("no thread can be given priority here: what is swapped in comes by chance");
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
                // Now earlier, now later: the moment that matters is short.
                for _ in 0..index * 137 % 2000 {
                    std::hint::spin_loop();
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
            // Hers may be removed, his may not.
            let _ = store.remove(&who, &directory, b"target");
        }
    });
    assert_eq!(lost.load(Ordering::Relaxed), 0, "bob's files that ann's replaced");
}

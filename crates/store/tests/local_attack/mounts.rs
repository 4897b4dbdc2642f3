//! File systems that are mounted beneath an export, some of which never answer.
//!
//! Each test runs once more in a process with its own mount name space.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use dafs_store::local::{Export, LocalConfig, LocalStore};
use dafs_store::{ListRequest, Store, StoreError};
use dafs_types::{CookieVerifier, FileHandle, ReaddirCookie};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount, mount_bind};

use super::{HANG, Place, both_ways, find, place, root, top};

/// The environment variable that marks the process with its own name space.
const WITHIN: &str = "DAFS_TEST_MOUNTS_WITHIN";

/// Runs a test of this module in a process whose mounts are invisible outside. Ends it if it hangs.
fn with_mounts(name: &str, test: impl FnOnce()) {
    if std::env::var_os(WITHIN).is_some() {
        return test();
    }
    if !dafs_tests::is_root() {
        return;
    }
    let apart = |command: &mut Command| {
        command.args(["--mount", "--propagation", "private", "--"]);
        command.env(WITHIN, "1");
    };
    let mut probe = Command::new("unshare");
    apart(&mut probe);
    if !probe.arg("true").status().is_ok_and(|status| status.success()) {
        dafs_tests::skip("no mount namespace can be made here");
        return;
    }
    let mut command = Command::new("unshare");
    apart(&mut command);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("local_attack::mounts::{name}"), "--nocapture"]);
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return;
        }
        if begun.elapsed() > HANG {
            child.kill().unwrap();
            panic!("somebody waits for a file system that does not answer");
        }
        std::thread::yield_now();
    }
}

fn directory(place: &Place, name: &str) -> PathBuf {
    let path = place.tree.join(name);
    std::fs::create_dir(&path).unwrap();
    path
}

fn mount_tmpfs(at: &Path) {
    mount("tmpfs", at, "tmpfs", MountFlags::empty(), None).unwrap();
    std::fs::write(at.join("file"), "text").unwrap();
}

/// Mounts a file system of a process that never answers; `None` if FUSE is not available.
fn mount_silent(at: &Path) -> Option<OwnedFd> {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR, Mode::empty()).ok()?;
    let options =
        format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    let options = std::ffi::CString::new(options).unwrap();
    mount("silent", at, "fuse", MountFlags::empty(), options.as_c_str()).ok()?;
    Some(device)
}

fn start(place: &Place, kernel_handles: bool, cross_mounts: bool) -> LocalStore {
    let mut config = LocalConfig::new(&place.tree, &place.state);
    config.exports = vec![Export { cross_mounts, ..Export::new("export", &place.tree) }];
    config.kernel_handles = kernel_handles;
    LocalStore::new(&config).unwrap()
}

fn entries(store: &LocalStore, directory: &FileHandle) -> Vec<(String, bool)> {
    let request = ListRequest {
        cookie: ReaddirCookie(0),
        verifier: CookieVerifier::default(),
        entry_count_max: 100,
        name_bytes_max: 10_000,
        want_objects: true,
    };
    let page = store.readdir(&root(), directory, &request).unwrap();
    assert!(page.is_end);
    let shown = |entry: dafs_store::ListEntry| {
        (String::from_utf8(entry.name).unwrap(), entry.object.is_some())
    };
    let mut entries: Vec<_> = page.entries.into_iter().map(shown).collect();
    entries.sort();
    entries
}

#[test]
fn what_is_mounted_beneath_an_export_is_entered_only_if_that_says_so() {
    let name = "what_is_mounted_beneath_an_export_is_entered_only_if_that_says_so";
    with_mounts(name, || both_ways(check_crossing));
}

fn check_crossing(kernel: bool) {
    let place = place();
    for name in ["plain", "memory", "bound", "kernel", "silent"] {
        directory(&place, name);
    }
    std::fs::write(place.tree.join("plain/file"), "text").unwrap();
    mount_tmpfs(&place.tree.join("memory"));
    std::fs::create_dir(place.tree.join("memory/inner")).unwrap();
    for name in ["kernel", "memory/inner"] {
        mount("proc", place.tree.join(name), "proc", MountFlags::empty(), None).unwrap();
    }
    mount_bind(&place.outside, place.tree.join("bound")).unwrap();
    let silent = mount_silent(&place.tree.join("silent"));
    if silent.is_none() {
        dafs_tests::skip_part("there is no FUSE, so no file system that never answers");
        std::fs::remove_dir(place.tree.join("silent")).unwrap();
    }

    let store = start(&place, kernel, false);
    let refused = |store: &LocalStore, name: &str| {
        let found = store.lookup(&root(), &top(store), name.as_bytes());
        assert_eq!(found.err(), Some(StoreError::CrossDevice), "{name}");
        let removed = store.remove(&root(), &top(store), name.as_bytes());
        assert_eq!(removed.err(), Some(StoreError::CrossDevice), "{name}");
    };
    let foreign: &[&str] = if silent.is_some() { &["kernel", "silent"] } else { &["kernel"] };
    for name in [&["memory", "bound"][..], foreign].concat() {
        refused(&store, name);
    }
    find(&store, "plain/file");
    for (name, is_told) in entries(&store, &top(&store)) {
        assert_eq!(is_told, name == "plain", "{name}");
    }

    let store = start(&place, kernel, true);
    for name in foreign {
        refused(&store, name);
    }
    let memory = find(&store, "memory");
    let inner = store.lookup(&root(), &memory, b"inner");
    assert_eq!(inner.err(), Some(StoreError::CrossDevice));
    assert_eq!(store.lookup_parent(&root(), &memory).unwrap().handle, top(&store));
    for (name, is_told) in entries(&store, &top(&store)) {
        assert_eq!(is_told, !foreign.contains(&&*name), "{name}");
    }
    let files = ["memory/file", "bound/secret", "plain/file"].map(|path| find(&store, path));
    drop(store);
    let store = start(&place, kernel, true);
    for file in files {
        assert!(store.attributes(&root(), &file).is_ok(), "after a restart");
    }
    // A mount that could be entered before can no longer be entered.
    let store = start(&place, kernel, false);
    assert_eq!(store.attributes(&root(), &files[0]).err(), Some(StoreError::Stale));
}

#[test]
fn a_file_system_that_never_answers_stops_nobody_wherever_it_is_mounted() {
    let name = "a_file_system_that_never_answers_stops_nobody_wherever_it_is_mounted";
    with_mounts(name, || both_ways(check_silence));
}

fn check_silence(kernel: bool) {
    let place = place();
    let path = directory(&place, "mine");
    std::fs::write(path.join("file"), "text").unwrap();
    let store = start(&place, kernel, true);
    let (mine, file) = (find(&store, "mine"), find(&store, "mine/file"));
    // Mounted while the store is using the directory.
    let Some(_silent) = mount_silent(&path) else {
        dafs_tests::skip("there is no FUSE");
        return;
    };
    let begun = Instant::now();
    // From the first moment on the mount is never asked, and soon the store knows why.
    while store.lookup(&root(), &top(&store), b"mine").err() != Some(StoreError::CrossDevice) {
        assert!(begun.elapsed() < HANG, "the mount is not seen");
        std::thread::yield_now();
    }
    assert_eq!(entries(&store, &top(&store)), [("mine".to_owned(), false)]);
    // Known objects are those below the mount, as for local processes that have them open.
    assert_eq!(store.lookup(&root(), &mine, b"file").unwrap().handle, file);
    assert_eq!(store.attributes(&root(), &file).unwrap().size, 4);
}

#[test]
fn what_shows_the_kernel_is_no_export() {
    let place = place();
    let mut config = LocalConfig::new("/proc", &place.state);
    config.exports = vec![Export::new("kernel", "/proc")];
    let refused = LocalStore::new(&config).err().expect("it is refused");
    let cause = std::error::Error::source(&refused).expect("it says why").to_string();
    assert!(cause.contains("shows the kernel"), "{cause}");
}

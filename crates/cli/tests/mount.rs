//! Tests `dafs mount` with a real server and a real mount. Skipped where FUSE is not available.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const DAFS: &str = env!("CARGO_BIN_EXE_dafs");

/// A server and a mount of it; both end when this is dropped.
struct Mounted {
    server: Child,
    mount: Child,
    directory: tempfile::TempDir,
}

impl Mounted {
    /// Returns `None` and prints a message where there is no FUSE.
    fn new() -> Option<Self> {
        if !dafs_tests::can_mount() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("export")).unwrap();
        fs::create_dir(at("mnt")).unwrap();
        let mut server = Command::new(DAFS)
            .args(["serve", "--squash", "none", "--no-tcp", "--cache", "32M", "--socket"])
            .args([at("socket"), "--state".into(), at("state"), at("export")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        first_line(&mut server);
        let url = format!("dafs+shm://{}!/", at("socket").display());
        let mut mount = Command::new(DAFS)
            .args(["mount", "--foreground", "-o", "attr_timeout=0,entry_timeout=0", &url])
            .arg(at("mnt"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let line = first_line(&mut mount);
        assert!(line.contains("is mounted on"), "{line:?}");
        Some(Self { server, mount, directory })
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join("mnt").join(name)
    }

    fn exported(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join("export").join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.mount.try_wait().is_ok_and(|ended| ended.is_none()) {
            let mnt = self.directory.path().join("mnt");
            let _ = Command::new(DAFS).args(["unmount", "--lazy"]).arg(mnt).status();
            // A mount namespace that was made meanwhile keeps the file system, and would keep the
            // process.
            let _ = self.mount.kill();
            let _ = self.mount.wait();
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let output = child.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    line
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = entries.map(|e| name(e).into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_and_names_are_those_of_the_server() {
    let Some(mounted) = Mounted::new() else { return };
    let content: Vec<u8> = (0..3_000_001u32).map(|n| (n % 251) as u8).collect();
    fs::write(mounted.at("big"), &content).unwrap();
    assert!(fs::read(mounted.at("big")).unwrap() == content);
    assert!(fs::read(mounted.exported("big")).unwrap() == content, "a close hands it over");

    fs::create_dir(mounted.at("d")).unwrap();
    fs::rename(mounted.at("big"), mounted.at("d/moved")).unwrap();
    fs::hard_link(mounted.at("d/moved"), mounted.at("link")).unwrap();
    symlink("link", mounted.at("soft")).unwrap();
    assert_eq!(names_in(&mounted.at("")), ["d", "link", "soft"]);
    assert_eq!(fs::read_link(mounted.at("soft")).unwrap(), Path::new("link"));
    let found = fs::metadata(mounted.at("soft")).unwrap();
    assert_eq!((found.nlink(), found.len()), (2, 3_000_001));
    let is_not_empty = fs::remove_dir(mounted.at("d")).unwrap_err();
    assert_eq!(is_not_empty.kind(), std::io::ErrorKind::DirectoryNotEmpty);

    fs::set_permissions(mounted.at("link"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::metadata(mounted.exported("link")).unwrap().mode() & 0o7777, 0o600);
    let file = fs::OpenOptions::new().write(true).open(mounted.at("link")).unwrap();
    file.set_len(5).unwrap();
    assert_eq!(fs::read(mounted.at("d/moved")).unwrap(), &content[..5]);
}

#[test]
fn an_open_file_outlives_its_name_and_appends_go_to_the_end() {
    let Some(mounted) = Mounted::new() else { return };
    let append = || fs::OpenOptions::new().append(true).create(true).open(mounted.at("log"));
    let (mut one, mut other) = (append().unwrap(), append().unwrap());
    one.write_all(b"one ").unwrap();
    other.write_all(b"two ").unwrap();
    one.write_all(b"three").unwrap();
    let mut reader = fs::File::open(mounted.at("log")).unwrap();
    fs::remove_file(mounted.at("log")).unwrap();
    assert!(names_in(&mounted.at("")).is_empty());
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one two three");
    assert_eq!(reader.metadata().unwrap().nlink(), 0);
}

#[test]
fn locks_keep_others_out() {
    let Some(mounted) = Mounted::new() else { return };
    let open = || {
        fs::OpenOptions::new().write(true).create(true).truncate(false).open(mounted.at("locked"))
    };
    let (one, other) = (open().unwrap(), open().unwrap());
    one.try_lock().unwrap();
    assert!(matches!(other.try_lock(), Err(fs::TryLockError::WouldBlock)));
    one.unlock().unwrap();
    other.try_lock().unwrap();
    drop(other);
    one.lock().unwrap();
}

#[test]
fn a_signal_unmounts() {
    let Some(mut mounted) = Mounted::new() else { return };
    fs::write(mounted.at("file"), "text").unwrap();
    let pid = rustix::process::Pid::from_child(&mounted.mount);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(mounted.mount.wait().unwrap().success());
    assert!(!mounted.at("file").exists());
    assert_eq!(fs::read_to_string(mounted.exported("file")).unwrap(), "text");
}

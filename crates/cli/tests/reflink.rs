//! Tests undo data that shares blocks with the files, on file systems with reflinks. The tests make
//! and mount images, serve them with processes that are killed, and simulate a power failure.
//!
//! Without root, loop devices or the mkfs programs, the tests are skipped with a message, unless
//! `DAFS_REQUIRE_REFLINK=1`.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use dafs_tests::Required;
use serde_json::Value;

use crate::blocks::{BLOCK_BYTES, old_block};
use crate::program::{await_that, dafs};

/// An image that is mounted in its own directory.
struct Mount {
    // Declared before the directory that contains it, so that it is dropped first.
    mounted: Mounted,
    directory: tempfile::TempDir,
}

/// Unmounts when it is dropped.
struct Mounted(Option<PathBuf>);

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let unmounted = run(Command::new("umount").arg(&path));
            if unmounted.is_err() {
                // A lazy unmount is better than none.
                let _ = run(Command::new("umount").arg("--lazy").arg(&path));
            }
        }
    }
}

impl Mount {
    /// Makes a new file system with this command. Returns `None` and prints the reason if that is
    /// not possible.
    fn new(make: &[&str]) -> Option<Self> {
        match Self::try_new(make) {
            Ok(mount) => Some(mount),
            Err(why) => {
                let what = format!("no file system with reflinks can be made here: {why}");
                Required::Reflink.skip(what);
                None
            }
        }
    }

    fn try_new(make: &[&str]) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let image = directory.path().join("image");
        let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(IMAGE_BYTES).map_err(|error| error.to_string())?;
        run(Command::new(make[0]).args(&make[1..]).arg(&image))?;
        std::fs::create_dir(directory.path().join("mount")).map_err(|error| error.to_string())?;
        let mut mount = Self { mounted: Mounted(None), directory };
        mount.mount()?;
        Ok(mount)
    }

    fn mount(&mut self) -> Result<(), String> {
        let (image, path) = (self.directory.path().join("image"), self.path());
        run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(&path))?;
        self.mounted = Mounted(Some(path));
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("mount")
    }

    /// Simulates a power failure: unsynced data is lost.
    fn lose_power(&mut self) {
        run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(self.path())).unwrap();
    }

    fn remount(&mut self) {
        run(Command::new("umount").arg(self.mounted.0.take().unwrap())).unwrap();
        self.mount().unwrap();
    }

    /// Returns the bytes in use, after everything has been written to the disk.
    fn used_bytes(&self) -> u64 {
        let directory = std::fs::File::open(self.path()).unwrap();
        rustix::fs::syncfs(&directory).unwrap();
        let found = rustix::fs::fstatvfs(&directory).unwrap();
        (found.f_blocks - found.f_bfree) * found.f_frsize
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{name}: {}", said.trim())) }
}

/// A served directory, and the state that servers keep across restarts.
struct Place {
    export: PathBuf,
    state: PathBuf,
    socket: tempfile::TempDir,
    server: Option<Child>,
    /// The time in seconds after which a client that is not heard of has failed.
    lease: &'static str,
}

impl Place {
    fn new(export: PathBuf, state: PathBuf, lease: &'static str) -> Self {
        std::fs::create_dir_all(&export).unwrap();
        let socket = tempfile::tempdir().unwrap();
        let mut place = Self { export, state, socket, server: None, lease };
        write_old(&place.local());
        place.serve();
        place
    }

    fn on(mount: &Mount) -> Self {
        Self::on_with_lease(mount, "1")
    }

    fn on_with_lease(mount: &Mount, lease: &'static str) -> Self {
        Self::new(mount.path().join("export"), mount.path().join("state"), lease)
    }

    fn local(&self) -> PathBuf {
        self.export.join("large")
    }

    fn serve(&mut self) {
        let log = self.socket.path().join("log");
        let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let mut child = dafs()
            .args(["--log", "info", "serve"])
            .arg(&self.export)
            .args(["--no-tcp", "--cache", "64M", "--lease", self.lease, "--socket"])
            .arg(self.socket.path().join("socket"))
            .arg("--state")
            .arg(&self.state)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready"), "{line}{}", self.log());
        self.server = Some(child);
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.socket.path().join("log")).unwrap()
    }

    /// Kills the server with SIGKILL.
    fn kill_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// Starts a client that holds the lock and writes its input to the file.
    fn writer(&self) -> Writer {
        let socket = self.socket.path().join("socket");
        let mut process = dafs()
            .args(["lock", "--autorecover", "--write"])
            .arg(format!("dafs+shm://{}!/large", socket.display()))
            .args(["--", "cat"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let bytes = process.stdin.take().unwrap();
        Writer { process, bytes }
    }

    fn locks(&self) -> usize {
        let told = dafs().args(["locks", "--json"]).arg(self.socket.path().join("socket")).output();
        let told = told.unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        let told: Value = serde_json::from_slice(&told.stdout).unwrap();
        told["locks"].as_array().unwrap().len()
    }

    /// Returns the bytes of undo data: the copied bytes, or the extent of the cloned ones.
    fn undo_bytes(&self, kind: &str) -> u64 {
        fn sum(directory: &Path, kind: &str) -> u64 {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries
                .map(|entry| match entry.metadata() {
                    Ok(data) if data.is_dir() => sum(&entry.path(), kind),
                    Ok(data) if entry.file_name().to_string_lossy().starts_with(kind) => data.len(),
                    _ => 0,
                })
                .sum()
        }
        sum(&self.state, kind)
    }

    /// Waits until all traces of a failed writer are gone, and checks the file.
    fn assert_taken_back(&self, who: &str) {
        await_that("the lock is gone", || self.locks() == 0);
        assert_old(&self.local(), who);
        await_that("undo data is gone", || {
            self.undo_bytes("undo-") == 0 && self.undo_bytes("clone-") == 0
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.kill_server();
    }
}

struct Writer {
    process: Child,
    bytes: ChildStdin,
}

impl Writer {
    fn write(&mut self, mut bytes: u64) {
        let zeros = vec![0; BLOCK_BYTES];
        while bytes > 0 {
            let part = bytes.min(BLOCK_BYTES as u64);
            self.bytes.write_all(&zeros[..part as usize]).unwrap();
            bytes -= part;
        }
    }

    fn die(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The length is not a multiple of the block size.
fn write_old(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    for number in 0..BLOCKS {
        file.write_all(&old_block(number)).unwrap();
    }
    file.write_all(&[9; END_BYTES]).unwrap();
    file.sync_all().unwrap();
}

fn assert_old(path: &Path, who: &str) {
    let mut file = std::fs::File::open(path).unwrap();
    let mut block = vec![0; BLOCK_BYTES];
    for number in 0..BLOCKS {
        file.read_exact(&mut block).unwrap();
        assert!(block == old_block(number), "block {number}: {who}");
    }
    block.clear();
    file.read_to_end(&mut block).unwrap();
    assert!(block == [9; END_BYTES], "the end: {who}");
}

/// True if the file begins with this many zeros for local processes.
fn is_zeros(path: &Path, bytes: u64) -> bool {
    let mut file = std::fs::File::open(path).unwrap();
    let mut block = vec![1; BLOCK_BYTES];
    (0..bytes / BLOCK_BYTES as u64).all(|_| {
        file.read_exact(&mut block).unwrap();
        block.iter().all(|byte| *byte == 0)
    })
}

/// Kills a writer or the server after a small part or all of a file was rewritten.
fn it_is_taken_back(make: &[&str]) {
    let Some(mount) = Mount::new(make) else { return };
    for dies in ["writer", "server"] {
        for bytes in [BLOCK_BYTES as u64, LARGE_BYTES] {
            let mut place = Place::on(&mount);
            let used_before = mount.used_bytes();
            let mut writer = place.writer();
            writer.write(bytes);
            let (local, end) = (place.local(), bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64);
            await_that("it is overwritten", || is_zeros(&local, end));
            // Everything was saved with the first change, and shares its blocks with the file.
            assert_eq!(place.undo_bytes("clone-"), BLOCKS * BLOCK_BYTES as u64);
            assert!(place.undo_bytes("undo-") < BLOCK_BYTES as u64, "it was copied");
            let took = mount.used_bytes().saturating_sub(used_before);
            assert!(took < bytes + SLACK_BYTES, "{took} bytes for {bytes} written anew");
            let who = format!("the {dies} has died, {bytes} bytes in");
            if dies == "server" {
                place.kill_server();
            }
            writer.die();
            if dies == "server" {
                place.serve();
            }
            place.assert_taken_back(&who);
            // Unchanged blocks were not rewritten either.
            let took = mount.used_bytes().saturating_sub(used_before);
            assert!(took < SLACK_BYTES, "{took} bytes are left: {who}");
            assert!(place.log().contains("shares blocks"), "{}", place.log());
            std::fs::remove_file(place.local()).unwrap();
        }
    }
}

#[test]
fn xfs_gives_back_what_was_there() {
    it_is_taken_back(XFS);
}

#[test]
fn btrfs_gives_back_what_was_there() {
    it_is_taken_back(&["mkfs.btrfs", "-q"]);
}

#[test]
fn what_was_cloned_outlives_a_loss_of_power() {
    for bytes in [BLOCK_BYTES as u64, LARGE_BYTES] {
        let Some(mut mount) = Mount::new(XFS) else { return };
        // The writer must not be given up before the power is lost, on a slow machine either.
        let mut place = Place::on_with_lease(&mount, "5");
        let mut writer = place.writer();
        writer.write(bytes);
        let local = place.local();
        let end = bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        await_that("it is overwritten", || is_zeros(&local, end));
        mount.lose_power();
        place.kill_server();
        writer.die();
        mount.remount();
        assert!(place.undo_bytes("clone-") > 0, "undo data is gone: {}", place.log());
        place.serve();
        place.assert_taken_back(&format!("the power was lost, {bytes} bytes in"));
        place.kill_server();
    }
}

#[test]
fn a_state_directory_elsewhere_has_copies() {
    let Some(mount) = Mount::new(XFS) else { return };
    let elsewhere = tempfile::tempdir().unwrap();
    let mut place = Place::new(mount.path().join("export"), elsewhere.path().join("state"), "1");
    let mut writer = place.writer();
    writer.write(LARGE_BYTES);
    await_that("all of it is saved", || place.undo_bytes("undo-") > LARGE_BYTES);
    assert_eq!(place.undo_bytes("clone-"), 0);
    assert!(place.log().contains("undo data: copied"), "{}", place.log());
    place.kill_server();
    writer.die();
    place.serve();
    place.assert_taken_back("the server has died");
}

const XFS: &[&str] = &["mkfs.xfs", "-q", "-m", "reflink=1"];
const IMAGE_BYTES: u64 = 600 << 20;
const BLOCKS: u64 = 96;
const END_BYTES: usize = 1234;
const LARGE_BYTES: u64 = BLOCKS * BLOCK_BYTES as u64 + END_BYTES as u64;
/// Space that the file system needs for itself.
const SLACK_BYTES: u64 = 16 << 20;

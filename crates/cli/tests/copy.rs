//! `dafs cp` while its server is killed and started again.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A guard against hanging; no test expects anything of time.
const HANG: Duration = Duration::from_secs(300);

/// A served directory, and what servers keep from one life to the next.
struct Place {
    directory: tempfile::TempDir,
    server: Option<Child>,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["export", "tree"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let mut place = Self { directory, server: None };
        place.serve();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn url(&self, path: &str) -> String {
        format!("dafs+shm://{}!/{path}", self.path("socket").display())
    }

    fn serve(&mut self) {
        let mut server = dafs()
            .arg("serve")
            .arg(self.path("export"))
            .args(["--no-tcp", "--cache", "256M", "--lease", "1", "--socket"])
            .arg(self.path("socket"))
            .arg("--state")
            .arg(self.path("state"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready"), "{line}");
        self.server = Some(server);
    }

    /// SIGKILL: what was not committed may be lost.
    fn kill_server(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    fn copy(&self, from: &str, to: &str) -> Child {
        dafs().args(["cp", "-r", from, to]).stderr(Stdio::piped()).spawn().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.kill_server();
        }
    }
}

fn dafs() -> Command {
    Command::new(env!("CARGO_BIN_EXE_dafs"))
}

fn await_that(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < HANG, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

fn content(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 8 * 31 + seed) as u8 | 1).collect()
}

fn count(directory: &Path) -> usize {
    directory.read_dir().map_or(0, Iterator::count)
}

#[test]
fn what_a_killed_server_has_lost_is_copied_again() {
    let mut place = Place::new();
    let length = |index: usize| if index.is_multiple_of(8) { 4 << 20 } else { index * 100 };
    for index in 0..FILES {
        let path = place.path("tree").join(index.to_string());
        std::fs::write(path, content(index, length(index))).unwrap();
    }
    let tree = place.path("tree");
    let copy = place.copy(tree.to_str().unwrap(), &place.url(""));
    let copied = place.path("export/tree");
    for enough in [FILES / 8, FILES / 2] {
        await_that("some files", || count(&copied) >= enough);
        place.kill_server();
        place.serve();
    }
    let output = copy.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for index in 0..FILES {
        let octets = std::fs::read(copied.join(index.to_string())).unwrap();
        assert!(octets == content(index, length(index)), "{index} differs");
    }
}

const FILES: usize = 200;

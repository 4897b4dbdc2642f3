//! Users of the machine, and the program as each of them.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// A user with a directory that no other user can enter.
pub(super) struct Person {
    pub uid: u32,
    home: tempfile::TempDir,
}

/// The owner of the files, and the user who tries to access them.
pub(super) const OWNER: u32 = 41_001;
pub(super) const STRANGER: u32 = 41_002;

/// True if this process can act as several users. Otherwise says that the test is skipped.
pub(super) fn can_be_others() -> bool {
    dafs_tests::is_root()
}

impl Person {
    pub(super) fn new(uid: u32) -> Self {
        let home = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(home.path(), Some(uid), Some(uid)).unwrap();
        Self { uid, home }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Makes a directory that belongs to this user.
    pub(super) fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(self.uid), Some(self.uid)).unwrap();
        path
    }

    /// Returns a command that runs as this user with an empty environment.
    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.home.path());
        command.current_dir("/").uid(self.uid).gid(self.uid).stdin(Stdio::null());
        command
    }

    /// Returns a `dafs` command that runs as this user, wherever the program is.
    pub(super) fn dafs(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(program());
        command.args(arguments);
        command
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        self.dafs(arguments).output().unwrap()
    }
}

/// Returns a path of the program that every user can execute, because the original one may be in a
/// directory of root's.
fn program() -> PathBuf {
    static OPENED: OnceLock<File> = OnceLock::new();
    let opened = OPENED.get_or_init(|| File::open(env!("CARGO_BIN_EXE_dafs")).unwrap());
    format!("/proc/self/fd/{}", opened.as_raw_fd()).into()
}

/// A running `dafs serve`.
pub(super) struct Server {
    child: Child,
    pub tcp: String,
    socket: PathBuf,
}

impl Server {
    /// Serves a user's directory as that user, with more options.
    pub(super) fn start(person: &Person, export: &Path, more: &[&str]) -> Self {
        let socket = person.path("socket");
        let mut command = person.dafs(&["serve", "--tcp", "127.0.0.1:0", "--cache", "16M"]);
        command.arg("--socket").arg(&socket).arg("--state").arg(person.path("state"));
        command.args(more).arg(export);
        Self::run(command, socket)
    }

    /// Runs a given `dafs serve` command with this socket.
    pub(super) fn run(mut command: Command, socket: PathBuf) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let tcp = line.split(' ').find_map(|word| word.trim().strip_prefix("tcp:"));
        let tcp = tcp.unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { child, tcp, socket }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("dafs+shm://{}!/{path}", self.socket.display())
    }

    /// Kills the server and returns its log.
    pub(super) fn end(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::io::read_to_string(self.child.stderr.take().unwrap()).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the contents of both output streams.
pub(super) fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

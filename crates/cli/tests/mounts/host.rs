//! A served directory with mounts of it.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use dafs_tests::Required;

use crate::program::dafs;

/// A directory, a server of its subdirectory `export`, and mounts of that. All end when this is
/// dropped.
pub(crate) struct Host {
    directory: tempfile::TempDir,
    export: PathBuf,
    server: Option<Child>,
    next: Option<Child>,
    mounts: Vec<Mount>,
    /// The server's TCP port, if it is reached over TCP.
    port: Option<u16>,
}

struct Mount {
    place: PathBuf,
    process: Child,
}

impl Host {
    /// Returns `None` and prints a message where there is no FUSE.
    pub(crate) fn new() -> Option<Self> {
        Self::of(None)
    }

    /// Starts a server for another directory.
    pub(crate) fn of(export: Option<PathBuf>) -> Option<Self> {
        Self::of_by(export, None)
    }

    /// Starts a server that is reached over TCP.
    pub(crate) fn by_tcp() -> Option<Self> {
        // This port is free now, and every later server uses it, too.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::of_by(None, Some(port))
    }

    fn of_by(export: Option<PathBuf>, port: Option<u16>) -> Option<Self> {
        if !dafs_tests::can_mount() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let export = export.unwrap_or_else(|| directory.path().join("export"));
        let _ = std::fs::create_dir(&export);
        let (server, next, mounts) = (None, None, Vec::new());
        let mut host = Self { directory, export, server, next, mounts, port };
        host.serve();
        Some(host)
    }

    /// Starts a server and one mount of it.
    pub(crate) fn mounted(options: &str) -> Option<Self> {
        let mut host = Self::new()?;
        host.mount(options);
        Some(host)
    }

    /// Starts a server. Its process was created in advance: creating one closes descriptors of this
    /// process, and a close of a file on the mount needs the server.
    pub(crate) fn serve(&mut self) {
        let mut server = self.next.take().unwrap_or_else(|| self.prepare());
        server.stdin.take().unwrap().write_all(b"begin\n").unwrap();
        let line = next_line(&mut server);
        assert!(line.starts_with("ready"), "{line:?}");
        self.server = Some(server);
        self.next = Some(self.prepare());
    }

    fn prepare(&self) -> Child {
        let mut child = Command::new("sh")
            .args([
                "-c",
                "echo there; read word && exec \"$@\"",
                "sh",
                env!("CARGO_BIN_EXE_dafs"),
                "serve",
            ])
            .args(self.way())
            .args(["--squash", "none", "--cache", "32M", "--lease", "2", "--socket"])
            .args([self.path("socket"), "--state".into(), self.path("state")])
            .arg(&self.export)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        assert_eq!(next_line(&mut child), "there\n");
        child
    }

    fn way(&self) -> Vec<String> {
        match self.port {
            None => vec!["--no-tcp".into()],
            Some(port) => {
                let address = format!("127.0.0.1:{port}");
                vec!["--tcp".into(), address, "--anonymous".into(), "0:0".into()]
            }
        }
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill_server(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    pub(crate) fn url(&self) -> String {
        if let Some(port) = self.port {
            return format!("dafs://127.0.0.1:{port}/");
        }
        format!("dafs+shm://{}!/", self.path("socket").display())
    }

    /// Adds a mount. Returns its mount point.
    pub(crate) fn mount(&mut self, options: &str) -> PathBuf {
        self.mount_with(options, &[])
    }

    pub(crate) fn mount_with(&mut self, options: &str, arguments: &[&str]) -> PathBuf {
        let place = self.path(&format!("mnt{}", self.mounts.len()));
        std::fs::create_dir(&place).unwrap();
        let mut mount = dafs();
        mount.args(["mount", "--foreground"]).args(arguments);
        if !options.is_empty() {
            mount.args(["-o", options]);
        }
        let mut process = mount.arg(self.url()).arg(&place).stdout(Stdio::piped()).spawn().unwrap();
        let line = next_line(&mut process);
        assert!(line.contains("is mounted on"), "{line:?}");
        self.mounts.push(Mount { place: place.clone(), process });
        place
    }

    /// Returns the process that serves a mount.
    pub(crate) fn process(&mut self, mount: usize) -> &mut Child {
        &mut self.mounts[mount].process
    }

    /// Returns a path outside of the export and the mounts.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a path in the first mount.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.mounts[0].place.join(name)
    }

    /// Returns the local path of the same file, without the server.
    pub(crate) fn exported(&self, name: &str) -> PathBuf {
        self.export.join(name)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for mount in &mut self.mounts {
            if mount.process.try_wait().is_ok_and(|ended| ended.is_none()) {
                let _ = dafs().args(["unmount", "--lazy"]).arg(&mount.place).status();
                if self.server.is_none() {
                    // A process that waits for the server would wait for long.
                    let _ = mount.process.kill();
                }
                let _ = mount.process.wait();
            }
        }
        for server in [&mut self.server, &mut self.next].into_iter().flatten() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Skips a test with a message, unless all tests are required.
pub(crate) fn missing<T>(what: &str) -> Option<T> {
    Required::Faces.skip(format_args!("there is no {what}"));
    None
}

/// True if the programs are available. Otherwise says that the test is skipped.
pub(crate) fn have(programs: &[&str]) -> bool {
    Required::Faces.has_programs(programs)
}

/// Runs a shell command in a directory.
pub(crate) fn shell(directory: &Path, command: &str) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-ec", command]).current_dir(directory).env("LC_ALL", "C");
    shell.output().unwrap()
}

/// Runs a shell command that must succeed, and returns its output.
pub(crate) fn run(directory: &Path, command: &str) -> String {
    let output = shell(directory, command);
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command}: {}\n{said}\n{complained}", output.status);
    said.into_owned()
}

/// Returns the next line of the child's output.
#[expect(clippy::unbuffered_bytes, reason = "what follows is for the next")]
fn next_line(child: &mut Child) -> String {
    let output = child.stdout.as_mut().unwrap();
    let bytes = output.bytes().map(Result::unwrap);
    let mut line = Vec::new();
    for byte in bytes {
        line.push(byte);
        if byte == b'\n' {
            break;
        }
    }
    String::from_utf8(line).unwrap()
}

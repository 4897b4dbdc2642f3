//! A directory, with a server that can be killed and restarted.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use dafs_tests::Required;

use crate::program::dafs;

/// A served directory, and the state that servers keep across restarts.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    server: Option<Child>,
    /// The TCP address and port.
    tcp: String,
    /// True if the export is on a small disk of its own.
    is_small: bool,
    /// The lease in seconds for the next start.
    pub lease: u32,
    /// The number of reactors for the next start; `None` for the default.
    reactors: Option<usize>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("export")).unwrap();
        let (server, tcp) = (None, String::new());
        let mut place = Self { directory, server, tcp, is_small: false, lease: 1, reactors: None };
        place.serve();
        place
    }

    /// Uses a disk of 4 MiB. Returns `None` and prints a message where it cannot be mounted.
    #[allow(dead_code)]
    pub(crate) fn small() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            Required::Faces.skip("only root can mount a small disk");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let export = directory.path().join("export");
        std::fs::create_dir(&export).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(&export);
        assert!(mount.status().unwrap().success());
        let (server, tcp) = (None, String::new());
        let mut place = Self { directory, server, tcp, is_small: true, lease: 1, reactors: None };
        place.serve();
        Some(place)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("dafs+shm://{}!/{path}", self.path("socket").display())
    }

    /// Returns the TCP URL of a path. A restarted server has another port.
    pub(crate) fn tcp_url(&self, path: &str) -> String {
        format!("dafs://{}/{path}", self.tcp)
    }

    pub(crate) fn serve(&mut self) {
        let export = self.path("export");
        self.start(&[export.as_os_str()]);
    }

    /// Serves these directories instead.
    pub(crate) fn serve_directories(&mut self, directories: &[&OsStr]) {
        self.start(directories);
    }

    /// Serves memory of this size instead of the directory.
    pub(crate) fn serve_memory(&mut self, size: &str) {
        self.start(&["--memory".as_ref(), size.as_ref()]);
    }

    fn start(&mut self, what: &[&OsStr]) {
        let reactors = self.reactors.map(|count| count.to_string());
        let mut server = dafs()
            .arg("serve")
            .args(what)
            .args(["--tcp", "127.0.0.1:0", "--anonymous", &own(), "--squash", "none"])
            .args(reactors.iter().flat_map(|count| ["--reactors", count.as_str()]))
            .args(["--lease", &self.lease.to_string(), "--cache", "256M", "--socket"])
            .arg(self.path("socket"))
            .arg("--state")
            .arg(self.path("state"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let addresses = line.trim().strip_prefix("ready: ").expect("a ready line");
        let tcp = addresses.split(' ').find_map(|address| address.strip_prefix("tcp:"));
        self.tcp = tcp.expect("an address of TCP").to_owned();
        self.server = Some(server);
    }

    /// Restarts the server with this number of reactors.
    pub(crate) fn restart_with(&mut self, reactors: usize) {
        self.kill_server();
        self.reactors = Some(reactors);
        self.serve();
    }

    pub(crate) fn server_id(&self) -> u32 {
        self.server.as_ref().unwrap().id()
    }

    /// Kills the server with SIGKILL. Uncommitted data may be lost.
    pub(crate) fn kill_server(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }
}

/// The user and group for clients over TCP.
fn own() -> String {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    format!("{}:{}", uid.as_raw(), gid.as_raw())
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.kill_server();
        }
        if self.is_small {
            let _ = Command::new("umount").arg("-l").arg(self.path("export")).status();
        }
    }
}

//! A directory, and a server of it that can be killed and started again.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::program::dafs;

/// A served directory, and what servers keep from one life to the next.
pub struct Place {
    directory: tempfile::TempDir,
    server: Option<Child>,
}

impl Place {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("export")).unwrap();
        let mut place = Self { directory, server: None };
        place.serve();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn url(&self, path: &str) -> String {
        format!("dafs+shm://{}!/{path}", self.path("socket").display())
    }

    pub fn serve(&mut self) {
        let export = self.path("export");
        self.start(&[export.as_os_str()]);
    }

    /// Serves memory of so many octets instead of the directory.
    #[allow(dead_code)]
    pub fn serve_memory(&mut self, size: &str) {
        self.start(&["--memory".as_ref(), size.as_ref()]);
    }

    fn start(&mut self, what: &[&OsStr]) {
        let mut server = dafs()
            .arg("serve")
            .args(what)
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
    pub fn kill_server(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.kill_server();
        }
    }
}

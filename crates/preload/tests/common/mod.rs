//! A served directory, and programs that run with the library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use dafs_dat::Address;
use dafs_server::{LedgerError, Server, ServerConfig, ServerStats, Stopper};
use dafs_store::local::{LocalConfig, LocalStore, Squash};
use dafs_tests::Required;
use dafs_types::Credentials;

/// A server in a separate thread, with its directory.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<ServerStats, LedgerError>>>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let exported = directory.path().join("export");
        std::fs::create_dir(&exported).unwrap();
        let address = Address::Shm(directory.path().join("socket"));
        let mut config = ServerConfig { listen: vec![address], ..ServerConfig::default() };
        config.access.squash = Some(Squash::Nobody);
        config.sessions.authentication.anonymous = Some(
            Credentials::plain(
                rustix::process::getuid().as_raw(),
                rustix::process::getgid().as_raw(),
            )
            .unwrap(),
        );
        // The locks of a killed process are held for this long.
        config.filer.lease = Duration::from_secs(1);
        let state = directory.path().join("state");
        let store = LocalStore::new(&LocalConfig::new(exported, state)).unwrap();
        let server = Server::new(&config, Arc::new(store)).unwrap();
        let stopper = server.stopper();
        let thread = Some(std::thread::spawn(move || server.run()));
        Self { directory, stopper, thread }
    }

    /// Returns a path next to the export.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the local path of a served file.
    pub(crate) fn local(&self, name: &str) -> PathBuf {
        self.beside("export").join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("dafs+shm://{}!/", self.beside("socket").display())
    }

    /// Returns a command that runs a program with the library, with the server's directory at
    /// `/dafs`.
    pub(crate) fn program(&self, name: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(name);
        command
            .current_dir(self.directory.path())
            .env("LD_PRELOAD", library())
            .env("DAFS_PRELOAD_MAP", format!("/dafs={}", self.url()))
            .env("LC_ALL", "C");
        command
    }

    /// Runs a bash script that stops at the first failing command. Returns its output.
    #[track_caller]
    pub(crate) fn script(&self, text: &str) -> String {
        let output = self.program("bash").args(["-euo", "pipefail", "-c", text]).output().unwrap();
        printed(&output)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the output of a program that must have succeeded.
#[track_caller]
pub(crate) fn printed(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{told}", output.status);
    text
}

/// Returns the library that was built with the tests.
pub(crate) fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let built = own.parent().and_then(Path::parent).unwrap().join("deps/libdafs_preload.so");
    assert!(built.is_file(), "{} was not built", built.display());
    built
}

/// True if the programs are available. Otherwise says that the test is skipped.
pub(crate) fn has(programs: &[&str]) -> bool {
    Required::Faces.has_programs(programs)
}

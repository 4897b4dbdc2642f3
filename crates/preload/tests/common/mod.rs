//! A served directory, and programs that are run with the library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use dafs_dat::Address;
use dafs_server::{LedgerError, Server, ServerConfig, ServerStats, Stopper};
use dafs_store::local::{LocalConfig, LocalStore, Squash};
use dafs_types::Credentials;

/// A server on a thread of its own, and its directory.
pub struct Place {
    directory: tempfile::TempDir,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<ServerStats, LedgerError>>>,
}

impl Place {
    pub fn new() -> Self {
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
        // What a process that was killed has locked is kept for it so long.
        config.filer.lease = Duration::from_secs(1);
        let state = directory.path().join("state");
        let store = LocalStore::new(&LocalConfig::new(exported, state)).unwrap();
        let server = Server::new(&config, Arc::new(store)).unwrap();
        let stopper = server.stopper();
        let thread = Some(std::thread::spawn(move || server.run()));
        Self { directory, stopper, thread }
    }

    /// A path beside what is served.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where a path that is served is on this machine.
    pub fn local(&self, name: &str) -> PathBuf {
        self.beside("export").join(name)
    }

    pub fn url(&self) -> String {
        format!("dafs+shm://{}!/", self.beside("socket").display())
    }

    /// A program with the library, to which the server's directory is `/dafs`.
    pub fn program(&self, name: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(name);
        command
            .current_dir(self.directory.path())
            .env("LD_PRELOAD", library())
            .env("DAFS_PRELOAD_MAP", format!("/dafs={}", self.url()))
            .env("LC_ALL", "C");
        command
    }

    /// Runs a script by bash, which ends with its first command that fails. What it prints.
    #[track_caller]
    pub fn script(&self, text: &str) -> String {
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

/// What a program has printed that went well.
#[track_caller]
pub fn printed(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{told}", output.status);
    text
}

/// The library, as it was built with the tests.
pub fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let built = own.parent().and_then(Path::parent).unwrap().join("deps/libdafs_preload.so");
    assert!(built.is_file(), "{} was not built", built.display());
    built
}

/// Whether programs are there; where one is not, the test says so and is skipped.
pub fn has(programs: &[&str]) -> bool {
    let is_there = |name: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
    };
    let missing: Vec<_> = programs.iter().filter(|name| !is_there(name)).collect();
    if missing.is_empty() {
        return true;
    }
    let is_required = std::env::var("DAFS_REQUIRE_FACES").is_ok_and(|value| value == "1");
    assert!(!is_required, "these programs are missing: {missing:?}");
    eprintln!("\n*** SKIPPED: these programs are missing: {missing:?}\n");
    false
}

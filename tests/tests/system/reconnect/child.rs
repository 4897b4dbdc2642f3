//! A server in a separate process that can be killed, stopped and restarted at the same addresses.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dafs_dat::Address;
use dafs_journal::{DirectoryStorage, LogConfig, UndoConfig};
use dafs_server::{JournalConfig, Server, ServerConfig};
use dafs_store::local::{LocalConfig, LocalStore, Squash};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::fixture::{Transport, Watch, me, places, reactors};

/// A server with its directory.
pub(crate) struct ServerProcess {
    directory: tempfile::TempDir,
    port: u16,
    keeps_results: bool,
    child: Child,
    _watch: Watch,
}

impl ServerProcess {
    /// Starts a server that stores replies in its journal, so that they survive a restart.
    pub(crate) fn start() -> Self {
        Self::start_with(true)
    }

    /// With `keeps_results` false, they are lost in a restart.
    pub(crate) fn start_with(keeps_results: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("export")).unwrap();
        let port = free_port();
        let child = spawn(directory.path(), port, keeps_results);
        Self { directory, port, keeps_results, child, _watch: Watch::start() }
    }

    pub(crate) fn address(&self, transport: Transport) -> Address {
        places(self.directory.path(), self.port)[transport as usize].clone()
    }

    /// Returns the local path of a served file.
    pub(crate) fn local(&self, path: &str) -> PathBuf {
        self.directory.path().join("export").join(path)
    }

    /// Kills the server, whatever it is doing.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Restarts the server with the state that the previous incarnation left.
    pub(crate) fn revive(&mut self) {
        self.child = spawn(self.directory.path(), self.port, self.keeps_results);
    }

    /// Stops the process for a while. None of its threads runs when this returns.
    pub(crate) fn freeze(&self) {
        let process = Pid::from_child(&self.child);
        kill_process(process, Signal::STOP).unwrap();
        let (_, status) = waitpid(Some(process), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
    }

    /// Continues the stopped process.
    pub(crate) fn thaw(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a port that stays free while the server is down: the system assigns no port below the
/// ephemeral ones, and a client that looks for the server cannot connect to itself.
fn free_port() -> u16 {
    let mut random = dafs_types::Random::new(u64::from(std::process::id()));
    let skip = PORTS_TAKEN.fetch_add(1, Ordering::Relaxed);
    (0..)
        .map(|_| 12_000 + random.below(20_000) as u16)
        .skip(skip)
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}

static PORTS_TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Starts this test program with the server below as its only test. It ends with this process,
/// which holds its standard input.
fn spawn(directory: &Path, port: u16, keeps_results: bool) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "reconnect::child::a_server_for_another_process"])
        .env(DIRECTORY, directory)
        .env(PORT, port.to_string())
        .env(KEEPS_RESULTS, keeps_results.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with(READY)), "the server did not start");
    // Its later output must not block it.
    std::thread::spawn(move || lines.count());
    child
}

const DIRECTORY: &str = "DAFS_TEST_SERVER_DIRECTORY";
const PORT: &str = "DAFS_TEST_SERVER_PORT";
const KEEPS_RESULTS: &str = "DAFS_TEST_SERVER_KEEPS_RESULTS";
const READY: &str = "the server is ready";

/// Not a test, but the server that others start as a separate process.
#[test]
fn a_server_for_another_process() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let port = std::env::var(PORT).unwrap().parse().unwrap();
    let config = LocalConfig::new(directory.join("export"), directory.join("state"));
    let store = LocalStore::new(&config).unwrap();
    let mut config = ServerConfig { listen: places(&directory, port), ..ServerConfig::default() };
    config.reactors = reactors();
    config.cache.arena_bytes = 32 << 20;
    config.cache.dirty_bytes_max = 8 << 20;
    // For clients that request several channels.
    config.sessions.client_channels = 4;
    config.sessions.authentication.anonymous = Some(me());
    config.access.squash = Some(Squash::Nobody);
    if std::env::var(KEEPS_RESULTS).unwrap() == "true" {
        let storage = DirectoryStorage::open(directory.join("journal")).unwrap();
        let journal = JournalConfig {
            storage: Arc::new(storage),
            log: LogConfig::default(),
            undo: UndoConfig::default(),
        };
        config.journal = Some(journal);
    }
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let server = Server::new(&config, Arc::new(store)).unwrap();
    println!("{READY}");
    server.run().unwrap();
}

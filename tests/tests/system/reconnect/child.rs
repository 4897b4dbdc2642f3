//! A server in a separate process that can be killed, stopped and restarted at the same addresses.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dafs_dat::Address;
use dafs_server::{Defect, Server, ServerConfig};
use dafs_store::local::{LocalConfig, LocalStore, Squash};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::fixture::{Transport, Watch, journal_in, me, places, reactors, serve_nfs};

/// A server with its directory.
pub(crate) struct ServerProcess {
    directory: tempfile::TempDir,
    wanted: Wanted,
    child: Child,
    _watch: Watch,
}

/// What a server in a separate process is to do.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    port: u16,
    keeps_results: bool,
    /// The port for NFS clients.
    nfs: Option<u16>,
    defect: Option<Defect>,
}

impl ServerProcess {
    /// Starts a server that stores replies in its journal, so that they survive a restart.
    pub(crate) fn start() -> Self {
        Self::start_with(true)
    }

    /// With `keeps_results` false, they are lost in a restart.
    pub(crate) fn start_with(keeps_results: bool) -> Self {
        Self::start_as(Wanted { port: free_port(), keeps_results, nfs: None, defect: None })
    }

    /// Starts a server for NFS clients, with a journal.
    pub(crate) fn start_for_nfs() -> Self {
        let (port, nfs) = (free_port(), Some(free_port()));
        Self::start_as(Wanted { port, keeps_results: true, nfs, defect: None })
    }

    /// Starts a server for NFS clients, without a journal.
    pub(crate) fn start_for_nfs_without_journal() -> Self {
        let (port, nfs) = (free_port(), Some(free_port()));
        Self::start_as(Wanted { port, keeps_results: false, nfs, defect: None })
    }

    fn start_as(wanted: Wanted) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("export")).unwrap();
        let child = spawn(directory.path(), wanted);
        Self { directory, wanted, child, _watch: Watch::start() }
    }

    /// Returns the address for NFS clients.
    pub(crate) fn nfs(&self) -> SocketAddr {
        let port = self.wanted.nfs.expect("the server serves NFS clients");
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    /// Waits until the server has ended by a defect.
    pub(crate) fn await_death(&mut self) {
        // Without its standard input, the server would end in good order.
        let _input = self.child.stdin.take();
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{status:?}");
    }

    pub(crate) fn address(&self, transport: Transport) -> Address {
        places(self.directory.path(), self.wanted.port)[transport as usize].clone()
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

    /// Restarts the server with the state that the previous incarnation left, and without a defect.
    pub(crate) fn revive(&mut self) {
        self.restart(None);
    }

    /// Restarts the server with a defect.
    pub(crate) fn revive_with(&mut self, defect: Defect) {
        self.restart(Some(defect));
    }

    fn restart(&mut self, defect: Option<Defect>) {
        self.wanted.defect = defect;
        self.child = spawn(self.directory.path(), self.wanted);
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
fn spawn(directory: &Path, wanted: Wanted) -> Child {
    let Wanted { port, keeps_results, nfs, defect } = wanted;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "reconnect::child::a_server_for_another_process"])
        .env(DIRECTORY, directory)
        .env(PORT, port.to_string())
        .env(KEEPS_RESULTS, keeps_results.to_string())
        .env(NFS, nfs.map_or_else(String::new, |port| port.to_string()))
        .env(DEFECT, defect.map_or_else(String::new, |defect| format!("{defect:?}")))
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
const NFS: &str = "DAFS_TEST_SERVER_NFS";
const DEFECT: &str = "DAFS_TEST_SERVER_DEFECT";
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
    if let Ok(port) = std::env::var(NFS).unwrap().parse::<u16>() {
        serve_nfs(&mut config, port);
    }
    let defect = std::env::var(DEFECT).unwrap();
    config.defect = [Defect::DieAfterIntent, Defect::DieBeforeOutcome, Defect::ExecuteRepeats]
        .into_iter()
        .find(|known| format!("{known:?}") == defect);
    if std::env::var(KEEPS_RESULTS).unwrap() == "true" {
        config.journal = Some(journal_in(&directory));
    }
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let server = Server::new(&config, Arc::new(store)).unwrap();
    println!("{READY}");
    server.run().unwrap();
}

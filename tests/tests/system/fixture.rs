//! A server in a separate thread, with its own directory.

use std::fs::Permissions;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use dafs_client::{Client, ClientConfig, Session, SessionOptions};
use dafs_dat::Address;
use dafs_journal::{DirectoryStorage, LogConfig, UndoConfig};
use dafs_server::{
    ExportRules, Followed, Inspection, Inspector, JournalConfig, NfsConfig, NfsRules, PartialTerms,
    Reloader, Selection, Server, ServerConfig, ServerStats, Stopper,
};
use dafs_store::Store;
use dafs_store::local::{Export, LocalConfig, LocalStore, Squash};
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_types::Random;

/// A guard against hanging. No test expects anything of time.
pub(crate) const HANG: Duration = Duration::from_secs(60);
/// The guard for a whole test, or for one of its steps, however busy the machine is.
const TEST_HANG: Duration = Duration::from_secs(600);

/// A guard around a whole test: aborts the program if the test hangs anywhere. A client's own calls
/// wait as long as its server lives.
pub(crate) struct Watch {
    steps: Sender<()>,
}

impl Watch {
    /// Watches until it is dropped.
    pub(crate) fn start() -> Self {
        let (steps, watched) = channel::<()>();
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        std::thread::spawn(move || {
            let ended = loop {
                if let Err(ended) = watched.recv_timeout(TEST_HANG) {
                    break ended;
                }
            };
            if ended == RecvTimeoutError::Timeout {
                // Write past the test harness, which does not print captured output of an aborted
                // program.
                let text = format!("{test} hangs: nothing happens for {TEST_HANG:?}\n");
                let _ = std::io::stderr().write_all(text.as_bytes());
                std::process::abort();
            }
        });
        Self { steps }
    }

    /// Restarts the time limit after a step of a long test.
    pub(crate) fn goes_on(&self) {
        self.steps.send(()).expect("the guard is there until this is dropped");
    }
}

/// Tells threads to end when it is dropped, even by a panic: a scope waits for its threads before
/// it propagates a panic.
pub(crate) struct Ending<'f>(pub &'f AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Waits for an effect of another thread.
pub(crate) fn await_that(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < HANG, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// The transports of cases, in the order of [`places`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Shm,
    Tcp,
    /// Only if there is a [`device`].
    Verbs,
}

/// Returns the transports to test: all that every host has, or only the device under test.
pub(crate) fn transports() -> Vec<Transport> {
    match device() {
        None => vec![Transport::Shm, Transport::Tcp],
        Some(_) => vec![Transport::Verbs],
    }
}

/// Returns a transport for a case that is the same over all.
pub(crate) fn any() -> Transport {
    transports()[0]
}

/// Returns a transport over which the kernel does not report the client's user.
pub(crate) fn far() -> Transport {
    if device().is_some() { Transport::Verbs } else { Transport::Tcp }
}

/// Returns the address from which a server sees clients over [`far`].
pub(crate) fn far_ip() -> IpAddr {
    device().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Returns the address of the RDMA device under test.
fn device() -> Option<IpAddr> {
    let ip = std::env::var("DAFS_VERBS_ADDRESS").ok()?;
    Some(ip.parse().expect("DAFS_VERBS_ADDRESS is no address"))
}

/// Returns the addresses of a server with its socket in a directory, one for each [`Transport`].
pub(crate) fn places(directory: &Path, port: u16) -> Vec<Address> {
    let tcp = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut places = vec![Address::Shm(directory.join("socket")), Address::Tcp(tcp)];
    places.extend(device().map(|ip| Address::Verbs(SocketAddr::new(ip, port))));
    places
}

/// A running server.
pub(crate) struct Fixture {
    pub directory: tempfile::TempDir,
    addresses: Vec<Address>,
    nfs: Vec<SocketAddr>,
    nfs_rdma: Vec<Address>,
    stopper: Stopper,
    inspector: Inspector,
    /// Replaces the access rules.
    pub reloader: Reloader,
    thread: Option<std::thread::JoinHandle<ServerStats>>,
    watch: Watch,
}

impl Fixture {
    /// Starts a server with an empty directory.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// Starts a server with changes to its configuration.
    pub(crate) fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let exported = directory.path().join("export");
        std::fs::create_dir(&exported).unwrap();
        let state = directory.path().join("state");
        let store = LocalStore::new(&LocalConfig::new(exported, state)).unwrap();
        Self::start(directory, Arc::new(store), change)
    }

    /// Does the same with a store that wraps the store of its directory.
    pub(crate) fn on_store_within(
        change: impl FnOnce(&mut ServerConfig),
        wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let exported = directory.path().join("export");
        std::fs::create_dir(&exported).unwrap();
        let state = directory.path().join("state");
        let store = LocalStore::new(&LocalConfig::new(exported, state)).unwrap();
        Self::start(directory, wrap(Arc::new(store)), change)
    }

    /// Starts a server with two directories, `home` and `pub`, and changes to its configuration.
    pub(crate) fn with_two_exports(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = LocalConfig::new(".", directory.path().join("state"));
        config.exports.clear();
        for name in ["home", "pub"] {
            let path = directory.path().join("export").join(name);
            std::fs::create_dir_all(&path).unwrap();
            config.exports.push(Export::new(name, path));
        }
        let store = LocalStore::new(&config).unwrap();
        Self::start(directory, Arc::new(store), change)
    }

    /// Starts a server for NFS clients with a journal and three exports: `export`, `readonly`, which
    /// no user may change and which has the file `file`, and `squashed`, which takes user 0 for
    /// another.
    pub(crate) fn for_nfs() -> Self {
        Self::for_nfs_with(tempfile::tempdir().unwrap(), |_| {})
    }

    /// Does the same with a directory that an earlier fixture may have used, and with other
    /// settings for NFS clients.
    pub(crate) fn for_nfs_with(
        directory: tempfile::TempDir,
        change: impl FnOnce(&mut NfsConfig),
    ) -> Self {
        Self::for_nfs_as(directory, |config| {
            if let Some(config) = &mut config.nfs {
                change(config);
            }
        })
    }

    /// Does the same with other settings.
    pub(crate) fn for_nfs_as(
        directory: tempfile::TempDir,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Self {
        let mut config = LocalConfig::new(".", directory.path().join("state"));
        config.exports.clear();
        for name in ["export", "readonly", "squashed"] {
            let path = directory.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
            config.exports.push(Export::new(name, path));
        }
        std::fs::write(directory.path().join("readonly").join("file"), "data").unwrap();
        let store = LocalStore::new(&config).unwrap();
        let journal = journal_in(directory.path());
        Self::start(directory, Arc::new(store), |config| {
            config.journal = Some(journal);
            let read_only = PartialTerms { read_only: Some(true), ..PartialTerms::default() };
            let squashed = PartialTerms { squash: Some(Squash::Root), ..PartialTerms::default() };
            for (name, terms) in [("readonly", read_only), ("squashed", squashed)] {
                let name = name.into();
                config.access.exports.push(ExportRules { name, terms, clients: Vec::new() });
            }
            serve_nfs(config, 0);
            change(config);
        })
    }

    /// Starts a server with a journal.
    pub(crate) fn with_journal() -> Self {
        Self::with(|_| {}).journaled()
    }

    /// Restarts the server with a journal and the same data.
    pub(crate) fn journaled(self) -> Self {
        self.journaled_with(|_| {})
    }

    /// Does the same with other changes to its configuration.
    pub(crate) fn journaled_with(self, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let (directory, _) = self.stop();
        let config =
            LocalConfig::new(directory.path().join("export"), directory.path().join("state"));
        let store = LocalStore::new(&config).unwrap();
        let journal = journal_in(directory.path());
        Self::start(directory, Arc::new(store), |config| {
            config.journal = Some(journal);
            change(config);
        })
    }

    /// Starts a server with a memory store.
    pub(crate) fn in_memory() -> Self {
        let limits = MemoryLimits { bytes_max: 64 << 20, object_count_max: 10_000 };
        let store = MemoryStore::new(limits);
        Self::start(tempfile::tempdir().unwrap(), Arc::new(store), |_| {})
    }

    /// Starts a server with a directory that another fixture has used.
    pub(crate) fn again(directory: tempfile::TempDir) -> Self {
        let config =
            LocalConfig::new(directory.path().join("export"), directory.path().join("state"));
        let store = LocalStore::new(&config).unwrap();
        Self::start(directory, Arc::new(store), |_| {})
    }

    fn start(
        directory: tempfile::TempDir,
        store: Arc<dyn Store>,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Self {
        let watch = Watch::start();
        let mut config =
            ServerConfig { listen: places(directory.path(), 0), ..ServerConfig::default() };
        config.reactors = reactors();
        config.cache.arena_bytes = 64 << 20;
        config.cache.dirty_bytes_max = 16 << 20;
        config.sessions.authentication.anonymous = Some(me());
        config.access.squash = Some(Squash::Nobody);
        change(&mut config);
        let server = Server::new(&config, store).unwrap();
        let addresses = server.addresses().to_vec();
        let nfs = server.nfs_addresses();
        let nfs_rdma = server.nfs_rdma_addresses().to_vec();
        let (stopper, inspector) = (server.stopper(), server.inspector());
        let reloader = server.reloader();
        let thread = std::thread::spawn(move || server.run().unwrap());
        let thread = Some(thread);
        Self { directory, addresses, nfs, nfs_rdma, stopper, inspector, reloader, thread, watch }
    }

    /// Restarts the time limit, like [`Watch::goes_on`].
    pub(crate) fn goes_on(&self) {
        self.watch.goes_on();
    }

    /// Returns the server's state as an operator sees it.
    pub(crate) fn look(&self) -> Arc<Inspection> {
        self.inspector.look(HANG).expect("the server shows itself")
    }

    /// Returns a follower that gets the records of all requests from now on.
    pub(crate) fn follow(&self) -> Followed {
        let followed = self.inspector.follow(Selection::default(), 1000);
        self.look();
        followed
    }

    /// Returns the local path of a served file.
    pub(crate) fn local(&self, path: &str) -> PathBuf {
        self.directory.path().join("export").join(path)
    }

    /// Returns the directory that contains everything of this fixture.
    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the address at which it serves NFS clients.
    pub(crate) fn nfs(&self) -> SocketAddr {
        *self.nfs.first().expect("the server serves NFS clients")
    }

    /// Returns the address at which it serves NFS clients over RDMA.
    pub(crate) fn nfs_rdma(&self) -> Address {
        self.nfs_rdma.first().expect("the server serves NFS clients over RDMA").clone()
    }

    /// Returns all its addresses.
    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    pub(crate) fn address(&self, transport: Transport) -> Address {
        self.addresses[transport as usize].clone()
    }

    /// Connects a client with a session.
    pub(crate) fn connect(&self, transport: Transport) -> (Client, Session) {
        self.connect_with(transport, &SessionOptions::default())
    }

    pub(crate) fn connect_with(
        &self,
        transport: Transport,
        options: &SessionOptions,
    ) -> (Client, Session) {
        let client = Client::new(ClientConfig::default()).unwrap();
        let session = client.connect_to(&self.address(transport), options).unwrap();
        (client, session)
    }

    /// Stops the server and waits for its end.
    pub(crate) fn stop(mut self) -> (tempfile::TempDir, ServerStats) {
        self.stopper.stop();
        let stats = self.thread.take().unwrap().join().unwrap();
        let directory = std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap());
        (directory, stats)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap();
            }
        }
    }
}

/// Returns the journal of a server whose files are in this directory.
pub(crate) fn journal_in(directory: &Path) -> JournalConfig {
    let storage = DirectoryStorage::open(directory.join("journal")).unwrap();
    JournalConfig {
        storage: Arc::new(storage),
        log: LogConfig::default(),
        undo: UndoConfig::default(),
    }
}

/// Has a server serve NFS clients of this machine at a port; 0 is any free one. Returns the settings
/// for them.
pub(crate) fn serve_nfs(config: &mut ServerConfig, port: u16) -> &mut NfsConfig {
    config.access.nfs = NfsRules::for_all(Vec::new(), true);
    config.nfs.insert(NfsConfig::at(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))]))
}

/// Returns the number of reactors for servers: `DAFS_REACTORS`, or one.
pub(crate) fn reactors() -> usize {
    std::env::var("DAFS_REACTORS").map_or(1, |count| count.parse().expect("a number of reactors"))
}

/// Returns the identity of this process, to which the server maps remote clients.
pub(crate) fn me() -> dafs_types::Credentials {
    dafs_types::Credentials::plain(
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    )
    .unwrap()
}

/// Runs a case over every transport, each on a new server.
pub(crate) fn over_each(case: impl Fn(&Fixture, Transport)) {
    for transport in transports() {
        eprintln!("over {transport:?}");
        case(&Fixture::new(), transport);
    }
}

/// Does the same on servers with one reactor, which alone offer a channel for RDMA reads.
pub(crate) fn over_each_alone(case: impl Fn(&Fixture, Transport)) {
    for transport in transports() {
        eprintln!("over {transport:?}");
        case(&Fixture::with(|config| config.reactors = 1), transport);
    }
}

/// Returns bytes that differ from place to place.
pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    Random::new(seed).bytes(length)
}

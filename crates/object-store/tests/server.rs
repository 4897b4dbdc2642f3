//! A server in a process of its own, which tests kill and start again.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use dafs_dat::Address;
use dafs_journal::{DirectoryStorage, LogConfig, UndoConfig};
use dafs_object_store::{DafsStore, DafsStoreBuilder, Durability};
use dafs_server::{JournalConfig, Server, ServerConfig};
use dafs_store::local::{LocalConfig, LocalStore, Squash};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    SharedMemory,
    Tcp,
}

pub(crate) const TRANSPORTS: [Transport; 2] = [Transport::SharedMemory, Transport::Tcp];

pub(crate) struct Served {
    directory: tempfile::TempDir,
    port: u16,
    child: Child,
}

impl Served {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("export")).unwrap();
        let (child, port) = spawn_server(directory.path(), 0);
        Self { directory, port, child }
    }

    /// The served directory, as local processes see it.
    pub(crate) fn local(&self, path: &str) -> PathBuf {
        self.directory.path().join("export").join(path)
    }

    /// The port that it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a directory on it.
    pub(crate) fn url(&self, transport: Transport, path: &str) -> String {
        match transport {
            Transport::SharedMemory => {
                format!("dafs+shm://{}!{path}", socket(self.directory.path()).display())
            }
            Transport::Tcp => format!("dafs://127.0.0.1:{}{path}", self.port),
        }
    }

    pub(crate) fn builder(&self, transport: Transport, path: &str) -> DafsStoreBuilder {
        let builder = DafsStoreBuilder::from_url(&self.url(transport, path)).unwrap();
        let name = if transport == Transport::Tcp { "tcp" } else { "shm" };
        builder.with_option("transport", name).unwrap().with_created_root(true)
    }

    /// A store in a directory that is made. What it promises differs with its transport, so that
    /// both ways are tested.
    pub(crate) fn store(&self, transport: Transport, path: &str) -> DafsStore {
        let durability = match transport {
            Transport::SharedMemory => Durability::Server,
            Transport::Tcp => Durability::Disk,
        };
        self.builder(transport, path).with_durability(durability).build().unwrap()
    }

    /// Limits the length of each file that the server writes, as a full disk would.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) {
        use rustix::process::{Pid, Resource, Rlimit, prlimit};
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Pid::from_child(&self.child).into(), Resource::Fsize, limit).unwrap();
    }

    /// Kills it in the midst of whatever it does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, on what its former life has left.
    pub(crate) fn revive(&mut self) {
        self.child = spawn_server(self.directory.path(), self.port).0;
    }

    /// Temporary files in the served directory and below.
    pub(crate) fn temporary_files(&self) -> Vec<PathBuf> {
        let (mut waiting, mut found) = (vec![self.local("")], Vec::new());
        while let Some(directory) = waiting.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    waiting.push(path);
                } else if path.file_name().unwrap().to_string_lossy().starts_with(".dafs-object") {
                    found.push(path);
                }
            }
        }
        found
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("socket")
}

/// This test program once more, with one function of it as its only test. It ends with this
/// process, which holds its standard input. Returns the line that begins with `ready`, without
/// that.
pub(crate) fn spawn(test: &str, variables: &[(&str, String)]) -> (Child, String) {
    // A limit on the length of files is to fail writes, and not to end the process.
    let mut child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", test])
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.find_map(|line| Some(line.unwrap().split_once(READY)?.1.to_owned()));
    // What it says afterwards must not stop it.
    std::thread::spawn(move || lines.count());
    (child, said.expect("the process did not start"))
}

/// Tells the process that has spawned this one, and ends with it.
pub(crate) fn say_ready(what: &str) {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    println!("{READY}{what}");
}

fn spawn_server(directory: &Path, port: u16) -> (Child, u16) {
    let variables = [(DIRECTORY, directory.display().to_string()), (PORT, port.to_string())];
    let (child, said) = spawn("server::a_server_for_another_process", &variables);
    (child, said.parse().unwrap())
}

const READY: &str = "ready:";
const DIRECTORY: &str = "DAFS_TEST_SERVER_DIRECTORY";
const PORT: &str = "DAFS_TEST_SERVER_PORT";

/// No test: the server that others start in a process of its own.
#[test]
fn a_server_for_another_process() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let port: u16 = std::env::var(PORT).unwrap().parse().unwrap();
    let config = LocalConfig::new(directory.join("export"), directory.join("state"));
    let store = LocalStore::new(&config).unwrap();
    let tcp = Address::Tcp(([127, 0, 0, 1], port).into());
    let listen = vec![Address::Shm(socket(&directory)), tcp];
    let mut config = ServerConfig { listen, ..ServerConfig::default() };
    config.cache.arena_bytes = 64 << 20;
    config.cache.dirty_bytes_max = 16 << 20;
    config.access.squash = Some(Squash::Nobody);
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    config.sessions.authentication.anonymous =
        Some(dafs_types::Credentials::plain(uid, gid).unwrap());
    config.journal = Some(JournalConfig {
        storage: Arc::new(DirectoryStorage::open(directory.join("journal")).unwrap()),
        log: LogConfig::default(),
        undo: UndoConfig::default(),
    });
    let server = Server::new(&config, Arc::new(store)).unwrap();
    let port = server.addresses().iter().find_map(|address| match address {
        Address::Tcp(address) => Some(address.port()),
        _ => None,
    });
    say_ready(&port.unwrap().to_string());
    server.run().unwrap();
}

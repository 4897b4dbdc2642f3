//! Real servers, and C programs that are compiled, linked to the library and run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Once, OnceLock};
use std::thread::JoinHandle;

use dafs_dat::Address;
use dafs_journal::{DirectoryStorage, LogConfig, UndoConfig};
use dafs_server::{
    JournalConfig, LedgerError, PasswordFile, Server, ServerConfig, ServerStats, Stopper,
};
use dafs_store::local::{LocalConfig, LocalStore, Squash};
use dafs_store::memory::{MemoryLimits, MemoryStore};
use dafs_tests::Required;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    SharedMemory,
    Tcp,
}

pub(crate) const TRANSPORTS: [Transport; 2] = [Transport::SharedMemory, Transport::Tcp];

/// A server of this test, with a journal, in a thread.
pub(crate) struct Served {
    pub url: String,
    address: Address,
    place: tempfile::TempDir,
    /// The size of a memory store that replaces the directory.
    memory: Option<u64>,
    running: Option<(Stopper, JoinHandle<Result<ServerStats, LedgerError>>)>,
}

impl Served {
    pub(crate) fn start(transport: Transport) -> Self {
        Self::with(transport, None)
    }

    /// Starts a server with a memory store of this size.
    pub(crate) fn of_memory(transport: Transport, bytes: u64) -> Self {
        Self::with(transport, Some(bytes))
    }

    fn with(transport: Transport, memory: Option<u64>) -> Self {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("export")).unwrap();
        let socket = place.path().join("socket");
        let address = match transport {
            Transport::Tcp => Address::Tcp("127.0.0.1:0".parse().unwrap()),
            Transport::SharedMemory => Address::Shm(socket.clone()),
        };
        let mut served = Self { url: String::new(), address, place, memory, running: None };
        served.run();
        served.url = match &served.address {
            Address::Tcp(address) => format!("dafs://{address}/"),
            _ => format!("dafs+shm://{}!/", socket.display()),
        };
        served
    }

    /// Returns the local path of a served file.
    pub(crate) fn local(&self, path: &str) -> PathBuf {
        self.place.path().join("export").join(path)
    }

    /// Stops the server, so that every session loses its connection.
    pub(crate) fn stop(&mut self) {
        let Some((stopper, thread)) = self.running.take() else { return };
        stopper.stop();
        thread.join().unwrap().unwrap();
    }

    /// Starts a server at the same address for the same directory.
    pub(crate) fn run(&mut self) {
        let path = |name| self.place.path().join(name);
        let store: Arc<dyn dafs_store::Store> = match self.memory {
            Some(bytes_max) => {
                let limits = MemoryLimits { bytes_max, object_count_max: 100 };
                let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
                Arc::new(MemoryStore::owned_by(limits, uid.as_raw(), gid.as_raw()))
            }
            None => {
                Arc::new(LocalStore::new(&LocalConfig::new(path("export"), path("state"))).unwrap())
            }
        };
        let mut config =
            ServerConfig { listen: vec![self.address.clone()], ..ServerConfig::default() };
        config.cache.arena_bytes = 64 << 20;
        config.cache.dirty_bytes_max = 16 << 20;
        config.access.squash = Some(Squash::Nobody);
        let me = dafs_types::Credentials::plain(
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        )
        .unwrap();
        let mut passwords = PasswordFile::default();
        passwords.set("ann", me.clone(), "ann's secret").unwrap();
        passwords.save(&path("passwords")).unwrap();
        config.password_file = Some(path("passwords"));
        config.sessions.authentication.anonymous = Some(me);
        config.journal = Some(JournalConfig {
            storage: Arc::new(DirectoryStorage::open(path("journal")).unwrap()),
            log: LogConfig::default(),
            undo: UndoConfig::default(),
        });
        let server = Server::new(&config, store).unwrap();
        self.address = server.addresses()[0].clone();
        let stopper = server.stopper();
        self.running = Some((stopper, std::thread::spawn(move || server.run())));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some((stopper, thread)) = self.running.take() {
            stopper.stop();
            let _ = thread.join();
        }
    }
}

pub(crate) fn crate_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

pub(crate) fn repository(name: &str) -> PathBuf {
    crate_path("../..").canonicalize().unwrap().join(name)
}

/// Returns the library's archive, which is next to this test. Cargo rebuilds it with every change,
/// so the newest one matches the source.
pub(crate) fn archive() -> PathBuf {
    // Refer to the crate so that it is linked and built.
    let _ = dafs::dap_version();
    let program = std::env::current_exe().unwrap();
    let beside = std::fs::read_dir(program.parent().unwrap()).unwrap();
    let archives = beside.map(|entry| entry.unwrap()).filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("libdafs-") && name.ends_with(".a")
    });
    let newest = archives.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap());
    newest.expect("the archive is made with the tests").path()
}

/// Returns a directory with the library, for linking programs.
pub(crate) fn library() -> &'static Path {
    static PLACE: OnceLock<tempfile::TempDir> = OnceLock::new();
    static GOES: Once = Once::new();
    let place = PLACE.get_or_init(|| {
        let place = tempfile::tempdir().unwrap();
        let output = place.path().join("libdafs.so.0");
        succeed(Command::new(crate_path("link")).arg(archive()).arg(&output));
        std::os::unix::fs::symlink("libdafs.so.0", place.path().join("libdafs.so")).unwrap();
        place
    });
    // Statics are not dropped, so remove it at exit.
    GOES.call_once(|| {
        extern "C" fn leave() {
            if let Some(place) = PLACE.get() {
                let _ = std::fs::remove_dir_all(place.path());
            }
        }
        // SAFETY: the function exists as long as the program.
        unsafe { libc::atexit(leave) };
    });
    place.path()
}

/// Runs a command that must succeed without output on standard error.
pub(crate) fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{command:?}: {}\n{said}{text}", output.status);
    output
}

/// Compiles an example of the crate, or a source of a test.
pub(crate) fn compile(source: &Path, place: &Path) -> PathBuf {
    let program = place.join(source.file_stem().unwrap());
    let is_cpp = source.extension() == Some(OsStr::new("cpp"));
    let (compiler, standard) = if is_cpp { ("c++", "-std=c++17") } else { ("cc", "-std=c11") };
    let mut command = Command::new(compiler);
    command.arg(standard).args(STRICT).arg("-I").arg(repository("include"));
    command.arg("-o").arg(&program).arg(source).arg("-L").arg(library()).arg("-ldafs");
    command.arg("-pthread").arg(format!("-Wl,-rpath,{}", library().display()));
    let output = succeed(&mut command);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// The compiler options for programs.
pub(crate) const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-g"];

/// True if a tool is available. Where tests must not be skipped, it must be.
pub(crate) fn has(tool: &str) -> bool {
    let version = Command::new(tool).arg("--version").stdout(Stdio::null()).status();
    let is_there = version.is_ok_and(|status| status.success());
    if !is_there {
        Required::Faces.skip(format_args!("there is no {tool}"));
    }
    is_there
}

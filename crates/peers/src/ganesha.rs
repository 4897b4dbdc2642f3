//! A private nfs-ganesha server, in a network namespace of its own.
//!
//! Invariant: the server, and the port mapper that it requires, run in their own network, mount and
//! process namespaces. They end when the value that started them is dropped or when this process
//! ends for any reason: both close the standard input that the namespace's first process reads.
//!
//! The server is used over NFSv3, because libnfs 4.0 cannot write 4 KiB in one request over NFSv4.
//! NFSv3 requires a port mapper, which would serve the whole host; hence the namespaces. Their
//! network is a loopback interface, like the one between local processes.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;

use crate::PeerError;
use crate::calls::Mount;
use crate::library::Library;
use crate::nfs::Nfs;

/// A running server, which exports one directory as [`Ganesha::EXPORT`].
pub struct Ganesha {
    child: Child,
    directory: TempDir,
    entrance: Entrance,
}

/// Access to a server's network namespace, for other programs and threads.
#[derive(Clone, Debug)]
pub struct Entrance {
    /// A process in the namespace, by its process id on the host.
    process: u32,
}

impl Ganesha {
    /// The path at which NFS clients find the directory.
    pub const EXPORT: &str = "/export";

    /// Starts a server for `export`, and returns when a client can mount it.
    ///
    /// # Errors
    /// [`PeerError::Missing`] if the host lacks the server or libnfs, or the user is not root;
    /// other errors if the start fails.
    pub fn start(export: &Path) -> Result<Self, PeerError> {
        Self::find()?;
        let export = export
            .canonicalize()
            .map_err(PeerError::host(format!("resolving {}", export.display())))?;
        check(&export)?;
        let directory = tempfile::Builder::new()
            .prefix("dafs-ganesha-")
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir()
            .map_err(PeerError::host("making a directory for nfs-ganesha"))?;
        let write = |name: &str, text: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).map_err(PeerError::host(format!("writing {name}")))
        };
        write("ganesha.conf", configuration(&export, directory.path()))?;
        let child = Command::new("unshare")
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", SCRIPT])
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C in a terminal does not reach this process group. The server is shut down by
            // Drop or by the end of its input.
            .process_group(0)
            .spawn()
            .map_err(PeerError::host("starting unshare"))?;
        let mut server = Self { child, directory, entrance: Entrance { process: 0 } };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Checks that the programs and the library that [`Ganesha::start`] needs are installed.
    ///
    /// # Errors
    /// [`PeerError::Missing`], which names what to install.
    pub fn find() -> Result<(), PeerError> {
        let missing = |what: String, remedy| Err(PeerError::Missing { what, remedy });
        for (program, remedy) in PROGRAMS {
            let is_there = PLACES.iter().any(|place| Path::new(place).join(program).exists());
            if !is_there {
                return missing(format!("{program} is missing"), remedy);
            }
        }
        if !rustix::process::geteuid().is_root() {
            let what = "its VFS module opens files by handle, which needs root".to_owned();
            return missing(what, "run as root");
        }
        Library::load().map(drop)
    }

    /// Mounts the export with libnfs. A temporary thread enters the server's network and makes the
    /// connection; any thread may use it afterwards.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn mount(&self) -> Result<Nfs, PeerError> {
        self.entrance.mount()
    }

    /// Returns access to the server's network namespace.
    #[must_use]
    pub fn entrance(&self) -> &Entrance {
        &self.entrance
    }

    /// Returns the URL of a file for programs that use libnfs (`nfs-cat`, `nfs-cp`), in the network
    /// in which [`Entrance::command`] starts them.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        let (export, path) = (Self::EXPORT, path.trim_start_matches('/'));
        format!(
            "nfs://127.0.0.1{export}/{path}?version=3&nfsport={NFS_PORT}&mountport={MOUNT_PORT}"
        )
    }

    /// Returns the processor time that the server has used, in user and system mode.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn cpu(&self) -> Result<Duration, PeerError> {
        let process = self.server_process()?;
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))
            .map_err(PeerError::host("reading nfs-ganesha's processor time"))?;
        // The name in parentheses may contain any character. Field 3 follows it.
        let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let ticks: u64 = rest
            .split(' ')
            .skip(FIELDS_BEFORE_TIMES)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_micros(ticks * 1_000_000 / per_second))
    }

    /// Returns the server's process id on the host.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn server_process(&self) -> Result<u32, PeerError> {
        for child in children(self.entrance.process) {
            let name = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
            if name.trim() == "ganesha.nfsd" {
                return Ok(child);
            }
        }
        Err(self.not_ready())
    }

    fn wait_until_ready(&mut self) -> Result<(), PeerError> {
        let begin = Instant::now();
        while begin.elapsed() < READY_MAX {
            let ended = self.child.try_wait().map_err(PeerError::host("watching nfs-ganesha"))?;
            if ended.is_some() {
                break;
            }
            if let Some(&process) = children(self.child.id()).first() {
                self.entrance.process = process;
                if self.log().contains("NFS SERVER INITIALIZED") && self.mount().is_ok() {
                    return Ok(());
                }
            }
            std::thread::sleep(READY_STEP);
        }
        Err(self.not_ready())
    }

    fn not_ready(&self) -> PeerError {
        let log = self.log();
        let lines: Vec<&str> = log.lines().rev().take(LOG_LINES).collect();
        let log = lines.into_iter().rev().collect::<Vec<_>>().join("\n");
        PeerError::NotReady { seconds: READY_MAX.as_secs(), log }
    }

    fn log(&self) -> String {
        let bytes = std::fs::read(self.directory.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        // The first process of the namespace ends with its input, and all others end with it.
        self.child.stdin.take();
        // If the wait fails, there is nothing else to do.
        let _ = self.child.wait();
    }
}

impl Entrance {
    /// Returns access to the network namespace of a process, for use in another process.
    #[must_use]
    pub fn of(process: u32) -> Self {
        Self { process }
    }

    /// Returns a process in the server's network, for [`Entrance::of`].
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Mounts the export, like [`Ganesha::mount`].
    ///
    /// # Errors
    /// If the server refuses, or has ended.
    pub fn mount(&self) -> Result<Nfs, PeerError> {
        let path = self.path();
        let inside = std::fs::File::open(&path).map_err(PeerError::host(path))?;
        let connect = move || {
            move_into_link_name_space(
                rustix::fd::AsFd::as_fd(&inside),
                Some(LinkNameSpaceType::Network),
            )
            .map_err(|error| PeerError::host("entering nfs-ganesha's network")(error.into()))?;
            Mount::new(c"127.0.0.1", Ganesha::EXPORT, NFS_PORT, MOUNT_PORT)
        };
        let thread = std::thread::Builder::new()
            .name("nfs-mount".to_owned())
            .spawn(connect)
            .map_err(PeerError::host("starting a thread"))?;
        let mount = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Nfs::new(mount))
    }

    /// Makes a command that runs a program in the server's network, with everything else unchanged.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg("--").arg(program);
        command
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.process)
    }
}

/// Checks that a directory can be named in the configuration, and that no mount of the script hides
/// it.
fn check(export: &Path) -> Result<(), PeerError> {
    let refuse = |why| Err(PeerError::Export { path: PathBuf::from(export), why });
    match export.to_str() {
        None => refuse("its path is not UTF-8"),
        Some(path) if path.contains(['"', '\n']) => refuse("its path has a quote or a newline"),
        Some(path) if path == "/run" || path.starts_with("/run/") => {
            refuse("it is under /run, which is private to the server")
        }
        Some(_) => Ok(()),
    }
}

fn configuration(export: &Path, directory: &Path) -> String {
    let (export, directory, pseudo) = (export.display(), directory.display(), Ganesha::EXPORT);
    format!(
        r#"NFS_CORE_PARAM {{
  Protocols = 3; NFS_Port = {NFS_PORT}; MNT_Port = {MOUNT_PORT};
  Enable_NLM = false; Enable_RQUOTA = false; mount_path_pseudo = true;
}}
NFSV4 {{ Graceless = true; RecoveryRoot = "{directory}"; }}
NFS_KRB5 {{ Active_krb5 = false; }}
EXPORT {{
  Export_Id = 1; Path = "{export}"; Pseudo = "{pseudo}"; Protocols = 3; Transports = TCP;
  Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
  FSAL {{ Name = VFS; }}
}}
LOG {{ Default_Log_Level = EVENT; }}
"#
    )
}

/// Returns the children of a process.
fn children(process: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let text = text.unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// The shell script of the namespace's first process. Its argument is the directory for the
/// server's files. The port mapper and the server put their sockets into `/run`, which belongs to
/// the namespace. The script removes the directory when it ends, because the process that started
/// it may have ended before.
const SCRIPT: &str = r#"
ip link set lo up && mount -t tmpfs none /run && mkdir /run/ganesha || exit 1
PATH="$PATH:/usr/sbin:/sbin"
rpcbind -f &
tries=0
while [ ! -S /run/rpcbind.sock ] && [ $tries -lt 100 ]; do tries=$((tries + 1)); sleep 0.05; done
ganesha.nfsd -F -f "$0/ganesha.conf" -L "$0/log" -p "$0/pid" <&- &
read -r rest
kill -9 -1
rm -rf "$0"
"#;

/// The programs that are needed, and the packages that contain them.
const PROGRAMS: [(&str, &str); 5] = [
    ("ganesha.nfsd", "install the packages nfs-ganesha and nfs-ganesha-vfs"),
    ("rpcbind", "install the package rpcbind"),
    ("unshare", "install the package util-linux"),
    ("nsenter", "install the package util-linux"),
    ("ip", "install the package iproute2"),
];
const PLACES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];

/// The port of the NFS service. Ports belong to the namespace and so are always free.
const NFS_PORT: u16 = 2049;
/// The port of the mount service in the same namespace.
const MOUNT_PORT: u16 = 20048;

const READY_MAX: Duration = Duration::from_secs(20);
const READY_STEP: Duration = Duration::from_millis(20);
const LOG_LINES: usize = 12;
/// The number of fields of `/proc/PID/stat` between the name and the two times.
const FIELDS_BEFORE_TIMES: usize = 11;

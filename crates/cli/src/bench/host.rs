//! Provides the servers, mounts, programs and processor times that the application benchmarks
//! need.
//!
//! Invariant: everything that a benchmark starts ends when its value is dropped, and when this
//! process ends for any reason (see `keeper`).

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dafs_bench::Ganesha;
use dafs_client::SessionOptions;
use dafs_dat::Address;
use nix::sys::resource::{UsageWho, getrusage};

use crate::child_server::{ANY_PORT, ChildServer, Pass};
use crate::cleanup::{self, Scratch};
use crate::unauthenticated::OWN_USER;

/// A directory and a server that exports it to all contestants.
pub(super) struct Host {
    served: ChildServer,
    /// The exported directory. The field is declared after `served`, so that the server ends before
    /// the directory is removed.
    scratch: Scratch,
    pass: Pass,
    pub program: PathBuf,
}

impl Host {
    /// Makes a new directory beneath `place`, or in the directory for temporary files, and starts a
    /// server for it.
    pub(super) fn start(place: Option<&Path>, more: &[&str]) -> Result<Self> {
        let scratch = Scratch::new("dafs-bench-", place)?;
        let program = std::env::current_exe().context("finding this program")?;
        let exported = scratch.path().join("export");
        std::fs::create_dir(&exported)?;
        let pass = Pass::new()?;
        pass.keep(&scratch.path().join(PASSWORD))?;
        let served = ChildServer::start_at(ANY_PORT, 1, scratch.path(), &[exported], more, &pass)?;
        Ok(Self { served, scratch, pass, program })
    }

    /// Returns the local path of the exported directory.
    pub(super) fn exported(&self) -> PathBuf {
        self.scratch.path().join("export")
    }

    /// Makes a directory for other files, next to the exported one.
    pub(super) fn beside(&self, name: &str) -> Result<PathBuf> {
        let path = self.scratch.path().join(name);
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// Returns the options for a session with the server.
    pub(super) fn options(&self) -> SessionOptions {
        self.pass.options()
    }

    /// Returns a command that runs `dafs` with these arguments over the given transport.
    pub(super) fn dafs_by(&self, transport: &str, arguments: &[&str]) -> Command {
        let mut command = self.dafs(arguments);
        command.args(["--transport", transport]);
        if transport == "tcp" {
            command.arg("--password-from").arg(self.scratch.path().join(PASSWORD));
        }
        command
    }

    /// Returns the server's address for a transport.
    pub(super) fn address(&self, transport: &str) -> Result<&Address> {
        let mut addresses = self.served.addresses.iter();
        let found = addresses.find(|address| match address {
            Address::Shm(_) => transport == "shm",
            Address::Tcp(_) => transport == "tcp",
            _ => false,
        });
        found.with_context(|| format!("the server has no {transport}"))
    }

    /// Returns the URL of a path for a transport, and adds the options that the transport needs.
    pub(super) fn url(&self, transport: &str, path: &str) -> Result<String> {
        Ok(match self.address(transport)? {
            Address::Shm(socket) => format!("dafs+shm://{}!/{path}", socket.display()),
            Address::Tcp(socket) => format!("dafs://{OWN_USER}@{socket}/{path}"),
            other => bail!("{other} is not measured"),
        })
    }

    /// Returns the path of the server's socket for shared memory.
    pub(super) fn socket(&self) -> Result<PathBuf> {
        match self.address("shm")? {
            Address::Shm(socket) => Ok(socket.clone()),
            other => bail!("{other} is no socket"),
        }
    }

    /// Returns the id of the server's process.
    pub(super) fn server_process(&self) -> u32 {
        self.served.process()
    }

    pub(super) fn server_cpu(&self) -> Duration {
        dafs_bench::process_cpu(self.served.process()).unwrap_or_default()
    }

    /// Returns a command that runs `dafs` with these arguments.
    pub(super) fn dafs(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        command
    }

    /// Mounts the exported directory through the kernel. Returns `None` and prints the reason if
    /// mounting is not possible.
    pub(super) fn mount(&self) -> Result<Option<Mounted>> {
        if !Path::new("/dev/fuse").exists() {
            println!("there is no /dev/fuse: skipping the measurements through the mount");
            return Ok(None);
        }
        let directory = self.beside("mount")?;
        let mut command = self.dafs(&["mount", "--foreground", &self.url("shm", "")?]);
        command.arg(&directory).stdin(Stdio::null()).stdout(Stdio::piped());
        cleanup::join(&mut command);
        cleanup::mounting(&directory)?;
        let mut child = command.spawn().context("mounting")?;
        let mut line = String::new();
        let output = child.stdout.take().context("the mount has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let mounted = Mounted { child, directory, program: self.program.clone() };
        if line.is_empty() {
            println!("mounting is not possible here: skipping the measurements through the mount");
            return Ok(None);
        }
        Ok(Some(mounted))
    }
}

/// The name of the password file. The file is in a directory that no other user can enter.
const PASSWORD: &str = "password";

/// A mount of the exported directory. Dropping the value unmounts it.
pub(super) struct Mounted {
    child: Child,
    pub directory: PathBuf,
    program: PathBuf,
}

impl Mounted {
    pub(super) fn cpu(&self) -> Duration {
        dafs_bench::process_cpu(self.child.id()).unwrap_or_default()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // If the unmount fails, killing the process that serves the mount still ends the mount.
        let _ = Command::new(&self.program).arg("unmount").arg(&self.directory).status();
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Starts nfs-ganesha for a directory. Returns `None` and prints the reason if nfs-ganesha cannot
/// be started.
pub(super) fn ganesha(directory: &Path) -> Result<Option<Ganesha>> {
    match Ganesha::start(directory) {
        Ok(server) => Ok(Some(server)),
        Err(error) if error.is_missing() => {
            println!("{error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The processor time of the child processes that ended during a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub wall: Duration,
    /// The processor time in user space and in the kernel.
    pub cpu: Duration,
    /// The processor time in user space, which is included in `cpu`.
    pub user: Duration,
}

/// Runs `work`, which starts processes and waits for them. Returns the processor time of these
/// processes.
pub(super) fn cost(work: impl FnOnce() -> Result<()>) -> Result<Cost> {
    let before = children()?;
    let begin = Instant::now();
    work()?;
    let wall = begin.elapsed();
    let after = children()?;
    let (user, system) = (after.0 - before.0, after.1 - before.1);
    Ok(Cost { wall, cpu: user + system, user })
}

fn children() -> Result<(Duration, Duration)> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let time = |time: nix::sys::time::TimeVal| {
        Duration::from_secs(time.tv_sec().unsigned_abs())
            + Duration::from_micros(time.tv_usec().unsigned_abs())
    };
    Ok((time(usage.user_time()), time(usage.system_time())))
}

/// Starts all commands and waits for all of them. Returns for each command the time from the start
/// of the first command to the end of this command.
pub(super) fn together(commands: Vec<Command>) -> Result<Vec<Duration>> {
    let begin = Instant::now();
    let children: Vec<Child> = commands
        .into_iter()
        .map(|mut command| {
            cleanup::join(&mut command);
            command.spawn().with_context(|| format!("starting {command:?}"))
        })
        .collect::<Result<_>>()?;
    let wait = |mut child: Child| (child.wait(), begin.elapsed());
    let ended: Vec<_> = std::thread::scope(|scope| {
        let waiting: Vec<_> =
            children.into_iter().map(|child| scope.spawn(move || wait(child))).collect();
        waiting.into_iter().map(|waiting| waiting.join()).collect()
    });
    let mut ends = Vec::new();
    for ended in ended {
        let Ok((status, end)) = ended else { bail!("a thread that waited for a process panicked") };
        ended_well("a process", status?)?;
        ends.push(end);
    }
    Ok(ends)
}

/// True if the program is in `PATH`.
pub(super) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Runs a command with `input` as its standard input and with its output discarded.
pub(super) fn with_input(mut command: Command, input: &str) -> Result<()> {
    cleanup::join(&mut command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let mut stdin = child.stdin.take().context("a child without standard input")?;
    stdin.write_all(input.as_bytes())?;
    drop(stdin);
    ended_well(&format!("{command:?}"), child.wait()?)
}

/// Returns an error that names the program and its exit status, unless the status is success.
pub(super) fn ended_well(who: &str, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("{who} ended with {status}");
    }
    Ok(())
}

/// Returns the median of the values.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

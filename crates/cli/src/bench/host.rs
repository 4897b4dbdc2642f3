//! What the applications' benchmarks need of the host: servers, mounts, programs and their
//! processor time.
//!
//! Invariant: everything that is started ends with its value, and with this process, however that
//! ends (see `keeper`).

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dafs_bench::Ganesha;
use dafs_client::SessionOptions;
use dafs_dat::Address;
use nix::sys::resource::{UsageWho, getrusage};

use crate::keeper::{self, Scratch};
use crate::served::{ANY_PORT, Pass, Served};
use crate::strangers::OWN_USER;

/// A directory that is served to everybody who is measured.
pub struct Host {
    served: Served,
    /// It goes behind the server.
    scratch: Scratch,
    pass: Pass,
    pub program: PathBuf,
}

impl Host {
    /// A new directory beneath `place`, or where temporary files go, and a server of it.
    pub fn start(place: Option<&Path>, more: &[&str]) -> Result<Self> {
        let scratch = Scratch::new("dafs-bench-", place)?;
        let program = std::env::current_exe().context("finding this program")?;
        let exported = scratch.path().join("export");
        std::fs::create_dir(&exported)?;
        let pass = Pass::new()?;
        pass.keep(&scratch.path().join(PASSWORD))?;
        let served = Served::start_at(ANY_PORT, 1, scratch.path(), &[exported], more, &pass)?;
        Ok(Self { served, scratch, pass, program })
    }

    /// The directory, as it is on this host.
    pub fn exported(&self) -> PathBuf {
        self.scratch.path().join("export")
    }

    /// A directory beside it for other things.
    pub fn beside(&self, name: &str) -> Result<PathBuf> {
        let path = self.scratch.path().join(name);
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// What a session with the server begins with.
    pub fn options(&self) -> SessionOptions {
        self.pass.options()
    }

    /// A command of this program that works on files by a transport.
    pub fn dafs_by(&self, transport: &str, arguments: &[&str]) -> Command {
        let mut command = self.dafs(arguments);
        command.args(["--transport", transport]);
        if transport == "tcp" {
            command.arg("--password-from").arg(self.scratch.path().join(PASSWORD));
        }
        command
    }

    /// Where the server listens.
    pub fn address(&self, transport: &str) -> Result<&Address> {
        let mut addresses = self.served.addresses.iter();
        let found = addresses.find(|address| match address {
            Address::Shm(_) => transport == "shm",
            Address::Tcp(_) => transport == "tcp",
            _ => false,
        });
        found.with_context(|| format!("the server has no {transport}"))
    }

    /// The URL of a path, and what else a command is told to go by a transport.
    pub fn url(&self, transport: &str, path: &str) -> Result<String> {
        Ok(match self.address(transport)? {
            Address::Shm(socket) => format!("dafs+shm://{}!/{path}", socket.display()),
            Address::Tcp(socket) => format!("dafs://{OWN_USER}@{socket}/{path}"),
            other => bail!("{other} is not measured"),
        })
    }

    /// The server's socket for shared memory.
    pub fn socket(&self) -> Result<PathBuf> {
        match self.address("shm")? {
            Address::Shm(socket) => Ok(socket.clone()),
            other => bail!("{other} is no socket"),
        }
    }

    /// The server's process.
    pub fn server_process(&self) -> u32 {
        self.served.process()
    }

    pub fn server_cpu(&self) -> Duration {
        dafs_bench::process_cpu(self.served.process()).unwrap_or_default()
    }

    /// A command of this program.
    pub fn dafs(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        command
    }

    /// The directory through the kernel; `None`, and why, where nothing can be mounted.
    pub fn mount(&self) -> Result<Option<Mounted>> {
        if !Path::new("/dev/fuse").exists() {
            println!("there is no /dev/fuse: nothing through the mount");
            return Ok(None);
        }
        let directory = self.beside("mount")?;
        let mut command = self.dafs(&["mount", "--foreground", &self.url("shm", "")?]);
        command.arg(&directory).stdin(Stdio::null()).stdout(Stdio::piped());
        keeper::join(&mut command);
        keeper::mounting(&directory)?;
        let mut child = command.spawn().context("mounting")?;
        let mut line = String::new();
        let output = child.stdout.take().context("the mount has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let mounted = Mounted { child, directory, program: self.program.clone() };
        if line.is_empty() {
            println!("nothing can be mounted here: nothing through the mount");
            return Ok(None);
        }
        Ok(Some(mounted))
    }
}

/// The file with the password, in a directory that nobody else can enter.
const PASSWORD: &str = "password";

/// A mount that goes with its value.
pub struct Mounted {
    child: Child,
    pub directory: PathBuf,
    program: PathBuf,
}

impl Mounted {
    pub fn cpu(&self) -> Duration {
        dafs_bench::process_cpu(self.child.id()).unwrap_or_default()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // If it cannot be unmounted, the process that serves it can still be ended.
        let _ = Command::new(&self.program).arg("unmount").arg(&self.directory).status();
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// An nfs-ganesha of a directory, or none and why.
pub fn ganesha(directory: &Path) -> Result<Option<Ganesha>> {
    match Ganesha::start(directory) {
        Ok(server) => Ok(Some(server)),
        Err(error) if error.is_missing() => {
            println!("{error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// What a run has cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub wall: Duration,
    /// Of the processes that were started and have ended.
    pub cpu: Duration,
    /// The part of it that they spent as themselves, not in the kernel.
    pub user: Duration,
}

/// Runs something that starts processes and waits for them.
pub fn cost(work: impl FnOnce() -> Result<()>) -> Result<Cost> {
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

/// Starts all and waits for all. When each has ended, from the start of the first on.
pub fn together(commands: Vec<Command>) -> Result<Vec<Duration>> {
    let begin = Instant::now();
    let children: Vec<Child> = commands
        .into_iter()
        .map(|mut command| {
            keeper::join(&mut command);
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
        let Ok((status, end)) = ended else { bail!("waiting for a process has panicked") };
        ended_well("a process", status?)?;
        ends.push(end);
    }
    Ok(ends)
}

/// Whether a program can be run.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Runs a command with this as its input, and without its output.
pub fn with_input(mut command: Command, input: &str) -> Result<()> {
    keeper::join(&mut command);
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

/// Fails with what a process has ended with, if that is no success.
pub fn ended_well(who: &str, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("{who} has ended with {status}");
    }
    Ok(())
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

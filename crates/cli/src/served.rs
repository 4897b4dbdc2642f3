//! A server of our own in a process of its own, for demonstrations, measurements and tests.
//!
//! Invariant: the server ends with the value, and with this process however it ends:
//! it holds the other end of a pipe that closes then. Over TCP it lets in nobody but who has the
//! pass, which chance has made, and which goes to it through that pipe.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use dafs_client::{Login, SessionOptions};
use dafs_dat::Address;

use crate::strangers::OWN_USER;

/// What lets this process in at servers of its own, and nobody else.
#[derive(Clone)]
pub struct Pass {
    password: String,
}

impl Pass {
    /// A new one.
    pub fn new() -> Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).context("asking the system for random bytes")?;
        Ok(Self { password: bytes.iter().map(|byte| format!("{byte:02x}")).collect() })
    }

    /// The one that another process of this program's was told by `write`.
    pub fn told(password: String) -> Self {
        Self { password }
    }

    /// Tells it to a process that reads a line at its start.
    pub fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "{}", self.password)
    }

    /// What a session begins with.
    pub fn options(&self) -> SessionOptions {
        let (user, password) = (OWN_USER.to_owned(), self.password.clone());
        SessionOptions { login: Login::Password { user, password }, ..SessionOptions::default() }
    }

    /// Writes it into a file that this user alone can read, for commands that are told of it by
    /// `--password-from`.
    pub fn keep(&self, path: &Path) -> Result<()> {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options.open(path).and_then(|mut file| self.write(&mut file));
        written.with_context(|| format!("writing {}", path.display()))
    }
}

/// A running `dafs serve`.
pub struct Served {
    child: Child,
    /// Closing it stops the server.
    stdin: Option<ChildStdin>,
    /// Kept open: what the server prints has somewhere to go.
    _stdout: BufReader<ChildStdout>,
    pub addresses: Vec<Address>,
}

impl Served {
    /// Starts `dafs serve` at any port of this machine and waits until it is ready.
    pub fn start(scratch: &Path, exports: &[impl AsRef<OsStr>], pass: &Pass) -> Result<Self> {
        let no_more: &[&str] = &[];
        Self::start_at(ANY_PORT, 1, scratch, exports, no_more, pass)
    }

    /// The same at this port, with so many reactors and more of the options of `dafs serve`.
    ///
    /// A server that nobody has asked for several reactors has one, whatever the default of
    /// `dafs serve` is: it shares the cores with the clients that it is there for.
    pub fn start_at(
        tcp: SocketAddr,
        reactors: usize,
        scratch: &Path,
        exports: &[impl AsRef<OsStr>],
        more: &[impl AsRef<OsStr>],
        pass: &Pass,
    ) -> Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command
            .arg("serve")
            .args(exports)
            .args(["--while-stdin", "--tcp", &tcp.to_string()])
            .args(["--reactors", &reactors.to_string()])
            .arg("--socket")
            .arg(scratch.join("socket"))
            .arg("--state")
            .arg(scratch.join("state"))
            .args(["--no-anonymous", "--one-time-password", "--squash", "none"])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        crate::keeper::join(&mut command);
        let mut child = command.spawn().context("starting the server")?;
        let mut stdin = child.stdin.take().context("the server has no standard input")?;
        // A server that has ended already says why itself.
        let _ = pass.write(&mut stdin);
        let stdin = Some(stdin);
        let stdout = child.stdout.take().context("the server has no standard output")?;
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        stdout.read_line(&mut line).context("waiting for the server")?;
        let mut served = Self { child, stdin, _stdout: stdout, addresses: Vec::new() };
        let Some(list) = line.trim().strip_prefix("ready: ") else {
            bail!("the server did not start; see its message above");
        };
        served.addresses = list.split(' ').filter_map(address).collect();
        // Shared memory first: it is what a local client would use.
        served.addresses.sort_by_key(|address| !matches!(address, Address::Shm(_)));
        Ok(served)
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and the end of the process.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill().context("killing the server")?;
        self.child.wait().context("waiting for the server's end")?;
        Ok(())
    }

    /// An end in order, which the server must say it was.
    pub fn stop(mut self) -> Result<()> {
        self.stdin.take();
        let status = self.child.wait().context("waiting for the server's end")?;
        if !status.success() {
            bail!("the server has ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stdin.take();
        // Without an answer there is nothing left to do.
        let _ = self.child.wait();
    }
}

/// A port of this host's own interface, which the system chooses.
pub const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// An address as `dafs serve` prints it.
pub fn address(text: &str) -> Option<Address> {
    match text.split_once(':')? {
        ("tcp", socket) => Some(Address::Tcp(socket.parse().ok()?)),
        ("verbs", socket) => Some(Address::Verbs(socket.parse().ok()?)),
        ("shm", path) => Some(Address::Shm(path.into())),
        _ => None,
    }
}

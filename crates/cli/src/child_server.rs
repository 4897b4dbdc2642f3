//! Starts a server in a separate process, for demonstrations, measurements and tests.
//!
//! Invariant: the server ends when the value is dropped, and when this process ends for any reason,
//! because either closes the pipe to the server's standard input. Over TCP the server admits only
//! clients that log in with the pass, a random password that the server reads from that pipe.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use dafs_client::{Login, SessionOptions};
use dafs_dat::Address;

use crate::unauthenticated::OWN_USER;

/// The password that admits only this process to the servers it starts.
#[derive(Clone)]
pub(crate) struct Pass {
    password: String,
}

impl Pass {
    /// Generates a new pass.
    pub(crate) fn new() -> Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).context("asking the system for random bytes")?;
        Ok(Self { password: bytes.iter().map(|byte| format!("{byte:02x}")).collect() })
    }

    /// Wraps a pass that this process received from another process through [`Pass::write`].
    pub(crate) fn from_password(password: String) -> Self {
        Self { password }
    }

    /// Writes the pass as a line to the standard input of another process.
    pub(crate) fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "{}", self.password)
    }

    /// Returns session options that log in with the pass.
    pub(crate) fn options(&self) -> SessionOptions {
        let (user, password) = (OWN_USER.to_owned(), self.password.clone());
        SessionOptions::default().login(Login::Password { user, password })
    }

    /// Writes the pass into a file that only this user can read, for commands with
    /// `--password-from`.
    pub(crate) fn keep(&self, path: &Path) -> Result<()> {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options.open(path).and_then(|mut file| self.write(&mut file));
        written.with_context(|| format!("writing {}", path.display()))
    }
}

/// A running `dafs serve`.
pub(crate) struct ChildServer {
    child: Child,
    /// The pipe to the server's standard input. Closing the pipe stops the server.
    stdin: Option<ChildStdin>,
    /// The pipe from the server's standard output, kept open so that the server can print.
    _stdout: BufReader<ChildStdout>,
    pub addresses: Vec<Address>,
}

impl ChildServer {
    /// Starts `dafs serve` on a free port of this machine and waits until it is ready.
    pub(crate) fn start(
        scratch: &Path,
        exports: &[impl AsRef<OsStr>],
        pass: &Pass,
    ) -> Result<Self> {
        let no_more: &[&str] = &[];
        Self::start_at(ANY_PORT, 1, scratch, exports, no_more, pass)
    }

    /// Starts `dafs serve` as [`ChildServer::start`] does, but at the given TCP address, with the
    /// given number of reactors, and with more options of `dafs serve`.
    ///
    /// If `reactors` is `None`, the server has one reactor, whatever the default of `dafs serve`
    /// is, because the server shares the cores with its clients.
    pub(crate) fn start_at(
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
        crate::cleanup::join(&mut command);
        let mut child = command.spawn().context("starting the server")?;
        let mut stdin = child.stdin.take().context("the server has no standard input")?;
        // If the write fails, the server has already ended and printed the reason.
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
        // Put shared memory first, because a local client would choose shared memory.
        served.addresses.sort_by_key(|address| !matches!(address, Address::Shm(_)));
        Ok(served)
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills the server with SIGKILL and waits for it.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill().context("killing the server")?;
        self.child.wait().context("waiting for the server's end")?;
        Ok(())
    }

    /// Stops the server cleanly. Returns an error if the server does not exit with success.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.stdin.take();
        let status = self.child.wait().context("waiting for the server's end")?;
        if !status.success() {
            bail!("the server ended with {status}");
        }
        Ok(())
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        self.stdin.take();
        // A failure to wait is ignored: nothing else can be done.
        let _ = self.child.wait();
    }
}

/// The IPv4 loopback address with port 0, so that the system chooses the port.
pub(crate) const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Parses an address as `dafs serve` prints it.
pub(crate) fn address(text: &str) -> Option<Address> {
    match text.split_once(':')? {
        ("tcp", socket) => Some(Address::Tcp(socket.parse().ok()?)),
        ("verbs", socket) => Some(Address::Verbs(socket.parse().ok()?)),
        ("shm", path) => Some(Address::Shm(path.into())),
        _ => None,
    }
}

//! A server of our own in a process of its own, for demonstrations, measurements and tests.
//!
//! Invariant: the server ends with the value, and with this process however it ends:
//! it holds the other end of a pipe that closes then.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use dafs_dat::Address;

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
    pub fn start(scratch: &Path, exports: &[String]) -> Result<Self> {
        Self::start_at(([127, 0, 0, 1], 0).into(), scratch, exports, &[])
    }

    /// The same at this port, with more of the options of `dafs serve`.
    pub fn start_at(
        tcp: SocketAddr,
        scratch: &Path,
        exports: &[impl AsRef<OsStr>],
        more: &[&str],
    ) -> Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command
            .arg("serve")
            .args(exports)
            .args(["--while-stdin", "--tcp", &tcp.to_string()])
            .arg("--socket")
            .arg(scratch.join("socket"))
            .arg("--state")
            .arg(scratch.join("state"))
            .args(["--anonymous", &identity(), "--squash", "none"])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // A signal from the terminal comes here, and from here the server's end.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().context("starting the server")?;
        let stdin = child.stdin.take();
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

fn address(text: &str) -> Option<Address> {
    match text.split_once(':')? {
        ("tcp", socket) => Some(Address::Tcp(socket.parse().ok()?)),
        ("verbs", socket) => Some(Address::Verbs(socket.parse().ok()?)),
        ("shm", path) => Some(Address::Shm(path.into())),
        _ => None,
    }
}

/// This process's own user, so that both transports see the same permissions.
fn identity() -> String {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    format!("{}:{}", uid.as_raw(), gid.as_raw())
}

//! The server that is killed, again and again.
//!
//! Invariant: every life listens at the same places and serves the same directory with the
//! same journal.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dafs_dat::Address;
use dafs_types::Random;

pub struct Victim {
    place: PathBuf,
    port: u16,
    life: Option<Life>,
    kills: u32,
}

struct Life {
    child: Child,
    /// The server ends with us, however we end.
    stdin: Option<ChildStdin>,
}

impl Victim {
    /// The first life.
    pub fn start(place: &Path, random: &mut Random) -> Result<Self> {
        std::fs::create_dir(place.join("export")).context("making the directory to serve")?;
        let port = free_port(random)?;
        let mut victim = Self { place: place.to_path_buf(), port, life: None, kills: 0 };
        victim.start_again()?;
        Ok(victim)
    }

    /// Where clients connect: by turns here and there.
    pub fn address(&self, client: u32) -> Address {
        if client.is_multiple_of(2) {
            Address::Shm(self.place.join("socket"))
        } else {
            Address::Tcp(([127, 0, 0, 1], self.port).into())
        }
    }

    pub fn kills(&self) -> u32 {
        self.kills
    }

    /// SIGKILL, and the next life. How long that took.
    pub fn kill_and_restart(&mut self) -> Result<Duration> {
        let Some(mut life) = self.life.take() else { bail!("no server is running") };
        life.child.kill().context("killing the server")?;
        life.child.wait().context("waiting for the server's end")?;
        self.kills += 1;
        let begun = Instant::now();
        self.start_again()?;
        Ok(begun.elapsed())
    }

    /// The last end, in order. What was served.
    pub fn stop(&mut self) -> Result<PathBuf> {
        if let Some(mut life) = self.life.take() {
            life.stdin.take();
            let status = life.child.wait().context("waiting for the server's end")?;
            if !status.success() {
                bail!("the server has ended with {status}");
            }
        }
        Ok(self.place.join("export"))
    }

    fn start_again(&mut self) -> Result<()> {
        let program = std::env::current_exe().context("finding this program")?;
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        let mut command = Command::new(program);
        command
            .arg("serve")
            .arg(self.place.join("export"))
            .args(["--while-stdin", "--exactly-once", "stable", "--cache", "64M", "--lease", "10"])
            .args(["--tcp", &format!("127.0.0.1:{}", self.port), "--socket"])
            .arg(self.place.join("socket"))
            .arg("--state")
            .arg(self.place.join("state"))
            .args(["--anonymous", &format!("{}:{}", uid.as_raw(), gid.as_raw())])
            .args(["--squash", "none"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().context("starting the server")?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the server has no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("waiting for the server")?;
        let mut life = Life { child, stdin };
        if !line.starts_with("ready: ") {
            let _ = life.child.wait();
            bail!("the server has not started again; see its message above");
        }
        self.life = Some(life);
        Ok(())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        if let Some(mut life) = self.life.take() {
            life.stdin.take();
            let _ = life.child.wait();
        }
    }
}

/// A port that nobody listens at, outside of those that the system gives to connections.
fn free_port(random: &mut Random) -> Result<u16> {
    for _ in 0..1000 {
        let port = PORTS_FROM + u16::try_from(random.below(usize::from(PORT_COUNT))).unwrap_or(0);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no TCP port from {PORTS_FROM} to {} is free", PORTS_FROM + PORT_COUNT)
}

const PORTS_FROM: u16 = 20_000;
const PORT_COUNT: u16 = 12_000;

//! The server that is killed and restarted.
//!
//! Invariant: every incarnation listens at the same addresses and serves the same directory with
//! the same journal.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dafs_client::SessionOptions;
use dafs_dat::Address;
use dafs_types::Random;

use crate::child_server::{ChildServer, Pass};

pub(super) struct Victim {
    place: PathBuf,
    port: u16,
    reactors: usize,
    /// The password for the server. All incarnations have the same, because clients reconnect with
    /// it.
    pass: Pass,
    life: Option<ChildServer>,
    kills: u32,
}

impl Victim {
    /// Starts the first incarnation.
    pub(super) fn start(place: &Path, reactors: usize, random: &mut Random) -> Result<Self> {
        std::fs::create_dir(place.join("export")).context("making the directory to serve")?;
        let port = free_port(random)?;
        let place = place.to_path_buf();
        let mut victim = Self { place, port, reactors, pass: Pass::new()?, life: None, kills: 0 };
        victim.life = Some(victim.live()?);
        Ok(victim)
    }

    /// Returns the server's address for a client: shared memory for even numbers, TCP for odd ones.
    pub(super) fn address(&self, client: u32) -> Address {
        if client.is_multiple_of(2) {
            Address::Shm(self.place.join("socket"))
        } else {
            Address::Tcp(socket(self.port))
        }
    }

    /// Returns the options for a session with the server.
    pub(super) fn options(&self) -> SessionOptions {
        self.pass.options()
    }

    pub(super) fn kills(&self) -> u32 {
        self.kills
    }

    /// Kills the server with SIGKILL and starts it again. Returns the time from the kill to the
    /// new server's readiness.
    pub(super) fn kill_and_restart(&mut self) -> Result<Duration> {
        let Some(life) = self.life.take() else { bail!("no server is running") };
        life.kill()?;
        self.kills += 1;
        let begun = Instant::now();
        self.life = Some(self.live().context("starting the server again")?);
        Ok(begun.elapsed())
    }

    /// Stops the server cleanly. Returns the path of the served directory.
    pub(super) fn stop(&mut self) -> Result<PathBuf> {
        if let Some(life) = self.life.take() {
            life.stop()?;
        }
        Ok(self.place.join("export"))
    }

    fn live(&self) -> Result<ChildServer> {
        let Self { place, port, reactors, pass, .. } = self;
        let options = ["--exactly-once", "stable", "--cache", "64M", "--lease", "10"];
        let exports = [place.join("export")];
        ChildServer::start_at(socket(*port), *reactors, place, &exports, &options, pass)
    }
}

fn socket(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// Returns a port that no process listens on, outside of the range for outgoing connections.
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

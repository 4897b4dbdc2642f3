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
use crate::nfs::warn_of_any_port;

pub(super) struct Victim {
    place: PathBuf,
    port: u16,
    /// The port for NFS clients, if there are any.
    nfs_port: Option<u16>,
    reactors: usize,
    /// The password for the server. All incarnations have the same, because clients reconnect with
    /// it.
    pass: Pass,
    life: Option<ChildServer>,
    kills: u32,
}

impl Victim {
    /// Starts the first incarnation.
    pub(super) fn start(
        place: &Path,
        reactors: usize,
        has_nfs: bool,
        random: &mut Random,
    ) -> Result<Self> {
        std::fs::create_dir(place.join("export")).context("making the directory to serve")?;
        let port = free_port(random)?;
        if has_nfs {
            warn_of_any_port();
        }
        let mut nfs_port = None;
        while has_nfs && nfs_port.is_none() {
            nfs_port = Some(free_port(random)?).filter(|other| *other != port);
        }
        let (place, pass) = (place.to_path_buf(), Pass::new()?);
        let mut victim = Self { place, port, nfs_port, reactors, pass, life: None, kills: 0 };
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

    /// Returns the server's address for NFS clients.
    pub(super) fn nfs_address(&self) -> Option<SocketAddr> {
        self.nfs_port.map(socket)
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
        let mut options: Vec<String> =
            ["--exactly-once", "stable", "--cache", "64M"].map(str::to_owned).into();
        let lease = if self.nfs_port.is_some() { NFS_LEASE } else { LEASE };
        options.extend(["--lease".to_owned(), lease.to_owned()]);
        if let Some(nfs) = self.nfs_address() {
            options.extend(["--nfs".to_owned(), nfs.to_string(), "--nfs-any-port".to_owned()]);
        }
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

/// The duration of a lease in seconds.
const LEASE: &str = "10";
/// The same if there are NFS clients, whose locks are lost if they do not return during that time.
const NFS_LEASE: &str = "60";
const PORTS_FROM: u16 = 20_000;
const PORT_COUNT: u16 = 12_000;

//! What a server costs that has many sessions and nothing to do.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dafs_client::{Client, ClientConfig, SessionOptions};
use dafs_dat::Address;
use serde::Serialize;

use crate::measure::process_cpu;
use crate::peers::name_of;

/// A server with sessions that do nothing.
#[derive(Clone, Debug, Serialize)]
pub struct Idle {
    /// What the sessions came over.
    pub transport: &'static str,
    /// How many.
    pub sessions: usize,
    /// Bytes the server had resident before them.
    pub resident_before: u64,
    /// Bytes it has with them.
    pub resident_bytes: u64,
    /// Its part of a core while nothing happens.
    pub core_fraction: f64,
}

impl Idle {
    /// Bytes a session costs.
    #[must_use]
    pub fn session_bytes(&self) -> u64 {
        self.resident_bytes.saturating_sub(self.resident_before) / self.sessions.max(1) as u64
    }
}

/// Opens the sessions and looks at the server for a while.
///
/// # Errors
/// If a session cannot be had, or the server's process cannot be looked at.
pub fn idle(
    address: &Address,
    options: &SessionOptions,
    process: u32,
    sessions: usize,
    span: Duration,
) -> Result<Idle> {
    let client = Client::new(ClientConfig::default())?;
    // The first session of all makes the server set up what all share.
    let first = client.connect_to(address, options)?;
    first.ping()?;
    let resident_before = resident(process)?;
    let all = (0..sessions)
        .map(|_| {
            let session = client.connect_to(address, options)?;
            session.ping()?;
            Ok(session)
        })
        .collect::<Result<Vec<_>>>()?;
    let cpu = || process_cpu(process).context("reading the server's CPU time");
    let (start, before) = (Instant::now(), cpu()?);
    std::thread::sleep(span);
    let core_fraction = (cpu()? - before).as_secs_f64() / start.elapsed().as_secs_f64();
    let resident_bytes = resident(process)?;
    drop(all);
    let transport = name_of(address);
    Ok(Idle { transport, sessions, resident_before, resident_bytes, core_fraction })
}

/// Bytes of a process that are in memory, memory it shares with others included.
fn resident(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map(|kilobytes| kilobytes << 10).with_context(|| format!("{path} has no VmRSS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_resident() {
        assert!(resident(std::process::id()).unwrap() > 1 << 20);
    }

    #[test]
    fn a_session_costs_its_part_of_the_growth() {
        let idle = Idle {
            transport: "shm",
            sessions: 4,
            resident_before: 100,
            resident_bytes: 500,
            core_fraction: 0.0,
        };
        assert_eq!(idle.session_bytes(), 100);
    }
}

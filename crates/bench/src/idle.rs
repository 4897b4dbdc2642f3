//! Measures the cost of many idle sessions to a server.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dafs_client::{Client, ClientConfig, SessionOptions};
use dafs_dat::Address;
use serde::Serialize;

use crate::measure::process_cpu;
use crate::peers::name_of;

/// The memory and CPU time of a server with idle sessions.
#[derive(Clone, Debug, Serialize)]
pub struct Idle {
    /// The transport of the sessions.
    pub transport: &'static str,
    /// The number of sessions.
    pub sessions: usize,
    /// The resident bytes of the server before the sessions are opened.
    pub resident_before: u64,
    /// The resident bytes of the server while the sessions are open.
    pub resident_bytes: u64,
    /// The fraction of a core that the server uses while it is idle.
    pub core_fraction: f64,
}

impl Idle {
    /// Returns the additional bytes of memory per session.
    #[must_use]
    pub fn session_bytes(&self) -> u64 {
        self.resident_bytes.saturating_sub(self.resident_before) / self.sessions.max(1) as u64
    }
}

/// Opens the sessions, and measures the server while they are idle.
///
/// # Errors
/// If a session cannot be opened, or the server's process cannot be read.
pub(crate) fn idle(
    address: &Address,
    options: &SessionOptions,
    process: u32,
    sessions: usize,
    span: Duration,
) -> Result<Idle> {
    let client = Client::new(ClientConfig::default())?;
    // The first session makes the server allocate memory that all sessions share.
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

/// Returns the resident bytes of a process, including memory shared with others.
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

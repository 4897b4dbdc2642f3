//! Clients that break rules in large numbers, while another client works.
//!
//! Each attacker is a function that runs in a thread until the load ends. Nothing that an attacker
//! gets back is checked: the server may answer, refuse, or close the connection. A witness, which
//! follows the rules, must be served all the time, and the memory of the server must not grow.
//!
//! Invariant: the messages depend on the seed alone.

mod attackers;
mod messages;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::bench::{Bench, Target, same};
use crate::rpc::Auth;
use crate::suite::Protocol;

pub use messages::{Generator, Random};

/// The time between two looks at the memory of the server, in milliseconds.
const LOOK_MS: u64 = 100;
/// The number of threads that send bad messages. Each waits for a reply after each message.
const SENDERS: u8 = 32;
/// The size of a page of memory in bytes, which `/proc` counts in.
const PAGE_BYTES: u64 = 4096;

/// A load of hostile clients.
#[derive(Clone, Debug)]
pub struct Load {
    /// The server and its exports.
    pub target: Target,
    /// The process of the server, whose memory is measured.
    pub process: u32,
    /// The number of bad messages to send.
    pub messages: u64,
    /// The number that the messages depend on.
    pub seed: u64,
    /// By how many bytes the server's memory may grow at most.
    pub growth_bytes_max: u64,
    /// The names of the attackers beside the bad messages; all if the list is empty.
    pub only: Vec<String>,
}

/// What was done, and how the server has fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of bad messages that were sent.
    pub messages: u64,
    /// The number of actions of the other attackers: connections, compounds, fragments.
    pub actions: u64,
    /// The number of operations of the witness.
    pub witnessed: u64,
    /// The longest time that four operations of the witness took.
    pub longest: Duration,
    /// The memory of the server before the load, in bytes.
    pub bytes_before: u64,
    /// The largest amount of memory during the load, in bytes.
    pub bytes_most: u64,
    /// The memory of the server after the load, in bytes.
    pub bytes_after: u64,
}

/// What the threads of a load share.
#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    /// The handle of a large file, for those who read.
    file: Vec<u8>,
    /// The handle of a directory, for those who make names.
    dir: Vec<u8>,
    is_over: AtomicBool,
    sent: AtomicU64,
    actions: AtomicU64,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn acted(&self) {
        self.actions.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs a load until all bad messages are sent. Fails if the witness is not served, or if the
/// memory of the server grows by more than the load allows.
pub fn run(load: &Load) -> Result<Report> {
    let mut bench = Bench::new(&load.target, 0, Protocol::Nfs3)?;
    let file = bench.file("large")?;
    for part in 0..16 {
        bench.c.write(&file, part << 18, 0, &[7; 1 << 18])?;
    }
    let dir = bench.sub("names", 0o777)?;
    let shared = Shared {
        server: load.target.nfs,
        file,
        dir,
        is_over: AtomicBool::new(false),
        sent: AtomicU64::new(0),
        actions: AtomicU64::new(0),
    };
    let mut report = Report { bytes_before: memory_of(load.process)?, ..Report::default() };
    let result = std::thread::scope(|scope| {
        let shared = &shared;
        let senders: Vec<_> = (0..SENDERS)
            .map(|index| {
                let seed = load.seed.wrapping_add(index.into());
                let generator = Generator::new(seed, &shared.file, &shared.dir);
                let until = |sender: u8| load.messages * u64::from(sender) / u64::from(SENDERS);
                let part = (index, until(index + 1) - until(index));
                scope.spawn(move || attackers::send_bad_messages(shared, generator, part))
            })
            .collect();
        for (name, attacker) in attackers::ALL {
            if load.only.is_empty() || load.only.iter().any(|only| only == name) {
                scope.spawn(move || attacker(shared));
            }
        }
        let mut watch = || -> Result<()> {
            while !senders.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                report.bytes_most = report.bytes_most.max(memory_of(load.process)?);
                let begun = Instant::now();
                let served = witness(&mut bench, &mut report.witnessed);
                served.context("another client is not served")?;
                report.longest = report.longest.max(begun.elapsed());
                std::thread::sleep(Duration::from_millis(LOOK_MS));
            }
            Ok(())
        };
        let result = watch();
        shared.is_over.store(true, Ordering::Relaxed);
        result
    });
    report.messages = shared.sent.load(Ordering::Relaxed);
    report.actions = shared.actions.load(Ordering::Relaxed);
    bench.clean_up();
    result?;
    report.bytes_after = memory_of(load.process)?;
    let growth = report.bytes_most.saturating_sub(report.bytes_before);
    let limit = load.growth_bytes_max;
    ensure!(growth <= limit, "the memory grows by {growth} bytes, more than {limit}: {report:?}");
    Ok(report)
}

/// Does some work on the witness's connection and on a new one.
fn witness(bench: &mut Bench, done: &mut u64) -> Result<()> {
    let dir = bench.dir.clone();
    let name = format!("witness-{done}");
    let fh = bench.file(&name)?;
    bench.c.write(&fh, 0, 2, name.as_bytes())?;
    let mut other = bench.client(Auth::user(0))?;
    same("the data", other.read(&fh, 0, 100)?.data, name.clone().into_bytes())?;
    other.remove(&dir, &name)?;
    *done += 4;
    Ok(())
}

/// Returns the memory that a process occupies, in bytes.
pub fn memory_of(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/statm");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let pages = text.split(' ').nth(1).and_then(|field| field.parse::<u64>().ok());
    Ok(pages.with_context(|| format!("{path} has no second number"))? * PAGE_BYTES)
}

//! Who is measured. A peer moves blocks for a span of time, one at a time or several in
//! flight, and says how many it moved.

mod bare;
mod children;
mod local;
mod nfs;
mod remote;

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize};

pub use bare::Bare;
pub use children::{Busy, serve as serve_child};
pub use children::{Echo, Stream};
pub use local::{Copies, Local, PingPong, Sleeper};
pub use nfs::{Export, OverNfs};
pub use remote::{Link, Remote, Task, name_of};

/// One way to move blocks.
pub trait Peer {
    /// What it is.
    fn label(&self) -> Label;
    /// Whether it says anything at this block size.
    fn serves(&self, block: usize) -> bool {
        block > 0
    }
    /// The process that serves it, if it is not the server of ours that is measured.
    fn server(&self) -> Option<u32> {
        None
    }
    /// Moves blocks until `span` is over. `times`, if given, gets the nanoseconds of each
    /// operation; asking for them costs time.
    ///
    /// # Errors
    /// Whatever fails on the way.
    fn run(&mut self, block: usize, span: Duration, times: Option<&mut Times>) -> Result<Tally>;
}

/// What a peer is called in tables, and what goals look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Label {
    /// `pread`, `memcpy`, `shm`, `tcp`, ...
    pub peer: &'static str,
    /// What is done with the blocks.
    pub kind: Kind,
    /// Operations in flight.
    pub depth: usize,
    /// The client sleeps until all in flight are complete.
    pub sleeps: bool,
}

impl Label {
    /// One operation at a time of a peer that has no other way.
    #[must_use]
    pub const fn plain(peer: &'static str, kind: Kind) -> Self {
        Self { peer, kind, depth: 1, sleeps: false }
    }
}

impl Label {
    /// Whether a file server does the work.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.is_ours() || self.peer == NFS
    }

    /// Whether it is a server of ours.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        matches!(self.peer, "shm" | "tcp" | "verbs" | "sim")
    }
}

/// Who can be in a report.
const PEERS: [&str; 12] = [
    "shm",
    "tcp",
    "verbs",
    "sim",
    NFS,
    "pread",
    "pwrite",
    "memcpy",
    "ping-pong",
    "tcp echo",
    "tcp stream",
    "tcp bare",
];
/// What nfs-ganesha through libnfs is called.
const NFS: &str = "libnfs";

impl<'de> Deserialize<'de> for Label {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Written {
            peer: String,
            kind: Kind,
            depth: usize,
            sleeps: bool,
        }
        let Written { peer, kind, depth, sleeps } = Written::deserialize(from)?;
        let known = PEERS.into_iter().find(|known| *known == peer);
        let unknown = || serde::de::Error::custom(format!("nobody is measured as {peer:?}"));
        Ok(Self { peer: known.ok_or_else(unknown)?, kind, depth, sleeps })
    }
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { peer, depth, .. } = self;
        match self.kind {
            Kind::Read if self.is_remote() => write!(f, "{peer} read x{depth}")?,
            Kind::Write if self.is_remote() => write!(f, "{peer} write x{depth}")?,
            _ if *depth > 1 => write!(f, "{peer} x{depth}")?,
            _ => f.write_str(peer)?,
        }
        if self.sleeps { f.write_str(", sleeping") } else { Ok(()) }
    }
}

/// What is done with the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// From the file, or from memory.
    Read,
    /// Into the file.
    Write,
    /// A message there and back.
    Echo,
}

/// What one run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Operations.
    pub count: u64,
    /// A sum over what was moved, so that the work is known to be real.
    pub sum: u64,
}

/// Nanoseconds of single operations.
pub type Times = Histogram<u64>;

/// An empty collection of times: 1 ns to 10 s, three digits.
///
/// # Panics
/// Never: the bounds are constants that the histogram accepts.
#[must_use]
pub fn times() -> Times {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("constant bounds")
}

/// The largest block.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
/// The most operations in flight.
pub const DEPTH_MAX: usize = 32;

/// Offsets of blocks, spread over the file.
pub struct Offsets {
    state: u64,
    file_bytes: u64,
}

impl Offsets {
    /// Over a file of `file_bytes`.
    #[must_use]
    pub fn new(file_bytes: u64) -> Self {
        Self { state: 7, file_bytes }
    }

    fn next(&mut self, block: usize) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (self.state >> 33) % (self.file_bytes / block as u64) * block as u64
    }
}

/// Calls `one` until the span is over, looking at the clock every few calls, or at every
/// call if times are asked for.
fn repeat(
    span: Duration,
    times: Option<&mut Times>,
    mut one: impl FnMut() -> Result<u64>,
) -> Result<Tally> {
    let start = std::time::Instant::now();
    let mut tally = Tally::default();
    if let Some(times) = times {
        let mut last = start;
        while last.duration_since(start) < span {
            tally.sum = tally.sum.wrapping_add(one()?);
            tally.count += 1;
            let now = std::time::Instant::now();
            times.saturating_record(nanos(now.duration_since(last)));
            last = now;
        }
    } else {
        while start.elapsed() < span {
            for _ in 0..OPERATIONS {
                tally.sum = tally.sum.wrapping_add(one()?);
            }
            tally.count += OPERATIONS;
        }
    }
    Ok(tally)
}

/// As [`repeat`] for `depth` operations that end together: `all` does so many.
fn repeat_together(
    depth: usize,
    span: Duration,
    mut times: Option<&mut Times>,
    mut all: impl FnMut() -> Result<u64>,
) -> Result<Tally> {
    let (start, mut tally) = (std::time::Instant::now(), Tally::default());
    while start.elapsed() < span {
        let begin = std::time::Instant::now();
        tally.sum = tally.sum.wrapping_add(all()?);
        tally.count += depth as u64;
        if let Some(times) = &mut times {
            times.saturating_record_n(nanos(begin.elapsed()), depth as u64);
        }
    }
    Ok(tally)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Operations between two looks at the clock.
const OPERATIONS: u64 = 8;

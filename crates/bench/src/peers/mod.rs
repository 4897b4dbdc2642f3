//! The competitors of the comparison. A competitor is a way to move blocks whose speed is measured:
//! DAFS over one transport, nfs-ganesha, local file access, or a limit of the machine such as
//! `memcpy`. In the code, a competitor is called a *peer*. It moves blocks for a span of time, one
//! at a time or several in flight, and returns the number of blocks moved.

mod bare;
mod children;
mod local;
mod nfs;
mod remote;

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize};

pub(crate) use bare::Bare;
pub(crate) use children::Busy;
pub use children::serve as serve_child;
pub(crate) use children::{Echo, Stream};
pub(crate) use local::{Copies, Local, PingPong, Sleeper};
pub(crate) use nfs::{Export, OverNfs};
pub(crate) use remote::{Link, Remote, Task, name_of};

/// A competitor: a way to move blocks whose speed is measured.
pub(crate) trait Peer {
    /// Returns the name of the competitor.
    fn label(&self) -> Label;
    /// Returns true if the competitor can be measured at this block size.
    fn serves(&self, block: usize) -> bool {
        block > 0
    }
    /// Returns the process id of the competitor's server; `None` if the competitor uses the
    /// measured DAFS server or no server.
    fn server(&self) -> Option<u32> {
        None
    }
    /// Moves blocks until `span` has passed. Adds the nanoseconds of each operation to `times`, if
    /// that is given. Timing each operation makes the run slower.
    ///
    /// # Errors
    /// The first error of the competitor.
    fn run(&mut self, block: usize, span: Duration, times: Option<&mut Times>) -> Result<Tally>;
}

/// The name of a competitor in tables and goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Label {
    /// The name of the competitor: `pread`, `memcpy`, `shm`, `tcp` and so on.
    pub peer: &'static str,
    /// The kind of operation.
    pub kind: Kind,
    /// The number of operations in flight.
    pub depth: usize,
    /// True if the client sleeps until all operations in flight have completed.
    pub sleeps: bool,
}

impl Label {
    /// Returns the label of a competitor that runs one operation at a time and has no variants.
    #[must_use]
    pub const fn plain(peer: &'static str, kind: Kind) -> Self {
        Self { peer, kind, depth: 1, sleeps: false }
    }
}

impl Label {
    /// Returns true if the competitor uses a file server.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.is_ours() || self.peer == NFS
    }

    /// Returns true if the competitor is DAFS over one of its transports.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        matches!(self.peer, "shm" | "tcp" | "verbs" | "sim")
    }
}

/// The competitors that a report may contain.
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
/// The name of the competitor that uses nfs-ganesha through libnfs.
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
        let unknown = || serde::de::Error::custom(format!("unknown peer {peer:?}"));
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

/// The kind of operation on blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Reads a block from the file or from memory.
    Read,
    /// Writes a block into the file.
    Write,
    /// Sends a message and receives it back.
    Echo,
}

/// The result of one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// The number of operations.
    pub count: u64,
    /// A checksum over the moved data, as proof that the data was moved.
    pub sum: u64,
}

/// A histogram of the nanoseconds of single operations.
pub(crate) type Times = Histogram<u64>;

/// Makes an empty histogram of times: 1 ns to 10 s, three digits.
///
/// # Panics
/// Never: the bounds are constants that the histogram accepts.
#[must_use]
pub(crate) fn times() -> Times {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("constant bounds")
}

/// The largest block size in bytes.
pub(crate) const BLOCK_BYTES_MAX: usize = 1 << 20;
/// The maximum number of operations in flight.
pub(crate) const DEPTH_MAX: usize = 32;

/// An endless sequence of block offsets, spread over the file.
pub(crate) struct Offsets {
    state: u64,
    file_bytes: u64,
}

impl Offsets {
    /// Makes a sequence for a file of `file_bytes`.
    #[must_use]
    pub(crate) fn new(file_bytes: u64) -> Self {
        Self { state: 7, file_bytes }
    }

    fn next(&mut self, block: usize) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (self.state >> 33) % (self.file_bytes / block as u64) * block as u64
    }
}

/// Calls `one` until the span has passed. Reads the clock every few calls, or at every call if each
/// operation is timed.
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

/// Calls `all` until the span has passed, like [`repeat`]. One call runs `depth` operations.
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

/// The number of operations between two readings of the clock.
const OPERATIONS: u64 = 8;

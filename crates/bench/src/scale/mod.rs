//! How operations grow with a server's reactors and with its clients (`dafs bench scale`).
//!
//! Invariant: a conclusion is drawn only from points at which the clients have left at least half
//! of the cores to the server, and other programs have taken next to none. Otherwise what was
//! measured is how the machine was shared.

mod client;
mod judge;
mod plot;
mod table;

use serde::{Deserialize, Serialize};

pub use client::{ClientPlan, ScaleClient, Tally};
pub use judge::{Axis, Conclusion, Verdict};
pub use plot::plot_scale;

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Read blocks of 4 KiB of one file.
    SmallOfOne,
    /// Read blocks of 4 KiB of many files.
    SmallOfMany,
    /// Read blocks of 1 MiB of one file.
    LargeOfOne,
    /// Read blocks of 1 MiB of many files.
    LargeOfMany,
    /// Make and remove files in one directory.
    NamesInOne,
    /// Make and remove files in many directories.
    NamesInMany,
}

/// What a work is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// All clients read the same file.
    One,
    /// They read any of many files.
    Many,
    /// They make files in the same directory.
    OneDirectory,
    /// Each has directories of its own for that.
    ManyDirectories,
}

impl Work {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::SmallOfOne,
        Self::SmallOfMany,
        Self::LargeOfOne,
        Self::LargeOfMany,
        Self::NamesInOne,
        Self::NamesInMany,
    ];

    /// What it is called in tables, plots and arguments.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SmallOfOne => "read 4 KiB, one file",
            Self::SmallOfMany => "read 4 KiB, many files",
            Self::LargeOfOne => "read 1 MiB, one file",
            Self::LargeOfMany => "read 1 MiB, many files",
            Self::NamesInOne => "create and remove, one directory",
            Self::NamesInMany => "create and remove, many directories",
        }
    }

    /// The work of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.name() == name)
    }

    /// The name of its plot.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Self::SmallOfOne => "scale-read-4k-one-file.svg",
            Self::SmallOfMany => "scale-read-4k-many-files.svg",
            Self::LargeOfOne => "scale-read-1m-one-file.svg",
            Self::LargeOfMany => "scale-read-1m-many-files.svg",
            Self::NamesInOne => "scale-names-one-directory.svg",
            Self::NamesInMany => "scale-names-many-directories.svg",
        }
    }

    /// What it is about.
    #[must_use]
    pub fn files(self) -> Files {
        match self {
            Self::SmallOfOne | Self::LargeOfOne => Files::One,
            Self::SmallOfMany | Self::LargeOfMany => Files::Many,
            Self::NamesInOne => Files::OneDirectory,
            Self::NamesInMany => Files::ManyDirectories,
        }
    }

    /// Bytes of a block; 0 where no bytes are read.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::SmallOfOne | Self::SmallOfMany => 4096,
            Self::LargeOfOne | Self::LargeOfMany => 1 << 20,
            Self::NamesInOne | Self::NamesInMany => 0,
        }
    }

    /// Operations of one client under way at once.
    #[must_use]
    pub fn depth(self) -> usize {
        match self {
            Self::SmallOfOne | Self::SmallOfMany => 32,
            Self::LargeOfOne | Self::LargeOfMany => 4,
            Self::NamesInOne | Self::NamesInMany => LANES,
        }
    }
}

/// Medians of one work over one transport, with so many reactors and clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What was done.
    pub work: Work,
    /// `shm` or `tcp`.
    pub transport: String,
    /// Reactors of the server.
    pub reactors: usize,
    /// Processes that asked it.
    pub clients: usize,
    /// Operations of all clients together.
    pub operations_per_second: f64,
    /// The slowest round and the fastest.
    pub spread: [f64; 2],
    /// Microseconds of the server's processor time for each operation: of all its threads.
    pub server_cpu_us: f64,
    /// The part of it of reactors.
    pub reactor_cpu_us: f64,
    /// The part of it of the pool's threads, which make the system calls that may wait.
    pub pool_cpu_us: f64,
    /// Microseconds of the clients' processor time for each operation.
    pub client_cpu_us: f64,
    /// Cores that the server kept busy.
    pub server_cores: f64,
    /// The part of a core that its busiest reactor kept busy: close to the others' if connections
    /// are spread well.
    pub busiest_reactor: f64,
    /// Cores that the clients kept busy.
    pub client_cores: f64,
    /// Cores that others kept busy, among those that server and clients had; 0 if nobody knows.
    pub other_cores: f64,
    /// Requests that the server has counted, for each operation.
    pub requests: f64,
    /// Requests and notices that one of the server's reactors has handed to another, for each
    /// operation.
    pub messages: f64,
    /// What the rounds were, in their order. The same round of two points was measured side by
    /// side, so what disturbed one of them disturbed the other.
    pub rounds: Vec<Round>,
    /// Whether clients and others have left enough of the cores to the server.
    pub is_conclusive: bool,
    /// How the point stands to that with the fewest reactors and the same clients; nothing if it
    /// is that one, or if one of the two is not conclusive.
    pub against: Option<Against>,
}

/// One round of a point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Operations of all clients together.
    pub operations_per_second: f64,
    /// Microseconds of the server's processor time for each operation.
    pub server_cpu_us: f64,
}

/// How a point stands to another: medians of what the rounds' figures are as multiples of the
/// other's in the same round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// Reactors of the other.
    pub reactors: usize,
    /// Operations.
    pub speedup: f64,
    /// The server's processor time for each operation.
    pub server_cpu_ratio: f64,
}

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Processor, cores and kernel.
    pub machine: String,
    /// This program's version and, in a checkout, its commit.
    pub version: String,
    /// Cores that server and clients had together.
    pub cores: usize,
    /// The part of the cores that clients may take where a conclusion is drawn.
    pub clients_share_max: f64,
    /// The part of the cores that others may take there.
    pub others_share_max: f64,
    /// The most reactors that a server can have.
    pub reactors_max: usize,
    /// Seconds of a round.
    pub round_seconds: f64,
    /// Rounds for each median.
    pub rounds: usize,
    /// Medians.
    pub points: Vec<Point>,
    /// What they say of scaling.
    pub conclusions: Vec<Conclusion>,
    /// Operations of all rounds, each of which was checked.
    pub operations: u64,
}

impl Report {
    /// The points of one work over one transport.
    fn points_of<'r>(
        &'r self,
        work: Work,
        transport: &'r str,
    ) -> impl Iterator<Item = &'r Point> + Clone {
        self.points.iter().filter(move |point| (point.work, &*point.transport) == (work, transport))
    }

    /// The transports that were measured, in their order.
    fn transports(&self) -> Vec<&str> {
        let mut transports: Vec<&str> = Vec::new();
        for point in &self.points {
            if !transports.contains(&point.transport.as_str()) {
                transports.push(&point.transport);
            }
        }
        transports
    }

    /// What is varied: reactors, if there were several numbers of them, and clients if not.
    #[must_use]
    pub fn axis(&self) -> Axis {
        let first = self.points.first().map(|point| point.reactors);
        let varies = self.points.iter().any(|point| Some(point.reactors) != first);
        if varies { Axis::Reactors } else { Axis::Clients }
    }
}

/// The file that all clients read, at the top of what is served.
pub const HOT: &str = "hot";
/// Bytes of it.
pub const HOT_BYTES: usize = 16 << 20;
/// Bytes of each of the many files.
pub const MANY_BYTES: usize = 1 << 20;
/// Files that one client makes and removes at once.
pub const LANES: usize = 8;
/// The directory that all clients make files in.
pub const SHARED: &str = "shared";

/// One of the many files.
#[must_use]
pub fn many(index: usize) -> String {
    format!("many-{index:04}")
}

/// A directory in which one lane of one client alone makes files.
#[must_use]
pub fn directory_of(client: usize, lane: usize) -> String {
    format!("names-{client:03}-{lane}")
}

/// The first eight bytes of the block at `offset` of the hot file, or of one of the many.
#[must_use]
pub fn mark(index: Option<usize>, offset: u64) -> u64 {
    let file = index.map_or(u64::MAX, |index| index as u64 + 1);
    file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ offset
}

//! Measures how throughput grows with a server's reactors and with its clients (`dafs bench
//! scale`).
//!
//! Invariant: a conclusion is drawn only from points at which the clients left at least half of the
//! cores to the server, and other programs used almost none. Otherwise the measurement shows only
//! how the machine was shared.

mod client;
mod conclusions;
mod plot;
mod table;

use serde::{Deserialize, Serialize};

pub use client::{ClientPlan, ScaleClient, Tally};
pub use conclusions::{Axis, Conclusion, Verdict};
pub use plot::plot_scale;

/// A kind of work that clients do.
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

/// The files or directories that a kind of work uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// All clients read the same file.
    One,
    /// Each client reads any of many files.
    Many,
    /// All clients make files in the same directory.
    OneDirectory,
    /// Each client makes files in its own directories.
    ManyDirectories,
}

impl Work {
    /// All kinds of work.
    pub const ALL: [Self; 6] = [
        Self::SmallOfOne,
        Self::SmallOfMany,
        Self::LargeOfOne,
        Self::LargeOfMany,
        Self::NamesInOne,
        Self::NamesInMany,
    ];

    /// Returns the name of the work in tables, charts and arguments.
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

    /// Returns the work with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.name() == name)
    }

    /// Returns the file name of the chart for this work.
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

    /// Returns the files that this work uses.
    #[must_use]
    pub fn files(self) -> Files {
        match self {
            Self::SmallOfOne | Self::LargeOfOne => Files::One,
            Self::SmallOfMany | Self::LargeOfMany => Files::Many,
            Self::NamesInOne => Files::OneDirectory,
            Self::NamesInMany => Files::ManyDirectories,
        }
    }

    /// Returns the size of a block in bytes; 0 if no data is read.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::SmallOfOne | Self::SmallOfMany => 4096,
            Self::LargeOfOne | Self::LargeOfMany => 1 << 20,
            Self::NamesInOne | Self::NamesInMany => 0,
        }
    }

    /// Returns the number of operations that one client has in flight.
    #[must_use]
    pub fn depth(self) -> usize {
        match self {
            Self::SmallOfOne | Self::SmallOfMany => 32,
            Self::LargeOfOne | Self::LargeOfMany => 4,
            Self::NamesInOne | Self::NamesInMany => LANES,
        }
    }
}

/// The medians of one kind of work over one transport, with given numbers of reactors and clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The kind of work that the clients did.
    pub work: Work,
    /// The transport: `shm` or `tcp`.
    pub transport: String,
    /// The number of reactors of the server.
    pub reactors: usize,
    /// The number of client processes.
    pub clients: usize,
    /// The number of operations per second of all clients together.
    pub operations_per_second: f64,
    /// The operations per second of the slowest and of the fastest round.
    pub spread: [f64; 2],
    /// The microseconds of the server's processor time per operation, summed over its threads.
    pub server_cpu_us: f64,
    /// The microseconds of `server_cpu_us` that reactors used.
    pub reactor_cpu_us: f64,
    /// The microseconds of `server_cpu_us` that the pool's threads used. These threads make the
    /// system calls that may block.
    pub pool_cpu_us: f64,
    /// The microseconds of the clients' processor time per operation.
    pub client_cpu_us: f64,
    /// The number of cores that the server kept busy.
    pub server_cores: f64,
    /// The fraction of a core that the busiest reactor used. If connections are spread evenly, the
    /// other reactors use about the same.
    pub busiest_reactor: f64,
    /// The number of cores that the clients kept busy.
    pub client_cores: f64,
    /// The number of cores that other programs kept busy, of the cores available to server and
    /// clients; 0 if this is unknown.
    pub other_cores: f64,
    /// The number of requests that the server has counted, per operation.
    pub requests: f64,
    /// The number of requests and notices between the server's reactors, per operation.
    pub messages: f64,
    /// The rounds, in the order in which they were run. Rounds with the same index of two points
    /// were run in succession, so that a disturbance affected both points.
    pub rounds: Vec<Round>,
    /// True if clients and other programs left enough of the cores to the server.
    pub is_conclusive: bool,
    /// The comparison with the point that has the fewest reactors and the same number of clients.
    /// `None` if this is that point, or if one of the two points is not conclusive.
    pub against: Option<Comparison>,
}

/// One round of a point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The number of operations per second of all clients together.
    pub operations_per_second: f64,
    /// The microseconds of the server's processor time per operation.
    pub server_cpu_us: f64,
}

/// The comparison of a point with another: medians of the ratios between the same rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The number of reactors of the other point.
    pub reactors: usize,
    /// The median ratio of operations per second, this point to the other.
    pub speedup: f64,
    /// The median ratio of the server's processor time per operation, this point to the other.
    pub server_cpu_ratio: f64,
}

/// All measurements of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The processor, cores and kernel of the machine.
    pub machine: String,
    /// The version of this program and, if built in a checkout, its commit.
    pub version: String,
    /// The number of cores that were available to server and clients together.
    pub cores: usize,
    /// The fraction of the cores that clients may take at a conclusive point.
    pub clients_share_max: f64,
    /// The fraction of the cores that other programs may take at a conclusive point.
    pub others_share_max: f64,
    /// The maximum number of reactors that a server can have.
    pub reactors_max: usize,
    /// The length of a round in seconds.
    pub round_seconds: f64,
    /// The number of rounds for each median.
    pub rounds: usize,
    /// The measured points, as medians of the rounds.
    pub points: Vec<Point>,
    /// The conclusions about scaling.
    pub conclusions: Vec<Conclusion>,
    /// The total number of operations of all rounds. The result of each was checked.
    pub operations: u64,
}

impl Report {
    /// Returns the points of one kind of work over one transport.
    fn points_of<'r>(
        &'r self,
        work: Work,
        transport: &'r str,
    ) -> impl Iterator<Item = &'r Point> + Clone {
        self.points.iter().filter(move |point| (point.work, &*point.transport) == (work, transport))
    }

    /// Returns the transports that were measured, in the order of their first points.
    fn transports(&self) -> Vec<&str> {
        let mut transports: Vec<&str> = Vec::new();
        for point in &self.points {
            if !transports.contains(&point.transport.as_str()) {
                transports.push(&point.transport);
            }
        }
        transports
    }

    /// Returns the quantity that was varied: reactors if there were several numbers of them,
    /// otherwise clients.
    #[must_use]
    pub fn axis(&self) -> Axis {
        let first = self.points.first().map(|point| point.reactors);
        let varies = self.points.iter().any(|point| Some(point.reactors) != first);
        if varies { Axis::Reactors } else { Axis::Clients }
    }
}

/// The name of the file that all clients read, at the top of the export.
pub const HOT: &str = "hot";
/// The size in bytes of the file that all clients read.
pub const HOT_BYTES: usize = 16 << 20;
/// The size in bytes of each of the many files.
pub const MANY_BYTES: usize = 1 << 20;
/// The number of files that one client makes and removes concurrently.
pub const LANES: usize = 8;
/// The name of the directory that all clients make files in.
pub const SHARED: &str = "shared";

/// Returns the name of one of the many files.
#[must_use]
pub fn many(index: usize) -> String {
    format!("many-{index:04}")
}

/// Returns the name of a directory used by one lane of one client only.
#[must_use]
pub fn directory_of(client: usize, lane: usize) -> String {
    format!("names-{client:03}-{lane}")
}

/// Returns the first eight bytes of the block at `offset` of one of the many files, or of the file
/// that all clients read if `index` is `None`.
#[must_use]
pub fn mark(index: Option<usize>, offset: u64) -> u64 {
    let file = index.map_or(u64::MAX, |index| index as u64 + 1);
    file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ offset
}

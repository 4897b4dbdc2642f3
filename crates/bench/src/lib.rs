//! Measurements: reads and writes of a cached file over each transport, against local
//! `pread` and `pwrite`, nfs-ganesha through libnfs, `memcpy`, copies for which somebody
//! sleeps, a raw shared-memory ping-pong, a raw TCP echo, a raw TCP stream and reads in
//! flight together over bare sockets, all of the same run.
//!
//! After Figures 4 to 7 of the DAFS paper (FAST '03): throughput and client CPU for
//! block sizes, one request at a time and 32 in flight.
//!
//! Invariant: every figure is a median of rounds that take turns between all peers, so
//! that a noisy moment hits all alike; the sum of the bytes moved is reported, so that
//! the work is known to be real.
#![forbid(unsafe_code)]

mod bars;
mod goals;
mod idle;
mod lines;
mod look;
mod measure;
mod merge;
mod peers;
mod plot;
pub mod postmark;
mod report;
pub mod scale;
mod threads;

use std::path::PathBuf;

use dafs_client::SessionOptions;
use dafs_dat::{Address, WaitPolicy};

pub use bars::{Bar, Bars, bars};
pub use dafs_peers::{
    Answer, Completion, Entrance, Ganesha, Nfs, PeerError, Request, Ticket, flag,
};
pub use goals::{Goal, goals};
pub use idle::Idle;
pub use measure::{Figure, own_cpu, process_cpu, thread_cpu};
pub use merge::{MergePoint, MergeReport, MergeSeries, MergeSettings, merge_cost, plot_merge};
pub use peers::{Kind, Label, serve_child};
pub use plot::plot;
pub use report::{Report, machine, report, version};
pub use threads::{ThreadTime, busy_time, spent, thread_times};

/// What is measured, and how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// Servers, one for each transport.
    pub servers: Vec<Address>,
    /// A directory on a disk of the servers' kind, for nfs-ganesha to serve; if none, or if the
    /// machine has no nfs-ganesha or libnfs, that peer is left out.
    pub nfs_directory: Option<PathBuf>,
    /// What sessions with them are asked for.
    pub session: SessionOptions,
    /// How clients wait, but for those that sleep at once.
    pub wait: WaitPolicy,
    /// The servers' process, for its CPU time.
    pub server_process: Option<u32>,
    /// A server that has done nothing yet, for what sessions cost.
    pub idle_servers: Vec<Address>,
    /// That server's process.
    pub idle_process: Option<u32>,
    /// Sessions that do nothing; 0 leaves that measurement out.
    pub idle_sessions: usize,
    /// This program, which knows `bench-peer`: the raw peers are processes of their own.
    pub program: PathBuf,
    /// Directory on the server for the file.
    pub directory: String,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of a block, at most 1 MiB.
    pub block_sizes: Vec<usize>,
    /// Rounds for each median.
    pub rounds: usize,
    /// Seconds of one round.
    pub round_seconds: f64,
    /// Only the peers whose name contains this.
    pub only: Option<String>,
    /// Whether to measure against a third busy process.
    pub contends: bool,
}

impl Options {
    /// All block sizes of the paper and up to 1 MiB. `program` is the running program.
    #[must_use]
    pub fn full(program: PathBuf) -> Self {
        Self {
            servers: Vec::new(),
            nfs_directory: None,
            session: SessionOptions::default(),
            wait: WaitPolicy::default(),
            server_process: None,
            idle_servers: Vec::new(),
            idle_process: None,
            idle_sessions: 100,
            program,
            directory: "/".into(),
            file_bytes: 256 << 20,
            block_sizes: (11..=20).map(|power| 1 << power).collect(),
            rounds: 17,
            round_seconds: 0.04,
            only: None,
            contends: true,
        }
    }

    /// The block sizes the goals speak of; well under a minute.
    #[must_use]
    pub fn quick(program: PathBuf) -> Self {
        Self { block_sizes: vec![4096, 256 << 10, 1 << 20], rounds: 13, ..Self::full(program) }
    }

    /// Shows that everything works; the figures mean nothing.
    #[must_use]
    pub fn tiny(program: PathBuf) -> Self {
        let (file_bytes, rounds, round_seconds) = (4 << 20, 1, 0.001);
        Self { file_bytes, rounds, round_seconds, idle_sessions: 4, ..Self::quick(program) }
    }
}

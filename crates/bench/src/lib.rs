//! Benchmarks: reads and writes of a cached file over each transport. They are compared with the
//! following competitors in the same run: local `pread` and `pwrite`, nfs-ganesha through libnfs,
//! `memcpy`, copies by a thread for which the caller sleeps, a raw ping-pong over shared memory, a
//! raw TCP echo, a raw TCP stream, and concurrent reads over bare sockets.
//!
//! The measurements follow Figures 4 to 7 of the DAFS paper (FAST '03): throughput and client CPU
//! by block size, one request at a time and 32 in flight.
//!
//! Invariant: every figure is a median of rounds, and all competitors take turns, so that a
//! disturbance affects all of them alike. A checksum over the moved bytes is reported, as proof
//! that the bytes were moved.
#![forbid(unsafe_code)]

mod bars;
mod goals;
mod idle;
mod lines;
mod measure;
mod merge;
mod nfs;
mod nfs_rdma;
mod peers;
mod plot;
pub mod postmark;
mod report;
pub mod scale;
mod style;
mod threads;

use std::path::PathBuf;

use dafs_client::SessionOptions;
use dafs_dat::{Address, WaitPolicy};

pub use bars::{Bar, Bars, bars};
pub use dafs_peers::{Completion, Entrance, Ganesha, Nfs, PeerError, Reply, Request, Ticket, flag};
pub use goals::{Goal, goals};
pub use idle::Idle;
pub use measure::{Figure, own_cpu, process_cpu, thread_cpu};
pub use merge::{MergePoint, MergeReport, MergeSeries, MergeSettings, merge_cost, plot_merge};
pub use nfs::{NfsOptions, Row as NfsRow, Sample as NfsSample, compare_nfs};
pub use nfs_rdma::{NfsRdmaOptions, NfsRdmaRow, compare_nfs_rdma};
pub use peers::{Kind, Label, serve_child};
pub use plot::plot;
pub use report::{Report, machine, report, version};
pub use threads::{ThreadTime, busy_time, spent, thread_times};

/// The selection of measurements and their duration.
#[derive(Clone, Debug)]
pub struct Options {
    /// The servers, one for each transport.
    pub servers: Vec<Address>,
    /// The directory that nfs-ganesha exports, on the same kind of disk as the servers' directory.
    /// If it is `None`, or if the machine has no nfs-ganesha or libnfs, that competitor is left
    /// out.
    pub nfs_directory: Option<PathBuf>,
    /// The options of sessions with the servers.
    pub session: SessionOptions,
    /// The policy with which clients wait for replies. A client whose label has `sleeps` set does
    /// not use it: that client sleeps immediately.
    pub wait: WaitPolicy,
    /// The process id of the servers, to measure their CPU time.
    pub server_process: Option<u32>,
    /// The addresses of a server that has not served any request yet, to measure the memory of idle
    /// sessions.
    pub idle_servers: Vec<Address>,
    /// The process id of the server at `idle_servers`.
    pub idle_process: Option<u32>,
    /// The number of idle sessions; 0 leaves that measurement out.
    pub idle_sessions: usize,
    /// The path of this program. It implements the hidden command `bench-peer`, because some
    /// competitors are separate processes.
    pub program: PathBuf,
    /// The directory on the server for the file.
    pub directory: String,
    /// The size of the file in bytes.
    pub file_bytes: u64,
    /// The block sizes in bytes, at most 1 MiB.
    pub block_sizes: Vec<usize>,
    /// The number of rounds for each median.
    pub rounds: usize,
    /// The seconds of one round.
    pub round_seconds: f64,
    /// If present, only competitors whose name contains this text are measured.
    pub only: Option<String>,
    /// True to measure a second time while another process keeps a core busy.
    pub contends: bool,
}

impl Options {
    /// Returns options for all block sizes of the paper, and for larger ones up to 1 MiB. `program`
    /// is the path of the running program.
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

    /// Returns options for the block sizes of the goals. The run takes well under a minute.
    #[must_use]
    pub fn quick(program: PathBuf) -> Self {
        Self { block_sizes: vec![4096, 256 << 10, 1 << 20], rounds: 13, ..Self::full(program) }
    }

    /// Returns minimal options, which only show that everything works; the results mean nothing.
    #[must_use]
    pub fn tiny(program: PathBuf) -> Self {
        let (file_bytes, rounds, round_seconds) = (4 << 20, 1, 0.001);
        Self { file_bytes, rounds, round_seconds, idle_sessions: 4, ..Self::quick(program) }
    }
}

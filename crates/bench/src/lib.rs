//! Measurements: reads and writes of a cached file over each transport, against local
//! `pread` and `pwrite`, `memcpy` and a raw TCP echo of the same run.
//!
//! After Figures 4 to 7 of the DAFS paper (FAST '03): throughput and client CPU for
//! block sizes, one request at a time and 32 in flight.
//!
//! Invariant: every figure is a median of rounds that take turns between all peers, so
//! that a noisy moment hits all alike; the sum of the bytes read is reported, so that
//! the work is known to be real.
#![forbid(unsafe_code)]

mod peers;
mod report;

use dafs_dat::Address;

pub use report::{Figure, Report, report};

/// What is measured, and how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// Servers, one for each transport.
    pub servers: Vec<Address>,
    /// The servers' process, for its CPU time.
    pub server_process: Option<u32>,
    /// Directory on the server for the file.
    pub directory: String,
    /// Octets of the file.
    pub file_bytes: u64,
    /// Octets of a block.
    pub block_sizes: Vec<usize>,
    /// Rounds for each median.
    pub rounds: usize,
    /// Seconds of one round.
    pub round_seconds: f64,
}

impl Options {
    /// All block sizes of the paper and up to 1 MiB.
    #[must_use]
    pub fn full() -> Self {
        Self {
            servers: Vec::new(),
            server_process: None,
            directory: "/".into(),
            file_bytes: 256 << 20,
            block_sizes: (11..=20).map(|power| 1 << power).collect(),
            rounds: 5,
            round_seconds: 0.1,
        }
    }

    /// Shows that everything works; the figures mean nothing.
    #[must_use]
    pub fn tiny() -> Self {
        Self { file_bytes: 4 << 20, rounds: 1, round_seconds: 0.001, ..Self::quick() }
    }

    /// Two block sizes, a few seconds in all.
    #[must_use]
    pub fn quick() -> Self {
        Self { block_sizes: vec![4096, 1 << 20], rounds: 3, ..Self::full() }
    }
}

//! The Postmark workload: a pool of small files that are read, created and removed, as by a mail
//! server. It follows Postmark (Katcher, 1997) and its use for federated DAFS: a transaction is a
//! read (open, read, close), followed by a creation (open, write, close) or a removal.
//!
//! Invariant: the steps depend only on the workload's parameters, not on the store or its speed.
//! Each lane has its own files and runs one step after the other, so the steps in flight belong to
//! different lanes. Every byte that is read is compared with what was written, and a checksum over
//! the steps shows that two runs have done the same work.

mod lane;
mod local;
mod nfs;
mod remote;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

pub use self::lane::{Lane, Step, Work};
pub use self::local::Directory;
pub use self::nfs::Mounted;
pub use self::remote::Served;
pub(crate) use self::remote::all;

/// The parameters of the workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// The number of files in the pool before the first transaction.
    pub files: usize,
    /// The number of transactions.
    pub transactions: usize,
    /// The number of directories that the files are spread over.
    pub directories: usize,
    /// The size in bytes of the smallest file.
    pub size_min: usize,
    /// The size in bytes of the largest file, at most 64 KiB.
    pub size_max: usize,
    /// The number of steps in flight. There is one lane (a sequence of steps) for each of them.
    pub in_flight: usize,
    /// The seed of the random choices.
    pub seed: u64,
    /// True if every created file must be on stable storage before its step ends.
    pub stable: bool,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            files: 500,
            transactions: 10_000,
            directories: 10,
            size_min: 4096,
            size_max: 4096,
            in_flight: 1,
            seed: 1,
            stable: false,
        }
    }
}

/// A system that stores the files of the workload.
pub trait Store {
    /// Makes this many directories, which are named by number.
    ///
    /// # Errors
    /// If one cannot be made or exists already.
    fn make_directories(&mut self, count: usize) -> Result<()>;
    /// Runs the steps of all lanes until no lane has a next step. The steps of each lane run one
    /// after the other.
    ///
    /// # Errors
    /// If a step fails, or reads other bytes than were written.
    fn run(&mut self, lanes: &mut [Lane]) -> Result<()>;
    /// Removes the directories, which must be empty.
    ///
    /// # Errors
    /// If one cannot be removed.
    fn remove_directories(&mut self, count: usize) -> Result<()>;
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The number of transactions per second, in the transaction phase only.
    pub transactions_per_second: f64,
    /// The number of files created per second, in the first phase.
    pub created_per_second: f64,
    /// The number of files removed per second, in the final phase.
    pub removed_per_second: f64,
    /// The seconds of the transaction phase.
    pub seconds: f64,
    /// The counts of the work that was done.
    pub work: Work,
}

/// Runs a workload: creates the pool, runs the transactions, and removes the remaining files.
///
/// # Errors
/// If the parameters are invalid, or a step fails.
pub fn run(workload: &Workload, store: &mut dyn Store) -> Result<Outcome> {
    check(workload)?;
    store.make_directories(workload.directories)?;
    let mut lanes: Vec<Lane> =
        (0..workload.in_flight).map(|index| Lane::new(workload, index)).collect();
    let created = timed(|| store.run(&mut lanes))?;
    let begun: usize = lanes.iter_mut().map(Lane::begin_transactions).sum();
    let seconds = timed(|| store.run(&mut lanes))?;
    let left: usize = lanes.iter_mut().map(Lane::begin_removal).sum();
    let removed = timed(|| store.run(&mut lanes))?;
    store.remove_directories(workload.directories)?;
    let mut work = Work::default();
    lanes.iter().for_each(|lane| work.add(&lane.work));
    Ok(Outcome {
        transactions_per_second: rate(begun, seconds),
        created_per_second: rate(workload.files, created),
        removed_per_second: rate(left, removed),
        seconds: seconds.as_secs_f64(),
        work,
    })
}

fn check(workload: &Workload) -> Result<()> {
    let Workload { files, directories, size_min, size_max, in_flight, .. } = *workload;
    if in_flight == 0 || directories == 0 {
        bail!("at least one directory and one step in flight are needed");
    }
    if files < 2 * in_flight {
        bail!("{files} files are too few for {in_flight} steps in flight; each needs two");
    }
    if size_min > size_max || size_max > SIZE_MAX {
        bail!(
            "invalid sizes from {size_min} to {size_max}: the maximum must not be below the \
             minimum, nor above {SIZE_MAX}"
        );
    }
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let begin = Instant::now();
    work()?;
    Ok(begin.elapsed())
}

fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

/// The largest permitted file size in bytes.
pub const SIZE_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn in_a_directory(workload: &Workload) -> Outcome {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Directory::new(directory.path(), workload.stable).unwrap();
        let outcome = run(workload, &mut store).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        outcome
    }

    #[test]
    fn the_work_depends_on_the_numbers_alone() {
        let workload = Workload {
            files: 40,
            transactions: 200,
            directories: 3,
            size_min: 1,
            size_max: 9000,
            in_flight: 4,
            ..Workload::default()
        };
        let one = in_a_directory(&workload).work;
        assert_eq!(one, in_a_directory(&workload).work);
        assert_eq!(one.read, 200);
        assert_eq!(one.created, one.removed);
        assert_eq!(one.transactions, 200);
        let other = in_a_directory(&Workload { seed: 2, ..workload }).work;
        assert_ne!(one.checksum, other.checksum);
    }

    #[test]
    fn invalid_parameters_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Directory::new(directory.path(), false).unwrap();
        for wrong in [
            Workload { in_flight: 0, ..Workload::default() },
            Workload { files: 3, in_flight: 2, ..Workload::default() },
            Workload { size_min: 5, size_max: 4, ..Workload::default() },
            Workload { size_max: SIZE_MAX + 1, ..Workload::default() },
        ] {
            assert!(run(&wrong, &mut store).is_err(), "{wrong:?}");
        }
    }
}

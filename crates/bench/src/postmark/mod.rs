//! The Postmark workload: a pool of small files of which some are read and others made or removed,
//! as mail servers do it. After Postmark (Katcher, 1997) and its use for federated DAFS: a
//! transaction is a read (open, read, close) and either a creation (open, write, close) or a
//! removal.
//!
//! Invariant: what is done depends on the workload's numbers alone, not on who does it or how
//! fast: several in flight are so many lanes, each with files of its own and one step after the
//! other. Every byte that is read is compared with what was written, and a checksum over the
//! steps says that two runs have done the same.

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

/// The workload's numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// Files in the pool before the first transaction.
    pub files: usize,
    /// Transactions.
    pub transactions: usize,
    /// Directories that the files are spread over.
    pub directories: usize,
    /// Bytes of the smallest file.
    pub size_min: usize,
    /// Bytes of the largest file, at most 64 KiB.
    pub size_max: usize,
    /// Steps under way at once: lanes.
    pub in_flight: usize,
    /// What chance begins with.
    pub seed: u64,
    /// Every created file is on stable storage before its step ends.
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

/// Who keeps the files.
pub trait Store {
    /// Makes the directories, by their numbers.
    ///
    /// # Errors
    /// If one cannot be made; one may not be there.
    fn make_directories(&mut self, count: usize) -> Result<()>;
    /// Takes the steps of all lanes, of each one after the other, until all have none.
    ///
    /// # Errors
    /// If one fails, or reads something else than was written.
    fn run(&mut self, lanes: &mut [Lane]) -> Result<()>;
    /// Removes the directories, which are empty.
    ///
    /// # Errors
    /// If one is not.
    fn remove_directories(&mut self, count: usize) -> Result<()>;
}

/// What a run has come to.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Transactions a second, of the transactions' time alone.
    pub transactions_per_second: f64,
    /// Files made a second, in the beginning.
    pub created_per_second: f64,
    /// Files removed a second, in the end.
    pub removed_per_second: f64,
    /// Seconds of the transactions.
    pub seconds: f64,
    /// What was done.
    pub work: Work,
}

/// Runs a workload: makes the pool, does the transactions, removes what is left.
///
/// # Errors
/// If the numbers make no sense, or a step fails.
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
        bail!("there must be a directory, and something in flight");
    }
    if files < 2 * in_flight {
        bail!("{files} files are too few for {in_flight} in flight; it takes two for each");
    }
    if size_min > size_max || size_max > SIZE_MAX {
        bail!("sizes go from {size_min} to {size_max}; they must rise, to {SIZE_MAX} at most");
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

/// The largest file.
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
    fn numbers_that_make_no_sense_are_refused() {
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

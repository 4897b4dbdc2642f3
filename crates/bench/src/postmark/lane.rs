//! A lane: a sequence of steps on its own files.
//!
//! Invariant: at most one step of a lane is in flight at any time. The lane's pool contains the
//! files that its earlier steps have created and not removed.

use anyhow::{Result, bail};
use serde::Serialize;

use super::Workload;

/// A file: its directory, name and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The number of the directory.
    pub directory: usize,
    /// The number of the file, unique in the run. The file's name is made of it.
    pub number: u64,
    /// The size in bytes.
    pub size: usize,
}

/// The next step of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Open the file, read all of it, and close it.
    Read(Target),
    /// Open the file with creation, write it, and close it.
    Create(Target),
    /// Remove the file.
    Remove(Target),
}

/// The counts of the work that was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    /// The number of transactions.
    pub transactions: u64,
    /// The number of files read.
    pub read: u64,
    /// The number of files created, including the initial pool.
    pub created: u64,
    /// The number of files removed, including the final removal.
    pub removed: u64,
    /// The number of bytes read and written.
    pub bytes: u64,
    /// A checksum over all steps and the bytes read, equal for equal runs.
    pub checksum: u64,
}

impl Work {
    /// Adds the work of another lane. The order of additions does not matter.
    pub fn add(&mut self, other: &Self) {
        self.transactions += other.transactions;
        self.read += other.read;
        self.created += other.created;
        self.removed += other.removed;
        self.bytes += other.bytes;
        self.checksum = self.checksum.wrapping_add(other.checksum);
    }
}

/// A sequence of steps on files that no other lane uses.
#[derive(Debug)]
pub struct Lane {
    pool: Vec<Target>,
    random: u64,
    next_number: u64,
    numbers_apart: u64,
    directories: usize,
    sizes: (usize, usize),
    /// The number of files still to create, in the first phase.
    to_create: usize,
    to_do: usize,
    share: usize,
    is_removing: bool,
    /// The creation or removal of the current transaction, which follows its read.
    second: Option<Step>,
    /// The work done so far.
    pub work: Work,
    /// The bytes from which the contents of files are taken, each file from its own offset.
    pattern: std::rc::Rc<Vec<u8>>,
}

impl Lane {
    /// Makes the lane of this index, at the start of the phase that creates the lane's part of the
    /// pool.
    #[must_use]
    pub fn new(workload: &Workload, index: usize) -> Self {
        let lanes = workload.in_flight;
        let share = |all: usize| all / lanes + usize::from(index < all % lanes);
        let mut lane = Self {
            pool: Vec::new(),
            random: mixed(workload.seed.wrapping_mul(0x9e37_79b9).wrapping_add(index as u64 + 1)),
            next_number: index as u64,
            numbers_apart: lanes as u64,
            directories: workload.directories,
            sizes: (workload.size_min, workload.size_max),
            to_create: share(workload.files),
            to_do: 0,
            share: share(workload.transactions),
            is_removing: false,
            second: None,
            work: Work::default(),
            pattern: std::rc::Rc::default(),
        };
        lane.pattern = std::rc::Rc::new(pattern());
        lane
    }

    /// Begins the phase of transactions. Returns the number of transactions of this lane.
    pub fn begin_transactions(&mut self) -> usize {
        self.to_do = self.share;
        self.share
    }

    /// Begins the phase that removes the remaining files. Returns the number of these files.
    pub fn begin_removal(&mut self) -> usize {
        self.is_removing = true;
        self.pool.len()
    }

    /// Returns the next step of this phase; `None` if the phase has ended.
    pub fn next_step(&mut self) -> Option<Step> {
        if let Some(second) = self.second.take() {
            return Some(second);
        }
        if self.to_create > 0 {
            self.to_create -= 1;
            return Some(Step::Create(self.new_target()));
        }
        if self.to_do > 0 {
            self.to_do -= 1;
            self.work.transactions += 1;
            return Some(self.transaction());
        }
        if self.is_removing { self.pool.pop().map(Step::Remove) } else { None }
    }

    /// Chooses a transaction. Returns its read, and keeps its second step.
    fn transaction(&mut self) -> Step {
        let index = self.below(self.pool.len());
        let read = self.pool[index];
        // The pool keeps at least one file to read.
        let creates = self.pool.len() < 2 || self.below(2) == 0;
        self.second = Some(if creates {
            Step::Create(self.new_target())
        } else {
            let index = self.below(self.pool.len());
            Step::Remove(self.pool.swap_remove(index))
        });
        Step::Read(read)
    }

    /// Returns a new file, which enters the pool when the step that creates it is done.
    fn new_target(&mut self) -> Target {
        let (smallest, largest) = self.sizes;
        let number = self.next_number;
        self.next_number += self.numbers_apart;
        let size = smallest + self.below(largest - smallest + 1);
        let target = Target { directory: number as usize % self.directories, number, size };
        self.pool.push(target);
        target
    }

    /// Returns the content of a file.
    #[must_use]
    pub fn content(&self, target: Target) -> &[u8] {
        let begin = target.number as usize * 8 % PATTERN_SPARE;
        &self.pattern[begin..begin + target.size]
    }

    /// Notes that a step is done. `bytes` are the bytes that a read returned.
    ///
    /// # Errors
    /// If a read returned other bytes than were written.
    pub fn done(&mut self, step: Step, bytes: &[u8]) -> Result<()> {
        let (kind, target) = match step {
            Step::Read(target) => {
                if bytes != self.content(target) {
                    bail!("file {} does not contain what was written to it", target.name());
                }
                self.work.read += 1;
                self.work.bytes += target.size as u64;
                (1, target)
            }
            Step::Create(target) => {
                self.work.created += 1;
                self.work.bytes += target.size as u64;
                (2, target)
            }
            Step::Remove(target) => {
                self.work.removed += 1;
                (3, target)
            }
        };
        let last = bytes.last().copied().unwrap_or(0);
        let step = mixed(target.number << 2 | kind) ^ mixed(target.size as u64) ^ u64::from(last);
        self.work.checksum = self.work.checksum.wrapping_add(step);
        Ok(())
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as usize % bound
    }
}

impl Target {
    /// Returns the file's name in its directory.
    #[must_use]
    pub fn name(&self) -> String {
        self.number.to_string()
    }
}

/// Returns the name of a directory.
pub(super) fn directory_name(index: usize) -> String {
    format!("s{index}")
}

fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    word ^ word >> 27
}

/// Returns pseudo-random bytes.
fn pattern() -> Vec<u8> {
    let words = (super::SIZE_MAX + PATTERN_SPARE) / 8;
    (1..=words as u64)
        .flat_map(|index| mixed(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes())
        .collect()
}

/// The number of different offsets at which the contents of files begin.
const PATTERN_SPARE: usize = 64 << 10;

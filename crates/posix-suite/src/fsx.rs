//! Makes random calls on one file, like fsx.
//!
//! Invariant: the expected contents are in memory (`Fsx::model`) and change with each call. Every
//! byte that is read in any way is compared with them.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::names;
use crate::random::Random;
use crate::raw::{self, Errno, Map};

/// The calls and their relative frequencies.
const CALLS: &[(Call, usize)] = &[
    (Call::Read, 16),
    (Call::Write, 16),
    (Call::MapRead, 8),
    (Call::MapWrite, 8),
    (Call::Truncate, 6),
    (Call::Append, 4),
    (Call::Allocate, 3),
    (Call::Punch, 4),
    (Call::Zero, 3),
    (Call::Copy, 5),
    (Call::Sync, 2),
    (Call::Stat, 4),
    (Call::Reopen, 3),
    (Call::Compare, 1),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    Read,
    Write,
    MapRead,
    MapWrite,
    Truncate,
    Append,
    Allocate,
    Punch,
    Zero,
    Copy,
    Sync,
    Stat,
    Reopen,
    Compare,
}

/// A log entry for one call.
#[derive(Clone, Copy, Debug)]
struct Done {
    number: u64,
    call: Call,
    offset: usize,
    length: usize,
    /// The source offset of a copy, the descriptor, or the previous length, depending on the call.
    other: usize,
}

/// The limits of a run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of calls.
    pub calls: u64,
    /// The maximum duration of the run.
    pub time: Option<Duration>,
    /// The maximum length of the file in bytes.
    pub length_max: usize,
}

/// A run with its model of the file.
#[derive(Debug)]
pub struct Fsx {
    path: String,
    random: Random,
    limits: Limits,
    model: Vec<u8>,
    /// Two opens of the file. Changes through one are visible through the other.
    files: [OwnedFd; 2],
    log: VecDeque<Done>,
    number: u64,
    counts: BTreeMap<Call, u64>,
    missing: BTreeMap<Call, Errno>,
}

impl Fsx {
    /// Creates or truncates the file.
    pub fn new(path: &str, seed: u64, limits: Limits) -> Result<Self> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
        let open = |flags| {
            let opened = raw::open(path, flags, 0o644);
            opened.map_err(|errno| anyhow::anyhow!("{path}: {}", names::of_error(errno)))
        };
        Ok(Self {
            path: path.into(),
            random: Random::new(seed),
            limits,
            model: Vec::new(),
            files: [open(flags)?, open(libc::O_RDWR)?],
            log: VecDeque::new(),
            number: 0,
            counts: BTreeMap::new(),
            missing: BTreeMap::new(),
        })
    }

    /// Runs until a limit is reached. Returns a summary, or an error with the difference and the
    /// calls before it.
    pub fn run(&mut self) -> Result<String> {
        let begun = Instant::now();
        let is_over = |limit: Option<Duration>| limit.is_some_and(|limit| begun.elapsed() > limit);
        while self.number < self.limits.calls && !is_over(self.limits.time) {
            self.step()?;
        }
        self.log(Call::Compare, 0, self.model.len(), 0);
        self.reopen()?;
        self.compare()?;
        let counts: Vec<String> =
            self.counts.iter().map(|(call, count)| format!("{count} {call:?}")).collect();
        let mut said = format!("{} calls ({}), no difference", self.number, counts.join(", "));
        for (call, errno) in &self.missing {
            said += &format!("; {call:?} is {} here", names::of_error(*errno));
        }
        Ok(said)
    }

    fn step(&mut self) -> Result<()> {
        let call = self.random.weighted(CALLS);
        self.number += 1;
        *self.counts.entry(call).or_default() += 1;
        match call {
            Call::Read | Call::MapRead => self.look(call),
            Call::Write | Call::MapWrite | Call::Append => self.change(call),
            Call::Truncate => self.truncate(),
            Call::Allocate | Call::Punch | Call::Zero => self.allocate(call),
            Call::Copy => self.copy(),
            Call::Sync => {
                let which = self.random.below(2);
                self.log(call, 0, 0, which);
                let synced = match self.random.below(2) {
                    0 => raw::fsync(&self.files[which]),
                    _ => raw::fdatasync(&self.files[which]),
                };
                self.must(synced)
            }
            Call::Stat => {
                self.log(call, 0, 0, 0);
                self.check_length()
            }
            Call::Reopen => {
                self.log(call, 0, 0, 0);
                self.reopen()
            }
            Call::Compare => {
                self.log(call, 0, self.model.len(), 0);
                self.compare()
            }
        }
    }

    /// Returns a random offset and length within `end` bytes, sometimes at page boundaries.
    fn range(&mut self, end: usize) -> (usize, usize) {
        let mut offset = self.random.below(end.max(1));
        if self.random.below(4) == 0 {
            offset -= offset % PAGE;
        }
        let most = (end - offset).clamp(1, TRANSFER_MAX);
        let mut length = 1 + self.random.below(most);
        if self.random.below(4) == 0 && length > PAGE {
            length -= length % PAGE;
        }
        (offset, length.min(end - offset))
    }

    fn look(&mut self, call: Call) -> Result<()> {
        if self.model.is_empty() {
            return Ok(());
        }
        let (offset, length) = self.range(self.model.len());
        let which = self.random.below(2);
        self.log(call, offset, length, which);
        let mut into = vec![0xee; length];
        if call == Call::Read {
            // There must be no bytes after the end.
            let mut more = vec![0xee; length + 100];
            let count = self.read_all(which, &mut more, offset)?;
            let expected = (self.model.len() - offset).min(more.len());
            if count != expected {
                return self.differs(format!(
                    "reading {} at {offset} brings {count} bytes, not {expected}",
                    more.len()
                ));
            }
            into = more;
            into.truncate(count);
        } else {
            self.check_length()?;
            let start = offset - offset % PAGE;
            let at = (start as i64, offset - start + length);
            match Map::new(&self.files[which], at, libc::PROT_READ, libc::MAP_SHARED) {
                Ok(map) => map.read(offset - start, &mut into),
                Err(errno) => return self.cannot(call, errno),
            }
        }
        self.judge(offset, &into)
    }

    fn read_all(&mut self, which: usize, into: &mut [u8], offset: usize) -> Result<usize> {
        let mut length = 0;
        while length < into.len() {
            let at = (offset + length) as i64;
            match raw::pread(&self.files[which], &mut into[length..], at) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(errno) => return self.must(Err(errno)).map(|()| 0),
            }
        }
        Ok(length)
    }

    fn change(&mut self, call: Call) -> Result<()> {
        let which = self.random.below(2);
        let (offset, length) = match call {
            Call::MapWrite if self.model.is_empty() => return Ok(()),
            Call::MapWrite => self.range(self.model.len()),
            Call::Append => {
                let room = self.limits.length_max - self.model.len();
                (self.model.len(), 1 + self.random.below(TRANSFER_MAX).min(room))
            }
            _ => self.range(self.limits.length_max),
        };
        if length == 0 || offset + length > self.limits.length_max {
            return Ok(());
        }
        let data = self.data(offset, length);
        self.log(call, offset, length, which);
        match call {
            Call::MapWrite => {
                self.check_length()?;
                let start = offset - offset % PAGE;
                let at = (start as i64, offset - start + length);
                let both = libc::PROT_READ | libc::PROT_WRITE;
                let map = match Map::new(&self.files[which], at, both, libc::MAP_SHARED) {
                    Ok(map) => map,
                    Err(errno) => return self.cannot(call, errno),
                };
                map.write(offset - start, &data);
                if self.random.below(4) == 0 {
                    self.must(map.sync())?;
                }
            }
            Call::Append => {
                let flags = libc::O_WRONLY | libc::O_APPEND;
                let file = raw::open(&self.path, flags, 0);
                let file = file.map_err(|errno| self.failure(errno))?;
                self.write_all(&file, &data, None)?;
                self.must(raw::close(file))?;
            }
            _ => {
                let file = raw::dup(&self.files[which]).map_err(|errno| self.failure(errno))?;
                self.write_all(&file, &data, Some(offset))?;
            }
        }
        if self.model.len() < offset + length {
            self.model.resize(offset + length, 0);
        }
        self.model[offset..offset + length].copy_from_slice(&data);
        Ok(())
    }

    fn write_all(&mut self, file: &OwnedFd, data: &[u8], offset: Option<usize>) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let written = match offset {
                Some(offset) => raw::pwrite(file, &data[done..], (offset + done) as i64),
                None => raw::write(file, &data[done..]),
            };
            match written {
                Ok(0) => return self.differs("a write writes nothing".into()),
                Ok(count) => done += count,
                Err(errno) => return self.must(Err(errno)),
            }
        }
        Ok(())
    }

    /// Returns bytes that identify the call that wrote them.
    fn data(&self, offset: usize, length: usize) -> Vec<u8> {
        let call = (self.number as u8).wrapping_mul(37);
        (offset..offset + length).map(|at| (call ^ (at as u8) ^ (at >> 8) as u8) | 1).collect()
    }

    fn truncate(&mut self) -> Result<()> {
        let length = match self.random.below(8) {
            0 => 0,
            1 => self.model.len() - self.model.len() % PAGE,
            _ => self.random.below(self.limits.length_max),
        };
        let (before, which) = (self.model.len(), self.random.below(3));
        self.log(Call::Truncate, length, 0, before);
        let cut = match which {
            2 => raw::truncate(&self.path, length as i64),
            which => raw::ftruncate(&self.files[which], length as i64),
        };
        self.must(cut)?;
        self.model.resize(length, 0);
        self.check_length()
    }

    fn allocate(&mut self, call: Call) -> Result<()> {
        let (offset, length) = self.range(self.limits.length_max);
        if length == 0 || self.missing.contains_key(&call) {
            return Ok(());
        }
        let keeps = call == Call::Punch || self.random.below(2) == 0;
        let mut mode = if keeps { libc::FALLOC_FL_KEEP_SIZE } else { 0 };
        match call {
            Call::Punch => mode |= libc::FALLOC_FL_PUNCH_HOLE,
            Call::Zero => mode |= libc::FALLOC_FL_ZERO_RANGE,
            _ => {}
        }
        let which = self.random.below(2);
        self.log(call, offset, length, usize::from(keeps));
        let done = raw::fallocate(&self.files[which], mode, offset as i64, length as i64);
        if let Err(errno) = done {
            return self.cannot(call, errno);
        }
        let end = offset + length;
        if !keeps && end > self.model.len() {
            self.model.resize(end, 0);
        }
        if call != Call::Allocate {
            let end = end.min(self.model.len());
            let start = offset.min(end);
            self.model[start..end].fill(0);
        }
        self.check_length()
    }

    fn copy(&mut self) -> Result<()> {
        if self.model.is_empty() {
            return Ok(());
        }
        let (from, length) = self.range(self.model.len());
        let to = self.random.below((self.limits.length_max - length).max(1));
        if from.abs_diff(to) < length || length == 0 {
            return Ok(());
        }
        self.log(Call::Copy, to, length, from);
        let (mut source, mut target) = (from as i64, to as i64);
        let mut done = 0;
        while done < length {
            let [one, other] = &self.files;
            let copied =
                raw::copy_file_range((one, &mut source), (other, &mut target), length - done);
            match copied {
                Ok(0) => return self.differs(format!("copied {done} of {length}")),
                Ok(count) => done += count,
                Err(errno) if done == 0 => return self.cannot(Call::Copy, errno),
                Err(errno) => return self.must(Err(errno)),
            }
        }
        if self.model.len() < to + length {
            self.model.resize(to + length, 0);
        }
        self.model.copy_within(from..from + length, to);
        Ok(())
    }

    fn reopen(&mut self) -> Result<()> {
        let which = self.random.below(2);
        let opened = raw::open(&self.path, libc::O_RDWR, 0).map_err(|e| self.failure(e))?;
        let before = std::mem::replace(&mut self.files[which], opened);
        self.must(raw::close(before))?;
        self.check_length()
    }

    fn compare(&mut self) -> Result<()> {
        self.check_length()?;
        let mut all = vec![0xee; self.model.len()];
        let which = self.random.below(2);
        let count = self.read_all(which, &mut all, 0)?;
        if count != all.len() {
            return self.differs(format!("{count} bytes can be read of {}", all.len()));
        }
        self.judge(0, &all)
    }

    fn check_length(&mut self) -> Result<()> {
        let which = self.random.below(3);
        let found = match which {
            2 => raw::stat(&self.path),
            which => raw::fstat(&self.files[which]),
        };
        let found = found.map_err(|errno| self.failure(errno))?;
        if found.st_size == self.model.len() as i64 {
            return Ok(());
        }
        self.differs(format!("the file is {} bytes long, not {}", found.st_size, self.model.len()))
    }

    /// Compares bytes that were read with the model.
    fn judge(&self, offset: usize, got: &[u8]) -> Result<()> {
        let expected = &self.model[offset..offset + got.len()];
        if got == expected {
            return Ok(());
        }
        let is_other = |index: &usize| got[*index] != expected[*index];
        let first = (0..got.len()).find(is_other).unwrap_or(0);
        let count = (0..got.len()).filter(is_other).count();
        let show = |data: &[u8]| format!("{:02x?}", &data[first..(first + 16).min(data.len())]);
        bail!(
            "{count} bytes differ in {} at {offset}; the first at {}: expected {}, got {}\n{}",
            got.len(),
            offset + first,
            show(expected),
            show(got),
            self.history(Some(offset + first))
        )
    }

    fn must(&self, outcome: Result<(), Errno>) -> Result<()> {
        outcome.map_err(|errno| self.failure(errno))
    }

    fn failure(&self, errno: Errno) -> anyhow::Error {
        anyhow::anyhow!("{}\n{}", names::of_error(errno), self.history(None))
    }

    fn differs(&self, how: String) -> Result<()> {
        bail!("{how}\n{}", self.history(None))
    }

    /// Notes that a file system does not support an optional call.
    fn cannot(&mut self, call: Call, errno: Errno) -> Result<()> {
        self.log.pop_back();
        if errno != libc::EOPNOTSUPP && errno != libc::ENODEV && errno != libc::EXDEV {
            return self.differs(format!("{call:?}: {}", names::of_error(errno)));
        }
        self.missing.insert(call, errno);
        Ok(())
    }

    fn log(&mut self, call: Call, offset: usize, length: usize, other: usize) {
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back(Done { number: self.number, call, offset, length, other });
    }

    /// Describes what may have caused a difference at a byte: all changes to it, and the last
    /// calls.
    fn history(&self, byte: Option<usize>) -> String {
        let mut text = String::from("what led there (call, offset, length, other):\n");
        let recent = self.log.len().saturating_sub(20);
        for (index, done) in self.log.iter().enumerate() {
            use Call::{Allocate, Append, Copy, MapWrite, Punch, Truncate, Write, Zero};
            let changes = matches!(
                done.call,
                Truncate | Write | MapWrite | Append | Copy | Allocate | Punch | Zero
            );
            let reach = done.offset..done.offset + done.length;
            let meets = byte.is_some_and(|byte| match done.call {
                Call::Truncate => done.offset <= byte || done.other <= byte,
                _ => reach.contains(&byte),
            });
            if changes && meets || index >= recent {
                let Done { number, call, offset, length, other } = done;
                text += &format!("  {number:>8} {call:?} {offset} {length} {other}\n");
            }
        }
        text
    }
}

/// The page size, at whose multiples errors are likely.
const PAGE: usize = 4096;
/// The maximum number of bytes per call.
const TRANSFER_MAX: usize = 150_000;
/// The maximum number of calls in the log.
const LOG_MAX: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(calls: u64) -> Limits {
        Limits { calls, time: None, length_max: 400_000 }
    }

    #[test]
    fn a_local_file_has_no_difference() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut fsx = Fsx::new(path.to_str().unwrap(), 1, limits(3000)).unwrap();
        let said = fsx.run().unwrap();
        assert!(said.contains("no difference"), "{said}");
    }

    #[test]
    fn an_byte_that_somebody_changes_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut fsx = Fsx::new(path.to_str().unwrap(), 2, limits(u64::MAX)).unwrap();
        while fsx.model.len() < 1000 {
            fsx.step().unwrap();
        }
        let other = raw::open(path.to_str().unwrap(), libc::O_WRONLY, 0).unwrap();
        let wrong = !fsx.model[500];
        raw::pwrite(&other, &[wrong], 500).unwrap();
        let difference = fsx.compare().unwrap_err().to_string();
        assert!(difference.starts_with("1 bytes differ"), "{difference}");
        assert!(difference.contains("the first at 500"), "{difference}");
    }
}

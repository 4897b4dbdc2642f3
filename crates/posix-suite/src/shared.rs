//! Makes random calls on one tree with many processes concurrently.
//!
//! Invariant: the result of a call is not predictable, but it must be one that POSIX allows. After
//! all processes have ended, names, link counts and records must be consistent.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::names;
use crate::random::Random;
use crate::raw::{self, Errno};
use crate::stress::{Limits, names_in};

/// One process of a concurrent run.
#[derive(Debug)]
pub struct Racer {
    root: String,
    index: usize,
    random: Random,
    appended: u64,
}

impl Racer {
    /// Makes the process with this number, which works in the shared directory.
    pub fn new(root: &str, index: usize, seed: u64) -> Self {
        Self { root: root.into(), index, random: Random::new(seed), appended: 0 }
    }

    /// Runs until a limit is reached. Returns the number of calls, or an error for a forbidden
    /// result.
    pub fn run(&mut self, limits: Limits) -> Result<u64> {
        let begun = Instant::now();
        let mut calls = 0;
        while calls < limits.calls && limits.time.is_none_or(|time| begun.elapsed() < time) {
            calls += 1;
            self.step().with_context(|| format!("call {calls}"))?;
        }
        std::fs::write(format!("{}/count-{}", self.root, self.index), self.appended.to_string())?;
        Ok(calls)
    }

    fn path(&mut self) -> String {
        let name = |random: &mut Random| format!("s{}", random.below(6));
        let mut path = format!("{}/tree", self.root);
        for _ in 0..=self.random.below(3) {
            path += &format!("/{}", name(&mut self.random));
        }
        path
    }

    fn step(&mut self) -> Result<()> {
        let (path, other) = (self.path(), self.path());
        let which = self.random.below(14);
        match which {
            8 => return self.list(&path),
            9 => return self.append(),
            _ => {}
        }
        let mut outcome = self.attempt(which, &path, &other);
        for _ in 0..RETRIES_MAX {
            if outcome == Err(libc::ESTALE) {
                outcome = self.attempt(which, &path, &other);
            }
        }
        self.allow(which, &path, outcome)
    }

    fn attempt(&mut self, which: usize, path: &str, other: &str) -> Result<(), Errno> {
        match which {
            0 => raw::mkdir(path, 0o755),
            1 => raw::rmdir(path),
            2 => raw::unlink(path),
            3 | 4 => raw::rename(path, other),
            5 => raw::link(path, other),
            6 => raw::symlink("s0", path),
            7 => raw::lstat(path).map(|_| ()),
            10 => raw::truncate(path, 512 * self.random.below(40) as i64),
            11 => self.read(path),
            // Renames nest directories. Without removals, the tree would become ever deeper.
            12 if self.random.below(16) == 0 => remove_whole(path),
            _ => self.write(path),
        }
    }

    fn allow(&self, which: usize, path: &str, outcome: Result<(), Errno>) -> Result<()> {
        match outcome {
            Ok(()) => Ok(()),
            Err(errno) if ALLOWED.contains(&errno) => Ok(()),
            Err(errno) => bail!("call of kind {which} on {path}: {}", names::of_error(errno)),
        }
    }

    fn list(&self, path: &str) -> Result<()> {
        let mut opened = raw::Directory::open(path);
        for _ in 0..RETRIES_MAX {
            if matches!(opened, Err(libc::ESTALE)) {
                opened = raw::Directory::open(path);
            }
        }
        let names = match opened {
            Ok(_) => names_in(path),
            Err(errno) => return self.allow(8, path, Err(errno)),
        };
        // The directory may have been removed. But a duplicate name is an error.
        match names {
            Err(error) if error.to_string().contains("twice") => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes a record at the offset in the file that is reserved for this process. All bytes of
    /// the record are equal.
    fn write(&mut self, path: &str) -> Result<(), Errno> {
        let file = raw::open(path, libc::O_CREAT | libc::O_WRONLY | libc::O_NOFOLLOW, 0o644)?;
        let record = vec![b'a' + self.index as u8 % 26; RECORD_BYTES];
        let at = self.random.below(40) * RECORD_BYTES;
        raw::pwrite(&file, &record, at as i64)?;
        raw::close(file)
    }

    fn read(&mut self, path: &str) -> Result<(), Errno> {
        let file = raw::open(path, libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK, 0)?;
        raw::pread(&file, &mut [0; 4 * RECORD_BYTES], 0).map(|_| ())
    }

    /// Appends a line of this process to the shared log.
    fn append(&mut self) -> Result<()> {
        let line = format!("{}:{}:{}\n", self.index, self.appended, "x".repeat(self.index));
        let path = format!("{}/log", self.root);
        let written = raw::open(&path, libc::O_CREAT | libc::O_WRONLY | libc::O_APPEND, 0o644)
            .and_then(|file| raw::write(&file, line.as_bytes()));
        let count = written.map_err(|errno| anyhow::anyhow!("log: {}", names::of_error(errno)))?;
        ensure!(count == line.len(), "log: {count} bytes of {} were written", line.len());
        self.appended += 1;
        Ok(())
    }
}

/// Removes a directory with its contents while other processes add to it.
fn remove_whole(path: &str) -> Result<(), Errno> {
    std::fs::remove_dir_all(path).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}

/// Checks the tree after all processes have ended.
pub fn check(root: &str, processes: usize) -> Result<()> {
    let mut next = vec![0u64; processes];
    let log = std::fs::read_to_string(format!("{root}/log")).unwrap_or_default();
    for line in log.lines() {
        let mut parts = line.split(':');
        let mut part = || parts.next().with_context(|| format!("log: {line:?} is torn"));
        let index: usize = part()?.parse().with_context(|| format!("log: {line:?}"))?;
        let number: u64 = part()?.parse().with_context(|| format!("log: {line:?}"))?;
        ensure!(part()?.len() == index && index < processes, "log: {line:?} is torn");
        ensure!(number == next[index], "log: {number} of {index}, not {}", next[index]);
        next[index] += 1;
    }
    for (index, count) in next.iter().enumerate() {
        let said = std::fs::read_to_string(format!("{root}/count-{index}")).unwrap_or_default();
        ensure!(said == count.to_string(), "log: {index} has appended {said}, {count} are there");
    }
    let mut links = BTreeMap::new();
    check_directory(&format!("{root}/tree"), &mut links)?;
    for (inode, (names, links, path)) in links {
        ensure!(names == links, "{path}: {names} names, and {links} links (inode {inode})");
    }
    Ok(())
}

/// For each object that is not a directory: the number of names found, the link count reported, and
/// one of the names.
type Links = BTreeMap<u64, (libc::nlink_t, libc::nlink_t, String)>;

fn check_directory(path: &str, links: &mut Links) -> Result<()> {
    let mut directories = 0;
    for name in names_in(path)? {
        let path = format!("{path}/{name}");
        let stat = raw::lstat(&path);
        let stat = stat.map_err(|errno| {
            anyhow::anyhow!("{path} is listed, and {} for lstat", names::of_error(errno))
        })?;
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFDIR => {
                directories += 1;
                check_directory(&path, links)?;
                continue;
            }
            libc::S_IFREG => check_records(&path, stat.st_size)?,
            _ => {}
        }
        links.entry(stat.st_ino).or_insert((0, stat.st_nlink, path)).0 += 1;
    }
    let told = raw::lstat(path).map_or(0, |stat| stat.st_nlink);
    // Some file systems do not count links of directories.
    ensure!(told == directories + 2 || told == 1, "{path}: {told} links, {directories} in it");
    Ok(())
}

fn check_records(path: &str, size: i64) -> Result<()> {
    let data = std::fs::read(path).with_context(|| path.to_string())?;
    ensure!(data.len() as i64 == size, "{path}: {} bytes of {size}", data.len());
    ensure!(data.len() % RECORD_BYTES == 0, "{path}: {} bytes are no records", data.len());
    for (index, record) in data.chunks(RECORD_BYTES).enumerate() {
        let is_whole = record.iter().all(|byte| *byte == record[0]);
        ensure!(is_whole, "{path}: record {index} is torn");
    }
    Ok(())
}

/// The errors that a call may return while other processes change the tree.
const ALLOWED: &[Errno] = &[
    libc::ENOENT,
    libc::EEXIST,
    libc::ENOTDIR,
    libc::EISDIR,
    libc::ENOTEMPTY,
    libc::EINVAL,
    libc::ELOOP,
    libc::EPERM,
];
/// The number of times that this program repeats a call that returns ESTALE. A network file system
/// may return ESTALE for a path that changed during its resolution, even after the kernel's retry.
const RETRIES_MAX: u32 = 4;
/// The size of a record in bytes.
const RECORD_BYTES: usize = 512;

//! Makes random calls on a private tree, like fsstress, and compares it with a model.
//!
//! Invariant: the tree belongs to one process, so each call has exactly one possible result, which
//! the model ([`crate::tree`]) predicts. The whole tree is compared regularly.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::names;
use crate::random::Random;
use crate::raw::{self, Directory, Errno};
use crate::tree::{Kind, NodeId, Tree};

/// The calls and their relative frequencies.
const CALLS: &[(Call, usize)] = &[
    (Call::Create, 12),
    (Call::MakeDirectory, 7),
    (Call::Symlink, 4),
    (Call::Link, 6),
    (Call::Unlink, 9),
    (Call::RemoveDirectory, 5),
    (Call::Rename, 12),
    (Call::Write, 14),
    (Call::Read, 10),
    (Call::Truncate, 6),
    (Call::Chmod, 3),
    (Call::Stat, 8),
    (Call::List, 5),
    (Call::SetAttribute, 3),
    (Call::GetAttribute, 3),
    (Call::Open, 3),
    (Call::Sync, 1),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Create,
    MakeDirectory,
    Symlink,
    Link,
    Unlink,
    RemoveDirectory,
    Rename,
    Write,
    Read,
    Truncate,
    Chmod,
    Stat,
    List,
    SetAttribute,
    GetAttribute,
    Open,
    Sync,
}

/// The limits of a run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of calls.
    pub calls: u64,
    /// The maximum duration of the run.
    pub time: Option<Duration>,
}

/// A run of one process on its own tree.
#[derive(Debug)]
pub struct Stress {
    root: String,
    random: Random,
    tree: Tree,
    /// The open files, with or without names.
    open: Vec<(NodeId, OwnedFd)>,
    log: VecDeque<String>,
    calls: u64,
    has_attributes: bool,
}

impl Stress {
    /// Starts with an empty directory.
    pub fn new(root: &str, seed: u64) -> Self {
        Self {
            root: root.into(),
            random: Random::new(seed),
            tree: Tree::default(),
            open: Vec::new(),
            log: VecDeque::new(),
            calls: 0,
            has_attributes: true,
        }
    }

    /// Runs until a limit is reached. Returns the number of calls, or an error with the difference
    /// and the calls before it.
    pub fn run(&mut self, limits: Limits) -> Result<u64> {
        let begun = Instant::now();
        while self.calls < limits.calls && limits.time.is_none_or(|time| begun.elapsed() < time) {
            let stepped = self.step();
            stepped.with_context(|| self.history())?;
            if self.calls.is_multiple_of(CALLS_BETWEEN_COMPARISONS) {
                self.compare().with_context(|| self.history())?;
            }
        }
        self.compare().with_context(|| self.history())?;
        Ok(self.calls)
    }

    fn history(&self) -> String {
        let log: Vec<&str> = self.log.iter().map(String::as_str).collect();
        format!("the last calls:\n  {}\nDIFFERENCE", log.join("\n  "))
    }

    fn path(&self, (directory, name): (&str, &str)) -> String {
        format!("{}{directory}/{name}", self.root)
    }

    fn place(&mut self) -> (String, String) {
        let mut directories = self.tree.directories();
        // Paths have a maximum length.
        directories.retain(|path| path.len() < DEEP);
        let directory = self.random.one_of(&directories).clone();
        // Use few names, so that calls often use the same name.
        let name = match self.random.below(20) {
            0 => format!("{}-{}", "long".repeat(50), self.random.below(3)),
            _ => format!("n{}", self.random.below(9)),
        };
        (directory, name)
    }

    fn step(&mut self) -> Result<()> {
        self.calls += 1;
        let mut call = self.random.weighted(CALLS);
        if call == Call::MakeDirectory && self.tree.directories().len() > DIRECTORIES_MAX {
            call = Call::RemoveDirectory;
        }
        let (directory, name) = self.place();
        let place = (&directory[..], &name[..]);
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back(format!("{} {call:?} {directory}/{name}", self.calls));
        match call {
            Call::Create
            | Call::MakeDirectory
            | Call::Symlink
            | Call::Link
            | Call::Unlink
            | Call::RemoveDirectory
            | Call::Rename => self.names(call, place),
            Call::Write | Call::Read | Call::Truncate | Call::Open => self.data(call, place),
            Call::Chmod | Call::Stat | Call::List => self.looks(call, place),
            Call::SetAttribute | Call::GetAttribute => self.attributes(call, place),
            Call::Sync => self.sync(),
        }
    }

    fn also(&mut self, text: &str) {
        if let Some(last) = self.log.back_mut() {
            *last += text;
        }
    }

    fn names(&mut self, call: Call, place: (&str, &str)) -> Result<()> {
        let path = self.path(place);
        let (expected, got) = match call {
            Call::Create => {
                let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
                let made = raw::open(&path, flags, 0o640);
                let id = self.tree.make(place, Kind::File(Vec::new()), 0o640);
                let (expected, got) = (id.map(|_| ()), made.as_ref().map(|_| ()).map_err(|e| *e));
                if let (Ok(id), Ok(file)) = (id, made) {
                    self.keep(id, file);
                }
                (expected, got)
            }
            Call::MakeDirectory => {
                let kind = Kind::Directory(BTreeMap::new());
                (self.tree.make(place, kind, 0o750).map(|_| ()), raw::mkdir(&path, 0o750))
            }
            Call::Symlink => {
                let text = format!("to-{}", self.random.below(1000));
                let made = raw::symlink(&text, &path);
                (self.tree.make(place, Kind::Link(text), 0o777).map(|_| ()), made)
            }
            Call::Unlink => (self.tree.unlink(place), raw::unlink(&path)),
            Call::RemoveDirectory => (self.tree.rmdir(place), raw::rmdir(&path)),
            _ => {
                let (directory, name) = self.place();
                let to = (&directory[..], &name[..]);
                self.also(&format!(" {directory}/{name}"));
                let other = self.path(to);
                match call {
                    Call::Link => (self.tree.link(place, to), raw::link(&path, &other)),
                    _ => (self.tree.rename(place, to), raw::rename(&path, &other)),
                }
            }
        };
        agree(expected, got)
    }

    /// Keeps a file open for a while.
    fn keep(&mut self, id: NodeId, file: OwnedFd) {
        if self.open.len() >= OPEN_MAX {
            let index = self.random.below(self.open.len());
            self.open.swap_remove(index);
        }
        self.open.push((id, file));
    }

    fn data(&mut self, call: Call, place: (&str, &str)) -> Result<()> {
        let (id, file) = if !self.open.is_empty() && self.random.below(3) == 0 {
            // Use an open file, which may have no name any more.
            let index = self.random.below(self.open.len());
            self.also(&format!(" (open {index})"));
            let (id, file) = &self.open[index];
            (*id, raw::dup(file).map_err(failure)?)
        } else {
            let opened = raw::open(&self.path(place), libc::O_RDWR | libc::O_NOFOLLOW, 0);
            let found = self.tree.find(place).and_then(|id| match self.tree.node(id).kind {
                Kind::File(_) => Ok(id),
                Kind::Directory(_) => Err(libc::EISDIR),
                Kind::Link(_) => Err(libc::ELOOP),
            });
            match (found, opened) {
                (Ok(id), Ok(file)) => (id, file),
                (found, opened) => return agree(found.map(|_| ()), opened.map(|_| ())),
            }
        };
        match call {
            Call::Write => self.write(id, &file)?,
            Call::Truncate => {
                let length = self.random.below(FILE_BYTES_MAX);
                self.also(&format!(" to {length}"));
                raw::ftruncate(&file, length as i64).map_err(failure)?;
                if let Some(data) = self.tree.node(id).data() {
                    data.resize(length, 0);
                }
            }
            Call::Open => {
                self.keep(id, file);
                return Ok(());
            }
            _ => {}
        }
        if call == Call::Read || self.random.below(4) == 0 {
            self.check_data(id, &file)?;
        }
        raw::close(file).map_err(failure)
    }

    fn write(&mut self, id: NodeId, file: &OwnedFd) -> Result<()> {
        let offset = self.random.below(FILE_BYTES_MAX);
        let length = 1 + self.random.below(WRITE_BYTES_MAX);
        self.also(&format!(" {length} at {offset}"));
        let byte = (self.calls % 255) as u8 + 1;
        let data = vec![byte; length];
        let mut done = 0;
        while done < length {
            let at = (offset + done) as i64;
            done += raw::pwrite(file, &data[done..], at).map_err(failure)?;
        }
        if let Some(model) = self.tree.node(id).data() {
            if model.len() < offset + length {
                model.resize(offset + length, 0);
            }
            model[offset..offset + length].copy_from_slice(&data);
        }
        Ok(())
    }

    fn check_data(&mut self, id: NodeId, file: &OwnedFd) -> Result<()> {
        let Some(expected) = self.tree.node(id).data() else { return Ok(()) };
        let mut got = vec![0xee; expected.len() + 10];
        let mut length = 0;
        while length < got.len() {
            match raw::pread(file, &mut got[length..], length as i64).map_err(failure)? {
                0 => break,
                count => length += count,
            }
        }
        ensure!(length == expected.len(), "{length} bytes, not {}", expected.len());
        let first = (0..length).find(|index| got[*index] != expected[*index]);
        if let Some(first) = first {
            bail!("byte {first} of {length} is {}, not {}", got[first], expected[first]);
        }
        Ok(())
    }

    fn looks(&mut self, call: Call, place: (&str, &str)) -> Result<()> {
        let path = self.path(place);
        let found = self.tree.find(place);
        match call {
            Call::List => match self.tree.at(place.0) {
                Some(id) => self.check_names(id, &format!("{}{}", self.root, place.0)),
                None => Ok(()),
            },
            Call::Stat => match (found, raw::lstat(&path)) {
                (Ok(id), Ok(stat)) => self.check_stat(id, &stat),
                (found, stat) => agree(found.map(|_| ()), stat.map(|_| ())),
            },
            _ => {
                // The mode of a symbolic link cannot be changed.
                let is_link =
                    found.is_ok_and(|id| matches!(self.tree.node(id).kind, Kind::Link(_)));
                if is_link {
                    return Ok(());
                }
                let mode = 0o700 | self.random.below(0o100) as u32;
                let changed = raw::chmod(&path, mode);
                if let (Ok(id), Ok(())) = (found, changed) {
                    self.tree.node(id).mode = mode;
                }
                agree(found.map(|_| ()), changed)
            }
        }
    }

    fn check_stat(&mut self, id: NodeId, stat: &raw::Stat) -> Result<()> {
        let node = self.tree.node(id);
        let (kind, size) = match &node.kind {
            Kind::File(data) => (libc::S_IFREG, Some(data.len())),
            Kind::Directory(_) => (libc::S_IFDIR, None),
            Kind::Link(text) => (libc::S_IFLNK, Some(text.len())),
        };
        ensure!(stat.st_mode & libc::S_IFMT == kind, "mode {:o}, not {kind:o}", stat.st_mode);
        if let Some(size) = size {
            ensure!(stat.st_size == size as i64, "size {}, not {size}", stat.st_size);
            ensure!(stat.st_nlink == node.links, "{} names, not {}", stat.st_nlink, node.links);
        }
        let mode = stat.st_mode & 0o7777;
        let is_same = kind == libc::S_IFLNK || mode == node.mode;
        ensure!(is_same, "mode {mode:o}, not {:o}", node.mode);
        Ok(())
    }

    fn check_names(&mut self, id: NodeId, path: &str) -> Result<()> {
        let expected: BTreeSet<String> = self
            .tree
            .node(id)
            .names()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect();
        let got = names_in(path)?;
        ensure!(got == expected, "{path}: names {got:?}, not {expected:?}");
        Ok(())
    }

    fn attributes(&mut self, call: Call, place: (&str, &str)) -> Result<()> {
        let Ok(id) = self.tree.find(place) else { return Ok(()) };
        if !self.has_attributes || matches!(self.tree.node(id).kind, Kind::Link(_)) {
            return Ok(());
        }
        let path = self.path(place);
        let name = format!("user.a{}", self.random.below(3));
        self.also(&format!(" {name}"));
        if call == Call::GetAttribute {
            let kept = self.tree.node(id).attributes.get(&name).cloned();
            let got = raw::getxattr(&path, &name, 1000);
            return agree(kept.ok_or(libc::ENODATA), got);
        }
        if self.random.below(3) == 0 {
            let was = self.tree.node(id).attributes.remove(&name);
            return agree(was.map(|_| ()).ok_or(libc::ENODATA), raw::removexattr(&path, &name));
        }
        let value = vec![b'v'; self.random.below(200)];
        match raw::setxattr(&path, &name, &value, 0) {
            Ok(()) => {
                self.tree.node(id).attributes.insert(name, value);
            }
            Err(libc::EOPNOTSUPP) if self.tree.node(id).attributes.is_empty() => {
                self.has_attributes = false;
            }
            Err(errno) => return Err(failure(errno)),
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let index = self.random.below(self.open.len());
        raw::fsync(&self.open[index].1).map_err(failure)
    }

    /// Compares the whole tree and all open files.
    fn compare(&mut self) -> Result<()> {
        let open = &self.open;
        self.tree.forget_lost(|id| open.iter().any(|(kept, _)| *kept == id));
        for directory in self.tree.directories() {
            let path = format!("{}{directory}", self.root);
            let Some(id) = self.tree.at(&directory) else { continue };
            self.check_names(id, &path)?;
            let names: Vec<(String, NodeId)> = self
                .tree
                .node(id)
                .names()
                .into_iter()
                .flatten()
                .map(|(n, i)| (n.clone(), *i))
                .collect();
            for (name, id) in names {
                let path = format!("{path}/{name}");
                self.compare_object(id, &path).with_context(|| path)?;
            }
        }
        for (id, file) in std::mem::take(&mut self.open) {
            let stat = raw::fstat(&file).map_err(failure)?;
            self.check_stat(id, &stat).context("what is open")?;
            self.check_data(id, &file).context("what is open")?;
            self.open.push((id, file));
        }
        Ok(())
    }

    fn compare_object(&mut self, id: NodeId, path: &str) -> Result<()> {
        let stat = raw::lstat(path).map_err(failure)?;
        self.check_stat(id, &stat)?;
        match self.tree.node(id).kind.clone() {
            Kind::File(_) => {
                let file = raw::open(path, libc::O_RDONLY, 0).map_err(failure)?;
                self.check_data(id, &file)?;
            }
            Kind::Link(text) => {
                let got = raw::readlink(path, 4096).map_err(failure)?;
                ensure!(got == text.as_bytes(), "leads to {got:?}, not {text}");
            }
            Kind::Directory(_) => {}
        }
        Ok(())
    }
}

fn failure(errno: Errno) -> anyhow::Error {
    anyhow::anyhow!(names::of_error(errno))
}

fn agree<T: PartialEq>(expected: Result<T, Errno>, got: Result<T, Errno>) -> Result<()> {
    let say = |outcome: &Result<T, Errno>| match outcome {
        Ok(_) => "success".into(),
        Err(errno) => names::of_error(*errno),
    };
    let (wanted, came) = (say(&expected), say(&got));
    ensure!(wanted == came, "expected {wanted}, got {came}");
    ensure!(expected == got, "another value");
    Ok(())
}

/// Returns the names in a directory. Fails if a name appears twice.
pub(crate) fn names_in(path: &str) -> Result<BTreeSet<String>> {
    let mut directory = Directory::open(path).map_err(failure)?;
    let mut names = BTreeSet::new();
    while let Some((name, _)) = directory.next_entry().map_err(failure)? {
        let is_dots = name == "." || name == "..";
        ensure!(is_dots || names.insert(name.clone()), "{path}: {name} comes twice");
    }
    Ok(names)
}

/// The number of calls between two full comparisons.
const CALLS_BETWEEN_COMPARISONS: u64 = 1000;
/// The maximum length of the path of a directory in which objects are created.
const DEEP: usize = 500;
/// The number of directories above which directories are removed instead of created.
const DIRECTORIES_MAX: usize = 60;
/// The maximum number of open files.
const OPEN_MAX: usize = 6;
/// The maximum number of calls in the log.
const LOG_MAX: usize = 60;
/// The maximum offset in bytes of a write, and the maximum length of a truncated file.
const FILE_BYTES_MAX: usize = 60_000;
/// The maximum number of bytes per write.
const WRITE_BYTES_MAX: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_tree_has_no_difference() {
        let directory = tempfile::tempdir().unwrap();
        let mut stress = Stress::new(directory.path().to_str().unwrap(), 1);
        assert_eq!(stress.run(Limits { calls: 4000, time: None }).unwrap(), 4000);
    }

    #[test]
    fn a_name_that_somebody_removes_is_missed() {
        let directory = tempfile::tempdir().unwrap();
        let mut stress = Stress::new(directory.path().to_str().unwrap(), 2);
        stress.run(Limits { calls: 300, time: None }).unwrap();
        let found = std::fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
        std::fs::rename(&found, directory.path().join("elsewhere")).unwrap();
        let difference = format!("{:#}", stress.compare().unwrap_err());
        assert!(difference.contains("elsewhere"), "{difference}");
    }
}

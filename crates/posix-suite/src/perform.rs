//! Executes the calls of a table in this process.
//!
//! Invariant: each call makes exactly the C library call with the same name, and returns its error
//! unchanged. Exceptions are `make` and the calls that count or compare.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use anyhow::{Result, bail, ensure};

use crate::names;
use crate::raw::{self, Directory, Errno, Map, Stat};
use crate::{bytes, perform_files, perform_names};

/// The reason why a call has no result.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The call failed with this error number.
    Errno(Errno),
    /// The table contains an invalid call.
    Misuse(String),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Failure::Errno(errno)
    }
}

/// The result of a call as text.
pub type Brought = Result<String, Failure>;

/// The open files of one process.
#[derive(Debug, Default)]
pub struct Performer {
    pub(crate) files: BTreeMap<String, OwnedFd>,
    pub(crate) directories: BTreeMap<String, Directory>,
    pub(crate) positions: BTreeMap<String, i64>,
    pub(crate) maps: BTreeMap<String, Map>,
    pub(crate) marks: BTreeMap<String, Stat>,
    pub(crate) children: BTreeMap<String, std::process::Child>,
    pub(crate) sockets: Vec<std::os::unix::net::UnixListener>,
}

impl Drop for Performer {
    fn drop(&mut self) {
        for child in self.children.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// All calls, each with its name and its minimum and maximum number of arguments.
const CALLS: &[(&str, usize, usize)] = &[
    ("make", 2, 3),
    ("create", 2, 2),
    ("put", 2, 2),
    ("mkdir", 2, 2),
    ("mkfifo", 2, 2),
    ("mknod", 3, 5),
    ("bind", 1, 1),
    ("link", 2, 2),
    ("linkat", 3, 3),
    ("symlink", 2, 2),
    ("readlink", 1, 2),
    ("rename", 2, 2),
    ("renameat2", 3, 3),
    ("unlink", 1, 1),
    ("unlinkat", 2, 2),
    ("rmdir", 1, 1),
    ("chmod", 2, 2),
    ("fchmod", 2, 2),
    ("lchmod", 2, 2),
    ("chown", 3, 3),
    ("lchown", 3, 3),
    ("fchown", 3, 3),
    ("truncate", 2, 2),
    ("ftruncate", 2, 2),
    ("utimens", 3, 4),
    ("futimens", 3, 3),
    ("stat", 2, 2),
    ("lstat", 2, 2),
    ("fstat", 2, 2),
    ("same", 2, 2),
    ("access", 2, 2),
    ("faccess", 2, 3),
    ("umask", 1, 1),
    ("chdir", 1, 1),
    ("fchdir", 1, 1),
    ("mark", 1, 1),
    ("newer", 2, 2),
    ("unchanged", 2, 2),
    ("statvfs", 2, 2),
    ("open", 2, 4),
    ("openat", 3, 5),
    ("close", 1, 1),
    ("dup", 2, 2),
    ("read", 2, 2),
    ("pread", 3, 3),
    ("write", 2, 2),
    ("pwrite", 3, 3),
    ("content", 1, 1),
    ("lseek", 3, 3),
    ("fallocate", 4, 4),
    ("fsync", 1, 1),
    ("fdatasync", 1, 1),
    ("copyrange", 5, 5),
    ("setlk", 4, 4),
    ("setlkw", 4, 4),
    ("getlk", 4, 4),
    ("ofdlk", 4, 4),
    ("flock", 2, 2),
    ("getfl", 1, 1),
    ("setxattr", 3, 4),
    ("fsetxattr", 3, 3),
    ("getxattr", 2, 3),
    ("fgetxattr", 2, 2),
    ("listxattr", 1, 2),
    ("removexattr", 2, 2),
    ("list", 1, 1),
    ("count", 1, 1),
    ("fill", 3, 3),
    ("drain", 3, 3),
    ("nest", 2, 2),
    ("opendir", 2, 2),
    ("readdir", 1, 1),
    ("rest", 1, 1),
    ("telldir", 2, 2),
    ("seekdir", 2, 2),
    ("rewinddir", 1, 1),
    ("closedir", 1, 1),
    ("mmap", 4, 4),
    ("peek", 3, 3),
    ("poke", 3, 3),
    ("msync", 1, 1),
    ("munmap", 1, 1),
    ("copy", 2, 2),
    ("run", 1, 2),
    ("spawn", 3, 3),
    ("reap", 1, 1),
];

/// Fails if the call does not exist or has the wrong number of arguments.
pub fn check(words: &[String]) -> Result<()> {
    let Some(name) = words.first() else { bail!("no call") };
    let Some((_, least, most)) = CALLS.iter().find(|(known, _, _)| known == name) else {
        bail!("there is no call {name}");
    };
    let count = words.len() - 1;
    ensure!((*least..=*most).contains(&count), "{name} takes {least} to {most} words");
    Ok(())
}

impl Performer {
    /// Executes a call and returns its result.
    pub fn perform(&mut self, words: &[&str]) -> Brought {
        let brought = perform_names::perform(self, words)
            .or_else(|| perform_files::perform(self, words))
            .or_else(|| crate::perform_more::perform(self, words));
        brought.unwrap_or_else(|| Err(misuse(format!("{words:?} is no call"))))
    }

    pub(crate) fn file(&self, name: &str) -> Result<&OwnedFd, Failure> {
        self.files.get(name).ok_or_else(|| misuse(format!("no file {name} is open")))
    }

    pub(crate) fn directory(&mut self, name: &str) -> Result<&mut Directory, Failure> {
        let found = self.directories.get_mut(name);
        found.ok_or_else(|| misuse(format!("no directory {name} is open")))
    }
}

/// Returns the failure that reports a mistake in the table of test cases.
pub(crate) fn misuse(text: impl Into<String>) -> Failure {
    Failure::Misuse(text.into())
}

/// Parses a number: decimal, octal (0755), negative, or with a unit (4k, 3M, 5G).
pub(crate) fn number(text: &str) -> Result<i64, Failure> {
    let wrong = || misuse(format!("{text} is no number"));
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        Some(b'T') => (&text[..text.len() - 1], 1 << 40),
        _ => (text, 1),
    };
    let is_octal = digits.len() > 1 && digits.starts_with('0');
    let value = if is_octal { i64::from_str_radix(digits, 8) } else { digits.parse() };
    value.map_err(|_| wrong())?.checked_mul(unit).ok_or_else(wrong)
}

/// Parses an id. The value -1 means "unchanged".
pub(crate) fn id(text: &str) -> Result<u32, Failure> {
    let value = number(text)?;
    u32::try_from(value & 0xffff_ffff).map_err(|_| misuse("no user or group"))
}

pub(crate) fn mode(text: &str) -> Result<u32, Failure> {
    u32::try_from(number(text)?).map_err(|_| misuse("no mode"))
}

pub(crate) fn size(text: &str) -> Result<usize, Failure> {
    usize::try_from(number(text)?).map_err(|_| misuse("no size"))
}

pub(crate) fn flags(text: &str) -> Result<i32, Failure> {
    names::open_flags(text).ok_or_else(|| misuse(format!("{text}: no flags")))
}

/// Converts success without a value.
pub(crate) fn nothing(outcome: raw::Outcome<()>) -> Brought {
    outcome?;
    Ok("ok".into())
}

/// Converts bytes to the notation of the tables.
pub(crate) fn shown(data: &[u8]) -> String {
    bytes::to_text(data)
}

//! What was served, what was not, and why: counted, and told at the end to who asked for it.
//!
//! Invariant: counting takes no lock and no memory.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config;

macro_rules! counted {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Call {
            $($(#[$doc])* $name,)+
        }

        const NAMES: &[&str] = &[$($text,)+];
    };
}

counted! {
    /// Opened.
    Open = "open",
    /// Closed.
    Close = "close",
    /// Read.
    Read = "read",
    /// Written.
    Write = "write",
    /// Looked at, or asked about.
    Look = "stat, access, readlink",
    /// Listed.
    List = "opendir, readdir",
    /// Names changed.
    Name = "rename, link, unlink, mkdir, ...",
    /// Attributes set.
    Set = "chmod, chown, utimens, truncate",
    /// Made to last.
    Sync = "fsync",
    /// Descriptors copied and set.
    Descriptor = "dup, fcntl, ioctl, lseek",
    /// Locked.
    Lock = "fcntl and flock locks",
    /// Mapped.
    Map = "mmap by copy",
    /// Streams of the C library.
    Stream = "fopen and standard streams",
    /// Working directory.
    Directory = "chdir, getcwd",
    /// Programs and their like.
    Program = "exec of a program in DAFS",
}

macro_rules! missed {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// What was not served, and why.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Miss {
            $($(#[$doc])* $name,)+
        }

        const REASONS: &[&str] = &[$($text,)+];
    };
}

missed! {
    /// A path over the border.
    Out = "paths that lead out of DAFS by .. or a symbolic link: the kernel served them",
    /// Kinds of mappings.
    Mapping = "mmap that a copy cannot stand for: refused",
    /// Memory that others share already.
    Elsewhere = "mmap of memory that another host or user shares: EAGAIN",
    /// Flags and requests.
    Refused = "calls that failed in DAFS with an error number",
    /// Watches.
    Watch = "inotify of a file in DAFS: EOPNOTSUPP",
    /// Rings.
    Ring = "io_uring was set up: the kernel serves it, to which files in DAFS are not open",
    /// Waiting.
    Epoll = "epoll of a file: EPERM, as for any file",
}

static SERVED: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];
static MISSED: [AtomicU64; REASONS.len()] = [const { AtomicU64::new(0) }; REASONS.len()];

/// Counts a call that was served.
#[inline]
pub fn served(call: Call) {
    SERVED[call as usize].fetch_add(1, Ordering::Relaxed);
}

/// Counts one that was not.
pub fn missed(miss: Miss) {
    MISSED[miss as usize].fetch_add(1, Ordering::Relaxed);
}

/// Tells it, if anybody asked and there is anything.
pub fn tell() {
    let Some(path) = &config::get().report else { return };
    let text = text();
    if text.is_empty() {
        return;
    }
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    // One write, so that processes do not tell into each other's words.
    if let Ok(mut file) = file {
        let _ = file.write_all(text.as_bytes());
    }
}

fn text() -> String {
    let mut text = String::new();
    for (heading, counts, names) in
        [("served", &SERVED[..], NAMES), ("not served", &MISSED[..], REASONS)]
    {
        for (count, name) in counts.iter().zip(names) {
            let count = count.swap(0, Ordering::Relaxed);
            if count != 0 {
                let _ = writeln!(text, "  {heading:<10} {count:>10}  {name}");
            }
        }
    }
    if text.is_empty() {
        return text;
    }
    let program = std::env::args().next().unwrap_or_default();
    format!("dafs: {program}, process {}:\n{text}", std::process::id())
}

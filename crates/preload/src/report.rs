//! Counts the calls that were served and, by reason, the calls that were not served. Writes a
//! report at the end if one is requested.
//!
//! Invariant: counting takes no lock and allocates no memory.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config;

macro_rules! counted {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// The kinds of served calls that are counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Call {
            $($(#[$doc])* $name,)+
        }

        const NAMES: &[&str] = &[$($text,)+];
    };
}

counted! {
    Open = "open",
    Close = "close",
    Read = "read",
    Write = "write",
    /// Queries of attributes and symbolic links.
    Look = "stat, access, readlink",
    List = "opendir, readdir",
    /// Changes of names.
    Name = "rename, link, unlink, mkdir, ...",
    /// Changes of attributes.
    Set = "chmod, chown, utimens, truncate",
    Sync = "fsync",
    /// Duplicated and configured descriptors.
    Descriptor = "dup, fcntl, ioctl, lseek",
    Lock = "fcntl and flock locks",
    /// Mappings.
    Map = "mmap by copy",
    /// C library streams.
    Stream = "fopen and standard streams",
    /// The working directory.
    Directory = "chdir, getcwd",
    /// Started programs.
    Program = "exec of a program in DAFS",
}

macro_rules! missed {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// The kinds of calls that were not served.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Miss {
            $($(#[$doc])* $name,)+
        }

        const REASONS: &[&str] = &[$($text,)+];
    };
}

missed! {
    /// A path that leads out of DAFS.
    Out = "paths that lead out of DAFS by .. or a symbolic link: the kernel served them",
    /// A mapping that this library does not support.
    Mapping = "mmap that a copy cannot stand for: refused",
    /// A mapping of a file whose memory another host or user shares already.
    Elsewhere = "mmap of memory that another host or user shares: EAGAIN",
    /// A call that failed in DAFS.
    Refused = "calls that failed in DAFS with an error number",
    /// A watch (inotify) of a file.
    Watch = "inotify of a file in DAFS: EOPNOTSUPP",
    /// A ring for asynchronous I/O (`io_uring`).
    Ring = "io_uring was set up: the kernel serves it and does not know files in DAFS",
    /// A file that was added to an epoll set.
    Epoll = "epoll of a file: EPERM, as for any file",
}

static SERVED: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];
static MISSED: [AtomicU64; REASONS.len()] = [const { AtomicU64::new(0) }; REASONS.len()];

/// Counts a served call.
#[inline]
pub(crate) fn served(call: Call) {
    SERVED[call as usize].fetch_add(1, Ordering::Relaxed);
}

/// Counts a call that was not served.
pub(crate) fn missed(miss: Miss) {
    MISSED[miss as usize].fetch_add(1, Ordering::Relaxed);
}

/// Appends the report to its file, if one is configured and anything was counted.
pub(crate) fn write() {
    let Some(path) = &config::get().report else { return };
    let text = text();
    if text.is_empty() {
        return;
    }
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    // Use a single write, so that the reports of several processes are not interleaved.
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

//! A process that cleans up after a benchmark, however the benchmark ends.
//!
//! The benchmark starts the keeper first. Through a pipe, the benchmark reports each directory and
//! each mount that it makes. All processes that the benchmark starts are in the keeper's process
//! group, which is not the terminal's foreground group. When the benchmark ends, the pipe closes.
//! Then the keeper kills the processes of the group, unmounts the mounts and removes the
//! directories.
//!
//! Invariant: the keeper ends only processes in its own group, and removes only directories that
//! were reported as made and not reported as gone.

use std::io::{BufRead, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpgrp, kill_process_group, pidfd_open, pidfd_send_signal,
};
use serde::{Deserialize, Serialize};

/// Proof that the keeper runs. Dropping the value ends the keeper, which then cleans up.
#[must_use]
pub(crate) struct Kept(());

/// The keeper's process, as the benchmark sees it.
struct Keeper {
    child: Child,
    orders: ChildStdin,
}

/// A message to the keeper, one per line.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// A directory was made.
    Made(PathBuf),
    /// A directory was removed.
    Gone(PathBuf),
    /// A file system will be mounted on this directory.
    Mounting(PathBuf),
}

static KEEPER: Mutex<Option<Keeper>> = Mutex::new(None);

/// Starts the keeper of this process, which must not have a keeper yet.
pub(crate) fn start() -> Result<Kept> {
    let mut child = Command::new("/proc/self/exe")
        .args(["bench-peer", "keep"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .context("starting the process that cleans up")?;
    let orders = child.stdin.take().context("the process that cleans up has no input")?;
    *keeper() = Some(Keeper { child, orders });
    Ok(Kept(()))
}

/// Puts the process of a command into the keeper's process group, or into a new group if there is
/// no keeper. A signal from the terminal then reaches only this process. This process ends the
/// command.
pub(crate) fn join(command: &mut Command) {
    let group = keeper().as_ref().map_or(0, |keeper| keeper.child.id());
    command.process_group(group.cast_signed());
}

/// Tells the keeper that a file system will be mounted on the directory.
pub(crate) fn mounting(directory: &Path) -> Result<()> {
    tell(&Order::Mounting(directory.to_owned()))
}

/// A temporary directory that other users cannot enter. Dropping the value removes the directory.
pub(crate) struct Scratch(Option<tempfile::TempDir>);

impl Scratch {
    /// Makes a directory beneath `place`, or in the directory for temporary files.
    pub(crate) fn new(prefix: &str, place: Option<&Path>) -> Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(prefix).permissions(std::fs::Permissions::from_mode(0o700));
        let made = match place {
            Some(place) => builder.tempdir_in(place),
            None => builder.tempdir(),
        };
        let made = made.context("making a temporary directory")?;
        tell(&Order::Made(made.path().to_owned()))?;
        Ok(Self(Some(made)))
    }

    pub(crate) fn path(&self) -> &Path {
        // The field is `None` only while the value is dropped.
        self.0.as_ref().map_or(Path::new(""), tempfile::TempDir::path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(directory) = self.0.take() else { return };
        let path = directory.path().to_owned();
        // If the directory cannot be removed now, it is not reported as gone, so the keeper tries
        // again later.
        if directory.close().is_ok() {
            let _ = tell(&Order::Gone(path));
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(Keeper { mut child, orders }) = keeper().take() else { return };
        drop(orders);
        // A failure to wait is ignored: nothing else can be done.
        let _ = child.wait();
    }
}

fn keeper() -> MutexGuard<'static, Option<Keeper>> {
    KEEPER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tell(order: &Order) -> Result<()> {
    let Some(Keeper { orders, .. }) = &mut *keeper() else { return Ok(()) };
    let line = serde_json::to_string(order)? + "\n";
    orders.write_all(line.as_bytes()).context("writing to the process that cleans up")
}

/// Runs in the keeper's process.
pub(crate) fn serve() -> Result<()> {
    if getpgrp() != rustix::process::getpid() {
        anyhow::bail!("this ends its process group, so it must lead one: a benchmark starts it");
    }
    for signal in IGNORED {
        // Register a handler that only sets an unused flag, so that the signal does not end the
        // process.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let (mut directories, mut mounts) = (Vec::new(), Vec::new());
    for line in std::io::stdin().lock().lines() {
        // An incomplete line means that the sender ended while writing it.
        let Ok(Ok(order)) = line.map(|line| serde_json::from_str(&line)) else { break };
        match order {
            Order::Made(path) => directories.push(path),
            Order::Gone(path) => directories.retain(|made| *made != path),
            Order::Mounting(path) => mounts.push(path),
        }
    }
    end_group();
    for mount in mounts.iter().rev() {
        // An error means that the file system is no longer mounted.
        let _ = dafs_fuse::unmount(mount, true);
    }
    for directory in directories.iter().rev() {
        if let Err(error) = std::fs::remove_dir_all(directory)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            eprintln!("dafs: {} is left behind: {error}", directory.display());
        }
    }
    Ok(())
}

/// Ends all other processes of this process's group: first with SIGTERM, later with SIGKILL.
fn end_group() {
    let group = getpgrp();
    if others(group).is_empty() {
        return;
    }
    let _ = kill_process_group(group, Signal::TERM);
    let _ = kill_process_group(group, Signal::CONT);
    if have_ended(group) {
        return;
    }
    for process in others(group) {
        let Ok(it) = pidfd_open(process, PidfdFlags::empty()) else { continue };
        // The process id may have been reused before the pidfd was opened, so check the group
        // again. The pidfd refers to one process, so a later reuse of the id does no harm.
        if others(group).contains(&process) {
            let _ = pidfd_send_signal(&it, Signal::KILL);
        }
    }
    have_ended(group);
}

/// Waits until all other processes of a group have ended. Returns false after a timeout.
fn have_ended(group: Pid) -> bool {
    let begun = Instant::now();
    while !others(group).is_empty() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(STEP);
    }
    true
}

/// Returns the ids of all running processes of a group, except this process.
fn others(group: Pid) -> Vec<Pid> {
    let own = rustix::process::getpid();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let processes = numbers.filter_map(Pid::from_raw).filter(|process| *process != own);
    let is_of_it = |process: &Pid| {
        let path = format!("/proc/{}/stat", process.as_raw_nonzero());
        std::fs::read_to_string(path).is_ok_and(|stat| is_in(&stat, group))
    };
    processes.filter(is_of_it).collect()
}

/// Parses /proc/PID/stat: true if the process is in the group and has not ended.
fn is_in(stat: &str, group: Pid) -> bool {
    // The name in parentheses may contain any character. After it come state, parent and group.
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let mut fields = rest.split_ascii_whitespace();
    let has_ended = fields.next().is_none_or(|state| matches!(state, "Z" | "X" | "x"));
    let its_group = fields.nth(1).and_then(|group| group.parse().ok());
    !has_ended && its_group == Some(group.as_raw_nonzero().get())
}

/// The signals that the keeper ignores: a terminal, or a process that ends the group, sends them.
const IGNORED: [i32; 4] = [
    signal_hook::consts::SIGINT,
    signal_hook::consts::SIGTERM,
    signal_hook::consts::SIGHUP,
    signal_hook::consts::SIGQUIT,
];
/// The time that processes have to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two checks whether the processes have ended.
const STEP: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_of_its_group_until_it_has_ended_whatever_its_name_is() {
        let group = Pid::from_raw(7).unwrap();
        assert!(is_in("9 (a) S 1 3 ) S 1 7 7 0 -1", group));
        assert!(!is_in("9 (a) S 1 7 ) S 1 8 7 0 -1", group));
        assert!(!is_in("9 (a) Z 1 7 7 0 -1", group));
        assert!(!is_in("9 (a", group) && !is_in("", group));
    }
}

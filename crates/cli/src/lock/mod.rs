//! `dafs lock`: holds a lock on a file while a command runs.
//!
//! Invariants:
//! - The command runs only while the lock is held. The lock is released as soon as the command has
//!   ended, even if a signal ended it.
//! - With --write, a command that fails does not change the file. If --autorecover is also given,
//!   no other failure changes it either.

pub(crate) mod command;
mod printed;

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File as LocalFile;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_client::{
    ClientError, File, LOCK_POLL_MAX, LockKind, LockOptions, OpenOptions, Session, SessionEvent,
    ShareAccess, Status, shown_path,
};

use self::command::{RunningCommand, Signals};
use self::printed::Printed;
use crate::place::{Access, open};
use crate::terminal_text::message;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The file to lock. It is created if it is missing.
    url: OsString,
    /// The command to run while the lock is held, and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Take a shared lock instead of an exclusive lock.
    #[arg(long, conflicts_with_all = ["autorecover", "write"])]
    shared: bool,
    /// Offset of the first byte to lock.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    offset: u64,
    /// Number of bytes to lock. Default: everything up to the end of the file, even if the file
    /// grows.
    #[arg(long, value_name = "BYTES")]
    length: Option<u64>,
    /// Mark the lock as broken if this process dies. Requests for a broken lock fail until a client
    /// has repaired the protected data and takes the lock with --repair.
    #[arg(long)]
    persistent: bool,
    /// Take over a broken lock and clear its broken state.
    #[arg(long)]
    repair: bool,
    /// Undo what was written under the lock if the command fails, or if this process or the server
    /// dies.
    #[arg(long)]
    autorecover: bool,
    /// Replace the content of the file by the output of the command, under the lock, after the
    /// command has succeeded. Until then the output is kept in memory, or beyond 8 MiB in an
    /// unnamed file in $TMPDIR. If this process or the server dies during the replacement, the file
    /// contains parts of both contents, unless --autorecover is given.
    #[arg(long, conflicts_with_all = ["offset", "length"])]
    write: bool,
    /// Fail immediately if another client has the lock.
    #[arg(short, long)]
    nonblock: bool,
    /// Fail if the lock is not granted within this time.
    #[arg(short, long, value_name = "SECONDS", conflicts_with = "nonblock")]
    timeout: Option<u64>,
    #[command(flatten)]
    access: Access,
}

/// Runs the command. The process exits with the command's status.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let signals = Signals::catch()?;
    let (session, path) = open(&arguments.url, &arguments.access)?;
    let access = if arguments.shared { ShareAccess::Read } else { ShareAccess::Both };
    let options = OpenOptions::write().access(access).create(!arguments.shared).mode(0o666);
    let file = session.open(&path, &options)?;
    let is_lost = watch_over(&session);
    if let Some(signal) = take(arguments, &file, &signals)? {
        // Closing the file also leaves the queue for the lock.
        file.close()?;
        session.disconnect()?;
        std::process::exit(128 + signal);
    }
    let ended = RunningCommand::start(&arguments.command, arguments.write, signals)
        .and_then(|held| hold(held, &session, &file, &is_lost, arguments.autorecover))
        .and_then(|(status, printed)| {
            if let Some(printed) = printed.filter(|_| status.success()) {
                hear(&session, &is_lost)?;
                let partly = || {
                    let url = shown_path(&arguments.url);
                    format!("replacing {url}, which may now contain part of the new content")
                };
                printed.replace(&file).with_context(partly)?;
            }
            Ok(status)
        });
    let (is_done, code) = match &ended {
        Ok(status) => (status.success(), code_of(*status)),
        Err(_) => (false, 1),
    };
    if is_lost.get() {
        ended?;
        bail!("{}: the lock was lost while the command ran", shown_path(&arguments.url));
    }
    if !is_done && arguments.autorecover {
        file.abort_lock(arguments.offset, length(arguments)).context("undoing what was written")?;
    }
    let has_failed = ended.as_ref().is_ok_and(|status| !status.success());
    if (!is_done && arguments.autorecover) || (has_failed && arguments.write) {
        eprintln!(
            "dafs: the command failed; {} is unchanged",
            message(&shown_path(&arguments.url))
        );
    }
    if !is_done && arguments.persistent && !arguments.autorecover {
        eprintln!(
            "dafs: the command failed; the lock is left to break. Check and repair the data, then \
            use dafs lock --repair"
        );
        ended?;
        // Exit without a message to the server, as if this process had died.
        std::process::exit(code);
    }
    file.unlock(arguments.offset, length(arguments)).context("releasing the lock")?;
    file.close()?;
    session.disconnect()?;
    ended?;
    std::process::exit(code);
}

/// Watches the session. The returned flag becomes true if a reconnect has lost the open file, and
/// with it the lock.
fn watch_over(session: &Session) -> Rc<Cell<bool>> {
    let is_lost = Rc::new(Cell::new(false));
    let noted = Rc::clone(&is_lost);
    session.on_event(move |event| {
        if let SessionEvent::Recovered { lost: 1.., .. } | SessionEvent::GaveUp { .. } = event {
            noted.set(true);
        }
    });
    is_lost
}

fn length(arguments: &Arguments) -> u64 {
    arguments.length.unwrap_or(u64::MAX)
}

/// Takes the lock. Returns the number of the signal if a signal ended the wait, else `None`.
fn take(arguments: &Arguments, file: &File, signals: &Signals) -> Result<Option<i32>> {
    let kind = if arguments.shared { LockKind::Shared } else { LockKind::Exclusive };
    let mut options = LockOptions::default();
    for (is_wanted, option) in [
        (arguments.persistent, LockOptions::PERSIST),
        (arguments.autorecover, LockOptions::AUTO_RECOVERY),
        (arguments.repair, LockOptions::REPAIR),
    ] {
        if is_wanted {
            options = options.with(option);
        }
    }
    let (offset, length) = (arguments.offset, length(arguments));
    let explain = |error| explain(&shown_path(&arguments.url), error);
    if arguments.nonblock || arguments.repair {
        return match file.try_lock(kind, offset, length, options).map_err(explain)? {
            Some(holder) => bail!(
                "{}: another client has locked bytes from {} on; `dafs locks` on the server's \
                host shows which one",
                shown_path(&arguments.url),
                holder.offset
            ),
            None => Ok(None),
        };
    }
    let deadline =
        arguments.timeout.and_then(|limit| Instant::now().checked_add(Duration::from_secs(limit)));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let turn = left.unwrap_or(LOCK_POLL_MAX).min(LOCK_POLL_MAX);
        match file.lock(kind, offset, length, options, Some(turn)) {
            // The server keeps this client's position in the queue if the next request comes soon.
            Err(ClientError::TimedOut) if left.is_none_or(|left| left > turn) => {}
            taken => return taken.map(|()| None).map_err(explain),
        }
        if let Some(signal) = signals.end() {
            return Ok(Some(signal));
        }
    }
}

/// Adds advice to an error that does not say what to do.
fn explain(url: &str, error: dafs_client::ClientError) -> anyhow::Error {
    let advice = match error.status() {
        Some(Status::LockBroken) => {
            "the client that held the lock has died: check and repair the data, then give --repair"
        }
        Some(Status::NotSupp) => {
            "the server supports such locks only with a journal (dafs serve --exactly-once \
            stable), and --autorecover only for exclusive locks"
        }
        Some(Status::Inval) => "the lock is no longer broken: another client has repaired it",
        _ => return anyhow::Error::from(error).context(format!("locking {url}")),
    };
    anyhow::anyhow!("locking {url}: {error}; {advice}")
}

/// Pings the server to renew the lease, and checks that the lock is still held.
fn hear(session: &Session, is_lost: &Cell<bool>) -> Result<()> {
    // Any message renews the lease.
    session.ping()?;
    if is_lost.get() {
        bail!("the server has forgotten the lock");
    }
    Ok(())
}

/// Keeps the session alive while the command runs, and ends the command if the lock is lost.
/// Returns the command's output, or `None` if the output was written into the file directly.
fn hold(
    mut held: RunningCommand,
    session: &Session,
    file: &File,
    is_lost: &Cell<bool>,
    writes_through: bool,
) -> Result<(ExitStatus, Option<Printed>)> {
    let heartbeat = || hear(session, is_lost);
    let mut attend = || -> Result<(ExitStatus, Option<Printed>)> {
        let mut printed = None;
        if let Some(output) = held.take_output() {
            let output = LocalFile::from(OwnedFd::from(output));
            if writes_through {
                printed::write_through(&output, file, heartbeat)?;
            } else {
                printed = Some(Printed::take(&output, heartbeat)?);
                held.has_work_afterwards();
            }
        }
        loop {
            match held.wait(HEARTBEAT)? {
                Some(status) => return Ok((status, printed)),
                None => heartbeat()?,
            }
        }
    };
    match attend() {
        Ok(ended) => Ok(ended),
        Err(error) => {
            // The output can no longer be used, or the lock is lost and the data is no longer
            // protected.
            held.end()?;
            Err(error.context("the command was ended"))
        }
    }
}

fn code_of(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    // The exit status that shells use.
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The interval of pings to the server, shorter than any practical lease.
const HEARTBEAT: Duration = Duration::from_secs(2);

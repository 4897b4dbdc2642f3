//! `dafs lock`: a lock on a file, held while a command runs.
//!
//! Invariant: the command runs only while the lock is held; with --autorecover and --write the
//! file has either what it held before or all that the command has written, whatever fails.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_client::{File, LockKind, LockOptions, OpenOptions, Session, ShareAccess, Status};

use crate::place::{Access, open};

/// Arguments of `dafs lock`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The file, which is made if it is missing.
    url: String,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Let others have shared locks, too.
    #[arg(long, conflicts_with_all = ["autorecover", "write"])]
    shared: bool,
    /// First octet locked.
    #[arg(long, value_name = "OCTETS", default_value_t = 0)]
    offset: u64,
    /// Octets locked. Default: all to the end of the file, wherever that comes to be.
    #[arg(long, value_name = "OCTETS")]
    length: Option<u64>,
    /// If this process dies, the lock breaks: nobody gets it before somebody has looked after
    /// what it protects (--repair).
    #[arg(long)]
    persistent: bool,
    /// Take over a lock that has broken, and end its being broken.
    #[arg(long)]
    repair: bool,
    /// What is written under the lock is taken back if the command fails, or this process or
    /// the server dies.
    #[arg(long)]
    autorecover: bool,
    /// What the command prints becomes the file's content, under the lock.
    #[arg(long, conflicts_with_all = ["offset", "length"])]
    write: bool,
    /// Fail at once if somebody else has the lock.
    #[arg(short, long)]
    nonblock: bool,
    /// Fail if the lock cannot be had for so long.
    #[arg(short, long, value_name = "SECONDS", conflicts_with = "nonblock")]
    timeout: Option<u64>,
    #[command(flatten)]
    access: Access,
}

/// Runs the command; the process ends as it has.
pub fn run(arguments: &Arguments) -> Result<()> {
    let (session, path) = open(&arguments.url, &arguments.access)?;
    let access = if arguments.shared { ShareAccess::Read } else { ShareAccess::Both };
    let options = OpenOptions { access, create: !arguments.shared, ..OpenOptions::write() };
    let file = session.open(&path, &options)?;
    take(arguments, &file)?;
    let ended = hold(arguments, &session, &file);
    let (is_done, code) = match &ended {
        Ok(status) => (status.success(), code_of(*status)),
        Err(_) => (false, 1),
    };
    if !is_done && arguments.autorecover {
        file.abort_lock(arguments.offset, length(arguments))
            .context("taking back what was written")?;
        eprintln!("dafs: the command has failed; {} is what it was", arguments.url);
    }
    if !is_done && arguments.persistent && !arguments.autorecover {
        eprintln!(
            "dafs: the command has failed; the lock is left to break. Look after the data, then \
             use dafs lock --repair"
        );
        ended?;
        // Without a word to the server: as if this process had died.
        std::process::exit(code);
    }
    file.unlock(arguments.offset, length(arguments)).context("giving the lock back")?;
    file.close()?;
    session.disconnect()?;
    ended?;
    std::process::exit(code);
}

fn length(arguments: &Arguments) -> u64 {
    arguments.length.unwrap_or(u64::MAX)
}

fn take(arguments: &Arguments, file: &File) -> Result<()> {
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
    let taken = if arguments.nonblock || arguments.repair {
        match file.try_lock(kind, offset, length, options) {
            Ok(Some(holder)) => bail!(
                "{}: somebody else has locked octets {} and on; `dafs locks` on its host tells who",
                arguments.url,
                holder.offset
            ),
            taken => taken.map(|_| ()),
        }
    } else {
        file.lock(kind, offset, length, options, arguments.timeout.map(Duration::from_secs))
    };
    taken.map_err(|error| explain(&arguments.url, error))
}

/// Adds what to do where that is not plain from what went wrong.
fn explain(url: &str, error: dafs_client::ClientError) -> anyhow::Error {
    let advice = match error.status() {
        Some(Status::LockBroken) => {
            "whoever had the lock has died: look after the data, then give --repair"
        }
        Some(Status::NotSupp) => {
            "the server serves such locks only with a journal (dafs serve --exactly-once stable), \
             and --autorecover only for exclusive ones"
        }
        Some(Status::Inval) => "nothing is broken there any more: somebody else has repaired it",
        _ => return anyhow::Error::from(error).context(format!("locking {url}")),
    };
    anyhow::anyhow!("locking {url}: {error}; {advice}")
}

/// Runs the command, and lets the server hear of us meanwhile.
fn hold(arguments: &Arguments, session: &Session, file: &File) -> Result<ExitStatus> {
    let (program, rest) = arguments.command.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(rest);
    if arguments.write {
        command.stdout(Stdio::piped());
    }
    let mut child = command.spawn().with_context(|| format!("starting {program}"))?;
    if arguments.write
        && let Err(error) = write_all(&mut child, file)
    {
        // Nobody takes what it prints any more.
        let _ = child.kill();
        let _ = child.wait();
        return Err(error);
    }
    let ended = watch(child);
    loop {
        match ended.recv_timeout(HEARTBEAT) {
            Ok(status) => return Ok(status?),
            // Leases are renewed by any message.
            Err(RecvTimeoutError::Timeout) => session.ping()?,
            Err(RecvTimeoutError::Disconnected) => bail!("the command's end was missed"),
        }
    }
}

/// Makes what a command prints the content of a file, durable and with nothing behind it.
fn write_all(child: &mut Child, file: &File) -> Result<()> {
    let mut from = child.stdout.take().context("the command prints nowhere")?;
    let mut octets = vec![0; BLOCK_BYTES];
    let mut at = 0;
    loop {
        let got = from.read(&mut octets).context("reading what the command prints")?;
        if got == 0 {
            break;
        }
        file.write_at(&octets[..got], at)?;
        at += got as u64;
    }
    file.set_len(at)?;
    Ok(file.commit()?)
}

fn watch(mut child: Child) -> Receiver<std::io::Result<ExitStatus>> {
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(child.wait()));
    ended
}

fn code_of(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    // As shells have it.
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Shorter than any lease that makes sense.
const HEARTBEAT: Duration = Duration::from_secs(2);
const BLOCK_BYTES: usize = 1 << 20;

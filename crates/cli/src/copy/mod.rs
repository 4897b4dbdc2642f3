//! `dafs cp`: trees between here and servers, or between servers.
//!
//! `walk` lists what is there, `run` makes the copies and compares them, `side` is one
//! end of a copy, `mover` moves the bytes; `tasks` keeps many files on their way at once,
//! on the caller's own thread.

mod mover;
mod open;
mod run;
mod side;
mod tasks;
mod walk;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, bail};
use clap::Args;
use dafs_client::{Client, ClientError, SessionOptions, process_umask, shown_path};
use indicatif::{ProgressBar, ProgressStyle};

use crate::place::{Access, Place, client, options};
use run::Run;
use side::same_file;

pub use mover::Mover;
pub use open::{is_output, read_next};
pub use side::Side;

/// Arguments of `dafs cp`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What to copy: local paths or URLs; the last one is the target.
    #[arg(required = true, num_args = 2..)]
    places: Vec<OsString>,
    /// Directories with all that is in them.
    #[arg(short, long)]
    recursive: bool,
    /// Give copies the modes of their sources as they are, whatever the umask says, and files and
    /// directories that were there as well.
    #[arg(short, long)]
    preserve: bool,
    /// Read both sides again afterwards and compare every byte.
    #[arg(long)]
    verify: bool,
    /// Bring every file to stable storage on the target server.
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    access: Access,
}

/// What to do beside copying.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras {
    /// Directories and special files come along as what they are.
    pub recursive: bool,
    /// Modes come along as they are.
    pub preserve: bool,
    pub verify: bool,
    pub sync: bool,
}

/// What a copy did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub files: u64,
    pub bytes: u64,
    /// Objects that could not be copied or compared; each was named.
    pub failed: u64,
    pub differing: u64,
    pub copying: Duration,
    pub verifying: Duration,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let client = client(&arguments.access)?;
    let mut mover = Mover::new(&client)?;
    let Some((target, sources)) = arguments.places.split_last() else { bail!("no target") };
    let into = side(&client, target, arguments)?;
    let is_directory = into.is_directory();
    if sources.len() > 1 && !is_directory {
        bail!(
            "{} is no directory, which several sources need; make it with dafs mkdir",
            shown_path(target)
        );
    }
    let (mut failed, mut differing) = (0, 0);
    let mut made = HashMap::new();
    for text in sources {
        match copy_operand(arguments, &mover, text, (&into, is_directory), &mut made) {
            Ok(outcome) => {
                failed += outcome.failed;
                differing += outcome.differing;
            }
            Err(error) if sources.len() == 1 => return Err(error),
            Err(error) => {
                eprintln!("dafs: {}", crate::shown::complaint(&error));
                failed += 1;
                // The error has left other files of this operand where they were: the server may
                // still take what it is to write to them from buffers of this mover, which count
                // as free by now. The next operand must not read into those. The client keeps
                // them until the last request is over.
                mover = Mover::new(&client)?;
            }
        }
    }
    match (failed, differing) {
        (0, 0) => Ok(()),
        (0, _) => bail!("{} differ after copying; see above", counted(differing, "file")),
        _ => bail!("{} failed; see above", counted(failed, "object")),
    }
}

/// Copies one of the sources to, or into, the target.
fn copy_operand(
    arguments: &Arguments,
    mover: &Mover,
    text: &OsStr,
    (into, is_directory): (&Side, bool),
    made: &mut HashMap<OsString, OsString>,
) -> Result<Outcome> {
    let shown = shown_path(text);
    let source = side(&mover.client, text, arguments)?;
    if source.is_directory() && !arguments.recursive {
        bail!("{shown} is a directory; give -r to copy it with all that is in it");
    }
    let ends_as_directory = |text: &OsStr| text.as_bytes().ends_with(b"/");
    if ends_as_directory(text) && !source.is_directory() {
        bail!("{shown} is no directory");
    }
    if into.ends_as_directory() && !is_directory && !source.is_directory() {
        bail!("{} is no directory; make it with dafs mkdir", into.name(OsStr::new("")));
    }
    // With a slash at its end a directory stands for what is in it.
    let contents = ends_as_directory(text) && source.is_directory();
    let into = into.clone();
    let target = if is_directory && !contents { into.below(&source.last_name()?) } else { into };
    let name =
        if !source.is_directory() && is_directory { Some(source.last_name()?) } else { None };
    // What one operand has just made is not for another one to replace.
    match name.as_ref().and_then(|name| made.get(name)) {
        Some(before) if before != text => {
            bail!("will not overwrite just-created {} with {shown}", target.name(OsStr::new("")))
        }
        Some(_) => {
            eprintln!("dafs: {shown} is given more than once");
            return Ok(Outcome::default());
        }
        None => {}
    }
    if source.is_same(&target) {
        return Err(same_file(&source, &target, OsStr::new("")));
    }
    if source.is_directory() && target.is_beneath(&source) {
        bail!("cannot copy a directory, {shown}, into itself, {}", target.name(OsStr::new("")));
    }
    let Arguments { recursive, preserve, verify, sync, .. } = *arguments;
    let outcome = copy(mover, &source, &target, Extras { recursive, preserve, verify, sync })?;
    // One that failed has made nothing that another might not replace.
    made.extend(name.map(|name| (name, text.to_owned())));
    report(&source, &target, &outcome);
    Ok(outcome)
}

fn side(client: &Client, text: &OsStr, arguments: &Arguments) -> Result<Side> {
    Ok(match Place::parse(text)? {
        Place::Local(path) => Side::Local(path),
        Place::Remote(location) => {
            // A file on its way asks for several things at once.
            let credits = dafs_types::limits::CREDITS_MAX;
            let wanted = SessionOptions { credits, ..options(&location, &arguments.access)? };
            let session = client.connect(&arguments.access.tls.applied(&location), &wanted)?;
            Side::Remote(session, location.path)
        }
    })
}

fn report(source: &Side, target: &Side, outcome: &Outcome) {
    let seconds = outcome.copying.as_secs_f64().max(1e-9);
    let way: Vec<String> = [source, target]
        .iter()
        .filter_map(|side| match side {
            Side::Local(_) => None,
            Side::Remote(session, _) => Some(session.address().to_string()),
        })
        .collect();
    let mut line = format!(
        "{}, {} bytes in {seconds:.2} s, {:.0} MB/s over {}",
        counted(outcome.files, "file"),
        outcome.bytes,
        outcome.bytes as f64 / seconds / 1e6,
        if way.is_empty() { "local access".into() } else { way.join(" and ") },
    );
    if !outcome.verifying.is_zero() {
        let verdict = if outcome.differing + outcome.failed == 0 { "verified" } else { "compared" };
        line += &format!(", {verdict} in {:.2} s", outcome.verifying.as_secs_f64());
    }
    eprintln!("{line}");
}

fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Copies a tree, or one file.
pub fn copy(mover: &Mover, source: &Side, target: &Side, extras: Extras) -> Result<Outcome> {
    let mut tree = source.walk(&mover.client)?;
    if !extras.preserve {
        let umask = process_umask();
        tree.items.iter_mut().for_each(|item| item.mode &= !umask);
    }
    let bar = progress(tree.items.iter().map(|item| item.size).sum());
    let run = Run::new(mover, (source, target), &tree, &bar);
    let start = Instant::now();
    run.copy(extras)?;
    let copying = start.elapsed();
    let mut verifying = Duration::ZERO;
    if extras.verify {
        let start = Instant::now();
        bar.reset();
        run.compare()?;
        verifying = start.elapsed();
    }
    bar.finish_and_clear();
    Ok(Outcome { copying, verifying, ..run.outcome() })
}

/// Whether an error is the end of a session: nothing more can come of it.
fn is_end(error: &Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref()).any(|cause| {
        matches!(cause, ClientError::SessionEnded { .. } | ClientError::Protocol { .. })
    })
}

/// Whether an error says that a server has lost what it was given, and no more than that.
fn is_loss(error: &Error) -> bool {
    matches!(error.root_cause().downcast_ref(), Some(ClientError::DataLost { .. }))
}

fn progress(bytes: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(bytes);
    let template = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

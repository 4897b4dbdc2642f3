//! `dafs cp`: copies trees between this machine and servers, or between servers.
//!
//! `walk` lists the objects, `run` makes and compares the copies, `side` is one end of a copy, and
//! `mover` moves the bytes. `tasks` runs many files concurrently on the caller's thread.

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
use dafs_client::{Client, ClientError, process_umask, shown_path};
use indicatif::{ProgressBar, ProgressStyle};

use crate::place::{Access, Place, client, options};
use run::Run;
use side::same_file;

pub(crate) use mover::Mover;
pub(crate) use open::{is_output, read_next};
pub(crate) use side::Side;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What to copy: local paths or URLs. The last one is the target.
    #[arg(required = true, num_args = 2..)]
    places: Vec<OsString>,
    /// Copy directories with everything in them.
    #[arg(short, long)]
    recursive: bool,
    /// Give copies exactly the modes of their sources, whatever the umask. This includes files and
    /// directories that existed before.
    #[arg(short, long)]
    preserve: bool,
    /// Read both sides again afterwards and compare every byte.
    #[arg(long)]
    verify: bool,
    /// Flush every file to stable storage on the target server.
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    access: Access,
}

/// Options of a copy: recursion, modes, verification and flushing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras {
    /// True to copy directories recursively, and special files as special files.
    pub recursive: bool,
    /// True to copy modes without applying the umask.
    pub preserve: bool,
    pub verify: bool,
    pub sync: bool,
}

/// The numbers of objects and bytes that a copy has processed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub files: u64,
    pub bytes: u64,
    /// The number of objects that could not be copied or compared. The name of each was printed.
    pub failed: u64,
    pub differing: u64,
    pub copying: Duration,
    pub verifying: Duration,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let client = client(&arguments.access)?;
    let mut mover = Mover::new(&client)?;
    let Some((target, sources)) = arguments.places.split_last() else { bail!("no target") };
    let into = side(&client, target, arguments)?;
    let is_directory = into.is_directory();
    if sources.len() > 1 && !is_directory {
        bail!(
            "{} is not a directory, as several sources require; create it with dafs mkdir",
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
                eprintln!("dafs: {}", crate::terminal_text::complaint(&error));
                failed += 1;
                // The error dropped other files of this operand in mid-copy. The server may still
                // read from this mover's buffers to write those files, although the mover regards
                // the buffers as free, so the next operand must not reuse them. The client keeps
                // the memory until the last request has ended.
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

/// Copies one source to the target, or into the target if that is a directory.
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
        bail!("{shown} is a directory; give -r to copy it recursively");
    }
    let ends_as_directory = |text: &OsStr| text.as_bytes().ends_with(b"/");
    if ends_as_directory(text) && !source.is_directory() {
        bail!("{shown} is not a directory");
    }
    if into.ends_as_directory() && !is_directory && !source.is_directory() {
        bail!("{} is not a directory; create it with dafs mkdir", into.name(OsStr::new("")));
    }
    // A trailing slash on a directory stands for its contents.
    let contents = ends_as_directory(text) && source.is_directory();
    let into = into.clone();
    let target = if is_directory && !contents { into.below(&source.last_name()?) } else { into };
    let name =
        if !source.is_directory() && is_directory { Some(source.last_name()?) } else { None };
    // A source must not overwrite what another source of this command has just made.
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
    // The copy of a failed source needs no protection, because nothing was made.
    made.extend(name.map(|name| (name, text.to_owned())));
    report(&source, &target, &outcome);
    Ok(outcome)
}

fn side(client: &Client, text: &OsStr, arguments: &Arguments) -> Result<Side> {
    Ok(match Place::parse(text)? {
        Place::Local(path) => Side::Local(path),
        Place::Remote(location) => {
            // Each file in flight has several requests outstanding.
            let credits = dafs_types::limits::CREDITS_MAX;
            let wanted = options(&location, &arguments.access)?.credits(credits);
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

/// Copies a tree or one file.
pub(crate) fn copy(mover: &Mover, source: &Side, target: &Side, extras: Extras) -> Result<Outcome> {
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

/// True if the error means that the session has ended, so nothing more can be copied.
fn is_end(error: &Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref()).any(|cause| {
        matches!(cause, ClientError::SessionEnded { .. } | ClientError::Protocol { .. })
    })
}

/// True if the error only means that a server has lost data that it had accepted.
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

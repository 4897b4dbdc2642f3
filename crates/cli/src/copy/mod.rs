//! `dafs cp`: trees between here and servers, or between servers.
//!
//! `side` is one end of a copy, `walk` lists what is there, `mover` moves and compares
//! the octets of many files at once.

mod mover;
mod side;
mod walk;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};
use clap::Args;
use dafs_client::{Client, ClientConfig, ClientError, ObjectType};
use dafs_types::FileHandle;
use indicatif::{ProgressBar, ProgressStyle};

use crate::place::{Access, Place, connect_by};
use mover::{Ended, Flow, Purpose};
use walk::Item;

pub use mover::Mover;
use side::Directories;
pub use side::Side;

/// Arguments of `dafs cp`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What to copy: local paths or URLs; the last one is the target.
    #[arg(required = true, num_args = 2..)]
    places: Vec<String>,
    /// Directories with all that is in them.
    #[arg(short, long)]
    recursive: bool,
    /// Read both sides again afterwards and compare every octet.
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
    pub verify: bool,
    pub sync: bool,
}

/// What a copy did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub files: u64,
    pub bytes: u64,
    pub skipped: u64,
    /// Objects that could not be copied or compared; each was named.
    pub failed: u64,
    pub differing: u64,
    pub copying: Duration,
    pub verifying: Duration,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let client = Client::new(ClientConfig::default())?;
    let mut mover = Mover::new(&client)?;
    let Some((target, sources)) = arguments.places.split_last() else { bail!("no target") };
    let into = side(&client, target, arguments)?;
    let is_directory = into.is_directory();
    if sources.len() > 1 && !is_directory {
        bail!("{target} is no directory, which several sources need; make it with dafs mkdir");
    }
    let (mut failed, mut differing) = (0, 0);
    for text in sources {
        let source = side(&client, text, arguments)?;
        if source.is_directory() && !arguments.recursive {
            bail!("{text} is a directory; give -r to copy it with all that is in it");
        }
        // With a slash at its end a directory stands for what is in it.
        let contents = text.ends_with('/') && source.is_directory();
        let into = into.clone();
        let target = if is_directory && !contents { into.below(source.last_name()?) } else { into };
        let extras = Extras { verify: arguments.verify, sync: arguments.sync };
        let outcome = copy(&mut mover, &source, &target, extras)?;
        report(&source, &target, &outcome);
        failed += outcome.failed;
        differing += outcome.differing;
    }
    match (failed, differing) {
        (0, 0) => Ok(()),
        (0, _) => bail!("{differing} files differ after copying"),
        _ => bail!("{failed} objects failed; they are named above"),
    }
}

fn side(client: &Client, text: &str, arguments: &Arguments) -> Result<Side> {
    Ok(match Place::parse(text)? {
        Place::Local(path) => Side::Local(path),
        Place::Remote(location) => {
            Side::Remote(connect_by(client, &location, &arguments.access)?, location.path)
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
        "{} files, {} octets in {seconds:.2} s, {:.0} MB/s over {}",
        outcome.files,
        outcome.bytes,
        outcome.bytes as f64 / seconds / 1e6,
        if way.is_empty() { "local access".into() } else { way.join(" and ") },
    );
    if outcome.skipped > 0 {
        line += &format!(", {} special files skipped", outcome.skipped);
    }
    if !outcome.verifying.is_zero() {
        let verdict = if outcome.differing + outcome.failed == 0 { "verified" } else { "compared" };
        line += &format!(", {verdict} in {:.2} s", outcome.verifying.as_secs_f64());
    }
    eprintln!("{line}");
}

/// Copies a tree, or one file.
pub fn copy(mover: &mut Mover, source: &Side, target: &Side, extras: Extras) -> Result<Outcome> {
    let items = source.items()?;
    let bar = progress(items.iter().map(|item| item.size).sum());
    let copies = vec![None; items.len()];
    let outcome = Outcome::default();
    let mut run = Run { source, target, items: &items, copies, bar: &bar, outcome };
    let start = Instant::now();
    run.copy(mover, extras.sync)?;
    run.outcome.copying = start.elapsed();
    if extras.verify {
        let start = Instant::now();
        bar.reset();
        run.compare(mover)?;
        run.outcome.verifying = start.elapsed();
    }
    bar.finish_and_clear();
    Ok(run.outcome)
}

/// One copy of one tree.
struct Run<'r> {
    source: &'r Side,
    target: &'r Side,
    items: &'r [Item],
    /// Handles of the copies, as far as they are known.
    copies: Vec<Option<FileHandle>>,
    bar: &'r ProgressBar,
    outcome: Outcome,
}

impl Run<'_> {
    fn copy(&mut self, mover: &mut Mover, sync: bool) -> Result<()> {
        let mut directories = Directories::new();
        for (index, item) in self.items.iter().enumerate() {
            if let Err(error) = self.copy_item(mover, index, &mut directories) {
                // What cannot hold anything would fail with all that is in it, one by one.
                if item.path.is_empty() {
                    return Err(error).context(format!("copying to {}", self.target.name("")));
                }
                self.fail("copying", item, error)?;
            }
            while mover.is_full() {
                mover.turn(&mut |ended| self.on_copied(ended, sync))?;
            }
        }
        while !mover.is_empty() {
            mover.turn(&mut |ended| self.on_copied(ended, sync))?;
        }
        // Times of directories last: making what is in them changes them.
        for item in self.items.iter().rev().filter(|item| item.kind == ObjectType::Directory) {
            if let Err(error) = self.target.set_attributes(item) {
                self.fail("keeping mode and times of", item, error)?;
            }
        }
        Ok(())
    }

    fn copy_item(
        &mut self,
        mover: &mut Mover,
        index: usize,
        directories: &mut Directories,
    ) -> Result<()> {
        let item = &self.items[index];
        match item.kind {
            ObjectType::Directory => self.target.make_directory(item),
            ObjectType::SymbolicLink => self.target.make_link(item),
            ObjectType::Regular => {
                let from = self.source.open_to_read(item, item.handle)?;
                let to = self.target.open_to_write(item, directories)?;
                mover.start(Flow::new(Purpose::Copy, index, from, to, item.size));
                Ok(())
            }
            _ => {
                self.outcome.skipped += 1;
                Ok(())
            }
        }
    }

    fn on_copied(&mut self, ended: Ended, sync: bool) -> Result<()> {
        let Ended { flow, error } = ended;
        let (index, moved) = (flow.item, flow.moved);
        let item = &self.items[index];
        self.bar.inc(item.size);
        let completed = match error {
            Some(error) => Err(error),
            None => self.target.complete(item, flow.to, sync),
        };
        match completed {
            Ok(handle) => {
                self.copies[index] = handle;
                self.outcome.files += 1;
                self.outcome.bytes += moved;
                Ok(())
            }
            Err(error) => self.fail("copying", item, error),
        }
    }

    fn compare(&mut self, mover: &mut Mover) -> Result<()> {
        for (index, item) in self.items.iter().enumerate() {
            if let Err(error) = self.compare_item(mover, index) {
                self.fail("comparing", item, error)?;
            }
            while mover.is_full() {
                mover.turn(&mut |ended| self.on_compared(ended))?;
            }
        }
        while !mover.is_empty() {
            mover.turn(&mut |ended| self.on_compared(ended))?;
        }
        Ok(())
    }

    fn compare_item(&mut self, mover: &mut Mover, index: usize) -> Result<()> {
        let item = &self.items[index];
        match item.kind {
            ObjectType::SymbolicLink => {
                let is_same = self.target.read_link(&item.path)? == item.link;
                if !is_same {
                    self.differs(item);
                }
            }
            ObjectType::Regular => {
                let from = self.source.open_to_read(item, item.handle)?;
                let to = self.target.open_to_read(item, self.copies[index])?;
                // One octet more than there should be: neither may have it.
                mover.start(Flow::new(Purpose::Compare, index, from, to, item.size + 1));
            }
            _ => {}
        }
        Ok(())
    }

    fn on_compared(&mut self, ended: Ended) -> Result<()> {
        let item = &self.items[ended.flow.item];
        self.bar.inc(item.size);
        match ended.error {
            Some(error) => self.fail("comparing", item, error),
            None => {
                if ended.flow.differs || ended.flow.moved != item.size {
                    self.differs(item);
                }
                Ok(())
            }
        }
    }

    fn differs(&mut self, item: &Item) {
        eprintln!("differs: {}", self.target.name(&item.path));
        self.outcome.differing += 1;
    }

    /// Names an object that failed, to go on with the others; unless none can go on.
    fn fail(&mut self, doing: &str, item: &Item, error: Error) -> Result<()> {
        let error = error.context(format!("{doing} {}", self.source.name(&item.path)));
        let is_end = error.chain().filter_map(|cause| cause.downcast_ref()).any(|cause| {
            matches!(cause, ClientError::SessionEnded { .. } | ClientError::Protocol { .. })
        });
        if is_end {
            return Err(error).context("nothing more can be copied");
        }
        self.bar.suspend(|| eprintln!("dafs: {error:#}"));
        self.outcome.failed += 1;
        Ok(())
    }
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

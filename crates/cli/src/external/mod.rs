//! `dafs merge` and `dafs sort`: process files larger than memory, on this machine and on servers.
//!
//! Invariant: the output appears complete or not at all. Temporary files are gone when the process
//! ends for any reason, because they have no names, and a signal ends the work cleanly.

mod format;
pub(crate) mod merge;
mod places;
pub(crate) mod sort;
mod spool;

use std::cell::Cell;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_client::shown_path;
use dafs_extmem::{
    BlockFile, Budget, Flow, Format, MergeOptions, Stream, Watch, peak_resident_bytes,
};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::ignored::is_ignored;
use crate::place::{Access, Place};
use crate::serve::bytes;
use format::FormatArguments;
use places::{FileLocation, Places};
use spool::{spool, unsized_input};

/// The arguments of both commands.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Files to read: local paths or URLs. `-` is the standard input.
    #[arg(default_value = "-")]
    inputs: Vec<OsString>,
    /// File to write: a local path or a URL. It appears when it is complete, and may be one of the
    /// input files.
    #[arg(short, long, value_name = "FILE")]
    output: OsString,
    #[command(flatten)]
    format: FormatArguments,
    /// Write only the first of several records with the same key.
    #[arg(short, long)]
    unique: bool,
    /// The most memory the process may use, buffers included (K, M, G).
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    memory: String,
    /// Size of the blocks that are transferred (K, M). Blocks are smaller if the memory limit
    /// requires it.
    #[arg(long, value_name = "SIZE", default_value = "256K")]
    block: String,
    /// Blocks of each file in use or in flight: 2 is double buffering.
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    depth: u16,
    /// Transfer one block of each file at a time and wait for it, as --depth 1 does.
    #[arg(long, conflicts_with = "depth")]
    synchronous: bool,
    /// Directory for temporary files, on this machine or on a server. Default: the directory of the
    /// output.
    #[arg(long, value_name = "DIRECTORY")]
    temporary: Option<OsString>,
    /// Flush the output to stable storage before it gets its name.
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    access: Access,
}

/// A sort or merge to run, with all its files open.
struct Job {
    streams: Vec<Stream>,
    output: FileLocation,
    temporary: FileLocation,
    format: Format,
    options: MergeOptions,
    bar: ProgressBar,
    begun: Instant,
    is_durable: bool,
}

impl Job {
    fn prepare(arguments: &Arguments) -> Result<Self> {
        let begun = Instant::now();
        let format = arguments.format.understand(arguments.unique)?;
        let memory = size("--memory", &arguments.memory)?;
        let block_bytes = size("--block", &arguments.block)?;
        let depth = if arguments.synchronous { 1 } else { usize::from(arguments.depth) };
        let bar = progress();
        let watch = watch(&bar)?;
        let mut places = Places::new(&arguments.access, watch.clone())?;
        let inputs: Vec<FileLocation> =
            arguments.inputs.iter().map(|text| places.find(text)).collect::<Result<_>>()?;
        let output = places.find(&arguments.output)?;
        let is_local = |text: &OsString| matches!(Place::parse(text), Ok(Place::Local(_)));
        let temporary = match &arguments.temporary {
            Some(text) => places.find(text)?,
            None => output.parent(),
        };
        let open = |(spot, text): (&FileLocation, &OsString)| {
            let input = if is_local(text) { unsized_input(&spot.path)? } else { None };
            let file = match input {
                Some(input) => {
                    let file = temporary.engine.temporary(&temporary.path)?;
                    spool(&shown_path(&spot.path), &input, file, &watch)?
                }
                None => spot.engine.open(&spot.path)?,
            };
            Ok(Stream::whole(file)?)
        };
        let streams = inputs.iter().zip(&arguments.inputs).map(open).collect::<Result<Vec<_>>>()?;
        // Compute the budget after connecting, because the memory of connections counts.
        let budget = Budget::of_process(memory).context("--memory")?;
        let flow = Flow { block_bytes, depth };
        let options = MergeOptions { flow, budget, is_unique: arguments.unique, watch };
        let is_durable = arguments.sync;
        Ok(Self { streams, output, temporary, format, options, bar, begun, is_durable })
    }

    fn input_bytes(&self) -> u64 {
        self.streams.iter().map(Stream::len).sum()
    }

    /// Creates the output file, runs `work`, which fills it, and then gives the output its final
    /// name.
    fn run<T>(
        &self,
        work: impl FnOnce(&Temporary<'_>, Rc<dyn BlockFile>) -> dafs_extmem::Result<T>,
    ) -> Result<T> {
        let output = self.output.engine.create(&self.output.path)?;
        let temporary = || self.temporary.engine.temporary(&self.temporary.path);
        let done = work(&temporary, output.file());
        self.bar.finish_and_clear();
        let done = done?;
        output.publish(self.is_durable)?;
        Ok(done)
    }

    /// Prints a summary.
    fn report(&self, records: u64, bytes: u64, how: &str) {
        let seconds = self.begun.elapsed().as_secs_f64().max(1e-9);
        let noun = match self.format {
            Format::Records(_) => "records",
            Format::Lines(_) => "lines",
        };
        eprintln!(
            "{records} {noun}, {bytes} bytes in {seconds:.2} s, {:.0} MB/s, {how}; \
             {} MiB of memory at most",
            bytes as f64 / seconds / 1e6,
            peak_resident_bytes().div_ceil(1 << 20),
        );
    }
}

/// A function that creates a temporary file.
type Temporary<'t> = dyn Fn() -> dafs_extmem::Result<Rc<dyn BlockFile>> + 't;

fn size(option: &str, text: &str) -> Result<usize> {
    let size = usize::try_from(bytes(text).context(option.to_owned())?)?;
    if size == 0 {
        bail!("{option} must be at least one byte");
    }
    Ok(size)
}

/// Registers handlers that end the work at the first signal and the process at the second. Returns
/// a watch that checks for the signal and updates the progress bar.
fn watch(bar: &ProgressBar) -> Result<Watch> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)) {
        let listening = "listening for signals";
        signal_hook::flag::register_conditional_default(signal, stop.clone()).context(listening)?;
        signal_hook::flag::register(signal, stop.clone()).context(listening)?;
    }
    let watch = Watch::stopped_by(stop);
    if bar.is_hidden() {
        return Ok(watch);
    }
    let (bar, gathered) = (bar.clone(), Cell::new(0));
    Ok(watch.telling(move |bytes| {
        gathered.set(gathered.get() + bytes);
        bar.set_position(gathered.get());
    }))
}

fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let template = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

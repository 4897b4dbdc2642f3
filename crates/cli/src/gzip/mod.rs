//! `dafs gzip` and `dafs gunzip`: compress files on this machine and on servers, compatible with
//! gzip(1).
//!
//! Invariant: an output gets its name only when it is complete, and an input is removed only after
//! that.

mod decode;
mod encode;
mod output;
mod parallel;
mod source;
mod write_behind;

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use dafs_bench::own_cpu;
use dafs_client::{ClientError, Status, shown_path};
use dafs_types::Timestamp;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use self::encode::Encoded;
use self::output::Output;
use self::source::{IS_LINK, IS_STICKY, PassedOver, Source};
use crate::ignored::is_ignored;
use crate::place::{Access, Place, Sessions};
use crate::terminal_text::{complaint, message};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The files to process: local paths or URLs. `-` is the standard input.
    #[arg(default_value = "-")]
    files: Vec<OsString>,
    /// Write to standard output and keep the files.
    #[arg(short = 'c', long = "stdout", visible_alias = "to-stdout")]
    to_stdout: bool,
    /// Decompress the files instead of compressing them.
    #[arg(short, long, visible_alias = "uncompress")]
    decompress: bool,
    /// Test the integrity of compressed files, and write no output.
    #[arg(short, long)]
    test: bool,
    /// List the contents of compressed files. They are decompressed to find their sizes.
    #[arg(short, long, conflicts_with = "test")]
    list: bool,
    /// Keep the input files instead of removing them.
    #[arg(short, long)]
    keep: bool,
    /// Replace existing outputs, accept files with several hard links, write to a terminal.
    #[arg(short, long)]
    force: bool,
    /// Where to write the output of a single file: a local path or a URL. The input file is kept.
    #[arg(short, long, value_name = "PLACE", conflicts_with = "to_stdout")]
    output: Option<OsString>,
    /// Do not store the name and time in the compressed file.
    #[arg(short, long)]
    no_name: bool,
    /// Print for each file the percentage saved, the processor time of the compression, and the
    /// processor time of everything else.
    #[arg(short, long)]
    verbose: bool,
    /// Flush the output to stable storage before it gets its name. This always happens if the input
    /// is removed.
    #[arg(long, visible_alias = "synchronous")]
    sync: bool,
    /// Number of compressing threads. One thread compresses without splitting the file into blocks.
    #[arg(short = 'p', long, visible_alias = "processes", value_name = "COUNT",
          default_value_t = processors(), value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    #[command(flatten)]
    level: Level,
    #[command(flatten)]
    access: Access,
}

/// The compression level. The last option wins, as with gzip.
#[derive(Clone, Copy, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "gzip has nine such options")]
struct Level {
    /// Compress fastest.
    #[arg(short = '1', long = "fast", overrides_with_all = LEVELS)]
    one: bool,
    #[arg(short = '2', hide = true, overrides_with_all = LEVELS)]
    two: bool,
    #[arg(short = '3', hide = true, overrides_with_all = LEVELS)]
    three: bool,
    #[arg(short = '4', hide = true, overrides_with_all = LEVELS)]
    four: bool,
    #[arg(short = '5', hide = true, overrides_with_all = LEVELS)]
    five: bool,
    /// Compress at the default level, between fastest and smallest.
    #[arg(short = '6', overrides_with_all = LEVELS)]
    six: bool,
    #[arg(short = '7', hide = true, overrides_with_all = LEVELS)]
    seven: bool,
    #[arg(short = '8', hide = true, overrides_with_all = LEVELS)]
    eight: bool,
    /// Compress to the smallest size.
    #[arg(short = '9', long = "best", overrides_with_all = LEVELS)]
    nine: bool,
}

const LEVELS: [&str; 9] = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];

impl Level {
    fn number(self) -> u32 {
        let Self { one, two, three, four, five, six, seven, eight, nine } = self;
        let given = [one, two, three, four, five, six, seven, eight, nine];
        given.iter().zip(1..).find_map(|(is_given, number)| is_given.then_some(number)).unwrap_or(6)
    }
}

fn processors() -> u16 {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    u16::try_from(count).unwrap_or(u16::MAX).clamp(1, 256)
}

/// The action to perform on each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Compress,
    Decompress,
    Test,
    List,
}

/// The attributes of an input, to be set on its output.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attributes {
    /// The permission bits of the output.
    pub mode: Option<u32>,
    /// The time of the last change of the content.
    pub modified: Option<Timestamp>,
}

/// `dafs gunzip`: the same as `dafs gzip --decompress`.
pub(crate) fn gunzip(arguments: Arguments) -> Result<()> {
    run(&Arguments { decompress: true, ..arguments })
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = match arguments {
        Arguments { list: true, .. } => Task::List,
        Arguments { test: true, .. } => Task::Test,
        Arguments { decompress: true, .. } => Task::Decompress,
        _ => Task::Compress,
    };
    if arguments.output.is_some() && arguments.files.len() > 1 {
        bail!("--output is for a single file");
    }
    let mut run = Run::new(arguments, task)?;
    if task == Task::List {
        println!("{:>19} {:>19} {:>6} name", "compressed", "uncompressed", "ratio");
    }
    let mut failures = 0;
    for file in &arguments.files {
        if let Err(error) = run.one(file) {
            if crate::is_broken_pipe(&error) {
                return Err(error);
            }
            eprintln!("dafs: {}: {}", message(&shown_path(file)), complaint(&error));
            failures += 1;
        }
        if run.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted; no incomplete output is left behind");
        }
    }
    if failures > 0 {
        bail!("{failures} of {} files: see above", arguments.files.len());
    }
    if run.has_warned {
        drop(run);
        // A warning has an exit status of its own, as with gzip.
        std::process::exit(WARNING);
    }
    Ok(())
}

/// One run of the command over its files.
struct Run<'a> {
    arguments: &'a Arguments,
    task: Task,
    sessions: Sessions<'a>,
    /// Set to true by the signals in [`ENDING`].
    interrupted: Arc<AtomicBool>,
    has_warned: bool,
}

impl<'a> Run<'a> {
    fn new(arguments: &'a Arguments, task: Task) -> Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in ENDING.into_iter().filter(|signal| !is_ignored(*signal)) {
            // A second signal ends the process immediately.
            let again = Arc::clone(&interrupted);
            signal_hook::flag::register_conditional_shutdown(signal, 130, again)?;
            signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
        }
        let sessions = Sessions::new(&arguments.access)?;
        Ok(Self { arguments, task, sessions, interrupted, has_warned: false })
    }

    fn one(&mut self, file: &OsStr) -> Result<()> {
        let (place, source) = match self.find(file) {
            Err(error) => {
                let passed = error.downcast::<PassedOver>()?;
                self.warn(&format!("{}: {passed}", shown_path(file)));
                return Ok(());
            }
            Ok(found) => found,
        };
        if place.is_some() && self.is_hindered(file, &source)? {
            return Ok(());
        }
        let Some(output) = self.output(place.as_ref(), &source)? else { return Ok(()) };
        let begun = own_cpu();
        let Encoded { lengths, compressing } = self.carry(file, &source, output)?;
        if self.replaces_input() && place.is_some() {
            source.remove()?;
        }
        if self.task == Task::List {
            list(file, lengths);
        } else if self.arguments.verbose {
            let spent = (own_cpu() - begun).saturating_sub(compressing);
            self.tell(file, lengths, compressing, spent);
        }
        Ok(())
    }

    /// Opens the named file. For decompression, also tries the name with each suffix.
    fn find(&mut self, file: &OsStr) -> Result<(Option<Place>, Source)> {
        if file == "-" {
            return Ok((None, Source::standard()));
        }
        let place = Place::parse(file)?;
        let found = self.open(&place);
        let is_compressing = self.task == Task::Compress;
        match found {
            Err(error)
                if is_missing(&error) && !is_compressing && decompressed_name(file).is_none() =>
            {
                for suffix in SUFFIXES {
                    let mut named = file.to_owned();
                    named.push(suffix);
                    let place = Place::parse(&named)?;
                    match self.open(&place) {
                        Err(error) if is_missing(&error) => {}
                        found => return Ok((Some(place), found?)),
                    }
                }
                Err(error)
            }
            found => Ok((Some(place), found?)),
        }
    }

    fn open(&mut self, place: &Place) -> Result<Source> {
        match place {
            Place::Local(path) => Source::local(path, !self.is_beside()),
            Place::Remote(location) => {
                Source::remote(&self.sessions.connect(location)?, &location.path)
            }
        }
    }

    /// True if the output is a new file next to the input.
    fn is_beside(&self) -> bool {
        let Arguments { to_stdout, output, .. } = self.arguments;
        matches!(self.task, Task::Compress | Task::Decompress) && !to_stdout && output.is_none()
    }

    /// Returns true if the file must be skipped, and prints a warning with the reason. Some reasons
    /// are errors instead, as with gzip(1).
    fn is_hindered(&mut self, file: &OsStr, source: &Source) -> Result<bool> {
        let file = shown_path(file);
        let force = self.arguments.force;
        match source.hindrance {
            _ if !self.is_beside() => return Ok(false),
            Some(IS_LINK) if !force => bail!(IS_LINK),
            Some(IS_LINK | IS_STICKY) if force => return Ok(false),
            Some(what) => self.warn(&format!("{file}: {what}")),
            None if source.link_count > 1 && !force => {
                let others = source.link_count - 1;
                self.warn(&format!("{file}: has {others} other names; give --force to process it"));
            }
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Prints the `--verbose` line to standard error, as gzip does.
    fn tell(&self, file: &OsStr, lengths: Lengths, compressing: Duration, beside: Duration) {
        let file = message(&shown_path(file));
        let beside = beside.as_secs_f64();
        let told = if self.task == Task::Compress {
            let saved = saved_share(lengths.output, lengths.input);
            let compressing = format_compression_time(compressing);
            format!("{file}: {saved:.1}% saved{compressing}, else {beside:.6} s\n")
        } else {
            let saved = saved_share(lengths.input, lengths.output);
            format!("{file}: {saved:.1}% had been saved; processor: {beside:.6} s\n")
        };
        print_error_line(&told);
    }

    /// True if the output replaces the input.
    fn replaces_input(&self) -> bool {
        self.is_beside() && !self.arguments.keep
    }

    /// Opens the output. Returns `None` if the file is skipped.
    fn output(&mut self, place: Option<&Place>, source: &Source) -> Result<Option<Output>> {
        let arguments = self.arguments;
        if matches!(self.task, Task::Test | Task::List) {
            return Ok(Some(Output::Nowhere));
        }
        let named = match (&arguments.output, place) {
            (Some(output), _) => Some(Place::parse(output)?),
            (None, Some(place)) if !arguments.to_stdout => match self.beside(place)? {
                Some(place) => Some(place),
                None => return Ok(None),
            },
            (None, _) => None,
        };
        let output = match named {
            None => {
                let is_compressed = self.task == Task::Compress;
                if is_compressed && !arguments.force && std::io::stdout().is_terminal() {
                    bail!(
                        "compressed data is not written to a terminal; give --force to write it \
                    anyway"
                    );
                }
                Output::Standard
            }
            Some(Place::Local(path)) => Output::local(path, source.attributes, arguments.force)?,
            Some(Place::Remote(location)) => {
                let session = self.sessions.connect(&location)?;
                Output::remote(&session, &location.path, source.attributes, arguments.force)?
            }
        };
        Ok(Some(output))
    }

    /// Returns the path for the output next to the input file, or `None` if the file is skipped.
    fn beside(&mut self, place: &Place) -> Result<Option<Place>> {
        let name = match place {
            Place::Local(path) => path.as_os_str(),
            Place::Remote(location) => &location.path,
        };
        let shown = shown_path(name);
        let has_suffix = name.as_bytes().ends_with(SUFFIX.as_bytes());
        let named = match self.task {
            Task::Compress if has_suffix && !self.arguments.force => {
                self.warn(&format!("{shown}: has the suffix {SUFFIX} already; left as it is"));
                return Ok(None);
            }
            Task::Compress => {
                let mut named = name.to_owned();
                named.push(SUFFIX);
                named
            }
            _ => match decompressed_name(name) {
                Some(named) => named,
                None => {
                    self.warn(&format!("{shown}: has no known suffix; left as it is"));
                    return Ok(None);
                }
            },
        };
        Ok(Some(match place {
            Place::Local(_) => Place::Local(PathBuf::from(named)),
            Place::Remote(location) => {
                let mut location = location.clone();
                location.path = named;
                Place::Remote(location)
            }
        }))
    }

    fn warn(&mut self, what: &str) {
        eprintln!("dafs: {}", message(what));
        self.has_warned = true;
    }

    /// Reads the input, writes the output and gives the output its final name.
    fn carry(&mut self, file: &OsStr, source: &Source, output: Output) -> Result<Encoded> {
        let syncs = self.arguments.sync || self.replaces_input();
        let (task, arguments) = (self.task, self.arguments);
        let interrupted = Arc::clone(&self.interrupted);
        let mut garbage = None;
        let encoded = source.read(&interrupted, |reader| {
            output.write(|writer| {
                if task == Task::Compress {
                    let header = encode::Header::of(source, arguments.no_name);
                    let (level, workers) = (arguments.level.number(), arguments.workers.into());
                    return encode::compress(reader, writer, &header, level, workers);
                }
                let passes = task == Task::Decompress && arguments.force && arguments.to_stdout;
                let decoded = decode::decompress(reader, writer, passes)?;
                garbage = decoded.garbage_at;
                Ok(Encoded { lengths: decoded.lengths, compressing: Duration::ZERO })
            })
        })?;
        output.finish(source.attributes, arguments.force, syncs)?;
        if let Some(offset) = garbage {
            let file = shown_path(file);
            self.warn(&format!("{file}: data after byte {offset} is not compressed; ignored"));
        }
        Ok(encoded)
    }
}

fn is_missing(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref().map(std::io::Error::kind);
    let status = error.downcast_ref().and_then(ClientError::status);
    io == Some(std::io::ErrorKind::NotFound) || status == Some(Status::NoEnt)
}

/// Compresses with one worker and discards the output, for measurements.
pub(crate) fn compress_in_memory(bytes: &[u8], level: u32) -> Result<()> {
    let header = encode::Header::default();
    encode::compress(&mut &*bytes, &mut std::io::sink(), &header, level, 1).map(drop)
}

/// Prints a line with a single write, so that lines of other processes cannot be mixed into it.
pub(crate) fn print_error_line(line: &str) {
    // A failure to print is not worth ending the process.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Returns the text with which `--verbose` reports the processor time of the compression.
pub(crate) fn format_compression_time(time: Duration) -> String {
    format!("{COMPRESSING}{:.6} s", time.as_secs_f64())
}

/// Parses the processor time of the compression from a line that `--verbose` printed.
pub(crate) fn parse_compression_time(line: &str) -> Option<Duration> {
    let (_, told) = line.rsplit_once(COMPRESSING)?;
    told.split(' ').next()?.parse().ok().map(Duration::from_secs_f64)
}

/// The numbers of bytes read and written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lengths {
    /// The number of bytes read.
    pub input: u64,
    /// The number of bytes written.
    pub output: u64,
}

fn list(file: &OsStr, Lengths { input, output }: Lengths) {
    let saved = saved_share(input, output);
    let name = decompressed_name(file).unwrap_or_else(|| file.to_owned());
    let mut out = std::io::stdout().lock();
    // A closed standard output is detected when the next file is written.
    let _ = writeln!(out, "{input:>19} {output:>19} {saved:>5.1}% {}", message(&shown_path(&name)));
}

/// Returns the percentage that compression has saved.
fn saved_share(compressed: u64, plain: u64) -> f64 {
    if plain == 0 { 0.0 } else { 100.0 - 100.0 * compressed as f64 / plain as f64 }
}

/// Returns the name of a compressed file without its suffix, or `None` if it has no such suffix.
fn decompressed_name(name: &OsStr) -> Option<OsString> {
    let name = name.as_bytes();
    let base = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    let plain = SUFFIXES.map(|suffix| (suffix, ""));
    for (suffix, instead) in plain.into_iter().chain([(".tgz", ".tar"), (".taz", ".tar")]) {
        if base.len() > suffix.len() && base.ends_with(suffix.as_bytes()) {
            let whole = [&name[..name.len() - suffix.len()], instead.as_bytes()].concat();
            return Some(OsString::from_vec(whole));
        }
    }
    None
}

const SUFFIX: &str = ".gz";
/// The suffixes of compressed files that gzip(1) tries.
const SUFFIXES: [&str; 5] = [SUFFIX, ".z", "-gz", "-z", "_z"];
/// The text before the compression time in a `--verbose` line.
const COMPRESSING: &str = "; processor: compressing ";
/// The exit status of gzip after a warning.
const WARNING: i32 = 2;
/// Signals that end the program after it has cleaned up.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_go_as_gzip_takes_them() {
        let decompressed = |name: &str| decompressed_name(name.as_ref());
        assert_eq!(decompressed("a/b.gz").as_deref(), Some(OsStr::new("a/b")));
        assert_eq!(decompressed("b.tgz").as_deref(), Some(OsStr::new("b.tar")));
        assert_eq!(decompressed("b-gz").as_deref(), Some(OsStr::new("b")));
        assert_eq!(decompressed("a/.gz"), None);
        assert_eq!(decompressed("b.txt"), None);
    }
}

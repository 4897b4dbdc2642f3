//! `dafs bench gzip`: compresses files locally, on a server started here, and on nfs-ganesha, first
//! with one process and then with two processes that compress one half each. The benchmark follows
//! section 5.2 of the DAFS paper.
//!
//! Invariant: every competitor compresses the same bytes at the same level, in interleaved rounds.
//! Every result is decompressed by GNU gzip and compared with the input.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_bench::{Bar, Ganesha};
use serde::{Deserialize, Serialize};

use super::host::{Cost, Host, Mounted, cost, ganesha, has, median, together};
use crate::gzip::{format_compression_time, parse_compression_time, print_error_line};

#[derive(Clone, Debug, Args)]
pub(super) struct Arguments {
    /// Size of each of the two halves, in MiB.
    #[arg(long, default_value_t = 64)]
    megabytes: usize,
    /// Compression level, 1 to 9.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..=9))]
    level: u8,
    /// Number of rounds for each median.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Where to put the files. Default: the directory for temporary files.
    #[arg(long)]
    place: Option<PathBuf>,
}

impl Arguments {
    /// Returns minimal arguments, which only show that everything works; the results mean nothing.
    pub(super) fn tiny() -> Self {
        Self { megabytes: 1, level: 6, rounds: 1, place: None }
    }

    /// Returns the arguments for `dafs bench figures`. Many short rounds are better than a few long
    /// ones, because the load of other guests of the host varies over time.
    pub(super) fn full(place: Option<PathBuf>) -> Self {
        Self { megabytes: 64, level: 6, rounds: 9, place }
    }
}

/// The results of one competitor: medians in seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub who: String,
    /// The time in seconds of one process that compresses both halves.
    pub one: f64,
    /// The time in seconds of two concurrent processes, each of which compresses one half, until
    /// both have ended.
    pub two: f64,
    /// The time in seconds between the end of the first and the end of the second of these
    /// processes.
    pub apart: f64,
    /// The processor seconds of all processes of the client when one process compresses both
    /// halves.
    pub cpu: f64,
    /// The processor seconds of the server.
    pub server_cpu: f64,
    /// The part of `cpu` that is not compression. dafs measures its compression time itself; for
    /// GNU gzip, all processor time in user space counts as compression.
    pub outside: f64,
    #[serde(skip)]
    rounds: Rounds,
}

/// The results of all competitors, compared with the project's goals.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub megabytes: usize,
    pub level: u8,
    /// The processor seconds in user space that GNU gzip needs for the same input with its output
    /// discarded.
    pub gnu_alone: f64,
    pub rows: Vec<Row>,
    /// The number of bytes of the compressed results.
    pub compressed: u64,
    /// The project's goals. For each goal: the measured ratio, the bound of the ratio, whether the
    /// bound is a minimum or a maximum, and a description.
    #[serde(skip_deserializing)]
    pub goals: Vec<(f64, f64, &'static str, String)>,
}

impl Report {
    fn row(&self, who: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.who == who)
    }

    /// Returns the bars for two plots: elapsed seconds, and processor seconds outside compression.
    pub(super) fn bars(&self) -> (Vec<Bar>, Vec<Bar>) {
        let bar = |who: &str, what: &str, value: f64| Bar {
            label: format!("{who}{what}"),
            value,
            group: usize::from(!who.contains("dafs")),
        };
        let mut seconds = vec![bar("GNU gzip", ", its own part alone (limit)", self.gnu_alone)];
        let mut outside = Vec::new();
        for row in &self.rows {
            seconds.push(bar(&row.who, ", one process", row.one));
            seconds.push(bar(&row.who, ", two", row.two));
            if row.who != IN_MEMORY {
                outside.push(bar(&row.who, "", row.outside));
            }
        }
        (seconds, outside)
    }
}

/// A function that builds the commands to compress the halves with the given indexes, in one
/// process or one pipe.
type Commands<'a> = dyn Fn(&[usize]) -> Result<Vec<Command>> + 'a;
/// One way to compress that takes part in the comparison.
struct Contestant<'a> {
    who: &'static str,
    /// Builds one process or pipe for each half, or one for both halves.
    commands: Box<Commands<'a>>,
    server: Box<dyn Fn() -> Duration + 'a>,
    helper: Box<dyn Fn() -> Duration + 'a>,
    results: Vec<PathBuf>,
    /// The file to which the competitor reports its compression time. If `None`, all its processor
    /// time in user space counts as compression.
    told: Option<PathBuf>,
}

impl Contestant<'_> {
    /// Returns the compression time that the competitor reported since the previous call. Returns
    /// `None` if the competitor does not report its compression time.
    fn compressing(&self) -> Result<Option<Duration>> {
        let Some(path) = &self.told else { return Ok(None) };
        let told = std::fs::read_to_string(path)?;
        std::fs::write(path, "")?;
        let times: Option<Vec<_>> = told.lines().map(parse_compression_time).collect();
        let times = times.with_context(|| format!("{} reported: {told}", self.who))?;
        Ok(Some(times.iter().sum()))
    }

    /// Returns a message that names the competitor that failed, with the error text it printed.
    fn failed(&self) -> String {
        let told = self.told.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        format!("{}: {}", self.who, told.unwrap_or_default().trim())
    }
}

/// Returns the file name of a half.
fn half(index: usize) -> String {
    format!("half-{index}")
}

pub(super) fn run(arguments: &Arguments) -> Result<Report> {
    if !has("gzip") {
        bail!("there is no gzip to compare with: install the package gzip");
    }
    let host = Host::start(arguments.place.as_deref(), &[])?;
    let local = host.beside("local")?;
    let nfs = host.beside("nfs")?;
    for directory in [&local, &nfs, &host.exported()] {
        for index in 0..HALVES {
            fill(&directory.join(half(index)), arguments.megabytes << 20, index as u64)?;
        }
    }
    let ganesha = ganesha(&nfs)?;
    let mount = host.mount()?;
    let level = format!("-{}", arguments.level);
    let mut contestants = vec![
        without_files(&host, &level, &local)?,
        gnu(&level, "GNU gzip, local", &local),
        ours(&host, &level, "dafs gzip, local", Some(&local), "shm")?,
        ours(&host, &level, "dafs gzip, shm", None, "shm")?,
        ours(&host, &level, "dafs gzip, tcp", None, "tcp")?,
    ];
    if let Some(mount) = &mount {
        contestants.push(on_mount(&host, &level, mount));
    }
    if let Some(ganesha) = &ganesha {
        contestants.push(over_nfs(&host, &level, ganesha, &nfs)?);
    }
    let report = measure(arguments, &local, &contestants)?;
    print(&report);
    Ok(report)
}

fn nothing() -> Duration {
    Duration::ZERO
}

fn gnu<'a>(level: &'a str, who: &'static str, directory: &'a Path) -> Contestant<'a> {
    let commands = move |halves: &[usize]| {
        let mut command = Command::new("gzip");
        command.args(["-k", "-f", level]);
        command.args(halves.iter().map(|&index| directory.join(half(index))));
        Ok(vec![command])
    };
    Contestant {
        who,
        commands: Box::new(commands),
        server: Box::new(nothing),
        helper: Box::new(nothing),
        results: results(directory),
        told: None,
    }
}

fn on_mount<'a>(host: &'a Host, level: &'a str, mount: &'a Mounted) -> Contestant<'a> {
    Contestant {
        server: Box::new(|| host.server_cpu()),
        helper: Box::new(|| mount.cpu()),
        results: results(&host.exported()),
        ..gnu(level, "GNU gzip, dafs mount", &mount.directory)
    }
}

fn ours<'a>(
    host: &'a Host,
    level: &'a str,
    who: &'static str,
    local: Option<&'a Path>,
    transport: &'static str,
) -> Result<Contestant<'a>> {
    let (told, file) = account(host, who)?;
    let commands = move |halves: &[usize]| {
        // Use one thread: the benchmark compares the cost of file access, not the number of
        // threads.
        let told = ["gzip", "--workers", "1", "-k", "-f", "-v", level];
        let mut command = host.dafs_by(transport, &told);
        command.stderr(file.try_clone()?);
        for &index in halves {
            match local {
                Some(directory) => command.arg(directory.join(half(index))),
                None => command.arg(host.url(transport, &half(index))?),
            };
        }
        Ok(vec![command])
    };
    let is_local = local.is_some();
    let server = move || if is_local { Duration::ZERO } else { host.server_cpu() };
    Ok(Contestant {
        who,
        commands: Box::new(commands),
        server: Box::new(server),
        helper: Box::new(nothing),
        results: results(local.unwrap_or(&host.exported())),
        told: Some(told),
    })
}

/// Returns a competitor that compresses data already in memory. Its gain from a second process is
/// the most that two processes can gain on this machine.
fn without_files<'a>(
    host: &'a Host,
    level: &'a str,
    directory: &'a Path,
) -> Result<Contestant<'a>> {
    let (told, file) = account(host, "memory")?;
    let commands = move |halves: &[usize]| {
        let mut command = host.dafs(&["bench-peer", "gzip-memory", level]);
        command.args(halves.iter().map(|&index| directory.join(half(index))));
        command.stderr(file.try_clone()?);
        Ok(vec![command])
    };
    Ok(Contestant {
        who: IN_MEMORY,
        commands: Box::new(commands),
        server: Box::new(nothing),
        helper: Box::new(nothing),
        results: Vec::new(),
        told: Some(told),
    })
}

/// Returns a competitor with a pipe for each half: libnfs reads, GNU gzip compresses, libnfs
/// writes.
fn over_nfs<'a>(
    host: &'a Host,
    level: &'a str,
    ganesha: &'a Ganesha,
    directory: &Path,
) -> Result<Contestant<'a>> {
    let (told, file) = account(host, "nfs")?;
    let commands = move |halves: &[usize]| {
        let process = ganesha.entrance().process().to_string();
        let mut command = host.dafs(&["bench-peer", "nfs-gzip", &process, level]);
        command.args(halves.iter().map(|&index| format!("/{}", half(index))));
        command.stderr(file.try_clone()?);
        Ok(vec![command])
    };
    Ok(Contestant {
        who: "GNU gzip, libnfs",
        commands: Box::new(commands),
        server: Box::new(|| ganesha.cpu().unwrap_or_default()),
        helper: Box::new(nothing),
        results: results(directory),
        told: Some(told),
    })
}

/// Creates the file to which a competitor reports its compression time.
fn account(host: &Host, who: &str) -> Result<(PathBuf, File)> {
    let path = host.beside("told")?.join(who);
    // Open for appending: between runs the file is truncated, and an append then starts at offset 0
    // again.
    let file = OpenOptions::new().create(true).append(true).open(&path)?;
    Ok((path, file))
}

fn results(directory: &Path) -> Vec<PathBuf> {
    (0..HALVES).map(|index| directory.join(format!("{}.gz", half(index)))).collect()
}

/// The costs of all rounds of one competitor.
#[derive(Clone, Debug, Default)]
struct Rounds {
    one: Vec<f64>,
    two: Vec<f64>,
    apart: Vec<f64>,
    cpu: Vec<f64>,
    outside: Vec<f64>,
    server: Vec<f64>,
}

/// Returns the median of the ratios `ours / theirs`, one ratio for each round. A change of the
/// machine's speed between rounds affects this value less than a ratio of two medians.
fn by_round(ours: &[f64], theirs: &[f64]) -> f64 {
    median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect())
}

fn measure(arguments: &Arguments, local: &Path, contestants: &[Contestant<'_>]) -> Result<Report> {
    let mut rounds: Vec<Rounds> = contestants.iter().map(|_| Rounds::default()).collect();
    let (mut gnu_alone, mut compressed) = (Vec::new(), 0);
    for round in 0..arguments.rounds {
        gnu_alone.push(gnu_cpu(arguments, local)?.as_secs_f64());
        for (contestant, rounds) in contestants.iter().zip(&mut rounds) {
            one_round(contestant, rounds)?;
            if round == 0 {
                compressed += check(contestant, local)?;
            }
        }
    }
    let mut report = Report {
        megabytes: arguments.megabytes,
        level: arguments.level,
        gnu_alone: median(gnu_alone),
        rows: Vec::new(),
        compressed,
        goals: Vec::new(),
    };
    for (contestant, rounds) in contestants.iter().zip(rounds) {
        report.rows.push(Row {
            who: contestant.who.to_owned(),
            one: median(rounds.one.clone()),
            two: median(rounds.two.clone()),
            apart: median(rounds.apart.clone()),
            cpu: median(rounds.cpu.clone()),
            server_cpu: median(rounds.server.clone()),
            outside: median(rounds.outside.clone()),
            rounds,
        });
    }
    report.goals = goals(&report);
    Ok(report)
}

fn one_round(contestant: &Contestant<'_>, rounds: &mut Rounds) -> Result<()> {
    let all: Vec<usize> = (0..HALVES).collect();
    let run = |commands| cost(|| together(commands).map(drop));
    let (server, helper) = ((contestant.server)(), (contestant.helper)());
    let Cost { wall, cpu, user } =
        run((contestant.commands)(&all)?).with_context(|| contestant.failed())?;
    rounds.one.push(wall.as_secs_f64());
    let cpu = (cpu + (contestant.helper)().saturating_sub(helper)).as_secs_f64();
    rounds.cpu.push(cpu);
    let compressing = contestant.compressing()?.unwrap_or(user);
    rounds.outside.push(cpu - compressing.as_secs_f64());
    rounds.server.push((contestant.server)().saturating_sub(server).as_secs_f64());
    let mut both = Vec::new();
    for index in all {
        both.extend((contestant.commands)(&[index])?);
    }
    let ends = together(both).with_context(|| contestant.failed())?;
    let (first, last) = (ends.iter().min().copied(), ends.iter().max().copied());
    let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
    rounds.two.push(last.as_secs_f64());
    rounds.apart.push((last - first).as_secs_f64());
    contestant.compressing()?;
    Ok(())
}

/// Measures the processor time in user space that GNU gzip needs with its output discarded. Time in
/// the kernel is left out, because gzip spends it reading files.
fn gnu_cpu(arguments: &Arguments, local: &Path) -> Result<Duration> {
    let mut gnu = Command::new("gzip");
    gnu.args(["-c", &format!("-{}", arguments.level)]);
    gnu.args((0..HALVES).map(|index| local.join(half(index)))).stdout(Stdio::null());
    Ok(cost(|| together(vec![gnu]).map(drop))?.user)
}

/// Reads files into memory, compresses them, discards the output and prints the time.
pub(super) fn in_memory(level: &str, paths: &[String]) -> Result<()> {
    let level = level.trim_start_matches('-').parse().context("a level")?;
    for path in paths {
        let bytes = std::fs::read(path).with_context(|| path.clone())?;
        let before = dafs_bench::thread_cpu();
        crate::gzip::compress_in_memory(&bytes, level)?;
        let spent = dafs_bench::thread_cpu() - before;
        print_error_line(&format!("{path}{}\n", format_compression_time(spent)));
    }
    Ok(())
}

/// Checks that GNU gzip decompresses the results to the original input. Returns the total length.
fn check(contestant: &Contestant<'_>, local: &Path) -> Result<u64> {
    let mut length = 0;
    for (index, result) in contestant.results.iter().enumerate() {
        length += result.metadata().with_context(|| contestant.who)?.len();
        let output = Command::new("gzip").arg("-dc").arg(result).output()?;
        let is_same =
            output.status.success() && output.stdout == std::fs::read(local.join(half(index)))?;
        if !is_same {
            bail!("{}: {} is not what was compressed", contestant.who, result.display());
        }
    }
    Ok(length)
}

fn goals(report: &Report) -> Vec<(f64, f64, &'static str, String)> {
    let mut goals = Vec::new();
    let (local, nfs) = (report.row("dafs gzip, local"), report.row("GNU gzip, libnfs"));
    let speedup = |row: &Row| by_round(&row.rounds.one, &row.rounds.two);
    let limit = report.row(IN_MEMORY).map(speedup);
    for who in ["dafs gzip, shm", "dafs gzip, tcp"] {
        let Some(row) = report.row(who) else { continue };
        goals.push((speedup(row), 1.95, "at least", format!("{who}: two processes' speedup")));
        if let Some(limit) = limit {
            let what = format!("{who}: that speedup against the one without files");
            goals.push((speedup(row) / limit, 1.95 / 2.0, "at least", what));
        }
        if let Some(local) = local {
            goals.push((
                by_round(&row.rounds.one, &local.rounds.one),
                1.02,
                "at most",
                format!("{who}: time against local"),
            ));
        }
        if let Some(nfs) = nfs {
            let ratio = row.outside / nfs.outside;
            let what = format!("{who}: processor time outside compression against libnfs'");
            goals.push((ratio, 1.0 / 3.0, "at most", what));
        }
    }
    goals
}

fn print(report: &Report) {
    let Report { megabytes, level, gnu_alone, compressed, .. } = report;
    println!("gzip -{level} of two files of {megabytes} MiB, seconds; results {compressed} bytes");
    println!("GNU gzip's own part, to nowhere: {gnu_alone:.3}");
    println!(
        "{:22} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9}",
        "", "one", "two", "speedup", "apart", "cpu", "outside", "server"
    );
    for Row { who, one, two, apart, cpu, server_cpu, outside, .. } in &report.rows {
        let speedup = one / two;
        println!(
            "{who:22} {one:8.3} {two:8.3} {speedup:8.2} {apart:8.3} {cpu:9.3} {outside:9.3} \
             {server_cpu:9.3}"
        );
    }
    for (ratio, bound, kind, what) in &report.goals {
        let is_met = if *kind == "at least" { ratio >= bound } else { ratio <= bound };
        let verdict = if is_met { "met" } else { "MISSED" };
        println!("{ratio:8.3}, {kind} {bound:.3}, {verdict}: {what}");
    }
}

/// Fills a file with text-like bytes that gzip compresses to slightly less than a third.
fn fill(path: &Path, length: usize, seed: u64) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let (mut state, mut left) = (seed.wrapping_mul(0x9e37_79b9).wrapping_add(1), length);
    let (words, mut line) = (WORDS.split(' ').collect::<Vec<_>>(), String::new());
    while left > 0 {
        line.clear();
        for _ in 0..10 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let word = words[(state >> 40) as usize % words.len()];
            line.push_str(word);
            line.push(' ');
        }
        line.push_str(&(state >> 20).to_string());
        line.push('\n');
        let count = line.len().min(left);
        out.write_all(&line.as_bytes()[..count])?;
        left -= count;
    }
    Ok(out.flush()?)
}

/// The name of the competitor whose time is the lower limit for dafs.
const IN_MEMORY: &str = "dafs gzip, in memory";
const HALVES: usize = 2;
const WORDS: &str = "direct access file system memory to network the of registered buffer client \
                     server credit session lock fence a chain batch transport remote and write";

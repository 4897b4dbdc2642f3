//! `dafs bench small-files`: copies a tree of many small files to and from servers started here,
//! and compares that with `cp -r` on the same file system. It also counts what one file costs the
//! server.
//!
//! Invariant: all contestants copy the same tree, in interleaved rounds. Counting takes time, so it
//! has a run of its own. That run also copies a tree of the same directories without files; the
//! difference is the cost of the files.

mod counts;
mod tree;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::host::{Host, ended_well, median};
use super::medium::Medium;
use crate::cleanup;
use counts::Counts;
use tree::Trees;

#[derive(Clone, Debug, Args)]
pub(super) struct Arguments {
    /// The tree to copy. Default: a generated tree with files of 500 to 16,384 bytes.
    tree: Option<PathBuf>,
    /// Number of files in the generated tree, 100 per directory.
    #[arg(long, default_value_t = 5000, conflicts_with = "tree")]
    files: usize,
    /// Number of rounds for each median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Where to put the files. Default: a new ext4 with a journal, in memory (root only; other
    /// users get memory without a journal).
    #[arg(long)]
    place: Option<PathBuf>,
    /// Directory into which the report is written as JSON.
    #[arg(long)]
    output: Option<PathBuf>,
}

/// The result of one contestant in one direction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    /// The value of the server's `--exactly-once`.
    pub exactly_once: String,
    /// The direction of the copy: "in" or "out".
    pub direction: String,
    /// The median time of the rounds, in seconds.
    pub seconds: f64,
    /// The time relative to `cp -r`.
    pub ratio: f64,
    /// The project's goal for `ratio`: its maximum, or `None` if there is no goal.
    pub ratio_max: Option<f64>,
    /// The average messages, journal records and system calls of the server for each file.
    pub counts: Counts,
    #[serde(skip)]
    rounds: Vec<f64>,
}

/// The results of all contestants, with the time of `cp -r` that they are compared with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub files: usize,
    pub bytes: u64,
    /// A description of the file system that the files are on.
    pub medium: String,
    /// The time of `cp -r` in seconds, the median of the rounds.
    pub local_seconds: f64,
    pub rows: Vec<Row>,
}

/// A server started by the benchmark, with its value of `--exactly-once`.
struct Contestant {
    host: Host,
    exactly_once: &'static str,
}

pub(super) fn run(arguments: &Arguments) -> Result<Report> {
    let medium = arguments.place.as_deref().map_or_else(Medium::journaled, Medium::at);
    let place = Some(medium.directory());
    let contestants = ["memory", "stable"].map(|exactly_once| {
        let host = Host::start(place, &["--exactly-once", exactly_once])?;
        Ok(Contestant { host, exactly_once })
    });
    let contestants = contestants.into_iter().collect::<Result<Vec<_>>>()?;
    let scratch = contestants[0].host.beside("trees")?;
    let trees = Trees::make(arguments.tree.as_deref(), arguments.files, &scratch)?;
    let mut report = measure(arguments, &trees, &scratch, &contestants)?;
    report.medium.clone_from(&medium.kind);
    for contestant in &contestants {
        let found = counts::count(&contestant.host, &trees, &scratch)?;
        let rows = report.rows.iter_mut();
        let own = rows.filter(|row| row.exactly_once == contestant.exactly_once);
        own.zip(found).for_each(|(row, counts)| row.counts = counts);
    }
    print(&report);
    if let Some(directory) = &arguments.output {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("making {}", directory.display()))?;
        let path = directory.join("small-files.json");
        std::fs::write(&path, serde_json::to_vec_pretty(&report)?)
            .with_context(|| format!("writing {}", path.display()))?;
        println!("written: {}", path.display());
    }
    Ok(report)
}

fn measure(
    arguments: &Arguments,
    trees: &Trees,
    scratch: &Path,
    contestants: &[Contestant],
) -> Result<Report> {
    let row = |contestant: &Contestant, direction: &str| Row {
        exactly_once: contestant.exactly_once.to_owned(),
        direction: direction.to_owned(),
        seconds: 0.0,
        ratio: 0.0,
        ratio_max: goal(contestant.exactly_once, direction),
        counts: Counts::default(),
        rounds: Vec::new(),
    };
    let mut rows: Vec<Row> = contestants
        .iter()
        .flat_map(|one| DIRECTIONS.map(|direction| row(one, direction)))
        .collect();
    let mut local = Vec::new();
    let copy = scratch.join("copy");
    // The first round only fills caches.
    for round in 0..=arguments.rounds {
        for (number, contestant) in contestants.iter().enumerate() {
            let host = &contestant.host;
            let note = |times: &mut Vec<f64>, command: Command| -> Result<()> {
                let seconds = timed(command)?;
                if round > 0 {
                    times.push(seconds);
                }
                Ok(())
            };
            let mut cp = Command::new("cp");
            cp.arg("-r").arg(&trees.full).arg(&copy);
            note(&mut local, cp)?;
            std::fs::remove_dir_all(&copy)?;
            note(&mut rows[2 * number].rounds, copy_in(host, &trees.full)?)?;
            trees.check(&host.exported().join(COPY))?;
            std::fs::remove_dir_all(host.exported().join(COPY))?;
            put(&trees.full, host)?;
            note(&mut rows[2 * number + 1].rounds, copy_out(host, &copy)?)?;
            trees.check(&copy)?;
            std::fs::remove_dir_all(&copy)?;
            std::fs::remove_dir_all(host.exported().join(COPY))?;
        }
    }
    let local_seconds = median(local);
    for row in &mut rows {
        row.seconds = median(std::mem::take(&mut row.rounds));
        row.ratio = row.seconds / local_seconds;
    }
    let tree::Size { files, bytes } = trees.size;
    Ok(Report { files, bytes, medium: String::new(), local_seconds, rows })
}

/// Returns a command that copies a tree to the server under the name [`COPY`].
fn copy_in(host: &Host, tree: &Path) -> Result<Command> {
    let mut command = host.dafs_by("shm", &["cp", "-r"]);
    command.arg(tree).arg(host.url("shm", COPY)?);
    Ok(command)
}

/// Replaces the exported copy directly on the disk, so that the server has no cached data of it.
fn put(tree: &Path, host: &Host) -> Result<()> {
    let mut cp = Command::new("cp");
    cp.arg("-r").arg(tree).arg(host.exported().join(COPY));
    timed(cp).map(drop)
}

/// Returns a command that copies [`COPY`] from the server.
fn copy_out(host: &Host, to: &Path) -> Result<Command> {
    let mut command = host.dafs_by("shm", &["cp", "-r"]);
    command.arg(host.url("shm", COPY)?).arg(to);
    Ok(command)
}

/// Runs a command and returns its time in seconds. Fails if the command fails.
fn timed(mut command: Command) -> Result<f64> {
    cleanup::join(&mut command);
    let begin = Instant::now();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let seconds = begin.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stderr);
    ended_well(&format!("{command:?}"), output.status).with_context(|| said.trim().to_owned())?;
    Ok(seconds)
}

fn goal(exactly_once: &str, direction: &str) -> Option<f64> {
    match (exactly_once, direction) {
        ("memory", "in") => Some(2.5),
        ("memory", "out") => Some(1.8),
        ("stable", "in") => Some(4.0),
        _ => None,
    }
}

fn print(report: &Report) {
    let Report { files, bytes, medium, local_seconds, .. } = report;
    println!("{files} files, {bytes} bytes, on {medium}; `cp -r` takes {local_seconds:.3} s");
    for row in &report.rows {
        let Row { exactly_once, direction, seconds, ratio, ratio_max, counts, .. } = row;
        let verdict = ratio_max.map_or(String::new(), |most| {
            let verdict = if *ratio <= most { "met" } else { "MISSED" };
            format!(", of at most {most:.1}: {verdict}")
        });
        println!("{direction:4} {exactly_once:7} {seconds:7.3} s, {ratio:5.2} x cp -r{verdict}");
        counts.print();
    }
}

/// The name of the copy on the server.
const COPY: &str = "copy";
const DIRECTIONS: [&str; 2] = ["in", "out"];

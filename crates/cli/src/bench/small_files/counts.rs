//! Counts what one file costs a server: messages, journal records and system calls.
//!
//! Invariant: the server's periodic work and its work per connection are not attributed to files.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::host::{Host, ended_well, has};
use super::tree::Trees;
use super::{COPY, copy_in, copy_out, put, timed};
use crate::cleanup;

/// The average cost of each file of a tree.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// The number of messages to the server, by procedure.
    pub messages: BTreeMap<String, f64>,
    pub journal_records: f64,
    /// The number of system calls by name; `None` if strace is missing or is not permitted.
    pub system_calls: Option<BTreeMap<String, f64>>,
}

impl Counts {
    pub(crate) fn print(&self) {
        let shown = |counts: &BTreeMap<String, f64>| {
            let seen = counts.iter().filter(|(_, count)| **count >= SHOWN_MIN);
            let texts: Vec<_> = seen.map(|(name, count)| format!("{name} {count:.2}")).collect();
            texts.join(", ")
        };
        println!("     messages per file: {}", shown(&self.messages));
        println!("     journal records per file: {:.2}", self.journal_records);
        match &self.system_calls {
            Some(calls) => println!("     server's system calls per file: {}", shown(calls)),
            None => println!("     server's system calls: not counted, see above"),
        }
    }
}

/// The total counts of a server before they are divided by the number of files.
#[derive(Default)]
struct Totals {
    messages: BTreeMap<String, f64>,
    journal_records: f64,
    system_calls: Option<BTreeMap<String, f64>>,
}

/// Returns the average cost of each file, for a copy in and for a copy out.
pub(super) fn count(host: &Host, trees: &Trees, scratch: &Path) -> Result<[Counts; 2]> {
    let tracer = Tracer::find();
    let mut totals = Vec::new();
    for tree in [&trees.bare, &trees.full] {
        totals.push(counted(host, &tracer, || copy_in(host, tree))?);
        std::fs::remove_dir_all(host.exported().join(COPY))?;
        put(tree, host)?;
        let copy = scratch.join("counted");
        totals.push(counted(host, &tracer, || copy_out(host, &copy))?);
        std::fs::remove_dir_all(&copy)?;
        std::fs::remove_dir_all(host.exported().join(COPY))?;
    }
    let files = trees.size.files as f64;
    Ok([0, 1].map(|way| per_file(&totals[way], &totals[way + 2], files)))
}

/// Runs a command and returns how much each counter of the server increased.
fn counted(host: &Host, tracer: &Tracer, command: impl Fn() -> Result<Command>) -> Result<Totals> {
    let before = read_counters(host)?;
    let tracing = tracer.attach(host.server_process(), &host.beside("counts")?)?;
    timed(command()?)?;
    let system_calls = tracing.map(Tracing::end).transpose()?;
    let after = read_counters(host)?;
    let journal_records = after.journal_records - before.journal_records;
    let messages = less(&after.messages, &before.messages);
    Ok(Totals { messages, journal_records, system_calls })
}

fn per_file(bare: &Totals, full: &Totals, files: f64) -> Counts {
    let each = |full: &BTreeMap<String, f64>, bare: &BTreeMap<String, f64>| {
        let counts = less(full, bare).into_iter();
        counts.map(|(name, count)| (name, count / files)).collect()
    };
    let calls = full.system_calls.as_ref().zip(bare.system_calls.as_ref());
    Counts {
        messages: each(&full.messages, &bare.messages),
        journal_records: (full.journal_records - bare.journal_records) / files,
        system_calls: calls.map(|(full, bare)| each(full, bare)),
    }
}

/// Returns `counts` minus `others`, entry by entry.
fn less(counts: &BTreeMap<String, f64>, others: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let difference = |(name, count): (&String, &f64)| {
        let other = others.get(name).copied().unwrap_or_default();
        (*count != other).then(|| (name.clone(), count - other))
    };
    counts.iter().filter_map(difference).collect()
}

/// Reads the server's counters since its start.
fn read_counters(host: &Host) -> Result<Totals> {
    let found = crate::status::ask(Some(&host.socket()?))?;
    let procedures = found["procedures"].as_array().context("a server without procedures")?;
    let count = |procedure: &Value| {
        let name = procedure["procedure"].as_str().unwrap_or("unknown");
        (name.to_owned(), procedure["requests"].as_f64().unwrap_or_default())
    };
    Ok(Totals {
        messages: procedures.iter().map(count).collect(),
        journal_records: found["journal"]["records"].as_f64().unwrap_or_default(),
        system_calls: None,
    })
}

/// The program that counts the system calls of a process.
enum Tracer {
    Strace,
    /// strace is not installed.
    Missing,
}

impl Tracer {
    fn find() -> Self {
        if has("strace") {
            return Self::Strace;
        }
        println!("system calls are not counted: install the package strace for that");
        Self::Missing
    }

    /// Starts to count the system calls of a process into a file in `directory`. Returns `None` if
    /// tracing is not possible.
    fn attach(&self, process: u32, directory: &Path) -> Result<Option<Tracing>> {
        if matches!(self, Self::Missing) {
            return Ok(None);
        }
        let counts = tempfile::NamedTempFile::new_in(directory)?;
        let mut command = Command::new("strace");
        cleanup::join(&mut command);
        let mut child = command
            .args(["-f", "-c", "-o"])
            .arg(counts.path())
            .args(["-p", &process.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting strace")?;
        // strace prints a line to its standard error when it has attached to all threads.
        let mut said = String::new();
        let stderr = child.stderr.take().context("strace has no standard error")?;
        BufReader::new(stderr).read_line(&mut said)?;
        if !said.contains("attached") {
            child.wait()?;
            println!("system calls are not counted: {}", said.trim());
            return Ok(None);
        }
        Ok(Some(Tracing { child, counts }))
    }
}

/// A running strace process.
struct Tracing {
    child: Child,
    counts: tempfile::NamedTempFile,
}

impl Tracing {
    /// Stops counting and returns the counts by name.
    fn end(mut self) -> Result<BTreeMap<String, f64>> {
        let process = i32::try_from(self.child.id())?;
        kill(Pid::from_raw(process), Signal::SIGINT).context("ending strace")?;
        let status = self.child.wait()?;
        // strace ends with the signal that interrupted it, so only an exit code is checked.
        if status.code().is_some() {
            ended_well("strace", status)?;
        }
        let text = std::fs::read_to_string(self.counts.path())?;
        let calls: BTreeMap<_, _> = text.lines().filter_map(call_of).collect();
        if calls.is_empty() {
            bail!("strace counted no system calls: {text}");
        }
        Ok(calls)
    }
}

/// Parses a line of the strace table: percentage of time, seconds, time per call, calls, errors (if
/// any), name. Returns the name and the number of calls.
fn call_of(line: &str) -> Option<(String, f64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (name, count) = (words.last()?, words.get(3)?);
    let is_row = words.len() >= 5 && *name != "total" && words[0].parse::<f64>().is_ok();
    is_row.then(|| Some(((*name).to_owned(), count.parse().ok()?)))?
}

/// The smallest average count per file that is shown. Smaller counts are noise.
const SHOWN_MIN: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_table_are_read_and_nothing_else_is() {
        let row = call_of("  3.22    0.062900          13      4610         4 statx");
        assert_eq!(row, Some(("statx".to_owned(), 4610.0)));
        let row = call_of("  1.12    0.021950          34       640           pwrite64");
        assert_eq!(row, Some(("pwrite64".to_owned(), 640.0)));
        for line in [
            "% time     seconds  usecs/call     calls    errors syscall",
            "------ ----------- ----------- --------- --------- ----------------",
            "100.00    1.955        8      9000       6 total",
            "",
        ] {
            assert_eq!(call_of(line), None, "{line}");
        }
    }
}

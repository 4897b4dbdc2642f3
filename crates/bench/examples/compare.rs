//! Checks whether one `dafs` program is slower than another. Runs `dafs bench --quick` of both in
//! turns and prints for each figure the median, least and greatest ratio of the new program's time
//! to the old one's. Figures of DAFS that got slower by more than 5% are named, and make the exit
//! status nonzero.
//!
//!
//! ```text
//! cargo run --release -p dafs-bench --example compare -- OLD NEW [TURNS [ONLY]]
//! ```
//!
//! OLD and NEW are programs; ONLY selects the figures as `dafs bench --only` does, such as "shm
//! read". Both programs run the same part one right after the other, so that a machine that slows
//! down affects both. With `--tiny` a turn takes only a moment and its figures mean nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The measurement, and the bytes of a block.
type Name = (String, u64);

/// Microseconds of each figure: wall time and the client's processor time.
type Figures = BTreeMap<Name, [f64; 2]>;

fn main() -> Result<ExitCode> {
    let (flags, words): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let extent = if flags.iter().any(|flag| flag == "--tiny") { "--tiny" } else { "--quick" };
    let [old, new, rest @ ..] = words.as_slice() else {
        bail!("usage: compare OLD NEW [TURNS [ONLY]]; OLD and NEW are two builds of dafs");
    };
    let turns = match rest.first() {
        Some(turns) => turns.parse().context("TURNS is how often each is run, such as 5")?,
        None => TURNS,
    };
    let parts = rest.get(1).map_or_else(|| PARTS.to_vec(), |only| vec![only.as_str()]);
    let mut ratios: BTreeMap<Name, [Vec<f64>; 2]> = BTreeMap::new();
    for turn in 0..turns {
        eprintln!("turn {} of {turns}", turn + 1);
        for part in &parts {
            // Alternate the order: the machine may be slower at the end of a turn.
            let is_swapped = turn % 2 == 1;
            let (first, second) = if is_swapped { (new, old) } else { (old, new) };
            let (first, second) = (run(first, extent, part)?, run(second, extent, part)?);
            let (before, after) = if is_swapped { (second, first) } else { (first, second) };
            for (name, times) in after {
                let Some(before) = before.get(&name) else { continue };
                let all = ratios.entry(name).or_default();
                for (all, (after, before)) in all.iter_mut().zip(times.iter().zip(before)) {
                    all.push(after / before);
                }
            }
        }
    }
    if ratios.is_empty() {
        bail!("the two reports have no figure in common");
    }
    Ok(if print(ratios) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the figures of one run.
fn run(program: &str, extent: &str, part: &str) -> Result<Figures> {
    let place = tempfile::tempdir()?;
    let mut command = Command::new(program);
    command.args(["bench", extent, "--only", part, "--output"]).arg(place.path());
    command.stdout(Stdio::null());
    let status = command.status().with_context(|| format!("running {program}"))?;
    if !status.success() {
        bail!("{program} bench: {status}");
    }
    read(&place.path().join("bench.json")).with_context(|| format!("the report of {program}"))
}

fn read(path: &Path) -> Result<Figures> {
    let report: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    let mut figures = Figures::new();
    for figure in report["figures"].as_array().into_iter().flatten() {
        let (name, times) =
            understand(figure).with_context(|| format!("a figure in an unknown form: {figure}"))?;
        figures.insert(name, times);
    }
    Ok(figures)
}

fn understand(figure: &Value) -> Option<(Name, [f64; 2])> {
    let (peer, kind) = (figure["peer"].as_str()?, figure["kind"].as_str()?);
    let sleeping = if figure["sleeps"].as_bool()? { ", sleeping" } else { "" };
    let name = format!("{peer} {kind} x{}{sleeping}", figure["depth"].as_u64()?);
    let times = [figure["wall_us"].as_f64()?, figure["client_cpu_us"].as_f64()?];
    Some(((name, figure["block_bytes"].as_u64()?), times))
}

/// Prints the table. Returns true if nothing is slower than permitted.
fn print(ratios: BTreeMap<Name, [Vec<f64>; 2]>) -> bool {
    println!("{:32} {:>8} {:>22} {:>22}", "new to old", "bytes", "time", "client CPU");
    let mut is_good = true;
    for ((name, block), all) in ratios {
        let [wall, client] = all.map(spread);
        let is_ours = OURS.iter().any(|ours| name.starts_with(ours));
        let is_slow = is_ours && wall[1] > BOUND;
        is_good &= !is_slow;
        let shown = |[least, median, most]: [f64; 3]| format!("{median:.3} ({least:.2}-{most:.2})");
        let verdict = if is_slow { "  SLOWER" } else { "" };
        println!("{name:32} {block:>8} {:>22} {:>22}{verdict}", shown(wall), shown(client));
    }
    is_good
}

/// Returns least, median and greatest value.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    [at(0), at(values.len() / 2), at(values.len().saturating_sub(1))]
}

const TURNS: usize = 5;
/// A figure is slower if its ratio to the other program's time exceeds this.
const BOUND: f64 = 1.05;
/// The parts that are run together.
const PARTS: [&str; 2] = ["shm ", "tcp "];
/// The figures that a DAFS server determines. The others are raw and run the same code in both
/// programs.
const OURS: [&str; 4] = ["shm read", "shm write", "tcp read", "tcp write"];

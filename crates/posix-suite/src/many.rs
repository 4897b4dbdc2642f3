//! Starts many processes that make random calls, waits for them, and checks the results.
//!
//! Invariant: each process is a new run of the same program, so that it shares no memory with the
//! others. The program must pass its arguments after [`CHILD`] to [`child`].

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::shared::{self, Racer};
use crate::stress::{Limits, Stress};

/// The first argument of a child process.
pub const CHILD: &str = "--one-of-many";

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of processes with trees of their own. As many share one tree.
    pub processes: usize,
    /// The limits of each process.
    pub limits: Limits,
    /// The seed. The same seed makes the same calls on the trees that are not shared.
    pub seed: u64,
}

/// Starts all processes in a directory, waits for them, and checks and removes the trees that they
/// leave. Returns a summary, or an error with the differences.
pub fn lead(program: &Path, directory: &str, plan: &Plan) -> Result<String> {
    let top = format!("{directory}/stress-{}", std::process::id());
    let shared_tree = format!("{top}/shared");
    std::fs::create_dir_all(format!("{shared_tree}/tree")).context(top.clone())?;
    let mut children = Vec::new();
    for index in 0..plan.processes {
        let own = format!("{top}/own-{index}");
        std::fs::create_dir(&own).context(own.clone())?;
        children.push(start(program, plan, ["own", &own], index)?);
        children.push(start(program, plan, ["shared", &shared_tree], index)?);
    }
    let (mut calls, mut differences) = (0u64, Vec::new());
    for child in children {
        let output = child.wait_with_output().context("waiting for a process")?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
        match text.parse::<u64>() {
            Ok(count) if output.status.success() => calls += count,
            _ => differences.push(format!("{text} ({})", output.status)),
        }
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    shared::check(&shared_tree, plan.processes).context("DIFFERENCE in the shared tree")?;
    remove(Path::new(&top))?;
    let Plan { seed, processes, .. } = plan;
    Ok(format!("stress, seed {seed}: {calls} calls of 2 x {processes} processes, no difference"))
}

fn start(program: &Path, plan: &Plan, work: [&str; 2], index: usize) -> Result<Child> {
    let Plan { seed, limits, .. } = plan;
    let seconds = limits.time.map_or(0, |time| time.as_secs());
    let numbers = [index as u64, *seed, limits.calls, seconds].map(|number| number.to_string());
    let mut command = Command::new(program);
    command.arg(CHILD).args(work).args(numbers).stdout(Stdio::piped());
    command.spawn().context("starting a process")
}

/// Runs a child process with the arguments after [`CHILD`]. Returns its number of calls.
pub fn child(arguments: &[String]) -> Result<String> {
    let [what, directory, numbers @ ..] = arguments else { anyhow::bail!("too few arguments") };
    let numbers: Vec<u64> = numbers.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [index, seed, calls, seconds] = numbers[..] else { anyhow::bail!("too few numbers") };
    let time = (seconds > 0).then(|| Duration::from_secs(seconds));
    let limits = Limits { calls, time };
    let own_seed = seed.wrapping_mul(1000).wrapping_add(index);
    let calls = match &what[..] {
        "own" => Stress::new(directory, own_seed).run(limits),
        _ => Racer::new(directory, index as usize, own_seed ^ 0x5555).run(limits),
    };
    let calls = calls.with_context(|| format!("process {index} ({what})"))?;
    Ok(calls.to_string())
}

/// Removes everything that was made, and fails if anything is left.
fn remove(top: &Path) -> Result<()> {
    std::fs::remove_dir_all(top).context("DIFFERENCE: removing what was made")?;
    ensure!(!top.exists(), "DIFFERENCE: {} is still there", top.display());
    Ok(())
}

//! `posix-stress DIR`: many processes make random calls on trees.

use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use dafs_posix_suite::shared::{self, Racer};
use dafs_posix_suite::stress::{Limits, Stress};

/// Has processes make random calls, each on a tree of its own, which is compared with a model, and
/// others on one that they share; exits with 1 upon a difference, and leaves the trees there.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// A directory; what is made in it is removed when there was no difference.
    directory: String,
    /// Processes with trees of their own; as many share one.
    #[arg(long, value_name = "N", default_value_t = 4)]
    processes: usize,
    /// Seconds to go on.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Calls of each process at most. Default: 10,000, or what the time allows.
    #[arg(long, value_name = "N")]
    ops: Option<u64>,
    /// The same seed makes the same calls, on the trees that are not shared.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// What one of the processes does: `own` or `shared`, and which it is.
    #[arg(long, hide = true, num_args = 2)]
    child: Option<Vec<String>>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.child {
        Some(child) => work(&arguments, child),
        None => lead(&arguments),
    };
    match outcome {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(difference) => {
            println!("stress, seed {}: {difference:#}", arguments.seed);
            ExitCode::FAILURE
        }
    }
}

fn work(arguments: &Arguments, child: &[String]) -> Result<String> {
    let usual = if arguments.seconds.is_some() { u64::MAX } else { 10_000 };
    let time = arguments.seconds.map(Duration::from_secs);
    let limits = Limits { calls: arguments.ops.unwrap_or(usual), time };
    let index: usize = child[1].parse()?;
    let seed = arguments.seed.wrapping_mul(1000).wrapping_add(index as u64);
    let calls = match &child[0][..] {
        "own" => Stress::new(&arguments.directory, seed).run(limits),
        _ => Racer::new(&arguments.directory, index, seed ^ 0x5555).run(limits),
    };
    calls.with_context(|| format!("process {index} ({})", child[0])).map(|calls| calls.to_string())
}

/// Starts all processes, waits for them, and looks at what they leave.
fn lead(arguments: &Arguments) -> Result<String> {
    let top = format!("{}/stress-{}", arguments.directory, std::process::id());
    let shared_tree = format!("{top}/shared");
    std::fs::create_dir_all(format!("{shared_tree}/tree")).context(top.clone())?;
    let mut children = Vec::new();
    for index in 0..arguments.processes {
        let own = format!("{top}/own-{index}");
        std::fs::create_dir(&own).context(own.clone())?;
        children.push(start(arguments, &own, "own", index)?);
        children.push(start(arguments, &shared_tree, "shared", index)?);
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
    shared::check(&shared_tree, arguments.processes).context("DIFFERENCE in the shared tree")?;
    remove(Path::new(&top))?;
    let Arguments { seed, processes, .. } = arguments;
    Ok(format!("stress, seed {seed}: {calls} calls of 2 x {processes} processes, no difference"))
}

fn start(arguments: &Arguments, directory: &str, what: &str, index: usize) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(directory).arg("--seed").arg(arguments.seed.to_string());
    if let Some(seconds) = arguments.seconds {
        command.arg("--seconds").arg(seconds.to_string());
    }
    if let Some(calls) = arguments.ops {
        command.arg("--ops").arg(calls.to_string());
    }
    command.args(["--child", what, &index.to_string()]).stdout(Stdio::piped());
    command.spawn().context("starting a process")
}

/// Everything that was made can be removed, and nothing is left.
fn remove(top: &Path) -> Result<()> {
    std::fs::remove_dir_all(top).context("DIFFERENCE: removing what was made")?;
    ensure!(!top.exists(), "DIFFERENCE: {} is still there", top.display());
    Ok(())
}

//! `posix-stress DIR`: makes random calls on trees with many processes.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use dafs_posix_suite::many::{self, Plan};
use dafs_posix_suite::stress::Limits;

/// Starts processes that make random calls, each on a tree of its own, which is compared with a
/// model, and as many processes that share one tree. Exits with 1 if there is a difference, and
/// then keeps the trees.
#[derive(Debug, Parser)]
struct Arguments {
    /// A directory. Everything made in it is removed if there was no difference.
    directory: String,
    /// Number of processes with trees of their own. As many share one tree.
    #[arg(long, value_name = "N", default_value_t = 4)]
    processes: usize,
    /// Seconds to run.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Maximum number of calls per process. Default: 10,000, or as many as the time allows.
    #[arg(long, value_name = "N")]
    ops: Option<u64>,
    /// Seed. The same seed makes the same calls on the trees that are not shared.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let outcome = match &words[..] {
        [_, first, rest @ ..] if first == many::CHILD => many::child(rest),
        _ => lead(&Arguments::parse()),
    };
    match outcome {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(difference) => {
            println!("{difference:#}");
            ExitCode::FAILURE
        }
    }
}

fn lead(arguments: &Arguments) -> Result<String> {
    let usual = if arguments.seconds.is_some() { u64::MAX } else { 10_000 };
    let time = arguments.seconds.map(Duration::from_secs);
    let limits = Limits { calls: arguments.ops.unwrap_or(usual), time };
    let plan = Plan { processes: arguments.processes, limits, seed: arguments.seed };
    many::lead(&std::env::current_exe()?, &arguments.directory, &plan)
}

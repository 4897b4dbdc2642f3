//! `posix-fsx FILE`: makes random calls on a file and compares it with a model in memory.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use dafs_posix_suite::fsx::{Fsx, Limits};

/// Makes random calls on a file and compares its contents with the expected contents. Exits with 1
/// if they differ.
#[derive(Debug, Parser)]
struct Arguments {
    /// The file. It is created or truncated, and removed if there was no difference.
    file: String,
    /// Seconds to run.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Maximum number of calls. Default: a million, or as many as the time allows.
    #[arg(long, value_name = "N")]
    ops: Option<u64>,
    /// Seed. The same seed makes the same calls.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// The maximum length of the file in bytes.
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    length: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let time = arguments.seconds.map(Duration::from_secs);
    let usual = if time.is_some() { u64::MAX } else { 1_000_000 };
    let calls = arguments.ops.unwrap_or(usual);
    let limits = Limits { calls, time, length_max: arguments.length.max(8192) };
    let seed = arguments.seed;
    let said = Fsx::new(&arguments.file, seed, limits).and_then(|mut fsx| fsx.run());
    match said {
        Ok(said) => {
            println!("fsx, seed {seed}: {said}");
            let _ = std::fs::remove_file(&arguments.file);
            ExitCode::SUCCESS
        }
        Err(difference) => {
            println!("fsx, seed {seed}: DIFFERENCE: {difference:#}");
            ExitCode::FAILURE
        }
    }
}

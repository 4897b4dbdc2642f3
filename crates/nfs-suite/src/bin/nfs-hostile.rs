//! `nfs-hostile URL --process PID`: sends bad messages to a server, and measures its memory.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use dafs_nfs_suite::bench::Target;
use dafs_nfs_suite::hostile::{Load, run};

/// Sends bad messages to a server, and checks that another client is served and that the memory of
/// the server does not grow.
#[derive(Debug, Parser)]
struct Arguments {
    /// The server and an export that user 0 may change without being squashed:
    /// nfs://HOST:PORT/PATH.
    url: String,
    /// The process of the server on this host, whose memory is measured.
    #[arg(long, value_name = "PID")]
    process: u32,
    /// The number of bad messages to send.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
    messages: u64,
    /// The number that the messages depend on.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of mebibytes by which the memory of the server may grow.
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    growth: u64,
    /// Run only this attacker beside the bad messages: half-records, endless-fragments,
    /// slow-readers, long-compounds, many-clients, slot-games, short-connections,
    /// bad-connections. May be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

fn main() -> ExitCode {
    match attack(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nfs-hostile: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn attack(arguments: &Arguments) -> Result<()> {
    let load = Load {
        target: Target::of(&arguments.url)?,
        process: arguments.process,
        messages: arguments.messages,
        seed: arguments.seed,
        growth_bytes_max: arguments.growth << 20,
        only: arguments.only.clone(),
    };
    let report = run(&load)?;
    println!("{} bad messages, {} other actions", report.messages, report.actions);
    println!(
        "{} operations of the witness, four in at most {:?}",
        report.witnessed, report.longest
    );
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "memory: {} MiB before, {} MiB at most, {} MiB after",
        mib(report.bytes_before),
        mib(report.bytes_most),
        mib(report.bytes_after)
    );
    Ok(())
}

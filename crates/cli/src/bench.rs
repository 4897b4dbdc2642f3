//! `dafs bench`: the measurements of `dafs_bench` against servers of our own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use dafs_bench::Options;

use crate::served::Served;

/// Arguments of `dafs bench`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Directory for the report as JSON and for the plots.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Only the block sizes that the goals speak of; ends in about a minute.
    #[arg(long)]
    quick: bool,
    /// Show that everything works; the figures mean nothing.
    #[arg(long, hide = true, conflicts_with = "quick")]
    tiny: bool,
    /// Only peers whose name contains this, such as "shm read".
    #[arg(long)]
    only: Option<String>,
    /// Block sizes in octets, at most 1 MiB each.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    block: Vec<u64>,
    /// Rounds for each median.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: Option<u64>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let scratch = tempfile::tempdir().context("making a temporary directory")?;
    let mut options = options(arguments)?;
    let served = start(&scratch.path().join("busy"))?;
    options.servers.clone_from(&served.addresses);
    options.server_process = Some(served.process());
    let idle = start(&scratch.path().join("idle"))?;
    options.idle_servers.clone_from(&idle.addresses);
    options.idle_process = Some(idle.process());
    let report = dafs_bench::report(&mut std::io::stdout(), &options)?;
    if let Some(directory) = &arguments.output {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("making {}", directory.display()))?;
        let path = directory.join("bench.json");
        std::fs::write(&path, serde_json::to_vec_pretty(&report)?)
            .with_context(|| format!("writing {}", path.display()))?;
        println!("\nwritten: {}", path.display());
        for path in dafs_bench::plot(&report, directory)? {
            println!("written: {}", path.display());
        }
    }
    Ok(())
}

fn options(arguments: &Arguments) -> Result<Options> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut options = match arguments {
        Arguments { tiny: true, .. } => Options::tiny(program),
        Arguments { quick: true, .. } => Options::quick(program),
        _ => Options::full(program),
    };
    if !arguments.block.is_empty() {
        let blocks = arguments.block.iter().map(|&block| usize::try_from(block));
        options.block_sizes = blocks.collect::<Result<_, _>>()?;
    }
    if let Some(rounds) = arguments.rounds {
        options.rounds = usize::try_from(rounds)?;
    }
    options.only.clone_from(&arguments.only);
    if options.only.is_some() {
        options.idle_sessions = 0;
        options.contends = false;
    }
    Ok(options)
}

/// A server of an empty directory beneath `place`.
fn start(place: &Path) -> Result<Served> {
    let exported = place.join("export");
    std::fs::create_dir_all(&exported).with_context(|| format!("making {}", exported.display()))?;
    Served::start(place, &[exported.display().to_string()])
}

/// Arguments of `dafs bench-peer`: what a process does that is measured against.
#[derive(Debug, Args)]
pub struct PeerArguments {
    /// echo, stream or busy.
    work: String,
}

pub fn serve_peer(arguments: &PeerArguments) -> Result<()> {
    dafs_bench::serve_child(&arguments.work)
}

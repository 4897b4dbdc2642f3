//! `dafs bench`: the measurements of `dafs_bench` against a server of our own.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::served::Served;

/// Arguments of `dafs bench`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where the JSON report goes.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Few sizes, short rounds.
    #[arg(long)]
    quick: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let scratch = tempfile::tempdir().context("making a temporary directory")?;
    let exported = scratch.path().join("export");
    std::fs::create_dir(&exported)?;
    let served = Served::start(scratch.path(), &[exported.display().to_string()])?;
    let mut options =
        if arguments.quick { dafs_bench::Options::quick() } else { dafs_bench::Options::full() };
    options.servers = served.addresses.clone();
    options.server_process = Some(served.process());
    let report = dafs_bench::report(&mut std::io::stdout(), &options)?;
    if let Some(directory) = &arguments.output {
        std::fs::create_dir_all(directory)?;
        let path = directory.join("bench.json");
        std::fs::write(&path, serde_json::to_vec_pretty(&report)?)?;
        println!("written: {}", path.display());
    }
    Ok(())
}

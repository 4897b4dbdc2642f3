//! Shell completions and manual pages, made from the command line's own description.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Arguments of `dafs completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

pub fn completions(arguments: &Completions) -> Result<()> {
    let mut command = crate::Cli::command();
    clap_complete::generate(arguments.shell, &mut command, "dafs", &mut std::io::stdout());
    Ok(())
}

/// Arguments of `dafs man`.
#[derive(Debug, Args)]
pub struct Manual {
    /// Where the pages go.
    directory: PathBuf,
}

pub fn manual(arguments: &Manual) -> Result<()> {
    std::fs::create_dir_all(&arguments.directory)
        .with_context(|| format!("making {}", arguments.directory.display()))?;
    clap_mangen::generate_to(crate::Cli::command(), &arguments.directory)
        .with_context(|| format!("writing pages into {}", arguments.directory.display()))
}

//! Makes shell completions and manual pages from the descriptions of the command line and the
//! configuration.
//!
//! Invariant: every option of `dafs` is in a page, and nothing is maintained by hand.

mod config_page;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell for which to print completions.
    shell: Shell,
}

pub(crate) fn completions(arguments: &Completions) -> Result<()> {
    let mut command = crate::Cli::command();
    // Generate into memory, because clap panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "dafs", &mut script);
    Ok(std::io::stdout().write_all(&script)?)
}

#[derive(Debug, Args)]
pub(crate) struct Manual {
    /// The directory into which the manual pages are written.
    directory: PathBuf,
}

pub(crate) fn manual(arguments: &Manual) -> Result<()> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory)
        .with_context(|| format!("making {}", directory.display()))?;
    // Every command has --help; a page for each `help` subcommand is of no use.
    let mut command = crate::Cli::command().disable_help_subcommand(true);
    command.build();
    pages(&command, directory)
        .and_then(|()| std::fs::write(directory.join(config_page::NAME), config_page::page()))
        .with_context(|| format!("writing pages into {}", directory.display()))
}

/// Writes the page of a command and those of its subcommands.
fn pages(command: &Command, directory: &Path) -> std::io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, directory)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let page = Man::new(command.clone())
        .title(name.to_uppercase())
        .source(concat!("dafs ", env!("CARGO_PKG_VERSION")))
        .manual("DAFS");
    let mut text = Vec::new();
    page.render(&mut text)?;
    see_also(command, name).to_writer(&mut text)?;
    std::fs::write(directory.join(format!("{name}.1")), text)
}

/// Returns the SEE ALSO section: the parent command, the subcommands, and the formats that a
/// command reads.
fn see_also(command: &Command, name: &str) -> Roff {
    let mut others: Vec<(String, &str)> = Vec::new();
    if let Some((above, _)) = name.rsplit_once('-').filter(|_| name.starts_with("dafs-")) {
        // `recover-test` is one word.
        let above = if above == "dafs-recover" { "dafs" } else { above };
        others.push((above.to_owned(), "1"));
    }
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    others.extend(below.filter_map(|below| Some((below.get_display_name()?.to_owned(), "1"))));
    match name {
        "dafs" => others.extend([("dafs".to_owned(), "3"), ("dafs.toml".to_owned(), "5")]),
        "dafs-serve" => others.push(("dafs.toml".to_owned(), "5")),
        "dafs-mount" => others.push(("mount.fuse.dafs".to_owned(), "8")),
        "dafs-fence" => others.push(("fence_dafs".to_owned(), "8")),
        _ => {}
    }
    let mut roff = Roff::default();
    roff.control("SH", ["SEE ALSO"]);
    roff.text(references(&others));
    roff
}

fn references(others: &[(String, &str)]) -> Vec<Inline> {
    let mut line = Vec::new();
    for (index, (name, section)) in others.iter().enumerate() {
        if index > 0 {
            line.push(roman(", "));
        }
        line.extend([bold(name.as_str()), roman(format!("({section})"))]);
    }
    line
}

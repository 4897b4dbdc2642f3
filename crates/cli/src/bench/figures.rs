//! `dafs bench figures`: draws every figure of the DAFS papers that can be measured on one machine.
//!
//! Invariant: each plot shows the limit and the compared peers of the same run. The numbers are
//! saved next to the plots as JSON.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_bench::scale::{self, plot_scale};
use dafs_bench::{Bars, Figure, MergeReport, MergeSettings, bars, merge_cost, plot_merge};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::host::Host;
use super::medium::memory;
use super::{Blocks, gzip, postmark};
use crate::place::Access;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Directory into which the plots and their numbers are written.
    #[arg(long, default_value = "docs/figures")]
    output: PathBuf,
    /// Redraw the plots from the numbers in that directory, without measuring.
    #[arg(long, conflicts_with_all = ["place", "tiny"])]
    redraw: bool,
    /// Draw only the figures whose name contains this text: blocks, gzip, merge, postmark.
    #[arg(long)]
    only: Option<String>,
    /// Where to put the applications' files. Default: in memory, or else in the directory for
    /// temporary files.
    #[arg(long)]
    place: Option<PathBuf>,
    /// Only check that everything works; the figures mean nothing.
    #[arg(long, hide = true)]
    tiny: bool,
    #[command(flatten)]
    access: Access,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let directory = arguments.output.as_path();
    let wants = |name: &str| arguments.only.as_ref().is_none_or(|only| name.contains(only));
    if arguments.redraw {
        return redraw(directory, wants);
    }
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    if wants("blocks") {
        println!("== Figures 4 to 7 of the DAFS paper: blocks");
        super::blocks(&Blocks {
            url: None,
            output: Some(directory.to_owned()),
            quick: false,
            tiny: arguments.tiny,
            only: None,
            block: Vec::new(),
            rounds: None,
            access: arguments.access.clone(),
        })?;
    }
    if wants("gzip") {
        println!("\n== Figure 8 of the DAFS paper: gzip");
        draw_gzip(arguments, directory)?;
    }
    if wants("merge") {
        println!("\n== Merges, after TPIE over DAFS");
        draw_merge(arguments, directory)?;
    }
    if wants("postmark") {
        println!("\n== Postmark, after Federated DAFS");
        draw_postmark(arguments, directory)?;
    }
    Ok(())
}

/// The fields of `bench.json` that `--redraw` needs.
#[derive(Deserialize)]
struct Measured {
    figures: Vec<Figure>,
}

/// Redraws the plots from the results of an earlier run.
fn redraw(directory: &Path, wants: impl Fn(&str) -> bool) -> Result<()> {
    let mut found = false;
    if let Some(report) = kept::<Measured>(directory, "bench.json", wants("blocks"))? {
        tell(&dafs_bench::plot(&report.figures, directory)?);
        found = true;
    }
    if let Some(report) = kept::<gzip::Report>(directory, "gzip.json", wants("gzip"))? {
        plot_gzip(&report, directory)?;
        found = true;
    }
    if let Some(report) = kept::<MergeReport>(directory, "merge.json", wants("merge"))? {
        tell(&plot_merge(&report, directory)?);
        found = true;
    }
    for name in ["postmark", "postmark-memory"] {
        let file = format!("{name}.json");
        if let Some(report) = kept::<postmark::Report>(directory, &file, wants("postmark"))? {
            plot_postmark(&report, directory, name)?;
            found = true;
        }
    }
    if let Some(report) = kept::<scale::Report>(directory, "scale.json", wants("scale"))? {
        tell(&plot_scale(&report, directory)?);
        found = true;
    }
    if !found {
        bail!(
            "{} has no numbers to draw: run dafs bench figures without --redraw first, or name \
             another directory with --output",
            directory.display()
        );
    }
    Ok(())
}

/// Reads the results of an earlier run from `file`. Returns `None` if `wanted` is false or the file
/// does not exist.
fn kept<R: DeserializeOwned>(directory: &Path, file: &str, wanted: bool) -> Result<Option<R>> {
    let path = directory.join(file);
    if !wanted || !path.try_exists()? {
        return Ok(None);
    }
    let text = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let report = serde_json::from_slice(&text)
        .with_context(|| format!("{} does not contain results of this program", path.display()))?;
    Ok(Some(report))
}

fn draw_gzip(arguments: &Arguments, directory: &Path) -> Result<()> {
    let full = || gzip::Arguments::full(place(arguments));
    let report = gzip::run(&if arguments.tiny { gzip::Arguments::tiny() } else { full() })?;
    keep(directory, "gzip.json", &report)?;
    plot_gzip(&report, directory)
}

fn plot_gzip(report: &gzip::Report, directory: &Path) -> Result<()> {
    let (seconds, outside) = report.bars();
    let title = format!("gzip -{} of 2 x {} MiB", report.level, report.megabytes);
    draw(directory, "figure-8-gzip.svg", &title, "seconds, lower is better", seconds)?;
    let title = "gzip: processor time outside compression, one process";
    draw(directory, "figure-8-gzip-cpu.svg", title, "seconds, lower is better", outside)
}

/// Returns the directory for the applications' files. The directory is in memory if possible, as in
/// the measurements at Duke, because a disk would hide the differences that the figures compare.
fn place(arguments: &Arguments) -> Option<PathBuf> {
    arguments.place.clone().or_else(memory)
}

fn draw_merge(arguments: &Arguments, directory: &Path) -> Result<()> {
    let host = Host::start(place(arguments).as_deref(), &["--cache", "1G"])?;
    let exported = host.exported();
    let full = MergeSettings::full;
    let settings = if arguments.tiny { MergeSettings::tiny } else { full }(exported);
    let servers = vec![host.address("shm")?.clone(), host.address("tcp")?.clone()];
    let session = host.options();
    let report = merge_cost(&MergeSettings { servers, session, ..settings })?;
    report.print(&mut std::io::stdout())?;
    keep(directory, "merge.json", &report)?;
    tell(&plot_merge(&report, directory)?);
    Ok(())
}

pub(super) fn tell(written: &[PathBuf]) {
    for path in written {
        println!("written: {}", path.display());
    }
}

/// Measures and draws Postmark twice: on a typical file system, and on one with almost no cost.
fn draw_postmark(arguments: &Arguments, directory: &Path) -> Result<()> {
    if arguments.tiny {
        return draw_postmark_at(&postmark::Arguments::tiny(), directory, "postmark");
    }
    let at = postmark::Arguments::full;
    draw_postmark_at(&at(arguments.place.clone()), directory, "postmark")?;
    match memory() {
        Some(memory) if arguments.place.is_none() => {
            println!();
            draw_postmark_at(&at(Some(memory)), directory, "postmark-memory")
        }
        _ => Ok(()),
    }
}

fn draw_postmark_at(settings: &postmark::Arguments, directory: &Path, name: &str) -> Result<()> {
    let report = postmark::run(settings)?;
    keep(directory, &format!("{name}.json"), &report)?;
    plot_postmark(&report, directory, name)
}

fn plot_postmark(report: &postmark::Report, directory: &Path, name: &str) -> Result<()> {
    let title =
        format!("Postmark, 4 KiB files on {} (xN in flight; what survives what)", report.medium);
    let (file, axis) = (format!("{name}.svg"), "transactions a second");
    draw(directory, &file, &title, axis, report.bars())
}

fn draw(
    directory: &Path,
    file: &str,
    title: &str,
    axis: &str,
    rows: Vec<dafs_bench::Bar>,
) -> Result<()> {
    let path = directory.join(file);
    bars(&Bars { title, axis, groups: ["DAFS", "others"], rows }, &path)?;
    println!("written: {}", path.display());
    Ok(())
}

pub(super) fn keep(directory: &Path, file: &str, report: &impl Serialize) -> Result<()> {
    let path = directory.join(file);
    std::fs::write(&path, serde_json::to_vec_pretty(report)?)
        .with_context(|| path.display().to_string())?;
    println!("written: {}", path.display());
    Ok(())
}

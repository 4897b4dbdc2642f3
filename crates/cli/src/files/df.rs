//! `dafs df`: shows the space of a file system.

use std::ffi::OsString;
use std::io::Write;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::place::{Access, open};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Any file or directory of the file system to show, as a URL.
    url: OsString,
    /// Print JSON, with all sizes in bytes.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let (session, path) = open(&arguments.url, &arguments.access)?;
    let limits = session.file_system(&path)?;
    if arguments.json {
        let value = json!({
            "total": limits.space_total, "free": limits.space_free,
            "available": limits.space_available,
        });
        writeln!(std::io::stdout(), "{value}")?;
        return Ok(());
    }
    let show = |value: Option<u64>| value.map_or("-".into(), |v| (v >> 20).to_string());
    let used =
        limits.space_total.zip(limits.space_free).map(|(all, free)| all.saturating_sub(free));
    writeln!(
        std::io::stdout(),
        "{:>12} {:>12} {:>12} {:>12}",
        "MiB total",
        "used",
        "free",
        "available"
    )?;
    writeln!(
        std::io::stdout(),
        "{:>12} {:>12} {:>12} {:>12}",
        show(limits.space_total),
        show(used),
        show(limits.space_free),
        show(limits.space_available)
    )?;
    Ok(())
}

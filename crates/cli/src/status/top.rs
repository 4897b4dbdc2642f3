//! `dafs top`: shows live statistics of a server on a terminal.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use dafs_watch::top::{self, Rates};
use serde_json::Value;

use super::ask;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The server's socket for shared memory, as `dafs serve` prints it, or http://HOST:PORT of
    /// `dafs serve --http`. Default: the usual places for port 2050.
    #[arg(value_name = "SOCKET|URL")]
    server: Option<PathBuf>,
    /// Seconds between updates.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    /// Take two samples and print what happened in between, for scripts.
    #[arg(long)]
    once: bool,
    /// Print JSON with all details; implies --once.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if !(0.1..=3600.0).contains(&arguments.interval) {
        bail!("--interval {}: give 0.1 to 3600 seconds", arguments.interval);
    }
    let interval = Duration::from_secs_f64(arguments.interval);
    let server = arguments.server.as_deref();
    if !arguments.once && !arguments.json {
        return top::run(|| look(server), interval);
    }
    let before = look(server)?;
    std::thread::sleep(interval);
    let rates = Rates::between(Some(before), look(server)?);
    if arguments.json {
        println!("{}", crate::terminal_text::json(&rates.document()));
    } else {
        print!("{}", top::page(rates));
    }
    Ok(())
}

fn look(server: Option<&Path>) -> Result<Value> {
    match server.and_then(Path::to_str) {
        Some(url) if url.starts_with("http://") => dafs_watch::fetch_status(url),
        _ => ask(server),
    }
}

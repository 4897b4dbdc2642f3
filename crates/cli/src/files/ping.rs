//! `dafs ping`: measures round trips.

use std::ffi::OsString;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use crate::place::{Access, open};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The URL of the server to measure.
    url: OsString,
    /// Number of round trips to measure.
    #[arg(short, long, default_value_t = 100)]
    count: usize,
    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let (session, _) = open(&arguments.url, &arguments.access)?;
    let mut times: Vec<Duration> = Vec::with_capacity(arguments.count);
    for _ in 0..arguments.count.max(1) {
        let start = Instant::now();
        session.ping()?;
        times.push(start.elapsed());
    }
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    writeln!(std::io::stdout(), "{} round trips over {}", times.len(), session.address())?;
    writeln!(
        std::io::stdout(),
        "min {:?}  median {:?}  p99 {:?}  max {:?}",
        at(0.0),
        at(0.5),
        at(0.99),
        at(1.0)
    )?;
    Ok(())
}

//! `dafs postmark`: runs the Postmark workload on a server or in a local directory.

use std::io::Write;

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_bench::postmark::{self, Directory, Outcome, Served, Workload};

use crate::place::{Access, Place, connect, text};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The directory to work in: a local path or a URL. It must not contain s0, s1 and so on, which
    /// the workload makes and removes.
    place: String,
    #[command(flatten)]
    numbers: Numbers,
    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

/// The parameters of the workload.
#[derive(Clone, Debug, Args)]
pub(crate) struct Numbers {
    /// Number of files in the pool before the first transaction.
    #[arg(long, default_value_t = 500)]
    pub files: usize,
    /// Number of transactions: each is a read, and a creation or a removal.
    #[arg(long, default_value_t = 10_000)]
    pub transactions: usize,
    /// Number of directories that the files are spread over.
    #[arg(long, default_value_t = 10)]
    pub directories: usize,
    /// Size of each file in bytes, as 4096 or 4K, or a range as 2K-16K; 64 KiB at most.
    #[arg(long, default_value = "4K", value_parser = sizes)]
    pub size: (usize, usize),
    /// Number of steps that are in flight at a time.
    #[arg(long, default_value_t = 8)]
    pub in_flight: usize,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Flush each file to stable storage before it counts as created.
    #[arg(long)]
    pub stable: bool,
}

impl Numbers {
    pub(crate) fn workload(&self) -> Workload {
        let &Self { files, transactions, directories, size, in_flight, seed, stable } = self;
        let (size_min, size_max) = size;
        Workload { files, transactions, directories, size_min, size_max, in_flight, seed, stable }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let workload = arguments.numbers.workload();
    let outcome = match Place::parse(&arguments.place)? {
        Place::Local(path) => {
            postmark::run(&workload, &mut Directory::new(&path, workload.stable)?)?
        }
        Place::Remote(location) => {
            let session = connect(&location, &arguments.access)?;
            let mut served = Served::new(&session, text(&location.path)?, workload.stable);
            postmark::run(&workload, &mut served)?
        }
    };
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&outcome)?)?;
        return Ok(());
    }
    let Workload { in_flight, .. } = workload;
    let Outcome { transactions_per_second, created_per_second, removed_per_second, .. } = outcome;
    writeln!(out, "{transactions_per_second:.0} transactions/s, {in_flight} in flight")?;
    writeln!(out, "{created_per_second:.0} files made/s, {removed_per_second:.0} removed/s")?;
    let work = &outcome.work;
    writeln!(
        out,
        "{} transactions in {:.3} s: {} files read, {} made and {} removed with the pool's; \
         checksum {:016x}",
        work.transactions, outcome.seconds, work.read, work.created, work.removed, work.checksum
    )?;
    Ok(())
}

/// Parses `4096`, `4K` or `2K-16K`.
fn sizes(text: &str) -> Result<(usize, usize)> {
    let (smallest, largest) = text.split_once('-').unwrap_or((text, text));
    let sizes = (bytes(smallest)?, bytes(largest)?);
    if sizes.0 > sizes.1 {
        bail!("{text}: write the smaller size first");
    }
    Ok(sizes)
}

fn bytes(text: &str) -> Result<usize> {
    let (number, factor) = match text.strip_suffix(['K', 'k']) {
        Some(number) => (number, 1024),
        None => (text, 1),
    };
    let number: usize = number.parse().with_context(|| format!("{text:?} is not a size"))?;
    number.checked_mul(factor).with_context(|| format!("{text} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_or_ranges() {
        assert_eq!(sizes("4096").unwrap(), (4096, 4096));
        assert_eq!(sizes("2K-16k").unwrap(), (2048, 16384));
        for wrong in ["", "K", "4K-2K", "4M", "-1"] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
    }
}

//! The merge graph of Duke University: merge throughput over DAFS (synchronous and double
//! buffered), local files, and nfs-ganesha through libnfs, for merge orders 2, 4 and 8 and several
//! record densities.
//!
//!
//! ```text
//! cargo run --release -p dafs-bench --example merge_cost -- DAFS DIRECTORY [--tiny] [--quick]
//!     [--block BYTES] [--depth COUNT] [--rounds COUNT] [--order COUNT] [--record BYTES]
//!     [--only PEER] [--no-nfs] [--json FILE] [--plots DIRECTORY]
//! ```
//!
//! DAFS is the program whose server is measured. All files are in a new directory in DIRECTORY,
//! such as /dev/shm, which leaves disks out as Duke did.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use dafs_bench::{MergeReport, MergeSettings, merge_cost, plot_merge};
use dafs_dat::Address;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let (Some(program), Some(directory)) = (words.next(), words.next()) else {
        bail!(
            "usage: merge_cost DAFS DIRECTORY [options]; the options are listed at the top of the source file"
        );
    };
    let place = tempfile::tempdir_in(directory).context("making a temporary directory")?;
    let export = place.path().join("export");
    std::fs::create_dir(&export)?;
    let mut settings = MergeSettings::full(export.clone());
    let (mut json, mut plots): (Option<PathBuf>, Option<PathBuf>) = (None, None);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--tiny" => settings = MergeSettings::tiny(export.clone()),
            "--quick" => {
                (settings.rounds, settings.record_sizes) = (3, vec![64 << 10, 1 << 10, 64])
            }
            "--block" => settings.block_bytes = value()?.parse()?,
            "--depth" => settings.depth = value()?.parse()?,
            "--rounds" => settings.rounds = value()?.parse()?,
            "--order" => settings.orders = vec![value()?.parse()?],
            "--record" => settings.record_sizes = vec![value()?.parse()?],
            "--only" => settings.only = Some(value()?),
            "--no-nfs" => settings.with_nfs = false,
            "--json" => json = Some(value()?.into()),
            "--plots" => plots = Some(value()?.into()),
            other => bail!("unknown option {other}"),
        }
    }
    let served = Served::start(Path::new(&program), place.path(), &export)?;
    settings.servers = served.addresses.clone();
    let report = merge_cost(&settings)?;
    report.print(&mut std::io::stdout())?;
    judge(&report);
    if let Some(path) = json {
        std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
    }
    if let Some(directory) = plots {
        for path in plot_merge(&report, &directory)? {
            println!("{}", path.display());
        }
    }
    Ok(())
}

/// Checks the goals for merges with the largest records.
fn judge(report: &MergeReport) {
    let Some(record) = report.points.iter().map(|point| point.record_bytes).max() else { return };
    let goals = [
        ("tcp asynchronous", "nfs asynchronous", 2.0),
        ("shm asynchronous", "local asynchronous", 0.95),
        ("tcp asynchronous", "tcp synchronous", 1.3),
    ];
    for (peer, other, goal) in goals {
        for order in [2, 4, 8] {
            if let Some(ratio) = report.ratio(peer, other, order, record) {
                let verdict = if ratio >= goal { "met" } else { "MISSED" };
                println!(
                    "{peer} to {other}, order {order}, records of {record}: {ratio:.2}, \
                     at least {goal}: {verdict}"
                );
            }
        }
    }
}

/// A server in a process of its own.
struct Served {
    child: Child,
    addresses: Vec<Address>,
}

impl Served {
    fn start(program: &Path, place: &Path, export: &Path) -> Result<Self> {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        let mut child = Command::new(program)
            .arg("serve")
            .arg(export)
            .args([
                "--tcp",
                "127.0.0.1:0",
                "--cache",
                "1G",
                "--squash",
                "none",
                "--while-stdin",
                "--anonymous",
            ])
            .arg(format!("{}:{}", uid.as_raw(), gid.as_raw()))
            .arg("--socket")
            .arg(place.join("socket"))
            .arg("--state")
            .arg(place.join("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("the server has no standard output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let mut served = Self { child, addresses: Vec::new() };
        let addresses = line.trim().strip_prefix("ready: ").context("the server is not ready")?;
        for address in addresses.split(' ') {
            served.addresses.push(match address.split_once(':') {
                Some(("tcp", address)) => Address::Tcp(address.parse()?),
                Some(("shm", path)) => Address::Shm(path.into()),
                _ => bail!("the server is at {address}, which is neither tcp nor shm"),
            });
        }
        // Shared memory comes first.
        served.addresses.sort_by_key(|address| !matches!(address, Address::Shm(_)));
        Ok(served)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The server ends when its standard input is closed; killing makes sure of it.
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

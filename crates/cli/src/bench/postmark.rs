//! `dafs bench postmark`: runs Postmark on a server started here, through libnfs on nfs-ganesha,
//! and in a local directory, all on one file system. It also runs the original postmark program
//! through the mount and through the preload library.
//!
//! Invariant: all contestants do the same work, which a checksum confirms, in interleaved rounds.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_bench::Bar;
use dafs_bench::postmark::{self, Directory, Served, Store, Workload};
use dafs_client::{Client, ClientConfig, Session};
use dafs_dat::WaitPolicy;
use serde::{Deserialize, Serialize};

use super::host::{Host, cost, ganesha, has, median, with_input};
use super::medium::Medium;
use crate::postmark::Numbers;

#[derive(Clone, Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    numbers: Numbers,
    /// Number of rounds for each median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Where to put the files. Default: a new ext4 with a journal, in memory (root only; other
    /// users get memory without a journal).
    #[arg(long)]
    place: Option<PathBuf>,
}

impl Arguments {
    /// Returns minimal arguments, which only show that everything works; the results mean nothing.
    pub(super) fn tiny() -> Self {
        let numbers = Numbers {
            files: 20,
            transactions: 40,
            directories: 2,
            size: (4096, 4096),
            in_flight: 2,
            seed: 1,
            stable: false,
        };
        Self { numbers, rounds: 1, place: None }
    }

    /// Returns the arguments for `dafs bench figures`.
    pub(super) fn full(place: Option<PathBuf>) -> Self {
        let numbers =
            Numbers { files: 500, transactions: 20_000, in_flight: 8, ..Self::tiny().numbers };
        Self { numbers: Numbers { directories: 10, ..numbers }, rounds: 5, place }
    }
}

/// The result of one contestant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub who: String,
    /// The worst failure that acknowledged data survives, such as "a killed process".
    pub durability: Cow<'static, str>,
    pub in_flight: usize,
    /// The median of the transactions per second of all rounds.
    pub transactions_per_second: f64,
    #[serde(skip)]
    rounds: Vec<f64>,
}

/// The results of all contestants, compared with the project's goals.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub workload: Workload,
    /// A description of the file system that the files are on.
    pub medium: String,
    pub rows: Vec<Row>,
    /// A checksum over the operations, which must be equal for all contestants.
    pub checksum: u64,
    /// The project's goals. For each goal: the measured ratio, its minimum, and a description.
    pub goals: Vec<(f64, f64, String)>,
}

impl Report {
    fn rate(&self, who: &str, in_flight: usize) -> Option<f64> {
        let mut rows = self.rows.iter();
        let row = rows.find(|row| row.who == who && row.in_flight == in_flight)?;
        Some(row.transactions_per_second)
    }

    /// Returns the bars for the plot.
    pub(super) fn bars(&self) -> Vec<Bar> {
        let rows = self.rows.iter();
        rows.map(|row| Bar {
            label: format!("{} x{} ({})", row.who, row.in_flight, row.durability),
            value: row.transactions_per_second,
            group: usize::from(!row.who.contains("dafs")),
        })
        .collect()
    }
}

/// A store to measure, with one step in flight and with several.
struct Contestant {
    who: &'static str,
    durability: &'static str,
    store: Box<dyn Store>,
}

pub(super) fn run(arguments: &Arguments) -> Result<Report> {
    let workload = arguments.numbers.workload();
    let medium = arguments.place.as_deref().map_or_else(Medium::journaled, Medium::at);
    let place = Some(medium.directory());
    let journaled = Host::start(place, &[])?;
    let remembered = Host::start(place, &["--exactly-once", "memory"])?;
    let nfs_directory = journaled.beside("nfs")?;
    let ganesha = ganesha(&nfs_directory)?;
    let stable = workload.stable;
    let mut contestants = Vec::new();
    let local = Directory::new(&journaled.beside("local")?, stable)?;
    contestants.push(Contestant { who: "local", durability: NOTHING, store: Box::new(local) });
    let (usual, spinning) = (WaitPolicy::default(), WaitPolicy { spin_max: SPIN_MAX });
    for (transport, who, host, wait, stable, durability) in [
        ("shm", "dafs shm", &remembered, usual, stable, MEMORY),
        ("tcp", "dafs tcp", &remembered, usual, stable, MEMORY),
        ("tcp", "dafs tcp, spinning", &remembered, spinning, stable, MEMORY),
        // These contestants have the same durability as libnfs.
        ("tcp", "dafs tcp, commit", &remembered, usual, true, COMMITTED),
        ("shm", "dafs shm, journal", &journaled, usual, stable, JOURNAL),
        ("tcp", "dafs tcp, journal", &journaled, usual, stable, JOURNAL),
    ] {
        let session = session(host, transport, wait)?;
        let store = Box::new(Served::new(&session, "/", stable));
        contestants.push(Contestant { who, durability, store });
    }
    if let Some(ganesha) = &ganesha {
        let store = Box::new(postmark::Mounted::new(ganesha.mount()?, stable));
        contestants.push(Contestant { who: "libnfs", durability: COMMITTED, store });
    }
    let mut report = measure(&workload, &medium.kind, arguments.rounds, &mut contestants)?;
    drop(contestants);
    real(&workload, arguments.rounds, &remembered, &mut report)?;
    report.goals = goals(&report);
    print(&report);
    Ok(report)
}

fn session(host: &Host, transport: &str, wait: WaitPolicy) -> Result<Session> {
    let client = Client::new(ClientConfig::default().wait(wait))?;
    Ok(client.connect_to(host.address(transport)?, &host.options())?)
}

/// Measures all contestants, with one step in flight and with the requested number.
fn measure(
    workload: &Workload,
    medium: &str,
    rounds: usize,
    contestants: &mut [Contestant],
) -> Result<Report> {
    let mut rows: Vec<Row> = Vec::new();
    let mut checksum = 0;
    let mut depths = vec![1, workload.in_flight];
    depths.dedup();
    for depth in depths {
        let workload = Workload { in_flight: depth, ..workload.clone() };
        let first = rows.len();
        rows.extend(contestants.iter().map(|Contestant { who, durability, .. }| Row {
            who: (*who).to_owned(),
            durability: Cow::Borrowed(*durability),
            in_flight: depth,
            transactions_per_second: 0.0,
            rounds: Vec::new(),
        }));
        let mut works = Vec::new();
        for _ in 0..rounds {
            for (contestant, row) in contestants.iter_mut().zip(&mut rows[first..]) {
                let outcome = postmark::run(&workload, contestant.store.as_mut())
                    .with_context(|| contestant.who.to_owned())?;
                row.rounds.push(outcome.transactions_per_second);
                works.push(outcome.work);
            }
        }
        if works.iter().any(|work| *work != works[0]) {
            bail!("the contestants did not do the same work: {works:?}");
        }
        checksum = works[0].checksum.wrapping_add(checksum);
    }
    for row in &mut rows {
        row.transactions_per_second = median(std::mem::take(&mut row.rounds));
    }
    let (workload, medium) = (workload.clone(), medium.to_owned());
    Ok(Report { workload, medium, rows, checksum, goals: Vec::new() })
}

/// Runs the original postmark and measures whole runs, because its own clock counts in seconds.
fn real(workload: &Workload, rounds: usize, host: &Host, report: &mut Report) -> Result<()> {
    if !has("postmark") {
        println!("there is no postmark program: install the package postmark to measure it, too");
        return Ok(());
    }
    let local = host.beside("postmark")?;
    let exported = host.exported().join("postmark");
    std::fs::create_dir(&exported)?;
    let mount = host.mount()?;
    let map = format!("/dafs={}", host.url("shm", "")?);
    let preloads = host.dafs(&["exec", "--map", &map, "true"]).status()?.success();
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let mut places = vec![(0, local.clone(), Command::new("postmark"))];
        if let Some(mount) = &mount {
            let place = mount.directory.join("postmark");
            places.push((1, place, Command::new("postmark")));
        }
        if preloads {
            let preloaded = host.dafs(&["exec", "--map", &map, "postmark"]);
            places.push((2, "/dafs/postmark".into(), preloaded));
        }
        for (index, place, command) in places {
            let input = instructions(workload, &place);
            let spent = cost(|| with_input(command, &input))?;
            rates[index].push(workload.transactions as f64 / spent.wall.as_secs_f64());
        }
    }
    let names = ["postmark, local", "postmark, dafs mount", "postmark, dafs preload"];
    for ((who, rates), durability) in names.into_iter().zip(rates).zip([NOTHING, MEMORY, MEMORY]) {
        if !rates.is_empty() {
            let transactions_per_second = median(rates);
            let (who, rounds) = (who.to_owned(), Vec::new());
            let (in_flight, durability) = (1, Cow::Borrowed(durability));
            report.rows.push(Row { who, durability, in_flight, transactions_per_second, rounds });
        }
    }
    Ok(())
}

/// Returns the commands that configure and run the original postmark. In its workload, each
/// transaction pairs a read or append with a creation or removal.
fn instructions(workload: &Workload, place: &Path) -> String {
    let Workload { files, transactions, directories, size_min, size_max, seed, .. } = workload;
    let place = place.display();
    format!(
        "set location {place}\nset number {files}\nset transactions {transactions}\n\
         set subdirectories {directories}\nset size {size_min} {size_max}\nset seed {seed}\n\
         set buffering false\nrun\nquit\n"
    )
}

fn goals(report: &Report) -> Vec<(f64, f64, String)> {
    let depth = report.workload.in_flight;
    let wanted = [
        ("dafs tcp", "libnfs", depth, 5.0),
        ("dafs tcp", "libnfs", 1, 5.0),
        ("dafs tcp, spinning", "libnfs", 1, 5.0),
        ("dafs tcp, commit", "libnfs", depth, 5.0),
        ("dafs tcp, journal", "libnfs", depth, 5.0),
        ("dafs shm", "local", depth, 0.5),
        ("dafs shm", "local", 1, 0.5),
        ("postmark, dafs preload", "postmark, dafs mount", 1, 2.0),
    ];
    // If the requested number of steps in flight is one, some rows would be duplicates.
    let is_new = |at: usize| !wanted[..at].contains(&wanted[at]);
    let wanted = (0..wanted.len()).filter(|&at| is_new(at)).map(|at| wanted[at]);
    let goals = wanted.filter_map(|(ours, theirs, depth, least)| {
        let ratio = report.rate(ours, depth)? / report.rate(theirs, depth)?;
        Some((ratio, least, format!("{ours} x{depth} against {theirs}")))
    });
    goals.collect()
}

fn print(report: &Report) {
    let Workload { files, transactions, size_min, size_max, .. } = report.workload;
    println!(
        "Postmark on {}: {files} files of {size_min} to {size_max} bytes, {transactions} \
         transactions, each a read and a creation or removal; checksum {:016x}",
        report.medium, report.checksum
    );
    println!("{:26} {:>9} {:>15}  survives", "", "in flight", "transactions/s");
    for Row { who, durability, in_flight, transactions_per_second, .. } in &report.rows {
        println!("{who:26} {in_flight:>9} {transactions_per_second:>15.0}  {durability}");
    }
    println!(
        "local with {} in flight is one thread as well: it takes turns.",
        report.workload.in_flight
    );
    for (ratio, least, what) in &report.goals {
        let verdict = if ratio >= least { "met" } else { "MISSED" };
        println!("{ratio:8.2} of at least {least:.1}, {verdict}: {what}");
    }
}

/// The value for `dafs --spin`: longer than creating or removing a name takes.
const SPIN_MAX: Duration = Duration::from_micros(200);
/// The value of [`Row::durability`] for a contestant that requests no durability.
const NOTHING: &str = "a killed process";
const MEMORY: &str = "a killed client";
const JOURNAL: &str = "names: loss of power; data: a killed client";
const COMMITTED: &str = "data: loss of power, committed at close";

//! `dafs bench scale`: measures the throughput of servers with more reactors, and the cost of each
//! operation.
//!
//! Invariants:
//! - Clients are separate processes, each with one session per server.
//! - There is one server for each transport and number of reactors, so no other load shares a
//!   reactor.
//! - All points of one kind of work are measured in interleaved rounds. Points that differ only in
//!   the number of reactors follow each other.

mod clients;
mod files;
mod samples;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use dafs_bench::scale::{Point, Report, Work, plot_scale};
use dafs_bench::{ThreadTime, busy_time, spent, thread_times};
use dafs_dat::Address;
use dafs_server::REACTORS_MAX;

use super::figures::{keep, tell};
use super::medium::memory;
use crate::child_server::{ANY_PORT, ChildServer, Pass};
use crate::cleanup::Scratch;
use crate::reactors;
use crate::status;
use clients::Client;
use files::{fill, prepare};
use samples::{Clocks, Counters, Sample, Samples};

pub(super) use clients::serve_client;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Directory for the report as JSON and for the plots.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Numbers of reactors, each 1 to 8. Default: 1, 2, 4 and so on up to the number of cores, at
    /// most 8.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = reactors::parse)]
    reactors: Vec<usize>,
    /// Numbers of clients, each a process. Default: 1, 2, 4 and so on up to the number of cores, at
    /// least 4. A server with more reactors than clients is not measured.
    #[arg(long, value_delimiter = ',', value_parser = clients_of)]
    clients: Vec<usize>,
    /// Measure only points whose name contains this text. A name consists of a transport and a kind
    /// of work. Examples of texts: "tcp", "4 KiB", "shm read 4 KiB, many files".
    #[arg(long)]
    only: Option<String>,
    /// Number of rounds for each median.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Length of a round in seconds.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Where to put the files. Default: in memory, or else in the directory for temporary files.
    #[arg(long)]
    place: Option<PathBuf>,
    /// Only check that everything works; the figures mean nothing.
    #[arg(long, hide = true)]
    tiny: bool,
    /// The largest share of the cores that clients may use in a measurement from which a conclusion
    /// is drawn.
    #[arg(long, hide = true, default_value_t = 0.5)]
    clients_share: f64,
    /// The largest share of the cores that other programs may use in a measurement from which a
    /// conclusion is drawn.
    #[arg(long, hide = true, default_value_t = 0.1)]
    others_share: f64,
}

/// The parsed arguments of a run.
struct Settings {
    /// The kinds of work, each with the transports to measure it over.
    works: Vec<(Work, Vec<&'static str>)>,
    reactors: Vec<usize>,
    clients: Vec<usize>,
    rounds: usize,
    span: Duration,
    /// The number of small files.
    files: usize,
}

pub(super) fn run(arguments: &Arguments) -> Result<Report> {
    let cores = reactors::cores();
    let settings = settings(arguments, cores)?;
    let mut report = Report {
        machine: dafs_bench::machine(),
        version: dafs_bench::version(),
        cores,
        clients_share_max: arguments.clients_share,
        others_share_max: arguments.others_share,
        reactors_max: REACTORS_MAX,
        round_seconds: settings.span.as_secs_f64(),
        rounds: settings.rounds,
        points: Vec::new(),
        conclusions: Vec::new(),
        operations: 0,
    };
    report.print_heading(&mut std::io::stdout())?;
    let place = arguments.place.clone().or_else(memory);
    let mut bench = Bench::start(&settings, place.as_deref())?;
    println!("ready: {} server(s), {} clients", bench.hosts.len(), bench.clients.len());
    for (work, transports) in &settings.works {
        let measured = bench.measure(&settings, *work, transports);
        let measured = measured.with_context(|| work.name())?;
        report.points.extend(measured.points);
        report.operations += measured.operations;
    }
    drop(bench);
    report.judge();
    report.print(&mut std::io::stdout())?;
    if let Some(directory) = &arguments.output {
        std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        keep(directory, "scale.json", &report)?;
        tell(&plot_scale(&report, directory)?);
    }
    Ok(report)
}

fn settings(arguments: &Arguments, cores: usize) -> Result<Settings> {
    let Arguments { reactors, clients, only, rounds, seconds, tiny, .. } = arguments;
    let works = works(only.as_deref())?;
    if !(SECONDS_MIN..=SECONDS_MAX).contains(seconds) {
        bail!("--seconds {seconds}: give {SECONDS_MIN} to {SECONDS_MAX}");
    }
    let reactors = numbers(reactors).unwrap_or_else(|| powers(REACTORS_MAX.min(cores)));
    let tiny_clients = if *tiny { Some(powers(2)) } else { None };
    let clients = numbers(clients).or(tiny_clients);
    let clients = clients.unwrap_or_else(|| powers(cores.max(CLIENTS_LEAST)));
    if reactors.iter().min() > clients.iter().max() {
        bail!("servers with more reactors than clients are not measured: give more --clients");
    }
    let (rounds, span) = (usize::try_from(*rounds)?, Duration::from_secs_f64(*seconds));
    Ok(if *tiny {
        Settings { works, reactors, clients, rounds: 1, span: TINY_SPAN, files: TINY_FILES }
    } else {
        Settings { works, reactors, clients, rounds, span, files: FILES }
    })
}

/// Returns the kinds of work and their transports that match `--only`.
fn works(only: Option<&str>) -> Result<Vec<(Work, Vec<&'static str>)>> {
    let of = |work: Work| {
        let is_wanted = |transport: &&str| {
            only.is_none_or(|only| format!("{transport} {}", work.name()).contains(only))
        };
        (work, TRANSPORTS.into_iter().filter(is_wanted).collect::<Vec<_>>())
    };
    let works = Work::ALL.into_iter().map(of);
    let works: Vec<_> = works.filter(|(_, transports)| !transports.is_empty()).collect();
    if works.is_empty() {
        let names = Work::ALL.map(Work::name).join("; ");
        bail!("--only matches none of these works, over {}: {names}", TRANSPORTS.join(" or "));
    }
    Ok(works)
}

/// Returns the requested counts sorted and without duplicates, or `None` if none were requested.
fn numbers(asked: &[usize]) -> Option<Vec<usize>> {
    let mut numbers = asked.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    (!numbers.is_empty()).then_some(numbers)
}

/// Parses a number of clients from the command line.
fn clients_of(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=CLIENTS_MOST).contains(count));
    count.ok_or_else(|| format!("give 1 to {CLIENTS_MOST} clients"))
}

/// Returns the powers of two below `most`, followed by `most`.
fn powers(most: usize) -> Vec<usize> {
    let mut powers: Vec<usize> =
        (0..usize::BITS).map(|power| 1 << power).take_while(|power| *power < most).collect();
    powers.push(most.max(1));
    powers
}

/// The running servers and clients. The fields are dropped in this order: clients end first.
struct Bench {
    clients: Vec<Client>,
    hosts: Vec<Host>,
    _scratch: Scratch,
}

/// A running server, with its addresses for clients.
struct Host {
    reactors: usize,
    transport: &'static str,
    address: Address,
    served: ChildServer,
    socket: PathBuf,
    /// The server's counters at the most recent query; `None` if a request may have followed.
    counted: Option<Counters>,
}

/// One measurement within a round.
#[derive(Clone, Copy)]
struct Turn {
    host: usize,
    clients: usize,
}

/// The points of one kind of work, and the number of operations of all its rounds.
struct Measured {
    points: Vec<Point>,
    operations: u64,
}

impl Bench {
    fn start(settings: &Settings, place: Option<&Path>) -> Result<Self> {
        let scratch = Scratch::new("dafs-scale-", place)?;
        let clients_max = settings.clients.iter().copied().max().unwrap_or(1);
        let files = scratch.path().join("files");
        fill(&files, settings.files)?;
        let pass = Pass::new()?;
        let is_wanted = |transport: &&str| {
            settings.works.iter().any(|(_, transports)| transports.contains(transport))
        };
        let mut hosts = Vec::new();
        for transport in TRANSPORTS.into_iter().filter(is_wanted) {
            for &reactors in &settings.reactors {
                let place = scratch.path().join(format!("{transport}-{reactors}"));
                prepare(&files, &place.join(EXPORT), settings.files, clients_max)?;
                hosts.push(Host::start(&place, reactors, transport, &pass)?);
            }
        }
        // Start the clients one after the other, so that a server spreads the first N of them over
        // its reactors as evenly as all of them.
        let client = |number| {
            let mut client = Client::start(number, settings.files, &hosts, &pass)?;
            client.await_ready()?;
            Ok(client)
        };
        let clients = (0..clients_max).map(client).collect::<Result<Vec<_>>>()?;
        Ok(Self { clients, hosts, _scratch: scratch })
    }

    /// Returns the turns of a round. Points that differ only in reactors follow each other.
    fn turns(&self, settings: &Settings, transports: &[&str]) -> Vec<Turn> {
        let mut turns = Vec::new();
        for &transport in transports {
            for &clients in &settings.clients {
                let is_meant =
                    |host: &Host| host.transport == transport && host.reactors <= clients;
                let hosts = self.hosts.iter().enumerate().filter(|(_, host)| is_meant(host));
                turns.extend(hosts.map(|(host, _)| Turn { host, clients }));
            }
        }
        turns
    }

    /// Measures all points of one work. The first round only fills caches and is not counted.
    fn measure(
        &mut self,
        settings: &Settings,
        work: Work,
        transports: &[&str],
    ) -> Result<Measured> {
        let turns = self.turns(settings, transports);
        let mut samples: Vec<Samples> = turns.iter().map(|_| Samples::default()).collect();
        for round in 0..=settings.rounds {
            // Reverse the order every other round, so that no point always follows the same one.
            let mut order: Vec<usize> = (0..turns.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                // Reading the counters disturbs the server, and every round has the same counts, so
                // read the counters only in the last round.
                let is_counted = round == settings.rounds;
                let sample = self.take_turn(turns[index], work, settings.span, is_counted)?;
                if round > 0 {
                    samples[index].0.push(sample);
                }
            }
        }
        let operations = samples.iter().flat_map(|samples| &samples.0);
        let operations = operations.map(|sample| sample.operations).sum();
        let points = turns.iter().zip(&samples).map(|(turn, samples)| {
            let Host { transport, reactors, .. } = &self.hosts[turn.host];
            samples.point(work, transport, *reactors, turn.clients)
        });
        Ok(Measured { points: points.collect(), operations })
    }

    fn take_turn(
        &mut self,
        turn: Turn,
        work: Work,
        span: Duration,
        is_counted: bool,
    ) -> Result<Sample> {
        let host = &mut self.hosts[turn.host];
        let before = match host.counted.take() {
            None if is_counted => Some(host.counters()?),
            // This server got no request since its counters were read, so they still apply.
            known => known.filter(|_| is_counted),
        };
        let (threads, busy, begun) = (host.threads()?, busy_time(), Instant::now());
        let clients = &mut self.clients[..turn.clients];
        for client in clients.iter_mut() {
            client.begin(turn.host, work, span)?;
        }
        let tallies = clients.iter_mut().map(Client::end).collect::<Result<Vec<_>>>()?;
        let wall = begun.elapsed();
        let busy = busy.zip(busy_time()).map(|(before, after)| after.saturating_sub(before));
        let threads = spent(&threads, &host.threads()?);
        host.counted = if is_counted { Some(host.counters()?) } else { None };
        let counted = before.zip(host.counted).map(|(before, after)| after.since(before));
        Sample::new(&tallies, &threads, host.served.process(), counted, Clocks { wall, busy })
    }
}

impl Host {
    fn start(place: &Path, reactors: usize, transport: &'static str, pass: &Pass) -> Result<Self> {
        // The benchmark measures the server. Therefore clients must not bypass the server with
        // direct reads, and name operations must not wait for a disk.
        let mut more = vec!["--direct-reads", "false", "--exactly-once", "memory"];
        more.extend(["--cache", CACHE]);
        let served =
            ChildServer::start_at(ANY_PORT, reactors, place, &[place.join(EXPORT)], &more, pass)?;
        let mut addresses = served.addresses.iter();
        let found = addresses.find(|address| match address {
            Address::Shm(_) => transport == SHM,
            Address::Tcp(_) => transport == TCP,
            _ => false,
        });
        let address = found.with_context(|| format!("the server has no {transport}"))?.clone();
        let socket = place.join("socket");
        let has = status::ask(Some(&socket))?["reactors"]["count"].as_u64();
        if has != Some(reactors as u64) {
            bail!("a server that was started with {reactors} reactors reports {has:?}");
        }
        Ok(Self { reactors, transport, address, served, socket, counted: None })
    }

    fn threads(&self) -> Result<Vec<ThreadTime>> {
        thread_times(self.served.process()).context("the server has ended")
    }

    fn counters(&self) -> Result<Counters> {
        Ok(Counters::of(&status::ask(Some(&self.socket))?))
    }
}

const SHM: &str = "shm";
const TCP: &str = "tcp";
/// The transports to measure over.
const TRANSPORTS: [&str; 2] = [SHM, TCP];
/// The name of the exported directory in the server's scratch directory.
const EXPORT: &str = "export";
/// The size of the server's cache: twice the size of all files, so that every read is a cache hit.
const CACHE: &str = "256M";
const FILES: usize = 64;
/// The shortest permitted round in seconds. In a shorter round, clients could not be woken in time.
const SECONDS_MIN: f64 = 0.01;
/// The longest permitted round in seconds.
const SECONDS_MAX: f64 = 60.0;
/// The largest number of clients that can be requested.
const CLIENTS_MOST: usize = 256;
/// The default for the largest number of clients on a machine with fewer cores than this.
const CLIENTS_LEAST: usize = 4;
const TINY_SPAN: Duration = Duration::from_millis(20);
const TINY_FILES: usize = 3;

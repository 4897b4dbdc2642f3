//! `dafs bench scale`: how many operations servers with more reactors do, and what each costs them.
//!
//! Invariant: clients are processes of their own, each with a session for every server, and all
//! points of a work are measured in rounds that take turns.

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
use crate::keeper::Scratch;
use crate::reactors;
use crate::served::{ANY_PORT, Pass, Served};
use crate::status;
use clients::Client;
use files::{fill, prepare};
use samples::{Clocks, Counters, Sample, Samples};

pub use clients::serve_client;

/// Arguments of `dafs bench scale`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Directory for the report as JSON and for the plots.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Numbers of reactors, each 1 to 8. Default: 1, 2, 4 and so on to the number of cores, at
    /// most to 8.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = reactors::parse)]
    reactors: Vec<usize>,
    /// Numbers of clients, each a process. Default: 1, 2, 4 and so on to the number of cores, at
    /// least to 4. A server with more reactors than clients is not measured.
    #[arg(long, value_delimiter = ',', value_parser = clients_of)]
    clients: Vec<usize>,
    /// Only the works whose name contains this, such as "4 KiB" or "create".
    #[arg(long)]
    only: Option<String>,
    /// Rounds for each median.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Seconds of a round.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Where the files are; by default in memory, or where temporary files go.
    #[arg(long)]
    place: Option<PathBuf>,
    /// Show that everything works; the figures mean nothing.
    #[arg(long, hide = true)]
    tiny: bool,
    /// The part of the cores that clients may take where a conclusion is drawn.
    #[arg(long, hide = true, default_value_t = 0.5)]
    clients_share: f64,
    /// The part of them that other programs may take there.
    #[arg(long, hide = true, default_value_t = 0.1)]
    others_share: f64,
}

/// What is measured.
struct Settings {
    works: Vec<Work>,
    reactors: Vec<usize>,
    clients: Vec<usize>,
    rounds: usize,
    span: Duration,
    /// Small files.
    files: usize,
}

pub fn run(arguments: &Arguments) -> Result<Report> {
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
    for &work in &settings.works {
        let measured = bench.measure(&settings, work).with_context(|| work.name())?;
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
    let wanted = |work: &Work| only.as_ref().is_none_or(|only| work.name().contains(only.as_str()));
    let works: Vec<Work> = Work::ALL.into_iter().filter(wanted).collect();
    if works.is_empty() {
        let names: Vec<&str> = Work::ALL.into_iter().map(Work::name).collect();
        bail!("--only fits none of these works: {}", names.join("; "));
    }
    if !(SECONDS_MIN..=SECONDS_MAX).contains(seconds) {
        bail!("--seconds {seconds}: give {SECONDS_MIN} to {SECONDS_MAX}");
    }
    let reactors = numbers(reactors).unwrap_or_else(|| powers(REACTORS_MAX.min(cores)));
    let tiny_clients = if *tiny { Some(powers(2)) } else { None };
    let clients = numbers(clients).or(tiny_clients);
    let clients = clients.unwrap_or_else(|| powers(cores.max(CLIENTS_LEAST)));
    if reactors.iter().min() > clients.iter().max() {
        bail!("a server with more reactors than clients is not measured: give more --clients");
    }
    let (rounds, span) = (usize::try_from(*rounds)?, Duration::from_secs_f64(*seconds));
    Ok(if *tiny {
        Settings { works, reactors, clients, rounds: 1, span: TINY_SPAN, files: TINY_FILES }
    } else {
        Settings { works, reactors, clients, rounds, span, files: FILES }
    })
}

/// What was asked for, in order, if anything was.
fn numbers(asked: &[usize]) -> Option<Vec<usize>> {
    let mut numbers = asked.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    (!numbers.is_empty()).then_some(numbers)
}

/// Reads a number of clients from the command line.
fn clients_of(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=CLIENTS_MOST).contains(count));
    count.ok_or_else(|| format!("give 1 to {CLIENTS_MOST} clients"))
}

/// 1, 2, 4 and so on, and `most`.
fn powers(most: usize) -> Vec<usize> {
    let mut powers: Vec<usize> =
        (0..usize::BITS).map(|power| 1 << power).take_while(|power| *power < most).collect();
    powers.push(most.max(1));
    powers
}

/// Servers and clients that run. In this order they end.
struct Bench {
    clients: Vec<Client>,
    hosts: Vec<Host>,
    _scratch: Scratch,
    /// What clients have sessions with.
    links: Vec<Link>,
}

/// A server.
struct Host {
    reactors: usize,
    served: Served,
    socket: PathBuf,
    /// What it had counted when it was asked last, if nobody has asked it for anything since.
    counted: Option<Counters>,
}

/// A way to one of the servers.
struct Link {
    host: usize,
    transport: &'static str,
    address: Address,
}

/// What takes its turn in a round.
#[derive(Clone, Copy)]
struct Turn {
    link: usize,
    clients: usize,
}

/// The points of one work, and the operations of all its rounds.
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
        let host = |&reactors: &usize| {
            let place = scratch.path().join(format!("reactors-{reactors}"));
            prepare(&files, &place.join(EXPORT), settings.files, clients_max)?;
            Host::start(&place, reactors, &pass)
        };
        let hosts = settings.reactors.iter().map(host).collect::<Result<Vec<_>>>()?;
        let mut links = Vec::new();
        for (index, host) in hosts.iter().enumerate() {
            for address in &host.served.addresses {
                let transport = match address {
                    Address::Shm(_) => "shm",
                    Address::Tcp(_) => "tcp",
                    other => bail!("{other} is not measured"),
                };
                links.push(Link { host: index, transport, address: address.clone() });
            }
        }
        let client = |number| Client::start(number, settings.files, &links, &pass);
        let mut clients = (0..clients_max).map(client).collect::<Result<Vec<_>>>()?;
        clients.iter_mut().try_for_each(Client::await_ready)?;
        Ok(Self { clients, hosts, _scratch: scratch, links })
    }

    /// All points of one work. The first round fills caches, and does not count.
    fn measure(&mut self, settings: &Settings, work: Work) -> Result<Measured> {
        let mut turns = Vec::new();
        for (link, Link { host, .. }) in self.links.iter().enumerate() {
            let enough = |clients: &&usize| **clients >= self.hosts[*host].reactors;
            let clients = settings.clients.iter().filter(enough);
            turns.extend(clients.map(|&clients| Turn { link, clients }));
        }
        let mut samples: Vec<Samples> = turns.iter().map(|_| Samples::default()).collect();
        for round in 0..=settings.rounds {
            // There and back again, so that nobody always comes behind the same one.
            let mut order: Vec<usize> = (0..turns.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                // A server that is asked what it counts answers when it comes to it, and counts
                // are the same in all rounds.
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
            let Link { host, transport, .. } = &self.links[turn.link];
            samples.point(work, transport, self.hosts[*host].reactors, turn.clients)
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
        let host = &mut self.hosts[self.links[turn.link].host];
        let before = match host.counted.take() {
            None if is_counted => Some(host.counters()?),
            // What it had counted behind the turn before.
            known => known.filter(|_| is_counted),
        };
        let (threads, busy, begun) = (host.threads()?, busy_time(), Instant::now());
        let clients = &mut self.clients[..turn.clients];
        for client in clients.iter_mut() {
            client.begin(turn.link, work, span)?;
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
    fn start(place: &Path, reactors: usize, pass: &Pass) -> Result<Self> {
        // What is measured is the server: clients must not read the files themselves, and names
        // must not wait for disks.
        let mut more = vec!["--direct-reads", "false", "--exactly-once", "memory"];
        more.extend(["--cache", CACHE]);
        let served =
            Served::start_at(ANY_PORT, reactors, place, &[place.join(EXPORT)], &more, pass)?;
        Ok(Self { reactors, served, socket: place.join("socket"), counted: None })
    }

    fn threads(&self) -> Result<Vec<ThreadTime>> {
        thread_times(self.served.process()).context("the server has ended")
    }

    fn counters(&self) -> Result<Counters> {
        Ok(Counters::of(&status::ask(Some(&self.socket))?))
    }
}

/// The directory that is served, in that of its server.
const EXPORT: &str = "export";
/// Twice what all files have, so that everything that is read is in the cache.
const CACHE: &str = "256M";
const FILES: usize = 64;
/// What a client can be woken for, and what nobody waits for.
const SECONDS_MIN: f64 = 0.01;
const SECONDS_MAX: f64 = 60.0;
/// The most clients that can be asked for.
const CLIENTS_MOST: usize = 256;
/// The largest number of clients on a small machine, unless another is asked for.
const CLIENTS_LEAST: usize = 4;
const TINY_SPAN: Duration = Duration::from_millis(20);
const TINY_FILES: usize = 3;

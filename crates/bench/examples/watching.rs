//! Measures the cost of counting and timing requests: reads and writes of 4 KiB at servers with and
//! without it, in alternation.
//!
//!
//! ```text
//! cargo run --release -p dafs-bench --example watching -- DAFS [PAIRS [ROUNDS [KIND]]]
//! ```
//!
//! DAFS is the program; KIND selects a measurement, such as "shm read"; without it all are run.
//! Each of PAIRS starts two new servers, because the position of a process in memory has more
//! influence than what is measured here. For each kind and transport, ROUNDS of some thousand
//! operations alternate between the two servers. The result is the ratio of neighbouring rounds:
//! first the median for each pair of servers, then the median of all pairs, printed with its
//! quartiles. If it is above 1.01 the exit status is 1.
//!
//! The servers run on the last processor and the client on the first, and the server that is not
//! being measured is stopped. Otherwise three spinning processes would compete for two processors
//! at each change of turns; a process that notices this does not spin over TCP for seconds, and a
//! request then takes 22 microseconds instead of 9.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::LazyLock;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use dafs_client::{Client, ClientConfig, File, Location, OpenOptions, SessionOptions};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [program, rest @ ..] = words.as_slice() else {
        bail!("usage: watching DAFS [PAIRS [ROUNDS [KIND]]]; DAFS is a build of dafs");
    };
    let number = |at: usize, usual: usize| rest.get(at).map_or(Ok(usual), |word| word.parse());
    let (pairs, rounds) = (number(0, PAIRS)?, number(1, ROUNDS)?);
    let is_wanted = |(transport, way): &&(&'static str, &'static str)| {
        rest.get(2).is_none_or(|word| *word == format!("{transport} {way}"))
    };
    let kinds: Vec<_> = KINDS.iter().filter(is_wanted).copied().collect();
    let mut ratios = vec![Vec::new(); kinds.len()];
    for pair in 0..pairs {
        eprintln!("servers {} of {pairs}", pair + 1);
        let places = [tempfile::tempdir()?, tempfile::tempdir()?];
        // Alternate which server is started first.
        let first_counts = pair % 2 == 1;
        let first = Served::start(program, places[0].path(), first_counts)?;
        let second = Served::start(program, places[1].path(), !first_counts)?;
        let (with, without) = if first_counts { (first, second) } else { (second, first) };
        for (kind, ratios) in kinds.iter().zip(&mut ratios) {
            ratios.push(compare(&with, &without, *kind, rounds, first_counts)?);
        }
    }
    let mut is_good = true;
    println!("{:12} {:>8} {:>18}", "4 KiB", "ratio", "quartiles");
    for ((transport, way), mut ratios) in kinds.into_iter().zip(ratios) {
        let [low, median, high] = [1, 2, 3].map(|quarter| quantile(&mut ratios, quarter));
        is_good &= median <= BOUND;
        println!("{:12} {median:>8.4} {low:>9.4}-{high:.4}", format!("{transport} {way}"));
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the time at one server divided by that at the other.
fn compare(
    with: &Served,
    without: &Served,
    (transport, way): (&str, &str),
    rounds: usize,
    with_first: bool,
) -> Result<f64> {
    let client = Client::new(ClientConfig::default())?;
    let servers = [with, without];
    // The client checks one of its two sessions first, so alternate the order.
    let files = if with_first {
        [with.open(&client, transport)?, without.open(&client, transport)?]
    } else {
        let without = without.open(&client, transport)?;
        [with.open(&client, transport)?, without]
    };
    let mut bytes = [7; BLOCK];
    for file in &files {
        file.write_at(&bytes, 0)?;
        run(file, way, &mut bytes)?;
    }
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut times = [0.0; 2];
        for index in order {
            servers[1 - index].signal(Signal::STOP)?;
            times[index] = run(&files[index], way, &mut bytes)?;
            servers[1 - index].signal(Signal::CONT)?;
        }
        ratios.push(times[0] / times[1]);
    }
    Ok(quantile(&mut ratios, 2))
}

/// Returns the seconds of one round.
fn run(file: &File, way: &str, bytes: &mut [u8]) -> Result<f64> {
    let begun = Instant::now();
    for _ in 0..OPERATIONS {
        if way == "write" {
            file.write_at(bytes, 0)?;
        } else if file.read_at(bytes, 0)? != bytes.len() {
            bail!("the file is too short");
        }
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// A server in a process of its own.
struct Served {
    child: Child,
    /// Its URLs by transport.
    urls: [(&'static str, String); 2],
}

impl Served {
    fn start(program: &str, place: &Path, counts: bool) -> Result<Self> {
        let export = place.join("export");
        std::fs::create_dir(&export)?;
        let mut command = Command::new(program);
        command.arg("serve").arg(&export).args(["--while-stdin", "--tcp", "127.0.0.1:0"]);
        command.args(["--cache", "64M", "--squash", "none", "--exactly-once", "memory"]);
        // Over TCP a client is anonymous.
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        command.arg("--anonymous").arg(format!("{}:{}", user.as_raw(), group.as_raw()));
        command.arg("--socket").arg(place.join("socket")).arg("--state").arg(place.join("state"));
        if !counts {
            command.arg("--no-metrics");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        pin_to(Processor::Last)?;
        let mut child = command.spawn().with_context(|| format!("running {program}"))?;
        pin_to(Processor::First)?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let tcp = line.split_whitespace().find_map(|word| word.strip_prefix("tcp:"));
        let tcp = tcp.with_context(|| format!("{program} says {line:?}"))?;
        let shm = format!("dafs+shm://{}!/", place.join("socket").display());
        Ok(Self { urls: [("shm", shm), ("tcp", format!("dafs://{tcp}/"))], child })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    fn open(&self, client: &Client, transport: &str) -> Result<File> {
        let url = self.urls.iter().find(|(name, _)| *name == transport).context("transport")?;
        let choice = match transport {
            "shm" => dafs_client::TransportChoice::SharedMemory,
            _ => dafs_client::TransportChoice::Tcp,
        };
        let options = SessionOptions::default().transport(choice);
        let session = client.connect(&Location::parse(&url.1)?, &options)?;
        Ok(session.open("/file", &OpenOptions::write().mode(0o666))?)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // A stopped process does not notice that its input ends.
        let _ = self.signal(Signal::CONT);
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Pins this thread, and processes it starts, to one of the processors it may use.
fn pin_to(which: Processor) -> Result<()> {
    static USABLE: LazyLock<Vec<usize>> = LazyLock::new(|| {
        let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
        (0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number)).collect()
    });
    let chosen = match which {
        Processor::First => USABLE.first(),
        Processor::Last => USABLE.last(),
    };
    let mut set = CpuSet::new();
    set.set(*chosen.context("the processors available to this thread are unknown")?);
    Ok(sched_setaffinity(None, &set)?)
}

#[derive(Clone, Copy, Debug)]
enum Processor {
    First,
    Last,
}

fn quantile(values: &mut [f64], quarter: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * quarter / 4).copied().unwrap_or(f64::NAN)
}

const KINDS: [(&str, &str); 4] =
    [("shm", "read"), ("shm", "write"), ("tcp", "read"), ("tcp", "write")];
const BLOCK: usize = 4096;
const PAIRS: usize = 30;
const ROUNDS: usize = 60;
const OPERATIONS: usize = 4000;
/// The largest permitted ratio.
const BOUND: f64 = 1.01;

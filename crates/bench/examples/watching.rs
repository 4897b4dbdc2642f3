//! What counting and timing requests costs: reads and writes of 4 KiB at servers that do and at
//! servers that do not, in alternation.
//!
//! ```text
//! cargo run --release -p dafs-bench --example watching -- DAFS [PAIRS [ROUNDS [KIND]]]
//! ```
//!
//! DAFS is the program, KIND one of what is measured, such as "shm read"; otherwise it is all. Each
//! of PAIRS starts two servers anew, since where a process lies in memory tells more than what is
//! measured here; for each way and transport, ROUNDS of some thousand operations take turns between
//! them. The ratio of neighbouring rounds is taken, the median of those of a pair of servers, and
//! the median of all pairs, printed with its quartiles. Above 1.01 the exit status is 1.
//!
//! The servers have the last processor and the client the first one, and the server whose turn it
//! is not is stopped. Otherwise three processes that spin want two processors at each change of
//! turns; who notices does not spin over TCP for seconds, and a request takes 22 microseconds there
//! rather than 9.

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
        // Who is started first changes.
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

/// The time at one server by that at the other.
fn compare(
    with: &Served,
    without: &Served,
    (transport, way): (&str, &str),
    rounds: usize,
    with_first: bool,
) -> Result<f64> {
    let client = Client::new(ClientConfig::default())?;
    let servers = [with, without];
    // Of two sessions of a client one is looked at first.
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

/// Seconds of one round.
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
    /// URLs by transport.
    urls: [(&'static str, String); 2],
}

impl Served {
    fn start(program: &str, place: &Path, counts: bool) -> Result<Self> {
        let export = place.join("export");
        std::fs::create_dir(&export)?;
        let mut command = Command::new(program);
        command.arg("serve").arg(&export).args(["--while-stdin", "--tcp", "127.0.0.1:0"]);
        command.args(["--cache", "64M", "--squash", "none", "--exactly-once", "memory"]);
        // Over TCP nobody says who he is.
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
        let options = SessionOptions { transport: choice, ..SessionOptions::default() };
        let session = client.connect(&Location::parse(&url.1)?, &options)?;
        Ok(session.open("/file", &OpenOptions { mode: 0o666, ..OpenOptions::write() })?)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // One that is stopped does not hear of its end.
        let _ = self.signal(Signal::CONT);
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Has this thread, and what it starts, run on one processor of those that it may use at all.
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
    set.set(*chosen.context("the processors of this thread are not known")?);
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
/// Counting may take so much of the time.
const BOUND: f64 = 1.01;

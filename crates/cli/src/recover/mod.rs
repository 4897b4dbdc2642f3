//! `dafs recover-test`: tests exactly-once semantics on the user's own disk.
//!
//! A server is killed at random times and restarted, while clients create, append, rename, remove,
//! overwrite and lock over both transports. Each client knows what its files must contain. So a
//! request that was executed twice, partly or not at all is detected immediately or in the final
//! check. With `--nfs`, NFSv4.1 clients take part, on the same directory and the same files.
//!
//! Invariant: only a new directory within the named one is touched. It is removed only if the test
//! succeeded.

mod check;
mod exclusion;
mod killer;
mod load;
mod model;
mod nfs;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use dafs_types::Random;
use serde_json::json;

use crate::reactors;
use killer::Victim;
use load::{Load, Outcome};
use nfs::{NfsLoad, Reader};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A directory on the disk to test.
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// Number of times to kill the server.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Number of clients, alternating between shared memory and TCP.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    clients: u32,
    /// The longest time between a start and a kill of the server, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 500)]
    life: u64,
    /// Threads of the server that serve connections, 1 to 8.
    #[arg(long, value_name = "N", default_value = "1", value_parser = reactors::parse)]
    reactors: usize,
    /// Let NFSv4.1 clients change the same directory and the same files, too.
    #[arg(long)]
    nfs: bool,
    /// Number of NFS clients.
    #[arg(long, default_value_t = 3, requires = "nfs",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    nfs_clients: u32,
    /// Seed for what clients do and when the server is killed. Default: a random one.
    #[arg(long)]
    seed: Option<u64>,
    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let seed = arguments.seed.unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(1, |since| since.as_nanos() as u64)
    });
    let place = tempfile::Builder::new()
        .prefix("dafs-recover-test-")
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir_in(&arguments.directory)
        .with_context(|| format!("making a directory in {}", arguments.directory.display()))?;
    let tested = test(arguments, seed, place.path());
    if tested.is_err() {
        let kept = place.keep();
        eprintln!("seed {seed}; all files are kept in {}", kept.display());
    }
    tested
}

fn test(arguments: &Arguments, seed: u64, place: &Path) -> Result<()> {
    let mut random = Random::new(seed);
    let begun = Instant::now();
    let mut victim = Victim::start(place, arguments.reactors, arguments.nfs, &mut random)?;
    load::prepare(&victim, arguments.clients)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (connected, are_connected) = mpsc::channel();
    let loads = start_loads(arguments, &victim, &mut random, &stop, &connected)?;
    // A session that is not established yet does not reconnect, so wait for all sessions before the
    // first kill. A failed client reports its error at the end.
    drop(connected);
    let _ = are_connected.iter().take(loads.len()).count();
    let mut slowest = Duration::ZERO;
    for round in 0..arguments.rounds {
        let life = Duration::from_millis(random.below(arguments.life.max(1) as usize) as u64);
        std::thread::sleep(life);
        if has_failed() {
            break;
        }
        slowest = slowest.max(victim.kill_and_restart()?);
        if (round + 1) % 50 == 0 && !arguments.json {
            eprintln!("{} of {} rounds", round + 1, arguments.rounds);
        }
    }
    stop.store(true, Ordering::Release);
    let outcomes = loads
        .into_iter()
        .enumerate()
        .map(|(number, thread)| match thread.join() {
            Ok(ran) => ran.with_context(|| format!("client {number}")),
            Err(_) => Err(anyhow!("client {number} has panicked")),
        })
        .collect::<Result<Vec<Outcome>>>()?;
    check::through_the_server(&victim, &outcomes)
        .context("checking the files through the server")?;
    if let Some(server) = victim.nfs_address() {
        let reader = Reader::new(server, &mut random)?;
        check::through_nfs(reader, &outcomes).context("checking the files over NFS")?;
    }
    let export = victim.stop()?;
    check::on_the_disk(&export, &outcomes).context("checking the files on the disk")?;
    report(arguments, seed, &outcomes, victim.kills(), slowest, begun.elapsed());
    Ok(())
}

type Client = JoinHandle<Result<Outcome>>;

/// Starts the clients: first those of DAFS, then those of NFS. With NFS clients, all clients change
/// the same directory.
fn start_loads(
    arguments: &Arguments,
    victim: &Victim,
    random: &mut Random,
    stop: &Arc<AtomicBool>,
    connected: &mpsc::Sender<()>,
) -> Result<Vec<Client>> {
    let mut loads = Vec::new();
    for number in 0..arguments.clients {
        let home = match arguments.nfs {
            true => shared_home(number),
            false => format!("/c{number}/"),
        };
        let load = Load::new(number, victim, random.fork(), stop.clone(), home);
        let connected = connected.clone();
        loads.push(start_load(number, move || load.run(connected))?);
    }
    let Some(server) = victim.nfs_address() else { return Ok(loads) };
    for number in arguments.clients..arguments.clients + arguments.nfs_clients {
        let load = NfsLoad { number, server, random: random.fork(), stop: stop.clone() };
        let connected = connected.clone();
        loads.push(start_load(number, move || load.run(connected))?);
    }
    Ok(loads)
}

fn start_load(
    number: u32,
    load: impl FnOnce() -> Result<Outcome> + Send + 'static,
) -> Result<Client> {
    let run = move || {
        let ran = load();
        if let Err(error) = &ran {
            // Other clients may wait for a lock of this one, so the error is told now. A later
            // error would not add information.
            if !HAS_FAILED.swap(true, Ordering::AcqRel) {
                eprintln!("client {number}: {error:#}");
            }
        }
        ran
    };
    let thread = std::thread::Builder::new().name(format!("client-{number}"));
    thread.spawn(run).context("starting a client")
}

/// Returns the start of the paths of a client's files in the directory that all clients share.
fn shared_home(number: u32) -> String {
    format!("{SHARED_DIRECTORY}/c{number}-")
}

const SHARED_DIRECTORY: &str = "/all";

/// True if a client has found a violation, so the server need not be killed any more.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

fn has_failed() -> bool {
    HAS_FAILED.load(Ordering::Acquire)
}

fn report(
    arguments: &Arguments,
    seed: u64,
    outcomes: &[Outcome],
    kills: u32,
    slowest: Duration,
    took: Duration,
) {
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let (fetched, reissued) = (sum(|o| o.fetched), sum(|o| o.reissued));
    let reclaimed = sum(|o| o.reclaimed);
    let mut kinds: Vec<(&str, u64)> = Vec::new();
    for (kind, count) in outcomes.iter().flat_map(|o| o.kinds.iter().zip(&o.counts)) {
        match kinds.iter_mut().find(|(other, _)| other == kind) {
            Some((_, sum)) => *sum += count,
            None => kinds.push((*kind, *count)),
        }
    }
    let nfs = nfs_counts(outcomes);
    let operations: u64 = kinds.iter().map(|(_, count)| count).sum();
    if arguments.json {
        let by_kind: serde_json::Map<String, serde_json::Value> =
            kinds.iter().map(|(kind, count)| ((*kind).to_owned(), json!(count))).collect();
        println!(
            "{:#}",
            json!({
                "seed": seed, "kills": kills, "reactors": arguments.reactors,
                "operations": operations, "by_kind": by_kind,
                "results_fetched": fetched, "asked_anew": reissued,
                "opens_taken_back": reclaimed, "slowest_restart_seconds": slowest.as_secs_f64(),
                "nfs": {
                    "requests_repeated": nfs.repeated, "requests_of_unknown_outcome": nfs.unknown,
                    "sessions": nfs.sessions, "opens_taken_back": nfs.opens_reclaimed,
                    "locks_taken_back": nfs.locks_reclaimed, "writes_repeated": nfs.rewritten,
                },
                "seconds": took.as_secs_f64(), "violations": 0,
            })
        );
        return;
    }
    println!(
        "the server, with {} reactor(s), was killed {kills} times in {:.1} s",
        arguments.reactors,
        took.as_secs_f64()
    );
    println!("{operations} operations by {} clients, each done exactly once:", outcomes.len());
    for (kind, count) in kinds {
        println!("  {count:>8}  {kind}");
    }
    println!(
        "of those in flight when a server died, {fetched} had been executed and their replies \
        were fetched, {reissued} were sent again; {reclaimed} opens were reclaimed"
    );
    if arguments.nfs {
        println!(
            "NFS: {} requests were repeated in their slots, {} had an unknown outcome; {} \
            sessions; {} opens and {} locks were reclaimed; {} writes were repeated, as \
            uncommitted data was lost",
            nfs.repeated,
            nfs.unknown,
            nfs.sessions,
            nfs.opens_reclaimed,
            nfs.locks_reclaimed,
            nfs.rewritten
        );
    }
    println!("slowest restart {:.2} s; seed {seed}; no violation", slowest.as_secs_f64());
}

/// Returns the sums of the statistics of all NFS clients.
fn nfs_counts(outcomes: &[Outcome]) -> nfs::Counts {
    outcomes.iter().filter_map(|outcome| outcome.nfs).fold(nfs::Counts::default(), |sum, of| {
        nfs::Counts {
            repeated: sum.repeated + of.repeated,
            unknown: sum.unknown + of.unknown,
            sessions: sum.sessions + of.sessions,
            opens_reclaimed: sum.opens_reclaimed + of.opens_reclaimed,
            locks_reclaimed: sum.locks_reclaimed + of.locks_reclaimed,
            rewritten: sum.rewritten + of.rewritten,
        }
    })
}

/// The error of a thread that found a violation.
fn violated(what: String) -> anyhow::Error {
    anyhow!("exactly-once is broken: {what}")
}

fn expect(is_so: bool, what: impl FnOnce() -> String) -> Result<()> {
    if is_so { Ok(()) } else { bail!(violated(what())) }
}

//! All measurements of one run, and their tables.

use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::Options;
use crate::goals::{Goal, goals};
use crate::idle::{Idle, idle};
use crate::measure::{Figure, Rounds, measure};
use crate::peers::{
    Bare, Busy, Copies, DEPTH_MAX, Echo, Export, Kind, Link, Local, OverNfs, Peer, PingPong,
    Remote, Sleeper, Stream, Task,
};

/// All measurements of one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The processor, cores and kernel of the machine.
    pub machine: String,
    /// The version of this program and, if built in a checkout, its commit.
    pub version: String,
    /// The figures of all competitors.
    pub figures: Vec<Figure>,
    /// The figures of reads of 4 KiB while another process keeps a core busy.
    pub contended: Vec<Figure>,
    /// The memory and CPU time of servers with idle sessions.
    pub idle: Vec<Idle>,
    /// The project's performance goals, with the measured values.
    pub goals: Vec<Goal>,
    /// A checksum over the moved data, as proof that the data was moved.
    pub checksum: u64,
}

/// Runs all measurements and prints them.
///
/// # Errors
/// If a server cannot be reached, or local files cannot be made.
pub fn report(out: &mut dyn Write, options: &Options) -> Result<Report> {
    let mut report = Report { machine: machine(), version: version(), ..Report::default() };
    writeln!(out, "{}; dafs {}", report.machine, report.version)?;
    if options.idle_sessions > 0 {
        report.idle = idle_servers(options)?;
    }
    let mut links = Links::new(options)?;
    let mut peers = peers(options, &mut links)?;
    peers.extend(over_nfs(out, options)?);
    if let Some(only) = &options.only {
        peers.retain(|peer| peer.label().to_string().contains(only.as_str()));
    }
    let span = Duration::from_secs_f64(options.round_seconds);
    let rounds = Rounds { count: options.rounds, span, server: options.server_process };
    for &block in &options.block_sizes {
        let figures = measure(&mut peers, block, rounds, &mut report.checksum)?;
        print_figures(out, &format!("{} read or written", bytes(block)), &figures)?;
        report.figures.extend(figures);
    }
    if options.contends {
        let mut contenders = contenders(options, &links);
        let busy = Busy::start(&options.program)?;
        report.contended = measure(&mut contenders, 4096, rounds, &mut report.checksum)?;
        drop(busy);
        let title = "4 KiB, while another process keeps a core busy";
        print_figures(out, title, &report.contended)?;
    }
    if let Some(first) = links.polling.first() {
        first.remove()?;
    }
    report.goals = goals(&report);
    print_goals(out, &report.goals)?;
    Ok(report)
}

/// The sessions that all competitors of a transport share: one whose client polls, and one whose
/// client sleeps.
struct Links {
    polling: Vec<Rc<Link>>,
    sleeping: Vec<Rc<Link>>,
}

impl Links {
    fn new(options: &Options) -> Result<Self> {
        let directory = options.directory.trim_end_matches('/');
        let path = format!("{directory}/bench-{}", std::process::id());
        let open = |sleeps| -> Result<Vec<_>> {
            let links = options.servers.iter();
            links.map(|address| Link::new(address, options, &path, sleeps)).collect()
        };
        let links = Self { polling: open(false)?, sleeping: open(true)? };
        if let Some(first) = links.polling.first() {
            first.fill(options.file_bytes)?;
        }
        Ok(links)
    }
}

fn peers(options: &Options, links: &mut Links) -> Result<Vec<Box<dyn Peer>>> {
    let (bytes, program) = (options.file_bytes, &options.program);
    let mut peers: Vec<Box<dyn Peer>> = vec![
        Box::new(Local::new(bytes, Kind::Read)?),
        Box::new(Local::new(bytes, Kind::Write)?),
        Box::new(Copies::new(bytes, 1)?),
        Box::new(Copies::new(bytes, DEPTH_MAX)?),
        Box::new(Sleeper::new(bytes, 1)?),
        Box::new(Sleeper::new(bytes, DEPTH_MAX)?),
        Box::new(PingPong::default()),
        Box::new(Echo::new(program)?),
        Box::new(Stream::new(program)?),
        Box::new(Bare::new(program, bytes)?),
    ];
    for (polling, sleeping) in links.polling.iter().zip(&links.sleeping) {
        let tasks = [
            (polling, Kind::Read, 1),
            (polling, Kind::Read, 4),
            (polling, Kind::Read, DEPTH_MAX),
            (sleeping, Kind::Read, 1),
            (sleeping, Kind::Read, DEPTH_MAX),
            (polling, Kind::Write, 1),
            (polling, Kind::Write, DEPTH_MAX),
        ];
        for (link, kind, depth) in tasks {
            peers.push(Box::new(Remote::new(link, Task { kind, depth }, bytes)));
        }
    }
    Ok(peers)
}

/// Returns the competitors that use nfs-ganesha through libnfs, if the machine has them and the
/// options ask for them.
fn over_nfs(out: &mut dyn Write, options: &Options) -> Result<Vec<Box<dyn Peer>>> {
    let is_wanted = options.only.as_ref().is_none_or(|only| {
        ["libnfs read x1", "libnfs read x32"].iter().any(|label| label.contains(only.as_str()))
    });
    let Some(directory) = options.nfs_directory.as_deref().filter(|_| is_wanted) else {
        return Ok(Vec::new());
    };
    let Some(export) = Export::new(out, directory, options.file_bytes)? else {
        return Ok(Vec::new());
    };
    let peer = |depth| Box::new(OverNfs::new(&export, depth, options.file_bytes)) as Box<dyn Peer>;
    Ok([1, DEPTH_MAX].map(peer).into())
}

fn contenders(options: &Options, links: &Links) -> Vec<Box<dyn Peer>> {
    let task = Task { kind: Kind::Read, depth: DEPTH_MAX };
    let remote = |link| Box::new(Remote::new(link, task, options.file_bytes)) as Box<dyn Peer>;
    links.polling.iter().map(remote).collect()
}

fn idle_servers(options: &Options) -> Result<Vec<Idle>> {
    let Some(process) = options.idle_process else { return Ok(Vec::new()) };
    let span = Duration::from_secs_f64(options.round_seconds * 25.0);
    let servers = options.idle_servers.iter();
    servers
        .map(|address| idle(address, &options.session, process, options.idle_sessions, span))
        .collect()
}

fn print_figures(out: &mut dyn Write, title: &str, figures: &[Figure]) -> Result<()> {
    writeln!(out, "\n{title}, microseconds:")?;
    writeln!(
        out,
        "{:24} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "", "each", "p50", "p99", "MB/s", "client", "server"
    )?;
    for figure in figures {
        let server = figure.server_cpu_us.map_or("-".into(), |us| format!("{us:.2}"));
        writeln!(
            out,
            "{:24} {:>9.2} {:>9.2} {:>9.2} {:>9.0} {:>9.2} {server:>9}",
            figure.label.to_string(),
            figure.wall_us,
            figure.latency_us_p50,
            figure.latency_us_p99,
            figure.throughput / 1e6,
            figure.client_cpu_us,
        )?;
    }
    Ok(())
}

fn print_goals(out: &mut dyn Write, goals: &[Goal]) -> Result<()> {
    if goals.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nPerformance goals:")?;
    for goal in goals {
        let least = if goal.is_least { "at least" } else { "at most" };
        let verdict = if goal.is_met() { "met" } else { "MISSED" };
        let Goal { what, value, bound, .. } = goal;
        writeln!(out, "{what:56} {value:>8.2}  {least:8} {bound:>6.2}  {verdict}")?;
    }
    Ok(())
}

/// Formats a size in bytes for people.
pub(crate) fn bytes(size: usize) -> String {
    match size {
        size if size >= 1 << 20 && size.is_multiple_of(1 << 20) => format!("{} MiB", size >> 20),
        size if size >= 1 << 10 && size.is_multiple_of(1 << 10) => format!("{} KiB", size >> 10),
        size => format!("{size} bytes"),
    }
}

/// Returns a description of the processor, the cores and the kernel.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let model = model.trim_start_matches([' ', '\t', ':']);
    format!("{model}, {cores} cores, Linux {}", kernel.trim())
}

/// Returns the version of this program, with the commit if it was built in a checkout.
pub fn version() -> String {
    match (env!("CARGO_PKG_VERSION"), env!("DAFS_COMMIT")) {
        (version, "") => version.to_owned(),
        (version, commit) => format!("{version} ({commit})"),
    }
}

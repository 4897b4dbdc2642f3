//! Taking turns, medians, and the table.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::Options;
use crate::peers::{Copies, Echo, Local, Peer, Remote};

/// One peer at one block size.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The peer.
    pub peer: String,
    /// Octets of a block.
    pub block_bytes: usize,
    /// Operations in flight.
    pub depth: usize,
    /// Microseconds of an operation, wall clock over count.
    pub wall_us: f64,
    /// Octets a second.
    pub throughput: f64,
    /// Microseconds of client CPU for each operation.
    pub client_cpu_us: f64,
    /// Microseconds of server CPU for each operation, where there is a server.
    pub server_cpu_us: Option<f64>,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Kernel and machine.
    pub machine: String,
    /// The figures.
    pub figures: Vec<Figure>,
    /// A sum over the work done.
    pub checksum: u64,
}

/// Measures and prints.
///
/// # Errors
/// If a server cannot be reached, or local files cannot be made.
pub fn report(out: &mut dyn Write, options: &Options) -> Result<Report> {
    let mut peers = peers(options)?;
    let mut report = Report { machine: machine(), figures: Vec::new(), checksum: 0 };
    writeln!(out, "{}", report.machine)?;
    for &block in &options.block_sizes {
        writeln!(
            out,
            "{:>8} octets {:>24} {:>10} {:>12} {:>12} {:>12}",
            block, "", "us/op", "MB/s", "client us", "server us"
        )?;
        let mut samples: Vec<Vec<Figure>> = vec![Vec::new(); peers.len()];
        for _ in 0..options.rounds {
            for (peer, samples) in peers.iter_mut().zip(&mut samples) {
                let (figure, sum) = measure(peer.as_mut(), block, options)?;
                report.checksum = report.checksum.wrapping_add(sum);
                samples.push(figure);
            }
        }
        for mut samples in samples {
            samples.sort_by(|a, b| a.wall_us.total_cmp(&b.wall_us));
            let median = samples.swap_remove(samples.len() / 2);
            let server = median.server_cpu_us.map_or("-".into(), |us| format!("{us:.2}"));
            writeln!(
                out,
                "{:>40} {:>10.2} {:>12.0} {:>12.2} {server:>12}",
                median.peer,
                median.wall_us,
                median.throughput / 1e6,
                median.client_cpu_us
            )?;
            report.figures.push(median);
        }
    }
    Ok(report)
}

fn peers(options: &Options) -> Result<Vec<Box<dyn Peer>>> {
    let bytes = options.file_bytes;
    let mut peers: Vec<Box<dyn Peer>> = vec![
        Box::new(Local::new(bytes, false)?),
        Box::new(Local::new(bytes, true)?),
        Box::new(Copies::new(bytes)?),
        Box::new(Echo::new()?),
    ];
    let path = format!("{}/bench-{}", options.directory.trim_end_matches('/'), std::process::id());
    for (index, address) in options.servers.iter().enumerate() {
        for (depth, writes, sleeps) in [
            (1, false, false),
            (32, false, false),
            (32, false, true),
            (1, true, false),
            (32, true, false),
        ] {
            let mut remote = Remote::new(address, &path, bytes, depth, writes, sleeps)
                .with_context(|| format!("measuring over {address}"))?;
            if index == 0 && depth == 1 && !writes {
                remote.fill(bytes)?;
            }
            peers.push(Box::new(remote));
        }
    }
    Ok(peers)
}

/// One round of one peer.
fn measure(peer: &mut dyn Peer, block: usize, options: &Options) -> Result<(Figure, u64)> {
    peer.run(block)?;
    let span = Duration::from_secs_f64(options.round_seconds);
    let (start, cpu) = (Instant::now(), thread_cpu());
    let server_cpu = options.server_process.and_then(process_cpu);
    let (mut count, mut sum) = (0, 0);
    while start.elapsed() < span {
        let (done, part) = peer.run(block)?;
        count += done;
        sum += part;
    }
    let wall = start.elapsed().as_secs_f64();
    let client = (thread_cpu() - cpu).as_secs_f64();
    let is_remote = peer.name().contains(" x");
    let server = match (server_cpu, options.server_process.and_then(process_cpu)) {
        (Some(before), Some(after)) if is_remote => {
            Some((after - before).as_secs_f64() * 1e6 / count as f64)
        }
        _ => None,
    };
    let figure = Figure {
        peer: peer.name().to_owned(),
        block_bytes: block,
        depth: peer.depth(),
        wall_us: wall * 1e6 / count as f64,
        throughput: count as f64 * block as f64 / wall,
        client_cpu_us: client * 1e6 / count as f64,
        server_cpu_us: server,
    };
    Ok((figure, sum))
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// CPU time of a process so far, from its scheduler statistics.
fn process_cpu(process: u32) -> Option<Duration> {
    let mut total = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task")).ok()? {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        total += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(total))
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let model = model.trim_start_matches([' ', '\t', ':']);
    format!("{model}, {cores} cores, Linux {}", kernel.trim())
}

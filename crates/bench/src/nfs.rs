//! Compares a server with nfs-ganesha. The same NFS client uses both.
//!
//! The client is libnfs with version 3 over TCP on the loopback interface. Both servers serve the
//! same file from memory. Their rounds alternate, so that other load on the machine affects both
//! alike.
//!
//! Invariant: a server's processor time is that of all its threads.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dafs_peers::{FileId, Ganesha, Nfs, Reply, Request, flag};
use serde::Serialize;

use crate::measure;

/// The server to compare, and the number and length of the rounds.
#[derive(Clone, Debug)]
pub struct NfsOptions {
    /// The directory that the server exports as `/`.
    pub directory: PathBuf,
    /// The port at which the server serves NFS version 3 and MOUNT on the loopback interface.
    pub port: u16,
    /// The process id of the server.
    pub process: u32,
    /// The number of rounds for each median.
    pub rounds: u64,
    /// The length of a round.
    pub round: Duration,
    /// True to measure only this server, and not nfs-ganesha.
    pub is_alone: bool,
}

/// One kind of work: reads of blocks of one size.
#[derive(Clone, Copy, Debug)]
struct Work {
    name: &'static str,
    block: usize,
    /// The number of reads in flight.
    depth: usize,
}

/// The kinds of work for which the project has goals.
const WORKS: [Work; 3] = [
    Work { name: "read 4 KiB, one at a time", block: 4096, depth: 1 },
    Work { name: "read 4 KiB, 32 in flight", block: 4096, depth: 32 },
    Work { name: "read 1 MiB, 4 in flight", block: 1 << 20, depth: 4 },
];

/// The result of one round.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// The time per read in microseconds.
    pub micros: f64,
    /// The server's processor time per read in microseconds.
    pub server_micros: f64,
}

/// The results of one server for one kind of work.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The kind of work.
    pub work: &'static str,
    /// The name of the server.
    pub server: &'static str,
    /// The medians of the times over all rounds.
    pub median: Sample,
}

/// A server that is measured, and the client's open file on it.
struct Candidate {
    name: &'static str,
    nfs: Nfs,
    file: FileId,
    process: u32,
}

/// Measures both servers, and writes a table to `out`. Returns the rows of the table.
///
/// # Errors
/// If the server refuses a request, or if nfs-ganesha is installed but fails.
pub fn compare_nfs(out: &mut dyn Write, options: &NfsOptions) -> Result<Vec<Row>> {
    fill(&options.directory.join(FILE))?;
    let mount = Nfs::mount_local("/", options.port)?;
    let mut candidates = vec![candidate("dafs", mount, options.process)?];
    let ganesha = match options.is_alone {
        true => None,
        false => match Ganesha::start(&options.directory) {
            Ok(ganesha) => Some(ganesha),
            Err(error) if error.is_missing() => {
                writeln!(out, "nfs-ganesha is left out: {error}")?;
                None
            }
            Err(error) => return Err(error.into()),
        },
    };
    if let Some(ganesha) = &ganesha {
        candidates.push(candidate("nfs-ganesha", ganesha.mount()?, ganesha.server_process()?)?);
    }
    writeln!(out, "{:28} {:12} {:>10} {:>12} {:>10}", "", "", "us/read", "server us", "MB/s")?;
    let mut results = Vec::new();
    for work in WORKS {
        let mut samples: Vec<Vec<Sample>> = candidates.iter().map(|_| Vec::new()).collect();
        for _ in 0..options.rounds {
            for (candidate, samples) in candidates.iter_mut().zip(&mut samples) {
                samples.push(candidate.round(work, options.round)?);
            }
        }
        let mut medians = Vec::new();
        for (candidate, samples) in candidates.iter().zip(samples) {
            let median = Sample {
                micros: median(samples.iter().map(|sample| sample.micros)),
                server_micros: median(samples.iter().map(|sample| sample.server_micros)),
            };
            writeln!(
                out,
                "{:28} {:12} {:10.2} {:12.2} {:10.0}",
                work.name,
                candidate.name,
                median.micros,
                median.server_micros,
                work.block as f64 / median.micros
            )?;
            medians.push(median);
            results.push(Row { work: work.name, server: candidate.name, median });
        }
        if let [own, other] = medians[..] {
            writeln!(
                out,
                "{:28} {:12} {:10.2} {:12.2}   of nfs-ganesha's",
                work.name,
                "ratio",
                own.micros / other.micros,
                own.server_micros / other.server_micros
            )?;
        }
    }
    Ok(results)
}

/// Opens the file over a mount, and reads it once so that the server caches it.
fn candidate(name: &'static str, mut nfs: Nfs, process: u32) -> Result<Candidate> {
    let file = nfs.open(&format!("/{FILE}"), flag::READ, 0)?;
    let mut buffer = vec![0; 1 << 20];
    for offset in (0..FILE_BYTES).step_by(1 << 20) {
        let (count, returned) = nfs.pread(file, offset, buffer)?;
        if count != 1 << 20 || returned.iter().any(|byte| *byte != 1) {
            bail!("{name} returned {count} bytes of the wrong content at offset {offset}");
        }
        buffer = returned;
    }
    Ok(Candidate { name, nfs, file, process })
}

impl Candidate {
    /// Reads blocks at random offsets until `length` has passed.
    fn round(&mut self, work: Work, length: Duration) -> Result<Sample> {
        let blocks = FILE_BYTES / work.block as u64;
        let mut free = vec![vec![0; work.block]; work.depth];
        let mut in_flight = 0;
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let (begin, cpu_before) = (Instant::now(), cpu(self.process)?);
        let mut done = 0u64;
        loop {
            while begin.elapsed() < length
                && let Some(buffer) = free.pop()
            {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let offset = random % blocks * work.block as u64;
                let request = Request::Read { file: self.file, offset, buffer };
                self.nfs.submit(request)?;
                in_flight += 1;
            }
            if in_flight == 0 {
                break;
            }
            let completion = self.nfs.wait()?;
            in_flight -= 1;
            match completion.result? {
                Reply::Moved { count, buffer } if count == work.block => free.push(buffer),
                other => bail!("{} returned {other:?}", self.name),
            }
            done += 1;
        }
        let (elapsed, used) = (begin.elapsed(), cpu(self.process)? - cpu_before);
        let per_read = |time: Duration| time.as_secs_f64() * 1e6 / done as f64;
        Ok(Sample { micros: per_read(elapsed), server_micros: per_read(used) })
    }
}

/// Returns the processor time that all threads of a process have used.
fn cpu(process: u32) -> Result<Duration> {
    measure::process_cpu(process).context("reading the times of the server's threads")
}

fn fill(path: &Path) -> Result<()> {
    std::fs::write(path, vec![1; FILE_BYTES as usize])
        .with_context(|| format!("writing {}", path.display()))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    measure::median(&mut values.collect::<Vec<f64>>()).unwrap_or(f64::NAN)
}

/// The name of the file to read, and its size in bytes.
const FILE: &str = "blocks";
const FILE_BYTES: u64 = 64 << 20;

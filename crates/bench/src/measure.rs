//! Runs the competitors in turns, and computes medians and CPU times.

use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::peers::{Label, Peer, Times, times};

/// The measurement of one competitor at one block size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The competitor that was measured.
    #[serde(flatten)]
    pub label: Label,
    /// The size of a block in bytes.
    pub block_bytes: usize,
    /// The microseconds per operation: wall time divided by the number of operations, as the median
    /// of the rounds.
    pub wall_us: f64,
    /// The throughput of the median round, in bytes per second.
    pub throughput: f64,
    /// The median of the time from submission to completion, in microseconds.
    pub latency_us_p50: f64,
    /// The 99th percentile of the time from submission to completion, in microseconds.
    pub latency_us_p99: f64,
    /// The CPU microseconds of the calling thread per operation, as the median of the rounds.
    pub client_cpu_us: f64,
    /// The CPU microseconds of the server per operation; `None` if the competitor has no server.
    pub server_cpu_us: Option<f64>,
}

/// The number and length of rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    /// The number of rounds.
    pub count: usize,
    /// The length of each round.
    pub span: Duration,
    /// The process whose CPU time counts as the server's.
    pub server: Option<u32>,
}

/// Measures all competitors at one block size. The competitors take turns within each round.
///
/// # Errors
/// The first error of a competitor.
pub(crate) fn measure(
    peers: &mut [Box<dyn Peer>],
    block: usize,
    rounds: Rounds,
    checksum: &mut u64,
) -> Result<Vec<Figure>> {
    let mut samples: Vec<Samples> = peers.iter().map(|_| Samples::new()).collect();
    for _ in 0..rounds.count {
        for (peer, samples) in peers.iter_mut().zip(&mut samples) {
            if peer.serves(block) {
                *checksum = checksum.wrapping_add(samples.take(peer.as_mut(), block, rounds)?);
            }
        }
    }
    let figures = peers.iter().zip(&mut samples);
    Ok(figures.filter_map(|(peer, samples)| samples.figure(peer.label(), block)).collect())
}

/// The results of one competitor's rounds.
struct Samples {
    wall_us: Vec<f64>,
    client_cpu_us: Vec<f64>,
    server_cpu_us: Vec<f64>,
    times: Times,
}

impl Samples {
    fn new() -> Self {
        Self {
            wall_us: Vec::new(),
            client_cpu_us: Vec::new(),
            server_cpu_us: Vec::new(),
            times: times(),
        }
    }

    /// Runs one round: a short warm-up, then the measured run, then a run that times each
    /// operation.
    fn take(&mut self, peer: &mut dyn Peer, block: usize, rounds: Rounds) -> Result<u64> {
        peer.run(block, rounds.span / 10, None)?;
        // Reading the server's CPU time costs this thread time, so read it outside the measured
        // run.
        let server = peer.server().or(rounds.server.filter(|_| peer.label().is_ours()));
        let server_cpu = server.and_then(process_cpu);
        let (start, cpu) = (Instant::now(), thread_cpu());
        let tally = peer.run(block, rounds.span, None)?;
        let (wall, cpu) = (start.elapsed(), thread_cpu().saturating_sub(cpu));
        let each = |time: Duration| time.as_secs_f64() * 1e6 / tally.count.max(1) as f64;
        self.wall_us.push(each(wall));
        self.client_cpu_us.push(each(cpu));
        if let (Some(before), Some(after)) = (server_cpu, server.and_then(process_cpu)) {
            self.server_cpu_us.push(each(after.saturating_sub(before)));
        }
        let timed = peer.run(block, rounds.span / 4, Some(&mut self.times))?;
        Ok(tally.sum.wrapping_add(timed.sum))
    }

    fn figure(&mut self, label: Label, block: usize) -> Option<Figure> {
        let wall_us = median(&mut self.wall_us)?;
        let latency = |quantile| self.times.value_at_quantile(quantile) as f64 / 1e3;
        Some(Figure {
            label,
            block_bytes: block,
            wall_us,
            throughput: block as f64 * 1e6 / wall_us,
            latency_us_p50: latency(0.5),
            latency_us_p99: latency(0.99),
            client_cpu_us: median(&mut self.client_cpu_us)?,
            server_cpu_us: median(&mut self.server_cpu_us),
        })
    }
}

pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Returns the CPU time of the calling thread so far.
#[must_use]
pub fn thread_cpu() -> Duration {
    cpu_by(ClockId::ThreadCPUTime)
}

/// Returns the CPU time of this process so far, including threads that have ended.
#[must_use]
pub fn own_cpu() -> Duration {
    cpu_by(ClockId::ProcessCPUTime)
}

fn cpu_by(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the CPU time of a process's threads so far, from their scheduler statistics; `None` if
/// there is no such process.
#[must_use]
pub fn process_cpu(process: u32) -> Option<Duration> {
    let mut total = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task")).ok()? {
        // A thread may end between the listing and the read.
        let Ok(text) = std::fs::read_to_string(task.ok()?.path().join("schedstat")) else {
            continue;
        };
        total += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{Kind, Tally};

    /// A competitor that moves nothing and counts its calls.
    struct Still(u64);

    impl Peer for Still {
        fn label(&self) -> Label {
            Label::plain("memcpy", Kind::Read)
        }
        fn serves(&self, block: usize) -> bool {
            block == 1
        }
        fn run(&mut self, _: usize, _: Duration, times: Option<&mut Times>) -> Result<Tally> {
            self.0 += 1;
            if let Some(times) = times {
                times.saturating_record(3000);
            }
            Ok(Tally { count: 1, sum: 1 })
        }
    }

    #[test]
    fn every_round_is_counted_and_summed() {
        let mut peers: Vec<Box<dyn Peer>> = vec![Box::new(Still(0))];
        let rounds = Rounds { count: 3, span: Duration::ZERO, server: None };
        let mut checksum = 0;
        let figures = measure(&mut peers, 1, rounds, &mut checksum).unwrap();
        assert_eq!((figures.len(), checksum), (1, 6));
        assert!((figures[0].latency_us_p50 - 3.0).abs() < 0.01);
        assert!(measure(&mut peers, 2, rounds, &mut checksum).unwrap().is_empty());
    }

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut []), None);
    }

    #[test]
    fn this_process_has_used_some_time() {
        // The kernel counts in hundredths of a second, and a fast machine may have used none yet.
        while process_cpu(std::process::id()).expect("this process has statistics").is_zero() {
            std::hint::spin_loop();
        }
    }
}

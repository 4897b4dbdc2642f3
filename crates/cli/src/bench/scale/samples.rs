//! The results of turns, and their medians.

use std::time::Duration;

use anyhow::{Result, bail};
use dafs_bench::ThreadTime;
use dafs_bench::scale::{Point, Round, Tally, Work};
use serde_json::Value;

use super::super::host::median;

/// The server's counters at one time.
#[derive(Clone, Copy)]
pub(super) struct Counters {
    requests: u64,
    messages: u64,
}

impl Counters {
    pub(super) fn of(document: &Value) -> Self {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let messages = number(&document["reactors"]["messages"]);
        Self { requests: number(&document["requests"]), messages }
    }

    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            messages: self.messages.saturating_sub(earlier.messages),
        }
    }
}

/// The duration of a turn, and the busy time of all cores during the turn, summed over all
/// processes.
#[derive(Clone, Copy)]
pub(super) struct Clocks {
    pub wall: Duration,
    pub busy: Option<Duration>,
}

/// The result of one turn.
pub(super) struct Sample {
    pub operations: u64,
    per_second: f64,
    /// The processor time of the server, in microseconds per operation.
    server_us: f64,
    reactors_us: f64,
    pool_us: f64,
    clients_us: f64,
    server_cores: f64,
    busiest_reactor: f64,
    client_cores: f64,
    other_cores: f64,
    /// The server's requests and its messages between reactors, per operation. `None` if the
    /// counters were not read in this turn.
    counted: Option<(f64, f64)>,
}

impl Sample {
    pub(super) fn new(
        tallies: &[Tally],
        threads: &[ThreadTime],
        process: u32,
        counted: Option<Counters>,
        clocks: Clocks,
    ) -> Result<Self> {
        let operations: u64 = tallies.iter().map(|tally| tally.operations).sum();
        if tallies.iter().any(|tally| tally.operations == 0) {
            bail!("a client completed no operation in its time: give more --seconds");
        }
        let seconds = |is_counted: &dyn Fn(&ThreadTime) -> bool| -> f64 {
            let times = threads.iter().filter(|thread| is_counted(thread));
            times.map(|thread| thread.time.as_secs_f64()).sum()
        };
        let is_reactor =
            |thread: &ThreadTime| thread.id == process || thread.name.starts_with(REACTOR_THREADS);
        let of_reactors = threads.iter().filter(|thread| is_reactor(thread));
        let busiest = of_reactors.map(|thread| thread.time).max().unwrap_or_default();
        let is_of_pool = |thread: &ThreadTime| thread.name.starts_with(POOL_THREADS);
        let count = operations as f64;
        let wall = clocks.wall.as_secs_f64();
        let busy = clocks.busy.unwrap_or_default().as_secs_f64();
        let each = |seconds: f64| seconds * 1e6 / count;
        let server = seconds(&|_| true);
        let client: f64 = tallies.iter().map(|tally| tally.cpu_seconds).sum();
        let rates = tallies.iter().map(|tally| tally.operations as f64 / tally.seconds);
        Ok(Self {
            operations,
            per_second: rates.sum(),
            server_us: each(server),
            reactors_us: each(seconds(&is_reactor)),
            pool_us: each(seconds(&is_of_pool)),
            clients_us: each(client),
            server_cores: server / wall,
            busiest_reactor: busiest.as_secs_f64() / wall,
            client_cores: client / wall,
            other_cores: (busy - server - client).max(0.0) / wall,
            counted: counted
                .map(|counted| (counted.requests as f64 / count, counted.messages as f64 / count)),
        })
    }
}

impl Sample {
    fn round(&self) -> Round {
        Round { operations_per_second: self.per_second, server_cpu_us: self.server_us }
    }
}

/// The results of all rounds of one point.
#[derive(Default)]
pub(super) struct Samples(pub Vec<Sample>);

impl Samples {
    pub(super) fn point(
        &self,
        work: Work,
        transport: &str,
        reactors: usize,
        clients: usize,
    ) -> Point {
        let middle = |of: fn(&Sample) -> f64| median(self.0.iter().map(of).collect());
        let rates = || self.0.iter().map(|sample| sample.per_second);
        let counted = self.0.iter().find_map(|sample| sample.counted);
        let (requests, messages) = counted.unwrap_or((f64::NAN, f64::NAN));
        Point {
            work,
            transport: transport.to_owned(),
            reactors,
            clients,
            operations_per_second: middle(|sample| sample.per_second),
            spread: [rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max)],
            server_cpu_us: middle(|sample| sample.server_us),
            reactor_cpu_us: middle(|sample| sample.reactors_us),
            pool_cpu_us: middle(|sample| sample.pool_us),
            client_cpu_us: middle(|sample| sample.clients_us),
            server_cores: middle(|sample| sample.server_cores),
            busiest_reactor: middle(|sample| sample.busiest_reactor),
            client_cores: middle(|sample| sample.client_cores),
            other_cores: middle(|sample| sample.other_cores),
            requests,
            messages,
            rounds: self.0.iter().map(Sample::round).collect(),
            // The report sets these fields when it has all points.
            is_conclusive: false,
            against: None,
        }
    }
}

/// The name prefix of reactor threads. The first reactor is an exception: it runs on the main
/// thread of the process.
const REACTOR_THREADS: &str = "dafs-reactor";
/// The name prefix of the threads that make blocking system calls.
const POOL_THREADS: &str = "dafs-io";

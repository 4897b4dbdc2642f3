//! The project's performance goals, as ratios between figures of one run.

use serde::Serialize;

use crate::measure::Figure;
use crate::peers::Kind;
use crate::report::Report;

/// A goal and the measured value.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    /// A description of the two figures compared.
    pub what: String,
    /// The measured ratio of the two figures.
    pub value: f64,
    /// The bound on the ratio.
    pub bound: f64,
    /// True if `bound` is a minimum, false if it is a maximum.
    pub is_least: bool,
}

impl Goal {
    /// Returns true if the goal is met.
    #[must_use]
    pub fn is_met(&self) -> bool {
        if self.is_least { self.value >= self.bound } else { self.value <= self.bound }
    }

    /// Makes a goal with a maximum.
    fn most(what: impl Into<String>, value: f64, bound: f64) -> Self {
        Self { what: what.into(), value, bound, is_least: false }
    }

    /// Makes a goal with a minimum.
    fn least(what: impl Into<String>, value: f64, bound: f64) -> Self {
        Self { what: what.into(), value, bound, is_least: true }
    }
}

/// Returns all goals whose figures are in the report.
#[must_use]
pub fn goals(report: &Report) -> Vec<Goal> {
    let figures = Figures(&report.figures);
    let mut goals = Vec::new();
    goals.extend(shm(&figures));
    goals.extend(tcp(&figures));
    goals.extend(writes(&figures));
    goals.extend(contended(&Figures(&report.contended)));
    for idle in &report.idle {
        let (name, count) = (idle.transport, idle.sessions);
        let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        goals.push(Goal::most(
            format!("{name}: MiB resident with {count} idle sessions"),
            megabytes(idle.resident_bytes),
            40.0,
        ));
        goals.push(Goal::most(
            format!("{name}: part of a core used with {count} idle sessions"),
            idle.core_fraction,
            0.01,
        ));
        goals.push(Goal::most(
            format!("{name}: KiB resident per session"),
            idle.session_bytes() as f64 / 1024.0,
            256.0,
        ));
    }
    goals
}

fn shm(figures: &Figures<'_>) -> Vec<Goal> {
    let read = |depth, sleeps, block| figures.find("shm", Kind::Read, depth, sleeps, block);
    let pread = figures.local("pread", 1, PAGE);
    let mut goals = Vec::new();
    if let (Some(one), Some(pread)) = (read(1, false, PAGE), pread) {
        let value = time_us(one) / time_us(pread);
        goals.push(Goal::most("shm 4 KiB x1: time against pread", value, 1.1));
    }
    if let (Some(many), Some(pread)) = (read(32, false, PAGE), pread) {
        let value = pread.wall_us / many.wall_us;
        goals.push(Goal::least("shm 4 KiB x32: operations against pread", value, 2.0));
    }
    if let (Some(many), Some(pread)) = (read(32, true, PAGE), pread) {
        let value = many.client_cpu_us / pread.client_cpu_us;
        goals.push(Goal::most("shm 4 KiB x32, sleeping: client CPU against pread", value, 0.5));
    }
    for (block, name) in [(256 << 10, "256 KiB"), (MEBI, "1 MiB")] {
        for depth in [1, 32] {
            if let (Some(ours), Some(copies)) =
                (read(depth, false, block), figures.local("memcpy", depth, block))
            {
                let value = time_us(copies) / time_us(ours);
                let what = format!("shm {name} x{depth}: throughput against memcpy");
                goals.push(Goal::least(what, value, 0.9));
            }
        }
    }
    for depth in [1, 32] {
        let growth = |small: Option<&Figure>, large: Option<&Figure>| {
            Some(large?.client_cpu_us / small?.client_cpu_us)
        };
        let Some(ours) = growth(read(depth, true, PAGE), read(depth, true, MEBI)) else { continue };
        let what = format!("shm x{depth}, sleeping: client CPU, 1 MiB against 4 KiB");
        goals.push(Goal::most(what, ours, 2.0));
        let sleeper = |block| figures.find("memcpy", Kind::Read, depth, true, block);
        if let (32, Some(bare)) = (depth, growth(sleeper(PAGE), sleeper(MEBI))) {
            let what = "shm x32, sleeping: time against a bare sleeper";
            goals.push(Goal::most(what, ours / bare, 1.0));
        }
    }
    goals
}

fn tcp(figures: &Figures<'_>) -> Vec<Goal> {
    let read = |depth, sleeps, block| figures.find("tcp", Kind::Read, depth, sleeps, block);
    let mut goals = Vec::new();
    if let (Some(one), Some(echo)) =
        (read(1, false, PAGE), figures.find("tcp echo", Kind::Echo, 1, false, PAGE))
    {
        let value = time_us(one) / time_us(echo);
        goals.push(Goal::most("tcp 4 KiB x1: time against a raw echo", value, 1.15));
    }
    if let Some(many) = read(32, false, PAGE) {
        let thousands = 1e3 / many.wall_us;
        goals.push(Goal::least("tcp 4 KiB x32: thousand operations per second", thousands, 300.0));
    }
    let bare = figures.find("tcp bare", Kind::Read, 32, true, PAGE);
    if let (Some(many), Some(bare)) = (read(32, false, PAGE), bare) {
        let value = bare.wall_us / many.wall_us;
        goals.push(Goal::least("tcp 4 KiB x32: operations against bare sockets", value, BARE_RATE));
    }
    let sleeping = [read(32, true, PAGE), read(32, false, PAGE)];
    if let Some(cpu) =
        sleeping.into_iter().flatten().map(|figure| figure.client_cpu_us).reduce(f64::min)
    {
        goals.push(Goal::most("tcp 4 KiB x32: microseconds of client CPU", cpu, 1.5));
        if let Some(bare) = bare {
            let value = cpu / bare.client_cpu_us;
            goals.push(Goal::most(
                "tcp 4 KiB x32: client CPU against bare sockets",
                value,
                BARE_CPU,
            ));
        }
    }
    if let (Some(four), Some(stream)) =
        (read(4, false, MEBI), figures.find("tcp stream", Kind::Read, 1, false, MEBI))
    {
        let value = four.throughput / stream.throughput;
        goals.push(Goal::least("tcp 1 MiB x4: throughput against a raw stream", value, 0.9));
    }
    goals
}

fn writes(figures: &Figures<'_>) -> Vec<Goal> {
    let mut goals = Vec::new();
    for peer in ["shm", "tcp"] {
        for (block, name) in [(PAGE, "4 KiB"), (256 << 10, "256 KiB"), (MEBI, "1 MiB")] {
            for depth in [1, 32] {
                let of = |kind| figures.find(peer, kind, depth, false, block);
                if let (Some(read), Some(write)) = (of(Kind::Read), of(Kind::Write)) {
                    let what = format!("{peer} {name} x{depth}: time of a write against a read");
                    goals.push(Goal::most(what, time_us(write) / time_us(read), 1.3));
                }
            }
        }
    }
    goals
}

fn contended(figures: &Figures<'_>) -> Option<Goal> {
    let read = |peer| figures.find(peer, Kind::Read, 32, false, PAGE);
    let value = read("tcp")?.wall_us / read("shm")?.wall_us;
    let what = "a third busy process, 4 KiB x32: shm's operations against tcp's";
    Some(Goal::least(what, value, 1.0))
}

/// Returns the time of an operation in microseconds. For one operation at a time this is the median
/// latency, because another program that takes the core for some milliseconds distorts a mean. For
/// several operations in flight, each of which waits for others, it is the wall time divided by the
/// number of operations, as the median of the rounds.
fn time_us(figure: &Figure) -> f64 {
    if figure.label.depth == 1 { figure.latency_us_p50 } else { figure.wall_us }
}

/// Figures that can be searched by competitor, kind, depth and block size.
struct Figures<'a>(&'a [Figure]);

impl Figures<'_> {
    fn find(
        &self,
        peer: &str,
        kind: Kind,
        depth: usize,
        sleeps: bool,
        block: usize,
    ) -> Option<&Figure> {
        self.0.iter().find(|figure| {
            let label = figure.label;
            (label.peer, label.kind, label.depth) == (peer, kind, depth)
                && label.sleeps == sleeps
                && figure.block_bytes == block
        })
    }

    fn local(&self, peer: &str, depth: usize, block: usize) -> Option<&Figure> {
        self.find(peer, Kind::Read, depth, false, block)
    }
}

/// The goal of 300,000 operations per second, divided by the 420,000 that bare sockets reached on
/// the machine where the goal was set.
const BARE_RATE: f64 = 0.71;
/// The goal of 1.5 microseconds of client CPU, divided by the 0.9 that bare sockets used on the
/// machine where the goal was set.
const BARE_CPU: f64 = 1.67;
const PAGE: usize = 4096;
const MEBI: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Label;

    fn figure(peer: &'static str, depth: usize, wall_us: f64) -> Figure {
        Figure {
            label: Label { depth, ..Label::plain(peer, Kind::Read) },
            block_bytes: PAGE,
            wall_us,
            throughput: 4096e6 / wall_us,
            latency_us_p50: wall_us,
            latency_us_p99: wall_us,
            client_cpu_us: wall_us,
            server_cpu_us: None,
        }
    }

    fn report(figures: Vec<Figure>) -> Report {
        Report { figures, ..Report::default() }
    }

    #[test]
    fn goals_compare_with_the_peers_of_the_same_run() {
        let all = [figure("pread", 1, 1.0), figure("shm", 1, 1.2), figure("shm", 32, 0.4)];
        let goals = goals(&report(all.to_vec()));
        let met: Vec<bool> = goals.iter().map(Goal::is_met).collect();
        assert_eq!(met, [false, true]);
        assert!((goals[1].value - 2.5).abs() < 1e-9);
    }

    #[test]
    fn a_goal_without_its_figures_is_left_out() {
        assert!(goals(&report(vec![figure("shm", 1, 1.0)])).is_empty());
    }
}

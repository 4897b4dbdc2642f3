//! Runs many seeds of the crash world, or one of them with a step-by-step log.
//!
//! ```text
//! cargo run --release -p dafs-sim --example storm -- --seeds 0..100000 --jobs 2
//! cargo run --release -p dafs-sim --example storm -- --seed 4711
//! ```

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dafs_sim::{StormPlan, StormReport, storm};

struct Wanted {
    first: u64,
    last: u64,
    jobs: usize,
    prints: bool,
}

fn main() {
    let wanted = match parse(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(what) => {
            eprintln!("{what}\nusage: storm [--seeds FIRST..END] [--jobs COUNT] | --seed SEED");
            std::process::exit(2);
        }
    };
    let begun = Instant::now();
    let (next, failures) = (AtomicU64::new(wanted.first), AtomicU64::new(0));
    let sum = Mutex::new(StormReport::default());
    std::thread::scope(|scope| {
        for _ in 0..wanted.jobs {
            scope.spawn(|| work(&wanted, &next, &failures, &sum));
        }
    });
    let (failed, seeds) = (failures.into_inner(), wanted.last - wanted.first);
    let report = sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let elapsed = begun.elapsed().as_secs_f32();
    println!("{report:?}");
    println!("{seeds} seeds, {failed} violations, {elapsed:.1} s");
    if failed > 0 {
        std::process::exit(1);
    }
}

fn work(wanted: &Wanted, next: &AtomicU64, failures: &AtomicU64, sum: &Mutex<StormReport>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= wanted.last {
            return;
        }
        let plan = StormPlan::new(seed);
        let run = || storm(&plan, None, wanted.prints);
        match std::panic::catch_unwind(run) {
            // The panic message has already printed the command that replays the run.
            Err(_) => drop(failures.fetch_add(1, Ordering::Relaxed)),
            Ok(Ok(report)) => {
                assert!(report.steps >= plan.steps, "seed {seed} has {} steps", report.steps);
                let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                *sum = sum.with(report);
            }
            Ok(Err(failure)) => {
                failures.fetch_add(1, Ordering::Relaxed);
                println!("seed {seed}:\n{failure}\n");
            }
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let mut wanted = Wanted { first: 0, last: 1_000, jobs: 1, prints: false };
    let number = |text: &str| text.parse().map_err(|_| format!("{text} is not a number"));
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--seeds" => {
                let (first, last) = value.split_once("..").ok_or("seeds are FIRST..END")?;
                (wanted.first, wanted.last) = (number(first)?, number(last)?);
            }
            "--jobs" => wanted.jobs = number(&value)? as usize,
            "--seed" => {
                wanted.first = number(&value)?;
                (wanted.last, wanted.prints) = (wanted.first + 1, true);
            }
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(wanted)
}

//! Whole runs: fixed seeds, fresh ones, and a store that loses a write.
//!
//! A failure prints the command that replays it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dafs_sim::disk::CrashStore;
use dafs_sim::{Defect, Failure, Plan, Report, SEED_VARIABLE, run, run_on_disk};
use dafs_store::Store;
use dafs_store::memory::{MemoryLimits, MemoryStore};

mod lossy;

fn memory() -> Arc<dyn Store> {
    let limits = MemoryLimits { bytes_max: 64 << 20, object_count_max: 10_000 };
    Arc::new(MemoryStore::new(limits))
}

fn on_disk(plan: &Plan) -> Result<Report, Failure> {
    let limits = MemoryLimits { bytes_max: 64 << 20, object_count_max: 10_000 };
    run_on_disk(plan, &CrashStore::new(limits))
}

fn check(plan: &Plan) -> Report {
    match run(plan, memory()) {
        Ok(report) => report,
        Err(failure) => panic!("seed {}\n{failure}", plan.seed),
    }
}

#[test]
fn fixed_seeds() {
    let reports: Vec<Report> = (1..=24).map(|seed| check(&Plan::new(seed))).collect();
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    // The runs must really meet the cases they are meant for.
    assert!(sum(|report| report.operations) > 3_000);
    assert!(sum(|report| report.lost) > 20);
    assert!(sum(|report| report.network.breaks_before) > 5);
    assert!(sum(|report| report.network.breaks_after) > 5);
    assert!(sum(|report| report.network.delays) > 50);
    assert!(sum(|report| report.network.flips_caught) > 2);
    assert!(sum(|report| report.network.flips_silent) > 5);
}

#[test]
fn a_network_without_faults_loses_nothing() {
    for seed in 100..108 {
        let report = check(&Plan::new(seed).without_faults());
        assert_eq!(report.lost, 0, "seed {seed}");
    }
}

#[test]
fn fresh_seeds() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let first = now.as_nanos() as u64;
    println!("fresh seeds from {first}");
    for seed in (0..6).map(|step| first.wrapping_add(step)) {
        check(&Plan::new(seed));
    }
}

#[test]
fn a_run_depends_only_on_its_seed() {
    for seed in [3, 5, 9] {
        assert_eq!(check(&Plan::new(seed)), check(&Plan::new(seed)), "seed {seed}");
    }
    assert_ne!(check(&Plan::new(3)).trace, check(&Plan::new(4)).trace);
}

/// Runs as many fresh seeds as requested (`make soak`).
#[test]
#[ignore = "runs as long as DAFS_SIM_RUNS says"]
fn soak() {
    let runs = std::env::var("DAFS_SIM_RUNS").ok().and_then(|text| text.parse().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let first = now.as_nanos() as u64;
    let failures: Vec<_> = (0..runs.unwrap_or(1_000))
        .map(|step| Plan::new(first.wrapping_add(step)))
        .flat_map(|plan| [run(&plan, memory()), on_disk(&plan.with_crashes())])
        .filter_map(Result::err)
        .inspect(|failure| println!("{failure:#}\n"))
        .collect();
    assert!(failures.is_empty(), "{} runs failed", failures.len());
}

/// Replays a failed run; does nothing without the variable that a failure's message names.
#[test]
fn replay() {
    let Ok(text) = std::env::var(SEED_VARIABLE) else { return };
    let seed = text.parse().unwrap_or_else(|_| panic!("{SEED_VARIABLE}={text} is not a number"));
    // One of these is the run that failed.
    let plan = Plan::new(seed);
    for result in [run(&plan, memory()), on_disk(&plan), on_disk(&plan.clone().with_crashes())] {
        match result {
            Ok(report) => println!("{report:?}"),
            Err(failure) => panic!("{failure:#}"),
        }
    }
}

#[test]
fn a_store_that_loses_one_write_is_caught() {
    let mut caught = 0;
    for seed in 200..206 {
        let store = lossy::LossyStore::new(memory(), 5);
        let lost = store.lost();
        let result = run(&Plan::new(seed).without_faults(), Arc::new(store));
        if !lost.load(std::sync::atomic::Ordering::Relaxed) {
            continue;
        }
        if let Err(failure) = result {
            let text = failure.to_string();
            assert!(text.contains(&dafs_sim::command(seed)), "{text}");
            caught += 1;
        }
    }
    assert!(caught > 0, "no run detected a lost write");
}

#[test]
fn a_disk_without_faults_serves_like_any_store() {
    for seed in 300..308 {
        let report = on_disk(&Plan::new(seed)).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(report.crashes, 0);
    }
}

#[test]
fn after_a_crash_another_server_serves_all_clients_anew() {
    let (mut crashes, mut lost) = (0, 0);
    for seed in 400..424 {
        let plan = Plan::new(seed).with_crashes();
        let report = on_disk(&plan).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(on_disk(&plan).unwrap(), report, "seed {seed}");
        crashes += report.crashes;
        lost += report.lost;
    }
    assert!(crashes > 8 && lost > 8, "{crashes} crashes, {lost} operations lost");
}

/// Returns the first of a thousand seeds that detects a defect.
fn is_caught(defect: Defect, plan_of: impl Fn(u64) -> Plan) {
    let caught = (0..1_000).find_map(|seed| {
        let failure = run(&plan_of(seed).with_defect(defect), memory()).err()?;
        Some((seed, failure))
    });
    let (seed, failure) = caught.unwrap_or_else(|| panic!("{defect:?} goes unnoticed"));
    println!("{defect:?} is caught by seed {seed}: {}", failure.what());
    let text = failure.to_string();
    assert!(text.contains(&dafs_sim::command(seed)), "{text}");
    // Without the defect the same run passes.
    check(&plan_of(seed));
}

#[test]
fn a_reactor_that_serves_connections_of_other_reactors_is_caught() {
    is_caught(Defect::StepOthersTasks, |seed| Plan::new(seed).without_faults());
}

#[test]
fn a_read_that_is_not_pinned_while_it_is_moved_is_caught() {
    is_caught(Defect::UnpinBeforeMove, Plan::new);
}

#[test]
fn a_server_whose_reactors_send_no_wakeups_is_caught() {
    is_caught(Defect::WakeNobody, Plan::new);
}

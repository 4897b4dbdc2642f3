//! The crash world: seeds that pass, and planted bugs that are detected.
//!
//! A failure prints the command that replays it. Many more seeds:
//! `cargo run --release -p dafs-sim --example storm -- --seeds 0..100000 --jobs 2`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use dafs_sim::{Defect, Failure, StormPlan, StormReport, storm, storm_command};

fn check(seed: u64) -> StormReport {
    let plan = StormPlan::new(seed);
    match storm(&plan, None, false) {
        Ok(report) => {
            assert!(report.steps >= 1_000, "seed {seed} has {} steps", report.steps);
            report
        }
        Err(failure) => panic!("seed {seed}\n{failure}"),
    }
}

/// Runs seeds on all processors; stops at the first that fails.
fn check_all(first: u64, count: u64) -> StormReport {
    let (next, sum) = (AtomicU64::new(0), Mutex::new(StormReport::default()));
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let step = next.fetch_add(1, Ordering::Relaxed);
                    if step >= count {
                        return;
                    }
                    let report = check(first.wrapping_add(step));
                    let mut sum = sum.lock().unwrap();
                    *sum = sum.with(report);
                }
            });
        }
    });
    sum.into_inner().unwrap()
}

/// The number of seeds that `fixed_seeds` runs, unless `DAFS_STORM_SEEDS` sets it.
const FIXED_SEEDS: u64 = 600;

#[test]
fn fixed_seeds() {
    let set = std::env::var("DAFS_STORM_SEEDS").ok().and_then(|text| text.parse().ok());
    let count = set.unwrap_or(FIXED_SEEDS);
    let report = check_all(0, count);
    if count < FIXED_SEEDS {
        return;
    }
    // The runs must really meet the cases they are meant for.
    assert!(report.crashes > 1_800, "{report:?}");
    assert!(report.cuts > 1_800, "{report:?}");
    assert!(report.deaths > 450, "{report:?}");
    assert!(report.recovered > 4_500, "{report:?}");
    assert!(report.reclaimed > 4_500, "{report:?}");
    assert!(report.broken_locks > 9, "{report:?}");
    assert!(report.taken_back > 135, "{report:?}");
    assert!(report.cloned_bytes > 22_000, "{report:?}");
}

#[test]
fn fresh_seeds() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let first = now.as_nanos() as u64;
    println!("fresh seeds from {first}");
    check_all(first, 200);
}

#[test]
fn a_run_depends_only_on_its_seed() {
    for seed in 0..8 {
        assert_eq!(check(seed), check(seed), "seed {seed}");
    }
    assert_ne!(check(3).trace, check(4).trace);
}

/// Returns the first of these seeds that detects a defect.
fn first_caught(defect: Defect, seeds: u64) -> (u64, Failure) {
    let caught = (0..seeds).find_map(|seed| {
        let result = storm(&StormPlan::new(seed), Some(defect), false);
        result.err().map(|failure| (seed, failure))
    });
    caught.unwrap_or_else(|| panic!("{defect:?} is not detected in {seeds} seeds"))
}

fn is_caught(defect: Defect) {
    is_caught_within(defect, 1_000);
}

fn is_caught_within(defect: Defect, seeds: u64) {
    let (seed, failure) = first_caught(defect, seeds);
    println!("{defect:?} is caught by seed {seed}: {}", failure.what());
    assert!(failure.to_string().contains(&storm_command(seed)), "{failure}");
    // Without the defect the same run passes.
    check(seed);
}

#[test]
fn a_server_that_writes_no_intents_is_caught() {
    is_caught(Defect::SkipIntent);
}

#[test]
fn a_server_that_replies_to_fences_early_is_caught() {
    is_caught(Defect::AnswerFencesEarly);
}

#[test]
fn a_server_that_uses_a_reply_twice_is_caught() {
    is_caught(Defect::ReuseStreamReply);
}

#[test]
fn a_server_that_forgets_a_piece_of_undo_is_caught() {
    is_caught(Defect::ForgetUndoBlock);
}

#[test]
fn a_server_that_clones_unwritten_data_is_caught() {
    // The defect needs data written shortly before it is locked, and a failure that rolls the
    // changes back.
    is_caught_within(Defect::CloneUnwritten, 5_000);
}

#[test]
fn a_reactor_that_sends_no_wakeups_is_caught() {
    is_caught(Defect::WakeNobody);
}

#[test]
fn a_server_that_loses_messages_between_reactors_is_caught() {
    is_caught(Defect::LoseOthersMessages);
}

#[test]
fn moves_that_are_hidden_from_other_reactors_are_caught() {
    is_caught(Defect::HideMoves);
}

#[test]
fn a_write_whose_reply_precedes_its_data_is_caught() {
    is_caught(Defect::AnswerBeforeMove);
}

#[test]
fn a_server_that_executes_requests_of_nfs_clients_twice_is_caught() {
    is_caught(Defect::ExecuteRepeats);
}

#[test]
fn a_server_that_does_not_compare_the_numbers_of_nfs_requests_is_caught() {
    is_caught(Defect::CompareNoSequence);
}

#[test]
fn a_server_that_replies_to_nfs_clients_before_the_journal_is_written_is_caught() {
    is_caught(Defect::TellGuestsEarly);
}

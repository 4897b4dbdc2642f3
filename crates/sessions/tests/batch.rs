//! The promises of the batch scheduler, one example each.

use std::time::Duration;

use dafs_filer::*;
use dafs_sessions::*;
use dafs_types::*;
use dafs_wire::messages::FileChunk;
use dafs_wire::{Checksum, DirectBuffer};

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const NOW: Moment = Moment(1_000_000_000);
const LATER: Moment = Moment(2_000_000_000);
/// A device that accepts any number of runs and is never idle.
const BUSY: DeviceLoad = DeviceLoad { in_flight: 100, in_flight_max: 1000 };
const IDLE: DeviceLoad = DeviceLoad { in_flight: 0, in_flight_max: 1000 };
/// A window longer than any test.
const LONG: u32 = 5_000_000;

fn scheduler(limits: BatchLimits) -> BatchScheduler {
    let mut scheduler = BatchScheduler::new(limits).unwrap();
    scheduler.open_session(A, Some(8192));
    scheduler.open_session(B, Some(8192));
    scheduler
}

/// A request of one piece: id, file, direction, offset, length.
#[derive(Clone, Copy)]
struct One(u64, u64, IoKind, u64, u32);

fn submit(
    scheduler: &mut BatchScheduler,
    session: SessionId,
    requests: &[One],
    window_us: u32,
    completion_count: u32,
    synchronous: bool,
) -> Result<Accepted, SubmitError> {
    let lists: Vec<_> = requests
        .iter()
        .map(|&One(name, _, _, offset, length)| {
            let chunk = FileChunk { offset, length, hint: CacheHint(0) };
            let target = RmrTarget(name * 0x1000);
            ([chunk], [DirectBuffer { target, length, context: RmrContext(7) }])
        })
        .collect();
    let requests: Vec<_> = requests
        .iter()
        .zip(&lists)
        .map(|(&One(name, file, kind, _, _), (chunks, buffers))| BatchRequest {
            request: RequestId(name),
            file: FileKey(file),
            state: StateId(file),
            kind,
            chunks,
            buffers,
            checksum: Checksum::default(),
            handle: FileHandle::NULL,
            data: None,
            refused: None,
        })
        .collect();
    let tag = requests.first().map_or(0, |request| request.request.0 + 1000);
    let submission =
        Submission { requests: &requests, window_us, completion_count, synchronous, tag };
    scheduler.submit(session, &submission, NOW)
}

fn hold(scheduler: &mut BatchScheduler, session: SessionId, requests: &[One]) {
    submit(scheduler, session, requests, LONG, 0, false).unwrap();
}

fn write(name: u64, file: u64, offset: u64, length: u32) -> One {
    One(name, file, IoKind::Write, offset, length)
}

fn read(name: u64, file: u64, offset: u64, length: u32) -> One {
    One(name, file, IoKind::Read, offset, length)
}

/// Returns file, offset, length and the ids of the pieces.
fn shape(scheduler: &BatchScheduler, run: &Run) -> (u64, u64, u32, Vec<u64>) {
    let names = run.pieces().iter().map(|piece| scheduler.request(piece).request.0).collect();
    (run.file.0, run.offset, run.length, names)
}

fn all_runs(scheduler: &mut BatchScheduler, now: Moment, device: DeviceLoad) -> Vec<Run> {
    std::iter::from_fn(|| scheduler.poll_run(now, device)).collect()
}

fn names(notice: &Notice) -> Vec<u64> {
    notice.completions.iter().map(|completion| completion.request.0).collect()
}

fn carry_out(scheduler: &mut BatchScheduler, runs: Vec<Run>, now: Moment) {
    for run in runs {
        let whole = RunOutcome::Moved(run.length.into());
        scheduler.run_done(run, whole, now);
    }
}

#[test]
fn adjacent_transfers_form_one_run_whichever_client_sent_them() {
    let mut scheduler = scheduler(BatchLimits::default());
    hold(&mut scheduler, A, &[write(1, 9, 4096, 4096), write(2, 3, 0, 100)]);
    submit(&mut scheduler, B, &[write(3, 9, 0, 4096), read(4, 9, 8192, 10)], 0, 0, false).unwrap();
    hold(&mut scheduler, A, &[write(5, 9, 8202, 10), write(6, 9, 1 << 20, 10)]);
    let runs = all_runs(&mut scheduler, NOW, BUSY);
    let shapes: Vec<_> = runs.iter().map(|run| shape(&scheduler, run)).collect();
    // The due write includes its neighbour; the read is a run of its own.
    assert_eq!(shapes, [(9, 0, 8192, vec![3, 1]), (9, 8192, 10, vec![4])]);
    let runs = all_runs(&mut scheduler, LATER.after(Duration::from_secs(9)), BUSY);
    let shapes: Vec<_> = runs.iter().map(|run| shape(&scheduler, run)).collect();
    let wanted = [(3, 0, 100, vec![2]), (9, 8202, 10, vec![5]), (9, 1 << 20, 10, vec![6])];
    assert_eq!(shapes, wanted, "by file and offset");
}

#[test]
fn a_run_includes_neighbours_before_a_due_transfer_within_its_limits() {
    let limits = BatchLimits { run_bytes_max: 300, run_pieces_max: 3, ..BatchLimits::default() };
    let mut scheduler = scheduler(limits);
    hold(&mut scheduler, A, &[write(1, 1, 0, 100), write(2, 1, 100, 100)]);
    submit(&mut scheduler, A, &[write(3, 1, 200, 60), write(9, 2, 0, 900)], 0, 0, false).unwrap();
    let shapes: Vec<_> =
        all_runs(&mut scheduler, NOW, BUSY).iter().map(|run| shape(&scheduler, run)).collect();
    let long = |offset| (2, offset, 300, vec![9]);
    assert_eq!(shapes, [(1, 0, 260, vec![1, 2, 3]), long(0), long(300), long(600)]);
}

#[test]
fn reads_of_the_same_bytes_share_a_run() {
    let mut scheduler = scheduler(BatchLimits::default());
    let requests = [read(1, 1, 0, 100), read(2, 1, 50, 100), read(3, 1, 50, 10)];
    submit(&mut scheduler, A, &requests, 0, 0, false).unwrap();
    let run = scheduler.poll_run(NOW, BUSY).unwrap();
    assert_eq!((run.offset, run.length, run.pieces().len()), (0, 150, 3));
    // Half of the run was moved: the first piece is complete, the second short, the third complete.
    scheduler.run_done(run, RunOutcome::Moved(120), NOW);
    let notice = scheduler.poll_notice(NOW).unwrap();
    let done = notice.completions.iter();
    let mut lengths: Vec<_> = done.map(|done| (done.request.0, done.length)).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [(1, 100), (2, 70), (3, 10)]);
}

#[test]
fn a_window_is_kept_unless_the_device_is_idle() {
    let mut scheduler = scheduler(BatchLimits::default());
    submit(&mut scheduler, A, &[write(1, 1, 0, 10)], 500, 0, false).unwrap();
    let due = NOW.after(Duration::from_micros(500));
    assert_eq!(scheduler.poll_run(NOW, BUSY), None);
    assert_eq!(scheduler.next_due(), Some(due));
    let full = DeviceLoad { in_flight: 5, in_flight_max: 5 };
    assert_eq!(scheduler.poll_run(due, full), None);
    assert_eq!(scheduler.next_due(), None, "no timer is left");
    assert!(scheduler.poll_run(due, BUSY).is_some());
    hold(&mut scheduler, A, &[write(2, 1, 10, 10)]);
    assert!(scheduler.poll_run(NOW, IDLE).is_some(), "an idle device does not wait");
    let limits = BatchLimits { early_start_below: 0, ..BatchLimits::default() };
    let mut scheduler = self::scheduler(limits);
    hold(&mut scheduler, A, &[write(1, 1, 0, 10)]);
    assert_eq!(scheduler.poll_run(NOW, IDLE), None, "unless early starts are off");
}

#[test]
fn a_later_batch_waits_for_an_earlier_one_and_raises_its_priority() {
    let mut scheduler = scheduler(BatchLimits::default());
    hold(&mut scheduler, A, &[write(1, 1, 0, 100)]);
    hold(&mut scheduler, B, &[write(2, 1, 50, 100)]);
    submit(&mut scheduler, A, &[read(3, 1, 140, 10), read(4, 1, 500, 10)], 0, 0, false).unwrap();
    for (name, next) in [(1, 2), (2, 3)] {
        let mut runs = all_runs(&mut scheduler, NOW, BUSY);
        let held_back = runs.iter().filter(|run| shape(&scheduler, run).3 == [next]).count();
        assert_eq!(held_back, 0, "{next} overtook {name}");
        let at = runs.iter().position(|run| shape(&scheduler, run).3 == [name]).unwrap();
        let run = runs.swap_remove(at);
        scheduler.run_done(run, RunOutcome::Moved(100), NOW);
        carry_out(&mut scheduler, runs, NOW);
    }
    let run = scheduler.poll_run(NOW, BUSY).unwrap();
    assert_eq!(shape(&scheduler, &run).3, [3]);
}

#[test]
fn a_blocked_transfer_passes_its_window_on_to_the_one_that_blocks_it() {
    let mut scheduler = scheduler(BatchLimits::default());
    hold(&mut scheduler, A, &[write(1, 1, 0, 100)]);
    submit(&mut scheduler, B, &[read(2, 1, 0, 100)], 700, 0, false).unwrap();
    // The device is idle, so the read starts before it is due.
    let run = scheduler.poll_run(NOW, IDLE).unwrap();
    assert_eq!(shape(&scheduler, &run).3, [1]);
    scheduler.run_done(run, RunOutcome::Failed(Status::Io), NOW);
    assert_eq!(scheduler.next_due(), Some(NOW.after(Duration::from_micros(700))));
}

#[test]
fn hurry_up_releases_one_request_and_those_that_block_it() {
    let mut scheduler = scheduler(BatchLimits::default());
    hold(&mut scheduler, A, &[write(1, 1, 0, 10), write(2, 1, 10, 10), write(3, 5, 0, 10)]);
    hold(&mut scheduler, B, &[read(4, 5, 5, 10)]);
    scheduler.hurry_up(A, RequestId(2)).unwrap();
    scheduler.hurry_up(B, RequestId(4)).unwrap();
    let runs = all_runs(&mut scheduler, NOW, BUSY);
    let shapes: Vec<_> = runs.iter().map(|run| shape(&scheduler, run).3).collect();
    assert_eq!(shapes, [[2], [3]], "the neighbour stays, the write that blocks the read goes");
    carry_out(&mut scheduler, runs, NOW);
    let runs = all_runs(&mut scheduler, NOW, BUSY);
    assert_eq!(shape(&scheduler, &runs[0]).3, [4]);
    assert_eq!(runs.len(), 1);
}

#[test]
fn a_request_is_found_until_it_is_reported() {
    let mut scheduler = scheduler(BatchLimits::default());
    let requests = [write(1, 1, 0, 10), write(2, 2, 0, 10)];
    submit(&mut scheduler, A, &requests, LONG, 2, false).unwrap();
    scheduler.hurry_up(A, RequestId(1)).unwrap();
    assert_eq!(scheduler.hurry_up(B, RequestId(1)), Err(RequestNotFound));
    let runs = all_runs(&mut scheduler, NOW, BUSY);
    carry_out(&mut scheduler, runs, NOW);
    assert_eq!(scheduler.hurry_up(A, RequestId(1)), Ok(()));
    // The client waits for this completion, so it is reported without waiting for the second one.
    let notice = scheduler.poll_notice(NOW).unwrap();
    assert_eq!((names(&notice), notice.finished.is_empty()), (vec![1], true));
    assert_eq!(scheduler.hurry_up(A, RequestId(1)), Err(RequestNotFound));
    submit(&mut scheduler, A, &[write(9, 1, 0, 10)], 0, 0, true).unwrap();
    assert_eq!(
        scheduler.hurry_up(A, RequestId(9)),
        Err(RequestNotFound),
        "the batch is synchronous"
    );
}

#[test]
fn constant_hurrying_does_not_starve_due_transfers() {
    let mut scheduler = scheduler(BatchLimits::default());
    submit(&mut scheduler, A, &[write(1, 1, 0, 10)], 0, 0, false).unwrap();
    for name in 10..30 {
        hold(&mut scheduler, B, &[write(name, name, 0, 10)]);
        scheduler.hurry_up(B, RequestId(name)).unwrap();
    }
    let order: Vec<_> =
        all_runs(&mut scheduler, NOW, BUSY).iter().map(|run| shape(&scheduler, run).3[0]).collect();
    let wanted: Vec<_> = (10..18).chain([1]).chain(18..30).collect();
    assert_eq!(order, wanted);
}

#[test]
fn a_sweep_is_finished_before_new_transfers_are_considered() {
    let mut scheduler = scheduler(BatchLimits::default());
    submit(&mut scheduler, A, &[write(1, 1, 0, 10), write(2, 8, 0, 10)], 0, 0, false).unwrap();
    let first = scheduler.poll_run(NOW, BUSY).unwrap();
    submit(&mut scheduler, B, &[write(3, 2, 0, 10)], 0, 0, false).unwrap();
    let rest = all_runs(&mut scheduler, NOW, BUSY);
    let order: Vec<_> =
        [&first].into_iter().chain(&rest).map(|run| shape(&scheduler, run).3[0]).collect();
    assert_eq!(order, [1, 2, 3]);
}

#[test]
fn completions_are_collected_as_the_client_asked() {
    let mut scheduler = scheduler(BatchLimits::default());
    let accepted = submit(&mut scheduler, A, &[], 0, 2, false).unwrap();
    assert!(accepted.complete, "an empty batch sets the number and is complete");
    let requests: Vec<_> = (1..=6).map(|name| write(name, name, 0, 10)).collect();
    submit(&mut scheduler, A, &requests, LONG, 0, false).unwrap();
    let mut runs = all_runs(&mut scheduler, NOW, IDLE);
    let last = runs.pop().unwrap();
    let mut sizes = vec![];
    for run in runs {
        carry_out(&mut scheduler, vec![run], NOW);
        sizes.push(scheduler.poll_notice(NOW).map_or(0, |notice| notice.completions.len()));
    }
    assert_eq!(sizes, [0, 2, 0, 2, 0]);
    // A completion waits for a second one, but not beyond the time at which its batch is due.
    let due = NOW.after(Duration::from_micros(LONG.into()));
    assert_eq!(scheduler.next_due(), Some(due));
    assert_eq!(scheduler.poll_notice(LATER), None);
    assert_eq!(names(&scheduler.poll_notice(due).unwrap()), [5]);
    carry_out(&mut scheduler, vec![last], due);
    let notice = scheduler.poll_notice(due).unwrap();
    assert_eq!(
        (names(&notice), notice.finished),
        (vec![6], vec![1001]),
        "no other completion is pending"
    );
    assert!(scheduler.is_idle());
}

#[test]
fn after_its_window_a_completion_still_waits_for_others_for_a_while() {
    let limits = BatchLimits::default();
    let mut scheduler = scheduler(limits);
    let requests = [write(1, 1, 0, 10), write(2, 2, 0, 10)];
    submit(&mut scheduler, A, &requests, 0, 2, false).unwrap();
    let mut runs = all_runs(&mut scheduler, NOW, BUSY);
    let run = runs.pop().unwrap();
    scheduler.run_done(run, RunOutcome::Moved(10), LATER);
    assert_eq!(scheduler.poll_notice(LATER), None);
    let by = LATER.after(limits.notice_delay_max);
    assert_eq!(scheduler.next_due(), Some(by));
    assert_eq!(scheduler.poll_notice(by).unwrap().completions.len(), 1);
}

#[test]
fn a_synchronous_batch_has_one_reply_in_the_order_of_its_requests() {
    let mut scheduler = scheduler(BatchLimits::default());
    scheduler.open_session(SessionId(3), None);
    let requests = [write(5, 2, 0, 10), write(4, 1, 0, 20)];
    let session = SessionId(3);
    let refused = submit(&mut scheduler, session, &requests, LONG, 0, false);
    assert_eq!(refused, Err(SubmitError::NoBackChannel));
    let accepted = submit(&mut scheduler, session, &requests, LONG, 0, true).unwrap();
    assert!(!accepted.complete);
    for run in all_runs(&mut scheduler, NOW, BUSY) {
        assert_eq!(scheduler.poll_reply(), None);
        carry_out(&mut scheduler, vec![run], NOW);
    }
    let reply = scheduler.poll_reply().unwrap();
    let done = reply.completions.iter();
    let lengths: Vec<_> = done.map(|done| (done.request.0, done.length)).collect();
    assert_eq!(lengths, [(5, 10), (4, 20)]);
    assert_eq!((reply.session, reply.tag), (session, 1005));
    submit(&mut scheduler, session, &[], 0, 0, true).unwrap();
    assert_eq!(scheduler.poll_reply().unwrap().completions, []);
    assert_eq!(scheduler.poll_notice(LATER), None);
    assert!(scheduler.is_idle());
}

#[test]
fn a_client_told_to_wait_gets_the_next_completion_at_once() {
    let limits =
        BatchLimits { requests_max: 3, requests_per_session_max: 2, ..BatchLimits::default() };
    let mut scheduler = scheduler(limits);
    let requests = [write(1, 1, 0, 10), write(2, 2, 0, 10)];
    submit(&mut scheduler, A, &requests, LONG, 2, false).unwrap();
    let three: Vec<_> = (5..8).map(|name| write(name, 1, 0, 10)).collect();
    let refused = submit(&mut scheduler, A, &three, 0, 0, false);
    assert_eq!(refused, Err(SubmitError::TooLarge), "waiting would not help");
    let refused = submit(&mut scheduler, A, &[write(3, 3, 0, 10)], 0, 0, false);
    assert_eq!(refused, Err(SubmitError::WhoaCowboy));
    // The scheduler is full because of other sessions: a completion would never come.
    let two = [write(1, 4, 0, 10), write(2, 5, 0, 10)];
    let refused = submit(&mut scheduler, B, &two, 0, 0, false);
    assert_eq!(refused, Err(SubmitError::Delay));
    let run = scheduler.poll_run(NOW, IDLE).unwrap();
    scheduler.run_done(run, RunOutcome::Moved(10), NOW);
    assert_eq!(names(&scheduler.poll_notice(NOW).unwrap()), [1], "although two were asked for");
    submit(&mut scheduler, B, &two, 0, 0, false).unwrap();
}

#[test]
fn invalid_batches_leave_nothing_behind() {
    let mut scheduler = scheduler(BatchLimits::default());
    let twice = [write(1, 1, 0, 10), write(1, 2, 0, 10)];
    let refused = submit(&mut scheduler, A, &twice, 0, 0, false);
    assert_eq!(refused, Err(SubmitError::Invalid(InvalidBatch::DuplicateRequest)));
    assert_eq!(refused.unwrap_err().status(), Status::Inval);
    hold(&mut scheduler, A, &[write(1, 1, 0, 10)]);
    let refused = submit(&mut scheduler, A, &[write(1, 2, 0, 10)], 0, 0, false);
    assert_eq!(refused, Err(SubmitError::Invalid(InvalidBatch::DuplicateRequest)));
    hold(&mut scheduler, B, &[write(1, 2, 0, 10)]);
    assert_eq!(scheduler.load().requests, 2);
}

#[test]
fn the_number_of_overlapping_transfers_is_limited() {
    let limits = BatchLimits { requests_per_session_max: 4000, ..BatchLimits::default() };
    let mut scheduler = scheduler(limits);
    let alone: Vec<_> = (1..=1025).map(|name| write(name, 1, 0, 10)).collect();
    let refused = submit(&mut scheduler, A, &alone, LONG, 0, false);
    assert_eq!(refused, Err(SubmitError::TooLarge), "waiting would not help");
    assert!(scheduler.is_idle(), "nothing of the batch was accepted");
    let fit: Vec<_> = (1..=1024).map(|name| write(name, 1, 0, 10)).collect();
    hold(&mut scheduler, A, &fit);
    let refused = submit(&mut scheduler, A, &[write(2000, 1, 9, 10)], 0, 0, false);
    assert_eq!(refused, Err(SubmitError::WhoaCowboy));
    hold(&mut scheduler, A, &[write(2000, 1, 100, 10), write(2001, 2, 0, 10)]);
    // Reads never conflict with each other.
    let reads: Vec<_> = (3000..4200).map(|name| read(name, 3, 0, 10)).collect();
    hold(&mut scheduler, A, &reads);
}

#[test]
fn a_cancelled_request_is_reported_when_none_of_it_is_in_flight() {
    let limits = BatchLimits { run_bytes_max: 100, ..BatchLimits::default() };
    let mut scheduler = scheduler(limits);
    submit(&mut scheduler, A, &[write(1, 1, 0, 200), write(2, 2, 0, 10)], LONG, 9, false).unwrap();
    let run = scheduler.poll_run(NOW, IDLE).unwrap();
    let outcome = scheduler.cancel(A, RequestId(1), Status::Expired, NOW);
    assert_eq!(outcome, Ok(Cancelled::Draining));
    assert_eq!(scheduler.poll_notice(NOW), None);
    scheduler.run_done(run, RunOutcome::Moved(100), NOW);
    let notice = scheduler.poll_notice(NOW).unwrap();
    let done = notice.completions[0];
    assert_eq!((done.request.0, done.status, done.length), (1, Status::Expired, 100));
    let outcome = scheduler.cancel(A, RequestId(2), Status::Expired, NOW);
    assert_eq!(outcome, Ok(Cancelled::Ended));
    assert_eq!(scheduler.poll_notice(NOW).unwrap().completions[0].length, 0);
    assert!(scheduler.cancel(A, RequestId(2), Status::Expired, NOW).is_err());
    assert!(scheduler.is_idle());
}

#[test]
fn a_lost_session_drops_everything_that_is_not_in_flight() {
    let mut scheduler = scheduler(BatchLimits::default());
    hold(&mut scheduler, A, &[write(1, 1, 0, 10), write(2, 9, 0, 10)]);
    hold(&mut scheduler, B, &[write(1, 1, 10, 10)]);
    let mut run = scheduler.poll_run(NOW, IDLE).unwrap();
    assert_eq!(run.pieces().len(), 2);
    let ended = scheduler.close_session(A);
    assert_eq!(ended, EndedSession { requests: 2, running: 1 });
    assert_eq!(scheduler.request(&run.pieces()[0]).session, None);
    // The first client's memory is not accessible; the other's part of the run is not affected.
    run.fail_piece(0, Status::BadSession);
    scheduler.run_done(run, RunOutcome::Moved(20), NOW);
    let notice = scheduler.poll_notice(NOW).unwrap();
    assert_eq!((notice.session, notice.completions[0].status), (B, Status::Ok));
    assert_eq!(scheduler.poll_notice(LATER), None);
    assert!(scheduler.is_idle());
    assert_eq!(scheduler.close_session(A), EndedSession::default());
}

#[test]
fn a_fence_drops_waiting_transfers_and_waits_for_running_ones() {
    let mut scheduler = scheduler(BatchLimits::default());
    hold(&mut scheduler, A, &[write(1, 1, 0, 10)]);
    let run = scheduler.poll_run(NOW, IDLE).unwrap();
    hold(&mut scheduler, A, &[write(2, 1, 500, 10), write(3, 2, 0, 10)]);
    hold(&mut scheduler, B, &[write(4, 1, 900, 10)]);
    let scope = AbortScope { session: Some(A), file: Some(FileKey(1)), ..AbortScope::EVERYTHING };
    let aborted = scheduler.abort(&scope, Status::Access, NOW);
    assert_eq!(aborted, Aborted { requests: 1, running: 1 });
    let notice = scheduler.poll_notice(NOW).unwrap();
    assert_eq!((names(&notice), notice.completions[0].status), (vec![2], Status::Access));
    // Draining continues even if the session has gone meanwhile.
    scheduler.close_session(A);
    assert!(scheduler.is_running(&scope));
    scheduler.run_done(run, RunOutcome::Moved(10), NOW);
    assert!(!scheduler.is_running(&scope));
    assert_eq!(scheduler.load().requests, 1, "nobody else's");
}

#[test]
fn a_failed_request_starts_no_more_transfers_and_counts_up_to_its_first_gap() {
    let limits = BatchLimits { run_bytes_max: 100, ..BatchLimits::default() };
    let mut scheduler = scheduler(limits);
    submit(&mut scheduler, A, &[write(1, 1, 0, 400)], 0, 0, false).unwrap();
    let first = scheduler.poll_run(NOW, BUSY).unwrap();
    let second = scheduler.poll_run(NOW, BUSY).unwrap();
    scheduler.run_done(second, RunOutcome::Failed(Status::NoSpc), NOW);
    assert_eq!(scheduler.poll_run(NOW, BUSY), None);
    scheduler.run_done(first, RunOutcome::Moved(60), NOW);
    let done = scheduler.poll_notice(NOW).unwrap().completions[0];
    assert_eq!((done.status, done.length), (Status::NoSpc, 60));
}

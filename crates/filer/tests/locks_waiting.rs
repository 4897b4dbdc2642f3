//! Waiting for byte-range locks: order, positions kept and lost, deadlocks.

use std::time::Duration;

use crate::locks_common::*;
use dafs_filer::FileKey;
use dafs_filer::locks::*;
use dafs_types::*;

fn position(answer: LockReply) -> u32 {
    match answer {
        LockReply::Waiting { position, .. } => position,
        other => panic!("{other:?} does not wait"),
    }
}

fn in_file(file: u64, request: LockRequest) -> LockRequest {
    LockRequest { file: FileKey(file), ..request }
}

fn at(seconds: u64) -> Moment {
    T0.after(Duration::from_secs(seconds))
}

#[test]
fn requests_are_served_in_order_and_readers_together() {
    let mut bench = Bench::new(config());
    let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(|name| owner(1, name));
    bench.take(&a, request(Write, 0, 9));
    assert_eq!(
        bench.ask(&b, parked(1, request(Read, 0, 9))),
        LockReply::Waiting { position: 0, conflict: conflict(&a, Write, 0, 9) }
    );
    assert_eq!(position(bench.ask(&c, parked(2, request(Read, 5, 14)))), 1);
    assert_eq!(position(bench.ask(&d, parked(3, request(Write, 0, 0)))), 2);
    assert_eq!(position(bench.ask(&e, parked(4, request(Read, 0, 0)))), 3);
    assert_eq!(bench.actions(), []);
    bench.unlock(&a, 0, END);
    assert_eq!(bench.actions(), [ready(1), ready(2)]);
    // A ready waiter is reported once and its lock is reserved: a request that does not wait comes
    // after those that do.
    assert_eq!(bench.ask(&a, request(Write, 9, 9)), denied(&b, Read, 0, 9));
    assert_eq!(bench.ask(&a, request(Write, 14, 14)), denied(&c, Read, 5, 14));
    assert_eq!(bench.ask(&a, request(Read, 9, 9)), LockReply::Granted);
    assert_eq!(bench.ask(&b, parked(1, request(Read, 0, 9))), LockReply::Granted);
    assert_eq!(bench.actions(), []);
    // The last request is compatible with the held lock, but arrived after the writer.
    let stay = LockReply::Waiting { position: 2, conflict: conflict(&d, Write, 0, 0) };
    assert_eq!(bench.ask(&e, parked(4, request(Read, 0, 0))), stay);
    bench.unlock(&b, 0, END);
    assert_eq!(bench.actions(), [ready(3)]);
    assert_eq!(bench.ask(&d, request(Write, 0, 0)), LockReply::Granted);
    bench.unlock(&d, 0, END);
    assert_eq!(bench.actions(), [ready(4)]);
    assert_eq!(bench.ask(&e, polling(9, request(Read, 0, 0))), LockReply::Granted);
    assert_eq!(bench.ask(&c, request(Read, 5, 14)), LockReply::Granted);
    assert_eq!(bench.table.counters().waiters, 0);
}

#[test]
fn a_repeated_request_keeps_its_position_under_its_new_id() {
    let mut bench = Bench::new(config());
    let [a, b, c] = ["a", "b", "c"].map(|name| owner(1, name));
    bench.take(&a, request(Write, 0, 9));
    bench.ask(&b, polling(1, request(Write, 0, 9)));
    bench.ask(&c, polling(2, request(Write, 0, 9)));
    assert_eq!(position(bench.ask(&b, polling(3, request(Write, 0, 9)))), 0);
    // Another range or mode is another request.
    assert_eq!(position(bench.ask(&b, polling(4, request(Write, 0, 8)))), 2);
    assert_eq!(position(bench.ask(&b, polling(5, request(Read, 0, 9)))), 3);
    assert_eq!(bench.actions(), []);
    let taken = bench.refused(&c, polling(4, request(Write, 0, 9)));
    assert_eq!(taken, LockError::Contradiction);
    assert!(!bench.table.cancel(WaiterId(1), T0));
    bench.unlock(&a, 0, END);
    // The last two pass the second, which waits for their owner anyway.
    assert_eq!(bench.actions(), [ready(3), ready(4), ready(5)]);
    // A request without waiting gives up the position if it is denied, and gets the lock if not.
    bench.take(&a, request(Read, 100, 100));
    assert_eq!(bench.ask(&b, request(Write, 0, 9)), LockReply::Granted);
    assert_eq!(bench.ask(&c, request(Write, 0, 9)), denied(&b, Write, 0, 9));
    assert!(!bench.table.cancel(WaiterId(2), T0));
    assert_eq!(bench.table.counters().waiters, 2);
}

#[test]
fn silent_waiters_lose_their_position_and_parked_ones_do_not() {
    let silence = Duration::from_secs(10);
    let mut bench = Bench::new(LockConfig { waiter_silence_max: silence, ..config() });
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| owner(1, name));
    bench.take(&a, request(Write, 0, 9));
    let ask = |bench: &mut Bench, who: &LockOwner<'_>, asked: LockRequest, second| {
        bench.table.lock(who, &asked, at(second)).unwrap()
    };
    ask(&mut bench, &b, polling(1, request(Write, 0, 9)), 0);
    ask(&mut bench, &c, polling(2, request(Write, 0, 9)), 3);
    ask(&mut bench, &d, parked(3, request(Write, 0, 9)), 3);
    assert_eq!(bench.table.next_expiry(), Some(at(10)));
    ask(&mut bench, &b, polling(1, request(Write, 0, 9)), 8);
    bench.table.on_tick(at(12));
    assert_eq!(bench.actions(), []);
    assert_eq!(bench.table.next_expiry(), Some(at(13)));
    // The waiter's turn comes when its time is nearly over: it gets its full time again.
    bench.table.unlock(a.name(), FILE, 0, END, at(17)).unwrap();
    assert_eq!(bench.actions(), [ready(1)]);
    bench.table.on_tick(at(26));
    assert_eq!(bench.actions(), [gone(2)]);
    bench.table.on_tick(at(27));
    assert_eq!(bench.actions(), [gone(1), ready(3)]);
    assert_eq!(bench.table.next_expiry(), None);
    bench.table.on_tick(at(1_000_000));
    assert_eq!(bench.actions(), []);
    assert_eq!(bench.table.counters().waiters_expired, 2);
    // A request in the same file removes the expired waiters without a tick.
    let mut bench = Bench::new(LockConfig { waiter_silence_max: silence, ..config() });
    bench.take(&a, request(Read, 0, 9));
    ask(&mut bench, &b, polling(1, request(Write, 0, 9)), 0);
    assert_eq!(ask(&mut bench, &c, request(Read, 0, 9), 9), denied(&b, Write, 0, 9));
    assert_eq!(ask(&mut bench, &c, request(Read, 0, 9), 10), LockReply::Granted);
    assert_eq!(bench.actions(), [gone(1)]);
}

#[test]
fn a_cancelled_or_ended_waiter_unblocks_the_next() {
    let ends: [fn(&mut LockTable, &LockOwner<'_>) -> bool; 5] = [
        |table, _| table.cancel(WaiterId(1), T0),
        |table, owner| {
            table.release_open(owner.name(), FILE, T0);
            false
        },
        |table, owner| {
            table.release_owner(owner.name(), T0);
            false
        },
        |table, owner| {
            table.lease_expired(owner.client.id, T0);
            false
        },
        |table, owner| {
            table.client_restarted(owner.client.id, T0);
            false
        },
    ];
    for end in ends {
        let mut bench = Bench::new(config());
        let (a, b, c) = (owner(1, "a"), owner(2, "b"), owner(3, "c"));
        bench.take(&a, request(Read, 0, 9));
        bench.ask(&b, parked(1, request(Write, 0, 9)));
        bench.ask(&c, parked(2, request(Read, 0, 9)));
        let cancelled = end(&mut bench.table, &b);
        let expected = if cancelled { vec![ready(2)] } else { vec![gone(1), ready(2)] };
        assert_eq!(bench.actions(), expected);
        assert_eq!(bench.table.counters().owners, 2);
        assert!(!bench.table.cancel(WaiterId(1), T0));
    }
}

#[test]
fn the_number_of_waiters_is_limited() {
    let limited = LockConfig {
        waiters_max: 4,
        waiters_per_file_max: 3,
        waiters_per_owner_max: 2,
        ..config()
    };
    let mut bench = Bench::new(limited);
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| owner(1, name));
    for file in 1..=2 {
        bench.take(&a, in_file(file, request(Write, 0, 9)));
    }
    bench.ask(&b, parked(1, request(Write, 0, 0)));
    bench.ask(&b, parked(2, request(Write, 1, 1)));
    let third = in_file(2, parked(3, request(Write, 2, 2)));
    assert_eq!(bench.refused(&b, third), LockError::Resource);
    bench.ask(&c, parked(4, request(Write, 3, 3)));
    assert_eq!(bench.refused(&d, parked(5, request(Write, 4, 4))), LockError::Resource);
    bench.ask(&d, in_file(2, parked(6, request(Write, 4, 4))));
    let fifth = in_file(2, parked(7, request(Write, 5, 5)));
    assert_eq!(bench.refused(&c, fifth), LockError::Resource);
    // A position that is kept does not count as a new one.
    assert_eq!(position(bench.ask(&b, parked(8, request(Write, 1, 1)))), 1);
}

#[test]
fn a_request_that_would_close_a_cycle_is_refused() {
    let mut bench = Bench::new(config());
    let owners = [owner(1, "a"), owner(2, "b"), owner(3, "c"), owner(4, "d")];
    let count = owners.len() as u64;
    for (file, who) in (1..).zip(&owners) {
        bench.take(who, in_file(file, request(Write, 0, 9)));
    }
    for (file, who) in (2..=count).zip(&owners) {
        position(bench.ask(who, in_file(file, parked(file, request(Read, 0, 9)))));
    }
    let last = &owners[owners.len() - 1];
    let closing = parked(99, request(Read, 3, 3));
    assert_eq!(bench.ask(last, closing), LockReply::Deadlock(conflict(&owners[0], Write, 0, 9)));
    // Without waiting the request is only denied; with the cycle open it may wait.
    assert_eq!(bench.ask(last, request(Read, 3, 3)), denied(&owners[0], Write, 0, 9));
    assert!(bench.table.cancel(WaiterId(3), T0));
    position(bench.ask(last, closing));
    assert_eq!(bench.table.counters().deadlocks, 1);
    let waits: Vec<_> = bench.table.waiting_requests().collect();
    let whom: Vec<_> = waits.iter().map(|w| (w.owner, w.waits_for[0].1, w.ready)).collect();
    let expected: [(&[u8], &[u8], bool); 3] =
        [(b"d", b"a", false), (b"a", b"b", false), (b"c", b"d", false)];
    assert_eq!(whom, expected);
}

#[test]
fn two_readers_that_both_upgrade_deadlock() {
    let mut bench = Bench::new(config());
    let (a, b) = (owner(1, "a"), owner(2, "b"));
    bench.take(&a, request(Read, 0, 9));
    bench.take(&b, request(Read, 0, 9));
    position(bench.ask(&a, parked(1, request(Write, 0, 9))));
    let second = bench.ask(&b, parked(2, request(Write, 0, 9)));
    assert_eq!(second, LockReply::Deadlock(conflict(&a, Read, 0, 9)));
    bench.unlock(&b, 0, END);
    assert_eq!(bench.actions(), [ready(1)]);
}

#[test]
fn a_grant_that_would_close_a_cycle_is_refused() {
    let mut bench = Bench::new(config());
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| owner(1, name));
    bench.take(&b, in_file(2, request(Write, 0, 9)));
    bench.take(&c, request(Read, 0, 9));
    bench.take(&d, in_file(3, request(Write, 0, 9)));
    // The second comes after the first in file 3, and waits for another owner in file 1; the first
    // waits for the second in file 2.
    position(bench.ask(&a, in_file(3, parked(1, request(Read, 0, 9)))));
    position(bench.ask(&b, in_file(3, parked(2, request(Write, 0, 9)))));
    position(bench.ask(&b, parked(3, request(Write, 0, 9))));
    position(bench.ask(&a, in_file(2, parked(4, request(Read, 0, 9)))));
    // So it passes the second's request in file 1. But with the lock there, the owner it waits for
    // would wait for it.
    let closing = bench.ask(&a, request(Read, 5, 5));
    assert_eq!(closing, LockReply::Deadlock(conflict(&b, Write, 0, 9)));
    // This lasts as long as it waits there.
    assert!(bench.table.cancel(WaiterId(4), T0));
    bench.take(&a, request(Read, 5, 5));
}

#[test]
fn the_order_of_the_queue_alone_makes_no_cycle() {
    // The holder asks for more after an owner that waits for it.
    let mut bench = Bench::new(config());
    let (a, b, c) = (owner(1, "a"), owner(2, "b"), owner(3, "c"));
    bench.take(&a, request(Read, 0, 9));
    position(bench.ask(&b, parked(1, request(Write, 0, 19))));
    assert_eq!(bench.ask(&c, request(Read, 10, 19)), denied(&b, Write, 0, 19));
    bench.take(&a, request(Write, 10, 19));
    bench.take(&a, request(Write, 0, 9));
    // The same through a third owner, in another file.
    let mut bench = Bench::new(config());
    bench.take(&a, in_file(2, request(Write, 0, 9)));
    bench.take(&b, request(Read, 0, 9));
    position(bench.ask(&b, in_file(2, parked(1, request(Write, 0, 9)))));
    position(bench.ask(&c, parked(2, request(Write, 0, 19))));
    bench.take(&a, request(Read, 15, 15));
}

#[test]
fn a_cycle_closed_in_another_file_lets_a_request_pass() {
    // File 1: c waits for b's lock; a came after c and is blocked by nothing else. File 2: b starts
    // to wait for a. Now c waits, through b, for a, so a passes c.
    let mut bench = Bench::new(config());
    let (a, b, c) = (owner(1, "a"), owner(2, "b"), owner(3, "c"));
    bench.take(&a, in_file(2, request(Write, 0, 9)));
    bench.take(&b, request(Read, 0, 9));
    position(bench.ask(&c, parked(1, request(Write, 0, 19))));
    let behind = LockReply::Waiting { position: 1, conflict: conflict(&c, Write, 0, 19) };
    assert_eq!(bench.ask(&a, parked(2, request(Read, 15, 15))), behind);
    assert_eq!(bench.actions(), []);
    position(bench.ask(&b, in_file(2, parked(3, request(Read, 0, 0)))));
    assert_eq!(bench.actions(), [ready(2)]);
    assert_eq!(bench.ask(&a, parked(2, request(Read, 15, 15))), LockReply::Granted);
}

#[test]
fn a_search_beyond_its_limit_refuses_to_wait() {
    let limited = LockConfig { deadlock_steps_max: 2, ..config() };
    let mut bench = Bench::new(limited);
    let owners = [owner(1, "a"), owner(2, "b"), owner(3, "c"), owner(4, "d"), owner(5, "e")];
    for (file, who) in (1..).zip(&owners) {
        bench.take(who, in_file(file, request(Write, 0, 9)));
    }
    // Each waits for an owner that waits already: the chain grows at its end.
    for index in (1..4).rev() {
        let file = index as u64 + 1;
        position(bench.ask(&owners[index - 1], in_file(file, parked(file, request(Read, 0, 9)))));
    }
    let e = in_file(1, parked(9, request(Read, 0, 9)));
    assert_eq!(bench.refused(&owners[4], e), LockError::Resource);
}

//! Waits end for a reason, and sleeping on the descriptor misses no event.

use std::time::{Duration, Instant};

use dafs_dat::{Event, Rights};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::fixture::Fixture;
use crate::pair::{Pair, pattern};

/// A limit that is reached only if something hangs.
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(2);

pub(crate) fn a_wait_ends_when_enough_has_arrived(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let inbox = pair.acceptor.buffer(100, Rights::LOCAL);
    for round in 1..10 {
        for number in 0..round {
            pair.acceptor.receive(round * 100 + number, &[inbox.region.local(0, 100)]);
        }
        for number in 0..round {
            pair.initiator.send(round * 100 + number, &pattern(number, 100));
        }
        pair.initiator.interface.flush();
        let before = pair.acceptor.received().len();
        let queued = pair.acceptor.interface.wait(round as usize, Some(LONG));
        assert_eq!(queued, round as usize);
        pair.acceptor.collect();
        assert_eq!(pair.acceptor.received().len(), before + round as usize);
    }
    // The wait is already satisfied and returns at once, even without a timeout.
    pair.acceptor.receive(5000, &[inbox.whole()]);
    pair.initiator.send(5000, b"!");
    pair.initiator.interface.flush();
    assert_eq!(pair.acceptor.interface.wait(1, Some(LONG)), 1);
    assert_eq!(pair.acceptor.interface.wait(1, None), 1);
    assert_eq!(pair.acceptor.interface.wait(0, Some(Duration::ZERO)), 1);
}

pub(crate) fn a_wait_ends_with_its_time(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    pair.settle();
    assert_eq!(pair.acceptor.interface.wait(1, Some(Duration::ZERO)), 0);
    assert_eq!(pair.acceptor.interface.wait(1, Some(SHORT)), 0);
    let inbox = pair.acceptor.buffer(100, Rights::LOCAL);
    for context in 0..2 {
        pair.acceptor.receive(context, &[inbox.region.local(0, 100)]);
        pair.initiator.send(context, b"too few");
    }
    pair.initiator.interface.flush();
    let mut queued = 0;
    for _ in 0..1000 {
        queued = pair.acceptor.interface.wait(5, Some(SHORT));
        if queued == 2 {
            break;
        }
    }
    assert_eq!(queued, 2, "fewer than asked for are there all the same");
    pair.acceptor.collect();
    assert_eq!(pair.acceptor.received().len(), 2);
    pair.assert_alive(10);
}

pub(crate) fn a_wait_ends_at_any_other_event(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let inbox = pair.acceptor.buffer(100, Rights::LOCAL);
    pair.acceptor.receive(1, &[inbox.whole()]);
    pair.initiator.send(1, b"last words");
    pair.until("the message", |pair| {
        pair.acceptor.completion(1).is_some() && pair.initiator.completion(1).is_some()
    });
    let endpoint = pair.initiator.endpoint();
    pair.initiator.interface.disconnect(endpoint);
    let queued = pair.acceptor.interface.wait(100, Some(LONG));
    assert!(queued >= 1);
    pair.acceptor.collect();
    assert!(matches!(pair.acceptor.events.last(), Some(Event::Broken { .. })));
    // A connection request ends a wait, too.
    pair.acceptor.events.clear();
    let config = pair.world.endpoint.clone();
    pair.connect(&config, b"");
    for _ in 0..1000 {
        // Events that are already queued are no reason to look at sockets.
        pair.initiator.collect();
        pair.initiator.interface.poll();
        if pair.acceptor.interface.wait(100, Some(SHORT)) > 0 {
            break;
        }
    }
    pair.acceptor.collect();
    assert!(pair.acceptor.pending().is_some());
}

pub(crate) fn a_waker_ends_a_wait(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    pair.settle();
    let waker = pair.acceptor.interface.waker();
    // The wake-ups come before the wait, and several count as one.
    waker.wake();
    waker.wake();
    wait_until_woken(&mut pair);
    for _ in 0..20 {
        let other = waker.clone();
        let thread = std::thread::spawn(move || other.wake());
        wait_until_woken(&mut pair);
        thread.join().unwrap();
        // In virtual time, the wait may have ended without the wake-up.
        pair.acceptor.interface.wait(1, Some(Duration::ZERO));
    }
    pair.assert_alive(1);
}

fn wait_until_woken(pair: &mut Pair) {
    let begun = Instant::now();
    assert_eq!(pair.acceptor.interface.wait(1, Some(LONG)), 0);
    assert!(begun.elapsed() < LONG, "nobody ended the wait");
}

fn readable(side: &crate::pair::Side, timeout: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(side.interface.as_fd(), PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap(),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    rustix::event::poll(&mut fds, Some(&timeout)).expect("poll") > 0
}

pub(crate) fn the_descriptor_shows_what_arrives(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let inbox = pair.acceptor.buffer(100, Rights::LOCAL);
    if pair.world.network.is_some() {
        assert!(!pair.acceptor.interface.arm(), "virtual time wakes nobody");
        return;
    }
    for round in 0..50 {
        pair.settle();
        arm(&mut pair);
        assert!(!readable(&pair.acceptor, Duration::ZERO), "round {round}: nothing is there");
        pair.acceptor.receive(round, &[inbox.whole()]);
        assert!(pair.acceptor.interface.arm());
        pair.initiator.send(round, b"wake up");
        pair.initiator.interface.flush();
        for _ in 0..1000 {
            assert!(readable(&pair.acceptor, LONG), "round {round}: woken");
            if pair.acceptor.interface.poll() > 0 {
                break;
            }
        }
        assert!(!pair.acceptor.interface.arm(), "events are queued");
        pair.acceptor.collect();
        assert!(pair.acceptor.completion(round).is_some());
    }
    pair.settle();
    arm(&mut pair);
    let endpoint = pair.initiator.endpoint();
    pair.initiator.interface.disconnect(endpoint);
    while !pair.acceptor.is_broken() {
        assert!(readable(&pair.acceptor, LONG), "woken by the end");
        pair.acceptor.interface.poll();
        pair.acceptor.collect();
    }
}

/// Arms the acceptor, which may first have to process late arrivals.
fn arm(pair: &mut Pair) {
    for _ in 0..1000 {
        if pair.acceptor.interface.arm() && !readable(&pair.acceptor, Duration::ZERO) {
            return;
        }
        pair.acceptor.interface.poll();
        pair.acceptor.collect();
    }
    panic!("never quiet: {:?}", pair.acceptor.events);
}

pub(crate) fn a_conversation_by_waiting_alone(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    pair.settle();
    let ours = pair.initiator.buffer(100, Rights::REMOTE);
    let theirs = pair.acceptor.buffer(100, Rights::REMOTE);
    for round in 0..200 {
        pair.initiator.receive(2 * round, &[ours.region.local(0, 50)]);
        pair.acceptor.receive(2 * round, &[theirs.region.local(0, 50)]);
        pair.initiator.send(2 * round + 1, &pattern(round, 50));
        pair.initiator.interface.flush();
        wait_for(&mut pair.acceptor, 2 * round);
        assert_eq!(theirs.bytes()[..50], pattern(round, 50));
        let (local, remote) = (theirs.region.local(0, 50), ours.region.remote(50, 50));
        pair.acceptor.write(3_000_000 + round, &[local], remote);
        pair.acceptor.send(2 * round + 1, &pattern(round, 50));
        pair.acceptor.interface.flush();
        wait_for(&mut pair.initiator, 2 * round);
        assert_eq!(ours.bytes()[50..], pattern(round, 50));
    }
}

/// However long one connection is quiet and another busy, a message on the quiet one arrives soon.
pub(crate) fn a_quiet_connection_is_heard_beside_a_busy_one(fixture: &dyn Fixture) {
    const QUIET: u64 = 1;
    let mut pair = Pair::apart(fixture.world(1));
    let (quiet, busy) = (pair.another(), pair.another());
    let inbox = pair.acceptor.buffer(200, Rights::LOCAL);
    pair.acceptor.set_endpoint(quiet.1);
    pair.acceptor.receive(QUIET, &[inbox.region.local(0, 100)]);
    for round in 0..BUSY_ROUNDS {
        if round == BUSY_ROUNDS - ROUNDS_UNTIL_HEARD {
            pair.initiator.set_endpoint(quiet.0);
            pair.initiator.send(QUIET, b"at last");
        }
        pair.acceptor.set_endpoint(busy.1);
        pair.initiator.set_endpoint(busy.0);
        let context = 2 + round;
        pair.acceptor.receive(context, &[inbox.region.local(100, 100)]);
        pair.initiator.send(context, &pattern(round, 100));
        pair.initiator.interface.flush();
        wait_for(&mut pair.acceptor, context);
        if pair.acceptor.completion(QUIET).is_some() {
            assert_eq!(inbox.bytes()[..7], *b"at last");
            return;
        }
        pair.initiator.interface.poll();
        pair.initiator.collect();
        pair.acceptor.events.clear();
        pair.initiator.events.clear();
    }
    panic!("not heard in {ROUNDS_UNTIL_HEARD} rounds of the other");
}

const BUSY_ROUNDS: u64 = 12_000;
const ROUNDS_UNTIL_HEARD: u64 = 1000;

fn wait_for(side: &mut crate::pair::Side, context: u64) {
    while side.completion(context).is_none() {
        assert!(side.interface.wait(1, Some(LONG)) > 0, "waited in vain for {context}");
        side.collect();
    }
}

#[test]
fn the_descriptor_shows_every_wake_up() {
    let mut interface = dafs_dat::Interface::new(dafs_dat::InterfaceConfig::default()).unwrap();
    let waker = interface.waker();
    let shows = |interface: &dafs_dat::Interface, timeout: Duration| {
        let mut fds = [PollFd::from_borrowed_fd(interface.as_fd(), PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&timeout.try_into().unwrap())).expect("poll") > 0
    };
    for _ in 0..10 {
        assert!(interface.arm() && interface.arm());
        assert!(!shows(&interface, Duration::ZERO), "nothing is there");
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            assert!(shows(&interface, LONG), "nobody was woken");
        });
        interface.poll();
        // If it was woken while awake, it does not begin to wait.
        waker.wake();
        assert!(!interface.arm());
        interface.poll();
    }
    // The cause that ended one wait for the descriptor does not end another.
    assert_eq!(interface.wait(1, Some(Duration::ZERO)), 0);
    assert!(interface.arm());
}

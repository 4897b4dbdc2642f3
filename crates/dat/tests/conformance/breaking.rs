//! Connections end once, and so does all work posted on them.

use dafs_dat::{
    BreakReason, CompletionStatus, Event, Gather, Operation, PostError, Rights, SendOptions, Signal,
};

use crate::fixture::Fixture;
use crate::pair::{Pair, pattern};

pub(crate) fn disconnecting_flushes_everything_once(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let ours = pair.initiator.buffer(4096, Rights::REMOTE);
    let theirs = pair.acceptor.buffer(4096, Rights::REMOTE);
    for context in 0..10 {
        pair.initiator.receive(context, &[ours.region.local(0, 16)]);
        pair.acceptor.receive(context, &[theirs.region.local(0, 16)]);
        let local = ours.region.local(16, 16);
        pair.initiator.send(100 + context, b"unsent");
        pair.initiator.write(200 + context, &[local], theirs.region.remote(16, 16));
        pair.initiator.read(300 + context, &[local], theirs.region.remote(32, 16));
    }
    let endpoint = pair.initiator.endpoint();
    pair.initiator.interface.disconnect(endpoint);
    pair.initiator.collect();
    pair.initiator.assert_ended("initiator");
    let flushed = |c: &dafs_dat::Completion| c.status == CompletionStatus::Flushed;
    assert!(pair.initiator.received().iter().all(flushed), "{:?}", pair.initiator.events);
    // Work may have succeeded at the post, without a flush, but it cannot have failed.
    let failed = |c: &dafs_dat::Completion| c.status == CompletionStatus::Failed;
    assert!(!pair.initiator.completions().any(failed), "{:?}", pair.initiator.events);
    let last = pair.initiator.events.last().cloned();
    assert_eq!(last, Some(Event::Broken { endpoint, reason: BreakReason::Local }));
    pair.until_broken();
    let late = pair.acceptor.received();
    assert!(late.iter().skip_while(|c| !flushed(c)).all(flushed), "nothing after the break");
}

pub(crate) fn disconnecting_amid_transfers(fixture: &dyn Fixture) {
    for turns in 0..12 {
        let mut pair = Pair::seeded(fixture, turns);
        let ours = pair.initiator.buffer(300_000, Rights::REMOTE);
        let theirs = pair.acceptor.buffer(300_000, Rights::REMOTE);
        for context in 0..20 {
            pair.initiator.receive(context, &[ours.region.local(0, 16)]);
            pair.acceptor.receive(context, &[theirs.region.local(0, 16)]);
        }
        for context in 0..20 {
            for (side, local, remote) in
                [(&mut pair.initiator, &ours, &theirs), (&mut pair.acceptor, &theirs, &ours)]
            {
                let local = local.region.local(100_000, 90_000);
                side.write(200 + context, &[local], remote.region.remote(1000, 90_000));
                side.read(300 + context, &[local], remote.region.remote(200_000, 90_000));
                side.send(100 + context, b"message");
            }
        }
        for _ in 0..turns * turns {
            pair.turn();
        }
        let endpoint = pair.acceptor.endpoint();
        pair.acceptor.interface.disconnect(endpoint);
        pair.until_broken();
        for side in [&pair.initiator, &pair.acceptor] {
            let good = side.received().into_iter().take_while(|c| c.cookie < 20);
            let good = good.filter(|c| c.status == CompletionStatus::Success);
            assert!(good.enumerate().all(|(number, c)| c.cookie == number as u64));
        }
    }
}

pub(crate) fn disconnecting_twice_breaks_once(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let (here, there) = (pair.initiator.endpoint(), pair.acceptor.endpoint());
    pair.initiator.interface.disconnect(here);
    pair.acceptor.interface.disconnect(there);
    pair.initiator.interface.disconnect(here);
    pair.until_broken();
    pair.initiator.interface.disconnect(here);
    pair.settle();
    pair.initiator.assert_ended("initiator");
    assert_eq!(pair.initiator.interface.endpoint_count(), 1, "until it is released");
    pair.initiator.interface.release(here);
    assert_eq!(pair.initiator.interface.endpoint_count(), 0);
}

pub(crate) fn a_broken_endpoint_takes_no_work(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let buffer = pair.initiator.buffer(16, Rights::REMOTE);
    let far = pair.acceptor.buffer(16, Rights::REMOTE);
    let (here, there) = (pair.initiator.endpoint(), pair.acceptor.endpoint());
    pair.acceptor.interface.disconnect(there);
    pair.until_broken();
    let interface = &mut pair.initiator.interface;
    let refused = Err(PostError::NotConnected);
    let (local, remote) = ([buffer.whole()], far.all_remote());
    assert_eq!(interface.post_receive(here, 1, &local), refused);
    let options = SendOptions::default();
    assert_eq!(interface.post_send(here, 2, &[Gather::Bytes(b"x")], options), refused);
    assert_eq!(interface.post_rdma_write(here, 3, &local, remote, Signal::Always), refused);
    assert_eq!(interface.post_rdma_read(here, 4, &local, remote), refused);
    pair.settle();
    pair.initiator.assert_ended("initiator");
}

pub(crate) fn releasing_is_silent_here_and_breaks_there(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let buffer = pair.acceptor.buffer(16, Rights::LOCAL);
    pair.acceptor.receive(1, &[buffer.whole()]);
    let before = pair.initiator.events.len();
    let endpoint = pair.initiator.endpoint();
    pair.initiator.interface.release(endpoint);
    pair.until("the break over there", |pair| pair.acceptor.is_broken());
    pair.settle();
    pair.acceptor.assert_ended("acceptor");
    assert_eq!(pair.initiator.events.len(), before);
}

pub(crate) fn dropping_an_interface_breaks_its_peers(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let buffer = pair.initiator.buffer(16, Rights::LOCAL);
    pair.initiator.receive(1, &[buffer.whole()]);
    let config = pair.world.acceptor.clone();
    pair.acceptor.interface = dafs_dat::Interface::new(config).unwrap();
    pair.until("the break", |pair| pair.initiator.is_broken());
    pair.settle();
    pair.initiator.assert_ended("initiator");
}

pub(crate) fn one_break_leaves_other_connections_alone(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let first = (pair.initiator.endpoint(), pair.acceptor.endpoint());
    let config = pair.world.endpoint.clone();
    pair.initiator.events.clear();
    pair.acceptor.events.clear();
    pair.join(&config, &config);
    let buffer = pair.acceptor.buffer(16, Rights::LOCAL);
    pair.acceptor.receive(1, &[buffer.whole()]);
    let second = (pair.initiator.endpoint(), pair.acceptor.endpoint());
    // The first connection breaks by an error of its sender.
    pair.initiator.set_endpoint(first.0);
    pair.initiator.send(2, b"nobody waits for this");
    pair.until("the first one's end", |pair| {
        pair.initiator.breaks_of(first.0) == 1 && pair.acceptor.breaks_of(first.1) == 1
    });
    pair.settle();
    pair.initiator.assert_endpoint_ended("initiator", first.0);
    pair.acceptor.assert_endpoint_ended("acceptor", first.1);
    pair.initiator.set_endpoint(second.0);
    pair.initiator.send(3, b"hello");
    pair.until("a message on the second", |pair| pair.acceptor.completion(1).is_some());
    assert_eq!(buffer.bytes()[..5], *b"hello");
}

pub(crate) fn messages_before_a_close_may_arrive_but_not_after(fixture: &dyn Fixture) {
    for seed in 0..8 {
        let mut pair = Pair::seeded(fixture, seed);
        let buffer = pair.acceptor.buffer(20 * 1000, Rights::LOCAL);
        for number in 0..20 {
            pair.acceptor.receive(number, &[buffer.region.local(number * 1000, 1000)]);
            pair.initiator.send(100 + number, &pattern(number, 1000));
        }
        pair.initiator.interface.flush();
        let endpoint = pair.initiator.endpoint();
        pair.initiator.interface.disconnect(endpoint);
        pair.until_broken();
        for (number, completion) in (0..).zip(pair.acceptor.received()) {
            assert_eq!(completion.cookie, number);
            if completion.status == CompletionStatus::Success {
                let at = number as usize * 1000;
                assert_eq!(buffer.bytes()[at..at + 1000], pattern(number, 1000));
            }
        }
        let sends = pair.initiator.done(Operation::Send);
        assert_eq!(sends.len(), 20);
    }
}

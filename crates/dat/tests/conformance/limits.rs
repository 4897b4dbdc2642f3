//! Limits are enforced at the post, and reaching them loses nothing.

use dafs_dat::{Gather, Operation, PostError, Rights, SendOptions, Signal};

use crate::fixture::Fixture;
use crate::pair::{Pair, pattern};

pub(crate) fn receives_have_a_limit(fixture: &dyn Fixture) {
    let mut pair = Pair::limited(fixture, |config| config.receives_max = 5);
    let buffer = pair.acceptor.buffer(5 * 16, Rights::LOCAL);
    for number in 0..5 {
        pair.acceptor.receive(number, &[buffer.region.local(number * 16, 16)]);
    }
    let endpoint = pair.acceptor.endpoint();
    let full = Err(PostError::QueueFull);
    let again = [buffer.region.local(0, 16)];
    assert_eq!(pair.acceptor.interface.post_receive(endpoint, 9, &again), full);
    pair.initiator.send(100, b"makes room");
    pair.until("a message", |pair| pair.acceptor.completion(0).is_some());
    pair.acceptor.receive(10, &again);
    assert_eq!(pair.acceptor.interface.post_receive(endpoint, 11, &again), full);
    pair.settle();
    assert_eq!(pair.acceptor.received().len(), 1);
}

pub(crate) fn work_has_a_limit_and_recovers(fixture: &dyn Fixture) {
    let mut pair = Pair::limited(fixture, |config| {
        config.work_max = 6;
        config.receives_max = FLOOD as u32;
    });
    let inbox = pair.acceptor.buffer(65_536, Rights::REMOTE);
    let source = pair.initiator.buffer(65_536, Rights::LOCAL);
    for context in 0..FLOOD {
        pair.acceptor.receive(context, &[inbox.whole()]);
    }
    let endpoint = pair.initiator.endpoint();
    let full = Err(PostError::QueueFull);
    let whole = [Gather::Segment(source.whole())];
    let options = SendOptions::default();
    let mut sent = 0;
    for _round in 0..3 {
        // Some sends may succeed at the post. While the peer does not poll, not all can.
        while pair.initiator.interface.post_send(endpoint, sent, &whole, options) != full {
            sent += 1;
            assert!(sent < FLOOD, "no limit");
        }
        let (local, remote) = (source.region.local(0, 8), inbox.region.remote(8, 8));
        let interface = &mut pair.initiator.interface;
        let write = interface.post_rdma_write(endpoint, FLOOD, &[local], remote, Signal::Always);
        assert_eq!(write, full);
        assert_eq!(interface.post_rdma_read(endpoint, FLOOD, &[local], remote), full);
        pair.until("all work", |pair| {
            pair.initiator.completions().count() as u64 == sent
                && pair.acceptor.received().len() as u64 == sent
        });
    }
}

pub(crate) fn messages_have_a_limit(fixture: &dyn Fixture) {
    let mut pair = Pair::limited(fixture, |config| config.message_bytes_max = 5000);
    let inbox = pair.acceptor.buffer(5000, Rights::LOCAL);
    let bytes = pattern(1, 5001);
    let source = pair.initiator.filled(&bytes, Rights::LOCAL);
    pair.acceptor.receive(1, &[inbox.whole()]);
    let endpoint = pair.initiator.endpoint();
    let interface = &mut pair.initiator.interface;
    let options = SendOptions::default();
    let long: [&[Gather<'_>]; 3] = [
        &[Gather::Bytes(&bytes)],
        &[Gather::Segment(source.whole())],
        &[Gather::Bytes(&bytes[..5000]), Gather::Segment(source.region.local(0, 1))],
    ];
    for gather in long {
        let sent = interface.post_send(endpoint, 2, gather, options);
        assert_eq!(sent, Err(PostError::TooLong));
    }
    pair.initiator.send(3, &bytes[..5000]);
    pair.until("the longest message", |pair| pair.acceptor.completion(1).is_some());
    assert_eq!(inbox.bytes(), bytes[..5000]);
    // RDMA has no such limit.
    let target = pair.acceptor.buffer(5001, Rights::REMOTE);
    pair.initiator.write(4, &[source.whole()], target.all_remote());
    pair.initiator.read(5, &[source.whole()], target.all_remote());
    pair.until("the read", |pair| pair.initiator.completion(5).is_some());
}

pub(crate) fn a_flood_of_work_completes(fixture: &dyn Fixture) {
    // Far more than any ring or socket buffer holds, with a peer that polls rarely.
    let mut pair = Pair::new(fixture);
    let length = 1 << 16;
    let target = pair.acceptor.buffer(length, Rights::REMOTE);
    let inbox = pair.acceptor.buffer(length, Rights::LOCAL);
    let source = pair.initiator.filled(&pattern(1, length), Rights::LOCAL);
    for context in 0..500 {
        pair.acceptor.receive(context, &[inbox.whole()]);
    }
    for context in 0..500 {
        pair.initiator.write(1000 + context, &[source.whole()], target.all_remote());
        let whole = [Gather::Segment(source.whole())];
        pair.initiator.gather(context, &whole, SendOptions::default());
        pair.initiator.interface.poll();
        pair.initiator.collect();
    }
    pair.until("the flood", |pair| {
        pair.acceptor.received().len() == 500 && pair.initiator.completions().count() == 1000
    });
    assert!(inbox.bytes() == pattern(1, length) && target.bytes() == pattern(1, length));
    assert_eq!(pair.initiator.done(Operation::Send).len(), 500);
}

/// A number of messages that exceeds the buffers of every transport.
const FLOOD: u64 = 3000;

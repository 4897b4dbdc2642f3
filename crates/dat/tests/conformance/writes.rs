//! RDMA writes are placed before the message that follows, and complete nothing at the target.

use dafs_dat::{CompletionStatus, Operation, Rights};
use dafs_memory::{Memory, Pages};

use crate::fixture::Fixture;
use crate::messages::cut;
use crate::pair::{Pair, pattern};

/// Lengths around the limits at which transports split data.
pub(crate) const LENGTHS: [usize; 16] =
    [0, 1, 2, 3, 63, 64, 65, 1400, 1460, 4095, 4096, 4097, 65_535, 65_536, 65_537, 1 << 20];

pub(crate) fn a_write_is_placed_before_the_next_message(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    for (context, length) in (1..).zip(LENGTHS) {
        let bytes = pattern(context, length);
        let source = pair.acceptor.filled(&bytes, Rights::LOCAL);
        let target = pair.initiator.buffer(length.max(1), Rights::REMOTE);
        let local = source.region.local(0, length as u32);
        pair.acceptor.write(context, &[local], target.region.remote(0, length as u32));
        pair.fence(1000 + context);
        assert_eq!(target.bytes()[..length], bytes, "{length} bytes");
        pair.until("the write's completion", |pair| pair.acceptor.completion(context).is_some());
        let completion = pair.acceptor.completion(context).unwrap();
        assert_eq!(completion.status, CompletionStatus::Success);
        assert_eq!(completion.length as usize, length);
    }
    pair.assert_alive(2000);
}

pub(crate) fn a_write_consumes_no_receive(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let target = pair.initiator.buffer(64, Rights::REMOTE);
    let inbox = pair.initiator.buffer(4, Rights::LOCAL);
    let source = pair.acceptor.filled(&pattern(1, 64), Rights::LOCAL);
    pair.initiator.receive(1, &[inbox.whole()]);
    let before = pair.initiator.events.len();
    for context in 1..=10 {
        pair.acceptor.write(context, &[source.whole()], target.all_remote());
    }
    pair.until("ten writes", |pair| pair.acceptor.done(Operation::RdmaWrite).len() == 10);
    pair.settle();
    assert_eq!(pair.initiator.events.len(), before, "the target hears nothing");
    pair.acceptor.send(11, b"here");
    pair.until("the message", |pair| pair.initiator.completion(1).is_some());
    assert_eq!(inbox.bytes(), b"here");
}

pub(crate) fn a_write_gathers_odd_pieces(fixture: &dyn Fixture) {
    let lengths = [1, 0, 3, 64, 4097, 7, 129, 1, 60_000, 1, 5, 2, 17, 31, 0, 333, 1, 1];
    let total: u32 = lengths.iter().sum();
    let bytes = pattern(2, total as usize);
    let mut pair = Pair::new(fixture);
    let source = pair.acceptor.filled(&bytes, Rights::LOCAL);
    let target = pair.initiator.buffer(total as usize + 7, Rights::REMOTE);
    pair.acceptor.write(1, &cut(&source, &lengths), target.region.remote(7, total));
    // The pieces belong to several regions, in another order than in memory.
    let (first, second) = (pair.acceptor.filled(b"world", Rights::LOCAL), &source);
    let hello = pair.acceptor.filled(b"hello ", Rights::REMOTE);
    let other = pair.initiator.buffer(12, Rights::REMOTE);
    let pieces = [hello.whole(), first.whole(), second.region.local(0, 1)];
    pair.acceptor.write(2, &pieces, other.all_remote());
    pair.fence(10);
    assert_eq!(target.bytes()[7..], bytes);
    assert_eq!(other.bytes()[..11], *b"hello world");
    assert_eq!(other.bytes()[11], bytes[0]);
}

pub(crate) fn a_write_touches_nothing_else(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let guard = pattern(1, 300);
    for (context, (offset, length)) in (1..).zip([(0, 1), (1, 98), (150, 150), (299, 1), (7, 0)]) {
        let target = pair.initiator.filled(&guard, Rights::REMOTE);
        let source = pair.acceptor.filled(&pattern(2, 300), Rights::LOCAL);
        let (local, remote) =
            (source.region.local(0, length), target.region.remote(offset as u64, length));
        pair.acceptor.write(context, &[local], remote);
        pair.fence(100 + context);
        let (start, end) = (offset, offset + length as usize);
        let seen = target.bytes();
        assert_eq!(seen[..start], guard[..start]);
        assert_eq!(seen[start..end], pattern(2, 300)[..end - start]);
        assert_eq!(seen[end..], guard[end..]);
    }
}

/// Returns memory of every origin, because transports reach each in a different way.
pub(crate) fn memories(length: usize) -> [Memory; 4] {
    [
        Memory::shared(length, Pages::Small).unwrap(),
        Memory::anonymous(length, Pages::Small).unwrap(),
        Memory::anonymous(length, Pages::Huge).unwrap(),
        Memory::from_heap(vec![0; length].into()),
    ]
}

pub(crate) fn every_kind_of_memory_can_be_written(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let mut context = 0;
    for length in [100, 5000, 300_000] {
        for target in memories(length) {
            for source in memories(length) {
                context += 1;
                let bytes = pattern(context, length);
                source.write(0, &bytes);
                let source = pair.acceptor.register(source, Rights::LOCAL);
                let target = pair.initiator.register(target.clone(), Rights::REMOTE);
                pair.acceptor.write(context, &[source.whole()], target.all_remote());
                pair.fence(1000 + context);
                assert!(target.bytes() == bytes, "{length} bytes, combination {context}");
                pair.initiator.interface.deregister(target.region.key);
            }
        }
    }
}

pub(crate) fn many_writes_precede_one_message(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let target = pair.initiator.buffer(500 * 100, Rights::REMOTE);
    let bytes = pattern(5, 500 * 100);
    let source = pair.acceptor.filled(&bytes, Rights::LOCAL);
    for number in 0..500 {
        let local = source.region.local(number * 100, 100);
        pair.acceptor.write(number, &[local], target.region.remote(number * 100, 100));
    }
    pair.fence(1000);
    assert!(target.bytes() == bytes);
    pair.until("all writes", |pair| pair.acceptor.done(Operation::RdmaWrite).len() == 500);
    let order: Vec<u64> =
        pair.acceptor.done(Operation::RdmaWrite).iter().map(|c| c.cookie).collect();
    assert_eq!(order, (0..500).collect::<Vec<_>>());
}

pub(crate) fn a_write_now_is_done_in_its_turn_or_not_at_all(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let source = pair.acceptor.filled(&pattern(3, 600), Rights::LOCAL);
    let (first, second) = (source.region.local(0, 300), source.region.local(300, 300));
    for (context, memory) in (1..).zip(memories(600)) {
        let target = pair.initiator.register(memory, Rights::REMOTE);
        // The peer has used the region, so it knows all that it can know of it.
        pair.acceptor.write(context, &[source.whole()], target.all_remote());
        pair.fence(100 + context);
        let before = pair.acceptor.events.len();
        let is_done = pair.acceptor.write_now(&[second, first], target.all_remote());
        assert_eq!(pair.acceptor.events.len(), before, "nothing tells of it");
        pair.fence(200 + context);
        let turned = [&pattern(3, 600)[300..], &pattern(3, 600)[..300]].concat();
        assert_eq!(target.bytes(), if is_done { turned } else { pattern(3, 600) });
        // A write at once never overtakes posted work and never exceeds the requested range.
        pair.acceptor.write(300 + context, &[source.whole()], target.all_remote());
        pair.acceptor.write_now(&[second, first], target.all_remote());
        assert!(!pair.acceptor.write_now(&[first], target.all_remote()));
        assert!(!pair.acceptor.write_now(&[first, second, first], target.all_remote()));
        pair.fence(400 + context);
        assert_eq!(target.bytes(), pattern(3, 600));
    }
    pair.assert_alive(1000);
}

pub(crate) fn both_sides_write_at_once(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let length = 200_000;
    let (here, there) = (pattern(1, length), pattern(2, length));
    let source = pair.initiator.filled(&here, Rights::LOCAL);
    let target = pair.initiator.buffer(length, Rights::REMOTE);
    let their_source = pair.acceptor.filled(&there, Rights::LOCAL);
    let their_target = pair.acceptor.buffer(length, Rights::REMOTE);
    let inbox = pair.acceptor.buffer(1, Rights::LOCAL);
    pair.acceptor.receive(3, &[inbox.whole()]);
    pair.initiator.write(1, &[source.whole()], their_target.all_remote());
    pair.initiator.send(3, b"!");
    pair.acceptor.write(1, &[their_source.whole()], target.all_remote());
    pair.fence(2);
    pair.until("the other direction", |pair| pair.acceptor.completion(3).is_some());
    assert!(target.bytes() == there && their_target.bytes() == here);
}

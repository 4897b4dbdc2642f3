//! RDMA reads complete in order, whatever their number.

use dafs_dat::{CompletionStatus, Operation, Rights};

use crate::fixture::Fixture;
use crate::messages::cut;
use crate::pair::{Pair, pattern};
use crate::writes::{LENGTHS, memories};

pub(crate) fn a_read_of_any_size(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    for (context, length) in (1..).zip(LENGTHS) {
        let bytes = pattern(context, length);
        let source = pair.initiator.filled(&bytes, Rights::REMOTE);
        let target = pair.acceptor.buffer(length + 1, Rights::LOCAL);
        let silence = pair.initiator.events.len();
        let remote = source.region.remote(0, length as u32);
        pair.acceptor.read(context, &[target.region.local(1, length as u32)], remote);
        pair.until("the read", |pair| pair.acceptor.completion(context).is_some());
        let completion = pair.acceptor.completion(context).unwrap();
        assert_eq!(completion.status, CompletionStatus::Success);
        assert_eq!(completion.length as usize, length);
        assert_eq!(target.bytes()[1..], bytes, "{length} bytes");
        assert_eq!(pair.initiator.events.len(), silence, "the source hears nothing");
    }
    pair.assert_alive(1000);
}

pub(crate) fn a_read_scatters_odd_pieces(fixture: &dyn Fixture) {
    let lengths = [1, 0, 3, 64, 4097, 7, 129, 1, 60_000, 1, 5, 2, 17, 31, 0, 333, 1, 1];
    let total: u32 = lengths.iter().sum();
    let bytes = pattern(2, total as usize);
    let mut pair = Pair::new(fixture);
    let source = pair.initiator.filled(&bytes, Rights::REMOTE);
    let target = pair.acceptor.buffer(total as usize, Rights::LOCAL);
    pair.acceptor.read(1, &cut(&target, &lengths), source.all_remote());
    pair.until("the read", |pair| pair.acceptor.completion(1).is_some());
    assert!(target.bytes() == bytes);
}

pub(crate) fn a_read_now_is_done_in_its_turn_or_not_at_all(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    for (context, memory) in (1..).zip(memories(600)) {
        memory.write(0, &pattern(3, 600));
        let source = pair.initiator.register(memory, Rights::REMOTE);
        let target = pair.acceptor.buffer(600, Rights::LOCAL);
        let (first, second) = (target.region.local(0, 300), target.region.local(300, 300));
        // This side has used the region, so it knows all that it can know of it.
        pair.acceptor.read(context, &[target.whole()], source.all_remote());
        pair.until("a read", |pair| pair.acceptor.completion(context).is_some());
        let before = pair.acceptor.events.len();
        let is_done = pair.acceptor.read_now(&[second, first], source.all_remote());
        assert_eq!(pair.acceptor.events.len(), before, "nothing tells of it");
        let turned = [&pattern(3, 600)[300..], &pattern(3, 600)[..300]].concat();
        assert_eq!(target.bytes(), if is_done { turned } else { pattern(3, 600) });
        assert!(!pair.acceptor.read_now(&[first], source.all_remote()));
        assert!(!pair.acceptor.read_now(&[first, second, first], source.all_remote()));
    }
    pair.assert_alive(1000);
}

fn read_many(pair: &mut Pair, count: u64) {
    let length = count as usize * 50;
    let bytes = pattern(3, length);
    let source = pair.initiator.filled(&bytes, Rights::REMOTE);
    let target = pair.acceptor.buffer(length, Rights::LOCAL);
    for number in 0..count {
        let local = target.region.local(number * 50, 50);
        pair.acceptor.read(number, &[local], source.region.remote(number * 50, 50));
    }
    pair.until("all reads", |pair| pair.acceptor.done(Operation::RdmaRead).len() as u64 == count);
    let order: Vec<u64> =
        pair.acceptor.done(Operation::RdmaRead).iter().map(|c| c.cookie).collect();
    assert_eq!(order, (0..count).collect::<Vec<_>>());
    assert!(target.bytes() == bytes);
    pair.assert_alive(10_000);
}

pub(crate) fn more_reads_than_the_read_depth(fixture: &dyn Fixture) {
    for depth in [1, 2, 7] {
        let mut pair = Pair::limited(fixture, |config| config.read_depth = depth);
        read_many(&mut pair, 60);
    }
}

pub(crate) fn unequal_read_depths(fixture: &dyn Fixture) {
    for (initiator_depth, acceptor_depth) in [(2, 64), (64, 2)] {
        let world = fixture.world(1);
        let mut initiator = world.endpoint.clone();
        let mut acceptor = world.endpoint.clone();
        initiator.read_depth = initiator_depth;
        acceptor.read_depth = acceptor_depth;
        let mut pair = Pair::over(world, &initiator, &acceptor);
        read_many(&mut pair, 100);
    }
}

pub(crate) fn every_kind_of_memory_can_be_read(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let mut context = 0;
    for length in [100, 5000, 300_000] {
        for source in memories(length) {
            for target in memories(length) {
                context += 1;
                let bytes = pattern(context, length);
                source.write(0, &bytes);
                let source = pair.initiator.register(source.clone(), Rights::REMOTE);
                let target = pair.acceptor.register(target, Rights::LOCAL);
                pair.acceptor.read(context, &[target.whole()], source.all_remote());
                pair.until("the read", |pair| pair.acceptor.completion(context).is_some());
                assert!(target.bytes() == bytes, "{length} bytes, combination {context}");
                pair.initiator.interface.deregister(source.region.key);
            }
        }
    }
}

pub(crate) fn a_read_sees_what_was_written_and_acknowledged(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let shared = pair.initiator.buffer(1000, Rights::REMOTE);
    let back = pair.acceptor.buffer(1000, Rights::LOCAL);
    for round in 0..20 {
        let bytes = pattern(round, 1000);
        let source = pair.acceptor.filled(&bytes, Rights::LOCAL);
        pair.acceptor.write(2 * round, &[source.whole()], shared.all_remote());
        pair.fence(1000 + round);
        pair.acceptor.read(2 * round + 1, &[back.whole()], shared.all_remote());
        pair.until("the read", |pair| pair.acceptor.completion(2 * round + 1).is_some());
        assert_eq!(back.bytes(), bytes);
    }
}

pub(crate) fn both_sides_read_at_once(fixture: &dyn Fixture) {
    let mut pair = Pair::limited(fixture, |config| config.read_depth = 3);
    let length = 100_000;
    let here = pair.initiator.filled(&pattern(1, length), Rights::REMOTE);
    let there = pair.acceptor.filled(&pattern(2, length), Rights::REMOTE);
    let mut targets = Vec::new();
    for context in 0..10 {
        let ours = pair.initiator.buffer(length, Rights::LOCAL);
        let theirs = pair.acceptor.buffer(length, Rights::LOCAL);
        pair.initiator.read(context, &[ours.whole()], there.all_remote());
        pair.acceptor.read(context, &[theirs.whole()], here.all_remote());
        targets.push((ours, theirs));
    }
    pair.until("all reads", |pair| {
        pair.initiator.done(Operation::RdmaRead).len() == 10
            && pair.acceptor.done(Operation::RdmaRead).len() == 10
    });
    for (ours, theirs) in targets {
        assert!(ours.bytes() == pattern(2, length) && theirs.bytes() == pattern(1, length));
    }
}

pub(crate) fn reads_writes_and_messages_mix(fixture: &dyn Fixture) {
    let mut pair = Pair::limited(fixture, |config| config.read_depth = 2);
    let source = pair.initiator.filled(&pattern(1, 4000), Rights::REMOTE);
    let target = pair.initiator.buffer(4000, Rights::REMOTE);
    let inbox = pair.initiator.buffer(100, Rights::LOCAL);
    let fetched = pair.acceptor.buffer(4000, Rights::LOCAL);
    let given = pair.acceptor.filled(&pattern(2, 4000), Rights::LOCAL);
    for number in 0..40 {
        let at = number * 100;
        pair.initiator.receive(number, &[inbox.region.local(number, 1)]);
        let (local, remote) = (given.region.local(at, 100), target.region.remote(at, 100));
        pair.acceptor.write(3 * number, &[local], remote);
        let (local, remote) = (fetched.region.local(at, 100), source.region.remote(at, 100));
        pair.acceptor.read(3 * number + 1, &[local], remote);
        pair.acceptor.send(3 * number + 2, &[number as u8]);
    }
    let mut placed = 0;
    pair.until("everything", |pair| {
        let arrived = pair.initiator.received().len();
        if arrived > placed {
            placed = arrived;
            let end = placed * 100;
            assert_eq!(target.bytes()[..end], pattern(2, 4000)[..end], "write before send");
        }
        pair.acceptor.completions().count() == 120 && arrived == 40
    });
    assert_eq!(inbox.bytes()[..40], (0..40).collect::<Vec<u8>>());
    assert_eq!(fetched.bytes(), pattern(1, 4000));
}

//! Messages arrive complete, once and in order, each in one receive.

use dafs_dat::{
    Completion, CompletionStatus, Gather, LocalSegment, Operation, Rights, SendOptions, Signal,
    Stag,
};

use crate::fixture::Fixture;
use crate::pair::{Buffer, Pair, pattern};

fn success(completion: Option<Completion>) -> Completion {
    let completion = completion.expect("a completion");
    assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
    completion
}

/// Cuts a buffer into segments of the given lengths, from its start.
pub(crate) fn cut(buffer: &Buffer, lengths: &[u32]) -> Vec<LocalSegment> {
    let mut offset = 0;
    lengths
        .iter()
        .map(|length| {
            let segment = buffer.region.local(offset, *length);
            offset += u64::from(*length);
            segment
        })
        .collect()
}

pub(crate) fn messages_arrive_in_order_each_in_the_oldest_receive(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let buffer = pair.acceptor.buffer(COUNT as usize * 512, Rights::LOCAL);
    for number in 0..COUNT {
        pair.acceptor.receive(number, &[buffer.region.local(number * 512, 512)]);
    }
    for number in 0..COUNT {
        pair.initiator.send(1000 + number, &pattern(number, (number * 7 % 512) as usize));
        if number % 9 == 0 {
            pair.turn();
        }
    }
    pair.until("all messages", |pair| {
        pair.acceptor.received().len() as u64 == COUNT
            && pair.initiator.done(Operation::Send).len() as u64 == COUNT
    });
    for (number, completion) in (0..).zip(pair.acceptor.received()) {
        let length = number * 7 % 512;
        assert_eq!(completion.cookie, number);
        assert_eq!(success(Some(completion)).length as u64, length);
        let at = number as usize * 512;
        let bytes = &buffer.bytes()[at..at + length as usize];
        assert_eq!(bytes, pattern(number, length as usize), "message {number}");
    }
    let sends: Vec<u64> = pair.initiator.done(Operation::Send).iter().map(|c| c.cookie).collect();
    assert_eq!(sends, (1000..1000 + COUNT).collect::<Vec<_>>());
    pair.settle();
    assert_eq!(pair.acceptor.received().len() as u64, COUNT, "none twice");
}

pub(crate) fn both_sides_send_at_once(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let ours = pair.initiator.buffer(COUNT as usize * 64, Rights::LOCAL);
    let theirs = pair.acceptor.buffer(COUNT as usize * 64, Rights::LOCAL);
    for number in 0..COUNT {
        pair.initiator.receive(number, &[ours.region.local(number * 64, 64)]);
        pair.acceptor.receive(number, &[theirs.region.local(number * 64, 64)]);
    }
    for number in 0..COUNT {
        pair.initiator.send(1000 + number, &pattern(number, 64));
        pair.acceptor.send(1000 + number, &pattern(5000 + number, 64));
    }
    pair.until("all messages", |pair| {
        pair.acceptor.received().len() as u64 == COUNT
            && pair.initiator.received().len() as u64 == COUNT
    });
    for number in 0..COUNT {
        let at = number as usize * 64;
        assert_eq!(theirs.bytes()[at..at + 64], pattern(number, 64));
        assert_eq!(ours.bytes()[at..at + 64], pattern(5000 + number, 64));
    }
}

pub(crate) fn an_empty_message_is_a_message(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let buffer = pair.acceptor.filled(b"untouched", Rights::LOCAL);
    pair.acceptor.receive(1, &[buffer.whole()]);
    pair.acceptor.receive(2, &[]);
    pair.acceptor.receive(3, &[buffer.region.local(4, 0)]);
    pair.initiator.send(11, b"");
    pair.initiator.gather(12, &[], SendOptions::default());
    let source = pair.initiator.buffer(1, Rights::LOCAL);
    let empty = Gather::Segment(source.region.local(1, 0));
    pair.initiator.gather(13, &[empty, Gather::Bytes(b"")], SendOptions::default());
    pair.until("three messages", |pair| pair.acceptor.received().len() == 3);
    for (number, completion) in (1..).zip(pair.acceptor.received()) {
        assert_eq!((completion.cookie, success(Some(completion)).length), (number, 0));
    }
    assert_eq!(buffer.bytes(), b"untouched");
    pair.assert_alive(20);
}

pub(crate) fn a_message_may_fill_its_receive(fixture: &dyn Fixture) {
    for length in [1, 63, 64, 65, 4095, 4096, 4097, 65_536] {
        let mut pair = Pair::new(fixture);
        let buffer = pair.acceptor.buffer(length, Rights::LOCAL);
        let source = pair.initiator.filled(&pattern(3, length), Rights::LOCAL);
        pair.acceptor.receive(1, &[buffer.whole()]);
        pair.initiator.gather(2, &[Gather::Segment(source.whole())], SendOptions::default());
        pair.until("the message", |pair| {
            pair.acceptor.completion(1).is_some() && pair.initiator.completion(2).is_some()
        });
        assert_eq!(success(pair.acceptor.completion(1)).length as usize, length);
        assert_eq!(success(pair.initiator.completion(2)).length as usize, length);
        assert_eq!(buffer.bytes(), pattern(3, length));
    }
}

pub(crate) fn a_message_larger_than_its_receive_breaks(fixture: &dyn Fixture) {
    for (room, length) in [(0, 1), (15, 16), (4096, 4097), (100, 60_000)] {
        let mut pair = Pair::new(fixture);
        let guard = pattern(8, room + 100);
        let buffer = pair.acceptor.filled(&guard, Rights::LOCAL);
        pair.acceptor.receive(1, &[buffer.region.local(0, room as u32)]);
        pair.acceptor.receive(2, &[buffer.region.local(0, room as u32)]);
        pair.initiator.send(3, &pattern(1, length));
        pair.until_broken();
        for context in [1, 2] {
            let completion = pair.acceptor.completion(context).unwrap();
            assert_ne!(completion.status, CompletionStatus::Success, "{length} into {room}");
        }
        assert_eq!(buffer.bytes()[room..], guard[room..], "nothing beyond the receive");
    }
}

pub(crate) fn a_message_without_a_receive_breaks(fixture: &dyn Fixture) {
    for length in [0, 1, 5000] {
        let mut pair = Pair::new(fixture);
        let buffer = pair.acceptor.buffer(16, Rights::LOCAL);
        pair.acceptor.receive(1, &[buffer.whole()]);
        pair.initiator.send(2, b"fits");
        pair.initiator.send(3, &pattern(1, length));
        pair.until_broken();
        assert_eq!(success(pair.acceptor.completion(1)).length, 4, "the first one arrived");
        assert_eq!(pair.acceptor.received().len(), 1);
    }
}

pub(crate) fn messages_gather_and_scatter_odd_pieces(fixture: &dyn Fixture) {
    let out = [1, 0, 3, 64, 7, 129, 1, 1, 1, 5, 4095, 2, 17, 31, 0, 333];
    let mut into = vec![2, 5, 0, 11, 1000, 1, 1, 63];
    let total: u32 = out.iter().sum();
    into.push(total - into.iter().sum::<u32>());
    let bytes = pattern(9, total as usize);
    let mut pair = Pair::new(fixture);
    let source = pair.initiator.filled(&bytes, Rights::LOCAL);
    let target = pair.acceptor.buffer(total as usize, Rights::LOCAL);
    pair.acceptor.receive(1, &cut(&target, &into));
    let segments = cut(&source, &out);
    let gather: Vec<Gather<'_>> = segments
        .iter()
        .enumerate()
        .map(|(number, segment)| {
            let start = segment.offset as usize;
            let plain = Gather::Bytes(&bytes[start..start + segment.length as usize]);
            if number % 3 == 1 { plain } else { Gather::Segment(*segment) }
        })
        .collect();
    pair.initiator.gather(2, &gather, SendOptions::default());
    pair.until("the message", |pair| pair.acceptor.completion(1).is_some());
    assert_eq!(success(pair.acceptor.completion(1)).length, total);
    assert_eq!(target.bytes(), bytes);

    let ones = vec![1; 60];
    let source = pair.initiator.filled(&bytes[..60], Rights::LOCAL);
    let target = pair.acceptor.buffer(60, Rights::LOCAL);
    pair.acceptor.receive(3, &cut(&target, &ones));
    let gather: Vec<_> = cut(&source, &ones).into_iter().map(Gather::Segment).collect();
    pair.initiator.gather(4, &gather, SendOptions::default());
    pair.until("single bytes", |pair| pair.acceptor.completion(3).is_some());
    assert_eq!(target.bytes(), bytes[..60]);
}

pub(crate) fn plain_bytes_are_free_after_the_post(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let target = pair.acceptor.buffer(3000, Rights::LOCAL);
    pair.acceptor.receive(1, &[target.whole()]);
    let mut bytes = pattern(4, 3000);
    pair.initiator.send(2, &bytes);
    bytes.fill(0);
    pair.until("the message", |pair| pair.acceptor.completion(1).is_some());
    assert_eq!(target.bytes(), pattern(4, 3000));
}

pub(crate) fn contexts_and_lengths_come_back(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let contexts = [u64::MAX >> 1, 0, 1 << 62, 0x0123_4567_89ab_cdef];
    let buffer = pair.acceptor.buffer(256, Rights::REMOTE);
    let source = pair.initiator.buffer(256, Rights::LOCAL);
    for (number, context) in contexts.into_iter().enumerate() {
        let length = 10 + number as u32;
        let part = source.region.local(0, length);
        let remote = buffer.region.remote(100, length);
        pair.acceptor.receive(context, &[buffer.region.local(0, 64)]);
        pair.initiator.write(context, &[part], remote);
        pair.initiator.read(context, &[part], remote);
        pair.initiator.gather(context, &[Gather::Segment(part)], SendOptions::default());
    }
    pair.until("everything", |pair| {
        pair.acceptor.received().len() == 4 && pair.initiator.completions().count() == 12
    });
    let expected: Vec<(u64, u32)> = contexts.into_iter().zip(10..).collect();
    let seen = |done: Vec<Completion>| -> Vec<(u64, u32)> {
        done.into_iter().map(|c| (c.cookie, success(Some(c)).length)).collect()
    };
    assert_eq!(seen(pair.acceptor.received()), expected);
    for operation in [Operation::Send, Operation::RdmaWrite, Operation::RdmaRead] {
        assert_eq!(seen(pair.initiator.done(operation)), expected, "{operation:?}");
    }
    let of = |c: &Completion| c.endpoint == pair.initiator.endpoint() && c.invalidated.is_none();
    assert!(pair.initiator.completions().all(of));
}

const SILENT: SendOptions = SendOptions { signal: Signal::OnError, invalidate: None };

pub(crate) fn unsignalled_success_is_silent(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let buffer = pair.acceptor.buffer(64, Rights::REMOTE);
    let source = pair.initiator.buffer(64, Rights::LOCAL);
    for context in 1..=20 {
        pair.acceptor.receive(context, &[buffer.region.local(0, 8)]);
        let remote = buffer.region.remote(8, 8);
        pair.initiator.write_signal(100, &[source.region.local(0, 8)], remote, Signal::OnError);
        pair.initiator.gather(100, &[Gather::Bytes(b"quiet")], SILENT);
    }
    pair.acceptor.receive(21, &[buffer.region.local(0, 8)]);
    pair.initiator.send(21, b"loud");
    pair.until("the last message", |pair| {
        pair.acceptor.received().len() == 21 && pair.initiator.completion(21).is_some()
    });
    pair.settle();
    assert_eq!(pair.initiator.completions().count(), 1);
}

pub(crate) fn unsignalled_failure_is_reported(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let source = pair.initiator.buffer(65_536, Rights::LOCAL);
    // More than any transport accepts from one side while the other does not poll.
    for context in 0..1000 {
        pair.initiator.gather(context, &[Gather::Segment(source.whole())], SILENT);
    }
    let endpoint = pair.initiator.endpoint();
    pair.initiator.interface.disconnect(endpoint);
    pair.initiator.collect();
    pair.initiator.assert_ended("initiator");
    let reported: Vec<u64> = pair.initiator.completions().map(|c| c.cookie).collect();
    let flushed = |c: &Completion| c.status == CompletionStatus::Flushed;
    assert!(pair.initiator.completions().all(flushed), "{:?}", pair.initiator.events);
    let first = *reported.first().expect("not all can have succeeded");
    assert_eq!(reported, (first..1000).collect::<Vec<_>>());
}

fn send_invalidating(pair: &mut Pair, context: u64, stag: Stag) {
    let options = SendOptions { invalidate: Some(stag), ..SendOptions::default() };
    pair.acceptor.gather(context, &[Gather::Bytes(b"done")], options);
}

pub(crate) fn a_send_invalidates_a_region(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let target = pair.initiator.buffer(64, Rights::REMOTE);
    let inbox = pair.initiator.buffer(16, Rights::LOCAL);
    let source = pair.acceptor.filled(&pattern(1, 64), Rights::LOCAL);
    pair.initiator.receive(1, &[inbox.whole()]);
    pair.initiator.receive(2, &[inbox.whole()]);
    pair.acceptor.write(3, &[source.whole()], target.all_remote());
    send_invalidating(&mut pair, 4, target.region.stag);
    pair.acceptor.send(5, b"more");
    pair.until("both messages", |pair| pair.initiator.received().len() == 2);
    let invalidated = |context| pair.initiator.completion(context).unwrap().invalidated;
    assert_eq!((invalidated(1), invalidated(2)), (Some(target.region.stag), None));
    assert_eq!(target.bytes(), pattern(1, 64), "the write came first");
    // This side can still use the region.
    pair.acceptor.receive(6, &[source.whole()]);
    let whole = [Gather::Segment(target.whole())];
    pair.initiator.gather(7, &whole, SendOptions::default());
    pair.until("the message back", |pair| pair.acceptor.completion(6).is_some());
}

pub(crate) fn an_invalidated_region_is_out_of_reach(fixture: &dyn Fixture) {
    for reading in [false, true] {
        let mut pair = Pair::new(fixture);
        let target = pair.initiator.filled(&pattern(1, 64), Rights::REMOTE);
        let inbox = pair.initiator.buffer(16, Rights::LOCAL);
        let local = pair.acceptor.filled(&pattern(2, 64), Rights::LOCAL);
        pair.initiator.receive(1, &[inbox.whole()]);
        send_invalidating(&mut pair, 2, target.region.stag);
        pair.until("the message", |pair| pair.initiator.completion(1).is_some());
        if reading {
            pair.acceptor.read(3, &[local.whole()], target.all_remote());
        } else {
            pair.acceptor.write(3, &[local.whole()], target.all_remote());
        }
        pair.until_broken();
        assert_eq!(target.bytes(), pattern(1, 64));
        assert_eq!(local.bytes(), pattern(2, 64));
    }
}

pub(crate) fn an_invalidated_region_is_out_of_reach_on_every_connection(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let first = (pair.initiator.endpoint(), pair.acceptor.endpoint());
    let config = pair.world.endpoint.clone();
    pair.initiator.events.clear();
    pair.acceptor.events.clear();
    pair.join(&config, &config);
    let second = (pair.initiator.endpoint(), pair.acceptor.endpoint());
    let target = pair.initiator.filled(&pattern(1, 64), Rights::REMOTE);
    let inbox = pair.initiator.buffer(16, Rights::LOCAL);
    let local = pair.acceptor.filled(&pattern(2, 64), Rights::LOCAL);
    pair.initiator.set_endpoint(first.0);
    pair.acceptor.set_endpoint(first.1);
    pair.initiator.receive(1, &[inbox.whole()]);
    send_invalidating(&mut pair, 2, target.region.stag);
    pair.until("the message", |pair| pair.initiator.completion(1).is_some());
    pair.initiator.set_endpoint(second.0);
    pair.acceptor.set_endpoint(second.1);
    pair.acceptor.write(3, &[local.whole()], target.all_remote());
    pair.until_broken();
    assert_eq!(target.bytes(), pattern(1, 64));
    assert_eq!(pair.initiator.breaks_of(first.0), 0, "the other connection stands");
}

pub(crate) fn invalidating_an_unknown_region_breaks(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let target = pair.initiator.buffer(64, Rights::REMOTE);
    let inbox = pair.initiator.buffer(16, Rights::LOCAL);
    pair.initiator.interface.deregister(target.region.key);
    pair.initiator.receive(1, &[inbox.whole()]);
    send_invalidating(&mut pair, 2, target.region.stag);
    pair.until_broken();
    assert_ne!(pair.initiator.completion(1).unwrap().status, CompletionStatus::Success);
}

const COUNT: u64 = 100;

//! Memory is reachable only through a registered region, within its bounds and rights.

use dafs_dat::{
    CompletionStatus, Domain, Gather, LocalKey, LocalSegment, PostError, RemoteSegment, Rights,
    SendOptions, Signal, Stag,
};

use crate::fixture::Fixture;
use crate::pair::{Buffer, DOMAIN, Pair, pattern};

const LENGTH: usize = 4096;
const READ_ONLY: Rights = Rights { remote_read: true, remote_write: false };
const WRITE_ONLY: Rights = Rights { remote_read: false, remote_write: true };

/// An access that must be refused: a name, the region's rights, and the named range.
type Attempt = (&'static str, Rights, fn(&mut Pair, &Buffer) -> RemoteSegment);

fn attempts(missing: Rights) -> Vec<Attempt> {
    vec![
        ("without the right", missing, |_, b| b.region.remote(0, 64)),
        ("local only", Rights::LOCAL, |_, b| b.region.remote(0, 64)),
        ("one byte before", Rights::REMOTE, |_, b| b.region.remote(u64::MAX, 64)),
        ("one byte after", Rights::REMOTE, |_, b| b.region.remote(LENGTH as u64 - 63, 64)),
        ("just beyond", Rights::REMOTE, |_, b| b.region.remote(LENGTH as u64, 64)),
        ("far beyond", Rights::REMOTE, |_, b| b.region.remote(1 << 40, 64)),
        ("address zero", Rights::REMOTE, |_, b| RemoteSegment {
            stag: b.region.stag,
            address: 0,
            length: 64,
        }),
        ("wrapping", Rights::REMOTE, |_, b| RemoteSegment {
            stag: b.region.stag,
            address: u64::MAX - 62,
            length: 64,
        }),
        ("unknown name", Rights::REMOTE, |_, b| RemoteSegment {
            stag: Stag(0x00ab_cdef),
            address: b.region.address,
            length: 64,
        }),
        ("name zero", Rights::REMOTE, |_, b| RemoteSegment {
            stag: Stag(0),
            address: b.region.address,
            length: 64,
        }),
        ("another key byte", Rights::REMOTE, |_, b| RemoteSegment {
            stag: Stag(b.region.stag.0 ^ 0x80),
            address: b.region.address,
            length: 64,
        }),
        ("of another domain", Rights::REMOTE, |pair, b| {
            let other = Domain(DOMAIN.0 + 1);
            let interface = &mut pair.initiator.interface;
            interface.register(&b.memory, other, Rights::REMOTE).unwrap().remote(0, 64)
        }),
    ]
}

pub(crate) fn a_refused_write_breaks_and_moves_nothing(fixture: &dyn Fixture) {
    for (name, rights, attempt) in attempts(READ_ONLY) {
        let mut pair = Pair::new(fixture);
        let target = pair.initiator.filled(&pattern(1, LENGTH), rights);
        let source = pair.acceptor.filled(&pattern(2, 64), Rights::LOCAL);
        let inbox = pair.initiator.buffer(8, Rights::LOCAL);
        pair.initiator.receive(1, &[inbox.whole()]);
        // Now the peer knows the region, if it learns of regions at all.
        pair.settle();
        let remote = attempt(&mut pair, &target);
        assert!(!pair.acceptor.write_now(&[source.whole()], remote), "{name}");
        pair.acceptor.write(2, &[source.whole()], remote);
        pair.acceptor.send(3, b"late");
        pair.until_broken();
        assert_eq!(target.bytes(), pattern(1, LENGTH), "{name}");
        let arrived = pair.initiator.completion(1).unwrap().status;
        assert_ne!(arrived, CompletionStatus::Success, "{name}: a message after the break");
    }
}

pub(crate) fn a_refused_read_breaks_and_moves_nothing(fixture: &dyn Fixture) {
    for (name, rights, attempt) in attempts(WRITE_ONLY) {
        let mut pair = Pair::new(fixture);
        let source = pair.initiator.filled(&pattern(1, LENGTH), rights);
        let target = pair.acceptor.filled(&pattern(2, 64), Rights::LOCAL);
        // Now the peer knows the region, if it learns of regions at all.
        pair.settle();
        let remote = attempt(&mut pair, &source);
        assert!(!pair.acceptor.read_now(&[target.whole()], remote), "{name}");
        pair.acceptor.read(1, &[target.whole()], remote);
        pair.until_broken();
        assert_eq!(target.bytes(), pattern(2, 64), "{name}");
        let status = pair.acceptor.completion(1).unwrap().status;
        assert_ne!(status, CompletionStatus::Success, "{name}");
    }
}

pub(crate) fn a_deregistered_region_is_out_of_reach_at_once(fixture: &dyn Fixture) {
    for reading in [false, true] {
        let mut pair = Pair::new(fixture);
        let gone = pair.initiator.filled(&pattern(1, LENGTH), Rights::REMOTE);
        let local = pair.acceptor.filled(&pattern(2, LENGTH), Rights::LOCAL);
        // The peer has used the region, so it knows all that it can know of it.
        pair.acceptor.read(1, &[local.whole()], gone.all_remote());
        pair.until("a read", |pair| pair.acceptor.completion(1).is_some());
        local.memory.write(0, &pattern(2, LENGTH));
        pair.settle();
        pair.initiator.interface.deregister(gone.region.key);
        if reading {
            assert!(!pair.acceptor.read_now(&[local.whole()], gone.all_remote()));
            pair.acceptor.read(2, &[local.whole()], gone.all_remote());
        } else {
            assert!(!pair.acceptor.write_now(&[local.whole()], gone.all_remote()));
            pair.acceptor.write(2, &[local.whole()], gone.all_remote());
        }
        pair.until_broken();
        assert_eq!(gone.bytes(), pattern(1, LENGTH));
        assert_eq!(local.bytes(), pattern(2, LENGTH));
    }
}

pub(crate) fn a_region_to_its_edges(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let target = pair.initiator.buffer(LENGTH, WRITE_ONLY);
    let source = pair.initiator.filled(&pattern(1, LENGTH), READ_ONLY);
    let local = pair.acceptor.filled(&pattern(2, LENGTH), Rights::LOCAL);
    let back = pair.acceptor.buffer(LENGTH, Rights::LOCAL);
    let last = LENGTH as u64 - 1;
    pair.acceptor.write(1, &[local.region.local(0, 1)], target.region.remote(0, 1));
    pair.acceptor.write(2, &[local.region.local(last, 1)], target.region.remote(last, 1));
    let end = target.region.remote(last + 1, 0);
    pair.acceptor.write(3, &[local.region.local(last + 1, 0)], end);
    pair.fence(100);
    let seen = target.bytes();
    assert_eq!((seen[0], seen[LENGTH - 1]), (local.bytes()[0], local.bytes()[LENGTH - 1]));
    pair.acceptor.read(4, &[back.region.local(0, 1)], source.region.remote(0, 1));
    pair.acceptor.read(5, &[back.region.local(last, 1)], source.region.remote(last, 1));
    pair.acceptor.read(6, &[back.region.local(0, 0)], source.region.remote(last + 1, 0));
    pair.until("the reads", |pair| pair.acceptor.completion(6).is_some());
    let seen = back.bytes();
    assert_eq!((seen[0], seen[LENGTH - 1]), (source.bytes()[0], source.bytes()[LENGTH - 1]));
    pair.assert_alive(200);
}

pub(crate) fn a_reused_slot_does_not_honour_the_old_name(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let old = pair.initiator.filled(&pattern(1, LENGTH), Rights::REMOTE);
    let source = pair.acceptor.filled(&pattern(2, LENGTH), Rights::LOCAL);
    pair.acceptor.write(1, &[source.region.local(0, 64)], old.region.remote(0, 64));
    pair.fence(100);
    pair.initiator.interface.deregister(old.region.key);
    let again = pair.initiator.register(old.memory.clone(), Rights::REMOTE);
    old.memory.write(0, &pattern(1, LENGTH));
    assert_ne!(again.region.stag, old.region.stag);
    pair.acceptor.write(2, &[source.region.local(0, 64)], again.region.remote(0, 64));
    pair.fence(101);
    assert_eq!(old.bytes()[..64], pattern(2, LENGTH)[..64]);
    pair.acceptor.write(3, &[source.whole()], old.region.remote(0, LENGTH as u32));
    pair.until_broken();
    assert_eq!(old.bytes()[64..], pattern(1, LENGTH)[64..]);
}

pub(crate) fn local_segments_are_checked_at_the_post(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let good = pair.initiator.buffer(LENGTH, Rights::LOCAL);
    let gone = pair.initiator.buffer(LENGTH, Rights::LOCAL);
    pair.initiator.interface.deregister(gone.region.key);
    let remote = pair.acceptor.buffer(LENGTH, Rights::REMOTE);
    let interface = &mut pair.initiator.interface;
    let foreign = interface.register(&good.memory, Domain(DOMAIN.0 + 1), Rights::LOCAL).unwrap();
    let length = LENGTH as u64;
    let bad = [
        good.region.local(length - 63, 64),
        good.region.local(length + 1, 0),
        good.region.local(length, 64),
        good.region.local(u64::MAX - 10, 64),
        good.region.local(1 << 40, 64),
        gone.region.local(0, 64),
        foreign.local(0, 64),
        LocalSegment { key: LocalKey(0x00ab_cdef), offset: 0, length: 64 },
        LocalSegment { key: LocalKey(0), offset: 0, length: 64 },
    ];
    let endpoint = pair.initiator.endpoint();
    for segment in bad {
        let refused = Err(PostError::BadSegment);
        let lists = [vec![segment], vec![good.region.local(0, 64), segment]];
        for list in lists {
            let total = list.iter().map(|s| s.length).sum();
            let target = remote.region.remote(0, total);
            let gather: Vec<_> = list.iter().copied().map(Gather::Segment).collect();
            let interface = &mut pair.initiator.interface;
            assert_eq!(interface.post_receive(endpoint, 1, &list), refused, "{segment:?}");
            let send = interface.post_send(endpoint, 2, &gather, SendOptions::default());
            assert_eq!(send, refused, "{segment:?}");
            let write = interface.post_rdma_write(endpoint, 3, &list, target, Signal::Always);
            assert_eq!(write, refused, "{segment:?}");
            let read = interface.post_rdma_read(endpoint, 4, &list, target);
            assert_eq!(read, refused, "{segment:?}");
        }
    }
    pair.settle();
    assert_eq!(pair.initiator.completions().count(), 0, "nothing was queued");
    pair.assert_alive(10);
}

pub(crate) fn deregistering_in_flight_harms_nobody_else(fixture: &dyn Fixture) {
    for turns in 0..6 {
        let mut pair = Pair::new(fixture);
        let target = pair.initiator.filled(&pattern(1, 100_000), Rights::REMOTE);
        let other = pair.initiator.filled(&pattern(3, 100_000), Rights::REMOTE);
        let source = pair.acceptor.filled(&pattern(2, 100_000), Rights::LOCAL);
        for context in 0..8 {
            pair.acceptor.write(context, &[source.whole()], target.all_remote());
        }
        for _ in 0..turns {
            pair.turn();
        }
        pair.initiator.interface.deregister(target.region.key);
        // From here on, the owner may use the memory in any way.
        target.memory.write(0, &pattern(4, 100_000));
        let mine = pair.initiator.register(other.memory.clone(), Rights::LOCAL);
        pair.settle();
        assert!(target.bytes() == pattern(4, 100_000), "placed after deregistering");
        assert!(mine.bytes() == pattern(3, 100_000));
        let (here, there) = (pair.initiator.endpoint(), pair.acceptor.endpoint());
        let broken = pair.initiator.is_broken();
        pair.initiator.assert_once("initiator", here, broken);
        pair.acceptor.assert_once("acceptor", there, broken);
    }
}

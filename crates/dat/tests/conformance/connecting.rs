//! Connections are established with private data, or end in exactly one way.

use dafs_dat::{
    AddressError, Event, Gather, InterfaceConfig, PostError, Rights, SendOptions, Signal,
};

use crate::fixture::Fixture;
use crate::pair::{DOMAIN, Pair, pattern};

fn answer(pair: &Pair) -> Option<Vec<u8>> {
    pair.initiator.events.iter().find_map(|event| match event {
        Event::Established { private_data, .. } => Some(private_data.to_vec()),
        _ => None,
    })
}

pub(crate) fn private_data_travels_both_ways(fixture: &dyn Fixture) {
    for (there, back) in [(0, 0), (1, 0), (0, 1), (16, 16), (54, 54), (199, 200)] {
        let mut pair = Pair::apart(fixture.world(1));
        if there.max(back) > pair.world.private_bytes_max {
            continue;
        }
        let config = pair.world.endpoint.clone();
        pair.connect(&config, &pattern(1, there));
        pair.until("a request", |pair| pair.acceptor.pending().is_some());
        let (pending, data) = pair.acceptor.pending().unwrap();
        assert_eq!(*data, *pattern(1, there), "{there} bytes of private data");
        let said = pattern(2, back);
        let endpoint = pair.acceptor.interface.accept(pending, DOMAIN, &config, &said);
        pair.acceptor.set_endpoint(endpoint);
        pair.until("both established", |pair| {
            pair.initiator.is_established() && pair.acceptor.is_established()
        });
        assert_eq!(answer(&pair), Some(said), "{back} bytes of private data");
        let empty = pair.acceptor.events.iter().any(|event| {
            matches!(event, Event::Established { private_data, .. } if private_data.is_empty())
        });
        assert!(empty, "the acceptor hears nothing more");
        pair.assert_alive(100);
    }
}

pub(crate) fn private_data_beyond_the_limit_is_refused(fixture: &dyn Fixture) {
    let mut pair = Pair::apart(fixture.world(1));
    let config = pair.world.endpoint.clone();
    let before = pair.initiator.interface.endpoint_count();
    let long = vec![0; 1 << 17];
    let begun = pair.initiator.interface.connect(&pair.world.address, DOMAIN, &config, &long);
    assert!(matches!(begun, Err(AddressError::PrivateData { .. })), "{begun:?}");
    assert_eq!(pair.initiator.interface.endpoint_count(), before);
}

pub(crate) fn a_rejection_carries_data(fixture: &dyn Fixture) {
    let mut pair = Pair::apart(fixture.world(1));
    let config = pair.world.endpoint.clone();
    pair.connect(&config, b"let me in");
    let buffer = pair.initiator.buffer(16, Rights::LOCAL);
    pair.initiator.receive(5, &[buffer.whole()]);
    let pending = pair.request();
    pair.acceptor.interface.reject(pending, b"no");
    assert_eq!(pair.acceptor.interface.endpoint_count(), 0);
    let rejected = |pair: &Pair| {
        pair.initiator.events.iter().position(|event| {
            matches!(event, Event::Rejected { private_data, .. } if **private_data == *b"no")
        })
    };
    pair.until("the rejection", |pair| rejected(pair).is_some());
    pair.settle();
    assert!(!pair.initiator.is_established());
    assert!(!pair.initiator.is_broken(), "a connect ends once: {:?}", pair.initiator.events);
    pair.initiator.assert_once("initiator", pair.initiator.endpoint(), true);
    assert!(pair.acceptor.events.is_empty(), "{:?}", pair.acceptor.events);
    let endpoint = pair.initiator.endpoint();
    pair.initiator.interface.release(endpoint);
    assert_eq!(pair.initiator.interface.endpoint_count(), 0);
}

pub(crate) fn accepting_a_vanished_peer_breaks(fixture: &dyn Fixture) {
    let mut pair = Pair::apart(fixture.world(1));
    let config = pair.world.endpoint.clone();
    pair.connect(&config, b"");
    let pending = pair.request();
    let vanished = pair.initiator.endpoint();
    pair.initiator.interface.release(vanished);
    pair.settle();
    assert!(pair.acceptor.events.is_empty(), "not accepted yet: {:?}", pair.acceptor.events);
    let endpoint = pair.acceptor.interface.accept(pending, DOMAIN, &config, b"");
    pair.acceptor.set_endpoint(endpoint);
    pair.until("the break", |pair| pair.acceptor.is_broken());
    pair.settle();
    pair.acceptor.assert_ended("acceptor");
    assert_eq!(pair.initiator.interface.endpoint_count(), 0);
}

pub(crate) fn connecting_to_nobody_ends(fixture: &dyn Fixture) {
    let mut pair = Pair::apart(fixture.world(1));
    let config = pair.world.endpoint.clone();
    let nowhere = pair.world.nowhere.clone();
    match pair.initiator.interface.connect(&nowhere, DOMAIN, &config, b"") {
        Err(AddressError::System { .. }) => {}
        Err(other) => panic!("unexpected: {other}"),
        Ok(endpoint) => {
            pair.initiator.set_endpoint(endpoint);
            pair.until("the break", |pair| pair.initiator.is_broken());
            pair.settle();
            pair.initiator.assert_ended("initiator");
            assert!(!pair.initiator.is_established());
        }
    }
}

pub(crate) fn receives_may_be_posted_before_a_connection_stands(fixture: &dyn Fixture) {
    let mut pair = Pair::apart(fixture.world(1));
    let config = pair.world.endpoint.clone();
    pair.connect(&config, b"");
    let ours = pair.initiator.buffer(8, Rights::LOCAL);
    pair.initiator.receive(1, &[ours.whole()]);
    let pending = pair.request();
    let endpoint = pair.acceptor.interface.accept(pending, DOMAIN, &config, b"");
    pair.acceptor.set_endpoint(endpoint);
    let theirs = pair.acceptor.buffer(8, Rights::LOCAL);
    pair.acceptor.receive(2, &[theirs.whole()]);
    pair.until("both established", |pair| {
        pair.initiator.is_established() && pair.acceptor.is_established()
    });
    pair.initiator.send(3, b"one");
    pair.until("the first message", |pair| pair.acceptor.completion(2).is_some());
    pair.acceptor.send(4, b"two");
    pair.until("the second message", |pair| pair.initiator.completion(1).is_some());
    assert_eq!((&theirs.bytes()[..3], &ours.bytes()[..3]), (&b"one"[..], &b"two"[..]));
}

pub(crate) fn nothing_else_is_posted_before_a_connection_stands(fixture: &dyn Fixture) {
    let mut pair = Pair::apart(fixture.world(1));
    let config = pair.world.endpoint.clone();
    pair.connect(&config, b"");
    let buffer = pair.initiator.buffer(8, Rights::REMOTE);
    let (endpoint, local, remote) =
        (pair.initiator.endpoint(), buffer.whole(), buffer.all_remote());
    let interface = &mut pair.initiator.interface;
    let refused = Err(PostError::NotConnected);
    let options = SendOptions::default();
    assert_eq!(interface.post_send(endpoint, 1, &[Gather::Bytes(b"x")], options), refused);
    let write = interface.post_rdma_write(endpoint, 2, &[local], remote, Signal::Always);
    assert_eq!(write, refused);
    assert_eq!(interface.post_rdma_read(endpoint, 3, &[local], remote), refused);
    let pending = pair.request();
    let accepted = pair.acceptor.interface.accept(pending, DOMAIN, &config, b"");
    pair.acceptor.set_endpoint(accepted);
    pair.until("both established", |pair| {
        pair.initiator.is_established() && pair.acceptor.is_established()
    });
    pair.assert_alive(10);
}

pub(crate) fn a_connection_outlives_its_listener(fixture: &dyn Fixture) {
    let mut pair = Pair::apart(fixture.world(1));
    let config = pair.world.endpoint.clone();
    pair.connect(&config, b"");
    pair.until("a request", |pair| pair.acceptor.pending().is_some());
    let id = pair.acceptor.events.iter().find_map(|event| match event {
        Event::ConnectionRequest { listener, .. } => Some(*listener),
        _ => None,
    });
    let pending = pair.request();
    let endpoint = pair.acceptor.interface.accept(pending, DOMAIN, &config, b"");
    pair.acceptor.set_endpoint(endpoint);
    pair.acceptor.interface.unlisten(id.unwrap());
    assert_eq!(pair.acceptor.interface.listener_address(id.unwrap()), None);
    pair.until("both established", |pair| {
        pair.initiator.is_established() && pair.acceptor.is_established()
    });
    pair.assert_alive(1);
}

pub(crate) fn the_limit_of_endpoints_holds(fixture: &dyn Fixture) {
    let mut world = fixture.world(1);
    world.initiator = InterfaceConfig { endpoints_max: 2, ..world.initiator.clone() };
    let config = world.endpoint.clone();
    let mut pair = Pair::over(world, &config, &config);
    pair.initiator.events.clear();
    pair.acceptor.events.clear();
    let first = (pair.initiator.endpoint(), pair.acceptor.endpoint());
    pair.join(&config, &config);
    let third = pair.initiator.interface.connect(&pair.world.address, DOMAIN, &config, b"");
    assert!(matches!(third, Err(AddressError::TooMany(2))), "{third:?}");
    pair.initiator.interface.release(first.0);
    assert_eq!(pair.initiator.interface.endpoint_count(), 1);
    pair.settle();
    assert_eq!(pair.acceptor.breaks_of(first.1), 1);
    pair.assert_alive(1);
}

pub(crate) fn an_acceptor_at_its_limit_turns_peers_away(fixture: &dyn Fixture) {
    let mut world = fixture.world(1);
    world.acceptor = InterfaceConfig { endpoints_max: 1, ..world.acceptor.clone() };
    let config = world.endpoint.clone();
    let mut pair = Pair::over(world, &config, &config);
    let first = pair.initiator.endpoint();
    pair.connect(&config, b"");
    pair.until("the break", |pair| pair.initiator.is_broken());
    pair.settle();
    pair.initiator.assert_ended("initiator");
    assert_eq!(pair.acceptor.interface.endpoint_count(), 1);
    pair.initiator.set_endpoint(first);
    pair.assert_alive(1);
}

pub(crate) fn a_released_name_is_refused(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let config = pair.world.endpoint.clone();
    let old = pair.initiator.endpoint();
    pair.initiator.interface.release(old);
    pair.settle();
    pair.initiator.events.clear();
    pair.acceptor.events.clear();
    pair.join(&config, &config);
    assert_eq!(pair.initiator.endpoint().index(), old.index(), "the place is used again");
    let interface = &mut pair.initiator.interface;
    let options = SendOptions::default();
    let send = interface.post_send(old, 1, &[Gather::Bytes(b"x")], options);
    assert_eq!(send, Err(PostError::NotConnected));
    assert_eq!(interface.post_receive(old, 1, &[]), Err(PostError::NotConnected));
    interface.disconnect(old);
    interface.release(old);
    pair.settle();
    assert_eq!(pair.initiator.interface.endpoint_count(), 1);
    pair.assert_alive(1);
}

fn several(pair: &mut Pair, count: usize) -> Vec<(dafs_dat::EndpointId, dafs_dat::EndpointId)> {
    (0..count).map(|_| pair.another()).collect()
}

pub(crate) fn several_connections_stand_side_by_side(fixture: &dyn Fixture) {
    let mut pair = Pair::apart(fixture.world(1));
    let ends = several(&mut pair, 5);
    let buffer = pair.acceptor.buffer(5 * 16, Rights::LOCAL);
    for (number, (from, to)) in ends.iter().enumerate() {
        let number = number as u64;
        pair.acceptor.set_endpoint(*to);
        pair.acceptor.receive(number, &[buffer.region.local(number * 16, 16)]);
        pair.initiator.set_endpoint(*from);
        pair.initiator.send(100 + number, &pattern(number, 16));
    }
    pair.until("five messages", |pair| pair.acceptor.received().len() == 5);
    for completion in pair.acceptor.received() {
        let number = completion.cookie;
        assert_eq!(completion.endpoint, ends[number as usize].1);
        let at = number as usize * 16;
        assert_eq!(buffer.bytes()[at..at + 16], pattern(number, 16));
    }
}

pub(crate) fn a_region_serves_all_connections_of_its_domain(fixture: &dyn Fixture) {
    let mut pair = Pair::apart(fixture.world(1));
    let early = pair.initiator.buffer(64, Rights::REMOTE);
    let ends = several(&mut pair, 3);
    let late = pair.initiator.buffer(64, Rights::REMOTE);
    for (number, (from, to)) in ends.iter().enumerate() {
        let number = number as u64;
        pair.initiator.set_endpoint(*from);
        pair.acceptor.set_endpoint(*to);
        for (which, target) in [&early, &late].into_iter().enumerate() {
            let bytes = pattern(number + 10 * which as u64, 16);
            let source = pair.acceptor.filled(&bytes, Rights::LOCAL);
            let context = 10 * number + which as u64;
            let remote = target.region.remote(number * 16, 16);
            pair.acceptor.write(context, &[source.whole()], remote);
            pair.fence(1000 + context);
            let at = number as usize * 16;
            assert_eq!(target.bytes()[at..at + 16], bytes, "connection {number}");
        }
    }
}

//! Several interfaces of one process: each distinguishes its own endpoints from the others'.

use std::io::ErrorKind;
use std::os::fd::AsFd;

use dafs_dat::{
    DmabufError, DmabufRange, EndpointId, Gather, Inbox, Interface, InterfaceConfig, OWNERS_MAX,
    PendingId, PostError, Rights, SendOptions, Signal,
};
use dafs_memory::{Memory, Pages};

use crate::fixture::{Fixture, World};
use crate::pair::{DOMAIN, Pair};

const INITIATOR: u8 = 3;
const ACCEPTOR: u8 = 15;

fn owned(mut world: World) -> World {
    world.initiator.owner = INITIATOR;
    world.acceptor.owner = ACCEPTOR;
    world
}

pub(crate) fn an_endpoint_of_another_owner_is_refused(fixture: &dyn Fixture) {
    let world = owned(fixture.world(1));
    let config = world.endpoint.clone();
    let mut pair = Pair::over(world, &config, &config);
    let (one, other) = (pair.initiator.endpoint(), pair.acceptor.endpoint());
    assert_eq!(one.index(), other.index(), "the first of each");
    assert_eq!((one.owner(), other.owner()), (usize::from(INITIATOR), usize::from(ACCEPTOR)));
    assert_ne!(one, other);
    // One more connection waits to be accepted.
    let standing = (one, other);
    pair.connect(&config, b"");
    let pending = pair.request();
    refuse_all(&mut pair.initiator.interface, other, Some(pending));
    refuse_all(&mut pair.acceptor.interface, one, None);
    assert_eq!(pair.initiator.interface.endpoint_count(), 2);
    assert_eq!(pair.acceptor.interface.endpoint_count(), 2);
    let endpoint = pair.acceptor.interface.accept(pending, DOMAIN, &config, b"");
    pair.acceptor.set_endpoint(endpoint);
    pair.until("both established", |pair| {
        pair.initiator.is_established() && pair.acceptor.is_established()
    });
    pair.assert_alive(10);
    pair.initiator.set_endpoint(standing.0);
    pair.acceptor.set_endpoint(standing.1);
    pair.assert_alive(20);
}

/// Checks that calls for an endpoint of another interface have no effect.
fn refuse_all(interface: &mut Interface, foreign: EndpointId, pending: Option<PendingId>) {
    let memory = Memory::shared(64, Pages::Small).unwrap();
    let region = interface.register(&memory, DOMAIN, Rights::REMOTE).unwrap();
    let (local, remote) = (region.local(0, 8), region.remote(0, 8));
    let (gather, options) = ([Gather::Bytes(b"x")], SendOptions::default());
    let none = Err(PostError::NotConnected);
    assert_eq!(interface.post_receive(foreign, 1, &[local]), none);
    assert_eq!(interface.post_send(foreign, 1, &gather, options), none);
    assert_eq!(interface.post_rdma_write(foreign, 1, &[local], remote, Signal::Always), none);
    assert_eq!(interface.post_rdma_read(foreign, 1, &[local], remote), none);
    assert!(!interface.rdma_write_now(foreign, &[local], remote));
    assert!(!interface.rdma_read_now(foreign, &[local], remote));
    assert_eq!(interface.remote(foreign, &region, 0, 8).stag, region.stag);
    assert_eq!(interface.region_path(foreign, region.key), None);
    let mut inbox = Inbox::new(interface, DOMAIN, 1, 64).unwrap();
    assert!(!inbox.post(interface, foreign));
    interface.deregister(inbox.key());
    assert!(!interface.hand_over(foreign, 1, memory.file().unwrap().as_fd()));
    assert!(interface.take_handed_over(foreign, 1).is_none());
    assert!(interface.lender(foreign).is_none());
    assert!(!interface.reaches_lent(foreign, &region));
    let range = DmabufRange { fd: memory.file().unwrap(), offset: 0, length: 64 };
    let dmabuf = interface.register_dmabuf(foreign, range, Rights::REMOTE);
    assert!(matches!(dmabuf, Err(DmabufError::NotConnected)), "{dmabuf:?}");
    let reached = interface.reach_dmabuf(foreign, region.key);
    assert!(matches!(reached, Err(DmabufError::NotConnected)), "{reached:?}");
    interface.disconnect(foreign);
    interface.release(foreign);
    if let Some(pending) = pending {
        interface.accept(pending, DOMAIN, &Default::default(), b"");
        interface.reject(pending, b"");
    }
    interface.deregister(region.key);
    interface.poll();
}

#[test]
fn an_interface_knows_its_bounds() {
    let refused = |config: InterfaceConfig| {
        let Err(error) = Interface::new(config) else { panic!("an interface without bounds") };
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    };
    let owner = OWNERS_MAX as u8;
    let said = refused(InterfaceConfig { owner, ..InterfaceConfig::default() });
    assert_eq!(said, "owner 16 is not below 16");
    let endpoints_max = (1 << 20) + 1;
    let said = refused(InterfaceConfig { endpoints_max, ..InterfaceConfig::default() });
    assert_eq!(said, "an interface has at most 1048576 endpoints, not 1048577");
}

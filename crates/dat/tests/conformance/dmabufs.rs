//! Memory that only a device can access, on devices of the simulated network. A memory file
//! replaces the dmabuf, and a test that has it mapped sees what the device does.

use std::time::{Duration, Instant};

use dafs_dat::sim::NetworkConfig;
use dafs_dat::{
    Address, DmabufError, DmabufRange, EndpointConfig, Event, Gather, Interface, InterfaceConfig,
    LocalKey, PostError, Region, RemoteSegment, Rights, SendOptions, Signal,
};
use dafs_memory::{Memory, Pages};

use crate::fixture::INITIATOR;
use crate::pair::{DOMAIN, Pair, pattern};
use crate::simulated::{network, pair};

const DEVICE: u32 = 7;
const OFFSET: u64 = 8192;
const LENGTH: u32 = 4096;

/// Returns a pair whose initiator has this device.
fn pair_on(device: Option<u32>) -> Pair {
    let mut pair = pair(NetworkConfig::new(1));
    move_to(&mut pair, device);
    pair
}

/// Connects the initiator again, through another device or none.
fn move_to(pair: &mut Pair, device: Option<u32>) {
    network(pair).set_device(INITIATOR, device);
    pair.until_broken();
    pair.another();
}

fn memory() -> Memory {
    Memory::shared(16384, Pages::Small).unwrap()
}

fn register(pair: &mut Pair, memory: &Memory) -> Result<Region, DmabufError> {
    let range =
        DmabufRange { fd: memory.file().unwrap(), offset: OFFSET, length: u64::from(LENGTH) };
    let endpoint = pair.initiator.endpoint();
    pair.initiator.interface.register_dmabuf(endpoint, range, Rights::REMOTE)
}

/// Returns the first bytes of a region as the acceptor names them.
fn named(pair: &mut Pair, region: &Region, length: u32) -> RemoteSegment {
    let endpoint = pair.initiator.endpoint();
    pair.initiator.interface.remote(endpoint, region, 0, length)
}

/// Makes the acceptor write 100 bytes and read as many.
fn write_and_read(pair: &mut Pair, memory: &Memory, remote: RemoteSegment) {
    let source = pair.acceptor.filled(&pattern(3, 100), Rights::LOCAL);
    let target = pair.acceptor.buffer(100, Rights::LOCAL);
    pair.acceptor.write(1, &[source.whole()], remote);
    pair.settle();
    assert_eq!(memory.to_vec(OFFSET as usize, 100), pattern(3, 100));
    assert_eq!(memory.to_vec(0, OFFSET as usize), vec![0; OFFSET as usize]);
    memory.write(OFFSET as usize, &pattern(4, 100));
    pair.acceptor.read(2, &[target.whole()], remote);
    pair.settle();
    assert_eq!(target.bytes(), pattern(4, 100));
}

#[test]
fn a_device_moves_the_bytes_of_a_dmabuf() {
    let mut pair = pair_on(Some(DEVICE));
    let memory = memory();
    let region = register(&mut pair, &memory).unwrap();
    assert_eq!(network(&pair).registration_count(DEVICE), 1);
    let remote = named(&mut pair, &region, 100);
    assert_ne!(remote.stag, region.stag, "a device chooses the names");
    write_and_read(&mut pair, &memory, remote);
    pair.initiator.interface.deregister(region.key);
    assert_eq!(network(&pair).registration_count(DEVICE), 0);
    let source = pair.acceptor.filled(&pattern(5, 100), Rights::LOCAL);
    pair.acceptor.write(3, &[source.whole()], remote);
    pair.until_broken();
    assert_eq!(memory.to_vec(OFFSET as usize, 100), pattern(4, 100));
}

#[test]
fn no_byte_of_a_dmabuf_is_this_sides_to_send() {
    let mut pair = pair_on(Some(DEVICE));
    let memory = memory();
    let region = register(&mut pair, &memory).unwrap();
    let gather = [Gather::Segment(region.local(0, 8))];
    let endpoint = pair.initiator.endpoint();
    let options = SendOptions::default();
    let refused = pair.initiator.interface.post_send(endpoint, 1, &gather, options);
    assert_eq!(refused, Err(PostError::BadSegment));
}

#[test]
fn a_dmabuf_ends_where_its_range_ends() {
    let mut pair = pair_on(Some(DEVICE));
    let memory = memory();
    let region = register(&mut pair, &memory).unwrap();
    let remote = named(&mut pair, &region, 2);
    let beyond = RemoteSegment { address: remote.address + u64::from(LENGTH) - 1, ..remote };
    let source = pair.acceptor.filled(&[9, 9], Rights::LOCAL);
    pair.acceptor.write(1, &[source.whole()], beyond);
    pair.until_broken();
    assert_eq!(memory.to_vec(0, 16384), vec![0; 16384]);
}

#[test]
fn another_device_must_be_told_and_gives_another_name() {
    let mut pair = pair_on(Some(DEVICE));
    let memory = memory();
    let region = register(&mut pair, &memory).unwrap();
    let before = named(&mut pair, &region, 100);
    move_to(&mut pair, Some(DEVICE + 1));
    let endpoint = pair.initiator.endpoint();
    for _ in 0..2 {
        pair.initiator.interface.reach_dmabuf(endpoint, region.key).unwrap();
        assert_eq!(network(&pair).registration_count(DEVICE + 1), 1, "once is enough");
    }
    let after = named(&mut pair, &region, 100);
    assert_ne!(after.stag, before.stag);
    write_and_read(&mut pair, &memory, after);
    let source = pair.acceptor.filled(&pattern(6, 100), Rights::LOCAL);
    pair.acceptor.write(3, &[source.whole()], before);
    pair.until_broken();
    assert_eq!(memory.to_vec(OFFSET as usize, 100), pattern(4, 100));
    pair.initiator.interface.deregister(region.key);
    let counts = [DEVICE, DEVICE + 1].map(|device| network(&pair).registration_count(device));
    assert_eq!(counts, [0, 0]);
}

#[test]
fn what_no_device_knows_is_refused() {
    let mut pair = pair_on(None);
    let memory = memory();
    let refused = register(&mut pair, &memory);
    assert!(matches!(refused, Err(DmabufError::Transport)), "{refused:?}");
    assert_eq!(pair.initiator.interface.region_count(), 0);
    move_to(&mut pair, Some(DEVICE));
    let endpoint = pair.initiator.endpoint();
    let buffer = pair.initiator.buffer(64, Rights::REMOTE);
    for key in [buffer.region.key, LocalKey(77 << 8 | 1)] {
        let refused = pair.initiator.interface.reach_dmabuf(endpoint, key);
        assert!(matches!(refused, Err(DmabufError::NoSuchRegion)), "{refused:?}");
    }
    // The simulated device requires a memory file of this length.
    let range = DmabufRange { fd: memory.file().unwrap(), offset: 16384, length: 1 };
    let interface = &mut pair.initiator.interface;
    let refused = interface.register_dmabuf(endpoint, range, Rights::REMOTE);
    assert!(matches!(refused, Err(DmabufError::Device { .. })), "{refused:?}");
    assert_eq!(interface.region_count(), 1);
}

/// Over shared memory, a peer is told of regions. For this region it would be told an offset in a
/// dmabuf as if it were an address of this process.
#[test]
fn peers_without_the_device_are_told_nothing() {
    let mut pair = pair_on(Some(DEVICE));
    let memory = memory();
    let before = register(&mut pair, &memory).unwrap();
    for is_late in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let address = Address::Shm(place.path().join("socket"));
        let mut peer = Interface::new(InterfaceConfig::default()).unwrap();
        peer.listen(&address).unwrap();
        let config = EndpointConfig::default();
        let client = &mut pair.initiator.interface;
        let endpoint = client.connect(&address, DOMAIN, &config, b"").unwrap();
        let theirs = until(client, &mut peer, |peer, event| match event {
            Event::ConnectionRequest { pending, .. } => {
                Some(peer.accept(pending, DOMAIN, &config, b""))
            }
            _ => None,
        });
        until(&mut peer, client, |_, event| {
            matches!(event, Event::Established { endpoint: up, .. } if up == endpoint).then_some(())
        });
        let region = if is_late { register(&mut pair, &memory).unwrap() } else { before };
        let client = &mut pair.initiator.interface;
        let refused = client.reach_dmabuf(endpoint, region.key);
        assert!(matches!(refused, Err(DmabufError::Transport)), "{refused:?}");
        let remote = client.remote(endpoint, &region, 0, 64);
        let source = Memory::shared(64, Pages::Small).unwrap();
        let source = peer.register(&source, DOMAIN, Rights::LOCAL).unwrap();
        let (from, signal) = (source.local(0, 64), Signal::Always);
        peer.post_rdma_write(theirs, 1, &[from], remote, signal).unwrap();
        let reason = until(client, &mut peer, |_, event| match event {
            Event::Broken { reason, .. } => Some(reason.to_string()),
            _ => None,
        });
        assert!(reason.contains("is not registered"), "{reason}");
    }
}

/// Polls both interfaces until the second has an event that matches.
fn until<T>(
    other: &mut Interface,
    interface: &mut Interface,
    mut found: impl FnMut(&mut Interface, Event) -> Option<T>,
) -> T {
    let begun = Instant::now();
    loop {
        other.poll();
        interface.poll();
        while let Some(event) = interface.next_event() {
            if let Some(found) = found(interface, event) {
                return found;
            }
        }
        assert!(begun.elapsed() < HANG, "waited in vain");
    }
}

/// A limit that only detects hanging.
const HANG: Duration = Duration::from_secs(20);

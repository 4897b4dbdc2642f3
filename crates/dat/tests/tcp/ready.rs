//! Every way in which a stream becomes ready, and what ends it before that.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use dafs_dat::{
    Address, BreakReason, CompletionStatus, Domain, EndpointConfig, EndpointId, Event, Gather,
    Interface, InterfaceConfig, ListenerId, MpaOptions, Operation, ReadyToReceiveSet, Region,
    Rights,
};
use dafs_memory::{Memory, Pages};

use crate::peer::HANG;

/// Returns an interface and its listening address.
fn listening(config: InterfaceConfig) -> (Interface, Address, ListenerId) {
    let mut interface = Interface::new(config).unwrap();
    let listener = interface.listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
    let address = interface.listener_address(listener).unwrap();
    (interface, address, listener)
}

/// Returns the next event. Polls both interfaces, so that neither waits for the other.
fn next(interface: &mut Interface, other: &mut Interface) -> Event {
    let begun = std::time::Instant::now();
    loop {
        if let Some(event) = interface.next_event() {
            return event;
        }
        other.poll();
        interface.poll();
        assert!(begun.elapsed() < HANG, "nothing happens any more");
    }
}

/// Two interfaces and the two ends of a connection between them.
struct Pair {
    here: Interface,
    there: Interface,
    connected: EndpointId,
    accepted: EndpointId,
}

impl Pair {
    fn new(mpa: MpaOptions) -> Self {
        let (mut there, address, _) = listening(InterfaceConfig::default());
        let mut here = Interface::new(InterfaceConfig::default()).unwrap();
        let config = EndpointConfig { mpa, read_depth: 4, ..EndpointConfig::default() };
        let connected = here.connect(&address, Domain(0), &config, b"").unwrap();
        let Event::ConnectionRequest { pending, .. } = next(&mut there, &mut here) else {
            panic!()
        };
        let accepted = there.accept(pending, Domain(0), &config, b"");
        assert!(matches!(next(&mut there, &mut here), Event::Established { .. }));
        assert!(matches!(next(&mut here, &mut there), Event::Established { .. }));
        Self { here, there, connected, accepted }
    }

    fn memory(interface: &mut Interface, rights: Rights) -> (Memory, Region) {
        let memory = Memory::anonymous(4096, Pages::Small).unwrap();
        let region = interface.register(&memory, Domain(0), rights).unwrap();
        (memory, region)
    }

    /// Returns the next completion on the connecting side.
    fn done_here(&mut self) -> (Operation, u32) {
        match next(&mut self.here, &mut self.there) {
            Event::Completion(done) => {
                assert_eq!(done.status, CompletionStatus::Success);
                (done.operation, done.length)
            }
            other => panic!("{other:?}"),
        }
    }
}

fn ways() -> [ReadyToReceiveSet; 4] {
    let none = ReadyToReceiveSet::EMPTY;
    [
        ReadyToReceiveSet { write: true, ..none },
        ReadyToReceiveSet { read: true, ..none },
        ReadyToReceiveSet { send: true, ..none },
        ReadyToReceiveSet { write: true, read: true, send: true },
    ]
}

#[test]
fn whoever_accepts_may_speak_first_once_the_other_is_ready() {
    for ready_to_receive in ways() {
        let mut pair = Pair::new(MpaOptions { ready_to_receive, ..MpaOptions::default() });
        let (_inbox, region) = Pair::memory(&mut pair.here, Rights::LOCAL);
        pair.here.post_receive(pair.connected, 0, &[region.local(0, 64)]).unwrap();
        let hello = [Gather::Bytes(b"hello")];
        pair.there.post_send(pair.accepted, 0, &hello, Default::default()).unwrap();
        pair.there.flush();
        assert_eq!(pair.done_here(), (Operation::Receive, 5), "{ready_to_receive:?}");
    }
}

#[test]
fn being_ready_is_neither_a_message_nor_a_read_of_the_users() {
    for ready_to_receive in ways() {
        let mut pair = Pair::new(MpaOptions { ready_to_receive, ..MpaOptions::default() });
        let (source, exposed) = Pair::memory(&mut pair.there, Rights::REMOTE);
        let (sink, region) = Pair::memory(&mut pair.here, Rights::LOCAL);
        for round in 1..10 {
            source.write(0, &[round; 100]);
            let (to, from) = ([region.local(0, 100)], exposed.remote(0, 100));
            pair.here.post_rdma_read(pair.connected, 0, &to, from).unwrap();
            pair.here.flush();
            assert_eq!(pair.done_here(), (Operation::RdmaRead, 100));
            // The completion means that the data has arrived.
            assert_eq!(sink.to_vec(0, 100), [round; 100], "{ready_to_receive:?}");
        }
        // The first message is empty. No receive was posted for it before.
        pair.there.post_receive(pair.accepted, 7, &[]).unwrap();
        pair.here.post_send(pair.connected, 0, &[], Default::default()).unwrap();
        pair.here.flush();
        let event = next(&mut pair.there, &mut pair.here);
        assert!(matches!(event, Event::Completion(done) if done.cookie == 7), "{event:?}");
    }
}

#[test]
fn revision_1_negotiates_nothing_and_works() {
    let mut pair = Pair::new(MpaOptions { enhanced: false, ..MpaOptions::default() });
    let (_inbox, region) = Pair::memory(&mut pair.there, Rights::LOCAL);
    pair.there.post_receive(pair.accepted, 7, &[region.local(0, 64)]).unwrap();
    let hello = [Gather::Bytes(b"hello")];
    pair.here.post_send(pair.connected, 0, &hello, Default::default()).unwrap();
    pair.here.flush();
    let event = next(&mut pair.there, &mut pair.here);
    assert!(matches!(event, Event::Completion(done) if done.length == 5), "{event:?}");
}

#[test]
fn markers_are_refused_by_a_reply() {
    let (mut interface, Address::Tcp(address), _) = listening(InterfaceConfig::default()) else {
        panic!()
    };
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(b"MPA ID Req Frame\x90\x02\0\x04\0\x04\0\x04").unwrap();
    let reason = loop {
        match interface.next_event() {
            Some(Event::Broken { reason, .. }) => break reason,
            Some(other) => panic!("{other:?}"),
            None => assert!(interface.wait(1, Some(HANG)) > 0, "nothing happens any more"),
        }
    };
    assert!(reason.to_string().contains("markers"), "{reason}");
    let mut reply = Vec::new();
    socket.read_to_end(&mut reply).unwrap();
    // The reply is a rejection, and this side does not ask for markers either.
    assert_eq!(reply[..20], *b"MPA ID Rep Frame\x30\x02\0\x04");
}

#[test]
fn terms_that_cannot_be_met_are_answered_by_a_terminate() {
    // The responder's ORD exceeds this side's IRD; or it is ready only by a Send.
    for (terms, code) in [([0x80, 4, 0x80, 99], 6), ([0xc0, 4, 0, 4], 7)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut interface = Interface::new(InterfaceConfig::default()).unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        let config = EndpointConfig { read_depth: 4, ..EndpointConfig::default() };
        interface.connect(&address, Domain(0), &config, b"").unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        interface.poll();
        socket.read_exact(&mut [0; 24]).unwrap();
        socket.write_all(&[&b"MPA ID Rep Frame\x10\x02\0\x04"[..], &terms].concat()).unwrap();
        let broken = loop {
            match interface.next_event() {
                Some(Event::Broken { reason, .. }) => break reason,
                Some(other) => panic!("{other:?}"),
                None => assert!(interface.wait(1, Some(HANG)) > 0, "nothing happens any more"),
            }
        };
        assert!(matches!(broken, BreakReason::PeerViolation(_)), "{broken:?}");
        let mut said = Vec::new();
        socket.read_to_end(&mut said).unwrap();
        // An untagged frame on queue 2, whose first word has layer 2, type 0 and the code.
        assert_eq!((said[3], &said[20..24]), (0x47, &[0x20, code, 0, 0][..]));
    }
}

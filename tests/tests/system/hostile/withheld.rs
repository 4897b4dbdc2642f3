//! Tests transfers that a client does not let complete: others that wait for their resources
//! continue after a while, and the client is disconnected.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dafs_client::OpenOptions;
use dafs_types::{CacheHint, FileHandle, RmrContext, RmrTarget, Stability, StateId, Status};
use dafs_wire::messages::{
    AppendDirect, AppendInline, Empty, InlineData, Placement, SessionOptions, WriteDirect,
};
use dafs_wire::{Checksum, DirectBuffer, DirectBuffers, Request};

use super::shm::{Rings, expose};
use super::tcp::Wire;
use crate::fixture::{Ending, Fixture, HANG, Transport, pattern, transports};
use crate::rogue::{Rogue, encoded, login_as};

const LENGTH: u32 = 64 << 10;
/// A region that the server may read, but whose owner does not reply.
const STAG: u32 = 256;
const ADDRESS: u64 = 0x10000;
/// The data that a slow client appends at once.
const DROP: &[u8] = b"drop";

fn fixture() -> Fixture {
    Fixture::with(|config| config.patience.transfer = Duration::from_millis(200))
}

fn buffer() -> DirectBuffer {
    DirectBuffer { target: RmrTarget(ADDRESS), length: LENGTH, context: RmrContext(STAG) }
}

fn appending(file: FileHandle) -> Vec<u8> {
    appending_on((0, 1), file, LENGTH)
}

/// Encodes an append for a stream and its sequence number.
fn appending_on((stream, number): (u16, u16), file: FileHandle, length: u32) -> Vec<u8> {
    let (stability, checksum) = (Stability::DataSync, Checksum::NONE);
    let (state, buffer, hint) = (StateId::ANONYMOUS, buffer(), CacheHint::default());
    let request = AppendDirect { file, state, length, stability, hint, checksum, buffer };
    encoded(stream, number, &Request::AppendDirect(request))
}

fn writing(file: FileHandle) -> Vec<u8> {
    let buffers = [buffer()];
    let request = WriteDirect {
        file,
        state: StateId::ANONYMOUS,
        offset: 0,
        length: LENGTH,
        stability: Stability::Unstable,
        hint: CacheHint::default(),
        checksum: Checksum::NONE,
        buffers: DirectBuffers::from(&buffers[..]),
    };
    encoded(0, 1, &Request::WriteDirect(request))
}

/// Sends a request whose data the server requests in vain, and returns after it was requested.
/// Calling the result waits for the end of the connection.
fn withhold(fixture: &Fixture, transport: Transport, request: &[u8]) -> impl FnOnce() + use<> {
    let address = fixture.address(transport);
    let (over_tcp, over_rings) = match transport {
        Transport::Tcp => {
            let mut wire = Wire::logged_in(&address, false);
            wire.message(request);
            let (frame, _) = wire.frame().expect("the server asks");
            assert_eq!(frame[1] & 0xf, 1, "for what is to be written");
            (Some(wire), None)
        }
        Transport::Shm | Transport::Verbs => {
            let mut rings = Rings::connect(&address);
            let login = login_as(b"rings", SessionOptions::default());
            rings.message(&encoded(0, 0, &login));
            rings.await_answers(1);
            // Memory that only its owner can access: no file is passed.
            rings.control.send(&expose(STAG, ADDRESS, u64::from(LENGTH)), &[]);
            rings.message(request);
            rings.await_answers(2);
            (None, Some(rings))
        }
    };
    move || {
        over_tcp.into_iter().for_each(|wire| {
            wire.ends();
        });
        over_rings.iter().for_each(Rings::ends);
    }
}

/// Returns the transports that are implemented by hand here.
fn spoken() -> impl Iterator<Item = Transport> {
    transports().into_iter().filter(|transport| *transport != Transport::Verbs)
}

#[test]
fn an_append_that_is_never_delivered_lets_others_append() {
    for transport in spoken() {
        let fixture = fixture();
        let data = pattern(100_000, 3);
        std::fs::write(fixture.local("log"), &data).unwrap();
        let handle = Rogue::logged_in(&fixture.address(transport)).lookup("log");
        let parted = withhold(&fixture, transport, &appending(handle));
        let (_client, session) = fixture.connect(transport);
        let file = session.open("/log", &OpenOptions::write()).unwrap();
        assert_eq!(file.append(b"more").unwrap(), data.len() as u64);
        file.close().unwrap();
        parted();
        assert_eq!(std::fs::read(fixture.local("log")).unwrap(), [&data[..], b"more"].concat());
    }
}

#[test]
fn drop_by_drop_a_client_does_not_keep_others_from_appending() {
    let fixture = Fixture::with(|config| config.patience.transfer = Duration::from_secs(1));
    std::fs::write(fixture.local("log"), b"").unwrap();
    let mut rogue = Rogue::logged_in(&fixture.address(Transport::Shm));
    let handle = rogue.lookup("log");
    let mut wire = Wire::logged_in(&fixture.address(Transport::Tcp), false);
    for stream in 1..16 {
        wire.message(&appending_on((stream, 1), handle, DROP.len() as u32));
    }
    let is_parted = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Ends with this scope, even by a panic.
        let ending = Ending(&is_parted);
        scope.spawn(|| {
            let (_client, session) = fixture.connect(Transport::Shm);
            let file = session.open("/log", &OpenOptions::write()).unwrap();
            while !is_parted.load(Ordering::Acquire) {
                file.append(b"more").unwrap();
            }
        });
        let mut drops = 0;
        while let Some((segment, _)) = wire.frame() {
            if segment[1] & 0xf == 1 {
                drops += 1;
                assert!(drops < 15, "each drop has bought it the whole patience");
                // The client delays its reply.
                std::thread::park_timeout(Duration::from_millis(400));
                wire.deliver(&segment, DROP);
            }
        }
        drop(ending);
    });
}

#[test]
fn appends_of_one_client_take_turns_with_those_of_others() {
    for reactors in [1, 2] {
        appends_take_turns(reactors);
    }
}

/// Starts a server with this number of reactors and a file `log`, and two clients: one over shared
/// memory, and one over TCP by hand. They use different reactors, if there are two.
fn appenders(reactors: usize) -> (Fixture, Rogue, Wire, FileHandle) {
    let fixture = Fixture::with(|config| {
        config.patience.transfer = 10 * HANG;
        config.reactors = reactors;
    });
    std::fs::write(fixture.local("log"), b"").unwrap();
    let mut other = Rogue::logged_in(&fixture.address(Transport::Shm));
    let handle = other.lookup("log");
    let wire = Wire::logged_in(&fixture.address(Transport::Tcp), false);
    (fixture, other, wire, handle)
}

fn appends_take_turns(reactors: usize) {
    let (fixture, mut other, mut wire, handle) = appenders(reactors);
    for stream in 1..8 {
        wire.message(&appending_on((stream, 1), handle, DROP.len() as u32));
    }
    // The reply to this one says that all before it wait.
    wire.message(&encoded(8, 1, &Request::Null(Empty)));
    let frames = [0; 2].map(|_| wire.frame().expect("a request for data and a reply").0);
    let [first] = frames.iter().filter(|frame| frame[1] & 0xf == 1).collect::<Vec<_>>()[..] else {
        panic!("the server asks for the data of one")
    };
    other.request(1, 1, &appending_more(handle));
    assert_eq!(other.outcome(&Request::Null(Empty)), Some(Status::Ok), "it waits behind others");
    wire.deliver(first, DROP);
    let second = loop {
        let (segment, _) = wire.frame().expect("the server asks again");
        if segment[1] & 0xf == 1 {
            break segment;
        }
    };
    wire.deliver(&second, DROP);
    assert_eq!(other.status(), Some(Status::Ok), "its turn comes before the third");
    drop(wire);
    assert_eq!(std::fs::read(fixture.local("log")).unwrap(), [DROP, DROP, b"more"].concat());
}

#[test]
fn an_append_that_comes_as_the_last_one_ends_does_not_go_ahead_of_those_that_wait() {
    for reactors in [1, 2] {
        let (fixture, mut other, mut wire, handle) = appenders(reactors);
        wire.message(&appending_on((1, 1), handle, DROP.len() as u32));
        let (first, _) = wire.frame().expect("the server asks");
        other.request(1, 1, &appending_more(handle));
        assert_eq!(other.outcome(&Request::Null(Empty)), Some(Status::Ok), "it waits");
        let second = appending_on((2, 1), handle, DROP.len() as u32);
        wire.deliver_and_send(&first, DROP, &second);
        // The data of the second one is never delivered.
        assert_eq!(other.status(), Some(Status::Ok), "with {reactors} reactors");
        drop(wire);
        assert_eq!(std::fs::read(fixture.local("log")).unwrap(), [DROP, b"more"].concat());
    }
}

/// Returns an append with inline data.
fn appending_more(file: FileHandle) -> Request<'static> {
    Request::AppendInline(AppendInline {
        file,
        state: StateId::ANONYMOUS,
        stability: Stability::DataSync,
        hint: CacheHint::default(),
        placement: Placement::Packed,
        data: InlineData::Here(b"more"),
    })
}

#[test]
fn a_write_that_is_never_delivered_lets_others_read_write_and_truncate() {
    for transport in spoken() {
        let fixture = fixture();
        let data = pattern(2 * LENGTH as usize, 4);
        let mut seen = vec![0; data.len()];
        let (_client, session) = fixture.connect(transport);
        for case in ["read", "write", "truncate"] {
            eprintln!("{case} over {transport:?}");
            std::fs::write(fixture.local(case), &data).unwrap();
            let handle = Rogue::logged_in(&fixture.address(transport)).lookup(case);
            let parted = withhold(&fixture, transport, &writing(handle));
            let file = session.open(format!("/{case}"), &OpenOptions::write()).unwrap();
            match case {
                "write" => file.write_at(b"new", 10).unwrap(),
                "truncate" => file.set_len(1000).unwrap(),
                _ => {}
            }
            let count = file.read_at(&mut seen, 0).unwrap();
            parted();
            let mut expected = data.clone();
            match case {
                "write" => expected[10..13].copy_from_slice(b"new"),
                "truncate" => expected.truncate(1000),
                _ => {}
            }
            assert!(seen[..count] == expected, "what was never delivered shows");
            file.close().unwrap();
        }
    }
}

#[test]
fn a_client_that_nobody_waits_for_may_take_its_time() {
    for transport in spoken() {
        let fixture = fixture();
        std::fs::write(fixture.local("one"), pattern(1000, 5)).unwrap();
        std::fs::write(fixture.local("two"), pattern(1000, 6)).unwrap();
        let handle = Rogue::logged_in(&fixture.address(transport)).lookup("one");
        let parted = withhold(&fixture, transport, &appending(handle));
        let other = Rogue::logged_in(&fixture.address(transport)).lookup("two");
        let parted_too = withhold(&fixture, transport, &appending(other));
        let (_client, session) = fixture.connect(transport);
        let file = session.open("/two", &OpenOptions::write()).unwrap();
        // This takes until the other clients are disconnected.
        file.append(b"more").unwrap();
        parted_too();
        let (_directory, stats) = fixture.stop();
        assert_eq!(stats.parked_requests, 1, "the one that nobody waits for");
        parted();
    }
}

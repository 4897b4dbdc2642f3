//! Interfaces that share a listener's connections, with hostile peers.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use dafs_dat::{
    AcceptGroup, Address, BreakReason, Domain, EndpointConfig, Event, Interface, InterfaceConfig,
};

use crate::crowd::{REQUEST, connect_from};
use crate::peer::HANG;

/// Returns `count` interfaces, of which the first listens.
fn group(count: u8, config: &InterfaceConfig) -> (Vec<Interface>, SocketAddr) {
    let group = Some(AcceptGroup::new());
    let config = InterfaceConfig { group, ..config.clone() };
    let member = |owner| Interface::new(InterfaceConfig { owner, ..config.clone() }).unwrap();
    let mut members: Vec<_> = (0..count).map(member).collect();
    let listener = members[0].listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
    let Some(Address::Tcp(address)) = members[0].listener_address(listener) else { panic!() };
    (members, address)
}

fn counts(members: &[Interface]) -> Vec<usize> {
    members.iter().map(Interface::endpoint_count).collect()
}

/// Polls these members until `is_so` returns true. Collects the events.
fn until(members: &mut [Interface], mut is_so: impl FnMut(&[Interface], &[Event]) -> bool) {
    let (begun, mut events) = (Instant::now(), Vec::new());
    while !is_so(members, &events) {
        for member in &mut *members {
            member.poll();
            events.extend(std::iter::from_fn(|| member.next_event()));
        }
        assert!(begun.elapsed() < HANG, "in vain: {:?}, {events:?}", counts(members));
    }
}

/// Connects and sends nothing, or half of a request.
fn silent(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let begin = |at: usize| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(&REQUEST[..at % REQUEST.len()]).unwrap();
        socket
    };
    (0..count).map(begin).collect()
}

fn is_closed(socket: &mut TcpStream) -> bool {
    socket.set_read_timeout(Some(HANG)).unwrap();
    // A reset is an end, too: not all that was sent has been read.
    !socket.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn who_says_nothing_is_spread_as_others_are_and_ends_as_they_do() {
    let connect_timeout = Duration::from_secs(2);
    let config = InterfaceConfig { connect_timeout, ..InterfaceConfig::default() };
    let (mut members, address) = group(3, &config);
    let sockets = silent(address, 60);
    // Each connection ends, and none before its deadline.
    until(&mut members, |_, events| {
        let is_over = |event: &Event| {
            matches!(event, Event::Broken { reason: BreakReason::Unreachable(_), .. })
        };
        assert!(events.iter().all(is_over), "{events:?}");
        events.len() == 60
    });
    assert_eq!(counts(&members), [20, 20, 20]);
    for mut socket in sockets {
        assert!(is_closed(&mut socket));
    }
}

#[test]
fn a_flood_of_silent_connections_keeps_nobody_out_of_a_group() {
    const ROOM: usize = 16;
    const HONEST: usize = 8;
    let config = InterfaceConfig { endpoints_max: ROOM, ..InterfaceConfig::default() };
    let (mut members, address) = group(2, &config);
    let mut flood = Vec::new();
    for _ in 0..8 {
        flood.extend(silent(address, ROOM));
        for member in &mut members {
            member.poll();
        }
    }
    let mut asked = vec![0; members.len()];
    let mut honest = Vec::new();
    for number in 1..=HONEST {
        let mut socket = connect_from([127, 0, 0, 2], address);
        socket.write_all(REQUEST).unwrap();
        honest.push(socket);
        flood.extend(silent(address, ROOM / 2));
        let begun = Instant::now();
        while asked.iter().sum::<usize>() < number {
            for (member, asked) in members.iter_mut().zip(&mut asked) {
                member.poll();
                while let Some(event) = member.next_event() {
                    let Event::ConnectionRequest { pending, .. } = event else { continue };
                    member.accept(pending, Domain(0), &EndpointConfig::default(), b"");
                    *asked += 1;
                }
                assert!(member.endpoint_count() <= ROOM);
            }
            assert!(begun.elapsed() < HANG, "{asked:?} were let in");
        }
    }
    for mut socket in honest {
        let mut reply = [0; 24];
        socket.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..16], *b"MPA ID Rep Frame");
    }
}

#[test]
fn a_member_that_never_looks_keeps_none_of_a_flood() {
    const COUNT: usize = 240;
    let (mut members, address) = group(3, &InterfaceConfig::default());
    let mut stuck = members.pop().unwrap();
    let sockets = silent(address, COUNT);
    until(&mut members, |members, _| counts(members).iter().sum::<usize>() == COUNT);
    stuck.poll();
    assert_eq!(stuck.endpoint_count(), 0, "they were taken back from it");
    drop(sockets);
    until(&mut members, |_, events| events.len() == COUNT);
}

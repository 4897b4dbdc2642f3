//! Many connections at once: some connect in a burst, some connect and send nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use dafs_dat::{Address, BreakReason, Domain, EndpointConfig, Event, Interface, InterfaceConfig};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::peer::HANG;

/// The number of simultaneous connects.
const COUNT: usize = 1000;
/// The number of descriptors that concurrent tests use.
const SPARE: usize = 1000;

/// Raises this process's limit of descriptors, if its hard limit permits that: it has both ends of
/// every connection.
fn raise_descriptor_limit(count: usize) {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = Some(count as u64);
    if limit.current.is_none() || limit.current >= wanted {
        return;
    }
    let is_enough = limit.maximum.is_none() || limit.maximum >= wanted;
    assert!(is_enough, "{count} descriptors are needed, and `ulimit -Hn` allows {limit:?}");
    limit.current = wanted;
    setrlimit(Resource::Nofile, limit).unwrap();
}

fn tell_rate(what: &str, count: usize, begun: Instant) {
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    eprintln!("{count} {what}: {rate:.0} in a second");
}

fn listening(endpoints_max: usize) -> (Interface, SocketAddr) {
    listening_as(InterfaceConfig { endpoints_max, ..InterfaceConfig::default() })
}

fn listening_as(config: InterfaceConfig) -> (Interface, SocketAddr) {
    let mut interface = Interface::new(config).unwrap();
    let listener = interface.listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
    let Some(Address::Tcp(address)) = interface.listener_address(listener) else { panic!() };
    (interface, address)
}

fn event(interface: &mut Interface) -> Event {
    loop {
        if let Some(event) = interface.next_event() {
            return event;
        }
        assert!(interface.wait(1, Some(HANG)) > 0, "nothing happens any more");
    }
}

pub(crate) const REQUEST: &[u8; 24] = b"MPA ID Req Frame\x10\x02\0\x04\0\x04\0\x04";

#[test]
fn a_storm_of_connects_is_served_to_the_last() {
    raise_descriptor_limit(2 * COUNT + SPARE);
    let (mut interface, address) = listening(16_384);
    let begun = Instant::now();
    let mut sockets: Vec<TcpStream> = (0..COUNT)
        .map(|_| {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(REQUEST).unwrap();
            socket
        })
        .collect();
    let mut established = 0;
    while established < COUNT {
        match event(&mut interface) {
            Event::ConnectionRequest { pending, .. } => {
                interface.accept(pending, Domain(0), &EndpointConfig::default(), b"");
            }
            Event::Established { .. } => established += 1,
            other => panic!("{other:?}"),
        }
    }
    tell_rate("connects", COUNT, begun);
    assert_eq!(interface.endpoint_count(), COUNT);
    for socket in &mut sockets {
        let mut reply = [0; 24];
        socket.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..16], *b"MPA ID Rep Frame");
    }
    drop(sockets);
    for _ in 0..COUNT {
        let Event::Broken { endpoint, .. } = event(&mut interface) else { panic!() };
        interface.release(endpoint);
    }
    assert_eq!(interface.endpoint_count(), 0);
}

#[test]
fn both_sides_of_a_storm_stand() {
    raise_descriptor_limit(2 * COUNT + SPARE);
    let (mut interface, address) = listening(16_384);
    let serving = std::thread::spawn(move || {
        let mut ended = 0;
        while ended < COUNT {
            match event(&mut interface) {
                Event::ConnectionRequest { pending, .. } => {
                    interface.accept(pending, Domain(0), &EndpointConfig::default(), b"");
                }
                Event::Established { .. } => {}
                Event::Broken { endpoint, .. } => {
                    interface.release(endpoint);
                    ended += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        interface.endpoint_count()
    });
    let mut storm = Interface::new(InterfaceConfig::default()).unwrap();
    let begun = Instant::now();
    for _ in 0..COUNT {
        let config = EndpointConfig::default();
        storm.connect(&Address::Tcp(address), Domain(0), &config, b"").unwrap();
    }
    for _ in 0..COUNT {
        assert!(matches!(event(&mut storm), Event::Established { .. }));
    }
    tell_rate("connects of ours", COUNT, begun);
    drop(storm);
    assert_eq!(serving.join().unwrap(), 0);
}

/// Returns connections that have each sent a different part of a request.
fn halves(address: SocketAddr) -> Vec<TcpStream> {
    let begin = |at: usize| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(&REQUEST[..at % REQUEST.len()]).unwrap();
        socket
    };
    (0..COUNT).map(begin).collect()
}

#[test]
fn a_thousand_halves_of_requests_keep_nobody_waiting() {
    raise_descriptor_limit(2 * COUNT + SPARE);
    let connect_timeout = Duration::from_secs(3600);
    let config = InterfaceConfig { connect_timeout, ..InterfaceConfig::default() };
    let (mut interface, address) = listening_as(config);
    let halves = halves(address);
    let mut honest = TcpStream::connect(address).unwrap();
    honest.write_all(REQUEST).unwrap();
    let Event::ConnectionRequest { pending, .. } = event(&mut interface) else { panic!() };
    interface.accept(pending, Domain(0), &EndpointConfig::default(), b"");
    assert!(matches!(event(&mut interface), Event::Established { .. }));
    assert_eq!(interface.endpoint_count(), COUNT + 1);
    drop(halves);
    for _ in 0..COUNT {
        let Event::Broken { endpoint, .. } = event(&mut interface) else { panic!() };
        interface.release(endpoint);
    }
    assert_eq!(interface.endpoint_count(), 1);
}

#[test]
fn a_thousand_halves_of_requests_end_when_their_time_is_over() {
    raise_descriptor_limit(2 * COUNT + SPARE);
    let connect_timeout = Duration::from_millis(500);
    let config = InterfaceConfig { connect_timeout, ..InterfaceConfig::default() };
    let (mut interface, address) = listening_as(config);
    let halves = halves(address);
    for _ in 0..COUNT {
        let Event::Broken { endpoint, reason } = event(&mut interface) else { panic!() };
        assert!(matches!(reason, BreakReason::Unreachable(_)), "{reason:?}");
        interface.release(endpoint);
    }
    assert_eq!(interface.endpoint_count(), 0);
    for mut half in halves {
        half.set_read_timeout(Some(HANG)).unwrap();
        // A reset is an end, too: not all that was sent has been read.
        let read = half.read(&mut [0]);
        assert!(!read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    }
}

/// Connects from another address of this host.
pub(crate) fn connect_from(from: [u8; 4], to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from((from, 0))).unwrap();
    connect(&socket, &to).unwrap();
    TcpStream::from(socket)
}

#[test]
fn whoever_has_most_silent_connections_gives_way_and_others_stay() {
    const ROOM: usize = 16;
    let (mut interface, address) = listening(ROOM);
    let mut first = connect_from([127, 0, 0, 2], address);
    first.write_all(&REQUEST[..7]).unwrap();
    interface.poll();
    let mut silent = Vec::new();
    for _ in 0..4 * ROOM {
        silent.push(TcpStream::connect(address).unwrap());
        interface.poll();
    }
    // The connection that has waited longest still exists.
    first.write_all(&REQUEST[7..]).unwrap();
    let Event::ConnectionRequest { pending, peer, .. } = event(&mut interface) else { panic!() };
    assert_eq!(peer.address, Address::Tcp(first.local_addr().unwrap()));
    interface.accept(pending, Domain(0), &EndpointConfig::default(), b"");
    assert!(matches!(event(&mut interface), Event::Established { .. }));
    assert!(interface.endpoint_count() <= ROOM);
}

#[test]
fn who_connects_and_says_nothing_keeps_nobody_out() {
    const ROOM: usize = 16;
    let (mut interface, address) = listening(ROOM);
    // Each sends half a request, and there are more than the limit.
    let mut silent = Vec::new();
    for at in 0..4 * ROOM {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(&REQUEST[..at % REQUEST.len()]).unwrap();
        silent.push(socket);
        interface.poll();
    }
    for _ in 0..ROOM {
        let mut honest = TcpStream::connect(address).unwrap();
        honest.write_all(REQUEST).unwrap();
        let Event::ConnectionRequest { pending, .. } = event(&mut interface) else { panic!() };
        interface.accept(pending, Domain(0), &EndpointConfig::default(), b"");
        assert!(matches!(event(&mut interface), Event::Established { .. }));
        assert!(interface.endpoint_count() <= ROOM);
        silent.push(honest);
    }
    // Established connections are not closed for a new one.
    let mut late = TcpStream::connect(address).unwrap();
    late.write_all(REQUEST).unwrap();
    for _ in 0..100 {
        interface.poll();
    }
    assert!(interface.next_event().is_none());
    assert_eq!(interface.endpoint_count(), ROOM);
}

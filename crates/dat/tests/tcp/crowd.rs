//! Many at once: who connects in a storm, and who connects and says nothing.

use std::io::Write;
use std::net::TcpStream;

use dafs_dat::{Address, Domain, EndpointConfig, Event, Interface, InterfaceConfig};

use crate::peer::HANG;

fn listening(endpoints_max: usize) -> (Interface, std::net::SocketAddr) {
    let config = InterfaceConfig { endpoints_max, ..InterfaceConfig::default() };
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

const REQUEST: &[u8; 24] = b"MPA ID Req Frame\x10\x02\0\x04\0\x04\0\x04";

#[test]
fn a_storm_of_connects_is_served_to_the_last() {
    const COUNT: usize = 400;
    let (mut interface, address) = listening(16_384);
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
    assert_eq!(interface.endpoint_count(), COUNT);
    for socket in &mut sockets {
        let mut reply = [0; 24];
        std::io::Read::read_exact(socket, &mut reply).unwrap();
        assert_eq!(reply[..16], *b"MPA ID Rep Frame");
    }
}

#[test]
fn who_connects_and_says_nothing_keeps_nobody_out() {
    const ROOM: usize = 16;
    let (mut interface, address) = listening(ROOM);
    // Half a request each, and more of them than there is room for.
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
    // Who stands is not sent away for one more.
    let mut late = TcpStream::connect(address).unwrap();
    late.write_all(REQUEST).unwrap();
    for _ in 0..100 {
        interface.poll();
    }
    assert!(interface.next_event().is_none());
    assert_eq!(interface.endpoint_count(), ROOM);
}

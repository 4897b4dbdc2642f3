//! A peer that accepts and disappears before this side can show that it is ready.

use std::io::{Read, Write};
use std::net::TcpListener;

use dafs_dat::{Address, BreakReason, Domain, EndpointConfig, Event, Interface, InterfaceConfig};
use rustix::event::{PollFd, PollFlags};

use crate::peer::HANG;

#[test]
fn a_reset_behind_the_reply_is_the_end_and_no_more() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut interface = Interface::new(InterfaceConfig::default()).unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let config = EndpointConfig::default();
    interface.connect(&address, Domain(0), &config, b"").unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    interface.poll();
    socket.read_exact(&mut [0; 24]).unwrap();
    let agreed = [0x10, 2, 0, 4, 0x80, 4, 0x80, 4];
    socket.write_all(&[&b"MPA ID Rep Frame"[..], &agreed].concat()).unwrap();
    // Closing a socket with a linger time of zero resets the connection.
    rustix::net::sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO)).unwrap();
    drop(socket);
    // The reply and the reset arrive before this side polls.
    let mut descriptors = [PollFd::from_borrowed_fd(interface.as_fd(), PollFlags::IN)];
    rustix::event::poll(&mut descriptors, None).unwrap();
    let broken = loop {
        match interface.next_event() {
            Some(Event::Broken { reason, .. }) => break reason,
            Some(Event::Established { .. }) => {}
            Some(other) => panic!("{other:?}"),
            None => assert!(interface.wait(1, Some(HANG)) > 0, "nothing happens any more"),
        }
    };
    assert_eq!(broken, BreakReason::Peer);
}

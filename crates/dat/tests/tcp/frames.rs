//! The length of frames: they fit a TCP segment, or are longer if the peer says that it accepts
//! longer ones.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Instant;

use dafs_dat::{
    Address, Domain, EndpointConfig, EndpointId, Event, Gather, Interface, InterfaceConfig,
    MpaOptions,
};

use rustix::net::{self, AddressFamily, SocketType};

use crate::peer::{HANG, write};

/// The private data of the users, besides the mark.
const WORDS: &[u8] = b"words of the user's";
const SIGN: &[u8] = b"DAFSlong";
/// The peer's TCP segment size in bytes.
static SEGMENT: i32 = 1400;
const MESSAGE: usize = 30_000;
/// The enhanced data: peer-to-peer, ready by a Write, 4 reads in each direction.
const TERMS: [u8; 4] = [0x80, 4, 0x80, 4];

/// Makes TCP use short segments.
fn shorten(socket: &impl AsRawFd) {
    // SAFETY: the option is an integer, and outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG,
            (&raw const SEGMENT).cast(),
            size_of_val(&SEGMENT) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn next(interface: &mut Interface) -> Event {
    loop {
        if let Some(event) = interface.next_event() {
            return event;
        }
        assert!(interface.wait(1, Some(HANG)) > 0, "nothing happens any more");
    }
}

/// Returns a start-up frame with this private data after the terms.
fn start_up(key: &[u8; 16], private_data: &[u8]) -> Vec<u8> {
    let data = [&TERMS[..], private_data].concat();
    [&key[..], &[0x10, 2], &(data.len() as u16).to_be_bytes(), &data].concat()
}

/// Reads a start-up frame and returns its private data.
fn private_data(socket: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; 24];
    socket.read_exact(&mut header).unwrap();
    let length = u16::from_be_bytes([header[18], header[19]]) as usize;
    let mut data = vec![0; length - TERMS.len()];
    socket.read_exact(&mut data).unwrap();
    data
}

/// Reads `length` bytes while the interface makes progress.
fn read(interface: &mut Interface, socket: &mut TcpStream, length: usize) -> Vec<u8> {
    let begun = Instant::now();
    let (mut bytes, mut have) = (vec![0; length], 0);
    socket.set_nonblocking(true).unwrap();
    while have < length {
        match socket.read(&mut bytes[have..]) {
            Ok(0) => panic!("the connection has ended"),
            Ok(more) => have += more,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        interface.poll();
        assert!(begun.elapsed() < HANG, "nothing comes any more");
    }
    bytes
}

/// Makes the interface send a message and returns the length of its longest frame in bytes.
fn longest_frame(interface: &mut Interface, endpoint: EndpointId, socket: &mut TcpStream) -> usize {
    let message = [7; MESSAGE];
    interface.post_send(endpoint, 0, &[Gather::Bytes(&message)], Default::default()).unwrap();
    interface.flush();
    let (mut longest, mut left) = (0, MESSAGE);
    while left > 0 {
        let length =
            usize::from(u16::from_be_bytes(read(interface, socket, 2).try_into().unwrap()));
        let frame = (2 + length).next_multiple_of(4) + 4;
        read(interface, socket, frame - 2);
        // The empty Write that shows readiness is not part of the message.
        left -= length.saturating_sub(18);
        longest = longest.max(frame);
    }
    longest
}

#[test]
fn whoever_accepts_sends_long_frames_to_those_who_say_that_they_take_them() {
    for sign in [SIGN, b""] {
        let mut interface = Interface::new(InterfaceConfig::default()).unwrap();
        let listener = interface.listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
        let Some(Address::Tcp(address)) = interface.listener_address(listener) else { panic!() };
        let mut socket = connect_shortened(address);
        let request = start_up(b"MPA ID Req Frame", &[WORDS, sign].concat());
        socket.write_all(&request).unwrap();
        let Event::ConnectionRequest { pending, private_data: told, .. } = next(&mut interface)
        else {
            panic!()
        };
        assert_eq!(*told, *WORDS);
        let config = EndpointConfig { message_bytes_max: 1 << 16, ..EndpointConfig::default() };
        let endpoint = interface.accept(pending, Domain(0), &config, WORDS);
        assert_eq!(private_data(&mut socket), [WORDS, sign].concat());
        assert!(matches!(next(&mut interface), Event::Established { .. }));
        socket.write_all(&write(0, 0, &[], true)).unwrap();
        let longest = longest_frame(&mut interface, endpoint, &mut socket);
        assert_eq!(longest > SEGMENT as usize, !sign.is_empty(), "{longest}");
    }
}

#[test]
fn whoever_connects_sends_long_frames_to_those_who_answer_that_they_take_them() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    shorten(&listener);
    let address = Address::Tcp(listener.local_addr().unwrap());
    for (asks, answer) in [(true, SIGN), (true, b"".as_slice()), (false, SIGN), (false, b"")] {
        let mut interface = Interface::new(InterfaceConfig::default()).unwrap();
        let mpa = MpaOptions { long_frames: asks, ..MpaOptions::default() };
        let config = EndpointConfig { mpa, ..EndpointConfig::default() };
        let endpoint = interface.connect(&address, Domain(0), &config, WORDS).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        interface.poll();
        let asked = if asks { SIGN } else { b"" };
        assert_eq!(private_data(&mut socket), [WORDS, asked].concat());
        let reply = start_up(b"MPA ID Rep Frame", &[WORDS, answer].concat());
        socket.write_all(&reply).unwrap();
        let Event::Established { private_data: told, .. } = next(&mut interface) else { panic!() };
        // A side that has not sent the mark does not interpret the peer's.
        let heard = if asks { b"" } else { answer };
        assert_eq!(*told, *[WORDS, heard].concat());
        let longest = longest_frame(&mut interface, endpoint, &mut socket);
        assert_eq!(longest > SEGMENT as usize, asks && !answer.is_empty(), "{longest}");
    }
}

/// Returns a connected socket with short segments, which its first segment tells the peer.
fn connect_shortened(address: SocketAddr) -> TcpStream {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    shorten(&socket);
    net::connect(&socket, &address).unwrap();
    socket.into()
}

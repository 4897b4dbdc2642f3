//! TCP implemented by hand: MPA start-up frames and FPDUs, byte by byte.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use dafs_dat::Address;
use dafs_types::Status;
use dafs_wire::messages::SessionOptions;
use rustix::net;

use crate::fixture::HANG;
use crate::rogue::{connect_data, encoded, login_as, status_of};

/// The number of bytes before the body of an untagged segment.
const UNTAGGED_HEADER: usize = 18;

/// A plain socket to the server.
pub(crate) struct Wire {
    socket: TcpStream,
    crc: bool,
    /// The number of the next message.
    sequence: u32,
}

impl Wire {
    pub(crate) fn open(address: &Address) -> Self {
        Self::open_from(address, Ipv4Addr::LOCALHOST)
    }

    /// Connects from another address of this host.
    pub(crate) fn open_from(address: &Address, source: Ipv4Addr) -> Self {
        let Address::Tcp(address) = address else { panic!("{address} is no TCP address") };
        let socket = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None).unwrap();
        net::bind(&socket, &SocketAddr::from((source, 0))).unwrap();
        net::connect(&socket, address).unwrap();
        let socket = TcpStream::from(socket);
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(HANG)).unwrap();
        socket.set_write_timeout(Some(HANG)).unwrap();
        Self { socket, crc: false, sequence: 1 }
    }

    /// Connects an established stream. Each side may have `depth` reads open.
    pub(crate) fn connect(address: &Address, crc: bool) -> Self {
        Self::open(address).stand(crc)
    }

    /// Establishes a stream.
    pub(crate) fn stand(self, crc: bool) -> Self {
        Self { crc, ..self }.try_stand().expect("accepted")
    }

    /// Does the same; returns `None` if it is refused.
    pub(crate) fn try_stand(self) -> Option<Self> {
        let mut wire = self;
        let crc = wire.crc;
        wire.send(&request(if crc { 0x50 } else { 0x10 }, 2, &enhanced(DEPTH, &connect_data())));
        let reply = wire.receive(20).expect("a reply");
        assert_eq!(&reply[..16], b"MPA ID Rep Frame");
        let length = usize::from(u16::from_be_bytes([reply[18], reply[19]]));
        wire.receive(length).expect("private data");
        (reply[16] & 0x20 == 0).then_some(wire)
    }

    pub(crate) fn logged_in(address: &Address, crc: bool) -> Self {
        let mut wire = Self::connect(address, crc);
        let login = login_as(b"wire", SessionOptions::default());
        assert_eq!(wire.ask(&encoded(0, 0, &login)), Status::Ok);
        wire
    }

    /// Sends a request and returns the status in its reply.
    pub(crate) fn ask(&mut self, request: &[u8]) -> Status {
        self.message(request);
        let (answer, _) = self.frame().expect("an answer");
        assert_eq!(answer[1] & 0xf, 3, "a Send");
        status_of(&answer[UNTAGGED_HEADER..])
    }

    /// Sends bytes. A server that has closed the stream already ignores them.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    fn receive(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        let read = self.socket.read_exact(&mut bytes);
        self.said_something(&read);
        read.ok().map(|()| bytes)
    }

    /// Returns the next frame's DDP segment and its trailer.
    pub(crate) fn frame(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let length = usize::from(u16::from_be_bytes(self.receive(2)?.try_into().unwrap()));
        let segment = self.receive(length)?;
        let pad = (4 - (length + 2) % 4) % 4;
        Some((segment, self.receive(pad + 4)?))
    }

    /// Sends a valid message.
    pub(crate) fn message(&mut self, body: &[u8]) {
        let segment = untagged(0x41, 0x43, 0, self.sequence, 0, body);
        self.sequence += 1;
        self.segment(&segment);
    }

    /// Sends a DDP segment in a complete frame.
    pub(crate) fn segment(&mut self, segment: &[u8]) {
        let frame = fpdu(segment, self.crc);
        self.send(&frame);
    }

    /// Sends the data that the server has requested, as a segment that is not a read response.
    pub(crate) fn deliver(&mut self, asked: &[u8], bytes: &[u8]) {
        self.segment(&delivery(asked, bytes));
    }

    /// Does the same, with a message that arrives at the same time.
    pub(crate) fn deliver_and_send(&mut self, asked: &[u8], bytes: &[u8], body: &[u8]) {
        let message = untagged(0x41, 0x43, 0, self.sequence, 0, body);
        self.sequence += 1;
        let frames = [delivery(asked, bytes), message].map(|segment| fpdu(&segment, self.crc));
        self.send(&frames.concat());
    }

    /// True if the server has sent something that was not read yet, or has ended the stream.
    pub(crate) fn has_heard(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let peeked = self.socket.peek(&mut [0]);
        self.socket.set_nonblocking(false).unwrap();
        !peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Waits for the end of the connection. Returns the preceding Terminate, if there was one:
    /// layer, type and code.
    pub(crate) fn ends(mut self) -> Option<(u8, u8, u8)> {
        let mut terminate = None;
        while let Some((segment, _)) = self.frame() {
            if segment[1] & 0xf == 7 {
                let control = &segment[18..];
                terminate = Some((control[0] >> 4, control[0] & 0xf, control[1]));
            }
        }
        terminate
    }

    /// Waits for the end of a stream that was never established.
    pub(crate) fn closes(mut self) {
        let mut rest = Vec::new();
        // A reset is also an end.
        let read = self.socket.read_to_end(&mut rest);
        self.said_something(&read);
    }

    /// Fails if the server stayed silent until the guard against hanging.
    fn said_something<T>(&self, read: &std::io::Result<T>) {
        let stays = read.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!stays, "the server says nothing and stays: {:?}", self.socket);
    }
}

/// Encodes a start-up request frame.
pub(crate) fn request(flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    start_up(b"MPA ID Req Frame", flags, revision, private_data)
}

/// Encodes any start-up frame.
pub(crate) fn start_up(key: &[u8; 16], flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    let mut frame = key.to_vec();
    frame.extend_from_slice(&[flags, revision]);
    frame.extend_from_slice(&(private_data.len() as u16).to_be_bytes());
    frame.extend_from_slice(private_data);
    frame
}

/// Puts the read depths of both directions before private data, client-server mode.
pub(crate) fn enhanced(depth: u16, private_data: &[u8]) -> Vec<u8> {
    [&depth.to_be_bytes(), &depth.to_be_bytes(), private_data].concat()
}

/// Encodes an untagged segment.
pub(crate) fn untagged(
    ddp: u8,
    rdmap: u8,
    queue: u32,
    sequence: u32,
    offset: u32,
    body: &[u8],
) -> Vec<u8> {
    let mut segment = vec![ddp, rdmap, 0, 0, 0, 0];
    for word in [queue, sequence, offset] {
        segment.extend_from_slice(&word.to_be_bytes());
    }
    segment.extend_from_slice(body);
    segment
}

/// Encodes a tagged segment.
pub(crate) fn tagged(ddp: u8, rdmap: u8, stag: u32, offset: u64, body: &[u8]) -> Vec<u8> {
    let mut segment = vec![ddp, rdmap];
    segment.extend_from_slice(&stag.to_be_bytes());
    segment.extend_from_slice(&offset.to_be_bytes());
    segment.extend_from_slice(body);
    segment
}

/// Encodes a complete frame around a segment.
pub(crate) fn fpdu(segment: &[u8], crc: bool) -> Vec<u8> {
    let mut frame = (segment.len() as u16).to_be_bytes().to_vec();
    frame.extend_from_slice(segment);
    frame.resize(frame.len().next_multiple_of(4), 0);
    let checksum = if crc { dafs_iwarp::checksum_of(&frame) } else { [0; 4] };
    frame.extend_from_slice(&checksum);
    frame
}

/// The number of reads that each side may have open.
pub(crate) const DEPTH: u16 = 4;

/// Encodes the data that the server has requested, as a segment that is not a read response.
fn delivery(asked: &[u8], bytes: &[u8]) -> Vec<u8> {
    assert_eq!(asked[1] & 0xf, 1, "the server asks for something");
    let sink = &asked[UNTAGGED_HEADER..];
    let stag = u32::from_be_bytes(sink[..4].try_into().unwrap());
    let offset = u64::from_be_bytes(sink[4..12].try_into().unwrap());
    tagged(0xc1, 0x42, stag, offset, bytes)
}

//! A peer implemented by hand over a plain socket, and the interface under test.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use dafs_dat::{
    Address, Domain, EndpointConfig, EndpointId, Event, Forecast, Interface, InterfaceConfig,
    Operation, Region, Rights,
};
use dafs_memory::{Memory, Pages};

/// An interface with one endpoint, memory that its peer may write, and the peer's socket.
pub(crate) struct Scene {
    pub interface: Interface,
    pub endpoint: EndpointId,
    pub memory: Memory,
    pub region: Region,
    inbox_region: Region,
    pub socket: TcpStream,
}

impl Scene {
    pub(crate) fn new(config: InterfaceConfig, memory_bytes: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut interface = Interface::new(config).unwrap();
        let memory = Memory::anonymous(memory_bytes, Pages::Small).unwrap();
        let region = interface.register(&memory, Domain(0), Rights::REMOTE).unwrap();
        let inbox = Memory::anonymous(INBOX_BYTES as usize, Pages::Small).unwrap();
        let inbox_region = interface.register(&inbox, Domain(0), Rights::LOCAL).unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        let config = EndpointConfig::default();
        let endpoint = interface.connect(&address, Domain(0), &config, b"").unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        // The request and reply: peer-to-peer, ready by a Write, 4 reads in each direction.
        interface.poll();
        socket.read_exact(&mut [0; 24]).unwrap();
        let agreed = [0x10, 2, 0, 4, 0x80, 4, 0x80, 4];
        socket.write_all(&[&b"MPA ID Rep Frame"[..], &agreed].concat()).unwrap();
        let mut scene = Self { interface, endpoint, memory, region, inbox_region, socket };
        assert!(matches!(scene.next(), Event::Established { .. }));
        scene
    }

    pub(crate) fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.interface.next_event() {
                return event;
            }
            assert!(self.interface.wait(1, Some(HANG)) > 0, "nothing happens any more");
        }
    }

    /// Checks that the next event is the arrival of a message of this length.
    pub(crate) fn assert_received(&mut self, length: u32) {
        let event = self.next();
        let received = matches!(&event, Event::Completion(done)
            if done.operation == Operation::Receive && done.length == length);
        assert!(received, "{event:?}");
    }

    /// Posts a receive.
    pub(crate) fn receive(&mut self) {
        let segment = self.inbox_region.local(0, INBOX_BYTES);
        self.interface.post_receive(self.endpoint, 0, &[segment]).unwrap();
    }

    /// Posts a receive and announces a write of `length` bytes at `offset` of the memory, and a
    /// message like [`ANSWER`] after it.
    pub(crate) fn expect(&mut self, offset: usize, length: u32) {
        self.receive();
        let target = self.region.remote(offset as u64, length);
        let writes = [target];
        let forecast = Forecast::answer(&writes, ANSWER.len() as u32);
        self.interface.expect(self.endpoint, &forecast);
    }

    /// Returns the frames of a write of `bytes` at `offset` of the memory, each with at most `size`
    /// bytes of payload.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8], size: usize) -> Vec<u8> {
        let mut stream = Vec::new();
        for (index, payload) in bytes.chunks(size).enumerate() {
            let at = index * size;
            let address = self.region.address + (offset + at) as u64;
            let last = at + size >= bytes.len();
            stream.extend(write(self.region.stag.0, address, payload, last));
        }
        stream
    }
}

fn fpdu(segment: &[u8]) -> Vec<u8> {
    let mut frame = (segment.len() as u16).to_be_bytes().to_vec();
    frame.extend_from_slice(segment);
    frame.resize(frame.len().next_multiple_of(4) + 4, 0);
    frame
}

pub(crate) fn write(stag: u32, address: u64, payload: &[u8], last: bool) -> Vec<u8> {
    let mut segment = vec![if last { 0xc1 } else { 0x81 }, 0x40];
    segment.extend_from_slice(&stag.to_be_bytes());
    segment.extend_from_slice(&address.to_be_bytes());
    segment.extend_from_slice(payload);
    fpdu(&segment)
}

pub(crate) fn send(sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut segment = vec![0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0];
    segment.extend_from_slice(&sequence.to_be_bytes());
    segment.extend_from_slice(&[0; 4]);
    segment.extend_from_slice(payload);
    fpdu(&segment)
}

/// The contents of an expected reply.
pub(crate) const ANSWER: &[u8] = b"ok!";
const INBOX_BYTES: u32 = 4096;
/// A limit that only detects hanging. No test depends on time.
pub(crate) const HANG: Duration = Duration::from_secs(30);

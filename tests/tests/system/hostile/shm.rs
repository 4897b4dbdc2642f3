//! Shared memory spoken by hand: the control socket's packets and the rings' words as
//! `dafs_dat::shm` lays them out, without its manners.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use dafs_dat::Address;
use dafs_memory::{Memory, Pages};
use dafs_wire::messages::SessionOptions;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::fixture::{HANG, await_that};
use crate::rogue::{connect_data, encoded, login_as};

/// Bytes of frames in each direction of a good ring.
pub const CAPACITY: usize = 64 << 10;
/// Bytes of a good ring's memory.
pub const RING_BYTES: usize = FRAMES + 2 * CAPACITY;
/// Where the frames begin, the initiator's first.
pub const FRAMES: usize = 1024;
/// Words of the direction from the acceptor to the initiator.
pub const BACK: usize = 512;

/// A connected control socket.
pub struct Control(OwnedFd);

impl Control {
    pub fn connect(address: &Address) -> Self {
        let Address::Shm(path) = address else { panic!("{address} is no socket") };
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, direction, Some(HANG)).unwrap();
        }
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Self(socket)
    }

    /// The same socket once more.
    pub fn duplicate(&self) -> Self {
        Self(self.0.try_clone().unwrap())
    }

    /// Sends a packet; a server that has closed already takes none.
    pub fn send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let slices = [std::io::IoSlice::new(packet)];
        let _ = rustix::net::sendmsg(&self.0, &slices, &mut control, SendFlags::NOSIGNAL);
    }

    /// The next packet with its descriptors; `None` at the end.
    pub fn receive(&self) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let mut buffer = [0; 2048];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [std::io::IoSliceMut::new(&mut buffer)];
        let received = rustix::net::recvmsg(&self.0, slices, &mut control, RecvFlags::empty());
        let stays = received.as_ref().is_err_and(|error| *error == rustix::io::Errno::AGAIN);
        assert!(!stays, "the server says nothing and stays");
        // A connection that is reset has ended, too.
        let length = received.map_or(0, |received| received.bytes);
        let fds = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            })
            .flatten()
            .collect();
        (length > 0).then(|| (buffer[..length].to_vec(), fds))
    }

    /// Waits for the server to end the connection.
    pub fn ends(&self) {
        while self.receive().is_some() {}
    }

    /// The same, and why it has, as it says itself.
    pub fn ends_because(&self) -> String {
        let said = std::iter::from_fn(|| self.receive()).map(|(packet, _)| packet);
        let said = said.filter(|packet| packet[0] == TERMINATE).last().unwrap_or_default();
        String::from_utf8_lossy(said.get(1..).unwrap_or_default()).into_owned()
    }
}

/// The packet that says why the connection ends.
const TERMINATE: u8 = 6;

/// The initiator's first packet.
pub fn hello(capacity: u32) -> Vec<u8> {
    let mut packet = b"\x01DATSHM\x00\x03".to_vec();
    packet.extend_from_slice(&capacity.to_le_bytes());
    // No word that anybody could read: everything is to go by files and rings.
    packet.extend_from_slice(&[0; 16]);
    packet.extend_from_slice(&connect_data());
    packet
}

/// A packet that announces a region with both rights.
pub fn expose(stag: u32, address: u64, length: u64) -> Vec<u8> {
    let mut packet = vec![4, 3];
    packet.extend_from_slice(&stag.to_le_bytes());
    packet.extend_from_slice(&address.to_le_bytes());
    packet.extend_from_slice(&length.to_le_bytes());
    packet
}

/// A connection that stands, its rings in the test's own hands.
pub struct Rings {
    pub control: Control,
    pub memory: Memory,
    /// What is written to wake the server, and what wakes us.
    pub wakes: [OwnedFd; 2],
    tail: usize,
}

impl Rings {
    pub fn connect(address: &Address) -> Self {
        let control = Control::connect(address);
        let memory = Memory::shared(RING_BYTES, Pages::Small).unwrap();
        control.send(&hello(CAPACITY as u32), &[memory.file().unwrap()]);
        let (packet, fds) = control.receive().expect("an answer");
        assert_eq!(packet[0], 2, "accepted");
        let wakes = fds.try_into().expect("two descriptors");
        Self { control, memory, wakes, tail: 0 }
    }

    /// A session that has logged in through its ring.
    pub fn logged_in(address: &Address) -> Self {
        let mut rings = Self::connect(address);
        let login = login_as(b"rings", SessionOptions::default());
        rings.message(&encoded(0, 0, &login));
        rings.await_answers(1);
        rings
    }

    /// Puts one frame into the ring; it takes `size` bytes. Nobody is woken.
    pub fn put_frame(&mut self, kind: u64, length: u64, word: u64, body: &[u8], size: usize) {
        let at = FRAMES + self.position();
        self.memory.write(at + 8, body);
        let bits = kind | self.lap() << 4 | length << 12 | word << 32;
        self.memory.write(at, &bits.to_le_bytes());
        self.tail += size.next_multiple_of(64);
    }

    /// The same, and wakes the server.
    pub fn frame(&mut self, kind: u64, length: u64, word: u64, body: &[u8], size: usize) {
        self.put_frame(kind, length, word, body, size);
        self.wake();
    }

    /// A message in good order; nobody is woken.
    pub fn put_message(&mut self, body: &[u8]) {
        self.put_frame(1, body.len() as u64, 0, body, body.len() + 8);
    }

    /// The same, and wakes the server.
    pub fn message(&mut self, body: &[u8]) {
        self.put_message(body);
        self.wake();
    }

    /// A marker that says: on to the beginning of the ring.
    pub fn put_wrap(&mut self) {
        let left = CAPACITY - self.position();
        self.put_frame(6, 0, 0, &[], left);
    }

    /// A header of any bits where the next is expected.
    pub fn header(&mut self, bits: u64) {
        self.memory.write(FRAMES + self.position(), &bits.to_le_bytes());
        self.wake();
    }

    /// Where in the ring the next frame begins.
    pub fn position(&self) -> usize {
        self.tail % CAPACITY
    }

    /// The number of the present lap, as headers carry it.
    pub fn lap(&self) -> u64 {
        (self.tail / CAPACITY + 1) as u64 & 0xff
    }

    pub fn wake(&self) {
        let _ = rustix::io::write(&self.wakes[0], &1u64.to_ne_bytes());
    }

    /// Waits until the server has put so many frames into its ring since the beginning.
    pub fn await_answers(&self, count: usize) {
        await_that("the server answers", || self.answers() >= count);
    }

    /// Frames in the server's ring, which has not come to its end.
    fn answers(&self) -> usize {
        let (mut at, mut count) = (0, 0);
        loop {
            let header = self.memory.to_vec(FRAMES + CAPACITY + at, 8);
            let bits = u64::from_ne_bytes(header.try_into().unwrap());
            let length = match bits & 0xf {
                0 => return count,
                // A difference from the message before takes one line, however long.
                5 => 56,
                _ => (bits >> 12) as usize & 0xf_ffff,
            };
            at += (length + 8).next_multiple_of(64);
            count += 1;
        }
    }

    /// Waits until the server has announced so many answers since the beginning, however
    /// often its ring was read to its end.
    pub fn await_announced(&self, count: u64) {
        await_that("the server announces an answer", || self.word(BACK + 256) >= count);
    }

    /// Gives the server `bytes` of its ring back, counted from the beginning.
    pub fn give_back(&self, bytes: u64) {
        self.set_word(BACK, bytes);
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.memory.to_vec(at, 8).try_into().unwrap())
    }

    /// A word of the shared control block.
    pub fn set_word(&self, at: usize, value: u64) {
        self.memory.write(at, &value.to_ne_bytes());
    }

    pub fn ends(&self) {
        self.control.ends();
    }
}

/// A memory file with these seals.
pub fn memory_file(length: u64, seals: rustix::fs::SealFlags) -> OwnedFd {
    use rustix::fs::MemfdFlags;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("rogue", flags).unwrap();
    rustix::fs::ftruncate(&file, length).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

/// Borrows for a packet.
pub fn borrowed(files: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    files.iter().map(AsFd::as_fd).collect()
}

//! Shared memory implemented by hand: the packets of the control socket and the words of the rings
//! as `dafs_dat::shm` defines them, without its checks.

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

/// The bytes of frames in each direction of a valid ring.
pub(super) const CAPACITY: usize = 64 << 10;
/// The bytes of a valid ring's memory.
pub(super) const RING_BYTES: usize = FRAMES + 2 * CAPACITY;
/// The offset of the frames. Those of the initiator come first.
pub(super) const FRAMES: usize = 1024;
/// The offset of the words for the direction from the acceptor to the initiator.
pub(super) const BACK: usize = 512;

/// A connected control socket.
pub(super) struct Control(OwnedFd);

impl Control {
    pub(super) fn connect(address: &Address) -> Self {
        let Address::Shm(path) = address else { panic!("{address} is no socket") };
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, direction, Some(HANG)).unwrap();
        }
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Self(socket)
    }

    /// Duplicates the socket.
    pub(super) fn duplicate(&self) -> Self {
        Self(self.0.try_clone().unwrap())
    }

    /// Sends a packet. A server that has closed the socket already ignores it.
    pub(super) fn send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let slices = [std::io::IoSlice::new(packet)];
        let _ = rustix::net::sendmsg(&self.0, &slices, &mut control, SendFlags::NOSIGNAL);
    }

    /// Returns the next packet with its descriptors; `None` at the end.
    pub(super) fn receive(&self) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let mut buffer = [0; 2048];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [std::io::IoSliceMut::new(&mut buffer)];
        let received = rustix::net::recvmsg(&self.0, slices, &mut control, RecvFlags::empty());
        let stays = received.as_ref().is_err_and(|error| *error == rustix::io::Errno::AGAIN);
        assert!(!stays, "the server says nothing and stays");
        // A reset also ends the connection.
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
    pub(super) fn ends(&self) {
        while self.receive().is_some() {}
    }

    /// Does the same and returns the reason that the server gives.
    pub(super) fn ends_because(&self) -> String {
        let said = std::iter::from_fn(|| self.receive()).map(|(packet, _)| packet);
        let said = said.filter(|packet| packet[0] == TERMINATE).last().unwrap_or_default();
        String::from_utf8_lossy(said.get(1..).unwrap_or_default()).into_owned()
    }
}

/// The packet with the reason for the end of the connection.
const TERMINATE: u8 = 6;

/// Encodes the initiator's first packet.
pub(super) fn hello(capacity: u32) -> Vec<u8> {
    let mut packet = b"\x01DATSHM\x00\x03".to_vec();
    packet.extend_from_slice(&capacity.to_le_bytes());
    // No access to this process's memory: all data must go through files and rings.
    packet.extend_from_slice(&[0; 16]);
    packet.extend_from_slice(&connect_data());
    packet
}

/// Encodes a packet that announces a region with both rights.
pub(super) fn expose(stag: u32, address: u64, length: u64) -> Vec<u8> {
    let mut packet = vec![4, 3];
    packet.extend_from_slice(&stag.to_le_bytes());
    packet.extend_from_slice(&address.to_le_bytes());
    packet.extend_from_slice(&length.to_le_bytes());
    packet
}

/// An established connection whose rings the test controls.
pub(super) struct Rings {
    pub control: Control,
    pub memory: Memory,
    /// The descriptors that wake the server and this side.
    pub wakes: [OwnedFd; 2],
    tail: usize,
}

impl Rings {
    pub(super) fn connect(address: &Address) -> Self {
        let control = Control::connect(address);
        let memory = Memory::shared(RING_BYTES, Pages::Small).unwrap();
        control.send(&hello(CAPACITY as u32), &[memory.file().unwrap()]);
        let (packet, fds) = control.receive().expect("an answer");
        assert_eq!(packet[0], 2, "accepted");
        let wakes = fds.try_into().expect("two descriptors");
        Self { control, memory, wakes, tail: 0 }
    }

    /// Starts a session that has logged in through its ring.
    pub(super) fn logged_in(address: &Address) -> Self {
        let mut rings = Self::connect(address);
        let login = login_as(b"rings", SessionOptions::default());
        rings.message(&encoded(0, 0, &login));
        rings.await_answers(1);
        rings
    }

    /// Puts a frame of `size` bytes into the ring without waking the server.
    pub(super) fn put_frame(
        &mut self,
        kind: u64,
        length: u64,
        word: u64,
        body: &[u8],
        size: usize,
    ) {
        let at = FRAMES + self.position();
        self.memory.write(at + 8, body);
        let bits = kind | self.lap() << 4 | length << 12 | word << 32;
        self.memory.write(at, &bits.to_le_bytes());
        self.tail += size.next_multiple_of(64);
    }

    /// Does the same and wakes the server.
    pub(super) fn frame(&mut self, kind: u64, length: u64, word: u64, body: &[u8], size: usize) {
        self.put_frame(kind, length, word, body, size);
        self.wake();
    }

    /// Puts a valid message into the ring without waking the server.
    pub(super) fn put_message(&mut self, body: &[u8]) {
        self.put_frame(1, body.len() as u64, 0, body, body.len() + 8);
    }

    /// Does the same and wakes the server.
    pub(super) fn message(&mut self, body: &[u8]) {
        self.put_message(body);
        self.wake();
    }

    /// Puts a marker that continues at the beginning of the ring.
    pub(super) fn put_wrap(&mut self) {
        let left = CAPACITY - self.position();
        self.put_frame(6, 0, 0, &[], left);
    }

    /// Writes a header of any bits at the next position.
    pub(super) fn header(&mut self, bits: u64) {
        self.memory.write(FRAMES + self.position(), &bits.to_le_bytes());
        self.wake();
    }

    /// Returns the position of the next frame in the ring.
    pub(super) fn position(&self) -> usize {
        self.tail % CAPACITY
    }

    /// Returns the number of the current lap as it is in headers.
    pub(super) fn lap(&self) -> u64 {
        (self.tail / CAPACITY + 1) as u64 & 0xff
    }

    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.wakes[0], &1u64.to_ne_bytes());
    }

    /// Waits until the server has put this many frames into its ring since the beginning.
    pub(super) fn await_answers(&self, count: usize) {
        await_that("the server answers", || self.answers() >= count);
    }

    /// Returns the number of frames in the server's ring before its first wrap.
    fn answers(&self) -> usize {
        let (mut at, mut count) = (0, 0);
        loop {
            let header = self.memory.to_vec(FRAMES + CAPACITY + at, 8);
            let bits = u64::from_ne_bytes(header.try_into().unwrap());
            let length = match bits & 0xf {
                0 => return count,
                // A difference from the previous message takes one line, however long it is.
                5 => 56,
                _ => (bits >> 12) as usize & 0xf_ffff,
            };
            at += (length + 8).next_multiple_of(64);
            count += 1;
        }
    }

    /// Waits until the server has announced this many replies since the beginning, however often
    /// its ring has wrapped.
    pub(super) fn await_announced(&self, count: u64) {
        await_that("the server announces an answer", || self.word(BACK + 256) >= count);
    }

    /// Releases `bytes` of the server's ring, counted from the beginning.
    pub(super) fn give_back(&self, bytes: u64) {
        self.set_word(BACK, bytes);
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.memory.to_vec(at, 8).try_into().unwrap())
    }

    /// Sets a word of the shared control block.
    pub(super) fn set_word(&self, at: usize, value: u64) {
        self.memory.write(at, &value.to_ne_bytes());
    }

    pub(super) fn ends(&self) {
        self.control.ends();
    }
}

/// Makes a memory file with these seals.
pub(super) fn memory_file(length: u64, seals: rustix::fs::SealFlags) -> OwnedFd {
    use rustix::fs::MemfdFlags;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("rogue", flags).unwrap();
    rustix::fs::ftruncate(&file, length).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

/// Borrows descriptors for a packet.
pub(super) fn borrowed(files: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    files.iter().map(AsFd::as_fd).collect()
}

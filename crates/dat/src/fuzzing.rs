//! The bodies of the fuzz targets, shared with the tests that replay their corpora. Not part of
//! the public interface.
//!
//! Invariant: every body accepts any bytes, and panics only if a provider broke a guarantee.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use dafs_iwarp::FpduShape;
use dafs_memory::{Memory, Pages};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::{
    BreakReason, CompletionStatus, Domain, EndpointConfig, Event, Forecast, Interface,
    InterfaceConfig, ListenerId, LocalSegment, Operation, Region, Rights, tcp,
};

/// Fuzzes the parsing of a connection's shared memory, which a hostile process could write.
pub fn shm_control(data: &[u8]) {
    crate::shm::fuzzing::control(data);
}

/// Fuzzes a TCP stream with any bytes after a valid start-up. The bytes must have the same effect
/// in two cases: if they arrive in one piece at a receiver that expects other data, and if they
/// arrive in several pieces at a receiver that expects nothing. Byte 0 selects options, byte 1 the
/// size of the pieces, byte 2 the expected data.
pub fn tcp_receive(data: &[u8]) {
    let Some((&[mode, cut, foretold], bytes)) = data.split_first_chunk() else { return };
    let crc = mode & 1 != 0;
    let bytes = bytes[..bytes.len().min(BYTES_MAX)].to_vec();
    let sound = mode & 2 != 0;
    let at_once = Stream::new(crc, sound).run(&bytes, usize::MAX, Some(foretold));
    let piecewise = Stream::new(crc, sound).run(&bytes, usize::from(cut).max(1), None);
    assert_eq!(at_once.is_violated, piecewise.is_violated);
    assert_eq!(at_once.messages, piecewise.messages);
    if !at_once.is_violated {
        // Memory of an expected write that did not arrive may contain anything, because the
        // receiver may have placed other bytes there.
        let start = foretold_bytes(foretold);
        assert!(at_once.memory[start..] == piecewise.memory[start..], "bytes have gone astray");
    }
}

/// Fuzzes a stream of records with any bytes. The records must not depend on the pieces in which
/// the stream arrives. Byte 0 is the size of the pieces.
pub fn records(data: &[u8]) {
    crate::records::fuzzing::stream(data);
}

/// Returns the number of bytes at the start of the exposed memory that expected writes cover.
fn foretold_bytes(foretold: u8) -> usize {
    usize::from(foretold % 8) * 64
}

/// The effect of a stream on a receiver.
struct Outcome {
    /// The contents of the messages whose receives completed.
    messages: Vec<Vec<u8>>,
    /// The memory that the peer was allowed to write.
    memory: Vec<u8>,
    is_violated: bool,
}

/// An acceptor with posted receives and exposed memory, and the peer's end of its socket.
struct Stream {
    interface: Interface,
    peer: OwnedFd,
    inbox: Memory,
    inbox_region: Region,
    exposed: Memory,
    exposed_region: Region,
    outcome: Outcome,
    is_broken: bool,
    /// True if each frame is sent with a correct checksum.
    sound: bool,
}

impl Stream {
    fn new(crc: bool, sound: bool) -> Self {
        let mut interface = Interface::new(InterfaceConfig::default()).expect("an interface");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (peer, own) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
                .expect("a pair of sockets");
        let anywhere = ([127, 0, 0, 1], 1).into();
        let deadline = Instant::now() + Duration::from_secs(60);
        let connection = tcp::Connection::inbound(own, ListenerId::FIRST, anywhere, None, deadline);
        let memory = || Memory::anonymous(MEMORY_BYTES, Pages::Small).expect("a little memory");
        let (inbox, exposed) = (memory(), memory());
        let exposed_region = interface.register(&exposed, Domain(0), Rights::REMOTE);
        let inbox_region = interface.register(&inbox, Domain(0), Rights::LOCAL);
        interface.adopt(Box::new(connection));
        let outcome = Outcome { messages: Vec::new(), memory: Vec::new(), is_violated: false };
        let mut stream = Self {
            interface,
            peer,
            inbox,
            inbox_region: inbox_region.expect("a free slot"),
            exposed,
            exposed_region: exposed_region.expect("a free slot"),
            outcome,
            is_broken: false,
            sound,
        };
        let flags = if crc { 0x40 } else { 0 };
        let mut request = b"MPA ID Req Frame".to_vec();
        request.extend_from_slice(&[flags, 1, 0, 0]);
        stream.feed(&request);
        stream
    }

    fn run(mut self, bytes: &[u8], cut: usize, foretold: Option<u8>) -> Outcome {
        // The receiver reads directly into the expected memory. The data may differ from the
        // expectation or never arrive.
        let endpoint = crate::EndpointId::first(0, 0);
        for index in 0..u32::from(foretold.unwrap_or(0) % 8) {
            let write = self.exposed_region.remote(u64::from(index) * 64, 48 + index);
            let message = u32::from(foretold.unwrap_or(0));
            // Some messages come between others, as in a chain.
            let (before, behind) = (message * (index % 2 * 2), index % 3);
            let forecast = Forecast { before, writes: &[write], message, behind };
            self.interface.expect(endpoint, &forecast);
        }
        let bytes = self.located(bytes);
        for piece in bytes.chunks(cut.min(BYTES_MAX)) {
            self.feed(piece);
        }
        let _ = rustix::net::shutdown(&self.peer, rustix::net::Shutdown::Write);
        for _ in 0..TURNS_MAX {
            self.turn();
        }
        assert!(self.is_broken, "the end of the stream was not seen");
        self.outcome.memory = self.exposed.to_vec(0, MEMORY_BYTES);
        self.outcome
    }

    /// Returns the stream with the address of the exposed region written into each whole frame
    /// that names the region. The address differs from run to run.
    fn located(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let mut rest = bytes.as_mut_slice();
        while let Some(shape) = FpduShape::peek(rest) {
            let total = shape.total_length();
            if rest.len() < total {
                break;
            }
            let (frame, behind) = rest.split_at_mut(total);
            if let [_, _, ddp, _, stag @ ..] = &mut *frame
                && *ddp & 0x80 != 0
                && let Some((stag, to)) = stag.split_first_chunk_mut::<4>()
                && let Some((to, _)) = to.split_first_chunk_mut::<8>()
                && u32::from_be_bytes(*stag) == self.exposed_region.stag.0
            {
                let offset = u64::from_be_bytes(*to) % (2 * MEMORY_BYTES as u64);
                *to = (self.exposed_region.address + offset).to_be_bytes();
            }
            if self.sound {
                let (covered, crc) = frame.split_at_mut(total - 4);
                crc.copy_from_slice(&dafs_iwarp::checksum_of(covered));
            }
            rest = behind;
        }
        bytes
    }

    fn feed(&mut self, bytes: &[u8]) {
        let _ = rustix::net::send(&self.peer, bytes, SendFlags::NOSIGNAL);
        self.turn();
    }

    fn turn(&mut self) {
        if self.is_broken {
            return;
        }
        self.interface.poll();
        while let Some(event) = self.interface.next_event() {
            self.on_event(event);
        }
        self.interface.flush();
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::ConnectionRequest { pending, .. } => {
                let config = EndpointConfig { read_depth: 2, ..EndpointConfig::default() };
                let endpoint = self.interface.accept(pending, Domain(0), &config, b"");
                for slot in 0..RECEIVES {
                    // Two segments, with a different length for each slot.
                    let segments: [LocalSegment; 2] = [
                        self.inbox_region.local(slot * 256, 16),
                        self.inbox_region.local(slot * 256 + 16, 100 + slot as u32),
                    ];
                    let posted = self.interface.post_receive(endpoint, slot, &segments);
                    assert_eq!(posted, Ok(()));
                }
            }
            Event::Completion(done) if done.operation == Operation::Receive => {
                if done.status == CompletionStatus::Success {
                    let (at, length) = (done.cookie as usize * 256, done.length as usize);
                    assert!(length <= 116 + done.cookie as usize);
                    self.outcome.messages.push(self.inbox.to_vec(at, length));
                }
            }
            Event::Completion(_) | Event::Established { .. } | Event::Rejected { .. } => {}
            Event::Broken { reason, .. } => {
                self.is_broken = true;
                self.outcome.is_violated = reason != BreakReason::Peer;
            }
        }
    }
}

/// The length of the longest stream in bytes. Such a stream fits in a socket's buffer.
const BYTES_MAX: usize = 32 << 10;
const MEMORY_BYTES: usize = 8 << 10;
const RECEIVES: u64 = 16;
/// The number of turns that suffice to receive any such stream.
const TURNS_MAX: usize = 64;

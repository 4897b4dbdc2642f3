//! A stream of bytes between two nodes, as a TCP connection carries it.
//!
//! The bytes travel as sends over the lanes of the simulated network, with its delays and faults.
//! The sender cuts the stream into sends of random lengths. The receiver reads the bytes of several
//! sends at once, or only some bytes of one, so that nothing can rely on where the stream is cut.
//!
//! Invariant: bytes arrive in their order, and none is missing before another that arrives.

use std::net::{IpAddr, Ipv4Addr};

use super::packet::{Cause, Greeting, Packet, Payload};
use super::{Listener, Network};

/// One end of a stream of bytes between two nodes of a simulated network. The other end learns of
/// the end of the stream when this value is dropped.
#[derive(Debug)]
pub struct Stream {
    network: Network,
    link: u64,
    side: usize,
    is_open: bool,
    /// The bytes that have arrived and were not read yet, and the number of them that were read.
    arrived: Vec<u8>,
    read: usize,
    end: Option<StreamEnd>,
}

/// The way in which a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The peer has ended the stream.
    Closed,
    /// The connection broke, or was never established.
    Broken,
}

impl Stream {
    /// Connects to a port of another node. The handle of the network belongs to the node that
    /// connects.
    #[must_use]
    pub fn connect(network: &Network, node: u32, port: u16) -> Self {
        let greeting =
            Greeting { private_data: Box::default(), read_depth: 0, node: network.node() };
        let link = network.state().connect((node, port), greeting);
        Self::new(network.clone(), link, 0, false)
    }

    fn new(network: Network, link: u64, side: usize, is_open: bool) -> Self {
        Self { network, link, side, is_open, arrived: Vec::new(), read: 0, end: None }
    }

    /// Returns true once the peer has accepted the connection.
    pub fn is_open(&mut self) -> bool {
        self.take_arrivals();
        self.is_open
    }

    /// Returns true if there is something to read: bytes, or the end of the stream.
    pub fn is_readable(&mut self) -> bool {
        self.take_arrivals();
        self.end.is_some() || self.read < self.arrived.len()
    }

    /// Returns true if the network accepts more bytes.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.network.state().has_room(self.link, self.side)
    }

    /// Sends some of the bytes, at least one if the network accepts any. Returns their number.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let Some(count) = self.cut(bytes.len() as u64) else { return 0 };
        self.push(&bytes[..count]);
        count
    }

    /// Returns the number of bytes that the next send carries if `most` bytes are left to be sent.
    /// `None` if none are left or the network accepts none.
    pub(crate) fn cut(&mut self, most: u64) -> Option<usize> {
        let mut state = self.network.state();
        if most == 0 || !state.has_room(self.link, self.side) {
            return None;
        }
        let count = match state.random.between(0, 9) {
            // A cut may be within the mark of a record or the header of a call.
            0 => state.random.between(1, most.min(SHORT_BYTES_MAX)),
            1..=3 => state.random.between(1, most),
            _ => most,
        };
        usize::try_from(count.min(SEND_BYTES_MAX)).ok()
    }

    /// Sends bytes, whose number [`Stream::cut`] has returned.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let payload = Payload::Bytes(bytes.to_vec());
        let packet = Packet::Send { sequence: 0, payload, invalidate: None, early: true };
        self.network.state().transmit(self.link, self.side, packet);
    }

    /// Reads bytes that have arrived. Returns their number, which is 0 if there are none.
    ///
    /// # Errors
    /// [`StreamEnd`] if the stream has ended and all bytes before its end were read.
    pub fn read(&mut self, room: &mut [u8]) -> Result<usize, StreamEnd> {
        self.take_arrivals();
        let left = &self.arrived[self.read..];
        let whole = left.len().min(room.len());
        if whole == 0 {
            return self.end.filter(|_| left.is_empty()).map_or(Ok(0), Err);
        }
        let random = &mut self.network.state().random;
        let count = match random.between(0, 3) {
            0 => usize::try_from(random.between(1, whole as u64)).unwrap_or(whole),
            _ => whole,
        };
        room[..count].copy_from_slice(&left[..count]);
        self.read += count;
        Ok(count)
    }

    fn take_arrivals(&mut self) {
        if self.read > 0 {
            self.arrived.drain(..self.read);
            self.read = 0;
        }
        let mut state = self.network.state();
        while let Some(packet) = state.take(self.link, self.side) {
            match packet {
                Packet::Accept { .. } => self.is_open = true,
                Packet::Send { mut payload, .. } => self.arrived.append(payload.fetch()),
                Packet::Close(_) => self.end = Some(StreamEnd::Closed),
                // A stream has no other packets, so any other one means that the peer is none.
                _ => self.end = Some(StreamEnd::Broken),
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.network.state().leave(self.link, self.side, Cause::Orderly);
    }
}

impl Listener {
    /// Accepts the oldest stream that waits. Returns it with the node of its peer.
    pub(crate) fn accept_stream(&mut self) -> Option<(Stream, u32)> {
        let mut state = self.network.state();
        loop {
            let (link, greeting) = state.take_request(self.node, self.port, self.generation)?;
            let accept = Packet::Accept { private_data: Box::default(), read_depth: 0 };
            // If the initiator has left, another stream may wait.
            if state.answer(link, accept).is_some() {
                drop(state);
                let stream = Stream::new(self.network.clone(), link, 1, true);
                return Some((stream, greeting.node));
            }
            state.leave(link, 1, Cause::Orderly);
        }
    }

    /// Returns true if a stream waits to be accepted.
    pub(crate) fn has_request(&self) -> bool {
        let state = self.network.state();
        let node = state.nodes.get(&self.node);
        let backlog = node.and_then(|node| node.listeners.get(&self.port));
        backlog.is_some_and(|backlog| !backlog.requests.is_empty())
    }
}

/// Returns the address that stands for a node of a simulated network.
#[must_use]
pub fn address_of(node: u32) -> IpAddr {
    let [_, high, middle, low] = node.to_be_bytes();
    Ipv4Addr::new(10, high, middle, low).into()
}

/// The maximum number of bytes of a short cut.
const SHORT_BYTES_MAX: u64 = 8;
/// The maximum number of bytes of one send.
const SEND_BYTES_MAX: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::super::{ConnectionId, NetworkConfig};
    use super::*;

    fn pair(seed: u64) -> (Network, Stream, Stream) {
        let connect_ns_max = u64::MAX;
        let network = Network::new(NetworkConfig { connect_ns_max, ..NetworkConfig::new(seed) });
        let mut listener = Listener::bind(&network, 1, 7).unwrap();
        let mut client = Stream::connect(&network.at(2), 1, 7);
        network.run_until_quiet(10);
        assert!(!client.is_open() && listener.has_request());
        let (server, node) = listener.accept_stream().unwrap();
        assert_eq!(node, 2);
        network.run_until_quiet(10);
        assert!(client.is_open());
        (network, client, server)
    }

    /// Sends bytes. Returns what the peer reads, in the pieces in which it reads them.
    fn carry(network: &Network, from: &mut Stream, to: &mut Stream, bytes: &[u8]) -> Vec<Vec<u8>> {
        let (mut sent, mut pieces) = (0, Vec::new());
        let mut room = [0; 5000];
        while sent < bytes.len() || to.is_readable() || network.next_ns().is_some() {
            sent += from.write(&bytes[sent..]);
            network.advance();
            match to.read(&mut room) {
                Ok(0) => {}
                Ok(count) => pieces.push(room[..count].to_vec()),
                Err(_) => break,
            }
        }
        pieces
    }

    #[test]
    fn bytes_arrive_in_order_however_they_are_cut() {
        let bytes: Vec<u8> = (0..4000_u32).map(|number| number as u8).collect();
        let mut lengths = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let (network, mut client, mut server) = pair(seed);
            let pieces = carry(&network, &mut client, &mut server, &bytes);
            assert_eq!(pieces.concat(), bytes, "seed {seed}");
            lengths.extend(pieces.iter().map(Vec::len));
            let back = carry(&network, &mut server, &mut client, &bytes);
            assert_eq!(back.concat(), bytes, "seed {seed}");
        }
        assert!(lengths.contains(&4000) && lengths.iter().any(|length| *length < 9));
    }

    #[test]
    fn the_end_comes_after_the_bytes() {
        let (network, mut client, mut server) = pair(3);
        let sent = client.write(b"some bytes");
        drop(client);
        network.run_until_quiet(100);
        let mut read = Vec::new();
        let end = loop {
            let mut room = [0; 3];
            match server.read(&mut room) {
                Ok(count) => read.extend_from_slice(&room[..count]),
                Err(end) => break end,
            }
        };
        assert_eq!((&read[..], end), (&b"some bytes"[..sent], StreamEnd::Closed));
    }

    #[test]
    fn a_cut_breaks_both_ends() {
        let (network, mut client, mut server) = pair(4);
        network.break_connection(ConnectionId(client.link));
        network.run_until_quiet(100);
        let mut room = [0; 3];
        assert_eq!(client.read(&mut room), Err(StreamEnd::Broken));
        assert_eq!(server.read(&mut room), Err(StreamEnd::Broken));
    }
}

//! The connection of an NFS member: records over a simulated stream.
//!
//! Invariant: records arrive whole and in order, however the stream is cut.

use dafs_dat::sim::{Network, Stream};
use dafs_types::Random;

use super::PORT;
use crate::plan::SERVER_NODE;

/// The connection of a member.
pub(super) struct Line {
    network: Network,
    stream: Option<Stream>,
    is_up: bool,
    /// The bytes that the network has not accepted yet.
    outgoing: Vec<u8>,
    /// The bytes of the stream that belong to a record that is not complete.
    incoming: Vec<u8>,
}

/// An event on a connection.
#[derive(Debug, PartialEq)]
pub(super) enum LineEvent {
    Up,
    Record(Vec<u8>),
    Down,
}

impl Line {
    /// Creates a line without a connection, on a node of the network.
    pub(super) fn new(network: &Network, node: u32) -> Self {
        let (outgoing, incoming) = (Vec::new(), Vec::new());
        Self { network: network.at(node), stream: None, is_up: false, outgoing, incoming }
    }

    /// Returns true if there is no connection.
    pub(super) fn is_free(&self) -> bool {
        self.stream.is_none()
    }

    pub(super) fn connect(&mut self) {
        self.hang_up();
        self.stream = Some(Stream::connect(&self.network, SERVER_NODE, PORT));
    }

    /// Ends the connection at once.
    pub(super) fn hang_up(&mut self) {
        self.stream = None;
        self.is_up = false;
        self.outgoing.clear();
        self.incoming.clear();
    }

    /// Sends a record in one to three fragments.
    pub(super) fn send(&mut self, record: &[u8], random: &mut Random) {
        let mut left = record;
        for _ in 0..random.below(3) {
            let (fragment, rest) = left.split_at(random.below(left.len() + 1));
            self.put(fragment, 0);
            left = rest;
        }
        self.put(left, LAST);
        self.flush();
    }

    fn put(&mut self, fragment: &[u8], flag: u32) {
        self.outgoing.extend((fragment.len() as u32 | flag).to_be_bytes());
        self.outgoing.extend(fragment);
    }

    fn flush(&mut self) {
        let Some(stream) = self.stream.as_mut().filter(|_| self.is_up) else { return };
        loop {
            let sent = stream.write(&self.outgoing);
            if sent == 0 {
                return;
            }
            self.outgoing.drain(..sent);
        }
    }

    /// Removes and returns the events since the last call.
    pub(super) fn take(&mut self) -> Vec<LineEvent> {
        let mut events = Vec::new();
        let Some(stream) = &mut self.stream else { return events };
        if stream.is_open() && !std::mem::replace(&mut self.is_up, true) {
            events.push(LineEvent::Up);
        }
        let mut room = [0; 4096];
        let has_ended = loop {
            match stream.read(&mut room) {
                Ok(0) => break false,
                Ok(count) => self.incoming.extend(&room[..count]),
                Err(_) => break true,
            }
        };
        while let Some(record) = self.take_record() {
            events.push(LineEvent::Record(record));
        }
        if has_ended {
            self.hang_up();
            events.push(LineEvent::Down);
        }
        self.flush();
        events
    }

    fn take_record(&mut self) -> Option<Vec<u8>> {
        let (mut record, mut at) = (Vec::new(), 0);
        loop {
            let mark = self.incoming.get(at..at + 4)?;
            let mark = u32::from_be_bytes([mark[0], mark[1], mark[2], mark[3]]);
            let length = (mark & !LAST) as usize;
            record.extend(self.incoming.get(at + 4..at + 4 + length)?);
            at += 4 + length;
            if mark & LAST != 0 {
                self.incoming.drain(..at);
                return Some(record);
            }
        }
    }
}

/// The bit of a mark that is set if the fragment is the last of its record.
const LAST: u32 = 1 << 31;

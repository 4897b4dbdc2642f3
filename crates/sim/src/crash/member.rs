//! A member of the crash world: a client that recovers from whatever befalls it.
//!
//! Invariant: whatever it has asked that changes something is under way, in limbo until the
//! server has said what became of it, or over.

use std::collections::BTreeMap;

use dafs_types::{ClientId, SequenceNumber, SessionId, StreamId, Verifier};
use dafs_wire::messages::{AuthRequest, ClientConnectAuth, SessionOptions};
use dafs_wire::{ByteOrder, Procedure, Request, RequestHeader, encode_request};

use super::ask::{Ask, MESSAGE_BYTES, MemberIndex, fence_id};
use super::line::Line;
use crate::plan::SERVER_NODE;

/// See the [module](self).
pub(super) struct Member {
    pub index: MemberIndex,
    pub line: Line,
    pub phase: Phase,
    /// Counts its deaths.
    pub life: u32,
    /// What the server calls it.
    pub client: Option<ClientId>,
    pub session: SessionId,
    /// The server of its session, counted by restarts.
    pub epoch: u64,
    /// The server that knows that it has taken back what it wants, counted by restarts.
    pub settled: Option<u64>,
    pub credits: u16,
    pub flights: BTreeMap<u16, Flight>,
    sequences: BTreeMap<u16, u16>,
    /// Whose fate is to be learned, with what is to be forgotten then.
    pub limbo: Vec<Flight>,
    pub discards: Vec<SessionId>,
    /// What is to be asked again.
    pub again: Vec<Ask>,
    /// When the server was last heard of.
    pub heard_ns: u64,
    /// Recovery waits until then.
    pub patient_ns: u64,
    sessions_made: u32,
}

/// How far a member has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Away,
    Connecting,
    LoggingIn,
    /// It learns what became of its requests, and takes back what it held.
    Recovering,
    Here,
    /// It has said good-bye.
    Leaving,
    Gone,
}

/// A request under way.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub number: u64,
    pub ask: Ask,
    pub session: SessionId,
    pub epoch: u64,
    /// What the server called its asker.
    pub client: Option<ClientId>,
    pub stream: u16,
    pub sequence: u16,
    pub procedure: Procedure,
    /// The request that this one asks about.
    pub about: Option<Box<Flight>>,
}

impl Member {
    pub fn new(index: MemberIndex, line: Line) -> Self {
        Self {
            index,
            line,
            phase: Phase::Away,
            life: 0,
            client: None,
            session: SessionId(0),
            epoch: 0,
            settled: None,
            credits: 1,
            flights: BTreeMap::new(),
            sequences: BTreeMap::new(),
            limbo: Vec::new(),
            discards: Vec::new(),
            again: Vec::new(),
            heard_ns: 0,
            patient_ns: 0,
            sessions_made: 0,
        }
    }

    /// Its node on the network.
    pub fn node(&self) -> u32 {
        SERVER_NODE + 1 + self.index as u32
    }

    /// Whether the server has answered its login.
    pub fn is_in(&self) -> bool {
        matches!(self.phase, Phase::Recovering | Phase::Here | Phase::Leaving)
    }

    /// A stream for another request; the `draw`th of those that are free.
    pub fn free_stream(&self, draw: usize) -> Option<u16> {
        if self.flights.len() >= usize::from(self.credits) {
            return None;
        }
        let free = (0..self.credits).filter(|stream| !self.flights.contains_key(stream));
        let free: Vec<u16> = free.collect();
        free.get(draw % free.len().max(1)).copied()
    }

    pub fn next_sequence(&mut self, stream: u16) -> u16 {
        let sequence = self.sequences.entry(stream).or_default();
        *sequence = sequence.wrapping_add(1);
        *sequence
    }

    pub fn connect(&mut self, reactor: usize) -> Result<(), String> {
        self.sessions_made += 1;
        self.phase = Phase::Connecting;
        self.line.connect(self.sessions_made, reactor)
    }

    /// The connection stands.
    pub fn log_in(&mut self, wish: u16, epoch: u64) -> Result<(), String> {
        self.phase = Phase::LoggingIn;
        // Whoever answers this is the server of now, even if it is dead by then.
        self.epoch = epoch;
        let (name, fence_id) = (format!("member-{}", self.index), fence_id(self.index));
        let mut verifier = [7; 8];
        verifier[..4].copy_from_slice(&self.life.to_le_bytes());
        let request = Request::ClientConnectAuth(ClientConnectAuth {
            options: SessionOptions {
                response_cache: true,
                requests_max: u32::from(wish),
                request_bytes_max: MESSAGE_BYTES as u32,
                response_bytes_max: MESSAGE_BYTES as u32,
                ..SessionOptions::default()
            },
            fence_id: &fence_id,
            client_string: name.as_bytes(),
            verifier: Verifier(verifier),
            authentication: AuthRequest::None,
        });
        let header = RequestHeader::new(StreamId(0), SequenceNumber(0));
        let mut message = vec![0; MESSAGE_BYTES];
        let length = encode_request(ByteOrder::NATIVE, &header, &request, &mut message)
            .map_err(|error| error.to_string())?;
        self.line.send(&message[..length]);
        Ok(())
    }

    /// It dies, and lives again without any memory. What it had under way.
    pub fn die(&mut self) -> Vec<Flight> {
        self.life += 1;
        self.line.hang_up();
        self.phase = Phase::Away;
        self.client = None;
        self.settled = None;
        self.discards.clear();
        self.again.clear();
        let flights = std::mem::take(&mut self.flights).into_values();
        let flights = flights.map(|flight| match flight.about {
            Some(about) => *about,
            None => flight,
        });
        let mut lost: Vec<Flight> = flights.collect();
        lost.append(&mut self.limbo);
        lost
    }
}

//! A member of the crash world: a client that recovers from all failures.
//!
//! Invariant: each request of a member that changes something is in one of three states: it is in
//! flight, it is in [`Member::limbo`] until the server has reported its outcome, or it has ended.

use std::collections::BTreeMap;

use dafs_types::{ClientId, SequenceNumber, SessionId, StreamId, Verifier};
use dafs_wire::messages::{AuthRequest, ClientConnectAuth, SessionOptions};
use dafs_wire::{ByteOrder, Procedure, Request, RequestHeader, encode_request};

use super::connection::MemberConnection;
use super::requests::{MESSAGE_BYTES, MemberIndex, MemberRequest, fence_id};
use crate::plan::SERVER_NODE;

/// A member and its connection to the server.
pub(super) struct Member {
    pub index: MemberIndex,
    pub line: MemberConnection,
    pub phase: Phase,
    /// The number of times that the member has died.
    pub deaths: u32,
    /// The client id that the server has assigned to the member.
    pub client: Option<ClientId>,
    pub session: SessionId,
    /// The number of the server with which the member has its session, counted by restarts.
    pub epoch: u64,
    /// The number of the server that knows that the member has finished reclaiming. `None` if no
    /// server knows it.
    pub settled: Option<u64>,
    pub credits: u16,
    pub flights: BTreeMap<u16, Flight>,
    sequences: BTreeMap<u16, u16>,
    /// Requests whose outcome the member must query. After that, the server may discard the
    /// sessions in `discards`.
    pub limbo: Vec<Flight>,
    pub discards: Vec<SessionId>,
    /// Requests that the member must send again.
    pub again: Vec<MemberRequest>,
    /// The time, in nanoseconds, at which the most recent message of the server arrived.
    pub heard_ns: u64,
    /// The time, in nanoseconds, until which the member pauses its recovery.
    pub patient_ns: u64,
    sessions_made: u32,
}

/// The phase of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Away,
    Connecting,
    LoggingIn,
    /// The member is querying the outcomes of its requests and reclaiming its opens and locks.
    Recovering,
    Here,
    /// The member has sent DISCONNECT and waits for the end of its session.
    Leaving,
    Gone,
}

/// A request in flight.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub number: u64,
    pub ask: MemberRequest,
    pub session: SessionId,
    pub epoch: u64,
    /// The client id that the member had when it sent the request.
    pub client: Option<ClientId>,
    pub stream: u16,
    pub sequence: u16,
    pub procedure: Procedure,
    /// The earlier request whose outcome this request queries. `None` if this request is not such a
    /// query.
    pub about: Option<Box<Flight>>,
}

impl Member {
    pub(super) fn new(index: MemberIndex, line: MemberConnection) -> Self {
        Self {
            index,
            line,
            phase: Phase::Away,
            deaths: 0,
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

    /// Returns the member's node on the network.
    pub(super) fn node(&self) -> u32 {
        SERVER_NODE + 1 + self.index as u32
    }

    /// Returns true if the server has accepted the member's login.
    pub(super) fn is_in(&self) -> bool {
        matches!(self.phase, Phase::Recovering | Phase::Here | Phase::Leaving)
    }

    /// Returns one of the free streams, which the number `draw` selects. `None` if no credit or
    /// stream is free.
    pub(super) fn free_stream(&self, draw: usize) -> Option<u16> {
        if self.flights.len() >= usize::from(self.credits) {
            return None;
        }
        let free = (0..self.credits).filter(|stream| !self.flights.contains_key(stream));
        let free: Vec<u16> = free.collect();
        free.get(draw % free.len().max(1)).copied()
    }

    pub(super) fn next_sequence(&mut self, stream: u16) -> u16 {
        let sequence = self.sequences.entry(stream).or_default();
        *sequence = sequence.wrapping_add(1);
        *sequence
    }

    pub(super) fn connect(&mut self, reactor: usize) -> Result<(), String> {
        self.sessions_made += 1;
        self.phase = Phase::Connecting;
        self.line.connect(self.sessions_made, reactor)
    }

    /// Logs in after the connection is established.
    pub(super) fn log_in(&mut self, wish: u16, epoch: u64) -> Result<(), String> {
        self.phase = Phase::LoggingIn;
        // The current server sends the reply, even if it is dead when the reply arrives.
        self.epoch = epoch;
        let (name, fence_id) = (format!("member-{}", self.index), fence_id(self.index));
        let mut verifier = [7; 8];
        verifier[..4].copy_from_slice(&self.deaths.to_le_bytes());
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

    /// Restarts the member, which loses all its memory. Returns the requests that it had in flight.
    pub(super) fn die(&mut self) -> Vec<Flight> {
        self.deaths += 1;
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

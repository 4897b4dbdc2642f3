//! The state of an NFS member.

use std::collections::BTreeMap;

use dafs_dat::sim::Network;
use dafs_nfs_wire::nfs4::types::{ClientId, SessionId};

use super::line::Line;
use crate::crash::requests::{MemberIndex, MemberRequest};
use crate::plan::SERVER_NODE;

/// An NFS client and its connection to the server.
pub(crate) struct NfsMember {
    /// The number of the member. The numbers of NFS members follow those of DAFS members.
    pub index: MemberIndex,
    pub(super) line: Line,
    pub phase: NfsPhase,
    /// The number of times that the member has died.
    pub(super) deaths: u32,
    /// The client id from the last EXCHANGE_ID.
    pub(super) client: Option<ClientId>,
    pub(super) session: Option<SessionId>,
    /// The number of the server with which the member has its connection, counted by restarts.
    pub(super) epoch: u64,
    /// The number of the server that knows that the member has nothing to reclaim.
    pub(super) settled: Option<u64>,
    /// The number of the last request of each slot.
    pub(super) sequences: [u32; SLOTS],
    /// The requests in flight, by slot.
    pub(super) flights: BTreeMap<u32, Flight>,
    /// True if the member begins its session only in order to end it.
    pub(super) is_leaving: bool,
    /// The xid of the request outside of a session that has no reply yet.
    pub(super) asked: Option<u32>,
    pub(super) xid: u32,
    /// The time, in nanoseconds, at which the most recent message of the server arrived.
    pub(super) heard_ns: u64,
    /// The time, in nanoseconds, until which the member asks for nothing new.
    pub(super) patient_ns: u64,
}

/// The phase of an NFS member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NfsPhase {
    Away,
    Connecting,
    /// The member has sent EXCHANGE_ID.
    Exchanging,
    /// The member has sent CREATE_SESSION.
    Creating,
    /// The member gets the outcomes of its requests, and tells the server that it has nothing to
    /// reclaim.
    Recovering,
    Here,
    /// The member ends its session, then its client id.
    Leaving,
    Gone,
}

/// A request in flight.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    /// The number of the request on its slot.
    pub sequence: u32,
    pub xid: u32,
    pub asks: Asks,
    /// The encoded operations after the SEQUENCE, and their number.
    pub operations: (Vec<u8>, u32),
    /// The number of the server to which the request was sent last.
    pub epoch: u64,
    /// The number of servers to which the request was sent.
    pub servers: u32,
    /// The time, in nanoseconds, at which the request must be sent again. `None` if it was sent.
    pub again_ns: Option<u64>,
}

/// What a request in a session asks for.
#[derive(Clone, Debug)]
pub(super) enum Asks {
    /// Requests that the checker knows, by their numbers.
    Work(Vec<(u64, MemberRequest)>),
    /// Nothing but the renewal of the lease.
    Renew,
    /// The end of reclaiming.
    Settle,
}

impl NfsMember {
    pub(crate) fn new(network: &Network, index: MemberIndex) -> Self {
        Self {
            index,
            line: Line::new(network, SERVER_NODE + 1 + index as u32),
            phase: NfsPhase::Away,
            deaths: 0,
            client: None,
            session: None,
            epoch: 0,
            settled: None,
            sequences: [0; SLOTS],
            flights: BTreeMap::new(),
            is_leaving: false,
            asked: None,
            xid: 0,
            heard_ns: 0,
            patient_ns: 0,
        }
    }

    /// Returns the member's node on the network.
    pub(crate) fn node(&self) -> u32 {
        SERVER_NODE + 1 + self.index as u32
    }

    /// Returns true if the member is ready for requests and waits for no replies.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == NfsPhase::Here && self.flights.is_empty()
    }

    /// Returns true if the member has no connection.
    pub(crate) fn is_free(&self) -> bool {
        self.line.is_free()
    }

    pub(super) fn next_xid(&mut self) -> u32 {
        self.xid += 1;
        self.xid
    }

    /// Ends the connection. The requests in flight stay in their slots.
    pub(crate) fn hang_up(&mut self) {
        self.line.hang_up();
        if self.phase != NfsPhase::Gone {
            self.phase = NfsPhase::Away;
        }
    }

    /// Forgets the session. Returns the numbers of the requests that had no reply.
    pub(super) fn forget_session(&mut self) -> Vec<u64> {
        (self.session, self.settled) = (None, None);
        self.sequences = [0; SLOTS];
        let flights = std::mem::take(&mut self.flights).into_values();
        let works = flights.filter_map(|flight| match flight.asks {
            Asks::Work(asks) => Some(asks),
            Asks::Renew | Asks::Settle => None,
        });
        works.flatten().map(|(number, _)| number).collect()
    }

    /// Restarts the member, which loses all its memory. Returns the numbers of the requests that
    /// had no reply.
    pub(crate) fn die(&mut self) -> Vec<u64> {
        self.deaths += 1;
        self.hang_up();
        self.client = None;
        self.forget_session()
    }
}

impl Asks {
    /// Returns the numbers of the writes among the requests.
    pub(super) fn writes(&self) -> Vec<u64> {
        let Self::Work(asks) = self else { return Vec::new() };
        let writes = asks.iter().filter_map(|(_, ask)| match ask {
            MemberRequest::Write { id, .. } | MemberRequest::SetSize { id } => Some(*id),
            _ => None,
        });
        writes.collect()
    }
}

/// The number of slots of a session.
pub(super) const SLOTS: usize = 4;

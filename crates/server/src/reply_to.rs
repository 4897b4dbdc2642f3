//! Where a reply goes, and by what names a request is known while it is served.

use dafs_dat::EndpointId;
use dafs_sessions::KeptSession;
use dafs_types::{SequenceNumber, Status, StreamId};
use dafs_wire::{Checksum, PROTOCOL_VERSION, ResponseHeader, SpecialConditions};

use crate::meter::reading::Reading;
pub use dafs_files::under_way::TaskId;

/// Where a reply goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    pub endpoint: EndpointId,
    pub stream: StreamId,
    pub sequence: SequenceNumber,
    pub analyzer: u64,
    /// What is counted and timed of it.
    pub reading: Reading,
    /// Where it is kept for a client that may not get it; and whether its request is not begun
    /// there, but kept as a whole once the answer is out ([`crate::afterwards`]).
    kept: KeptSession,
    is_kept_later: bool,
    /// Its intent is in the journal, or will be.
    pub logged: bool,
    /// It acts with credentials that the filer keeps for its stream.
    pub is_acting: bool,
    /// The chain it is a member of.
    pub chain: ChainId,
}

impl ReplyTo {
    /// To a request whose result is not kept, as far as is known yet.
    #[inline]
    pub fn new(endpoint: EndpointId, stream: StreamId, sequence: SequenceNumber) -> Self {
        Self {
            endpoint,
            stream,
            sequence,
            analyzer: 0,
            reading: Reading::default(),
            kept: KeptSession::NONE,
            is_kept_later: false,
            logged: false,
            is_acting: false,
            chain: ChainId::NONE,
        }
    }

    /// Where the request was begun, so that its end must be told there.
    #[inline]
    pub fn kept(&self) -> KeptSession {
        if self.is_kept_later { KeptSession::NONE } else { self.kept }
    }

    /// Where its result is kept once the answer is out, though nothing of it is known there yet.
    #[inline]
    pub fn kept_later(&self) -> KeptSession {
        if self.is_kept_later { self.kept } else { KeptSession::NONE }
    }

    #[inline]
    pub fn keep_in(&mut self, session: KeptSession) {
        (self.kept, self.is_kept_later) = (session, false);
    }

    #[inline]
    pub fn keep_later_in(&mut self, session: KeptSession) {
        (self.kept, self.is_kept_later) = (session, session.is_some());
    }
}

/// Names a chain, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainId(pub u32);

impl ChainId {
    /// No chain.
    pub const NONE: Self = Self(u32::MAX);

    #[inline]
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }
}

/// A header for results that are kept and not sent.
pub(crate) fn blank_header(stream: StreamId, status: Status) -> ResponseHeader {
    ResponseHeader {
        version: PROTOCOL_VERSION,
        target_credits: 1,
        conditions: SpecialConditions(0),
        stream,
        sequence: SequenceNumber(0),
        analyzer: 0,
        checksum: Checksum::NONE,
        status,
        length: 0,
    }
}

#[inline]
pub(crate) fn blank(answer: ReplyTo, status: Status, target_credits: u16) -> ResponseHeader {
    ResponseHeader {
        version: PROTOCOL_VERSION,
        target_credits,
        conditions: SpecialConditions(0),
        stream: answer.stream,
        sequence: answer.sequence,
        analyzer: answer.analyzer,
        checksum: Checksum::NONE,
        status,
        length: 0,
    }
}

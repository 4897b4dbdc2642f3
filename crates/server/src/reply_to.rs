//! The destination of a reply, and the ids of the request to which the reply belongs.

use dafs_dat::EndpointId;
use dafs_sessions::KeptSession;
use dafs_types::{SequenceNumber, Status, StreamId};
use dafs_wire::{Checksum, PROTOCOL_VERSION, ResponseHeader, SpecialConditions};

use crate::meter::reading::Reading;
pub(crate) use dafs_files::under_way::TaskId;

/// The destination of a reply, and the bookkeeping that is due when the reply is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyTo {
    pub endpoint: EndpointId,
    pub stream: StreamId,
    pub sequence: SequenceNumber,
    pub analyzer: u64,
    /// The index of the request's row in the statistics and, if the request is timed, its start
    /// time.
    pub reading: Reading,
    /// The session that stores the result, in case the reply does not reach the client. If
    /// `is_kept_after_reply` is true, the request is not registered in the session while it runs,
    /// and its result is stored after the reply is sent ([`crate::afterwards`]).
    kept: KeptSession,
    is_kept_after_reply: bool,
    /// True if the intent of the request has been or will be written to the journal.
    pub logged: bool,
    /// True if the request uses credentials that the client has registered for the request's
    /// stream.
    pub is_acting: bool,
    /// The chain of which the request is a member, or [`ChainId::NONE`].
    pub chain: ChainId,
}

impl ReplyTo {
    /// Creates the destination for a request whose result is not stored.
    #[inline]
    pub(crate) fn new(endpoint: EndpointId, stream: StreamId, sequence: SequenceNumber) -> Self {
        Self {
            endpoint,
            stream,
            sequence,
            analyzer: 0,
            reading: Reading::default(),
            kept: KeptSession::NONE,
            is_kept_after_reply: false,
            logged: false,
            is_acting: false,
            chain: ChainId::NONE,
        }
    }

    /// Returns the session in which the request is registered while it runs. The end of the request
    /// must be reported to that session.
    #[inline]
    pub(crate) fn kept(&self) -> KeptSession {
        if self.is_kept_after_reply { KeptSession::NONE } else { self.kept }
    }

    /// Returns the session that stores the result after the reply is sent. [`KeptSession::NONE`] if
    /// the request is registered in a session while it runs.
    #[inline]
    pub(crate) fn kept_later(&self) -> KeptSession {
        if self.is_kept_after_reply { self.kept } else { KeptSession::NONE }
    }

    #[inline]
    pub(crate) fn keep_in(&mut self, session: KeptSession) {
        (self.kept, self.is_kept_after_reply) = (session, false);
    }

    #[inline]
    pub(crate) fn keep_in_after_reply(&mut self, session: KeptSession) {
        (self.kept, self.is_kept_after_reply) = (session, session.is_some());
    }
}

/// The id of a chain, or [`ChainId::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainId(pub u32);

impl ChainId {
    /// The value for a request that is not a member of a chain.
    pub(crate) const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(crate) fn is_some(self) -> bool {
        self != Self::NONE
    }
}

/// Returns a header for results that are stored and not sent.
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

//! Types for the admission of requests.
//!
//! Invariant: a request that was neither refused with `Break` nor finished holds exactly one credit
//! and one stream.

use dafs_types::{CredHandle, SequenceNumber, Status, StreamId};

use crate::{ChainPlace, KeptSession};

/// The class of a procedure: what admission needs to know about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestClass {
    /// CLIENT_CONNECT and CLIENT_CONNECT_AUTH.
    Connect,
    /// CONNECT_BIND, which binds a channel to a session.
    Bind,
    /// CLIENT_AUTH, which authenticates a session.
    Authenticate,
    /// SECINFO, which lists the authentication types.
    SecurityInfo,
    /// DISCONNECT, which ends a session.
    Disconnect,
    /// REGISTER_CRED and RELEASE_CRED.
    Credential,
    /// SERVER_AUTH, GET_FENCING_LIST, SET_FENCING_LIST and DISCARD_RESPONSES, which are never
    /// chained.
    Special,
    /// All other procedures.
    Ordinary,
}

impl RequestClass {
    /// Returns the class of the procedure with this number (draft 6.1.6). Unassigned numbers are
    /// `Ordinary`; decoding them fails later.
    #[must_use]
    pub const fn of(procedure: u32) -> Self {
        match procedure {
            100 => Self::Authenticate,
            101 | 102 => Self::Connect,
            103 => Self::Bind,
            104 => Self::Disconnect,
            105 | 106 => Self::Credential,
            108 => Self::SecurityInfo,
            109 | 112 | 158 | 159 => Self::Special,
            _ => Self::Ordinary,
        }
    }
}

/// The chain flags of a request header (draft 4.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChainFlags(pub u16);

impl ChainFlags {
    /// Another member of the chain follows.
    pub const FORWARD: u16 = 0x01;
    /// The request continues a chain.
    pub const BACK: u16 = 0x02;
    /// The reply must be kept in the response cache. Has no meaning for a session without one.
    pub const SAVE: u16 = 0x04;
    /// The request uses the file handle of the previous member.
    pub const FILE_HANDLE: u16 = 0x08;
    /// The request uses the state id of the previous member.
    pub const STATE_ID: u16 = 0x10;
}

/// The header fields that admission uses.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead {
    /// The stream that the client chose, below its number of credits.
    pub stream: StreamId,
    /// The request's sequence number on that stream.
    pub sequence: SequenceNumber,
    /// The number of credits the client would like; 0 means no statement.
    pub desired_credits: u16,
    /// The request's position in a chain.
    pub chain_flags: ChainFlags,
    /// The number of the procedure; used in chains only.
    pub procedure: u32,
    /// The credentials to use; 0 means the session's own.
    pub cred_handle: CredHandle,
    /// The class of the procedure.
    pub class: RequestClass,
}

/// A request that may be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The number of requests of this session in flight, including this one.
    pub outstanding: u16,
    /// Where replies of the session are kept, if they are.
    pub kept: KeptSession,
    /// The request's position in a chain.
    pub place: ChainPlace,
    /// True if an incarnation of the client begins with this request.
    /// [`crate::Sessions::take_condemned`] and [`dafs_filer::Filer::take_released`] then return the
    /// effects.
    pub begins_incarnation: bool,
}

/// A request that may not be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Reply with this status. The request holds its credit: call `finish`.
    Answer(Status),
    /// The peer violated the protocol: break the connection without a reply.
    Break(BreakReason),
}

/// The reason why a connection is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakReason {
    /// The client has more requests outstanding than credits (draft 3.2.6.3).
    CreditsExceeded,
    /// The stream is not below the number of credits.
    StreamOutOfRange,
    /// The last request on the stream has no reply yet.
    StreamBusy,
    /// The channel is unknown or is about to be closed.
    ChannelClosing,
}

/// What [`crate::Sessions::finish`] grants with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The credit target to put into the reply's header.
    pub target_credits: u16,
    /// The number of receives to post before the reply is sent: 0 shrinks the session by one
    /// credit, 1 keeps its size, and more lets it grow (draft 3.2.6.4.2).
    pub receives_to_post: u16,
}

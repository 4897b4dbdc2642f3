//! Types for the admission of requests.
//!
//! Invariant: a request holds exactly one credit and one stream until it is finished, unless it was
//! refused with [`Refusal::Break`].

use dafs_types::{CredHandle, SequenceNumber, Status, StreamId};

use crate::{ChainPlace, KeptSession};

/// The class of a procedure. It decides in which phases of a channel admission allows requests of
/// the procedure.
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
    /// members of a chain.
    Special,
    /// All other procedures.
    Ordinary,
}

impl RequestClass {
    /// Returns the class of the procedure with this number (draft 6.1.6). A number that belongs to
    /// no procedure is `Ordinary`, because its decoding fails later anyway.
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
    /// This flag means that another member of the chain follows.
    pub const FORWARD: u16 = 0x01;
    /// This flag means that the request continues a chain.
    pub const BACK: u16 = 0x02;
    /// This flag means that the reply must be stored in the response cache. It is ignored in a
    /// session without a response cache.
    pub const SAVE: u16 = 0x04;
    /// This flag means that the request uses the file handle of the previous member.
    pub const FILE_HANDLE: u16 = 0x08;
    /// This flag means that the request uses the state id of the previous member.
    pub const STATE_ID: u16 = 0x10;
}

/// The header fields that admission uses.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead {
    /// The stream that the client has chosen. It must be less than the client's number of credits.
    pub stream: StreamId,
    /// The sequence number of the request on its stream.
    pub sequence: SequenceNumber,
    /// The number of credits that the client would like to have; 0 if the request does not say.
    pub desired_credits: u16,
    /// The flags that place the request in a chain.
    pub chain_flags: ChainFlags,
    /// The number of the procedure. Only the check of chains uses it.
    pub procedure: u32,
    /// The handle of the credentials that the request acts with; 0 means the session's own
    /// credentials.
    pub cred_handle: CredHandle,
    /// The class of the procedure.
    pub class: RequestClass,
}

/// A request that may be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The number of requests of the session in flight, including this one.
    pub outstanding: u16,
    /// The key under which the session's replies are stored, or [`KeptSession::NONE`] if the
    /// session stores no replies.
    pub kept: KeptSession,
    /// The request's position in a chain.
    pub place: ChainPlace,
    /// True if this request begins an incarnation of the client. The server must then call
    /// [`crate::Sessions::take_condemned`] and [`dafs_filer::Filer::take_released`], which return
    /// the channels and opens of the previous incarnation.
    pub begins_incarnation: bool,
}

/// The answer of admission to a request that may not be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The server must reply with this status. The request holds its credit until the server calls
    /// `finish`.
    Answer(Status),
    /// The peer violated the protocol. The server must break the connection without a reply.
    Break(BreakReason),
}

/// The reason why a connection is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakReason {
    /// The client has more requests outstanding than it has credits (draft 3.2.6.3).
    CreditsExceeded,
    /// The request's stream number is not less than the client's number of credits.
    StreamOutOfRange,
    /// The previous request on the stream has no reply yet.
    StreamBusy,
    /// The channel is unknown or is about to be closed.
    ChannelClosing,
}

/// The credits that [`crate::Sessions::finish`] grants with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The credit target for the header of the reply.
    pub target_credits: u16,
    /// The number of receive buffers to post before the reply is sent. 0 takes one credit away from
    /// the session, 1 leaves the number of credits unchanged, and more raises it (draft 3.2.6.4.2).
    pub receives_to_post: u16,
}

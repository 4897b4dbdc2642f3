//! Admission of requests: the words.
//!
//! Invariant: a request that was neither refused with `Break` nor finished holds
//! exactly one credit and one stream.

use dafs_types::{CredHandle, SequenceNumber, Status, StreamId};

use crate::{ChainPlace, KeptSession};

/// What admission needs to know about a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestClass {
    /// CLIENT_CONNECT and CLIENT_CONNECT_AUTH.
    Connect,
    /// CONNECT_BIND.
    Bind,
    /// CLIENT_AUTH.
    Authenticate,
    /// SECINFO.
    SecurityInfo,
    /// DISCONNECT.
    Disconnect,
    /// REGISTER_CRED and RELEASE_CRED.
    Credential,
    /// SERVER_AUTH, GET_FENCING_LIST, SET_FENCING_LIST, DISCARD_RESPONSES: never chained.
    Special,
    /// Everything else.
    Ordinary,
}

impl RequestClass {
    /// The class of the procedure with this number (draft 6.1.6); numbers that are
    /// not assigned are `Ordinary`, their decoder refuses them.
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
    /// Another member follows.
    pub const FORWARD: u16 = 0x01;
    /// Continues a chain.
    pub const BACK: u16 = 0x02;
    /// Keep the result in the response cache; means nothing without one.
    pub const SAVE: u16 = 0x04;
    /// Use the file handle of the member before.
    pub const FILE_HANDLE: u16 = 0x08;
    /// Use the state id of the member before.
    pub const STATE_ID: u16 = 0x10;
}

/// The header fields that admission looks at.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead {
    /// Slot the client chose, below its number of credits.
    pub stream: StreamId,
    /// Number on that stream.
    pub sequence: SequenceNumber,
    /// Credits the client would like; 0 says nothing.
    pub desired_nreq: u16,
    /// Place in a chain.
    pub chain_flags: ChainFlags,
    /// Number of the procedure; looked at in chains only.
    pub procedure: u32,
    /// Credentials to act with; 0 means the session's own.
    pub cred_handle: CredHandle,
    /// What is asked.
    pub class: RequestClass,
}

/// A request that may be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Requests of this session in the server's hands, this one included.
    pub outstanding: u16,
    /// Where results of the session are kept, if they are.
    pub kept: KeptSession,
    /// Where it stands in a chain.
    pub place: ChainPlace,
    /// A life of the client begins with it: [`crate::Sessions::take_condemned`]
    /// and [`dafs_filer::Filer::take_released`] say what follows from that.
    pub begins_life: bool,
}

/// A request that may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Answer with this status. The request holds its credit: call `finish`.
    Answer(Status),
    /// The peer broke the protocol: break the connection, no answer.
    Break(BreakReason),
}

/// Why a connection is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakReason {
    /// More requests outstanding than credits (draft 3.2.6.3).
    CreditsExceeded,
    /// A stream beyond the number of credits.
    StreamOutOfRange,
    /// A stream whose last request has not been answered.
    StreamBusy,
    /// The channel is unknown or waits to be closed.
    ChannelClosing,
}

/// What goes along with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// For the response header.
    pub target_nreq: u16,
    /// Receives to post before the response is sent: 0 shrinks the session by one,
    /// 1 keeps it, more lets it grow (draft 3.2.6.4.2).
    pub receives_to_post: u16,
}

//! The state of NFSv4.1 clients: client ids, sessions, slots, callbacks and state ids (RFC 8881).
//!
//! Invariants:
//! - This crate does no I/O, reads no clock, draws no random numbers, and knows neither messages
//!   nor transports. Time ([`dafs_types::Moment`]) and randomness are arguments, so that the
//!   simulator and the server run the same code.
//! - Everything that a peer can make grow has a named limit in [`limits`].
//! - No id is used twice, neither in one run of the server nor in different runs.
//!
//! One thread owns an [`NfsState`] and calls it directly. After each call, the caller takes the
//! pending [`Notice`]s with [`NfsState::poll_notice`], and does what they ask for.
//!
//! A *repeat* is a request that a client sends again because it has received no reply. The server
//! *keeps* replies in memory to answer repeats (the reply cache of RFC 8881).
//!
//! ```text
//! EXCHANGE_ID ─► Clients ◄─ CREATE_SESSION ─► Sessions ◄─ SEQUENCE ─ every other request
//! ```
//!
//! A request in a session goes through the following calls:
//!
//! ```text
//! NfsState::sequence ─► New ────► the other operations ─► NfsState::finish ─► send
//!      └──────────────► Repeat ─► kept_reply ─► send
//! ```
#![forbid(unsafe_code)]

mod callbacks;
mod clients;
mod error;
mod gss;
mod keys;
pub mod limits;
mod machine;
mod operation;
mod peer;
mod sessions;
mod state_ids;

pub use callbacks::{CallbackEvent, CallbackOutcome, CallbackReply, ReferringCall};
pub use clients::{
    ClientView, Clients, CreateSequence, CreatedSession, EndReason, EndedClient, ExchangeId,
    Exchanged, exchange_flags,
};
pub use error::Nfs4Error;
pub use gss::{GSS_SEQUENCE_LIMIT, GssArrival, GssContexts, GssHandle, NewGssContext};
pub use keys::{
    CallbackKey, CallbackTag, ClientKey, ClientTag, SessionId4, SessionKey, SessionTag, StateKey,
    StateTag,
};
pub use limits::StateConfig;
pub use machine::{
    Admitted, BoundConnection, CallbackToSend, CreateSession, CreateSessionOutcome, NfsState,
    Notice, RequestKey, SequenceAsk, SequenceReply, Sequenced, status_flags,
};
pub use operation::{OperationNumber, OperationSet};
pub use peer::{Caller, ConnectionId, PeerId, Principal, Protection, ProtectionAsk, Service};
pub use sessions::{
    BindDirection, BoundDirection, CallbackParameters, CallbackSecurity, ChannelAttributes,
    SessionRecord, SessionView, Sessions, SlotDecision, SlotEnd, SlotRecall, SlotRecord,
    create_flags,
};
pub use state_ids::{Checked, FileNumber, KindSet, Revocation, StateKind, StateView, Stateid4};

//! Sessions of DAFS: connections, authentication, credits and the response cache.
//!
//! Invariants: this crate does no I/O, reads no clock, draws no random numbers, and depends on
//! neither the transport nor the store. Time ([`dafs_types::Moment`]) and entropy
//! ([`dafs_types::Entropy`]) are arguments, so that the simulator and the server run the same code.
//! Every data structure that a peer can make grow has a named limit in [`SessionConfig`] or in
//! [`dafs_types::limits`].
//!
//! One thread owns the [`Sessions`] and calls them directly; there is no queue. The calls made for
//! every READ and WRITE ([`Sessions::admit`], [`Sessions::finish`]) are array accesses: they
//! neither allocate nor hash.
//!
//! The state that clients hold on files is not in this crate. A session belongs to a client. The
//! table of clients is in the [`dafs_filer::Filer`], which is an argument of the calls that start
//! or end clients.
//!
//! The phases of a channel:
//!
//! ```text
//! channel_opened ─► Opened ─connect─► Connected ─begin_auth─► Verifying
//!                      ▲                  ▲                    │     │
//!                      └─connect_failed───┴──refused───────────┘     │finish_auth
//!                                                                    ▼
//!                    Authenticated ◄──────first request────────── Proven
//!
//!        channel_closed ◄── Condemned ◄──break, client restart── Authenticated
//!                               ▲
//!        Authenticated ─its proof expires─► Lapsed ─begin_auth, finish_auth─► Authenticated
//!        Opened ─begin_bind─► Verifying ─finish_bind─► Bound (ends with its session)
//! ```
//!
//! Batches ([`BatchScheduler`]) and registered credentials ([`CredentialTable`]) are separate state
//! machines that follow the same rules. The comment of each module says what the draft does not
//! define and what this server does there.
//!
//! Requests that this version does not support get the status that the draft defines for this case.
#![forbid(unsafe_code)]

mod admit;
mod auth;
mod batch;
mod chain;
mod channel;
mod config;
mod config_error;
mod counters;
mod credentials;
mod credits;
mod negotiate;
mod replies;
mod sessions;

pub use admit::{Admitted, BreakReason, ChainFlags, Grant, Refusal, RequestClass, RequestHead};
pub use auth::{AuthDecision, AuthRequest, Authenticated, Verified};
pub use batch::{
    AbortScope, Aborted, Accepted, BatchLimits, BatchLoad, BatchReply, BatchRequest,
    BatchScheduler, Cancelled, DeviceLoad, EndedSession, InvalidBatch, Notice, Piece, PieceOutcome,
    RequestNotFound, RequestView, Run, RunOutcome, Submission, SubmitError, completions_in,
};
pub use chain::ChainPlace;
pub use channel::{
    ChannelDescription, ChannelEnd, ChannelId, ChannelKind, ChannelRefusal, CloseReason,
    PeerIdentity, TickActions,
};
pub use config::{AuthPolicy, CreditPolicy, MessageLimits, SessionConfig};
pub use config_error::ConfigError;
pub use counters::SessionCounters;
pub use credentials::{
    CredentialCounters, CredentialLookup, CredentialName, CredentialPolicy, CredentialTable,
    CredentialUse, RegisteredCredential, Registration,
};
pub use credits::{CreditView, CreditWeight, LimitedBy};
pub use negotiate::{
    ConnectArguments, ConnectRefusal, ConnectResults, Negotiated, PROTOCOL_VERSION,
};
pub use replies::{KeptReply, KeptSession, ReplyQuery, RequestName, SessionRecord};
pub use sessions::{BindArguments, SessionView, Sessions};

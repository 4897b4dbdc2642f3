//! The file server's mind: who is connected, who they are, how much they may ask
//! at once, and which files they hold open under which promises.
//!
//! Invariant: this crate does no I/O, reads no clock, draws no randomness and knows
//! neither transport nor store. Time ([`dafs_types::Moment`]) and entropy
//! ([`dafs_types::Entropy`]) are arguments, so that the simulator and the server run
//! the same code. Everything a peer can make grow has a named limit in
//! [`FilerConfig`] or in [`dafs_types::limits`].
//!
//! One thread owns a [`Filer`] and calls it directly; nothing is queued. The calls
//! made for every READ and WRITE ([`Filer::admit`], [`Filer::check_io`],
//! [`Filer::finish`]) are array accesses: they neither allocate nor hash.
//!
//! A channel's life:
//!
//! ```text
//! channel_opened ─► Opened ─connect─► Connected ─begin_auth─► Verifying
//!                      ▲                  ▲                    │     │
//!                      └─connect_failed───┴──refused───────────┘     │finish_auth
//!                                                                    ▼
//!        channel_closed ◄── Condemned ◄──break, client restart── Authenticated
//! ```
//!
//! What this version does not serve: request chains, registered credentials, the
//! response cache, back-control and RDMA-read channels, GSS, byte-range locks,
//! delegations. Each is answered with the status the draft has for it.
#![forbid(unsafe_code)]

mod admit;
mod auth;
mod batch;
mod channel;
mod clients;
mod config;
mod counters;
mod credits;
mod filer;
mod negotiate;
mod opens;

pub use admit::{Admitted, BreakReason, ChainFlags, Grant, Refusal, RequestClass, RequestHead};
pub use auth::{AuthDecision, AuthRequest, Authenticated};
pub use batch::{
    AbortScope, Aborted, Accepted, BatchLimits, BatchLoad, BatchReply, BatchRequest,
    BatchScheduler, Cancelled, DeviceLoad, EndedSession, InvalidBatch, Notice, Piece,
    RequestNotFound, RequestView, Run, RunOutcome, Submission, SubmitError, completions_in,
};
pub use channel::{
    ChannelDescription, ChannelEnd, ChannelId, ChannelKind, ChannelRefusal, CloseReason,
    PeerIdentity, TickActions,
};
pub use config::{ConfigError, FilerConfig};
pub use counters::Counters;
pub use credits::{CreditView, CreditWeight, LimitedBy};
pub use filer::Filer;
pub use negotiate::{
    ConnectArguments, ConnectRefusal, ConnectResults, Negotiated, PROTOCOL_VERSION,
};
pub use opens::{Closed, FileKey, IoKind, OpenArguments, Opened, RemoveDecision};

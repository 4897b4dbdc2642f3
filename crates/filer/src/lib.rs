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
//!                    Authenticated ◄──first request of the life── Proven
//!
//!        channel_closed ◄── Condemned ◄──break, client restart── Authenticated
//!                               ▲
//!        Authenticated ─its proof expires─► Lapsed ─begin_auth, finish_auth─► Authenticated
//!        Opened ─begin_bind─► Verifying ─finish_bind─► Bound (ends with its session)
//! ```
//!
//! Fences ([`FenceTable`]), registered credentials ([`CredentialTable`]) and delegations
//! ([`DelegationTable`]) are machines of their own, with the same rules; each says in its
//! module what the draft leaves open and what is done there.
//!
//! What this version does not serve is answered with the status the draft has for it.
#![forbid(unsafe_code)]

mod admit;
mod auth;
mod batch;
mod chain;
mod channel;
mod clients;
mod config;
mod counters;
mod credentials;
mod credits;
mod delegations;
mod fences;
mod filer;
mod holder;
pub mod locks;
mod negotiate;
mod opens;
mod replies;

pub use admit::{Admitted, BreakReason, ChainFlags, Grant, Refusal, RequestClass, RequestHead};
pub use auth::{AuthDecision, AuthRequest, Authenticated, Succession, Verified};
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
pub use clients::{ClientKey, Principal};
pub use config::{ConfigError, FilerConfig};
pub use counters::Counters;
pub use credentials::{
    CredentialCounters, CredentialLookup, CredentialName, CredentialPolicy, CredentialTable,
    CredentialUse, RegisteredCredential, Registration,
};
pub use credits::{CreditView, CreditWeight, LimitedBy};
pub use delegations::{
    DelegationAction, DelegationCounters, DelegationDecision, DelegationFacts,
    DelegationInformation, DelegationKind, DelegationPhase, DelegationPolicy, DelegationTable,
    GrantedDelegation, NoDelegation, RecallAnswer, Touch, WaiterId,
};
pub use fences::{
    FenceAction, FenceAuthority, FenceChange, FenceCounters, FenceId, FenceInformation,
    FenceLimits, FenceRecord, FenceRequest, FenceRestoreError, FenceStoreId, FenceTable,
    FencedObject, OperationId, RunningOperation,
};
pub use filer::{
    BindArguments, ClientRecord, DelegationWish, FenceKey, Filer, Party, RunningRequest,
    SessionView,
};
pub use holder::Holder;
pub use negotiate::{
    ConnectArguments, ConnectRefusal, ConnectResults, Negotiated, PROTOCOL_VERSION,
};
pub use opens::{Closed, FileKey, IoKind, OpenArguments, Opened, RemoveDecision};
pub use replies::{KeptReply, KeptSession, ReplyQuery, RequestName, SessionRecord};

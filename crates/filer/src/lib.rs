//! The state that clients hold on files: opens and share reservations, locks, delegations and
//! fences, and the incarnations of the clients that hold them.
//!
//! Invariants:
//! - This crate does no I/O, reads no clock, draws no random numbers, and depends on no transport,
//!   store or protocol. Time ([`dafs_types::Moment`]) is an argument, so that the simulator and the
//!   server run the same code.
//! - The reason of a refusal is a [`dafs_ops::Fault`], which each protocol translates into its own
//!   status.
//! - Every data structure that a peer can make grow has a named limit in [`FilerConfig`] or in
//!   [`dafs_types::limits`].
//!
//! One thread owns a [`Filer`] and calls it directly; there is no queue. The call made for every
//! READ and WRITE ([`Filer::check_io`]) consists of array accesses: it neither allocates nor
//! hashes.
//!
//! A caller refers to a client by its [`ClientKey`] and to a fence identity by its [`FenceKey`]; a
//! [`Party`] contains both. After a client or session has ended, its key refers to nothing. The
//! protocol layer authenticates a client. In this crate the client enters, begins its incarnation,
//! and leaves:
//!
//! ```text
//! client_enter ─► entered ─client_begin─► begun ─last client_leave─┬─► gone
//!                    │                      │                      │
//!                    │                      └─a successor begins──►┤
//!                    └─last client_leave──────────────────────────►┤
//!                                           kept ──lease is over──►┘
//!                                            ▲ (its connection was lost)
//! ```
//!
//! Fences ([`FenceTable`]), delegations ([`DelegationTable`]) and locks ([`locks::LockTable`]) are
//! separate state machines that follow the same rules. The comment of each module says what the
//! draft does not define and what this server does there.
#![forbid(unsafe_code)]

mod clients;
mod config;
mod config_error;
mod counters;
mod delegations;
mod fences;
mod filer;
mod holder;
pub mod locks;
mod opens;

pub use clients::{ClientKey, Principal};
pub use config::FilerConfig;
pub use config_error::ConfigError;
pub use counters::Counters;
pub use delegations::{
    DelegationAction, DelegationCounters, DelegationDecision, DelegationFacts,
    DelegationInformation, DelegationKind, DelegationPhase, DelegationPolicy, DelegationTable,
    FileOperation, GrantedDelegation, NoDelegation, RecallOutcome, WaiterId,
};
pub use fences::{
    FenceAction, FenceAuthority, FenceChange, FenceCounters, FenceId, FenceInformation,
    FenceLimits, FenceRecord, FenceRequest, FenceRestoreError, FenceStoreId, FenceTable,
    FencedObject, OperationId, RunningOperation,
};
pub use filer::{
    BeginOutcome, ClientRecord, ClientView, DelegationRequest, EnterError, EnteringClient,
    FenceKey, Filer, LeaveReason, NFS4_NAME_PREFIX, NLM_NAME_PREFIX, Party, RunningRequest,
};
pub use holder::{Holder, SHARE_TIMES, fair_share};
pub use opens::{Closed, FileKey, IoKind, OpenArguments, Opened, RemoveDecision};

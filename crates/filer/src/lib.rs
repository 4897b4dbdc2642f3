//! What clients hold of files: opens and their reservations, locks, delegations, fences, and the
//! lives of the clients that hold them.
//!
//! Invariant: this crate does no I/O, reads no clock, draws no randomness and knows neither
//! transport nor store nor any protocol. Time ([`dafs_types::Moment`]) is an argument, so that the
//! simulator and the server run the same code. Why something is not done is a
//! [`dafs_ops::Fault`], which each protocol has its own word for. Everything a peer can make grow
//! has a named limit in [`FilerConfig`] or in [`dafs_types::limits`].
//!
//! One thread owns a [`Filer`] and calls it directly; nothing is queued. What is called for every
//! READ and WRITE ([`Filer::check_io`]) is array accesses: it neither allocates nor hashes.
//!
//! Whoever asks names a client by its [`ClientKey`], and the identity that fences know it by with
//! its [`FenceKey`]; both together are a [`Party`]. A key that is used after its owner's end names
//! nobody. How somebody comes to be a client is the business of the protocol's half; here it
//! enters, begins its life, and leaves:
//!
//! ```text
//! client_enter ─► heir ─client_begin─► lives ─last client_leave─┬─► gone
//!                  │                     │                      │
//!                  │                     └─another life begins─►┤
//!                  └─last client_leave─────────────────────────►┤
//!                                        kept ──lease is over──►┘
//!                                         ▲ (its connection was lost)
//! ```
//!
//! Fences ([`FenceTable`]), delegations ([`DelegationTable`]) and locks ([`locks::LockTable`]) are
//! machines of their own, with the same rules; each says in its module what the draft leaves open
//! and what is done there.
#![forbid(unsafe_code)]

mod clients;
mod config;
mod counters;
mod delegations;
mod fences;
mod filer;
mod holder;
pub mod locks;
mod opens;
mod unkept;

pub use clients::{ClientKey, Principal};
pub use config::FilerConfig;
pub use counters::Counters;
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
    Begun, ClientRecord, ClientView, DelegationWish, Entering, FenceKey, Filer, Leaving,
    NotEntered, Party, RunningRequest,
};
pub use holder::{Holder, SHARE_TIMES, fair_share};
pub use opens::{Closed, FileKey, IoKind, OpenArguments, Opened, RemoveDecision};
pub use unkept::ConfigError;

//! The DAFS file server: where transport, protocol, state machine and store meet.
//!
//! Reactors, one or several threads, serve connections, and have the server in turns (decision
//! 0041). What may block for long is a job on a small pool of threads, whose result comes back as
//! an event. Name-space calls run in a turn, so a slow disk delays other sessions by one such
//! call (decision 0001).
//! Requests that must wait (for a fill, a flush, room) are parked as `task`s and tried
//! again on progress.
//!
//! By folder: `access` lets clients in, `session` keeps their sessions; `requests` takes what they
//! ask for and answers it, `waiting` keeps what has to wait for others; `files` does what is asked
//! for to files, with `undo` and `ledger`; `moving` and `batch` move bytes, `pool` does what may
//! block; `meter` counts and shows. Only what ties them together reaches all of it (the struct
//! `Reactor`).
//!
//! A read: `reactor` takes the message from the transport, `requests/serve` has it decoded and
//! admitted; `moving/read` finds the bytes in the cache and posts RDMA writes from there,
//! `moving/hits` those of several plain reads together; `requests/respond` encodes and posts the
//! answer.
//!
//! Invariant: every admitted request is answered exactly once, or its connection is
//! gone; nothing a peer sends can make a table here grow beyond its limit.
#![forbid(unsafe_code)]

mod access;
mod afterwards;
mod batch;
mod channel;
mod config;
mod data;
mod direct_reads;
#[doc(hidden)]
pub mod fuzzing;
mod handoff;
mod hold;
mod ledger;
mod life;
mod meter;
mod moving;
mod parts;
mod pool;
mod reactor;
mod reply_to;
mod requests;
mod server;
mod session;
mod starting;
mod stepped;
mod task;
mod upkeep;
mod waiting;

pub use access::authorize::{
    AccessRules, ConnectRule, ExportRules, Origin, PartialTerms, PeerFacts, Peers,
    PrincipalPattern, TransportKind,
};
pub use access::gss::{KerberosConfig, KerberosError};
pub use access::one_time::OneTimeUser;
pub use access::passwords::{PasswordError, PasswordFile};
pub use access::rule_text::{RuleError, authentication_named};
pub use config::{REACTORS_MAX, ServerConfig, ServerError};
#[doc(hidden)]
pub use dafs_files::defect::Defect;
pub use dafs_files::ledger::{JournalConfig, LedgerError};
pub use meter::follow::{Followed, RequestRecord, Selection, ServerEnded};
pub use meter::inspect::{
    FenceView, FileView, Inspection, Inspector, LockView, SessionInspection, WaiterView,
};
pub use meter::stats::ServerStats;
pub use meter::{Histogram, ProcedureNumbers, Traffic, TransportNumbers};
pub use server::{Server, Stopper};
pub use stepped::SteppedServer;

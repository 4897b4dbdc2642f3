//! The DAFS file server: where transport, protocol, state machine and store meet.
//!
//! One thread, the reactor, owns everything. What may block for long is a job on a small
//! pool of threads, whose result comes back as an event. Name-space calls run on the
//! reactor, so a slow disk delays other sessions by one such call (decision 0001).
//! Requests that must wait (for a fill, a flush, room) are parked as `task`s and tried
//! again on progress.
//!
//! A read, by file: `reactor` takes the message from the transport, `serve` has it
//! decoded and admitted; `read` finds the bytes in the cache and posts RDMA writes
//! from there, `hits` those of several plain reads together; `respond` encodes and posts
//! the answer.
//!
//! Invariant: every admitted request is answered exactly once, or its connection is
//! gone; nothing a peer sends can make a table here grow beyond its limit.
#![forbid(unsafe_code)]

mod accept;
mod afterwards;
mod answers;
mod asks;
mod authorize;
mod back;
mod batch;
mod caller;
mod chain;
mod channel;
mod config;
mod credentials;
mod crowd;
mod data;
mod decode;
mod defect;
mod delegations;
mod direct_reads;
mod entrance;
mod fencing;
mod files;
mod follow;
#[doc(hidden)]
pub mod fuzzing;
mod granting;
mod gss;
mod handles;
mod hits;
mod inspect;
mod jobs;
mod ledger;
mod life;
mod lock_waits;
mod logins;
mod meter;
mod one_time;
mod opened;
mod outcome;
mod parts;
mod passwords;
mod queue;
mod reactor;
mod read;
mod reply_to;
mod respond;
mod sealed;
mod serve;
mod server;
mod session;
mod set_aside;
mod settings;
mod shares;
mod stalls;
mod stats;
mod stepped;
mod sums;
mod task;
mod transfer;
mod translate;
mod undo;
mod upkeep;
mod users;
mod waiting;
mod way;
mod write;
mod writes;

pub use authorize::{
    AccessRules, ConnectRule, ExportRules, Origin, PartialTerms, PeerFacts, Peers,
    PrincipalPattern, RuleError, TransportKind, authentication_named,
};
pub use config::{ServerConfig, ServerError};
#[doc(hidden)]
pub use defect::Defect;
pub use follow::{Followed, RequestRecord, Selection, ServerEnded};
pub use gss::{KerberosConfig, KerberosError};
pub use inspect::{
    FenceView, FileView, Inspection, Inspector, LockView, SessionInspection, WaiterView,
};
pub use ledger::{JournalConfig, LedgerError};
pub use meter::{Histogram, ProcedureNumbers, Traffic, TransportNumbers};
pub use one_time::OneTimeUser;
pub use passwords::{PasswordError, PasswordFile};
pub use server::{Server, Stopper};
pub use stats::ServerStats;
pub use stepped::SteppedServer;

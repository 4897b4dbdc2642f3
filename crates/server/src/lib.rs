//! The DAFS file server, which connects transport, protocol, state machine and store.
//!
//! One or more reactor threads serve connections and take turns in using the server's state
//! (decision 0041). Work that may block for long is a job for a small worker pool; its result comes
//! back as an event. Name-space calls run within a turn, so a slow disk delays other sessions by at
//! most one such call (decision 0001). A request that must wait (for a fill, a flush, or cache
//! space) is parked as a `task` and continued when progress is possible.
//!
//! The folders:
//! - `access` authenticates and authorizes clients; `session` manages their sessions.
//! - `requests` decodes requests and replies to them; `waiting` holds requests that wait for other
//!   requests.
//! - The crate `dafs-files` executes requests on files, with undo data and the `ledger`.
//! - `moving` and `batch` transfer bytes; `pool` runs jobs that may block.
//! - `meter` collects statistics.
//!
//! Only the struct `Reactor` connects all of these.
//!
//! A read takes this path: `reactor` receives the message from the transport; `requests/serve`
//! decodes and admits the request; `moving/read` finds the bytes in the cache and posts RDMA writes
//! from there, or `moving/hits` does so for several plain reads together; `requests/respond`
//! encodes and posts the reply.
//!
//! Invariants:
//! - Every admitted request gets exactly one reply, or its connection ends.
//! - No message from a peer can grow a table beyond the table's limit.
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
mod guests;
mod handoff;
mod hold;
mod ledger;
mod life;
mod meter;
mod moving;
mod nfs;
mod parts;
mod persistent;
mod pool;
mod reactor;
mod repeats;
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
pub use access::exports::clients::ClientName;
pub use access::exports::compile::{CompiledExports, HostLookup, SystemLookup};
pub use access::exports::flavors::{Flavor, FlavorTerms};
pub use access::exports::options::ClientOptions;
pub use access::exports::parse::{ExportsError, ExportsFile, ListedClient, ListedExport};
pub use access::exports::rules::{
    NfsClients, NfsExport, NfsPeers, NfsRules, PRIVILEGED_PORTS, TransportSecurity,
};
pub use access::gss::{KerberosConfig, KerberosError};
pub use access::live::{LiveVersion, Reloader};
pub use access::one_time::OneTimeUser;
pub use access::passwords::{PasswordError, PasswordFile};
pub use access::rule_text::{RuleError, authentication_named};
pub use config::{Patience, REACTORS_MAX, ServerConfig, ServerError};
#[doc(hidden)]
pub use dafs_files::defect::Defect;
pub use dafs_files::ledger::{JournalConfig, LedgerError};
pub use meter::call::NfsStatus;
pub use meter::follow::{
    Followed, RequestName, RequestNumber, RequestRecord, RequestStatus, Selection, ServerEnded,
};
pub use meter::inspect::{
    FenceView, FileView, Inspection, Inspector, LockView, SessionInspection, WaiterView,
};
pub use meter::nfs::{
    NfsClientNumbers, NfsConnections, NfsNumbers, NfsProcedureNumbers, NfsTransport,
};
pub use meter::stats::ServerStats;
pub use meter::{Histogram, ProcedureNumbers, Traffic, TransportNumbers};
pub use nfs::config::NfsConfig;
pub use server::{Server, Stopper};
pub use stepped::SteppedServer;

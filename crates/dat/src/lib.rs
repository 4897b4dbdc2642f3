//! The Direct Access Transport: connections over which one side moves bytes
//! straight into or out of the other side's registered memory.
//!
//! A library of its own: it knows nothing of files. One [`Interface`] belongs to
//! one thread and owns listeners, endpoints, registered regions and the queue of
//! completions. Work is *posted* (never blocks), made visible by [`Interface::flush`],
//! and ends as a [`Completion`]. Nothing happens behind the caller's back: progress
//! is made in [`Interface::poll`] and [`Interface::wait`] alone. A process that serves by several
//! threads has an interface for each; an [`AcceptGroup`] has them share the connections that come
//! to one address.
//!
//! Invariants, the same over every provider (`tests/conformance`):
//! - messages arrive complete, once, in the order sent, each in the oldest posted
//!   receive; a message without a posted receive breaks the connection;
//! - an RDMA write posted before a send is placed before that send's receive
//!   completes; RDMA consumes no receive at the target;
//! - on any error the connection breaks and everything outstanding completes with
//!   an error, each piece of work exactly once;
//! - memory is reachable only through a registered region, inside its bounds and
//!   with its rights; a violation breaks the connection and moves nothing.
//!
//! Providers: [`shm`] (one host), [`tcp`] (software iWARP, by TLS if asked), [`verbs`] (RDMA
//! devices), [`sim`] (deterministic).

mod address;
mod connection;
mod disposal;
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod ids;
mod inbox;
mod interface;
mod own;
mod region;
mod spare;
mod tls;
mod wait;
mod waker;
mod work;

pub mod shm;
pub mod sim;
pub mod tcp;
pub mod verbs;

pub(crate) use address::Holder;
pub use address::{Address, AddressError, Peer, PeerProcess};
pub use dafs_iwarp::ReadyToReceiveSet;
pub use group::AcceptGroup;
pub use ids::{Domain, EndpointId, ListenerId, LocalKey, OWNERS_MAX, PendingId, Stag};
pub use inbox::{Inbox, InboxError, InboxSlot};
pub use interface::exposure::{self, Exposes, Guards, ServingInterface};
pub use interface::{EndpointConfig, Interface, InterfaceConfig};
pub use own::{Ended, Lender, OwnMemory, TrustedPeers};
pub use region::{
    DmabufError, DmabufRange, LocalSegment, Region, RegionPath, RegisterError, RemoteSegment,
    Rights,
};
pub use tcp::MpaOptions;
pub use tls::{
    CertificateIdentity, ClientCertificates, TlsClient, TlsClientFiles, TlsConfigError, TlsFailure,
    TlsServer, TlsServerFiles, TlsTarget,
};
pub use wait::{WaitPolicy, coarse_now};
pub use waker::Waker;
pub use work::{
    BreakReason, Completion, CompletionStatus, Event, Forecast, Gather, Operation, PostError,
    SendOptions, Signal,
};

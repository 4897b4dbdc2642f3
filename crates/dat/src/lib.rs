//! The Direct Access Transport: connections over which one side moves bytes directly into or out
//! of registered memory of its peer.
//!
//! This crate is independent of files. One [`Interface`] belongs to one thread and owns listeners,
//! endpoints, registered regions and the queue of completions. Work is *posted*, which never
//! blocks. [`Interface::flush`] makes posted work visible to the peer, and each work request ends
//! with a [`Completion`]. The interface makes progress only in [`Interface::poll`] and
//! [`Interface::wait`]. A process that serves with several threads has one interface per thread. An
//! [`AcceptGroup`] makes these interfaces share the connections that arrive at one address.
//!
//! Invariants, the same for every provider (`tests/conformance`):
//!
//! - Messages arrive complete, once and in the order sent, each in the oldest posted receive. A
//!   message without a posted receive breaks the connection.
//! - An RDMA write that was posted before a send is placed before the receive of that send
//!   completes. RDMA writes and reads consume no receive at the target.
//! - Any error breaks the connection, and all outstanding work completes with an error, each work
//!   request exactly once.
//! - Memory is accessible only through a registered region, within its bounds and rights. A
//!   violation breaks the connection and moves no bytes.
//!
//! The providers are [`shm`] (within one host), [`tcp`] (software iWARP, optionally over TLS),
//! [`verbs`] (RDMA devices) and [`sim`] (a deterministic simulation).

// The build with all features checks for unused code. Without one of the features, much code that
// serves its provider is unused.
#![cfg_attr(not(all(feature = "tls", feature = "verbs")), allow(dead_code))]

mod address;
mod connection;
mod disposal;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod ids;
mod inbox;
mod interface;
mod own;
mod region;
mod spare;
mod spinner;
mod stream;
mod tls;
mod wait;
mod waker;
mod work;

pub mod records;
pub mod shm;
pub mod sim;
pub mod tcp;
#[cfg(feature = "verbs")]
pub mod verbs;
#[cfg(not(feature = "verbs"))]
#[path = "verbs/absent.rs"]
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
pub use spinner::{Polled, Spinner};
pub use tcp::MpaOptions;
pub use tls::{
    CertificateIdentity, ClientCertificates, TlsClient, TlsClientFiles, TlsConfigError, TlsFailure,
    TlsServer, TlsServerFiles, TlsTarget,
};
pub use wait::{WaitPolicy, coarse_now};
pub use waker::Waker;
pub use work::{
    BreakReason, Cause, Completion, CompletionStatus, Event, Forecast, Gather, Operation,
    PostError, SendOptions, Signal,
};

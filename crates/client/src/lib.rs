//! The DAFS client library: reads and writes files of a server directly from and into the
//! application's own buffers.
//!
//! A [`Client`] belongs to one thread, and makes progress only in calls from that thread: there are
//! no hidden threads. A client has [`Session`]s with servers, and a session opens [`File`]s. Every
//! transfer is asynchronous internally: [`Session::submit_read`] and [`Session::submit_write`] name
//! a completion [`Group`], and [`Client::wait`] sleeps until a given number of a group's operations
//! have completed. The simple calls ([`File::read_at`] and similar) submit a transfer and wait for
//! it. Opens, closes, and requests about names and attributes are available as futures too
//! ([`Session::open_in_async`] and similar), so that one thread can work on many files at once.
//!
//! Memory from [`Client::allocate`] is registered: the server moves data directly into it. Other
//! memory can be registered with [`Client::register`] (heap memory) or [`Client::register_memory`]
//! (memory by pointer and length); [`Session::path_of`] returns how data reaches it. Unregistered
//! slices are copied once through a pool of registered buffers, unless RDMA devices are allowed to
//! access them directly ([`ClientConfig::own_memory`]). Memory of other devices, such as GPUs, is
//! registered by its dmabuf ([`Session::register_dmabuf`]); only RDMA devices move its data, never
//! the processor.
//!
//! Invariants:
//!
//! - A submitted range of a buffer belongs to the transport until the transfer completes.
//! - The number of outstanding requests never exceeds the credits granted by the server.
//!
//! A session that loses its connection recovers ([`Recovery`]): it reconnects, queries the server
//! for the outcomes of the requests that were in flight, reclaims its opens, and repeats the
//! requests that were not executed. Callers only notice a pause.
//!
//! All sessions of one client share a protection domain. Use a separate client for a server that
//! must not be able to access memory registered for other servers.
//!
//! An example that reads with several requests in flight, directly into registered memory:
//!
//! ```no_run
//! use dafs_client::{Client, ClientConfig, OpenOptions, SessionOptions};
//!
//! let client = Client::new(ClientConfig::default())?;
//! let location = "dafs://server.example/".parse()?;
//! let options = SessionOptions::default().credits(32);
//! let session = client.connect(&location, &options)?;
//! let file = session.open("/data/input", &OpenOptions::read())?;
//!
//! let buffer = client.allocate(4 << 20)?;
//! let group = client.group();
//! for block in 0..4 {
//!     let slice = buffer.slice(block << 20, 1 << 20)?;
//!     session.submit_read(&file, (block as u64) << 20, slice, group, block as u64)?;
//! }
//! while client.wait(group, 1, None) > 0 {
//!     while let Some(completion) = client.next(group) {
//!         let bytes = completion.result?.length;
//!         println!("block {}: {bytes} bytes", completion.context);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The folder `examples` of the crate has programs that copy files, keep many requests in flight,
//! and use locks. A [`Client`] and all objects that belong to it stay on one thread: they are not
//! [`Send`].
#![forbid(unsafe_code)]

mod app_memory;
mod back_channels;
mod back_control;
mod batch;
mod buffer;
mod by_handle;
mod by_path;
mod call;
mod calls;
mod chain;
mod channels;
mod client;
mod connect;
mod connect_request;
mod core;
mod credentials;
mod credits;
mod data;
mod decode;
mod delegation_cache;
mod delegations;
mod device;
mod direct;
mod direct_reads;
mod disconnect_reasons;
mod driving;
mod ending;
mod error;
mod features;
mod fencing;
mod file;
mod future;
mod groups;
mod held_locks;
mod ids;
mod impersonation;
mod in_flight;
mod label;
mod locks;
mod login;
mod metadata;
mod naming;
mod open_options;
mod opens;
mod operation;
mod options;
mod path;
mod path_resolution;
mod pending_events;
mod pool;
mod ranges;
mod reach;
mod recovery;
mod refusal;
mod removal;
mod reply_future;
mod requests;
mod result_sinks;
mod session;
mod setters;
mod sizes;
mod state;
mod stream;
mod table;
mod transfer;
mod transport;
mod turns;
mod umask;
mod url;
mod waiters;
mod work;

pub use back_channels::LockReady;
pub use batch::{Batch, Batched};
pub use buffer::{Buffer, Slice};
#[doc(hidden)]
pub use call::{Call, Reply};
pub use chain::{Chain, ChainFailure, Chained, NewFile, Outcome};
pub use client::{Client, ClientConfig};
pub use device::{DeviceMemory, DeviceSlice, Span};
pub use direct_reads::Mapping;
pub use driving::block_on;
pub use error::{ClientError, Result, SystemCause};
pub use file::File;
pub use groups::Group;
pub use held_locks::LockKind;
pub use impersonation::{ActFor, RegisteredCredentials};
pub use label::Label;
pub use locks::{LockHolder, POLL_MAX as LOCK_POLL_MAX};
pub use login::identity::{Identity, Login, Tickets};
pub use metadata::{DirectoryEntry, Metadata};
pub use open_options::OpenOptions;
pub use operation::{Completion, OperationId, Transferred};
pub use options::{SessionOptions, TransportChoice};
pub use path::{Resolved, shown_path, split_last};
pub use ranges::CopySpan;
pub use recovery::options::{Recovery, RecoveryOptions, SessionEvent};
pub use session::Session;
pub use stream::{ReadStream, WriteStream};
pub use umask::{Umask, process_umask};
pub use url::{
    Location, ServerName, UrlError, local_socket_candidates, password_range, without_passwords,
};

pub use dafs_dat::{
    Address, CertificateIdentity, OwnMemory, RegionPath, TlsClient, TlsClientFiles, TlsConfigError,
    TrustedPeers, WaitPolicy,
};
pub use dafs_gss::{CredentialSource, NameError, Principal, ServiceName};
pub use dafs_memory::{CacheCounters, CacheLimits, Memory};
pub use dafs_types::{
    AccessMask, AuthType, CacheHint, CachePattern, DeleteDisposition, DeviceNumber, FileAttributes,
    FileHandle, FileSystemAttributes, ObjectType, SetAttributes, SetTime, ShareAccess, ShareDeny,
    ShareKey, Stability, StateId, Status, Timestamp, Verifier,
};
pub use dafs_wire::messages::{
    FenceAccess, FenceObject, FenceUpdate, LockOptions, LockType, NewObject,
};

/// Types of lower-level crates, for the other crates of the DAFS project.
///
/// **Semantic versioning does not cover this module**, nor the methods that take or return its
/// types, which the documentation leaves out: [`Client::over`], [`Session::start`],
/// [`Session::opened`], [`File::start_close`], [`Chain::request`], [`Slice::direct`], and [`Call`]
/// with [`Reply`]. Any release may change them.
#[doc(hidden)]
pub mod internals {
    pub use dafs_dat::Interface;
    pub use dafs_wire::{DirectBuffer, Request, Response};
}

/// The example in the README, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

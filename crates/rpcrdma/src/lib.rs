//! RPC-over-RDMA version 1 (RFC 8166) as state machines: carries RPC calls and replies, with their
//! bulk data, over connections with RDMA.
//!
//! Invariants:
//! - This crate does no I/O, reads no clock, and moves no bulk data. It says which RDMA operations
//!   must be executed, and the caller (the *driver*) executes them.
//! - Everything that a peer can make grow has a limit in [`limits`].
//! - The server exposes no memory. It reads from and writes to the memory of its peer, and none of
//!   its [actions](server::Action) gives the peer access to memory of the server (the Read-Write
//!   design).
//!
//! A *chunk* is a part of a message that is moved by RDMA instead of inside a Send. It consists of
//! *segments*, which are registered ranges of the client's memory:
//!
//! ```text
//! Read chunk    data of a call, which the server reads       (NFS WRITE)
//! Write chunk   data of a reply, which the server writes     (NFS READ)
//! Reply chunk   a whole reply that does not fit in a Send    (NFS READDIR)
//! ```
//!
//! [`header`] encodes and decodes transport headers, [`server`] and [`client`] are the two ends of
//! a connection, and [`binding`] has the rules for NFS (RFC 8267). Servers send calls, too: the
//! callbacks of NFSv4.1 (RFC 8167).
#![forbid(unsafe_code)]

pub mod binding;
pub mod client;
mod credits;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod header;
pub mod limits;
pub mod private_data;
pub mod server;

//! A client of RPC over RDMA (RFC 8166) over the transports of `dat`, for tests and benchmarks.
//!
//! [`Connection`] sends calls and receives replies, both as whole RPC messages: it decides which
//! data travels in chunks, and puts messages together again. [`Bridge`] lets clients that only know
//! TCP use a server over RDMA.
//!
//! Invariant: a server can access only buffers of calls that are in flight.
#![forbid(unsafe_code)]

mod bridge;
mod buffers;
mod connection;
mod plan;

pub use bridge::Bridge;
pub use connection::{CallError, ConnectError, Connection, Received};

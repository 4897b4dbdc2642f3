//! Serves NFS clients: ONC RPC over TCP, UDP and RDMA, with MOUNT, NFSv3 and NFSv4.
//!
//! NFS clients are served by one more reactor, with sockets in place of DAFS connections. A call is
//! executed by the same operations on files as a DAFS request. So both kinds of clients share
//! names, opens, locks, delegations, fencing lists and the cache. This module contains the parts
//! that only NFS has: calls, sessions, compounds, and the encoding of results.
//!
//! Invariants:
//! - The payload of a READ goes from the cache to the socket, or to the memory of a client with
//!   RDMA, without a copy in this process.
//! - No code in this module waits for a socket or a disk while it holds the lock of the shared
//!   state.

mod calls;
pub(crate) mod config;
mod front;
pub(crate) mod gss;
mod mount;
mod names;
mod rdma;
mod recent;
mod run;
mod side;
mod told;
mod users;
mod v3;
mod v4;

pub(crate) use front::Front;
pub(crate) use run::{SteppedFront, serve_nfs};
pub(crate) use v4::client_record_of;

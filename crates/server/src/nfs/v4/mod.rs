//! NFS versions 4.1 and 4.2 (RFC 8881, RFC 7862): compounds of operations in sessions.
//!
//! Invariants:
//! - Every request of a session is executed once. A repeated request gets the first reply.
//! - The state of clients is in the same tables as that of DAFS clients; this module adds only the
//!   numbers that version 4 needs.

mod asking;
mod attributes;
mod callbacks;
mod compound;
mod convert;
mod copies;
mod courtesy;
mod data;
mod delegations;
mod ending;
mod fault;
mod handles;
mod journaled;
mod listing;
mod locks;
mod names;
mod offload;
mod opens;
mod persistent;
mod ranges;
mod read_plan;
mod read_plus;
mod recalls;
mod repeats;
mod sequence;
mod sessions;
mod settings;
pub(super) mod state;
mod state_ids;
mod states;
pub(super) mod waiting;
mod xattrs;

pub(super) use compound::{resume, serve};
pub(super) use offload::end_copy;
pub(super) use sequence::peer_of;
pub(crate) use sessions::client_record_of;
pub(super) use state::{State, end_leases, take_replies};
pub(super) use waiting::{Proof, Ran, Sender};

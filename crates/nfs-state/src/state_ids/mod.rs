//! State ids: the names of opens, locks, delegations and layouts in messages (RFC 8881 section
//! 8.2), and the owners of opens and locks.
//!
//! Invariants:
//! - The bytes of a state id without its sequence number are never used for two states, neither in
//!   one run of the server nor in different runs.
//! - A state belongs to one client, and no other client can use its id.
//! - A lock state (the locks of one owner under one open) ends when its open ends.
//! - The id of a revoked state stays known until the client frees it or the client's record ends.

mod id;
mod owners;
mod table;
mod view;

pub use id::Stateid4;
pub use view::{Checked, FileNumber, KindSet, Revocation, StateKind, StateView};

pub(crate) use table::{NewState, States};

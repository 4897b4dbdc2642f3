//! State ids: the names of opens, locks, delegations and layouts in messages (RFC 8881 section
//! 8.2), and the owners of opens and locks.
//!
//! Invariants:
//! - The part of a state id that does not count changes is never used for two states, in this run
//!   of the server or in another.
//! - A state belongs to one client, and no other client can use its id.
//! - The state of locks belongs to one open, and ends with it.
//! - A revoked state keeps its id until its client frees it or ends.

mod id;
mod owners;
mod table;
mod view;

pub use id::{SpecialId, Stateid4};
pub use view::{Checked, FileNumber, KindSet, Revocation, StateKind, StateView};

pub(crate) use table::{NewState, States};

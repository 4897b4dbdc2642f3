//! How reactors work together: messages between them, how they sleep and are woken, and what they
//! share. `docs/decisions/0037-a-shard-for-each-core.md` says why it is done in this way.
//!
//! [`Crossing::open`] makes one [`Port`] for each reactor. A reactor asks another one
//! ([`Port::ask`]), answers what it was asked ([`Port::answer`]), and tells what needs no answer
//! ([`Port::tell`]). [`Shares`] divide a budget that all of them draw on.
//!
//! Invariant: nothing here blocks, spins, takes a lock, or allocates once it has been made.
#![forbid(unsafe_code)]

mod bell;
mod lane;
mod port;
mod shares;
mod waker;

pub use port::{AnswerPermit, Crossing, Event, Port, Rest, SLOTS_MAX, Ticket};
pub use shares::{Share, Shares};
pub use waker::{EventWaker, Waker};

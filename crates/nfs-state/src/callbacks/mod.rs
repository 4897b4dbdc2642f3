//! Callbacks to clients: recalls and notices, sent over the back channels of sessions.
//!
//! Invariants:
//! - A callback belongs to a client. It may use any session of the client, and moves to another one
//!   if its session ends.
//! - A back slot has at most one callback in flight, and its number advances only when the client
//!   has replied. After the loss of a connection, the callback is repeated in the same slot and
//!   with the same number over another connection of the session.
//! - Each callback ends once: with the client's reply, at its deadline, or with its client.
//!
//! ```text
//!          slot and connection                reply
//! waiting ─────────────────────► in flight ─────────────► ended
//!    ▲ ▲                          │  │   ▲
//!    │ └─session ended, postponed─┘  │   │ repeat, perhaps on another connection
//!    │           connection lost, or ▼   │
//!    └───session ended────── client busy: stranded
//! ```
//!
//! At its deadline, a callback ends in every phase. If it has a slot, it occupies the slot until the
//! client replies or the session ends.

mod slots;
mod table;

pub use table::{CallbackEvent, CallbackOutcome, CallbackReply, ReferringCall};

pub(crate) use slots::BackSlots;
pub(crate) use table::{Callback, Callbacks, Phase};

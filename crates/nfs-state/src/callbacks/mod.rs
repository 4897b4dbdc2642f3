//! Callbacks to clients, such as recalls of delegations. They are sent over the back channels of
//! sessions.
//!
//! Invariants:
//! - A callback belongs to a client. It may be sent over any session of the client. If that session
//!   ends, it is sent over another session.
//! - A back slot has at most one callback in flight, and its sequence number advances only when the
//!   client has replied. After the loss of a connection, the callback is repeated on the same slot,
//!   with the same sequence number, over another connection of the session.
//! - Each callback ends once: when the client replies, at the callback's deadline, or when the
//!   client's record ends.
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
//! At its deadline, a callback ends in every phase. If it has a slot, it occupies the slot until
//! the client replies or the session ends.

mod slots;
mod table;

pub use table::{CallbackEvent, CallbackOutcome, CallbackReply, ReferringCall};

pub(crate) use slots::BackSlots;
pub(crate) use table::{Callback, Callbacks, Phase};

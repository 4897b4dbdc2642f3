//! Sessions: channels, connections, slots and the replies that are kept for repeats.
//!
//! Invariants:
//! - A session id is never used for two sessions, neither in one run of the server nor in different
//!   runs, and no peer can guess it.
//! - A slot has at most one request in progress. A request is executed once, however often its
//!   client sends it.
//! - A SEQUENCE that is refused leaves its slot unchanged.
//! - A session reserves memory for the largest reply of each slot that its client may use. So there
//!   is always memory for a reply that must be kept.

mod attributes;
mod connections;
mod record;
mod resize;
mod restore;
mod session;
mod slots;
mod table;

pub use attributes::ChannelAttributes;
pub use connections::{BindDirection, BoundDirection};
pub use record::{SessionRecord, SlotEnd, SlotRecord};
pub use resize::SlotRecall;
pub use session::{CallbackParameters, CallbackSecurity, SessionView, create_flags};
pub use slots::SlotDecision;
pub use table::Sessions;

pub(crate) use attributes::{negotiate_back, negotiate_fore};
pub(crate) use session::Session;
pub(crate) use table::NewSession;

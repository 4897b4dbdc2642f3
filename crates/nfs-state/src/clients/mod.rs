//! The records of clients: EXCHANGE_ID, the confirmation by CREATE_SESSION, and leases.
//!
//! Invariants:
//! - A client owner has at most one confirmed and one unconfirmed record.
//! - A client id is never used for two records, neither in one run of the server nor in different
//!   runs.
//! - A confirmed record is removed only by its own client, by the client's next incarnation, or
//!   after its lease has expired.
//! - While a request of a client is in progress, the client's record is not removed because of an
//!   expired lease.
//!
//! ```text
//!               CREATE_SESSION            lease over              conflict, or
//! unconfirmed ─────────────────► active ◄────────────► courtesy ──time is over──► removed
//!      │                            │     SEQUENCE
//!      └─lease over─► removed       └─next incarnation confirmed, DESTROY_CLIENTID─► removed
//! ```

mod confirm;
mod created;
mod exchange;
mod lease;
mod record;
mod restore;
mod table;

pub use confirm::CreateSequence;
pub use created::CreatedSession;
pub use exchange::{ExchangeId, Exchanged, exchange_flags};
pub use record::{ClientView, EndReason, EndedClient};
pub use table::Clients;

pub(crate) use record::Client;

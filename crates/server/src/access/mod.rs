//! Access control: who may connect, how clients authenticate, and which exports they see.
//!
//! Invariant: a client's rights follow only from what it has proved, never from what it claims.

pub(crate) mod accept;
pub(crate) mod authorize;
pub(crate) mod credentials;
pub(crate) mod entrance;
pub(crate) mod exports;
pub(crate) mod failures;
pub(crate) mod gss;
pub(crate) mod live;
pub(crate) mod logins;
pub(crate) mod one_time;
pub(crate) mod passwords;
pub(crate) mod rule_text;
pub(crate) mod users;

//! Recovery after a lost connection, a killed server or a network partition (draft chapter 5).
//!
//! Invariant: every request that was in flight when a connection was lost ends exactly once, with
//! the server's stored result or after being sent again. A request that changes something is sent
//! again only if the server reports that it was not executed, or if repeating the request makes no
//! difference.
//!
//! The order of the steps matters:
//!
//! 1. Connect and authenticate with the same client name and verifier (`progress.rs`), with a fresh
//!    token for Kerberos.
//! 2. Request the result of each interrupted request whose result the server keeps. The first of
//!    these result requests ends the old connection on the server, and its reply arrives when no
//!    request of the old session is running any more. Only then may a request name memory that an
//!    old request named: until then the old session might still write into that memory.
//! 3. If the server has restarted, which a changed client id shows, register credentials again and
//!    reclaim opens.
//! 4. Discard the old results, and send the requests again that were not executed
//!    (`interrupted.rs`).
//!
//! All of this happens inside calls of the owning thread, one step at a time, while other sessions
//! continue to work. The remaining members of an interrupted chain are sent as a chain
//! (`chains.rs`).

pub(crate) mod additional;
pub(crate) mod attempts;
pub(crate) mod chains;
pub(crate) mod deferred;
pub(crate) mod delay;
pub(crate) mod interrupted;
pub(crate) mod machine;
pub(crate) mod options;
pub(crate) mod outcome;
pub(crate) mod progress;
pub(crate) mod question;
pub(crate) mod questions;
pub(crate) mod server_addresses;
pub(crate) mod takeover;

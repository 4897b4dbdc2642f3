//! Coming back after a broken connection, a killed server, a parted network
//! (draft chapter 5).
//!
//! Invariant: every request that was under way when a connection was lost ends exactly
//! once, with the result the server has for it or after it was asked anew, and none that
//! changes something is asked anew unless the server says that it was not carried out, or
//! doing it again makes no difference.
//!
//! The order is the whole point:
//! 1. Connect and authenticate, under the same client name and verifier (`rescue.rs`); by a
//!    fresh token where tickets prove the client.
//! 2. Ask for the result of each request that the server keeps results of. The first of
//!    these questions parts the old connection on the server's side, and is answered when
//!    nothing of the old session runs any more. Only then may memory be named again that
//!    an old request named: until then the old session might write into it.
//! 3. If the server has restarted, which a changed client id says, register credentials
//!    again, and take opens back.
//! 4. Discard the old results, and ask anew for what was not done (`stranded.rs`).
//!
//! All of it happens inside the calls of the owning thread, a step at a time; other
//! sessions go on meanwhile. What is left of a chain goes on as a chain (`chains.rs`).

pub(crate) mod attempts;
pub(crate) mod chains;
pub(crate) mod delay;
pub(crate) mod folding;
pub(crate) mod following;
pub(crate) mod later;
pub(crate) mod machine;
pub(crate) mod options;
pub(crate) mod outcome;
pub(crate) mod places;
pub(crate) mod question;
pub(crate) mod questions;
pub(crate) mod rescue;
pub(crate) mod stranded;

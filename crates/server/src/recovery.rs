//! Recovery of a session that broke: CHECK_RESPONSE, FETCH_RESPONSE, DISCARD_RESPONSES
//! (draft 5.2, 6.3).
//!
//! Invariant: a result that is kept is kept before it is sent; a question about a session
//! is answered when nothing of that session runs any more.

mod questions;

use dafs_wire::messages::CachedResponse;

use crate::reply_to::ReplyTo;

/// A question that waits for a session to come to rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    answer: ReplyTo,
    about: CachedResponse,
    /// FETCH_RESPONSE, not CHECK_RESPONSE.
    wants_result: bool,
}

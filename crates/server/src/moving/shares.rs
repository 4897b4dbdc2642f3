//! The share of one holder in a resource that all clients use.
//!
//! Invariant: a holder without any of the resource always finds some of it free.

/// Returns true if at least half of the resource is free. In that case no shares are enforced.
pub(crate) fn is_plenty(taken: usize, max: usize) -> bool {
    taken <= max / 2
}

/// Returns true if one holder, which has `own` units of the resource, is within its share. The
/// limit leaves a quarter of the resource to other holders. All clients of one address or user
/// count as one holder.
pub(crate) fn is_share(own: usize, taken: usize, max: usize) -> bool {
    own <= max.saturating_sub(taken).saturating_mul(SHARE_TIMES)
}

/// A holder may have at most this many times the amount that is free.
const SHARE_TIMES: usize = 3;

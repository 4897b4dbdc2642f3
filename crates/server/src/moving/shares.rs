//! The share of one client in a resource that all clients use.
//!
//! Invariant: a client that holds nothing finds some of the resource free.

/// Returns true if at least half of the resource is free; then no shares are enforced.
pub(crate) fn is_plenty(taken: usize, max: usize) -> bool {
    taken <= max / 2
}

/// Returns true if one holder may have `own` of the resource. All clients of one address or user
/// together leave a quarter of the resource to others.
pub(crate) fn is_share(own: usize, taken: usize, max: usize) -> bool {
    own <= max.saturating_sub(taken).saturating_mul(SHARE_TIMES)
}

/// A holder may have this many times the amount that is free.
const SHARE_TIMES: usize = 3;

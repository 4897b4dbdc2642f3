//! What one client may hold of what all clients hold together.
//!
//! Invariant: whoever has nothing of it yet finds something left.

/// Whether so much is free that nobody's share is looked at.
pub(crate) fn is_plenty(taken: usize, max: usize) -> bool {
    taken <= max / 2
}

/// Whether a holder may have `own` of what all hold together. Clients of one address or user,
/// however many, leave a quarter of it to others.
pub(crate) fn is_share(own: usize, taken: usize, max: usize) -> bool {
    own <= max.saturating_sub(taken).saturating_mul(SHARE_TIMES)
}

/// How many times what is free a holder may have.
const SHARE_TIMES: usize = 3;

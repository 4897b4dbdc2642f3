//! Limits the part of a common resource that one holder (a local user or an address) may use.
//!
//! Invariant: a holder that uses none of the resource always finds some of it free.

/// Returns true if at least half of the resource is free. In that case a single holder (a local
/// user or an address) has no limit.
pub(crate) fn is_plenty(taken: usize, max: usize) -> bool {
    taken <= max / 2
}

/// Returns true if one holder (a local user or an address), which uses `own` units of the resource,
/// is within its limit. The limit leaves a quarter of the resource to other holders.
pub(crate) fn is_share(own: usize, taken: usize, max: usize) -> bool {
    own <= max.saturating_sub(taken).saturating_mul(SHARE_TIMES)
}

/// The limit of one holder (a local user or an address), as a multiple of the amount of the
/// resource that is free.
const SHARE_TIMES: usize = 3;

//! Configurations that cannot be kept.
//!
//! Invariant: an error names the limit that it is about.

/// Why a configuration cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A limit is zero or beyond what the tables can hold.
    #[error("{0} is zero or too large")]
    OutOfRange(&'static str),
    /// There would be channels without a credit.
    #[error("credits.budget is below channels_max")]
    BudgetTooSmall,
    /// A default lies outside its own bounds.
    #[error("{0} lies outside its bounds")]
    DefaultOutsideBounds(&'static str),
}

//! The error type for an invalid configuration.
//!
//! Invariant: every error contains the name of the invalid limit.

/// The reason why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A limit is zero or exceeds the capacity of the tables.
    #[error("{0} is zero or too large")]
    OutOfRange(&'static str),
    /// The credit budget has less than one credit for every channel.
    #[error("credits.budget is less than channels_max; every channel needs a credit")]
    BudgetTooSmall,
    /// A default value is outside the limits for that value.
    #[error("{0} is outside its limits")]
    DefaultOutsideBounds(&'static str),
}

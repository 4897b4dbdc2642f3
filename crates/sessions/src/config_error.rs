//! The error of an invalid configuration.
//!
//! Invariant: an error contains the name of the invalid limit.

/// The reason why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A limit is zero or exceeds the capacity of the tables.
    #[error("{0} is zero or too large")]
    OutOfRange(&'static str),
    /// The budget has less than one credit for every channel.
    #[error("credits.budget is less than channels_max; every channel needs a credit")]
    BudgetTooSmall,
    /// A default value is outside its own limits.
    #[error("{0} is outside its limits")]
    DefaultOutsideBounds(&'static str),
}

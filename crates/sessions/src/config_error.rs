//! Errors in a configuration.
//!
//! Invariant: an error names the limit that it is about.

/// The reason why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A limit is zero or more than the tables can hold.
    #[error("{0} is zero or too large")]
    OutOfRange(&'static str),
    /// The budget does not have one credit for every channel.
    #[error("credits.budget is less than channels_max; every channel needs a credit")]
    BudgetTooSmall,
    /// A default is outside its own limits.
    #[error("{0} is outside its limits")]
    DefaultOutsideBounds(&'static str),
}

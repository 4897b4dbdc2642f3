//! The error type for an invalid configuration.
//!
//! Invariant: every error contains the name of the invalid limit.

/// The reason why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A limit is zero or more than the tables can hold.
    #[error("{0} is zero or too large")]
    OutOfRange(&'static str),
}

//! Errors in a configuration.
//!
//! Invariant: an error names the limit that it is about.

/// The reason why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A limit is zero or more than the tables can hold.
    #[error("{0} is zero or too large")]
    OutOfRange(&'static str),
}

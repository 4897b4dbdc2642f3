//! Configurations that cannot be kept.
//!
//! Invariant: an error names the limit that it is about.

/// Why a configuration cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A limit is zero or beyond what the tables can hold.
    #[error("{0} is zero or too large")]
    OutOfRange(&'static str),
}

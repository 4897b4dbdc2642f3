//! Limits on the state that clients may hold.
//!
//! Invariant: every limit of a [`FilerConfig`] that passed [`FilerConfig::check`] is within the
//! capacity of the tables.

use std::time::Duration;

use crate::config_error::ConfigError;
use crate::locks::LockConfig;
use crate::{DelegationPolicy, FenceLimits};

/// The maximum number of opens that a table can contain: the index part of a state id has 20 bits.
pub(crate) const OPENS_LIMIT: u32 = 1 << 20;
/// The largest value that may be configured for the number of clients whose state is kept without a
/// session.
const CLIENTS_LIMIT: u32 = 1 << 16;

/// Limits and policies of a [`crate::Filer`]. The defaults suit a server on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilerConfig {
    /// The time for which a client's state is kept after its last session has ended (LEASE_TIME
    /// attribute).
    pub lease: Duration,
    /// The maximum number of clients whose state is kept without a session.
    pub clients_kept_max: u32,
    /// The limit on the number of opens of all clients, in total.
    pub opens_max: u32,
    /// The maximum number of opens of one client.
    pub opens_per_client_max: u32,
    /// Limits of fencing lists.
    pub fences: FenceLimits,
    /// Limits and policies of delegations.
    pub delegations: DelegationPolicy,
    /// Limits and policies of byte-range locks.
    pub locks: LockConfig,
}

impl Default for FilerConfig {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(90),
            clients_kept_max: 1024,
            opens_max: 64 * 1024,
            opens_per_client_max: 16 * 1024,
            fences: FenceLimits::default(),
            delegations: DelegationPolicy::default(),
            locks: LockConfig::default(),
        }
    }
}

impl FilerConfig {
    /// Checks that the tables can hold as much as every limit allows.
    ///
    /// # Errors
    /// [`ConfigError`] with the name of the first limit that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let ranges = [
            ("clients_kept_max", self.clients_kept_max, CLIENTS_LIMIT),
            ("opens_max", self.opens_max, OPENS_LIMIT),
            ("opens_per_client_max", self.opens_per_client_max, OPENS_LIMIT),
        ];
        for (name, value, most) in ranges {
            if !(1..=most).contains(&value) {
                return Err(ConfigError::OutOfRange(name));
            }
        }
        self.fences.check()?;
        self.delegations.check()?;
        self.locks.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid() {
        assert_eq!(FilerConfig::default().check(), Ok(()));
    }

    #[test]
    fn limits_are_bounded() {
        let config = FilerConfig { opens_max: OPENS_LIMIT + 1, ..FilerConfig::default() };
        assert_eq!(config.check(), Err(ConfigError::OutOfRange("opens_max")));
    }
}

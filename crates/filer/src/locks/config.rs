//! Limits and policies of byte-range locks.
//!
//! Invariant: a [`LockConfig`] that passed its check leaves room for one lock and one waiter of
//! every kind it allows.

use std::time::Duration;

use crate::config_error::ConfigError;

/// The most locks, and the most waiters, that a table can number.
const TABLE_MAX: u32 = 1 << 20;

/// The AUTORECOVERY locks that the server supports (draft 4.4.1.4: they are optional, and a server
/// may restrict them to the whole file).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoRecovery {
    /// None: every request gets NOTSUPP.
    #[default]
    None,
    /// Locks of the whole file; a smaller range gets NOTSUPP.
    WholeFile,
    /// Locks of any range.
    Ranges,
}

/// Limits and policies of locks. `Default` suits one machine whose driver keeps nothing on stable
/// storage: the options that need it are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockConfig {
    /// True if reads and writes are checked against locks (OPEN's result flag MLOCK). If false,
    /// they are only checked against broken locks and running rollbacks, and writes also against
    /// auto-recovery locks.
    pub mandatory: bool,
    /// True if PERSIST is supported: the driver writes records to stable storage.
    pub persistent: bool,
    /// Which AUTORECOVERY locks are supported: the driver keeps undo data on stable storage.
    pub auto_recovery: AutoRecovery,
    /// The most locks of all clients together.
    pub locks_max: u32,
    /// The most locks of one file.
    pub locks_per_file_max: u32,
    /// The most locks of one client.
    pub locks_per_client_max: u32,
    /// The most locks of one owner.
    pub locks_per_owner_max: u32,
    /// The most waiters of all clients together.
    pub waiters_max: u32,
    /// The most waiters of one file. Each change of its locks compares every pair of them.
    pub waiters_per_file_max: u32,
    /// The most waiters of one owner.
    pub waiters_per_owner_max: u32,
    /// How long a polling waiter may stay silent before it loses its position.
    pub waiter_silence_max: Duration,
    /// The most locks and requests that one search for a deadlock visits. A request that would need
    /// more is refused.
    pub deadlock_steps_max: u32,
}

impl Default for LockConfig {
    fn default() -> Self {
        Self {
            mandatory: true,
            persistent: false,
            auto_recovery: AutoRecovery::None,
            locks_max: 256 * 1024,
            locks_per_file_max: 64 * 1024,
            locks_per_client_max: 64 * 1024,
            locks_per_owner_max: 16 * 1024,
            waiters_max: 4096,
            waiters_per_file_max: 64,
            waiters_per_owner_max: 64,
            waiter_silence_max: Duration::from_secs(10),
            deadlock_steps_max: 1024,
        }
    }
}

impl LockConfig {
    /// Checks that the table can hold every limit.
    ///
    /// # Errors
    /// Names the limit that is zero or too large.
    pub fn check(&self) -> Result<(), ConfigError> {
        let limits = [
            ("locks.locks_max", self.locks_max),
            ("locks.locks_per_file_max", self.locks_per_file_max),
            ("locks.locks_per_client_max", self.locks_per_client_max),
            ("locks.locks_per_owner_max", self.locks_per_owner_max),
            ("locks.waiters_max", self.waiters_max),
            ("locks.waiters_per_file_max", self.waiters_per_file_max),
            ("locks.waiters_per_owner_max", self.waiters_per_owner_max),
            ("locks.deadlock_steps_max", self.deadlock_steps_max),
        ];
        match limits.into_iter().find(|(_, limit)| !(1..=TABLE_MAX).contains(limit)) {
            Some((name, _)) => Err(ConfigError::OutOfRange(name)),
            None if self.waiter_silence_max.is_zero() => {
                Err(ConfigError::OutOfRange("locks.waiter_silence_max"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked_by_name() {
        assert_eq!(LockConfig::default().check(), Ok(()));
        let config = LockConfig { locks_max: 0, ..LockConfig::default() };
        assert_eq!(config.check(), Err(ConfigError::OutOfRange("locks.locks_max")));
        let config = LockConfig { waiters_max: TABLE_MAX + 1, ..LockConfig::default() };
        assert_eq!(config.check(), Err(ConfigError::OutOfRange("locks.waiters_max")));
        let config = LockConfig { waiter_silence_max: Duration::ZERO, ..LockConfig::default() };
        assert_eq!(config.check(), Err(ConfigError::OutOfRange("locks.waiter_silence_max")));
    }
}

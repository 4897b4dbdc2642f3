//! Limits and policies of byte-range locks.
//!
//! Invariant: a [`LockConfig`] that passed its check allows at least one lock and one waiter of
//! every kind that it supports.

use std::time::Duration;

use crate::config_error::ConfigError;

/// The maximum number of locks, and of waiters, that a table can contain.
const TABLE_MAX: u32 = 1 << 20;

/// The kinds of AUTORECOVERY locks that the server supports. Such locks are optional, and a server
/// may restrict them to whole files (draft 4.4.1.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoRecovery {
    /// No AUTORECOVERY locks: every request for one gets NOTSUPP.
    #[default]
    None,
    /// Locks of the whole file only: a request for a smaller range gets NOTSUPP.
    WholeFile,
    /// Locks of any range of a file.
    Ranges,
}

/// Limits and policies of locks. The defaults suit a server without stable storage: locks with
/// options that need stable storage are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockConfig {
    /// True if reads and writes are checked against all locks (OPEN's result flag MLOCK). If false,
    /// reads and writes are checked only against broken locks and running rollbacks, and writes
    /// also against auto-recovery locks.
    pub mandatory: bool,
    /// True if PERSIST locks are supported, which requires that the server writes records to stable
    /// storage.
    pub persistent: bool,
    /// The supported AUTORECOVERY locks, which require that the server keeps undo data on stable
    /// storage.
    pub auto_recovery: AutoRecovery,
    /// The limit on the number of locks of all clients, in total.
    pub locks_max: u32,
    /// The maximum number of locks of one file.
    pub locks_per_file_max: u32,
    /// The maximum number of locks of one client.
    pub locks_per_client_max: u32,
    /// The maximum number of locks of one owner.
    pub locks_per_owner_max: u32,
    /// The limit on the number of waiting requests of all clients, in total.
    pub waiters_max: u32,
    /// The maximum number of waiting requests for one file. It is small because each change of the
    /// file's locks compares every pair of these requests.
    pub waiters_per_file_max: u32,
    /// The maximum number of waiting requests of one owner.
    pub waiters_per_owner_max: u32,
    /// The time within which the client of a polling waiter must repeat its request. Otherwise the
    /// waiter loses its position in the queue.
    pub waiter_silence_max: Duration,
    /// The maximum number of locks and requests that one search for a deadlock visits. A request
    /// whose search would exceed this limit is refused.
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
    /// Checks that the table can hold as much as every limit allows.
    ///
    /// # Errors
    /// [`ConfigError`] with the name of the first limit that is zero or too large.
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

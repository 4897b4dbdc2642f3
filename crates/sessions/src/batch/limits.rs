//! The limits of the batch scheduler.
//!
//! Invariant: limits that passed [`BatchLimits::check`] always admit a batch with one request of
//! one byte from a session that has no pending requests.

use std::time::Duration;

use crate::config_error::ConfigError;

/// The maximum number of requests that the scheduler's tables can contain.
const REQUESTS_LIMIT: u32 = 1 << 20;
/// The maximum number of transfers that the scheduler's tables can contain.
const TRANSFERS_LIMIT: u32 = 1 << 22;
/// The longest time for which a batch or a completion may be delayed.
const DELAY_LIMIT: Duration = Duration::from_secs(3600);

/// Limits and policies of batches. A transfer is a part of a request that is contiguous in both the
/// file and the client's memory. A run is one operation of the device, which executes one or more
/// transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// The limit on the number of unreported requests of all sessions, in total.
    pub requests_max: u32,
    /// The maximum number of unreported requests of one session.
    pub requests_per_session_max: u32,
    /// The limit on the number of incomplete transfers of all sessions, in total.
    pub transfers_max: u32,
    /// The maximum number of incomplete transfers of one session.
    pub transfers_per_session_max: u32,
    /// The limit on the number of bytes in incomplete requests of all sessions, in total.
    pub bytes_max: u64,
    /// The maximum number of bytes in incomplete requests of one session.
    pub bytes_per_session_max: u64,
    /// The maximum number of bytes in one run (one operation of the device).
    pub run_bytes_max: u32,
    /// The maximum number of transfers in one run (one operation of the device).
    pub run_pieces_max: u32,
    /// The longest time for which a batch is delayed, even if the client allows a longer window.
    pub window_max: Duration,
    /// How long a completion may wait for other completions after its batch is due.
    pub notice_delay_max: Duration,
    /// The number of runs in flight below which transfers are started early, before their batch is
    /// due, so that the device is not idle. 0 means that transfers are never started early.
    pub early_start_below: u32,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self {
            requests_max: 16 * 1024,
            requests_per_session_max: 1024,
            transfers_max: 128 * 1024,
            transfers_per_session_max: 16 * 1024,
            bytes_max: 4 << 30,
            bytes_per_session_max: 256 << 20,
            run_bytes_max: 1 << 20,
            run_pieces_max: 256,
            window_max: Duration::from_secs(10),
            notice_delay_max: Duration::from_millis(1),
            early_start_below: 1,
        }
    }
}

impl BatchLimits {
    /// Checks that the tables can hold as much as every limit allows.
    ///
    /// # Errors
    /// [`ConfigError`] with the name of the first limit that is zero, too large, or, for the limit
    /// of one session, greater than the limit for all sessions.
    pub fn check(&self) -> Result<(), ConfigError> {
        let counts = [
            ("batch.requests_max", self.requests_max, REQUESTS_LIMIT),
            ("batch.requests_per_session_max", self.requests_per_session_max, self.requests_max),
            ("batch.transfers_max", self.transfers_max, TRANSFERS_LIMIT),
            ("batch.transfers_per_session_max", self.transfers_per_session_max, self.transfers_max),
            ("batch.run_bytes_max", self.run_bytes_max, u32::MAX),
            ("batch.run_pieces_max", self.run_pieces_max, TRANSFERS_LIMIT),
        ];
        for (name, value, most) in counts {
            if !(1..=most).contains(&value) {
                return Err(ConfigError::OutOfRange(name));
            }
        }
        if self.bytes_max == 0 {
            Err(ConfigError::OutOfRange("batch.bytes_max"))
        } else if !(1..=self.bytes_max).contains(&self.bytes_per_session_max) {
            Err(ConfigError::OutOfRange("batch.bytes_per_session_max"))
        } else if self.window_max > DELAY_LIMIT {
            Err(ConfigError::OutOfRange("batch.window_max"))
        } else if self.notice_delay_max > DELAY_LIMIT {
            Err(ConfigError::OutOfRange("batch.notice_delay_max"))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_a_part_is_never_more_than_the_whole() {
        let fine = BatchLimits::default();
        assert_eq!(fine.check(), Ok(()));
        let limits = BatchLimits { requests_per_session_max: fine.requests_max + 1, ..fine };
        let refused = Err(ConfigError::OutOfRange("batch.requests_per_session_max"));
        assert_eq!(limits.check(), refused);
        let limits = BatchLimits { bytes_per_session_max: fine.bytes_max + 1, ..fine };
        assert_eq!(limits.check(), Err(ConfigError::OutOfRange("batch.bytes_per_session_max")));
        let limits = BatchLimits { run_bytes_max: 0, ..fine };
        assert_eq!(limits.check(), Err(ConfigError::OutOfRange("batch.run_bytes_max")));
    }
}

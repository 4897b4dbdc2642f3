//! The scheduler's bounds.
//!
//! Invariant: limits that passed [`BatchLimits::check`] always admit a batch of one
//! request of one byte from a session that has nothing else in hand.

use std::time::Duration;

use crate::unkept::ConfigError;

/// Most requests the scheduler can number.
const REQUESTS_LIMIT: u32 = 1 << 20;
/// Most transfers the scheduler can number.
const TRANSFERS_LIMIT: u32 = 1 << 22;
/// Longest time a batch may be held, or a completion be waited with.
const DELAY_LIMIT: Duration = Duration::from_secs(3600);

/// Bounds and policies of batches. A transfer is a piece of a request whose file range
/// and client memory are both in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most requests of all sessions that have not been reported.
    pub requests_max: u32,
    /// Most of one session.
    pub requests_per_session_max: u32,
    /// Most transfers of all sessions' requests that have not completed.
    pub transfers_max: u32,
    /// Most of one session.
    pub transfers_per_session_max: u32,
    /// Most bytes of all sessions' requests that have not completed.
    pub bytes_max: u64,
    /// Most of one session.
    pub bytes_per_session_max: u64,
    /// Longest run, in bytes.
    pub run_bytes_max: u32,
    /// Most transfers in one run.
    pub run_pieces_max: u32,
    /// Longest time a batch is held, whatever window the client names.
    pub window_max: Duration,
    /// How long a completion may wait for others once its batch is due.
    pub notice_delay_max: Duration,
    /// The work-conserving switch: transfers whose batch is not due yet are started while
    /// the device has fewer than this many runs in flight. 0 always waits for the window.
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
    /// Checks every bound against what the tables can hold.
    ///
    /// # Errors
    /// The first that is zero, too large, or above the bound it is a part of.
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

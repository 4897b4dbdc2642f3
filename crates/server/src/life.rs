//! The clock, start time and shutdown flag of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dafs_dat::coarse_now;
use dafs_files::ledger::LedgerError;
use dafs_types::Moment;

/// The server's clock, start time and shutdown flag.
#[derive(Debug)]
pub(crate) struct Life {
    /// The boot number: a number that no other start of the server has.
    boot: u64,
    /// The start time on the machine's monotonic clock.
    started: Duration,
    now: Moment,
    last_tick: Moment,
    is_asked: Arc<AtomicBool>,
    fatal: Option<LedgerError>,
}

impl Life {
    /// Starts the server's clock.
    pub(crate) fn begin(boot: u64) -> Self {
        Self {
            boot,
            started: coarse_now(),
            now: Moment(0),
            last_tick: Moment(0),
            is_asked: Arc::default(),
            fatal: None,
        }
    }

    /// Returns the boot number, which no other start of the server has.
    #[inline]
    pub(crate) fn boot(&self) -> u64 {
        self.boot
    }

    /// Returns the current time, as of the reactor's last reading of the clock.
    #[inline]
    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    /// Sets the current time.
    #[inline]
    pub(crate) fn pass_to(&mut self, now: Moment) {
        self.now = now;
    }

    /// Reads the machine's clock: with a precision of a microsecond if `is_exact`, otherwise of a
    /// few milliseconds.
    #[inline]
    pub(crate) fn present(&self, is_exact: bool) -> Moment {
        let now = if is_exact { exact_now() } else { coarse_now() };
        let elapsed = now.saturating_sub(self.started).as_nanos();
        Moment(u64::try_from(elapsed).unwrap_or(u64::MAX)).max(self.now)
    }

    /// Returns true if a tick is due, and schedules the next tick.
    #[inline]
    pub(crate) fn ticks(&mut self) -> bool {
        let is_due = self.now.since(self.last_tick) >= TICK;
        if is_due {
            self.last_tick = self.now;
        }
        is_due
    }

    /// Returns the shutdown flag. Setting it to true stops the server.
    pub(crate) fn switch(&self) -> Arc<AtomicBool> {
        self.is_asked.clone()
    }

    /// Stops the server after a failure of the journal, because the server can no longer keep its
    /// promises. The next server recovers the state that is in the journal.
    pub(crate) fn fail(&mut self, error: LedgerError) {
        tracing::error!(%error, "the server stops");
        self.fatal = Some(error);
        self.is_asked.store(true, Ordering::Release);
    }

    /// Removes and returns the error that stopped the server. `None` if it was not stopped by an
    /// error.
    pub(crate) fn take_reason(&mut self) -> Option<LedgerError> {
        self.fatal.take()
    }
}

/// Returns the time of the clock that [`coarse_now`] reads, but with full precision.
fn exact_now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs().try_into().unwrap_or(0))
}

/// The interval at which timers are checked.
const TICK: Duration = Duration::from_millis(100);

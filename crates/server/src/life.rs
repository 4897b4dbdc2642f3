//! How long the server has run, what time it is for it, and whether it is to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dafs_dat::coarse_now;
use dafs_files::ledger::LedgerError;
use dafs_types::Moment;

/// The server's life so far.
#[derive(Debug)]
pub(crate) struct Life {
    /// A number that no other start of a server has had.
    boot: u64,
    /// When it began, by the machine's clock.
    started: Duration,
    now: Moment,
    last_tick: Moment,
    is_asked: Arc<AtomicBool>,
    fatal: Option<LedgerError>,
}

impl Life {
    /// It begins.
    pub fn begin(boot: u64) -> Self {
        Self {
            boot,
            started: coarse_now(),
            now: Moment(0),
            last_tick: Moment(0),
            is_asked: Arc::default(),
            fatal: None,
        }
    }

    /// A number that no other start of a server has had.
    #[inline]
    pub fn boot(&self) -> u64 {
        self.boot
    }

    /// What time it is for all that happens now: the same as long as the reactor does not look at
    /// a clock again.
    #[inline]
    pub fn now(&self) -> Moment {
        self.now
    }

    /// It is later.
    #[inline]
    pub fn pass_to(&mut self, now: Moment) {
        self.now = now;
    }

    /// The present moment by the machine's clock, exact to a few milliseconds, or to the
    /// microsecond.
    #[inline]
    pub fn present(&self, is_exact: bool) -> Moment {
        let now = if is_exact { exact_now() } else { coarse_now() };
        let elapsed = now.saturating_sub(self.started).as_nanos();
        Moment(u64::try_from(elapsed).unwrap_or(u64::MAX)).max(self.now)
    }

    /// Whether a tick is due. It is noted as one that was.
    #[inline]
    pub fn ticks(&mut self) -> bool {
        let is_due = self.now.since(self.last_tick) >= TICK;
        if is_due {
            self.last_tick = self.now;
        }
        is_due
    }

    /// What whoever wants the server to end sets.
    pub fn switch(&self) -> Arc<AtomicBool> {
        self.is_asked.clone()
    }

    /// Nothing can be promised any more: the server ends, and its successor finds out what is
    /// left.
    pub fn fail(&mut self, error: LedgerError) {
        tracing::error!(%error, "the server stops");
        self.fatal = Some(error);
        self.is_asked.store(true, Ordering::Release);
    }

    /// Why it had to end.
    pub fn take_reason(&mut self) -> Option<LedgerError> {
        self.fatal.take()
    }
}

/// As [`coarse_now`], by the same clock, and exact.
fn exact_now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs().try_into().unwrap_or(0))
}

/// How often what is due by time is looked for.
const TICK: Duration = Duration::from_millis(100);

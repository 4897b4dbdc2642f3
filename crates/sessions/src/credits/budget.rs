//! The total credits of all channels, and the share of each channel.
//!
//! A *window* is the credits of one channel. Its *charge* is the number of credits that it takes
//! from the total.
//!
//! Invariants: `charged` is the sum of the charges of open windows. The two sums over contending
//! windows are up to date. Only contending windows have missing credits. `charged + reserved <=
//! total`.

use super::Window;

/// The credits of the whole server.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(super) total: u32,
    pub(super) charged: u32,
    /// The number of credits that are reserved for channels that may still open, one credit for
    /// each channel.
    pub(super) reserved: u32,
    /// The sum of the weights of the channels that contend for scarce credits.
    pub(super) contending_weight: u32,
    pub(super) contending_charge: u32,
    /// The number of credits that channels need and that their shares allow, but that they could
    /// not get.
    pub(super) missing: u32,
    /// The number of channels that would take more credits if more were free.
    pub(super) wanting: u32,
}

impl Budget {
    /// Creates a budget that reserves one credit for each of `channels_max` channels.
    pub(crate) fn new(total: u32, channels_max: u32) -> Self {
        debug_assert!(total >= channels_max);
        Self {
            total,
            charged: 0,
            reserved: channels_max,
            contending_weight: 0,
            contending_charge: 0,
            missing: 0,
            wanting: 0,
        }
    }

    /// Returns the number of credits charged to open channels.
    pub(crate) fn charged(&self) -> u32 {
        self.charged
    }

    /// Charges the first credit of a new channel to the budget. This credit was reserved for it.
    pub(crate) fn channel_opened(&mut self) {
        debug_assert!(self.reserved > 0);
        self.reserved -= 1;
        self.charged += 1;
    }

    /// Returns all credits of a channel that has closed to the free credits of the budget.
    pub(crate) fn channel_closed(&mut self, window: &Window) {
        self.charged -= u32::from(window.charge());
        self.reserved += 1;
        if window.contends {
            self.contending_weight -= u32::from(window.weight.get());
            self.contending_charge -= u32::from(window.charge());
        }
        self.missing -= u32::from(window.missing);
        self.wanting -= u32::from(window.wants_more);
    }

    /// Updates the sums after the number of credits of a channel has changed from `before` to
    /// `after`.
    pub(super) fn recharge(&mut self, before: u16, after: u16, contends: bool) {
        let (before, after) = (u32::from(before), u32::from(after));
        self.charged = self.charged - before + after;
        if contends {
            self.contending_charge = self.contending_charge - before + after;
        }
        debug_assert!(self.charged + self.reserved <= self.total);
    }

    /// Returns the number of free credits.
    pub(super) fn available(&self) -> u32 {
        self.total - self.charged - self.reserved
    }

    pub(super) fn is_plentiful(&self) -> bool {
        self.charged + self.reserved < self.total / 2
    }

    /// Returns the number of credits that the channels that contend for scarce credits have or
    /// could get.
    fn pool(&self) -> u64 {
        u64::from(self.contending_charge) + u64::from(self.available())
    }

    /// Returns a channel's share of the credits in [`Budget::pool`], rounded down, so that all
    /// channels can have their shares at the same time. The channel must contend for scarce
    /// credits.
    pub(super) fn share(&self, window: &Window) -> u16 {
        debug_assert!(window.contends);
        let weighted = self.pool() * u64::from(window.weight.get());
        let share = weighted / u64::from(self.contending_weight);
        u16::try_from(share).unwrap_or(u16::MAX).max(1)
    }

    /// Returns true if at least one other channel contends for scarce credits. This channel must
    /// contend too.
    pub(super) fn is_shared_with(&self, window: &Window) -> bool {
        self.contending_weight > u32::from(window.weight.get())
    }

    /// Returns true if, in case that this channel contended for scarce credits, its share would be
    /// at least `cap`, the most credits that it may have.
    pub(super) fn satisfies(&self, window: &Window, cap: u16) -> bool {
        let weight = u64::from(window.weight.get());
        let (mut pool, mut all) = (self.pool(), u64::from(self.contending_weight));
        if !window.contends {
            pool += u64::from(window.charge());
            all += weight;
        }
        u64::from(cap) * all <= pool * weight
    }
}

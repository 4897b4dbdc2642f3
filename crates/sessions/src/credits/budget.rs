//! The credits of all channels together, and what each one's share is.
//!
//! Invariant: `charged` is the sum of the open windows' charges, the two sums over those
//! that contend are what they say, only those who contend are missing anything, and
//! `charged + reserved <= total`.

use super::Window;

/// The credits of the whole server.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(super) total: u32,
    pub(super) charged: u32,
    /// One credit each for the channels that are not open yet.
    pub(super) reserved: u32,
    /// Weights and charges of the windows that want more than would be their share.
    pub(super) contending_weight: u32,
    pub(super) contending_charge: u32,
    /// Credits that windows wanted within their shares and that nobody had.
    pub(super) missing: u32,
    /// Windows that would have more, if there were more.
    pub(super) hungry: u32,
}

impl Budget {
    /// Keeps one credit back for each of `channels_max` channels.
    pub fn new(total: u32, channels_max: u32) -> Self {
        debug_assert!(total >= channels_max);
        Self {
            total,
            charged: 0,
            reserved: channels_max,
            contending_weight: 0,
            contending_charge: 0,
            missing: 0,
            hungry: 0,
        }
    }

    /// Credits charged to open channels.
    pub fn charged(&self) -> u32 {
        self.charged
    }

    /// Charges a channel its first credit, out of the reserve.
    pub fn channel_opened(&mut self) {
        debug_assert!(self.reserved > 0);
        self.reserved -= 1;
        self.charged += 1;
    }

    /// Takes everything back from a channel.
    pub fn channel_closed(&mut self, window: &Window) {
        self.charged -= u32::from(window.charge());
        self.reserved += 1;
        if window.contends {
            self.contending_weight -= u32::from(window.weight.get());
            self.contending_charge -= u32::from(window.charge());
        }
        self.missing -= u32::from(window.missing);
        self.hungry -= u32::from(window.hungers);
    }

    /// A window's charge has changed.
    pub(super) fn recharge(&mut self, before: u16, after: u16, contends: bool) {
        let (before, after) = (u32::from(before), u32::from(after));
        self.charged = self.charged - before + after;
        if contends {
            self.contending_charge = self.contending_charge - before + after;
        }
        debug_assert!(self.charged + self.reserved <= self.total);
    }

    /// Credits nobody has.
    pub(super) fn available(&self) -> u32 {
        self.total - self.charged - self.reserved
    }

    pub(super) fn is_plentiful(&self) -> bool {
        self.charged + self.reserved < self.total / 2
    }

    /// What those who contend have between them, or could have.
    fn pool(&self) -> u64 {
        u64::from(self.contending_charge) + u64::from(self.available())
    }

    /// A contending window's part of the pool, rounded down: the shares of all of them
    /// can be had at the same time.
    pub(super) fn share(&self, window: &Window) -> u16 {
        debug_assert!(window.contends);
        let weighted = self.pool() * u64::from(window.weight.get());
        let share = weighted / u64::from(self.contending_weight);
        u16::try_from(share).unwrap_or(u16::MAX).max(1)
    }

    /// Whether others contend with a contending window.
    pub(super) fn is_shared_with(&self, window: &Window) -> bool {
        self.contending_weight > u32::from(window.weight.get())
    }

    /// Whether a window's part of the pool, were it to contend, would be all it may have.
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

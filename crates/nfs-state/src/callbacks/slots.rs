//! The slots of a session's back channel, on which the server sends requests.

use smallvec::SmallVec;

use crate::keys::CallbackKey;

/// The slots of one back channel.
#[derive(Debug)]
pub(crate) struct BackSlots(SmallVec<[BackSlot; 1]>);

#[derive(Clone, Copy, Debug, Default)]
struct BackSlot {
    /// The sequence number of the last callback to which the client has replied.
    sequence: u32,
    user: Option<CallbackKey>,
    /// True if the client has refused the sequence number, so that the slot can no longer be used.
    is_broken: bool,
}

impl BackSlots {
    /// Creates unused slots.
    pub(crate) fn new(count: u32) -> Self {
        Self((0..count).map(|_| BackSlot::default()).collect())
    }

    /// Assigns the first free slot to a callback. Returns the index of the slot; `None` if no slot
    /// is free.
    pub(crate) fn take(&mut self, callback: CallbackKey) -> Option<u32> {
        let free = self.0.iter().position(|slot| slot.user.is_none() && !slot.is_broken)?;
        self.0[free].user = Some(callback);
        Some(free as u32)
    }

    /// Returns the sequence number of the callback that is in flight on a slot.
    pub(crate) fn sequence(&self, slot: u32) -> u32 {
        self.0.get(slot as usize).map_or(0, |slot| slot.sequence.wrapping_add(1))
    }

    /// Returns the index of the highest slot that is in use.
    pub(crate) fn highest(&self) -> u32 {
        self.0.iter().rposition(|slot| slot.user.is_some()).unwrap_or(0) as u32
    }

    /// Returns the callback that is in flight on a slot with this sequence number.
    pub(crate) fn user(&self, slot: u32, sequence: u32) -> Option<CallbackKey> {
        let found = self.0.get(slot as usize)?;
        found.user.filter(|_| self.sequence(slot) == sequence)
    }

    /// Frees a slot. Its sequence number advances if the client has processed the CB_SEQUENCE.
    /// Otherwise the slot is free with the same sequence number, or unusable if `is_broken` is
    /// true.
    pub(crate) fn free(&mut self, slot: u32, is_processed: bool, is_broken: bool) {
        if let Some(slot) = self.0.get_mut(slot as usize) {
            slot.user = None;
            slot.is_broken |= is_broken;
            if is_processed {
                slot.sequence = slot.sequence.wrapping_add(1);
            }
        }
    }

    /// Iterates over the callbacks that are in flight.
    pub(crate) fn users(&self) -> impl Iterator<Item = CallbackKey> {
        self.0.iter().filter_map(|slot| slot.user)
    }
}

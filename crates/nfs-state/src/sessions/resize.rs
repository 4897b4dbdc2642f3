//! The number of slots of each session. It is reduced when the memory for kept replies runs out,
//! and increased again afterwards (RFC 8881 section 2.10.6.1).

use super::table::{Sessions, slot_bytes};
use crate::keys::SessionKey;

/// A session whose client must use fewer slots. The client learns this from the reply to its next
/// SEQUENCE. To a client that sends no requests, the server may send CB_RECALL_SLOT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRecall {
    /// The session whose client must use fewer slots.
    pub session: SessionKey,
    /// The highest slot that the client may use from now on.
    pub target_highest_slot: u32,
}

impl Sessions {
    /// Begins a request on a slot. Releases the memory of slots that the client no longer uses.
    pub(crate) fn start(
        &mut self,
        key: SessionKey,
        slot: u32,
        sequence: u32,
        checksum: u64,
        highest: u32,
    ) {
        let Some(session) = self.table.get_mut(key.0) else { return };
        let retired = session.slots.start(slot, sequence, checksum, highest);
        self.reserved -= u64::from(retired) * slot_bytes(&session.fore);
    }

    /// Adapts the numbers of slots to the free memory. Returns the sessions whose clients must now
    /// use fewer slots than before. The caller must call this about once a second.
    pub fn balance(&mut self) -> Vec<SlotRecall> {
        let limit = self.config.replies_bytes_max;
        if self.reserved > limit - limit / 4 {
            self.shrink_all()
        } else {
            if self.reserved < limit / 2 {
                self.grow_all(limit / 2 - self.reserved);
            }
            Vec::new()
        }
    }

    /// Asks the clients of all sessions to use half of their slots.
    fn shrink_all(&mut self) -> Vec<SlotRecall> {
        let mut recalls = Vec::new();
        for (key, session) in self.table.iter_mut() {
            let (enforced, target) = (session.slots.enforced(), session.slots.target());
            // Skip a session whose client has not yet reduced its slots as it was last asked to.
            if enforced > 1 && target == enforced {
                session.slots.set_target(enforced / 2);
                let target_highest_slot = session.slots.target() - 1;
                recalls.push(SlotRecall { session: SessionKey(key), target_highest_slot });
            }
        }
        recalls
    }

    /// Increases the number of slots of sessions up to their original number, as far as there is
    /// memory.
    fn grow_all(&mut self, mut free: u64) {
        for session in self.table.values_mut() {
            let (enforced, wanted) = (session.slots.enforced(), session.fore.requests_max);
            let bytes = u64::from(wanted - enforced) * slot_bytes(&session.fore);
            if bytes <= free && (enforced < wanted || session.slots.target() < enforced) {
                session.slots.grow(wanted);
                free -= bytes;
                self.reserved += bytes;
            }
        }
    }
}

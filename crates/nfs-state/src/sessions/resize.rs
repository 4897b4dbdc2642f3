//! The number of slots of each session: it shrinks when the memory for replies runs out, and grows
//! again afterwards (RFC 8881 section 2.10.6.1).

use super::table::{Sessions, slot_bytes};
use crate::keys::SessionKey;

/// A session whose client is asked to use fewer slots. The replies of SEQUENCE tell the client; the
/// server may also send CB_RECALL_SLOT to a client that sends nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRecall {
    /// The session that is to use fewer slots.
    pub session: SessionKey,
    /// The highest slot that the client may use from now on.
    pub target_highest_slot: u32,
}

impl Sessions {
    /// Begins a request on a slot, and gives back the memory of slots that went out of use.
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

    /// Adapts the numbers of slots to the memory that is free. Returns the sessions whose clients
    /// are newly asked to use fewer slots. The caller must call this about once a second.
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
            // A session that still is to follow the last request is not asked again.
            if enforced > 1 && target == enforced {
                session.slots.set_target(enforced / 2);
                let target_highest_slot = session.slots.target() - 1;
                recalls.push(SlotRecall { session: SessionKey(key), target_highest_slot });
            }
        }
        recalls
    }

    /// Gives sessions back the slots that they had at first, as far as the memory reaches.
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

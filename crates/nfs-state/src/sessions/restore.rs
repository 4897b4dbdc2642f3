//! Restores sessions that existed before a restart of the server.

use super::record::{SessionRecord, SlotEnd, SlotRecord};
use super::session::create_flags;
use super::slots::SlotTable;
use super::table::{NewSession, Sessions, slot_bytes};
use crate::Nfs4Error;
use crate::keys::{ClientKey, SessionKey};
use crate::limits::{BACK_SLOTS_MAX, KEPT_REPLY_BYTES_MAX, SLOTS_MAX};

impl Sessions {
    /// Checks whether a session can be restored from a record.
    ///
    /// # Errors
    /// INVAL if the record was written in this run of the server, exceeds a limit, or names a
    /// session that already exists; DELAY if there is no memory for the session.
    pub(crate) fn check_restore(&self, record: &SessionRecord) -> Result<(), Nfs4Error> {
        let slots = record.fore.requests_max;
        let is_known = self.find(record.session).is_ok();
        let is_valid = (1..=SLOTS_MAX).contains(&slots)
            && record.back.requests_max <= BACK_SLOTS_MAX
            && record.fore.kept_bytes_max <= KEPT_REPLY_BYTES_MAX
            && record.session.epoch() != self.config.epoch;
        let is_valid = is_valid && record.flags & create_flags::PERSIST != 0;
        if is_known || !is_valid {
            return Err(Nfs4Error::Inval);
        }
        let bytes = u64::from(slots) * slot_bytes(&record.fore);
        let is_full = self.count() >= self.config.sessions_max as usize
            || self.reserved + bytes > self.config.replies_bytes_max
            || !self.has_persistent_room(record.peer, slots);
        if is_full { Err(Nfs4Error::Delay) } else { Ok(()) }
    }

    /// Adds the session of a record. Its slots get their last journaled requests.
    pub(crate) fn restore(
        &mut self,
        client: ClientKey,
        record: SessionRecord,
        slots: impl IntoIterator<Item = SlotRecord>,
    ) -> Result<SessionKey, Nfs4Error> {
        self.check_restore(&record)?;
        let wants_back = record.wants_back();
        let limit = record.fore.kept_bytes_max as usize;
        let slots = slots.into_iter().map(|slot| match slot.end {
            SlotEnd::Replied(reply) if reply.len() > limit => {
                SlotRecord { end: SlotEnd::NotKept, ..slot }
            }
            end => SlotRecord { end, ..slot },
        });
        let slots = SlotTable::restored(record.fore.requests_max, slots);
        let new = NewSession {
            client,
            peer: record.peer,
            sequence: record.sequence,
            creator: record.creator,
            flags: record.flags,
            fore: record.fore,
            back: record.back,
            callbacks: record.callbacks,
            wants_back,
        };
        Ok(self.insert(new, record.session, record.fore.requests_max, slots))
    }
}

//! The slots of a fore channel (RFC 8881 section 2.10.6).
//!
//! ```text
//!          number 1                finish, reply kept
//! unused ───────────► running ────────────────────────► kept ──────┐
//!                     ▲  ▲  │      finish, not kept                │ next number
//!                     │  │  └─────────────────────────► not kept ──┤
//!                     │  └─────────────────────────────────────────┘
//!                     │ the journaled number: repeat or resume; any other: new
//!                  restored (after a restart of the server)
//! ```
//!
//! After a restart, the server does not know the last sequence number of a slot, because only
//! requests that change something are journaled. So the first request of a slot counts as a repeat
//! if it has the journaled number, and as new if it has another number. This is correct, because
//! the old connections ended with the server, and a client repeats only requests that have received
//! no reply.

use super::record::{SlotEnd, SlotRecord};
use crate::Nfs4Error;

/// The slots of one session.
#[derive(Debug)]
pub(crate) struct SlotTable {
    slots: Vec<Slot>,
    /// The number of slots that the client may use.
    enforced: u32,
    /// The number of slots that the server wants the client to use.
    target: u32,
    /// The number of changes of the target, modulo 2^32.
    generation: u32,
    running: u32,
}

#[derive(Debug)]
struct Slot {
    sequence: u32,
    phase: Phase,
    /// True if the slot was removed and added again, so that its client may start again with
    /// sequence number 1.
    is_reused: bool,
    /// The generation of the target that was sent in the last reply on this slot.
    told: u32,
    checksum: u64,
    reply: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Unused,
    Running,
    Kept,
    NotKept,
    /// The slot was not used since the restart.
    Restored(Journaled),
}

/// What the journal has about the last journaled request of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Journaled {
    Nothing,
    Kept,
    NotKept,
    Unfinished,
}

/// The decision about the sequence number of a request on its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotDecision {
    /// The request is new and may be executed.
    New,
    /// The execution of the request was cut off by the end of the server. The caller must execute
    /// the rest of it.
    Resume,
    /// The request repeats the last request of the slot, and its reply was kept.
    Repeat,
    /// The request repeats the last request of the slot, and its reply was not kept.
    RepeatNotKept,
}

impl SlotTable {
    /// Creates a table of unused slots.
    pub(crate) fn new(count: u32) -> Self {
        let slots = (0..count).map(|_| Slot::unused()).collect();
        Self { slots, enforced: count, target: count, generation: 0, running: 0 }
    }

    /// Creates a table with the last journaled requests of some of the slots.
    pub(crate) fn restored(count: u32, journaled: impl IntoIterator<Item = SlotRecord>) -> Self {
        let mut table = Self::new(count);
        for slot in &mut table.slots {
            slot.phase = Phase::Restored(Journaled::Nothing);
        }
        for record in journaled {
            let Some(slot) = table.slots.get_mut(record.slot as usize) else { continue };
            slot.sequence = record.sequence;
            slot.checksum = record.checksum;
            slot.phase = Phase::Restored(match record.end {
                SlotEnd::Replied(reply) => {
                    slot.reply = reply.into_vec();
                    Journaled::Kept
                }
                SlotEnd::NotKept => Journaled::NotKept,
                SlotEnd::Unfinished => Journaled::Unfinished,
            });
        }
        table
    }

    /// Returns the number of slots that the client may use.
    pub(crate) fn enforced(&self) -> u32 {
        self.enforced
    }

    /// Returns the number of slots that the server wants the client to use.
    pub(crate) fn target(&self) -> u32 {
        self.target
    }

    /// Returns the number of requests in progress.
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// Decides on a request by its sequence number. Changes nothing.
    ///
    /// # Errors
    /// BADSLOT if there is no such slot; DELAY for a repeat of a request in progress;
    /// SEQ_MISORDERED if the sequence number is neither the last one nor the next one;
    /// SEQ_FALSE_RETRY if the content of a repeat differs from that of the first request.
    pub(crate) fn check(
        &self,
        slot: u32,
        sequence: u32,
        checksum: u64,
    ) -> Result<SlotDecision, Nfs4Error> {
        if slot >= self.enforced {
            return Err(Nfs4Error::BadSlot);
        }
        let slot = self.slots.get(slot as usize).ok_or(Nfs4Error::BadSlot)?;
        let is_same = sequence == slot.sequence;
        let is_next = sequence == slot.sequence.wrapping_add(1) || slot.is_reused && sequence == 1;
        match slot.phase {
            Phase::Running if is_same => Err(Nfs4Error::Delay),
            Phase::Running => Err(Nfs4Error::SeqMisordered),
            Phase::Restored(Journaled::Nothing) => Ok(SlotDecision::New),
            Phase::Restored(_) if !is_same => Ok(SlotDecision::New),
            _ if is_next => Ok(SlotDecision::New),
            Phase::Kept | Phase::NotKept | Phase::Restored(_)
                if is_same && slot.checksum != checksum =>
            {
                Err(Nfs4Error::SeqFalseRetry)
            }
            Phase::Restored(Journaled::Unfinished) => Ok(SlotDecision::Resume),
            Phase::Restored(Journaled::Kept) => Ok(SlotDecision::Repeat),
            Phase::Restored(Journaled::NotKept) => Ok(SlotDecision::RepeatNotKept),
            Phase::Kept if is_same => Ok(SlotDecision::Repeat),
            Phase::NotKept if is_same => Ok(SlotDecision::RepeatNotKept),
            Phase::Unused | Phase::Kept | Phase::NotKept => Err(Nfs4Error::SeqMisordered),
        }
    }

    /// Begins a request for which [`SlotTable::check`] has returned `New` or `Resume`. Returns the
    /// number of slots that were removed, because the request shows that the client knows the
    /// target and uses no slot beyond it.
    pub(crate) fn start(&mut self, slot: u32, sequence: u32, checksum: u64, highest: u32) -> u32 {
        let generation = self.generation;
        let Some(begun) = self.slots.get_mut(slot as usize) else { return 0 };
        let knows_target = begun.told == generation;
        begun.sequence = sequence;
        begun.phase = Phase::Running;
        begun.is_reused = false;
        begun.checksum = checksum;
        begun.told = generation;
        begun.reply.clear();
        self.running += 1;
        let is_shrinking = self.target < self.enforced;
        if is_shrinking && knows_target && highest.max(slot) < self.target {
            return self.shrink();
        }
        0
    }

    /// Ends a request. `reply` is `None` if no reply need be kept. Returns false if this request is
    /// not in progress on the slot.
    pub(crate) fn finish(&mut self, slot: u32, sequence: u32, reply: Option<&[u8]>) -> bool {
        let Some(slot) = self.slots.get_mut(slot as usize) else { return false };
        if slot.phase != Phase::Running || slot.sequence != sequence {
            return false;
        }
        slot.phase = match reply {
            Some(reply) => {
                slot.reply.extend_from_slice(reply);
                Phase::Kept
            }
            None => Phase::NotKept,
        };
        self.running -= 1;
        true
    }

    /// Returns the reply that was kept for the slot's last request.
    pub(crate) fn reply(&self, slot: u32) -> Option<&[u8]> {
        let slot = self.slots.get(slot as usize)?;
        let is_kept = matches!(slot.phase, Phase::Kept | Phase::Restored(Journaled::Kept));
        is_kept.then_some(slot.reply.as_slice())
    }

    /// Sets the number of slots that the client must reduce its use to: at least one, at most the
    /// number that it may use now.
    pub(crate) fn set_target(&mut self, count: u32) {
        let count = count.clamp(1, self.enforced);
        if count != self.target {
            self.target = count;
            self.generation = self.generation.wrapping_add(1);
        }
    }

    /// Increases the number of slots that the client may use to `count`, if it is smaller.
    pub(crate) fn grow(&mut self, count: u32) {
        let count = count.min(self.slots.len() as u32);
        if count > self.enforced {
            self.enforced = count;
        }
        self.set_target(self.enforced);
    }

    /// Removes the slots beyond the target, if none of them has a request in progress. Returns the
    /// number of removed slots.
    fn shrink(&mut self) -> u32 {
        let (target, enforced) = (self.target as usize, self.enforced as usize);
        let retired = &mut self.slots[target..enforced];
        if retired.iter().any(|slot| slot.phase == Phase::Running) {
            return 0;
        }
        for slot in retired {
            slot.is_reused = true;
            slot.reply = Vec::new();
            slot.phase = match slot.phase {
                Phase::Kept => Phase::NotKept,
                Phase::Restored(Journaled::Kept) => Phase::Restored(Journaled::NotKept),
                phase => phase,
            };
        }
        let count = self.enforced - self.target;
        self.enforced = self.target;
        count
    }
}

impl Slot {
    fn unused() -> Self {
        Self {
            sequence: 0,
            phase: Phase::Unused,
            is_reused: false,
            told: 0,
            checksum: 0,
            reply: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Result<SlotDecision, Nfs4Error> = Ok(SlotDecision::New);
    const MISORDERED: Result<SlotDecision, Nfs4Error> = Err(Nfs4Error::SeqMisordered);

    #[test]
    fn a_number_is_new_repeated_or_out_of_order() {
        let mut slots = SlotTable::new(2);
        assert_eq!(
            [0, 1, 2, u32::MAX].map(|s| slots.check(0, s, 7)),
            [MISORDERED, NEW, MISORDERED, MISORDERED]
        );
        slots.start(0, 1, 7, 0);
        assert_eq!(slots.check(0, 1, 7), Err(Nfs4Error::Delay));
        assert_eq!([0, 2].map(|s| slots.check(0, s, 7)), [MISORDERED; 2]);
        assert!(slots.finish(0, 1, Some(b"reply")) && !slots.finish(0, 1, None));
        assert_eq!(slots.check(0, 1, 7), Ok(SlotDecision::Repeat));
        assert_eq!(slots.reply(0), Some(b"reply".as_slice()));
        assert_eq!(slots.check(0, 1, 8), Err(Nfs4Error::SeqFalseRetry));
        assert_eq!([0, 2, 3].map(|s| slots.check(0, s, 7)), [MISORDERED, NEW, MISORDERED]);
        slots.start(0, 2, 9, 0);
        assert!(slots.finish(0, 2, None));
        assert_eq!(slots.check(0, 2, 9), Ok(SlotDecision::RepeatNotKept));
        assert_eq!(slots.check(2, 1, 9), Err(Nfs4Error::BadSlot));
    }

    #[test]
    fn numbers_wrap_around_to_zero() {
        let mut slots = SlotTable::restored(1, [journaled(0, 7, SlotEnd::Unfinished)]);
        slots.start(0, u32::MAX, 1, 0);
        slots.finish(0, u32::MAX, Some(b""));
        assert_eq!(slots.check(0, u32::MAX, 1), Ok(SlotDecision::Repeat));
        assert_eq!(slots.check(0, 0, 1), NEW);
        assert_eq!(slots.check(0, 1, 1), MISORDERED);
    }

    fn journaled(slot: u32, sequence: u32, end: SlotEnd) -> SlotRecord {
        SlotRecord { slot, sequence, checksum: 3, end }
    }

    #[test]
    fn a_journaled_reply_is_repeated_after_a_restart() {
        let replied = journaled(0, 40, SlotEnd::Replied(b"reply".as_slice().into()));
        let mut slots = SlotTable::restored(2, [replied, journaled(1, 9, SlotEnd::NotKept)]);
        assert_eq!(slots.check(0, 40, 3), Ok(SlotDecision::Repeat));
        assert_eq!(slots.reply(0), Some(b"reply".as_slice()));
        assert_eq!(slots.check(0, 40, 4), Err(Nfs4Error::SeqFalseRetry));
        assert_eq!(slots.check(0, 41, 4), NEW);
        assert_eq!(slots.check(1, 9, 3), Ok(SlotDecision::RepeatNotKept));
        assert_eq!((slots.check(1, 9, 4), slots.reply(1)), (Err(Nfs4Error::SeqFalseRetry), None));
        slots.start(0, 41, 4, 0);
        assert_eq!((slots.check(0, 40, 3), slots.reply(0)), (MISORDERED, None));
        // A slot that goes out of use loses its reply, but not its number.
        let mut slots = SlotTable::restored(2, [journaled(1, 5, SlotEnd::Replied([].into()))]);
        slots.set_target(1);
        for sequence in [7, 8] {
            slots.start(0, sequence, 0, 0);
            slots.finish(0, sequence, None);
        }
        slots.grow(2);
        assert_eq!(slots.check(1, 5, 3), Ok(SlotDecision::RepeatNotKept));
    }

    #[test]
    fn the_first_use_after_a_restart_resumes_the_journaled_number() {
        let mut slots = SlotTable::restored(2, [journaled(1, 40, SlotEnd::Unfinished)]);
        assert_eq!(slots.check(1, 40, 4), Err(Nfs4Error::SeqFalseRetry));
        assert_eq!(slots.check(1, 40, 3), Ok(SlotDecision::Resume));
        assert_eq!([39, 41, 77].map(|s| slots.check(1, s, 3)), [NEW; 3]);
        assert_eq!([0, 1, 5].map(|s| slots.check(0, s, 3)), [NEW; 3]);
        slots.start(1, 40, 3, 1);
        assert_eq!(slots.check(1, 40, 3), Err(Nfs4Error::Delay));
        slots.finish(1, 40, Some(b"again"));
        assert_eq!(slots.check(1, 40, 3), Ok(SlotDecision::Repeat));
        assert_eq!(slots.check(1, 42, 3), MISORDERED);
    }

    #[test]
    fn slots_go_out_of_use_when_their_client_knows_it() {
        let mut slots = SlotTable::new(8);
        let turn = |slots: &mut SlotTable, slot, sequence, highest| {
            let retired = slots.start(slot, sequence, 0, highest);
            slots.finish(slot, sequence, Some(b"x"));
            retired
        };
        assert_eq!(turn(&mut slots, 6, 1, 6), 0);
        slots.set_target(2);
        assert_eq!((slots.target(), slots.enforced()), (2, 8));
        // The client has not seen the target when it sends this.
        assert_eq!(turn(&mut slots, 0, 1, 0), 0);
        // It has seen the target, but still uses a slot beyond it.
        assert_eq!(turn(&mut slots, 0, 2, 6), 0);
        slots.start(7, 1, 0, 7);
        assert_eq!(turn(&mut slots, 0, 3, 1), 0, "a request is in progress beyond the target");
        slots.finish(7, 1, None);
        assert_eq!(turn(&mut slots, 0, 4, 1), 6);
        assert_eq!(slots.check(6, 2, 0), Err(Nfs4Error::BadSlot));
        slots.grow(8);
        // The client may go on counting, or begin again.
        assert_eq!([1, 2].map(|s| slots.check(6, s, 0)), [NEW; 2]);
        turn(&mut slots, 6, 1, 6);
        assert_eq!(slots.check(6, 1, 0), Ok(SlotDecision::Repeat));
    }
}

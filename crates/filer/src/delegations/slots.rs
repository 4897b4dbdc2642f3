//! A table of delegations whose slots are addressed by state id.
//!
//! Invariants:
//! - A state id refers to one delegation forever: the generation of a slot advances when its
//!   delegation ends.
//! - No state id equals one of the table of opens: both tables have the same boot seed, but their
//!   epochs differ in the topmost bit.
//! - No state id equals the anonymous state id, because a generation is never zero.

use std::collections::VecDeque;

use dafs_ops::Fault;
use dafs_types::{ClientId, FileHandle, Moment, SpaceLimit, StateId};

use super::{DelegationKind, DelegationPhase};
use crate::FileKey;

/// The number of bits of a slot's index in a state id. The layout equals that of the state ids of
/// opens: epoch, generation of the slot, index of the slot.
const INDEX_BITS: u32 = 20;
const GENERATION_BITS: u32 = 20;
const EPOCH_SHIFT: u32 = INDEX_BITS + GENERATION_BITS;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
/// The bit by which the epoch in a delegation's state id differs from the epoch in an open's state
/// id.
const EPOCH_DIFFERENCE: u64 = 1 << 23;
/// The maximum number of delegations that the table can contain.
pub(super) const SLOTS_LIMIT: u32 = 1 << INDEX_BITS;

/// One delegation and its state.
#[derive(Debug)]
pub(super) struct Delegation {
    pub file: FileKey,
    pub handle: FileHandle,
    pub client: ClientId,
    pub kind: DelegationKind,
    pub phase: DelegationPhase,
    pub granted: Moment,
    pub limit: Option<SpaceLimit>,
    /// The number of bytes of growth promised to the holder.
    pub growth: u64,
    /// True if the recall tells the holder that it need not write dirty data back.
    pub truncate: bool,
    /// The time at which the delegation's timer expires; then the recall is sent again, or the
    /// delegation ends. `None` if no timer is running.
    pub timer: Option<Moment>,
    /// True if the recall must be sent again when the timer expires.
    pub retries: bool,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    delegation: Option<Delegation>,
}

#[derive(Debug)]
pub(super) struct Slots {
    epoch: u64,
    slots: Vec<Slot>,
    /// The free slots. The slot that has been free longest is reused first, so that generations
    /// wrap around as late as possible.
    free: VecDeque<u32>,
}

impl Slots {
    /// Creates an empty table. `boot_seed` must be the seed of the table of opens.
    pub(super) fn new(boot_seed: u64) -> Self {
        let folded = boot_seed ^ (boot_seed >> 24) ^ (boot_seed >> 48);
        let epoch_of_opens = (folded & 0xff_ffff).max(1);
        let epoch = epoch_of_opens ^ EPOCH_DIFFERENCE;
        Self { epoch, slots: Vec::new(), free: VecDeque::new() }
    }

    /// Returns the number of delegations, including revoked delegations that were not returned yet.
    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Stores a delegation in a free slot. Returns the index of the slot.
    pub(super) fn insert(&mut self, delegation: Delegation) -> u32 {
        if let Some(index) = self.free.pop_front() {
            self.slots[index as usize].delegation = Some(delegation);
            return index;
        }
        debug_assert!(self.slots.len() < SLOTS_LIMIT as usize);
        self.slots.push(Slot { generation: 1, delegation: Some(delegation) });
        (self.slots.len() - 1) as u32
    }

    /// Frees a slot, and returns its delegation. The state id becomes invalid.
    pub(super) fn remove(&mut self, index: u32) -> Option<Delegation> {
        let delegation = self.slots[index as usize].delegation.take()?;
        self.rename(index);
        self.free.push_back(index);
        Some(delegation)
    }

    /// Gives a delegation a new state id. The old state id becomes invalid.
    pub(super) fn rename(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.generation = ((slot.generation + 1) & GENERATION_MASK).max(1);
    }

    /// Returns the delegation in a slot. The slot must be in use.
    pub(super) fn get(&self, index: u32) -> &Delegation {
        self.slots[index as usize].delegation.as_ref().expect("a slot in use has a delegation")
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut Delegation {
        self.slots[index as usize].delegation.as_mut().expect("a slot in use has a delegation")
    }

    /// Returns the state id of the delegation in a slot.
    pub(super) fn state_id(&self, index: u32) -> StateId {
        let generation = u64::from(self.slots[index as usize].generation);
        StateId(self.epoch << EPOCH_SHIFT | generation << INDEX_BITS | u64::from(index))
    }

    /// Returns true if this table has issued the state id since the server started.
    pub(super) fn owns(&self, state_id: StateId) -> bool {
        state_id.0 >> EPOCH_SHIFT == self.epoch
    }

    /// Returns the slot of a state id if the slot's delegation belongs to this client.
    pub(super) fn find(&self, client: ClientId, state_id: StateId) -> Result<u32, Fault> {
        if !self.owns(state_id) {
            return Err(Fault::StaleState);
        }
        let index = (state_id.0 & INDEX_MASK) as u32;
        let generation = (state_id.0 >> INDEX_BITS) as u32 & GENERATION_MASK;
        let slot = self.slots.get(index as usize).ok_or(Fault::BadState)?;
        let behind = slot.generation.wrapping_sub(generation) & GENERATION_MASK;
        match &slot.delegation {
            Some(delegation) if behind == 0 && delegation.client == client => Ok(index),
            _ if behind != 0 && behind <= GENERATION_MASK / 2 => Err(Fault::OldState),
            _ => Err(Fault::BadState),
        }
    }

    pub(super) fn iter<'a>(&'a self) -> impl Iterator<Item = (u32, &'a Delegation)> {
        let taken = |(index, slot): (usize, &'a Slot)| {
            slot.delegation.as_ref().map(|delegation| (index as u32, delegation))
        };
        self.slots.iter().enumerate().filter_map(taken)
    }
}

#[cfg(test)]
mod tests {
    use dafs_types::{DeleteDisposition, Entropy, Random, ShareAccess, ShareDeny};

    use super::*;
    use crate::clients::ClientKey;
    use crate::opens::{ClientOpens, OpenTable};
    use crate::{IoKind, OpenArguments};

    fn delegation() -> Delegation {
        Delegation {
            file: FileKey(1),
            handle: FileHandle::NULL,
            client: ClientId(7),
            kind: DelegationKind::Read,
            phase: DelegationPhase::Granted,
            granted: Moment(0),
            limit: None,
            growth: 0,
            truncate: false,
            timer: None,
            retries: false,
        }
    }

    #[test]
    fn no_state_id_is_an_open_s_or_anonymous() {
        let mut random = Random::new(1);
        let drawn = (0..100).map(|_| random.next_u64());
        for seed in [0, 1, 0x80_0000, 0x80_0001, u64::MAX].into_iter().chain(drawn) {
            let mut slots = Slots::new(seed);
            let index = slots.insert(delegation());
            let state_id = slots.state_id(index);
            assert_ne!(state_id, StateId::ANONYMOUS);
            let mut opens = OpenTable::new(seed, 8, 8);
            let arguments = OpenArguments {
                file: FileKey(1),
                owner: b"o",
                access: ShareAccess::Read,
                deny: ShareDeny::None,
                key: None,
                disposition: DeleteDisposition::DontCare,
                unlinked: false,
                is_reclaim: false,
            };
            let client = ClientKey::of_test(0);
            let opened = opens.open(client, &mut ClientOpens::default(), &arguments).unwrap();
            assert!(!slots.owns(opened.state_id) && slots.owns(state_id));
            let verdict = opens.check_io(client, state_id, FileKey(1), IoKind::Read);
            assert_eq!(verdict, Err(Fault::StaleState), "seed {seed}");
        }
    }

    #[test]
    fn a_bad_state_id_has_its_own_status() {
        let mut slots = Slots::new(5);
        let index = slots.insert(delegation());
        let state_id = slots.state_id(index);
        assert_eq!(slots.find(ClientId(7), state_id), Ok(index));
        assert_eq!(slots.find(ClientId(8), state_id), Err(Fault::BadState));
        let unheard = StateId(state_id.0 + 1);
        assert_eq!(slots.find(ClientId(7), unheard), Err(Fault::BadState));
        let to_come = StateId(state_id.0 + (1 << INDEX_BITS));
        assert_eq!(slots.find(ClientId(7), to_come), Err(Fault::BadState));
        let before = StateId(state_id.0 ^ 1 << 63);
        assert_eq!(slots.find(ClientId(7), before), Err(Fault::StaleState));
        slots.remove(index);
        assert_eq!(slots.find(ClientId(7), state_id), Err(Fault::OldState));
        assert_eq!(slots.insert(delegation()), index);
        assert_eq!(slots.find(ClientId(7), state_id), Err(Fault::OldState));
    }
}

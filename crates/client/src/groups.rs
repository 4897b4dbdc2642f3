//! Completion groups: where completions of submitted operations are collected.
//!
//! Invariant: a group counts exactly the operations that were submitted to it and have
//! not completed, so that a wait knows when there is nothing left to wait for.

use std::collections::VecDeque;

use crate::core::Completion;

/// Names a completion group of a client. [`Group::DEFAULT`] is always there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group(pub(crate) u32);

impl Group {
    /// The group of operations that name no other.
    pub const DEFAULT: Group = Group(0);
}

/// All groups of a client.
#[derive(Debug)]
pub(crate) struct Groups {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Slot {
    queue: VecDeque<Completion>,
    outstanding: usize,
    /// Given back by its owner: completions are dropped, and the slot is used again
    /// once none can come any more.
    is_released: bool,
}

impl Groups {
    /// The default group alone.
    pub fn new() -> Self {
        Self { slots: vec![Slot::default()], free: Vec::new() }
    }

    pub fn make(&mut self) -> Group {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize].is_released = false;
            return Group(index);
        }
        self.slots.push(Slot::default());
        Group(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
    }

    /// The owner needs it no more. The default group stays.
    pub fn release(&mut self, group: Group) {
        if group == Group::DEFAULT {
            return;
        }
        let Some(slot) = self.slots.get_mut(group.0 as usize) else { return };
        if slot.is_released {
            return;
        }
        slot.is_released = true;
        slot.queue.clear();
        if slot.outstanding == 0 {
            self.free.push(group.0);
        }
    }

    /// Counts a submission. False if there is no such group.
    #[inline]
    #[must_use]
    pub fn begin(&mut self, group: Group) -> bool {
        match self.slots.get_mut(group.0 as usize) {
            Some(slot) if !slot.is_released => {
                slot.outstanding += 1;
                true
            }
            _ => false,
        }
    }

    #[inline]
    pub fn end(&mut self, group: Group, completion: Completion) {
        let Some(slot) = self.slots.get_mut(group.0 as usize) else { return };
        slot.outstanding -= 1;
        if !slot.is_released {
            slot.queue.push_back(completion);
        } else if slot.outstanding == 0 {
            self.free.push(group.0);
        }
    }

    #[inline]
    pub fn next(&mut self, group: Group) -> Option<Completion> {
        self.slots.get_mut(group.0 as usize)?.queue.pop_front()
    }

    /// Completions that are there.
    #[inline]
    pub fn there(&self, group: Group) -> usize {
        self.slots.get(group.0 as usize).map_or(0, |slot| slot.queue.len())
    }

    /// Completions that are still to come.
    #[inline]
    pub fn to_come(&self, group: Group) -> usize {
        self.slots.get(group.0 as usize).map_or(0, |slot| slot.outstanding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{OperationId, Transferred};

    fn completion(number: u64) -> Completion {
        let result = Ok(Transferred::default());
        Completion { operation: OperationId(number), context: number, result }
    }

    #[test]
    fn completions_come_out_in_the_order_they_went_in() {
        let mut groups = Groups::new();
        let group = groups.make();
        assert!((0..3).all(|_| groups.begin(group)));
        groups.end(group, completion(1));
        groups.end(group, completion(2));
        assert_eq!((groups.there(group), groups.to_come(group)), (2, 1));
        assert_eq!(groups.next(group).unwrap().context, 1);
        assert_eq!(groups.next(group).unwrap().context, 2);
        assert!(groups.next(group).is_none() && groups.next(Group::DEFAULT).is_none());
    }

    #[test]
    fn a_released_group_is_used_again_only_when_nothing_can_come_for_it() {
        let mut groups = Groups::new();
        let first = groups.make();
        assert!(groups.begin(first));
        groups.release(first);
        groups.release(first);
        assert!(!groups.begin(first), "released");
        let second = groups.make();
        assert_ne!(first, second);
        groups.end(first, completion(1));
        assert_eq!(groups.there(first), 0);
        let third = groups.make();
        assert_eq!((third, groups.there(third), groups.to_come(third)), (first, 0, 0));
        assert_ne!(groups.make(), first);
    }

    #[test]
    fn the_default_group_cannot_be_released() {
        let mut groups = Groups::new();
        groups.release(Group::DEFAULT);
        assert!(groups.begin(Group::DEFAULT));
    }
}

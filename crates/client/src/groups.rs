//! Completion groups, which collect the completions of submitted operations.
//!
//! Invariant: a group counts exactly the operations that were submitted to it and have not
//! completed, so that a wait ends when no operation is left.

use std::collections::VecDeque;

use dafs_base::{Key, Slab};

use crate::operation::Completion;

/// The name of a completion group in one client. [`Group::DEFAULT`] always exists. The name of a
/// released group is invalid and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group(Key<Group>);

impl Group {
    /// The default group, for operations that name no other group.
    pub const DEFAULT: Group = Group(Key::FIRST);
}

/// The completion groups of a client. Only the application creates groups, so it controls their
/// number.
#[derive(Debug)]
pub(crate) struct Groups(Slab<Slot, Group>);

#[derive(Debug, Default)]
struct Slot {
    queue: VecDeque<Completion>,
    outstanding: usize,
    /// True if the owner released the group: completions are dropped, and the last one frees the
    /// slot.
    is_released: bool,
}

impl Groups {
    /// Creates the table with only the default group.
    pub(crate) fn new() -> Self {
        let mut slots = Slab::default();
        let default = Group(slots.insert(Slot::default()));
        debug_assert_eq!(default, Group::DEFAULT);
        Self(slots)
    }

    pub(crate) fn make(&mut self) -> Group {
        Group(self.0.insert(Slot::default()))
    }

    /// Releases a group that its owner no longer needs. Has no effect on the default group.
    pub(crate) fn release(&mut self, group: Group) {
        if group == Group::DEFAULT {
            return;
        }
        let Some(slot) = self.0.get_mut(group.0) else { return };
        slot.is_released = true;
        slot.queue.clear();
        if slot.outstanding == 0 {
            self.0.remove(group.0);
        }
    }

    /// Counts an operation submitted to a group. Returns false if the group does not exist.
    #[inline]
    #[must_use]
    pub(crate) fn begin(&mut self, group: Group) -> bool {
        match self.0.get_mut(group.0) {
            Some(slot) if !slot.is_released => {
                slot.outstanding += 1;
                true
            }
            _ => false,
        }
    }

    #[inline]
    pub(crate) fn end(&mut self, group: Group, completion: Completion) {
        let Some(slot) = self.0.get_mut(group.0) else { return };
        slot.outstanding -= 1;
        if !slot.is_released {
            slot.queue.push_back(completion);
        } else if slot.outstanding == 0 {
            self.0.remove(group.0);
        }
    }

    #[inline]
    pub(crate) fn next(&mut self, group: Group) -> Option<Completion> {
        self.0.get_mut(group.0)?.queue.pop_front()
    }

    /// Returns the number of completions that can be taken from a group.
    #[inline]
    pub(crate) fn there(&self, group: Group) -> usize {
        self.0.get(group.0).map_or(0, |slot| slot.queue.len())
    }

    /// Returns the number of operations that have not completed yet.
    #[inline]
    pub(crate) fn to_come(&self, group: Group) -> usize {
        self.0.get(group.0).map_or(0, |slot| slot.outstanding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{OperationId, Transferred};

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
    fn a_released_group_takes_nothing_in_and_its_name_never_comes_up_again() {
        let mut groups = Groups::new();
        let first = groups.make();
        assert!(groups.begin(first));
        groups.release(first);
        groups.release(first);
        assert!(!groups.begin(first), "released");
        groups.end(first, completion(1));
        assert_eq!((groups.there(first), groups.to_come(first)), (0, 0));
        let second = groups.make();
        assert_ne!(second, first);
        assert!(groups.begin(second) && !groups.begin(first));
        // The old name of the first group gives no access to the second.
        groups.release(first);
        groups.end(second, completion(2));
        assert_eq!(groups.there(second), 1);
        assert!(groups.next(first).is_none() && groups.next(second).is_some());
    }

    #[test]
    fn the_default_group_cannot_be_released() {
        let mut groups = Groups::new();
        groups.release(Group::DEFAULT);
        assert!(groups.begin(Group::DEFAULT));
    }
}

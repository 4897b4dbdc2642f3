//! Slots that are used again.
//!
//! Invariant: an index names the same value from `insert` to `remove`. Whoever keeps an
//! index sees to it that the value is still there: indices do not leave this module's
//! parent except inside a [`super::Run`], which holds its values alive.

use std::ops::{Index, IndexMut};

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// A table of values named by small numbers. It grows to the most that were ever in it
/// at once, which its users bound, and does not allocate after that.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    /// An empty table.
    pub fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Keeps a value; returns its index.
    pub fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(value);
                index
            }
            None => {
                self.slots.push(Some(value));
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// Takes a value out.
    pub fn remove(&mut self, index: u32) -> T {
        self.free.push(index);
        self.slots[index as usize].take().expect("an index in use names a value")
    }

    /// The value of an index, if it is in use; [`NONE`] never is.
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.as_mut()
    }

    /// Values.
    pub fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The indices in use, ascending.
    pub fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.slots.len() as u32).filter(|&index| self.slots[index as usize].is_some())
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, index: u32) -> &T {
        self.slots[index as usize].as_ref().expect("an index in use names a value")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.slots[index as usize].as_mut().expect("an index in use names a value")
    }
}

//! Records by number.
//!
//! Invariant: a number names one record from its insertion to its removal. Numbers are
//! given in an order that depends on the calls alone. Whoever keeps a number sees to it that
//! its record is still there.

/// No record.
pub(crate) const NONE: u32 = u32::MAX;

/// Records, each at the number that its insertion returned. It grows to the most that were
/// ever in it at once, which its users bound, and does not allocate after that.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Adds a record. The caller's limit keeps the numbers within 32 bits.
    pub fn insert(&mut self, record: T) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = Some(record);
                at
            }
            None => {
                self.slots.push(Some(record));
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// Takes a record out; its number must name one.
    pub fn remove(&mut self, at: u32) -> T {
        self.free.push(at);
        self.slots[at as usize].take().expect("a number names a record until it is removed")
    }

    /// The record of this number, if there is one; [`NONE`] never names one.
    pub fn get(&self, at: u32) -> Option<&T> {
        self.slots.get(at as usize)?.as_ref()
    }

    /// As [`Slab::get`], to be changed.
    pub fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    /// Records.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// All records with their numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().enumerate().filter_map(|(at, slot)| Some((at as u32, slot.as_ref()?)))
    }

    /// Their numbers alone.
    pub fn indices(&self) -> impl Iterator<Item = u32> {
        self.iter().map(|(at, _)| at)
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        self.slots[at as usize].as_ref().expect("a number names a record until it is removed")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        self.slots[at as usize].as_mut().expect("a number names a record until it is removed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_records_do_not() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!((slab[a], slab[b], slab.len()), ('a', 'b', 2));
        assert_eq!(slab.remove(a), 'a');
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(b, &'b')]);
        assert_eq!(slab.insert('c'), a);
        slab[a] = 'd';
        assert_eq!((slab[a], slab.len()), ('d', 2));
    }
}

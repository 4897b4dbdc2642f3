//! A table that reuses its slots but never its keys.
//!
//! Invariant: a key leads to the value for which it was returned until that value is removed, and
//! to no value afterwards. Each slot numbers its values with a generation; a slot whose generations
//! are used up is no longer used.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// The key of a value in a [`Slab`]: the index of the value's slot, and the generation of the value
/// in that slot.
///
/// In the word that [`Key::to_bits`] returns, the two highest bits are free, so that an owner can
/// use them to mark which table a word belongs to.
pub struct Key<T> {
    index: u32,
    generation: u32,
    of: PhantomData<fn() -> T>,
}

/// A table of values, addressed by keys. The slot that was freed last is reused first, so the keys
/// depend only on the sequence of calls.
///
/// The table grows to the largest number of values that it has contained at one time, and allocates
/// nothing after that.
///
/// Keys have the type of the values as their parameter, or `Of` if the values' type is private or
/// unknown to the code that stores keys.
pub struct Slab<T, Of = T> {
    slots: Vec<Slot<T>>,
    /// The index of the first free slot; each free slot links to the next.
    first_free: u32,
    count: u32,
    count_max: u32,
    of: PhantomData<fn() -> Of>,
}

struct Slot<T> {
    generation: u32,
    content: Content<T>,
}

enum Content<T> {
    Value(T),
    Free { next: u32 },
}

impl<T> Slab<T> {
    /// Creates an empty table without a limit; its owner must limit the number of values.
    #[must_use]
    pub const fn new() -> Self {
        Self::bounded(INDEX_MAX)
    }

    /// Creates an empty table for at most `count_max` values.
    #[must_use]
    pub const fn bounded(count_max: u32) -> Self {
        Self::tagged(count_max)
    }
}

impl<T, Of> Slab<T, Of> {
    /// Creates an empty table for at most `count_max` values whose keys have another type
    /// parameter.
    #[must_use]
    pub const fn tagged(count_max: u32) -> Self {
        Self { slots: Vec::new(), first_free: NO_SLOT, count: 0, count_max, of: PhantomData }
    }

    /// Inserts a value and returns its key.
    ///
    /// # Panics
    /// If the table is full. If this can happen, use [`Slab::try_insert`].
    #[inline]
    pub fn insert(&mut self, value: T) -> Key<Of> {
        match self.try_insert(value) {
            Ok(key) => key,
            Err(_) => panic!("a table of {} values is full", self.count_max),
        }
    }

    /// Inserts a value and returns its key.
    ///
    /// # Errors
    /// The value itself, if the table is full.
    #[inline]
    pub fn try_insert(&mut self, value: T) -> Result<Key<Of>, T> {
        if self.count >= self.count_max {
            return Err(value);
        }
        let index = self.first_free;
        if let Some(slot) = self.slots.get_mut(index as usize)
            && let Content::Free { next } = slot.content
        {
            self.first_free = next;
            slot.content = Content::Value(value);
            self.count += 1;
            return Ok(Key::new(index, slot.generation));
        }
        self.append(value)
    }

    #[cold]
    fn append(&mut self, value: T) -> Result<Key<Of>, T> {
        let index = match u32::try_from(self.slots.len()) {
            Ok(index) if index < INDEX_MAX => index,
            Ok(_) | Err(_) => return Err(value),
        };
        self.slots.push(Slot { generation: FIRST_GENERATION, content: Content::Value(value) });
        self.count += 1;
        Ok(Key::new(index, FIRST_GENERATION))
    }

    /// Inserts a value that `make` builds from the key that the value will have.
    ///
    /// # Errors
    /// The error of `make`. In this case no value was inserted.
    ///
    /// # Panics
    /// If the table is full, as [`Slab::insert`].
    pub fn insert_with<E>(
        &mut self,
        make: impl FnOnce(Key<Of>) -> Result<T, E>,
    ) -> Result<Key<Of>, E> {
        let key = match self.slots.get(self.first_free as usize) {
            Some(slot) => Key::new(self.first_free, slot.generation),
            None => Key::new(self.slots.len() as u32, FIRST_GENERATION),
        };
        let value = make(key)?;
        let inserted = self.insert(value);
        debug_assert_eq!(inserted, key);
        Ok(inserted)
    }

    /// Removes and returns a value; `None` if it was removed before.
    #[inline]
    pub fn remove(&mut self, key: Key<Of>) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        match std::mem::replace(&mut slot.content, Content::Free { next: self.first_free }) {
            Content::Value(value) => {
                self.count -= 1;
                if slot.generation < GENERATION_MAX {
                    slot.generation += 1;
                    self.first_free = key.index;
                } else {
                    // The next value would have the same key as the first value in this slot had.
                    slot.generation = NO_GENERATION;
                    slot.content = Content::Free { next: NO_SLOT };
                }
                Some(value)
            }
            // No key with the current generation of an empty slot was ever returned.
            content @ Content::Free { .. } => {
                slot.content = content;
                None
            }
        }
    }

    /// Returns the value with this key; `None` if it was removed.
    #[inline]
    #[must_use]
    pub fn get(&self, key: Key<Of>) -> Option<&T> {
        match self.slots.get(key.index as usize) {
            Some(Slot { generation, content: Content::Value(value) })
                if *generation == key.generation =>
            {
                Some(value)
            }
            _ => None,
        }
    }

    /// Returns the value with this key, mutably; `None` if it was removed.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, key: Key<Of>) -> Option<&mut T> {
        match self.slots.get_mut(key.index as usize) {
            Some(Slot { generation, content: Content::Value(value) })
                if *generation == key.generation =>
            {
                Some(value)
            }
            _ => None,
        }
    }

    /// Returns true if the table has a value with this key.
    #[inline]
    #[must_use]
    pub fn contains(&self, key: Key<Of>) -> bool {
        self.get(key).is_some()
    }

    /// Returns the key of the value in a slot; `None` if the slot is empty. For owners that send
    /// only slot numbers in messages.
    #[must_use]
    pub fn key_at(&self, index: u32) -> Option<Key<Of>> {
        let slot = self.slots.get(index as usize)?;
        matches!(slot.content, Content::Value(_)).then(|| Key::new(index, slot.generation))
    }

    /// Returns the number of values.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns true if the table has no values.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over all values with their keys, in the order of slots.
    pub fn iter(&self) -> impl Iterator<Item = (Key<Of>, &T)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| match &slot.content {
            Content::Value(value) => Some((Key::new(index, slot.generation), value)),
            Content::Free { .. } => None,
        })
    }

    /// Iterates mutably over all values with their keys, in the order of slots.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key<Of>, &mut T)> {
        (0..).zip(&mut self.slots).filter_map(|(index, slot)| match &mut slot.content {
            Content::Value(value) => Some((Key::new(index, slot.generation), value)),
            Content::Free { .. } => None,
        })
    }

    /// Iterates over all values, in the order of slots.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    /// Iterates mutably over all values, in the order of slots.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.iter_mut().map(|(_, value)| value)
    }

    /// Iterates over the keys of all values, in the order of slots.
    pub fn keys(&self) -> impl Iterator<Item = Key<Of>> {
        self.iter().map(|(key, _)| key)
    }
}

impl<T> Key<T> {
    /// A key that names no value in any table.
    pub const NULL: Self = Self::new(NO_SLOT, NO_GENERATION);
    /// The key that the first insertion into any table returns.
    pub const FIRST: Self = Self::new(0, FIRST_GENERATION);
    /// The smallest key; it names no value.
    pub const MIN: Self = Self::new(0, NO_GENERATION);
    /// The largest key; it names no value.
    pub const MAX: Self = Self::new(u32::MAX, u32::MAX);

    const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation, of: PhantomData }
    }

    /// Returns the index of the value's slot, which is below the largest number of values that the
    /// table has contained at one time.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Returns the key as a number below 2^62, which is never 0 for a key that a table has
    /// returned.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << u32::BITS | self.index as u64
    }

    /// Creates a key from a number. If no key has this number, the result is a key without a value.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self::new(bits as u32, (bits >> u32::BITS) as u32)
    }
}

impl<T, Of> Default for Slab<T, Of> {
    fn default() -> Self {
        Self::tagged(INDEX_MAX)
    }
}

impl<T, Of> Index<Key<Of>> for Slab<T, Of> {
    type Output = T;

    /// # Panics
    /// If the value was removed, which the owner of the key must rule out.
    #[inline]
    fn index(&self, key: Key<Of>) -> &T {
        self.get(key).expect("a key is not used after its value was removed")
    }
}

impl<T, Of> IndexMut<Key<Of>> for Slab<T, Of> {
    #[inline]
    fn index_mut(&mut self, key: Key<Of>) -> &mut T {
        self.get_mut(key).expect("a key is not used after its value was removed")
    }
}

impl<T: fmt::Debug, Of> fmt::Debug for Slab<T, Of> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

// Not derived, because derived implementations would require the same traits of `T`.

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> PartialEq for Key<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.to_bits() == other.to_bits()
    }
}

impl<T> Eq for Key<T> {}

impl<T> PartialOrd for Key<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Key<T> {
    /// Compares by slot, then by generation.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.index, self.generation).cmp(&(other.index, other.generation))
    }
}

impl<T> Hash for Key<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.to_bits().hash(state);
    }
}

impl<T> Default for Key<T> {
    fn default() -> Self {
        Self::NULL
    }
}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// A slot number that no slot has.
const NO_SLOT: u32 = u32::MAX;
/// The limit for the number of slots.
const INDEX_MAX: u32 = u32::MAX;
/// A generation that no value has, so that a word of zeros is not a valid key.
const NO_GENERATION: u32 = 0;
const FIRST_GENERATION: u32 = 1;
/// The limit for the generations of one slot, which leaves two bits of the word free.
const GENERATION_MAX: u32 = (1 << 30) - 1;

const _: () = assert!(size_of::<Key<String>>() == 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_whose_generations_are_used_up_is_not_used_again() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        slab.slots[0].generation = GENERATION_MAX;
        let last = Key::new(0, GENERATION_MAX);
        assert_eq!(slab.remove(last), Some('a'));
        let next = slab.insert('b');
        assert_eq!((next.index(), slab.get(last), slab.get(first)), (1, None, None));
        assert_eq!(slab.len(), 1);
        assert!(Key::<char>::new(u32::MAX, GENERATION_MAX).to_bits() < 1 << 62);
    }
}

//! Things by small numbers.
//!
//! Invariant: a number names one thing from its insertion to its removal.

/// A table whose places are used again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub fn insert(&mut self, thing: T) -> u64 {
        let index = match self.free.pop() {
            Some(index) => {
                self.places[index] = Some(thing);
                index
            }
            None => {
                self.places.push(Some(thing));
                self.places.len() - 1
            }
        };
        index as u64
    }

    pub fn get(&self, number: u64) -> Option<&T> {
        self.places.get(usize::try_from(number).ok()?)?.as_ref()
    }

    pub fn remove(&mut self, number: u64) -> Option<T> {
        let index = usize::try_from(number).ok()?;
        let thing = self.places.get_mut(index)?.take()?;
        self.free.push(index);
        Some(thing)
    }

    pub fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_when_they_are_free() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!((slab.get(a), slab.get(b), slab.count()), (None, Some(&'b'), 1));
        assert_eq!(slab.insert('c'), a);
        assert_eq!(slab.remove(99), None);
    }
}

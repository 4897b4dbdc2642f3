//! A pool of registered memory that is not in use.
//!
//! Invariant: memory in the pool is registered and no transfer names it; the pool never holds more
//! than [`POOL_BYTES_MAX`] bytes.

use dafs_dat::Region;
use dafs_memory::Memory;

/// The unused buffers by size class; the sizes of the classes are powers of two.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    classes: [Vec<(Memory, Region)>; CLASSES],
    bytes: usize,
}

impl Pool {
    /// Returns the size to allocate for a buffer of `length` bytes: the size of its class, or
    /// `length` if it is larger than every class.
    pub(crate) fn rounded(length: usize) -> usize {
        class_of(length).map_or(length, |class| CLASS_BYTES_MIN << class)
    }

    /// Removes and returns a buffer of at least `length` bytes, if the pool has one.
    pub(crate) fn take(&mut self, length: usize) -> Option<(Memory, Region)> {
        let found = self.classes[class_of(length)?].pop()?;
        self.bytes -= found.0.length();
        Some(found)
    }

    /// Adds a buffer whose size came from [`Pool::rounded`]. Returns false if the pool has no room,
    /// so that the caller must release the buffer.
    #[must_use]
    pub(crate) fn put(&mut self, memory: &Memory, region: Region) -> bool {
        let length = memory.length();
        let Some(class) = class_of(length).filter(|class| CLASS_BYTES_MIN << class == length)
        else {
            return false;
        };
        if self.bytes + length > POOL_BYTES_MAX {
            return false;
        }
        self.bytes += length;
        self.classes[class].push((memory.clone(), region));
        true
    }
}

fn class_of(length: usize) -> Option<usize> {
    let rounded = length.checked_next_power_of_two()?.max(CLASS_BYTES_MIN);
    let class = (rounded.trailing_zeros() - CLASS_BYTES_MIN.trailing_zeros()) as usize;
    (class < CLASSES).then_some(class)
}

const CLASS_BYTES_MIN: usize = 4096;

/// The number of size classes, from 4 KiB to 16 MiB.
const CLASSES: usize = 13;

const POOL_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use dafs_dat::{Domain, Interface, InterfaceConfig, Rights};
    use dafs_memory::Pages;

    use super::*;

    #[test]
    fn classes_are_powers_of_two_and_have_a_largest() {
        assert_eq!(Pool::rounded(1), 4096);
        assert_eq!(Pool::rounded(4097), 8192);
        assert_eq!(Pool::rounded(16 << 20), 16 << 20);
        assert_eq!(Pool::rounded((16 << 20) + 1), (16 << 20) + 1);
    }

    #[test]
    fn the_pool_is_bounded_and_gives_back_what_fits() {
        let mut interface = Interface::new(InterfaceConfig::default()).unwrap();
        let mut pool = Pool::default();
        let memory = Memory::shared(16 << 20, Pages::Small).unwrap();
        let region = interface.register(&memory, Domain(0), Rights::REMOTE).unwrap();
        for _ in 0..4 {
            assert!(pool.put(&memory, region));
        }
        assert!(!pool.put(&memory, region), "64 MiB are in it");
        assert!(pool.take(4096).is_none(), "another class");
        assert!(pool.take(9 << 20).is_some());
        assert!(pool.put(&memory, region));
        let odd = Memory::shared(5000, Pages::Small).unwrap();
        assert!(!pool.put(&odd, region));
    }
}

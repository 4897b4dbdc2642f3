//! Registered memory that nobody uses just now, kept for the next who needs some.
//!
//! Invariant: what is in the pool is registered, and no transfer names it; it never
//! holds more than [`POOL_BYTES_MAX`] bytes.

use dafs_dat::Region;
use dafs_memory::Memory;

/// Free buffers by size class; a class holds buffers of one power of two.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    classes: [Vec<(Memory, Region)>; CLASSES],
    bytes: usize,
}

impl Pool {
    /// Bytes to allocate for a buffer of `length`: a whole class, if one is large enough.
    pub fn rounded(length: usize) -> usize {
        class_of(length).map_or(length, |class| CLASS_BYTES_MIN << class)
    }

    /// A buffer of at least `length` bytes.
    pub fn take(&mut self, length: usize) -> Option<(Memory, Region)> {
        let found = self.classes[class_of(length)?].pop()?;
        self.bytes -= found.0.length();
        Some(found)
    }

    /// Keeps a buffer that [`Pool::rounded`] sized. False if it must be let go.
    #[must_use]
    pub fn put(&mut self, memory: &Memory, region: Region) -> bool {
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

/// 4 KiB to 16 MiB.
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

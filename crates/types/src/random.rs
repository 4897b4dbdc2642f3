//! Reproducible random numbers for simulations and tests.
//!
//! Invariant: the sequence depends only on the seed and never changes between versions, because the
//! seeds of failed tests are recorded.

use crate::time::Entropy;

/// The SplitMix64 generator, which is small, well mixed, and usable with any seed. It must not be
/// used for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the generator for a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates a separate generator, for code whose random numbers must not affect those of other
    /// code.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.next_u64())
    }

    /// Returns a number less than `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next_u64() % bound.max(1) as u64) as usize
    }

    /// Returns true with a probability of `chance` percent.
    pub fn percent(&mut self, chance: u32) -> bool {
        self.next_u64() % 100 < u64::from(chance)
    }

    /// Returns `length` random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.next_u64().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

impl Entropy for Random {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_for_ever() {
        let mut random = Random::new(1_234_567);
        let drawn = [(); 3].map(|()| random.next_u64());
        // Values from the reference implementation of SplitMix64.
        let expected = [6457827717110365317, 3203168211198807973, 9817491932198370423];
        assert_eq!(drawn, expected);
        assert_eq!(Random::new(7).bytes(9), Random::new(7).bytes(11)[..9]);
    }

    #[test]
    fn numbers_stay_in_bounds() {
        let mut random = Random::new(7);
        assert!((0..1000).all(|_| random.below(10) < 10));
        assert_eq!(random.below(0), 0);
        assert!(!random.percent(0) && random.percent(100));
    }
}

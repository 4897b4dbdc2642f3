//! The random numbers of the simulated network.
//!
//! Invariant: the sequence depends only on the seed.

/// The SplitMix64 generator: small, well mixed, and usable with any seed.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random number from `least` to `most`, inclusive; returns `least` if `most` is
    /// smaller.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        let span = most.saturating_sub(least).saturating_add(1);
        // The bias is below one in 2^32 for every range used here.
        least + self.next() % span
    }

    pub(crate) fn chance(&mut self, ppm: u32) -> bool {
        self.between(0, 999_999) < u64::from(ppm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_bounds_and_repeat_with_the_seed() {
        let (mut one, mut two) = (Random::new(7), Random::new(7));
        for _ in 0..1000 {
            let number = one.between(10, 20);
            assert!((10..=20).contains(&number));
            assert_eq!(number, two.between(10, 20));
        }
        assert_eq!(one.between(5, 5), 5);
        assert!(!one.chance(0) && one.chance(1_000_000));
    }
}

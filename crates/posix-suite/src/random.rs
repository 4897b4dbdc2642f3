//! Random numbers that are reproducible from a seed.

/// A random number generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Makes a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a random 64-bit number.
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below a bound, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next_number() % bound as u64).unwrap_or(0)
    }

    /// Returns a random element of a slice.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Returns a random element of a slice according to the weights.
    pub fn weighted<T: Copy>(&mut self, all: &[(T, usize)]) -> T {
        let total: usize = all.iter().map(|(_, weight)| weight).sum();
        let mut at = self.below(total);
        for (value, weight) in all {
            if at < *weight {
                return *value;
            }
            at -= weight;
        }
        all[0].0
    }
}

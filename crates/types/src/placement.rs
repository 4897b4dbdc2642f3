//! Placement assigns each file to one channel of a session, the file's home channel, which carries
//! all transfers of the file.
//!
//! Invariant: the home channel depends only on the bytes of the handle and the number of channels,
//! by the formula in `docs/spec/placement.md`.

use crate::ids::FileHandle;

/// The index of a channel in a session. It is less than the session's [`ChannelCount`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelIndex(pub u16);

/// The number of channels of a session, from 1 to [`ChannelCount::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelCount(u16);

impl ChannelCount {
    /// The count of a session with a single channel.
    pub const ONE: Self = Self(1);
    /// The maximum number of channels of a session.
    pub const MAX: usize = 64;

    /// Creates a channel count. `None` if `count` is 0 or above the limit.
    #[must_use]
    pub fn new(count: usize) -> Option<Self> {
        let is_possible = (1..=Self::MAX).contains(&count);
        u16::try_from(count).ok().filter(|_| is_possible).map(Self)
    }

    /// Returns the count as a number.
    #[inline]
    #[must_use]
    pub fn get(self) -> usize {
        usize::from(self.0)
    }

    /// Iterates over the indexes of all channels, in order.
    pub fn channels(self) -> impl Iterator<Item = ChannelIndex> {
        (0..self.0).map(ChannelIndex)
    }

    /// Returns the home channel of an object. Named attributes have the same home channel as their
    /// object.
    #[inline]
    #[must_use]
    pub fn home_of(self, handle: &FileHandle) -> ChannelIndex {
        if self.0 == 1 {
            return ChannelIndex(0);
        }
        // The upper half of the hash, scaled to the number of channels.
        ChannelIndex((((placement_hash(handle) >> 32) * u64::from(self.0)) >> 32) as u16)
    }
}

/// Returns the hash of an object's handle from which the home channel is computed.
#[must_use]
pub fn placement_hash(handle: &FileHandle) -> u64 {
    let mut words = [0; HASHED_WORDS];
    for (word, bytes) in words.iter_mut().zip(handle.0.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    // The handle of a named attribute has a number in this word; the handle of its object has 0
    // there.
    if words[FACET_WORD] & FACET_MASK == FACET_ATTRIBUTE {
        words[HASHED_WORDS - 1] = 0;
    }
    words[FACET_WORD] &= !FACET_MASK;
    // Older handles of the same object have arbitrary bits in place of the node number.
    words[0] &= !NODE_MASK;
    let products = words.iter().zip(FACTORS).map(|(word, factor)| word.wrapping_mul(factor));
    mixed(products.fold(0, u64::wrapping_add))
}

/// Applies the final step of SplitMix64: each bit of the result depends on all bits of the input.
fn mixed(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The number of 64-bit words in a handle that precede its MAC.
const HASHED_WORDS: usize = 7;
/// The index of the word that contains the facet. The facet says whether the handle names the
/// object itself, its attribute directory, or a named attribute.
const FACET_WORD: usize = 2;
const FACET_MASK: u64 = 0xff << 16;
const FACET_ATTRIBUTE: u64 = 2 << 16;
const NODE_MASK: u64 = 0xffff << 48;
/// The first outputs of SplitMix64 for the seed 0, with the lowest bit set.
const FACTORS: [u64; HASHED_WORDS] = [
    0xe220_a839_7b1d_cdaf,
    0x6e78_9e6a_a1b9_65f5,
    0x06c4_5d18_8009_454f,
    0xf88b_b8a8_724c_81ed,
    0x1b39_896a_51a8_749b,
    0x53cb_9f0c_747e_a2eb,
    0x2c82_9abe_1f45_32e1,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::FsHandle;
    use crate::random::Random;
    use crate::time::Entropy;

    /// Creates a handle like the handles of a server's store, from a file's number and without the
    /// MAC.
    fn numbered(number: u64) -> FileHandle {
        let mut id = [0; 48];
        id[0] = 2;
        id[8..16].copy_from_slice(&number.to_le_bytes());
        id[16..24].copy_from_slice(&1_700_000_000u64.to_le_bytes());
        FileHandle::new(FsHandle(*b"exports\0\0\0\0\0\0\0\0\0"), id)
    }

    /// Creates a handle that contains ext4's kernel handle of a file: its inode number and
    /// generation.
    fn named_by_the_kernel(number: u32) -> FileHandle {
        let mut id = [0; 48];
        (id[0], id[1], id[4]) = (1, 8, 1);
        id[8..12].copy_from_slice(&number.to_le_bytes());
        id[12..16].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_le_bytes());
        FileHandle::new(FsHandle([7; 16]), id)
    }

    /// Creates a handle like the handles of the memory store, which begin with a number.
    fn in_memory(number: u64) -> FileHandle {
        let mut id = [0; 48];
        id[..8].copy_from_slice(&number.to_le_bytes());
        FileHandle::new(FsHandle(*b"memory store\0\0\0\0"), id)
    }

    fn chi_square(handles: impl Iterator<Item = FileHandle>, count: ChannelCount) -> f64 {
        let mut counts = vec![0u32; count.get()];
        let mut total = 0.0;
        for handle in handles {
            counts[usize::from(count.home_of(&handle).0)] += 1;
            total += 1.0;
        }
        let expected = total / count.get() as f64;
        counts.iter().map(|found| (f64::from(*found) - expected).powi(2) / expected).sum()
    }

    #[test]
    fn files_with_numbers_in_a_row_are_spread_as_by_chance() {
        const FILES: u64 = 100_000;
        for count in (1..=16).map(|count| ChannelCount::new(count).unwrap()) {
            // The value that chance exceeds once in 10,000 runs, by the Wilson-Hilferty
            // approximation.
            let freedom = (count.get() - 1) as f64;
            let spread = 2.0 / (9.0 * freedom.max(1.0));
            let bound = freedom * (1.0 - spread + 3.719 * spread.sqrt()).powi(3);
            let found = [
                chi_square((1 << 33..(1 << 33) + FILES).map(numbered), count),
                chi_square((0..FILES).map(|number| numbered(number * 4096)), count),
                chi_square((11..11 + FILES as u32).map(named_by_the_kernel), count),
                chi_square((1..=FILES).map(in_memory), count),
            ];
            for (kind, found) in found.into_iter().enumerate() {
                assert!(found <= bound, "{kind} over {count:?}: {found:.1}, not {bound:.1}");
            }
        }
    }

    #[test]
    fn all_handles_of_an_object_have_one_home() {
        let mut random = Random::new(1);
        for _ in 0..1000 {
            let handle = named_by_the_kernel(random.next_u64() as u32);
            let changed = |change: &dyn Fn(&mut [u8; 64])| {
                let mut other = handle;
                change(&mut other.0);
                other
            };
            let others = [
                changed(&|bytes| bytes[56..].copy_from_slice(b"the seal")),
                changed(&|bytes| bytes[6..8].copy_from_slice(b"nd")),
                changed(&|bytes| bytes[18] = 1),
                changed(&|bytes| {
                    bytes[18] = 2;
                    bytes[48..56].copy_from_slice(b"a number");
                }),
            ];
            assert!(others.iter().all(|other| placement_hash(other) == placement_hash(&handle)));
            for place in (0..6).chain(8..18).chain(19..56) {
                let other = changed(&|bytes| bytes[place] ^= 1 << (place % 8));
                assert_ne!(placement_hash(&other), placement_hash(&handle), "byte {place}");
            }
        }
    }

    #[test]
    fn a_session_has_one_to_sixty_four_channels() {
        assert_eq!(ChannelCount::new(1), Some(ChannelCount::ONE));
        assert!(ChannelCount::new(0).is_none() && ChannelCount::new(65).is_none());
        assert_eq!(ChannelCount::new(64).unwrap().channels().last(), Some(ChannelIndex(63)));
        assert_eq!(ChannelCount::ONE.home_of(&numbered(7)), ChannelIndex(0));
    }

    /// Checks the examples of `docs/spec/placement.md`, against which other implementations are
    /// tested.
    #[test]
    fn the_examples_of_the_document_are_true() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/spec/placement.md");
        let text = std::fs::read_to_string(path).unwrap();
        for factor in FACTORS {
            assert!(text.contains(&format!("{factor:016x}")), "{factor:016x} is not listed");
        }
        let block = text.split("```examples\n").nth(1).unwrap().split("```").next().unwrap();
        let mut examples = 0;
        for line in block.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            let [handle, hash, homes @ ..] = &words[..] else { panic!("{line}") };
            let mut bytes = [0; FileHandle::LENGTH];
            assert_eq!(handle.len(), 2 * bytes.len(), "{line}");
            for (index, byte) in bytes.iter_mut().enumerate() {
                *byte = u8::from_str_radix(&handle[2 * index..2 * index + 2], 16).unwrap();
            }
            let handle = FileHandle(bytes);
            assert_eq!(format!("{:016x}", placement_hash(&handle)), *hash, "{line}");
            let counts = [2, 3, 8, 64].map(|count| ChannelCount::new(count).unwrap());
            let found = counts.map(|count| count.home_of(&handle).0.to_string());
            assert_eq!(found[..], homes[..], "{line}");
            examples += 1;
        }
        assert!(examples >= 6, "there are {examples} examples");
    }
}

//! The optional checksums (draft 3.2.5): one's-complement Fletcher over 16-bit words, with modulus
//! 65,535; the first sum starts at 0x0101, the second at 0.
//!
//! Invariant: the four bytes of a checksum do not depend on the session's byte order. Swapping the
//! bytes of every word multiplies both sums by 256 modulo 65,535, the seed is its own swap, and
//! storing the sums in the swapped order undoes the multiplication. So one routine serves both
//! orders, and a checksum is opaque bytes. A sum that is congruent to 0 is kept as 65,535, never as
//! 0, because the draft subtracts the modulus only from sums above 65,535. So the first sum is
//! never zero, and "no checksum" (all zero) stays distinct.

/// The four bytes of a checksum in a message: two bytes of the second sum, then two bytes of the
/// first sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Checksum(pub [u8; 4]);

impl Checksum {
    /// The value of the checksum field in sessions without checksums.
    pub const NONE: Self = Self([0; 4]);

    /// Computes the checksum of these bytes.
    #[must_use]
    pub fn of(data: &[u8]) -> Self {
        let mut sums = DirectChecksum::new();
        sums.update(data);
        sums.finish()
    }
}

/// The contribution of one range of data to the checksum of the whole data. It is used if the
/// ranges are moved in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumPart {
    /// The offset in the data of the range's first byte.
    at: u32,
    /// The sum of the range's words modulo 65,535. If a word lies in two ranges, each range counts
    /// only its own byte of that word.
    plain: u64,
    /// The sum of the range's words, each multiplied by its index in the data.
    placed: u64,
}

impl ChecksumPart {
    /// Computes the contribution of these bytes, which begin at offset `at` in the data.
    #[must_use]
    pub fn of(at: u32, data: &[u8]) -> Self {
        let (mut plain, mut placed) = (0u64, 0u64);
        let mut from = u64::from(at);
        for part in data.chunks(PART_BYTES) {
            for (place, &byte) in (from..).zip(part) {
                let value = u64::from(byte) << (8 * (place % 2));
                plain += value;
                placed += value * (place / 2);
            }
            placed %= MODULUS;
            from += part.len() as u64;
        }
        Self { at, plain: plain % MODULUS, placed }
    }
}

impl Checksum {
    /// Computes the checksum of the first `length` bytes of data from the contributions of its
    /// ranges, which must cover these bytes without gaps. Ranges that begin after them are ignored.
    /// With n words, the word with index i counts n - i times in the second sum.
    #[must_use]
    pub fn of_parts(length: u32, parts: &[ChecksumPart]) -> Self {
        let words = u64::from(length.div_ceil(2)) % MODULUS;
        let (mut plain, mut placed) = (0, 0);
        for part in parts.iter().filter(|part| part.at < length) {
            plain = (plain + part.plain) % MODULUS;
            placed = (placed + part.placed) % MODULUS;
        }
        let first = (SEED + plain) % MODULUS;
        let second = (words * first + MODULUS - placed) % MODULUS;
        // A sum that started above zero never returns to zero.
        let kept = |sum: u64| if sum == 0 { MODULUS } else { sum };
        let second = if length == 0 { 0 } else { kept(second) };
        let ([a, b, ..], [c, d, ..]) = (second.to_le_bytes(), kept(first).to_le_bytes());
        Self([a, b, c, d])
    }
}

/// The number of bytes in a chunk: for longer ranges, a sum could exceed 64 bits, because indexes
/// are below 2^32 and words below 2^16.
const PART_BYTES: usize = 1 << 15;

/// The number of 16-bit words summed in parallel, so that the compiler uses vector registers.
const LANES: usize = 16;
/// The number of bytes in one row of [`LANES`] words.
const ROW_BYTES: usize = LANES * 2;
/// The number of rows after which a lane's weighted sum could exceed 32 bits: 256 * 257 / 2 *
/// 65,535 < 2^32.
const ROWS_MAX: usize = 256;
/// The number of bytes in a block of [`ROWS_MAX`] rows.
const BLOCK_BYTES: usize = ROWS_MAX * ROW_BYTES;
/// The modulus of both sums of the checksum.
const MODULUS: u64 = 65_535;
/// The initial value of the first sum of the checksum.
const SEED: u64 = 0x0101;

const _: () = assert!((ROWS_MAX * (ROWS_MAX + 1) / 2) as u64 * MODULUS < 1 << 32);

/// Computes a checksum over bytes that are added in pieces, in order (RDMA data, gathered
/// messages).
#[derive(Clone, Debug)]
pub struct DirectChecksum {
    first: u64,
    second: u64,
    /// The low byte of a word whose high byte has not arrived yet.
    half: Option<u8>,
}

impl Default for DirectChecksum {
    fn default() -> Self {
        Self::new()
    }
}

impl DirectChecksum {
    /// Starts a checksum over no bytes.
    #[must_use]
    pub fn new() -> Self {
        Self { first: SEED, second: 0, half: None }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, mut data: &[u8]) {
        if let Some(low) = self.half {
            let Some((&high, rest)) = data.split_first() else { return };
            self.half = None;
            self.word(u16::from_le_bytes([low, high]));
            data = rest;
        }
        let mut blocks = data.chunks(BLOCK_BYTES);
        for block in &mut blocks {
            let rows = block.len() / ROW_BYTES * ROW_BYTES;
            self.rows(&block[..rows]);
            let (words, odd) = block[rows..].as_chunks::<2>();
            for &word in words {
                self.word(u16::from_le_bytes(word));
            }
            // Only the last block of the data can have an odd length.
            self.half = odd.first().copied();
        }
    }

    /// Returns the checksum of all bytes that were added. If their number is odd, a zero byte is
    /// assumed to follow the last byte.
    #[must_use]
    pub fn finish(mut self) -> Checksum {
        if let Some(low) = self.half {
            self.word(u16::from_le_bytes([low, 0]));
        }
        let [a, b] = fold(self.second).to_le_bytes();
        let [c, d] = fold(self.first).to_le_bytes();
        Checksum([a, b, c, d])
    }

    #[inline]
    fn word(&mut self, word: u16) {
        self.first = reduce(self.first + u64::from(word));
        self.second = reduce(self.second + self.first);
    }

    /// Adds up to [`ROWS_MAX`] whole rows of words. If there are n words, the first sum S1 grows by
    /// their sum; the second sum S2 grows by n*S1 plus the sum of each word times its distance from
    /// the end. The word in row r and lane k has the distance LANES*(rows-r) - k, so lanes can be
    /// summed separately and combined afterwards.
    fn rows(&mut self, data: &[u8]) {
        let mut sums = [0u32; LANES];
        let mut weighted = [0u32; LANES];
        let (rows, _) = data.as_chunks::<ROW_BYTES>();
        for row in rows {
            let (words, _) = row.as_chunks::<2>();
            for lane in 0..LANES {
                sums[lane] += u32::from(u16::from_le_bytes(words[lane]));
                weighted[lane] += sums[lane];
            }
        }
        let count = (rows.len() * LANES) as u64;
        let (mut plain, mut by_row, mut by_lane) = (0u64, 0u64, 0u64);
        for lane in 0..LANES {
            plain += u64::from(sums[lane]);
            by_row += u64::from(weighted[lane]);
            by_lane += u64::from(sums[lane]) * lane as u64;
        }
        let growth = by_row * LANES as u64 - by_lane;
        self.second = reduce(self.second + count * self.first + growth);
        self.first = reduce(self.first + plain);
    }
}

/// Returns a value that is congruent modulo 65,535 and at most 65,535; it is 0 only if `value` is
/// 0.
#[inline]
fn reduce(value: u64) -> u64 {
    if value == 0 { 0 } else { (value - 1) % MODULUS + 1 }
}

/// Converts a sum, which is already reduced, to 16 bits.
#[inline]
fn fold(value: u64) -> u16 {
    u16::try_from(reduce(value)).unwrap_or(u16::MAX)
}

/// The bytes of a request or reply header that contain the checksum.
const FIELD: std::ops::Range<usize> = 24..28;

/// Computes the checksum of a message that is given in two parts. `prefix` contains at least the
/// whole header; the header's checksum field is taken as zero.
#[must_use]
pub fn message_checksum(prefix: &[u8], payload: &[&[u8]]) -> Checksum {
    let mut sums = DirectChecksum::new();
    match (prefix.get(..FIELD.start), prefix.get(FIELD.end..)) {
        (Some(before), Some(after)) => {
            sums.update(before);
            sums.update(&[0; 4]);
            sums.update(after);
        }
        _ => sums.update(prefix),
    }
    for part in payload {
        sums.update(part);
    }
    sums.finish()
}

/// Sets the checksum field of an encoded message. `payload` is the data that will be sent after
/// `prefix` in the same message. If `prefix` is shorter than a header, it is not changed.
pub fn seal(prefix: &mut [u8], payload: &[&[u8]]) {
    let checksum = message_checksum(prefix, payload);
    if let Some(field) = prefix.get_mut(FIELD) {
        field.copy_from_slice(&checksum.0);
    }
}

/// Returns true if the checksum field of a received message is correct.
#[must_use]
pub fn is_intact(message: &[u8]) -> bool {
    message.get(FIELD).is_some_and(|field| field == message_checksum(message, &[]).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The draft's algorithm, implemented as the draft describes it: one word at a time, in a given
    /// byte order.
    fn reference(data: &[u8], word: fn([u8; 2]) -> u16, bytes: fn(u16) -> [u8; 2]) -> [u8; 4] {
        let (mut first, mut second) = (0x0101u32, 0u32);
        for pair in data.chunks(2) {
            first += u32::from(word([pair[0], pair.get(1).copied().unwrap_or(0)]));
            if first > 65_535 {
                first -= 65_535;
            }
            second += first;
            if second > 65_535 {
                second -= 65_535;
            }
        }
        let ([a, b], [c, d]) = (bytes(second as u16), bytes(first as u16));
        [a, b, c, d]
    }

    #[test]
    fn parts_in_any_order_make_the_checksum_of_the_whole() {
        let mut state = 5u64;
        let mut next = |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
            (state >> 33) as usize % bound
        };
        for length in (1..200).chain([65_535, 131_070, 140_001]) {
            let zeros = next(4) == 0;
            let data: Vec<u8> =
                (0..length).map(|_| if zeros { 255 } else { next(256) as u8 }).collect();
            let (mut parts, mut at) = (Vec::new(), 0);
            while at < length {
                let count = 1 + next(length - at);
                parts.insert(
                    next(parts.len() + 1),
                    ChecksumPart::of(at as u32, &data[at..at + count]),
                );
                at += count;
            }
            assert_eq!(Checksum::of_parts(length as u32, &parts), Checksum::of(&data), "{length}");
            // A range that begins after the end is ignored.
            parts.push(ChecksumPart::of(length as u32, &data));
            assert_eq!(Checksum::of_parts(length as u32, &parts), Checksum::of(&data), "{length}");
        }
    }

    #[test]
    fn both_byte_orders_agree_with_the_reference() {
        let mut state = 1u64;
        let mut data = Vec::new();
        for length in (0..300).chain([8191, 8192, 8193, 16_385, 70_001]) {
            data.resize_with(length, || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if state >> 62 == 0 { 0xff } else { (state >> 33) as u8 }
            });
            let little = reference(&data, u16::from_le_bytes, u16::to_le_bytes);
            let big = reference(&data, u16::from_be_bytes, u16::to_be_bytes);
            assert_eq!(little, big, "{length}");
            assert_eq!(Checksum::of(&data).0, little, "{length}");
            for cut in [0, 1, length / 3, length.saturating_sub(1)] {
                let (front, back) = data.split_at(cut.min(length));
                let mut pieces = DirectChecksum::new();
                pieces.update(front);
                pieces.update(&[]);
                pieces.update(back);
                assert_eq!(pieces.finish().0, little, "{length} cut at {cut}");
            }
        }
    }

    #[test]
    fn known_values() {
        assert_eq!(Checksum::of(&[]).0, [0, 0, 1, 1]);
        assert_eq!(Checksum::of(&[1]).0, [2, 1, 2, 1]);
        assert_eq!(Checksum::of(&[0xff; 4]).0, [2, 2, 1, 1]);
        assert_eq!(Checksum::of(&vec![0xff; 100_000]), Checksum::of(&vec![0; 100_000]));
    }

    #[test]
    fn the_field_itself_counts_as_zero() {
        let mut message = [3; 64];
        seal(&mut message, &[]);
        assert!(is_intact(&message));
        message[30] ^= 1;
        assert!(!is_intact(&message));
        assert!(!is_intact(&message[..20]));
    }
}

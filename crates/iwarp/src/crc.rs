//! The MPA checksum: CRC32C, fed piece by piece.
//!
//! Invariant: a checksum covers the length field, the headers, the payload and
//! the pad of one FPDU, in stream order, and nothing else (RFC 5044 4.4).

/// A CRC32C accumulator over one FPDU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum(u32);

impl Checksum {
    /// A checksum over no octets.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self(0)
    }

    /// Takes in the octets that follow those already taken.
    #[inline]
    pub fn update(&mut self, octets: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, octets);
    }

    /// The four octets as they travel: least significant first.
    #[inline]
    #[must_use]
    pub fn octets(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }
}

/// The checksum of a contiguous piece, as it travels.
#[must_use]
pub fn checksum_of(octets: &[u8]) -> [u8; 4] {
    let mut checksum = Checksum::new();
    checksum.update(octets);
    checksum.octets()
}

#[cfg(test)]
mod tests {
    use super::checksum_of;

    /// An FPDU of RFC 5044 appendix A: 24 zero octets sent on queue 0.
    fn frame(sequence: u8) -> Vec<u8> {
        let mut octets = vec![0u8; 2 + 18 + 24];
        octets[1] = 0x2a;
        octets[2] = 0x41;
        octets[3] = 0x43;
        octets[15] = sequence;
        octets
    }

    #[test]
    fn vector_without_marker() {
        assert_eq!(checksum_of(&frame(1)), [0xb7, 0x24, 0x3e, 0xc3]);
        assert_eq!(checksum_of(&frame(2)), [0x29, 0x0f, 0xbe, 0xde]);
    }

    #[test]
    fn vector_with_leading_marker() {
        let mut octets = vec![0u8; 4];
        octets.extend_from_slice(&frame(1));
        assert_eq!(checksum_of(&octets), [0x52, 0x23, 0x99, 0x83]);
    }

    #[test]
    fn vector_with_embedded_marker() {
        // The marker says that the frame began 20 octets before it.
        let mut octets = frame(2);
        octets.splice(20..20, [0, 0, 0, 0x14]);
        assert_eq!(checksum_of(&octets), [0x84, 0x92, 0x58, 0x98]);
    }

    #[test]
    fn pieces_sum_up() {
        let octets = frame(1);
        for cut in 0..octets.len() {
            let mut checksum = super::Checksum::new();
            checksum.update(&octets[..cut]);
            checksum.update(&octets[cut..]);
            assert_eq!(checksum.octets(), checksum_of(&octets));
        }
    }
}

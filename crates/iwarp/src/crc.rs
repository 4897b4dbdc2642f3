//! The MPA checksum: CRC32C, updated piece by piece.
//!
//! Invariant: a checksum covers the length field, the headers, the payload and the pad of one
//! FPDU, in stream order, and nothing else (RFC 5044 4.4).

/// A running CRC32C over one FPDU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum(u32);

impl Checksum {
    /// Creates a checksum over no bytes.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self(0)
    }

    /// Adds bytes to the checksum that follow the bytes already added.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    /// Returns the four bytes in wire order: least significant first.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }
}

/// Returns the checksum of contiguous bytes in wire order: least significant byte first.
#[must_use]
pub fn checksum_of(bytes: &[u8]) -> [u8; 4] {
    let mut checksum = Checksum::new();
    checksum.update(bytes);
    checksum.bytes()
}

#[cfg(test)]
mod tests {
    use super::checksum_of;

    /// Returns an FPDU of RFC 5044 appendix A: 24 bytes, all zero, sent on queue 0.
    fn frame(sequence: u8) -> Vec<u8> {
        let mut bytes = vec![0u8; 2 + 18 + 24];
        bytes[1] = 0x2a;
        bytes[2] = 0x41;
        bytes[3] = 0x43;
        bytes[15] = sequence;
        bytes
    }

    #[test]
    fn vector_without_marker() {
        assert_eq!(checksum_of(&frame(1)), [0xb7, 0x24, 0x3e, 0xc3]);
        assert_eq!(checksum_of(&frame(2)), [0x29, 0x0f, 0xbe, 0xde]);
    }

    #[test]
    fn vector_with_leading_marker() {
        let mut bytes = vec![0u8; 4];
        bytes.extend_from_slice(&frame(1));
        assert_eq!(checksum_of(&bytes), [0x52, 0x23, 0x99, 0x83]);
    }

    #[test]
    fn vector_with_embedded_marker() {
        // The marker says that the frame began 20 bytes before the marker.
        let mut bytes = frame(2);
        bytes.splice(20..20, [0, 0, 0, 0x14]);
        assert_eq!(checksum_of(&bytes), [0x84, 0x92, 0x58, 0x98]);
    }

    #[test]
    fn pieces_sum_up() {
        let bytes = frame(1);
        for cut in 0..bytes.len() {
            let mut checksum = super::Checksum::new();
            checksum.update(&bytes[..cut]);
            checksum.update(&bytes[cut..]);
            assert_eq!(checksum.bytes(), checksum_of(&bytes));
        }
    }
}

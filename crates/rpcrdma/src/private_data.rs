//! The private data by which the two ends of a new connection tell each other their sizes (RFC
//! 8797).
//!
//! Invariant: private data that is missing or unknown means the defaults of RFC 8166, and is never
//! an error.

use crate::limits::{INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX, PRIVATE_DATA_BYTES_MAX};

/// The length in bytes of the encoded private data.
pub const PRIVATE_DATA_BYTES: usize = 8;

/// The number with which the private data begins.
const MAGIC: [u8; 4] = [0xf6, 0xab, 0x0e, 0x18];
/// The version of the format.
const FORMAT: u8 = 1;
/// The flag of an end that supports remote invalidation.
const REMOTE_INVALIDATION: u8 = 1;
/// The unit in which the sizes are encoded, in bytes.
const UNIT: u32 = 1024;

/// What one end of a connection says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    /// True if the end supports remote invalidation.
    pub remote_invalidation: bool,
    /// The size in bytes of the largest message that the end sends.
    pub send_bytes: u32,
    /// The size in bytes of the largest message that the end can receive.
    pub receive_bytes: u32,
}

impl Default for PrivateData {
    fn default() -> Self {
        Self {
            remote_invalidation: false,
            send_bytes: INLINE_BYTES_DEFAULT,
            receive_bytes: INLINE_BYTES_DEFAULT,
        }
    }
}

impl PrivateData {
    /// Encodes the private data. Sizes are rounded down to multiples of 1024 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; PRIVATE_DATA_BYTES] {
        let size = |bytes: u32| {
            let bytes = bytes.clamp(INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX);
            u8::try_from(bytes / UNIT - 1).unwrap_or(u8::MAX)
        };
        let flags = if self.remote_invalidation { REMOTE_INVALIDATION } else { 0 };
        let [a, b, c, d] = MAGIC;
        [a, b, c, d, FORMAT, flags, size(self.send_bytes), size(self.receive_bytes)]
    }

    /// Finds the private data in that of a connection. Other layers may have put their own data
    /// before or after it. Returns the defaults if there is none.
    #[must_use]
    pub fn find(bytes: &[u8]) -> Self {
        let bytes = &bytes[..bytes.len().min(PRIVATE_DATA_BYTES_MAX)];
        let size = |unit: u8| (u32::from(unit) + 1) * UNIT;
        let found = bytes.windows(PRIVATE_DATA_BYTES).find_map(|window| match *window {
            [a, b, c, d, FORMAT, flags, send, receive] if [a, b, c, d] == MAGIC => Some(Self {
                remote_invalidation: flags & REMOTE_INVALIDATION != 0,
                send_bytes: size(send),
                receive_bytes: size(receive),
            }),
            _ => None,
        });
        found.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_private_data_is_understood() {
        // The bytes that a Linux client sends over siw, after those of MPA.
        let bytes = [0x00, 0x80, 0x00, 0x00, 0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];
        let wanted =
            PrivateData { remote_invalidation: true, send_bytes: 4096, receive_bytes: 4096 };
        assert_eq!(PrivateData::find(&bytes), wanted);
        assert_eq!(wanted.encode(), bytes[4..]);
        // It is found at any offset, and with other data after it.
        for offset in 0..8 {
            let mut shifted = vec![0xf6; offset];
            shifted.extend_from_slice(&bytes[4..]);
            shifted.push(9);
            assert_eq!(PrivateData::find(&shifted), wanted, "offset {offset}");
        }
    }

    #[test]
    fn what_is_not_private_data_means_the_defaults() {
        let good = PrivateData::find(&[]).encode();
        assert_eq!(good, [0xf6, 0xab, 0x0e, 0x18, 1, 0, 0, 0]);
        let mut other_version = PrivateData { receive_bytes: 8192, ..Default::default() }.encode();
        other_version[4] = 2;
        let mut far = vec![0; PRIVATE_DATA_BYTES_MAX - 7];
        far.extend(PrivateData { receive_bytes: 8192, ..Default::default() }.encode());
        for bytes in [&other_version[..], &other_version[..7], &far] {
            assert_eq!(PrivateData::find(bytes), PrivateData::default());
        }
    }

    #[test]
    fn every_size_survives() {
        for unit in 1..=256 {
            let sizes = PrivateData {
                remote_invalidation: unit % 2 == 0,
                send_bytes: unit * 1024,
                receive_bytes: (257 - unit) * 1024,
            };
            assert_eq!(PrivateData::find(&sizes.encode()), sizes);
        }
        let odd = PrivateData { send_bytes: 5000, receive_bytes: u32::MAX, ..Default::default() };
        let found = PrivateData::find(&odd.encode());
        assert_eq!((found.send_bytes, found.receive_bytes), (4096, INLINE_BYTES_MAX));
    }
}

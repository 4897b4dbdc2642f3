//! The frame (FPDU) that MPA puts around one DDP segment: `length u16 | ULPDU | pad | CRC u32`.
//!
//! Invariant: only this module computes frame sizes. The pad makes the total length of the length
//! field, the ULPDU and the pad a multiple of four bytes (RFC 5044 4.1).

/// The number of bytes of the length field before every ULPDU.
pub const LENGTH_FIELD_BYTES: usize = 2;
/// The number of bytes of the CRC field, which is present even if CRC is not in use.
pub const CRC_BYTES: usize = 4;
/// The number of bytes before the payload of a tagged segment: length field and DDP header.
pub const TAGGED_HEADER_BYTES: usize = LENGTH_FIELD_BYTES + TAGGED_DDP_BYTES;
/// The number of bytes before the payload of an untagged segment.
pub const UNTAGGED_HEADER_BYTES: usize = LENGTH_FIELD_BYTES + UNTAGGED_DDP_BYTES;
/// The number of bytes of the longest header, which is the untagged one.
pub const HEADER_BYTES_MAX: usize = UNTAGGED_HEADER_BYTES;
/// The number of bytes of the longest trailer: three of pad and four of CRC.
pub const TRAILER_BYTES_MAX: usize = 3 + CRC_BYTES;
/// The number of bytes of the shortest possible frame: a tagged segment without payload.
pub const FPDU_BYTES_MIN: usize = TAGGED_HEADER_BYTES + CRC_BYTES;
/// The number of bytes of the tagged DDP and RDMAP header (RFC 5041 4.2).
pub const TAGGED_DDP_BYTES: usize = 14;
/// The number of bytes of the untagged DDP and RDMAP header (RFC 5041 4.3).
pub const UNTAGGED_DDP_BYTES: usize = 18;
/// The smallest MULPDU that MPA may present to DDP, in bytes (RFC 5044 5.1).
pub const MULPDU_MIN: u16 = 128;
/// The largest MULPDU that MPA may present to DDP, in bytes (RFC 5044 5.1).
pub const MULPDU_MAX: u16 = 64768;

/// The trailer of a frame without CRC. Send its first `trailer_length` bytes after the payload.
pub const TRAILER_WITHOUT_CRC: [u8; TRAILER_BYTES_MAX] = [0; TRAILER_BYTES_MAX];

// A reader may wait for a header of the maximum length, because the shortest frame is at least as
// long.
const _: () = assert!(FPDU_BYTES_MIN >= HEADER_BYTES_MAX);

/// Returns the number of bytes of pad and CRC after a ULPDU of `ulpdu_length` bytes: 4 to 7.
#[inline]
#[must_use]
pub const fn trailer_length(ulpdu_length: u16) -> usize {
    // (2 + length + pad) is a multiple of four.
    CRC_BYTES + ((ulpdu_length.wrapping_add(2).wrapping_neg()) & 3) as usize
}

/// Returns the number of bytes of the whole frame around a ULPDU of `ulpdu_length` bytes.
#[inline]
#[must_use]
pub const fn fpdu_length(ulpdu_length: u16) -> usize {
    LENGTH_FIELD_BYTES + ulpdu_length as usize + trailer_length(ulpdu_length)
}

/// Returns the maximum ULPDU in bytes whose frame fits in one TCP segment of `segment_size` bytes
/// (the EMSS), without markers. The result is clamped to [`MULPDU_MIN`]..=[`MULPDU_MAX`].
#[must_use]
pub const fn mulpdu_for_segment_size(segment_size: u32) -> u16 {
    // The formula of RFC 5044 5.1 without markers.
    let mulpdu = segment_size.saturating_sub(6 + segment_size % 4);
    if mulpdu < MULPDU_MIN as u32 {
        MULPDU_MIN
    } else if mulpdu > MULPDU_MAX as u32 {
        MULPDU_MAX
    } else {
        mulpdu as u16
    }
}

/// The size and form of a frame, read from its first three bytes without any check or change of
/// state. For drivers that predict where frames will end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FpduShape {
    /// The length field: the number of bytes of the ULPDU. The value may be too small for the
    /// header.
    pub ulpdu_length: u16,
    /// True if the T bit is set: the segment has the tagged form.
    pub tagged: bool,
}

impl FpduShape {
    /// Reads the shape from the start of a frame without checking the frame. Returns `None` if
    /// `bytes` has fewer than three bytes.
    #[inline]
    #[must_use]
    pub fn peek(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 3] = bytes.first_chunk()?;
        Some(Self {
            ulpdu_length: u16::from_be_bytes([bytes[0], bytes[1]]),
            tagged: bytes[2] & 0x80 != 0,
        })
    }

    /// Returns the number of bytes from the start of the frame to its payload: 16 or 20.
    #[inline]
    #[must_use]
    pub const fn header_length(self) -> usize {
        if self.tagged { TAGGED_HEADER_BYTES } else { UNTAGGED_HEADER_BYTES }
    }

    /// Returns true if the ULPDU is long enough for the header of its form.
    #[inline]
    #[must_use]
    pub const fn covers_header(self) -> bool {
        LENGTH_FIELD_BYTES + self.ulpdu_length as usize >= self.header_length()
    }

    /// Returns the number of payload bytes, or zero if the length field is too small for the
    /// header.
    #[inline]
    #[must_use]
    pub const fn payload_length(self) -> usize {
        (LENGTH_FIELD_BYTES + self.ulpdu_length as usize).saturating_sub(self.header_length())
    }

    /// Returns the number of bytes of pad and CRC: 4 to 7.
    #[inline]
    #[must_use]
    pub const fn trailer_length(self) -> usize {
        trailer_length(self.ulpdu_length)
    }

    /// Returns the number of bytes of the whole frame.
    #[inline]
    #[must_use]
    pub const fn total_length(self) -> usize {
        fpdu_length(self.ulpdu_length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pad_fills_to_four() {
        for length in 0..=u16::MAX {
            let total = fpdu_length(length);
            assert_eq!(total % 4, 0, "{length}");
            assert!((4..=7).contains(&trailer_length(length)));
        }
    }

    #[test]
    fn mulpdu_by_formula() {
        assert_eq!(mulpdu_for_segment_size(1460), 1454);
        assert_eq!(mulpdu_for_segment_size(1448), 1442);
        assert_eq!(mulpdu_for_segment_size(1461), 1454);
        assert_eq!(mulpdu_for_segment_size(65483), MULPDU_MAX);
        assert_eq!(mulpdu_for_segment_size(0), MULPDU_MIN);
        // The frame around a ULPDU of this size fits the TCP segment.
        for size in 200..60_000u32 {
            assert!(fpdu_length(mulpdu_for_segment_size(size)) <= size as usize, "{size}");
        }
    }

    #[test]
    fn shape_of_a_short_look() {
        assert_eq!(FpduShape::peek(&[0, 86]), None);
        let shape = FpduShape::peek(&[0, 86, 0x41]).unwrap();
        assert_eq!(shape.header_length(), 20);
        assert_eq!(shape.payload_length(), 68);
        assert_eq!(shape.total_length(), 92);
    }
}

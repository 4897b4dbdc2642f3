//! The header of a segment, which is the first block of its blob.
//!
//! Invariant: a header is contained in one sector, which a disk writes completely or not at all.
//! The header is on stable storage before any group is written after it. So every later recovery
//! knows each segment number that was ever used for a group, and no number is used twice.

use super::JournalId;
use crate::group::{BLOCK_BYTES, Lineage, get_u32, get_u64, put_u32, put_u64};

/// The contents of a segment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub journal: JournalId,
    /// The number of the segment. Numbers start at 1 and are never used twice.
    pub number: u64,
    /// The number of the segment before this one; 0 if there is none.
    pub previous: u64,
    /// The offset at which the groups of the previous segment end. Data after this offset was torn
    /// and is ignored.
    pub previous_end: u64,
    /// The number of the first record in this segment.
    pub first_record: u64,
    /// The length of the blob in bytes.
    pub segment_bytes: u64,
    /// The number of the first record that a checkpoint does not replace, if a checkpoint begins in
    /// this segment. The checkpoint replaces all records below this number. `None` if no checkpoint
    /// begins here.
    pub checkpoint_below: Option<u64>,
}

/// The reason why the first block of a blob is not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoHeader {
    /// There was never a header, or the header is incomplete or damaged.
    Absent,
    /// The block contains a header of another version.
    Version(u32),
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> Box<[u8; BLOCK_BYTES]> {
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        bytes[..8].copy_from_slice(MAGIC);
        put_u32(&mut bytes[..], 8, VERSION);
        put_u32(&mut bytes[..], 12, self.checkpoint_below.map_or(0, |_| CHECKPOINT));
        put_u64(&mut bytes[..], 16, self.journal.0);
        put_u64(&mut bytes[..], 24, self.number);
        put_u64(&mut bytes[..], 32, self.previous);
        put_u64(&mut bytes[..], 40, self.previous_end);
        put_u64(&mut bytes[..], 48, self.first_record);
        put_u64(&mut bytes[..], 56, self.segment_bytes);
        put_u64(&mut bytes[..], 64, self.checkpoint_below.unwrap_or(0));
        let sum = crc32c::crc32c(&bytes[..SUM_AT]);
        put_u32(&mut bytes[..], SUM_AT, sum);
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, NoHeader> {
        if &bytes[..8] != MAGIC || get_u32(bytes, SUM_AT) != crc32c::crc32c(&bytes[..SUM_AT]) {
            return Err(NoHeader::Absent);
        }
        let version = get_u32(bytes, 8);
        if version != VERSION {
            return Err(NoHeader::Version(version));
        }
        let is_checkpoint = get_u32(bytes, 12) & CHECKPOINT != 0;
        Ok(Self {
            journal: JournalId(get_u64(bytes, 16)),
            number: get_u64(bytes, 24),
            previous: get_u64(bytes, 32),
            previous_end: get_u64(bytes, 40),
            first_record: get_u64(bytes, 48),
            segment_bytes: get_u64(bytes, 56),
            checkpoint_below: is_checkpoint.then(|| get_u64(bytes, 64)),
        })
    }

    pub(super) fn lineage(&self) -> Lineage {
        Lineage { stream: self.journal.0, part: self.number }
    }
}

const MAGIC: &[u8; 8] = b"DAFSLOG1";
/// The version of the header's format. The magic number, the version and the checksum have the same
/// positions in every version.
const VERSION: u32 = 1;
/// The flag that says that a checkpoint begins in this segment.
const CHECKPOINT: u32 = 1;
const SUM_AT: usize = 124;
/// The number of bytes of a header. The rest of its block is zero.
pub(super) const HEADER_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader {
        journal: JournalId(1),
        number: 2,
        previous: 3,
        previous_end: 4,
        first_record: 5,
        segment_bytes: 6,
        checkpoint_below: Some(7),
    };

    fn head(block: &[u8; BLOCK_BYTES]) -> [u8; HEADER_BYTES] {
        std::array::from_fn(|i| block[i])
    }

    #[test]
    fn a_header_comes_back_and_no_byte_of_it_may_differ() {
        for header in [HEADER, SegmentHeader { checkpoint_below: None, ..HEADER }] {
            let bytes = head(&header.encode());
            assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
            for at in 0..HEADER_BYTES {
                let mut bytes = bytes;
                bytes[at] ^= 1;
                assert_eq!(SegmentHeader::decode(&bytes), Err(NoHeader::Absent), "byte {at}");
            }
        }
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let mut bytes = head(&HEADER.encode());
        put_u32(&mut bytes, 8, 9);
        let sum = crc32c::crc32c(&bytes[..SUM_AT]);
        put_u32(&mut bytes, SUM_AT, sum);
        assert_eq!(SegmentHeader::decode(&bytes), Err(NoHeader::Version(9)));
    }
}

//! The header of undo data, which is its first block and identifies it.
//!
//! Invariant: the complete header is on stable storage before anything is saved after it.

use super::{UndoError, UndoId};
use crate::group::{BLOCK_BYTES, Lineage, get_u32, get_u64, lineage_at, put_u32, put_u64};
use crate::storage::{Blob, BlobName, read_whole};

/// The contents of the header of undo data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub version: u32,
    pub id: UndoId,
    /// A number drawn at random, so that no content of a file can look like a group of this undo
    /// data.
    pub stream: u64,
    pub original_size: u64,
    /// The data that the owner of the undo data has stored.
    pub bytes: Vec<u8>,
}

impl Header {
    pub(super) fn encode(&self) -> Box<[u8; BLOCK_BYTES]> {
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        bytes[..8].copy_from_slice(MAGIC);
        put_u32(&mut bytes[..], 8, self.version);
        put_u32(&mut bytes[..], 12, self.bytes.len() as u32);
        put_u64(&mut bytes[..], 16, self.id.0);
        put_u64(&mut bytes[..], 24, self.stream);
        put_u64(&mut bytes[..], 32, self.original_size);
        bytes[BYTES_AT..BYTES_AT + self.bytes.len()].copy_from_slice(&self.bytes);
        let sum = crc32c::crc32c(&bytes[..SUM_AT]);
        put_u32(&mut bytes[..], SUM_AT, sum);
        bytes
    }

    pub(super) fn read(blob: &dyn Blob, id: UndoId, name: &BlobName) -> Result<Self, UndoError> {
        let mut bytes = [0; BLOCK_BYTES];
        let is_whole = read_whole(blob, 0, &mut bytes)?
            && &bytes[..8] == MAGIC
            && get_u32(&bytes, SUM_AT) == crc32c::crc32c(&bytes[..SUM_AT]);
        if !is_whole {
            // Data was saved after the header, so the header was once complete.
            return Err(match lineage_at(blob, BLOCK_BYTES as u64)? {
                Some(lineage) if lineage.part == id.0 => {
                    UndoError::Corrupt { name: name.clone(), offset: 0, what: "its header" }
                }
                Some(_) | None => UndoError::Unfinished { name: name.clone() },
            });
        }
        let version = get_u32(&bytes, 8);
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(UndoError::Version { name: name.clone(), version });
        }
        let length = get_u32(&bytes, 12) as usize;
        if get_u64(&bytes, 16) != id.0 || length > HEADER_BYTES_MAX {
            let what = "its header belongs to other undo data";
            return Err(UndoError::Corrupt { name: name.clone(), offset: 0, what });
        }
        Ok(Self {
            version,
            id,
            stream: get_u64(&bytes, 24),
            original_size: get_u64(&bytes, 32),
            bytes: bytes[BYTES_AT..BYTES_AT + length].to_vec(),
        })
    }

    /// Returns true if frames may refer to bytes that are shared with the file. Software that knows
    /// only the first version would misinterpret such frames.
    pub(super) fn may_clone(&self) -> bool {
        self.version >= VERSION
    }

    pub(super) fn lineage(&self) -> Lineage {
        Lineage { stream: self.stream, part: self.id.0 }
    }
}

/// The maximum number of bytes that the owner may store in the header.
pub const HEADER_BYTES_MAX: usize = SUM_AT - BYTES_AT;

const MAGIC: &[u8; 8] = b"DAFSUND1";
/// The version of the header's format. The magic number, the version and the checksum have the same
/// positions in every version.
pub(super) const VERSION: u32 = 2;
/// The first version of the format, which supported only copied pieces.
const VERSION_MIN: u32 = 1;
const BYTES_AT: usize = 40;
const SUM_AT: usize = BLOCK_BYTES - 4;

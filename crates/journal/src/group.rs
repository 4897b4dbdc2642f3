//! Groups of frames. One write and one sync bring a group to stable storage.
//!
//! Invariant: a group begins at a multiple of [`BLOCK_BYTES`] and shares no block with another. It
//! is valid only if its header and all its frames are complete and were written for exactly this
//! position. A group is written only when all groups before it are on stable storage. So a complete
//! group proves that all groups before it were on stable storage.

use crate::storage::{Blob, StorageError, read_whole};
use crate::test_hooks::{Mutation, is_on};

/// The size in bytes of a block. Groups begin at multiples of it, so that writing one block never
/// tears another block.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// The maximum length of a group in bytes. Recovery allocates memory for a group of this length.
pub(crate) const GROUP_BYTES_MAX: usize = 64 << 20;

/// Identifies the use of a blob for which a group was written. Checksums include it, so a frame
/// that is left from an earlier use of the blob is never mistaken for a frame of the present use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lineage {
    /// A random number that identifies the journal or the undo data of one lock.
    pub stream: u64,
    /// The number of the segment.
    pub part: u64,
}

/// One frame of a complete group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub kind: u16,
    pub flags: u16,
    pub number: u64,
    pub payload: &'a [u8],
}

/// The buffer of a group that is being filled or written. Its memory is reused for later groups.
#[derive(Debug, Default)]
pub(crate) struct GroupBuffer {
    /// The space for the header, then the frames, then (after [`GroupBuffer::seal`]) padding.
    bytes: Vec<u8>,
    frame_count: u32,
}

impl GroupBuffer {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.frame_count = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frame_count == 0
    }

    /// Returns the number of bytes that the group will take in its blob.
    pub(crate) fn padded_length(&self) -> u64 {
        Self::padded_length_of(self.frame_bytes())
    }

    /// Returns the number of bytes that a group with `frame_bytes` bytes of frames takes in its
    /// blob.
    pub(crate) fn padded_length_of(frame_bytes: usize) -> u64 {
        (HEADER_BYTES + frame_bytes).next_multiple_of(BLOCK_BYTES) as u64
    }

    /// Returns the number of bytes of the frames that were added so far.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.bytes.len().saturating_sub(HEADER_BYTES)
    }

    /// Adds a frame whose payload is the concatenation of `parts`.
    pub(crate) fn push(&mut self, kind: u16, flags: u16, number: u64, parts: &[&[u8]]) {
        self.open();
        push_frame(&mut self.bytes, kind, flags, number, parts);
        self.frame_count += 1;
    }

    /// Adds a frame that [`push_frame`] has already encoded.
    pub(crate) fn push_encoded(&mut self, frame: &[u8]) {
        self.open();
        self.bytes.extend_from_slice(frame);
        self.frame_count += 1;
    }

    fn open(&mut self) {
        if self.bytes.is_empty() {
            self.bytes.resize(HEADER_BYTES, 0);
        }
    }

    /// Adds the checksums and padding. Returns the complete group, to be written at `offset`.
    pub(crate) fn seal(&mut self, lineage: Lineage, offset: u64, first_number: u64) -> &[u8] {
        self.open();
        let length = self.bytes.len();
        let seed = lineage.seed();
        let mut at = HEADER_BYTES;
        while at < length {
            let end = at + frame_bytes_at(&self.bytes, at);
            let sum = frame_sum(seed, &self.bytes[at..end]);
            self.bytes[at + FRAME_SUM_AT..at + FRAME_HEADER_BYTES]
                .copy_from_slice(&sum.to_le_bytes());
            at = end;
        }
        let header = &mut self.bytes[..HEADER_BYTES];
        header.fill(0);
        header[..8].copy_from_slice(MAGIC);
        put_u64(header, 8, lineage.stream);
        put_u64(header, 16, lineage.part);
        put_u64(header, 24, offset);
        put_u64(header, 32, first_number);
        put_u32(header, 40, length as u32);
        put_u32(header, 44, self.frame_count);
        let sum = crc32c::crc32c(&header[..HEADER_SUM_AT]);
        put_u32(header, HEADER_SUM_AT, sum);
        self.bytes.resize(length.next_multiple_of(BLOCK_BYTES), 0);
        &self.bytes
    }
}

impl Lineage {
    fn seed(self) -> u32 {
        let stream = crc32c::crc32c(&self.stream.to_le_bytes());
        crc32c::crc32c_append(stream, &self.part.to_le_bytes())
    }
}

/// Encodes a frame without its checksum at the end of a buffer. Returns the number of bytes of the
/// frame.
pub(crate) fn push_frame(
    bytes: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    number: u64,
    parts: &[&[u8]],
) -> usize {
    let start = bytes.len();
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut header = [0; FRAME_HEADER_BYTES];
    put_u32(&mut header, 0, length as u32);
    header[4..6].copy_from_slice(&kind.to_le_bytes());
    header[6..8].copy_from_slice(&flags.to_le_bytes());
    put_u64(&mut header, 8, number);
    bytes.extend_from_slice(&header);
    for part in parts {
        bytes.extend_from_slice(part);
    }
    bytes.resize(start + frame_bytes_of(length), 0);
    bytes.len() - start
}

/// Returns the number of bytes of the frame that begins at `at`.
pub(crate) fn frame_bytes_at(bytes: &[u8], at: usize) -> usize {
    frame_bytes_of(get_u32(bytes, at) as usize)
}

/// Returns the number of bytes of a frame with `payload_length` bytes of payload.
pub(crate) const fn frame_bytes_of(payload_length: usize) -> usize {
    FRAME_HEADER_BYTES + payload_length.next_multiple_of(FRAME_ALIGNMENT)
}

/// Returns the checksum of a frame. It covers all bytes of the frame except the checksum itself and
/// the padding.
fn frame_sum(seed: u32, frame: &[u8]) -> u32 {
    let length = get_u32(frame, 0) as usize;
    let sum = crc32c::crc32c_append(seed, &frame[..FRAME_SUM_AT]);
    crc32c::crc32c_append(sum, &frame[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + length])
}

/// A complete group that was read from a blob.
#[derive(Debug, Default)]
pub(crate) struct GroupRead {
    bytes: Vec<u8>,
    length: usize,
}

/// The result of looking for a group at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// There is a complete group, which takes this many bytes.
    Group(u64),
    /// There is no complete group. The text gives the reason.
    Nothing(&'static str),
}

impl GroupRead {
    /// Reads the group at `offset`. The group must be complete, end no later than `limit`, have
    /// been written for this position, and begin with the number `first_number`.
    pub(crate) fn read(
        &mut self,
        blob: &dyn Blob,
        lineage: Lineage,
        offset: u64,
        limit: u64,
        first_number: u64,
    ) -> Result<Found, StorageError> {
        self.read_if(blob, offset, limit, |header| {
            header.is_for(lineage, offset) && header.begins_with(first_number)
        })
    }

    /// Reads a group like [`GroupRead::read`], but accepts any number of its first frame.
    pub(crate) fn read_as_it_stands(
        &mut self,
        blob: &dyn Blob,
        lineage: Lineage,
        offset: u64,
        limit: u64,
    ) -> Result<Found, StorageError> {
        self.read_if(blob, offset, limit, |header| header.is_for(lineage, offset))
    }

    fn read_if(
        &mut self,
        blob: &dyn Blob,
        offset: u64,
        limit: u64,
        is_it: impl Fn(&GroupHeader) -> bool,
    ) -> Result<Found, StorageError> {
        self.length = 0;
        if limit.saturating_sub(offset) < BLOCK_BYTES as u64 {
            return Ok(Found::Nothing("there is no room for a group"));
        }
        self.bytes.resize(self.bytes.len().max(BLOCK_BYTES), 0);
        if !read_whole(blob, offset, &mut self.bytes[..BLOCK_BYTES])? {
            return Ok(Found::Nothing("the file ends within a group"));
        }
        let header = match GroupHeader::decode(&self.bytes[..HEADER_BYTES]) {
            Ok(header) => header,
            Err(why) => return Ok(Found::Nothing(why)),
        };
        if !is_it(&header) {
            return Ok(Found::Nothing("the group was written for another position"));
        }
        let length = header.length as usize;
        let padded = length.next_multiple_of(BLOCK_BYTES);
        if length < HEADER_BYTES || padded as u64 > limit - offset {
            return Ok(Found::Nothing("the group is longer than its file"));
        }
        if padded > GROUP_BYTES_MAX {
            return Ok(Found::Nothing("the group exceeds the length limit"));
        }
        self.bytes.resize(self.bytes.len().max(padded), 0);
        let rest = &mut self.bytes[BLOCK_BYTES.min(padded)..padded];
        if !read_whole(blob, offset + BLOCK_BYTES as u64, rest)? {
            return Ok(Found::Nothing("the file ends within a group"));
        }
        if let Err(why) = check_frames(&self.bytes[..length], header.lineage, header.frame_count) {
            return Ok(Found::Nothing(why));
        }
        self.length = length;
        Ok(Found::Group(padded as u64))
    }

    /// Iterates over the frames of the group that was read most recently.
    pub(crate) fn frames(&self) -> Frames<'_> {
        Frames { bytes: &self.bytes[..self.length], at: HEADER_BYTES }
    }

    /// Returns the frame at the offset `at` of the group that was read most recently, and the
    /// offset of the next frame.
    pub(crate) fn frame_at(&self, at: usize) -> Option<(Frame<'_>, usize)> {
        let mut frames = Frames { bytes: &self.bytes[..self.length], at: at.max(HEADER_BYTES) };
        let frame = frames.next()?;
        Some((frame, frames.at))
    }

    /// Returns the bytes of the group that was read most recently, including padding.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length.next_multiple_of(BLOCK_BYTES)]
    }
}

/// Finds the header of a group of this lineage after an offset at which there is no complete group.
/// If there is such a header, the data at the offset was once on stable storage.
pub(crate) fn find_later_group(
    blob: &dyn Blob,
    lineage: Lineage,
    from: u64,
    limit: u64,
) -> Result<Option<u64>, StorageError> {
    let mut chunk = vec![0; SEARCH_BYTES];
    let mut at = from.next_multiple_of(BLOCK_BYTES as u64);
    while at < limit {
        let read = blob.read_at(at, &mut chunk)?;
        for (index, block) in chunk[..read].chunks(BLOCK_BYTES).enumerate() {
            let offset = at + (index * BLOCK_BYTES) as u64;
            let header = block.get(..HEADER_BYTES).map(GroupHeader::decode);
            if let Some(Ok(header)) = header
                && header.lineage == lineage
                && header.offset == offset
                && offset < limit
            {
                return Ok(Some(offset));
            }
        }
        if read < chunk.len() {
            return Ok(None);
        }
        at += SEARCH_BYTES as u64;
    }
    Ok(None)
}

/// Returns the lineage in the header of the group at `offset`, if the header is complete.
pub(crate) fn lineage_at(blob: &dyn Blob, offset: u64) -> Result<Option<Lineage>, StorageError> {
    let mut bytes = [0; HEADER_BYTES];
    if !read_whole(blob, offset, &mut bytes)? {
        return Ok(None);
    }
    let header = GroupHeader::decode(&bytes).ok().filter(|header| header.offset == offset);
    Ok(header.map(|header| header.lineage))
}

/// Iterates over the frames of a group whose checksums were found correct.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        let header = self.bytes.get(self.at..self.at + FRAME_HEADER_BYTES)?;
        let start = self.at + FRAME_HEADER_BYTES;
        let payload = &self.bytes[start..start + get_u32(header, 0) as usize];
        self.at += frame_bytes_at(self.bytes, self.at);
        Some(Frame {
            kind: get_u16(header, 4),
            flags: get_u16(header, 6),
            number: get_u64(header, 8),
            payload,
        })
    }
}

/// The decoded header of a group.
#[derive(Clone, Copy)]
struct GroupHeader {
    lineage: Lineage,
    offset: u64,
    first_number: u64,
    length: u32,
    frame_count: u32,
}

impl GroupHeader {
    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        if &bytes[..8] != MAGIC {
            return Err("no group begins here");
        }
        if get_u32(bytes, HEADER_SUM_AT) != crc32c::crc32c(&bytes[..HEADER_SUM_AT]) {
            return Err("the checksum of a group's header is wrong");
        }
        Ok(Self {
            lineage: Lineage { stream: get_u64(bytes, 8), part: get_u64(bytes, 16) },
            offset: get_u64(bytes, 24),
            first_number: get_u64(bytes, 32),
            length: get_u32(bytes, 40),
            frame_count: get_u32(bytes, 44),
        })
    }

    fn is_for(&self, lineage: Lineage, offset: u64) -> bool {
        is_on(Mutation::TrustStale) || (self.lineage == lineage && self.offset == offset)
    }

    fn begins_with(&self, first_number: u64) -> bool {
        is_on(Mutation::TrustStale) || self.first_number == first_number
    }
}

/// Checks that the frames of a group fill it and that their checksums are correct.
fn check_frames(bytes: &[u8], lineage: Lineage, frame_count: u32) -> Result<(), &'static str> {
    let seed = lineage.seed();
    let mut at = HEADER_BYTES;
    for _ in 0..frame_count {
        if bytes.len() - at < FRAME_HEADER_BYTES {
            return Err("a group has fewer frames than its header says");
        }
        let length = frame_bytes_at(bytes, at);
        if bytes.len() - at < length {
            return Err("a frame is longer than its group");
        }
        let sum = get_u32(bytes, at + FRAME_SUM_AT);
        if sum != frame_sum(seed, &bytes[at..at + length]) {
            return Err("the checksum of a frame is wrong");
        }
        at += length;
    }
    if at == bytes.len() { Ok(()) } else { Err("a group has bytes after its last frame") }
}

pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

const MAGIC: &[u8; 8] = b"DAFSGRP1";
/// The number of bytes before a group's first frame.
pub(crate) const HEADER_BYTES: usize = 64;
const HEADER_SUM_AT: usize = 60;
const FRAME_HEADER_BYTES: usize = 24;
const FRAME_SUM_AT: usize = 20;
/// The alignment in bytes of the start of each frame.
const FRAME_ALIGNMENT: usize = 8;
/// The number of bytes read at a time when searching for later groups.
const SEARCH_BYTES: usize = 256 * BLOCK_BYTES;
const _: () = assert!(HEADER_BYTES.is_multiple_of(FRAME_ALIGNMENT));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{BlobName, CrashStorage, Storage};

    const LINEAGE: Lineage = Lineage { stream: 7, part: 3 };
    const AT: u64 = 2 * BLOCK_BYTES as u64;

    fn sealed() -> Vec<u8> {
        let mut group = GroupBuffer::default();
        assert!(group.is_empty());
        group.push(1, 0, 40, &[b"hello, ", b"world"]);
        group.push(2, 1, 41, &[]);
        let long = [9; 5000];
        let mut encoded = Vec::new();
        let length = push_frame(&mut encoded, 3, 0, 42, &[&long]);
        assert_eq!((length, encoded.len()), (frame_bytes_of(5000), length));
        group.push_encoded(&encoded);
        assert_eq!(group.frame_bytes(), (24 + 16) + 24 + (24 + 5000));
        assert_eq!(group.padded_length(), 2 * BLOCK_BYTES as u64);
        group.seal(LINEAGE, AT, 40).to_vec()
    }

    fn blob_of(bytes: &[u8]) -> std::sync::Arc<dyn Blob> {
        let storage = CrashStorage::new();
        let blob = storage.create(&BlobName::new("a").unwrap()).unwrap();
        blob.write_at(AT, bytes).unwrap();
        blob
    }

    fn find(bytes: &[u8], lineage: Lineage, first_number: u64) -> Found {
        let blob = blob_of(bytes);
        let limit = blob.length().unwrap();
        GroupRead::default().read(&*blob, lineage, AT, limit, first_number).unwrap()
    }

    #[test]
    fn a_group_is_read_as_it_was_written() {
        let bytes = sealed();
        let blob = blob_of(&bytes);
        let mut group = GroupRead::default();
        let found = group.read(&*blob, LINEAGE, AT, AT + bytes.len() as u64, 40).unwrap();
        assert_eq!(found, Found::Group(bytes.len() as u64));
        let frames: Vec<_> = group.frames().collect();
        assert_eq!(frames.len(), 3);
        let first = Frame { kind: 1, flags: 0, number: 40, payload: b"hello, world" };
        assert_eq!(frames[0], first);
        assert_eq!(frames[1], Frame { kind: 2, flags: 1, number: 41, payload: b"" });
        assert_eq!(frames[2].payload, [9; 5000]);
        assert_eq!(group.bytes(), bytes);
        assert_eq!(group.frame_at(0).unwrap().0, first);
        assert_eq!(lineage_at(&*blob, AT).unwrap(), Some(LINEAGE));
        assert_eq!(lineage_at(&*blob, 0).unwrap(), None);
    }

    #[test]
    fn every_byte_but_the_padding_counts() {
        let bytes = sealed();
        assert!(matches!(find(&bytes, LINEAGE, 40), Found::Group(_)));
        let used = HEADER_BYTES + (24 + 16) + 24 + (24 + 5000);
        let padding = HEADER_BYTES + 24 + 12..HEADER_BYTES + 24 + 16;
        for at in (0..used).filter(|at| !padding.contains(at)) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            assert!(matches!(find(&bytes, LINEAGE, 40), Found::Nothing(_)), "byte {at}");
        }
        for length in (0..bytes.len()).step_by(512) {
            assert!(matches!(find(&bytes[..length], LINEAGE, 40), Found::Nothing(_)));
        }
    }

    #[test]
    fn a_group_counts_in_its_own_place_alone() {
        let bytes = sealed();
        for lineage in [Lineage { stream: 8, part: 3 }, Lineage { stream: 7, part: 4 }] {
            assert!(matches!(find(&bytes, lineage, 40), Found::Nothing(_)));
        }
        assert!(matches!(find(&bytes, LINEAGE, 39), Found::Nothing(_)));
        let blob = blob_of(&bytes);
        blob.write_at(AT + BLOCK_BYTES as u64, &bytes).unwrap();
        let (moved, limit) = (AT + BLOCK_BYTES as u64, blob.length().unwrap());
        let found = GroupRead::default().read(&*blob, LINEAGE, moved, limit, 40).unwrap();
        assert!(matches!(found, Found::Nothing(_)));
    }

    #[test]
    fn later_groups_are_found_far_behind_a_bad_one() {
        let far = AT + 3 * SEARCH_BYTES as u64;
        let blob = blob_of(&[1; BLOCK_BYTES]);
        let mut group = GroupBuffer::default();
        group.push(1, 0, 1, &[b"x"]);
        // This group was written for another offset, so it proves nothing.
        let bytes = group.seal(LINEAGE, far, 1);
        blob.write_at(far - 4096, bytes).unwrap();
        assert_eq!(find_later_group(&*blob, LINEAGE, AT, far + 4096).unwrap(), None);
        blob.write_at(far, bytes).unwrap();
        assert_eq!(find_later_group(&*blob, LINEAGE, AT, far + 4096).unwrap(), Some(far));
        assert_eq!(find_later_group(&*blob, LINEAGE, AT, far).unwrap(), None);
    }
}

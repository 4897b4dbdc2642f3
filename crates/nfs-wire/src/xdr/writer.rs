//! Encodes values into a buffer. External payloads are left out.
//!
//! Invariants: the message consists of `bytes`, with the payload of each gap inserted at the gap's
//! position. The gaps are sorted by position. After a fault, nothing is appended.

use super::{XdrError, padding};

/// The maximum number of external payloads in one message. The reply to a compound may have
/// several.
pub const PAYLOADS_MAX: usize = 16;

/// The maximum length of a message in bytes, without payloads, unless the caller sets another
/// limit.
const LIMIT_DEFAULT: usize = 16 << 20;

/// Collects an encoded message. The buffer is reused: see [`Writer::clear`].
#[derive(Clone, Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    gaps: [Gap; PAYLOADS_MAX],
    gap_count: usize,
    /// The sum of the lengths of all external payloads.
    outside: usize,
    limit: usize,
    fault: Option<XdrError>,
}

/// The position and the length of an external payload.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    at: usize,
    length: usize,
}

/// A piece of a finished message. The pieces must be sent in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'w> {
    /// Encoded bytes of the message.
    Bytes(&'w [u8]),
    /// The length of the next external payload, which the caller inserts here.
    Payload(usize),
}

/// A state of the writer to which [`Writer::rewind`] can return.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    bytes: usize,
    gap_count: usize,
    outside: usize,
    fault: Option<XdrError>,
}

/// The position of a number that [`Writer::patch`] fills in later.
#[derive(Clone, Copy, Debug)]
pub struct Slot(usize);

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// Creates a writer without an allocated buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self::from_buffer(Vec::new())
    }

    /// Creates a writer that appends to `buffer`, whose bytes are the start of the message.
    #[must_use]
    pub const fn from_buffer(buffer: Vec<u8>) -> Self {
        Self {
            bytes: buffer,
            gaps: [Gap { at: 0, length: 0 }; PAYLOADS_MAX],
            gap_count: 0,
            outside: 0,
            limit: LIMIT_DEFAULT,
            fault: None,
        }
    }

    /// Empties the writer for another message. The memory and the limit are kept.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.gap_count = 0;
        self.outside = 0;
        self.fault = None;
    }

    /// Sets the maximum length of the message, including external payloads. A value that does not
    /// fit is not appended, and sets the fault [`XdrError::Limit`].
    pub const fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Returns the number of bytes that can still be appended.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.limit.saturating_sub(self.length())
    }

    /// Returns the length of the message so far, including external payloads.
    #[must_use]
    #[inline]
    pub const fn length(&self) -> usize {
        self.bytes.len() + self.outside
    }

    /// Returns the first fault; `None` if there was none. A message with a fault must not be sent.
    #[must_use]
    #[inline]
    pub const fn fault(&self) -> Option<XdrError> {
        self.fault
    }

    /// Sets the fault, unless there is already a fault.
    #[cold]
    pub fn fail(&mut self, error: XdrError) {
        self.fault.get_or_insert(error);
    }

    /// Appends a 32-bit number.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.append(&value.to_be_bytes());
    }

    /// Appends a 64-bit number.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.append(&value.to_be_bytes());
    }

    /// Appends a count of items. Sets a fault if it is larger than `bound`.
    #[inline]
    pub fn count(&mut self, count: usize, bound: usize) {
        match u32::try_from(count) {
            Ok(number) if count <= bound => self.u32(number),
            _ => self.fail(XdrError::TooMany { count, bound }),
        }
    }

    /// Appends bytes that are already encoded.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.append(bytes);
    }

    /// Appends bytes and their padding, but not their length.
    #[inline]
    pub fn padded(&mut self, bytes: &[u8]) {
        self.append(bytes);
        self.append(&[0; 3][..padding(bytes.len())]);
    }

    /// Appends the length of an external payload and its padding. [`Writer::pieces`] returns the
    /// position at which the caller must insert the payload.
    pub fn payload(&mut self, length: usize) {
        if self.gap_count == PAYLOADS_MAX {
            return self.fail(XdrError::TooMany { count: PAYLOADS_MAX + 1, bound: PAYLOADS_MAX });
        }
        self.count(length, super::PAYLOAD_BYTES_MAX);
        if length > self.room() {
            return self.fail(XdrError::Limit(self.limit));
        }
        if self.fault.is_none() && length > 0 {
            self.gaps[self.gap_count] = Gap { at: self.bytes.len(), length };
            self.gap_count += 1;
            self.outside += length;
        }
        self.append(&[0; 3][..padding(length)]);
    }

    /// Appends a placeholder for a 32-bit number that [`Writer::patch`] fills in later.
    pub fn reserve(&mut self) -> Slot {
        let slot = Slot(self.bytes.len());
        self.u32(0);
        slot
    }

    /// Fills in a number at the position that [`Writer::reserve`] returned.
    pub fn patch(&mut self, slot: Slot, value: u32) {
        if let Some(place) = self.bytes.get_mut(slot.0..slot.0 + 4) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Returns the number of bytes after the number at a position, including external payloads.
    #[must_use]
    pub fn length_after(&self, slot: Slot) -> usize {
        let gaps = self.gaps[..self.gap_count].iter();
        let outside: usize = gaps.filter(|gap| gap.at > slot.0).map(|gap| gap.length).sum();
        self.bytes.len().saturating_sub(slot.0 + 4) + outside
    }

    /// Appends a true and an item of a linked list, unless the message would then be longer than
    /// `length_max` bytes. Returns true if the item was appended.
    pub fn chain_item<'b, T: super::Xdr<'b>>(&mut self, item: &T, length_max: usize) -> bool {
        let mark = self.mark();
        self.u32(1);
        item.encode(self);
        let fits = self.fault.is_none() && self.length() <= length_max;
        if !fits {
            self.rewind(mark);
        }
        fits
    }

    /// Appends the false at the end of a linked list.
    pub fn chain_end(&mut self) {
        self.u32(0);
    }

    /// Returns the current state, to which the caller can return if the next value does not fit.
    #[must_use]
    pub const fn mark(&self) -> Mark {
        Mark {
            bytes: self.bytes.len(),
            gap_count: self.gap_count,
            outside: self.outside,
            fault: self.fault,
        }
    }

    /// Removes everything that was appended after the mark, and faults that occurred after it.
    pub fn rewind(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.gap_count = mark.gap_count;
        self.outside = mark.outside;
        self.fault = mark.fault;
    }

    /// Returns the pieces of the message, in the order in which they must be sent.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let gaps = &self.gaps[..self.gap_count];
        let starts = std::iter::once(0).chain(gaps.iter().map(|gap| gap.at));
        let ends = gaps.iter().map(|gap| gap.at).chain(std::iter::once(self.bytes.len()));
        let payloads = gaps.iter().map(|gap| Some(gap.length)).chain(std::iter::once(None));
        starts.zip(ends).zip(payloads).flat_map(|((start, end), payload)| {
            let bytes = Some(&self.bytes[start..end]).filter(|bytes| !bytes.is_empty());
            bytes.map(Piece::Bytes).into_iter().chain(payload.map(Piece::Payload))
        })
    }

    /// Returns the number of external payloads.
    #[must_use]
    pub const fn payload_count(&self) -> usize {
        self.gap_count
    }

    /// Returns the encoded bytes, without external payloads.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the message if it has neither a fault nor an external payload.
    ///
    /// # Errors
    /// The writer's fault, or [`XdrError::Elsewhere`].
    pub fn contiguous(&self) -> Result<&[u8], XdrError> {
        match (self.fault, self.gap_count) {
            (Some(fault), _) => Err(fault),
            (None, 0) => Ok(&self.bytes),
            (None, _) => Err(XdrError::Elsewhere),
        }
    }

    /// Returns the buffer, so that its memory can be used for something else.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    #[inline]
    fn append(&mut self, bytes: &[u8]) {
        if self.fault.is_some() {
            return;
        }
        if bytes.len() > self.room() {
            return self.fail(XdrError::Limit(self.limit));
        }
        self.bytes.extend_from_slice(bytes);
    }
}

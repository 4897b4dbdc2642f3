//! Writes values into a buffer, and leaves out the data that is elsewhere.
//!
//! Invariant: the message is `bytes` with each gap's payload inserted at the gap's position. The
//! gaps are in ascending order. After a fault, nothing is appended any more.

use super::{XdrError, padding};

/// The maximum number of external payloads in one message. A compound may read several times.
pub const PAYLOADS_MAX: usize = 16;

/// The limit for a message if the caller sets none, in bytes without payloads.
const LIMIT_DEFAULT: usize = 16 << 20;

/// Collects an encoded message. The buffer is reused: see [`Writer::clear`].
#[derive(Clone, Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    gaps: [Gap; PAYLOADS_MAX],
    gap_count: usize,
    /// The sum of the lengths of all payloads.
    outside: usize,
    limit: usize,
    fault: Option<XdrError>,
}

/// The position of a payload among the bytes, and its length.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    at: usize,
    length: usize,
}

/// A part of a finished message, in the order of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'w> {
    /// Encoded bytes.
    Bytes(&'w [u8]),
    /// The number of bytes of the next payload, which the caller sends from where they are.
    Payload(usize),
}

/// A state of the writer to return to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    bytes: usize,
    gap_count: usize,
    outside: usize,
    fault: Option<XdrError>,
}

/// The position of a number that is written later, with [`Writer::patch`].
#[derive(Clone, Copy, Debug)]
pub struct Slot(usize);

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// Returns an empty writer with an empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self::from_buffer(Vec::new())
    }

    /// Returns a writer that appends to `buffer`, which is part of the message.
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

    /// Empties the writer for another message, keeping the memory and the limit.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.gap_count = 0;
        self.outside = 0;
        self.fault = None;
    }

    /// Sets the maximum length of the message, with its payloads. A value that does not fit is not
    /// appended, and is the writer's fault [`XdrError::Limit`].
    pub const fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Returns the number of bytes that can still be appended.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.limit.saturating_sub(self.length())
    }

    /// Returns the length of the message so far, with its payloads.
    #[must_use]
    #[inline]
    pub const fn length(&self) -> usize {
        self.bytes.len() + self.outside
    }

    /// Returns the first fault; a message with a fault must not be sent.
    #[must_use]
    #[inline]
    pub const fn fault(&self) -> Option<XdrError> {
        self.fault
    }

    /// Notes a fault, unless there is one already.
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

    /// Appends a count of items, of which there may be at most `bound`.
    #[inline]
    pub fn count(&mut self, count: usize, bound: usize) {
        match u32::try_from(count) {
            Ok(number) if count <= bound => self.u32(number),
            _ => self.fail(XdrError::TooMany { count, bound }),
        }
    }

    /// Appends bytes that are encoded already, without length or padding.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.append(bytes);
    }

    /// Appends bytes and their padding, without their length.
    #[inline]
    pub fn padded(&mut self, bytes: &[u8]) {
        self.append(bytes);
        self.append(&[0; 3][..padding(bytes.len())]);
    }

    /// Appends the length of a payload and its padding, and leaves a gap for its bytes.
    /// [`Writer::pieces`] tells the caller where to send them.
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

    /// Appends a number that is known later.
    pub fn reserve(&mut self) -> Slot {
        let slot = Slot(self.bytes.len());
        self.u32(0);
        slot
    }

    /// Writes the number of a slot that [`Writer::reserve`] returned.
    pub fn patch(&mut self, slot: Slot, value: u32) {
        if let Some(place) = self.bytes.get_mut(slot.0..slot.0 + 4) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Returns the number of bytes, with payloads, that were appended after the number of a slot.
    #[must_use]
    pub fn length_after(&self, slot: Slot) -> usize {
        let gaps = self.gaps[..self.gap_count].iter();
        let outside: usize = gaps.filter(|gap| gap.at > slot.0).map(|gap| gap.length).sum();
        self.bytes.len().saturating_sub(slot.0 + 4) + outside
    }

    /// Appends a true and the item of a linked list, unless the message would then be longer than
    /// `length_max` bytes. Returns whether the item was appended.
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

    /// Appends the false that ends a linked list.
    pub fn chain_end(&mut self) {
        self.u32(0);
    }

    /// Returns the current state, to return to it if what follows does not fit.
    #[must_use]
    pub const fn mark(&self) -> Mark {
        Mark {
            bytes: self.bytes.len(),
            gap_count: self.gap_count,
            outside: self.outside,
            fault: self.fault,
        }
    }

    /// Removes everything that was appended after the mark, and the faults of it.
    pub fn rewind(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.gap_count = mark.gap_count;
        self.outside = mark.outside;
        self.fault = mark.fault;
    }

    /// Returns the parts of the message in the order of sending.
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

    /// Returns the number of payloads that the caller sends.
    #[must_use]
    pub const fn payload_count(&self) -> usize {
        self.gap_count
    }

    /// Returns the encoded bytes, without the payloads.
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

    /// Returns the buffer, to use its memory elsewhere.
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

//! Reads values from a message, which may not have arrived completely.
//!
//! Invariant: the rest of the message consists of `bytes`, then `missing` bytes that are not in
//! memory, then `tail`. Only a payload may lie in the missing bytes.

use super::values::PAYLOAD_BYTES_MAX;
use super::{Payload, XdrError, padding};

/// Reads values one after the other from a message.
#[derive(Clone, Debug)]
pub struct Reader<'b> {
    bytes: &'b [u8],
    missing: usize,
    tail: &'b [u8],
    /// The length of the whole message. The current position is computed from it.
    total: usize,
    place: Option<Place>,
}

/// The location of a payload in a message, in bytes from the start of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The offset of the payload's first byte.
    pub start: usize,
    /// The length of the payload without its padding.
    pub length: usize,
}

impl Place {
    /// Returns the offset of the first byte after the payload, which is the first byte of padding.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.start + self.length
    }
}

impl<'b> Reader<'b> {
    /// Creates a reader for a message that is completely in memory.
    #[must_use]
    #[inline]
    pub const fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, missing: 0, tail: &[], total: bytes.len(), place: None }
    }

    /// Creates a reader for the first bytes of a message of `total` bytes. If a payload has not
    /// arrived completely, it is decoded as [`Payload::Elsewhere`], and [`Reader::place`] returns
    /// its location, so that the caller can receive it directly into its destination. Any other
    /// value that has not arrived is refused with [`XdrError::Absent`].
    #[must_use]
    pub const fn partial(first: &'b [u8], total: usize) -> Self {
        let missing = total.saturating_sub(first.len());
        Self { bytes: first, missing, tail: &[], total: first.len() + missing, place: None }
    }

    /// Creates a reader for a message whose payload was received elsewhere. `head` ends at the
    /// start of the payload or inside it, `missing` is the number of payload bytes that are
    /// elsewhere, and `tail` starts with the end of the payload or with its padding.
    #[must_use]
    pub const fn around(head: &'b [u8], missing: usize, tail: &'b [u8]) -> Self {
        let total = head.len() + missing + tail.len();
        Self { bytes: head, missing, tail, total, place: None }
    }

    /// Returns the number of bytes of the message that were not read yet, including those that have
    /// not arrived.
    #[must_use]
    #[inline]
    pub const fn left(&self) -> usize {
        self.bytes.len() + self.missing + self.tail.len()
    }

    /// Returns the number of bytes of the message that were read.
    #[must_use]
    #[inline]
    pub const fn position(&self) -> usize {
        self.total - self.left()
    }

    /// Returns the location of the last payload that was decoded as [`Payload::Elsewhere`].
    #[must_use]
    pub const fn place(&self) -> Option<Place> {
        self.place
    }

    /// Returns the bytes that were not read yet, up to the first byte that is not in memory.
    #[must_use]
    #[inline]
    pub const fn rest(&self) -> &'b [u8] {
        self.bytes
    }

    /// Checks that the whole message was read.
    ///
    /// # Errors
    /// If there are bytes that were not read.
    pub const fn finish(&self) -> Result<(), XdrError> {
        match self.left() {
            0 => Ok(()),
            left => Err(XdrError::Trailing(left)),
        }
    }

    /// Reads `length` bytes that have no padding.
    ///
    /// # Errors
    /// If the message is shorter, or if the bytes have not arrived.
    #[inline]
    pub const fn raw(&mut self, length: usize) -> Result<&'b [u8], XdrError> {
        match self.bytes.split_at_checked(length) {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(taken)
            }
            None if length <= self.left() => Err(XdrError::Absent),
            None => Err(XdrError::Short { needed: length, left: self.left() }),
        }
    }

    /// Reads `length` bytes and their padding. Returns the bytes without the padding.
    ///
    /// # Errors
    /// If the message is shorter, or if the bytes have not arrived.
    #[inline]
    pub fn padded(&mut self, length: usize) -> Result<&'b [u8], XdrError> {
        let whole = length
            .checked_add(padding(length))
            .ok_or(XdrError::Short { needed: length, left: self.left() })?;
        self.raw(whole).map(|bytes| &bytes[..length])
    }

    /// Reads a 32-bit number.
    ///
    /// # Errors
    /// If the message is shorter, or if the bytes have not arrived.
    #[inline]
    pub const fn u32(&mut self) -> Result<u32, XdrError> {
        if let Some((taken, rest)) = self.bytes.split_first_chunk::<4>() {
            self.bytes = rest;
            return Ok(u32::from_be_bytes(*taken));
        }
        Err(self.lacks(4))
    }

    /// Reads a 64-bit number.
    ///
    /// # Errors
    /// If the message is shorter, or if the bytes have not arrived.
    #[inline]
    pub const fn u64(&mut self) -> Result<u64, XdrError> {
        if let Some((taken, rest)) = self.bytes.split_first_chunk::<8>() {
            self.bytes = rest;
            return Ok(u64::from_be_bytes(*taken));
        }
        Err(self.lacks(8))
    }

    /// Reads a count of items of at least `least` bytes each. There may be at most `bound` items.
    /// If this succeeds, the caller may allocate memory for all items.
    ///
    /// # Errors
    /// If the count is larger than `bound`, or if the message is too short for so many items.
    #[inline]
    pub fn count(&mut self, bound: usize, least: usize) -> Result<usize, XdrError> {
        let count = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if count > bound {
            return Err(XdrError::TooMany { count, bound });
        }
        let needed = count.saturating_mul(least);
        if needed > self.left() {
            return Err(XdrError::Short { needed, left: self.left() });
        }
        Ok(count)
    }

    /// Reads the length of a payload, the payload and its padding. If the payload is not completely
    /// in memory, [`Reader::place`] returns its location afterwards.
    ///
    /// # Errors
    /// If the payload is too long, or longer than the rest of the message.
    pub fn payload(&mut self) -> Result<Payload<'b>, XdrError> {
        let length = self.count(PAYLOAD_BYTES_MAX, 1)?;
        let whole = length + padding(length);
        if whole > self.left() {
            return Err(XdrError::Short { needed: whole, left: self.left() });
        }
        if whole <= self.bytes.len() {
            return self.padded(length).map(Payload::Here);
        }
        let start = self.position();
        let mut skipped = whole - self.bytes.len();
        let absent = self.missing.min(skipped);
        skipped -= absent;
        self.missing -= absent;
        if self.missing == 0 {
            self.bytes = &self.tail[skipped..];
            self.tail = &[];
        } else {
            self.bytes = &[];
        }
        self.place = Some(Place { start, length });
        Ok(Payload::Elsewhere(length))
    }

    /// Returns the error for a value of `needed` bytes that is not completely in memory.
    #[cold]
    const fn lacks(&self, needed: usize) -> XdrError {
        let left = self.left();
        if needed <= left { XdrError::Absent } else { XdrError::Short { needed, left } }
    }
}

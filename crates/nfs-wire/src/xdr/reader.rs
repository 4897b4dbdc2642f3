//! Reads values from a message, which may still be arriving.
//!
//! Invariant: `bytes`, then `missing` bytes that are not in memory, then `tail` are the rest of the
//! message. Only a payload may lie in the missing bytes.

use super::values::PAYLOAD_BYTES_MAX;
use super::{Payload, XdrError, padding};

/// Reads values one after the other from a message.
#[derive(Clone, Debug)]
pub struct Reader<'b> {
    bytes: &'b [u8],
    missing: usize,
    tail: &'b [u8],
    /// The length of the whole message, to tell the position.
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
    /// Reads a message that is in memory as a whole.
    #[must_use]
    #[inline]
    pub const fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, missing: 0, tail: &[], total: bytes.len(), place: None }
    }

    /// Reads the first bytes of a message of `total` bytes. A payload that has not arrived as a
    /// whole is decoded as [`Payload::Elsewhere`], and [`Reader::place`] returns its location, so
    /// that the caller can receive it where it is needed. Any other value in the part that has not
    /// arrived is refused with [`XdrError::Absent`].
    #[must_use]
    pub const fn partial(first: &'b [u8], total: usize) -> Self {
        let missing = total.saturating_sub(first.len());
        Self { bytes: first, missing, tail: &[], total: first.len() + missing, place: None }
    }

    /// Reads a message whose payload was received elsewhere. `head` ends where the payload starts
    /// or inside it, `missing` bytes of the payload are elsewhere, and `tail` starts with the
    /// payload's padding, or with the end of the payload.
    #[must_use]
    pub const fn around(head: &'b [u8], missing: usize, tail: &'b [u8]) -> Self {
        let total = head.len() + missing + tail.len();
        Self { bytes: head, missing, tail, total, place: None }
    }

    /// Returns the number of bytes of the message that were not read yet, arrived or not.
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

    /// Returns the location of the last payload that was found to be elsewhere.
    #[must_use]
    pub const fn place(&self) -> Option<Place> {
        self.place
    }

    /// Returns the bytes that were not read yet and are in memory here.
    #[must_use]
    #[inline]
    pub const fn rest(&self) -> &'b [u8] {
        self.bytes
    }

    /// Checks that the whole message was read.
    ///
    /// # Errors
    /// If there are bytes left.
    pub const fn finish(&self) -> Result<(), XdrError> {
        match self.left() {
            0 => Ok(()),
            left => Err(XdrError::Trailing(left)),
        }
    }

    /// Takes `length` bytes without padding.
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

    /// Takes `length` bytes and their padding, and returns the bytes.
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

    /// Takes a 32-bit number.
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

    /// Takes a 64-bit number.
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

    /// Takes a count of items of at least `least` bytes each, of which there may be at most
    /// `bound`. When this succeeds, memory for so many items may be allocated.
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

    /// Takes a payload with its length and padding. A payload that is not in memory as a whole is
    /// noted as the reader's [`place`](Self::place).
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

    /// Returns the error for a value of `needed` bytes that is not in memory here.
    #[cold]
    const fn lacks(&self, needed: usize) -> XdrError {
        let left = self.left();
        if needed <= left { XdrError::Absent } else { XdrError::Short { needed, left } }
    }
}

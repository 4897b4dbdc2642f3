//! Decodes and encodes one scope: the bytes from the start of a fixed section, a counted array, or
//! another structure with variable fields, to the end of the message (draft 6.1.1.3.2).
//!
//! Invariant: offsets are relative to the scope, every access is checked, and no input causes a
//! panic. Where a checked length guarantees that an access is inside the scope, the access compiles
//! to a single load instruction.

use std::marker::PhantomData;

use crate::error::{DecodeError, EncodeError};
use crate::limits::ALIGNMENT;
use crate::order::Order;

/// The bytes of a scope to decode.
pub(crate) struct Scope<'a, O> {
    bytes: &'a [u8],
    order: PhantomData<O>,
}

impl<O> Clone for Scope<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for Scope<'_, O> {}

impl<'a, O: Order> Scope<'a, O> {
    #[inline(always)]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, order: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Checks that the scope has at least `length` bytes.
    #[inline(always)]
    pub(crate) fn require(self, length: usize, what: &'static str) -> Result<(), DecodeError> {
        if self.bytes.len() < length {
            return Err(DecodeError::Truncated { what });
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn array<const N: usize>(self, at: usize) -> Result<[u8; N], DecodeError> {
        match self.bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()) {
            Some(chunk) => Ok(*chunk),
            None => Err(DecodeError::Truncated { what: "a field" }),
        }
    }

    #[inline(always)]
    pub(crate) fn u16(self, at: usize) -> Result<u16, DecodeError> {
        Ok(O::u16(self.array(at)?))
    }

    #[inline(always)]
    pub(crate) fn u32(self, at: usize) -> Result<u32, DecodeError> {
        Ok(O::u32(self.array(at)?))
    }

    #[inline(always)]
    pub(crate) fn u64(self, at: usize) -> Result<u64, DecodeError> {
        Ok(O::u64(self.array(at)?))
    }

    /// Checks that bytes that are padding are zero (`docs/spec/gaps.md`, padding).
    #[inline(always)]
    pub(crate) fn zeros(self, from: usize, to: usize) -> Result<(), DecodeError> {
        match self.bytes.get(from..to) {
            Some(padding) if padding.iter().fold(0, |all, byte| all | byte) == 0 => Ok(()),
            Some(_) => Err(DecodeError::Padding),
            None => Err(DecodeError::Truncated { what: "padding" }),
        }
    }

    /// Returns the scope of the variable field whose offset is stored at `at`. An offset of 0 is
    /// invalid, because it would lead to this scope itself.
    #[inline(always)]
    pub(crate) fn variable(self, at: usize, what: &'static str) -> Result<Self, DecodeError> {
        let offset = self.u32(at)? as usize;
        if offset == 0 || !offset.is_multiple_of(ALIGNMENT) {
            return Err(DecodeError::Offset { what });
        }
        match self.bytes.get(offset..) {
            Some(rest) => Ok(Self::new(rest)),
            None => Err(DecodeError::Offset { what }),
        }
    }

    /// Returns the bytes of the counted array whose offset is stored at `at`.
    #[inline]
    pub(crate) fn bytes_at(
        self,
        at: usize,
        length_max: usize,
        what: &'static str,
    ) -> Result<&'a [u8], DecodeError> {
        self.variable(at, what)?.counted(length_max, what)
    }

    /// Returns the bytes of a counted array at the start of this scope.
    #[inline]
    pub(crate) fn counted(
        self,
        length_max: usize,
        what: &'static str,
    ) -> Result<&'a [u8], DecodeError> {
        let length = self.u32(0)? as usize;
        if length > length_max {
            return Err(DecodeError::TooMany { what });
        }
        self.bytes.get(4..4 + length).ok_or(DecodeError::Truncated { what })
    }
}

/// The bytes of a scope to encode: the fixed part first, then a growing heap.
pub(crate) struct Writer<'b, O> {
    bytes: &'b mut [u8],
    cursor: usize,
    order: PhantomData<O>,
}

impl<'b, O: Order> Writer<'b, O> {
    /// Starts a scope with a fixed part of `fixed` zero bytes, which the caller fills in.
    #[inline(always)]
    pub(crate) fn new(bytes: &'b mut [u8], fixed: usize) -> Result<Self, EncodeError> {
        match bytes.get_mut(..fixed) {
            Some(section) => section.fill(0),
            None => return Err(EncodeError::Space),
        }
        Ok(Self { bytes, cursor: fixed, order: PhantomData })
    }

    /// Returns the number of bytes written so far, including the heap.
    #[inline(always)]
    pub(crate) fn length(&self) -> usize {
        self.cursor
    }

    #[inline(always)]
    pub(crate) fn put<const N: usize>(
        &mut self,
        at: usize,
        value: [u8; N],
    ) -> Result<(), EncodeError> {
        match self.bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) {
            Some(chunk) => {
                *chunk = value;
                Ok(())
            }
            None => Err(EncodeError::Space),
        }
    }

    #[inline(always)]
    pub(crate) fn put_u16(&mut self, at: usize, value: u16) -> Result<(), EncodeError> {
        self.put(at, O::u16_bytes(value))
    }

    #[inline(always)]
    pub(crate) fn put_u32(&mut self, at: usize, value: u32) -> Result<(), EncodeError> {
        self.put(at, O::u32_bytes(value))
    }

    #[inline(always)]
    pub(crate) fn put_u64(&mut self, at: usize, value: u64) -> Result<(), EncodeError> {
        self.put(at, O::u64_bytes(value))
    }

    /// Copies bytes to offset `at`, which the caller has allocated.
    #[inline]
    pub(crate) fn put_slice(&mut self, at: usize, value: &[u8]) -> Result<(), EncodeError> {
        match self.bytes.get_mut(at..).and_then(|rest| rest.get_mut(..value.len())) {
            Some(target) => {
                target.copy_from_slice(value);
                Ok(())
            }
            None => Err(EncodeError::Space),
        }
    }

    /// Allocates bytes at the next multiple of eight, with a zeroed gap before them. Returns their
    /// offset in this scope.
    #[inline(always)]
    pub(crate) fn allocate(&mut self, length: usize) -> Result<usize, EncodeError> {
        let at = self.cursor.next_multiple_of(ALIGNMENT);
        let end = at.checked_add(length).ok_or(EncodeError::Space)?;
        match self.bytes.get_mut(self.cursor..end) {
            Some(gap) => gap[..at - self.cursor].fill(0),
            None => return Err(EncodeError::Space),
        }
        self.cursor = end;
        Ok(at)
    }

    /// Zeroes bytes that the caller has allocated.
    pub(crate) fn clear(&mut self, at: usize, length: usize) -> Result<(), EncodeError> {
        match self.bytes.get_mut(at..).and_then(|rest| rest.get_mut(..length)) {
            Some(target) => {
                target.fill(0);
                Ok(())
            }
            None => Err(EncodeError::Space),
        }
    }

    /// Encodes a variable field: allocates its scope, with `fixed` zero bytes at the start, writes
    /// the scope's offset at `at`, and calls `fill` to encode the scope.
    #[inline(always)]
    pub(crate) fn variable(
        &mut self,
        at: usize,
        fixed: usize,
        fill: impl FnOnce(&mut Writer<'_, O>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let start = self.allocate(fixed)?;
        self.put_u32(at, offset_u32(start)?)?;
        let mut inner = Writer::new(&mut self.bytes[start..], fixed)?;
        fill(&mut inner)?;
        self.cursor = start + inner.cursor;
        Ok(())
    }

    /// Encodes a counted array of bytes, and writes the array's offset at `at`.
    #[inline]
    pub(crate) fn bytes_at(
        &mut self,
        at: usize,
        value: &[u8],
        length_max: usize,
        what: &'static str,
    ) -> Result<(), EncodeError> {
        let start = self.counted(value, length_max, what)?;
        self.put_u32(at, offset_u32(start)?)
    }

    /// Encodes a counted array of bytes without writing its offset anywhere, for a path component.
    /// Returns the offset.
    #[inline]
    pub(crate) fn counted(
        &mut self,
        value: &[u8],
        length_max: usize,
        what: &'static str,
    ) -> Result<usize, EncodeError> {
        if value.len() > length_max {
            return Err(EncodeError::TooMany { what });
        }
        let start = self.allocate(4 + value.len())?;
        // The limit that was just checked fits in a u32.
        self.put_u32(start, value.len() as u32)?;
        self.put_slice(start + 4, value)?;
        Ok(start)
    }
}

/// Returns an offset or count as a u32.
#[inline]
pub(crate) fn offset_u32(value: usize) -> Result<u32, EncodeError> {
    u32::try_from(value).map_err(|_| EncodeError::TooMany { what: "message" })
}

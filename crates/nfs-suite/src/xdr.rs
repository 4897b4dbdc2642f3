//! XDR (RFC 4506): appends values to a buffer, and decodes values from bytes.
//!
//! Invariant: decoding never reads outside the bytes. If bytes are missing, it fails with an error
//! that says which.

use crate::fault::Fault;

/// A buffer to which encoded values are appended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Put(pub Vec<u8>);

/// The bytes of a message that were not decoded yet.
#[derive(Clone, Debug)]
pub struct Get<'b>(pub &'b [u8]);

impl Put {
    /// Returns an empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends a 32-bit number.
    #[must_use]
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Appends a 64-bit number.
    #[must_use]
    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Appends a bool, as a 32-bit number.
    #[must_use]
    pub fn bool(self, value: bool) -> Self {
        self.u32(u32::from(value))
    }

    /// Appends bytes without length or padding.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Appends a length, the bytes, and their padding.
    #[must_use]
    pub fn opaque(self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut put = self.u32(length).raw(bytes);
        put.0.resize(put.0.len().next_multiple_of(4), 0);
        put
    }

    /// Appends an optional value: a bool, and the value if there is one.
    #[must_use]
    pub fn option<T>(self, value: Option<T>, put: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => put(self.bool(true), value),
            None => self.bool(false),
        }
    }

    /// Appends a count, and the values.
    #[must_use]
    pub fn list<T>(self, values: &[T], put: impl Fn(Self, &T) -> Self) -> Self {
        let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
        values.iter().fold(self.u32(count), put)
    }
}

impl<'b> Get<'b> {
    /// Takes `length` bytes, without padding.
    pub fn raw(&mut self, length: usize) -> Result<&'b [u8], Fault> {
        let Some((taken, rest)) = self.0.split_at_checked(length) else {
            let left = self.0.len();
            return Err(Fault::Reply(format!("ends early: {length} bytes wanted, {left} left")));
        };
        self.0 = rest;
        Ok(taken)
    }

    /// Takes a 32-bit number.
    pub fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Takes a 64-bit number.
    pub fn u64(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Takes a bool, which must be encoded as 0 or 1.
    pub fn bool(&mut self) -> Result<bool, Fault> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Fault::Reply(format!("has {other} for a truth value"))),
        }
    }

    /// Takes a fixed number of bytes, which must be a multiple of four.
    pub fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], Fault> {
        let mut array = [0; LENGTH];
        array.copy_from_slice(self.raw(LENGTH)?);
        Ok(array)
    }

    /// Takes a length, that number of bytes, and their padding, which must be zero.
    pub fn opaque(&mut self) -> Result<Vec<u8>, Fault> {
        let length = self.u32()? as usize;
        let bytes = self.raw(length)?.to_vec();
        let padding = self.raw(length.next_multiple_of(4) - length)?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(Fault::Reply("has padding that is not zero".into()));
        }
        Ok(bytes)
    }

    /// Takes an optional value: a bool, and the value if the bool is true.
    pub fn option<T>(
        &mut self,
        take: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        if self.bool()? { take(self).map(Some) } else { Ok(None) }
    }

    /// Takes a count, and that number of values.
    pub fn list<T>(
        &mut self,
        take: impl Fn(&mut Self) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let count = self.u32()?;
        (0..count).map(|_| take(self)).collect()
    }

    /// Takes a linked list: values that are each preceded by a 1, and a 0 after the last value.
    pub fn chain<T>(
        &mut self,
        take: impl Fn(&mut Self) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let mut values = Vec::new();
        while self.bool()? {
            values.push(take(self)?);
        }
        Ok(values)
    }

    /// Checks that all bytes were decoded.
    pub fn finish(&self) -> Result<(), Fault> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(Fault::Reply(format!("has {left} bytes too many"))),
        }
    }
}

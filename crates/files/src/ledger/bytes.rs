//! Encodes and decodes the integers and byte strings of records. Integers are little-endian.
//!
//! Invariant: decoding returns the values that were encoded and never reads beyond the end of the
//! record.

/// Appends integers and byte strings to a record.
pub trait Put {
    /// Appends the bytes without a length before them.
    fn put_rest(&mut self, bytes: &[u8]);

    /// Appends a `u16` in little-endian order.
    fn put_u16(&mut self, value: u16) {
        self.put_rest(&value.to_le_bytes());
    }
    /// Appends a `u32` in little-endian order.
    fn put_u32(&mut self, value: u32) {
        self.put_rest(&value.to_le_bytes());
    }
    /// Appends a `u64` in little-endian order.
    fn put_u64(&mut self, value: u64) {
        self.put_rest(&value.to_le_bytes());
    }
    /// Appends the number of bytes as a `u32`, then the bytes.
    fn put_counted(&mut self, bytes: &[u8]) {
        self.put_u32(bytes.len() as u32);
        self.put_rest(bytes);
    }
}

impl Put for Vec<u8> {
    fn put_rest(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Removes integers and byte strings from the front of a record.
pub trait Take {
    /// Removes and returns the first `N` bytes. `None` if fewer bytes are left.
    fn take_array<const N: usize>(&mut self) -> Option<[u8; N]>;
    /// Removes a length (`u32`) and that many bytes, and returns the bytes. `None` if too few bytes
    /// are left.
    fn take_counted(&mut self) -> Option<&[u8]>;

    /// Removes and returns a `u8`. `None` if no byte is left.
    fn take_u8(&mut self) -> Option<u8> {
        self.take_array::<1>().map(|[value]| value)
    }
    /// Removes and returns a little-endian `u16`. `None` if too few bytes are left.
    fn take_u16(&mut self) -> Option<u16> {
        self.take_array().map(u16::from_le_bytes)
    }
    /// Removes and returns a little-endian `u32`. `None` if too few bytes are left.
    fn take_u32(&mut self) -> Option<u32> {
        self.take_array().map(u32::from_le_bytes)
    }
    /// Removes and returns a little-endian `u64`. `None` if too few bytes are left.
    fn take_u64(&mut self) -> Option<u64> {
        self.take_array().map(u64::from_le_bytes)
    }
}

impl Take for &[u8] {
    fn take_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.split_first_chunk()?;
        *self = rest;
        Some(*front)
    }

    fn take_counted(&mut self) -> Option<&[u8]> {
        let count = self.take_u32()? as usize;
        let (front, rest) = self.split_at_checked(count)?;
        *self = rest;
        Some(front)
    }
}

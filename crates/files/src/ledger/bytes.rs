//! Encodes and decodes numbers and bytes of records, little-endian.
//!
//! Invariant: decoding returns what was encoded, and never reads beyond the end.

/// Appends numbers and bytes to a record.
pub trait Put {
    /// Appends the bytes without a length.
    fn put_rest(&mut self, bytes: &[u8]);

    /// Appends a 16-bit number.
    fn put_u16(&mut self, value: u16) {
        self.put_rest(&value.to_le_bytes());
    }
    /// Appends a 32-bit number.
    fn put_u32(&mut self, value: u32) {
        self.put_rest(&value.to_le_bytes());
    }
    /// Appends a 64-bit number.
    fn put_u64(&mut self, value: u64) {
        self.put_rest(&value.to_le_bytes());
    }
    /// Appends the length of the bytes, then the bytes.
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

/// Takes numbers and bytes from the front of a record.
pub trait Take {
    /// Takes `N` bytes; `None` if there are fewer.
    fn take_array<const N: usize>(&mut self) -> Option<[u8; N]>;
    /// Takes a length, then that many bytes.
    fn take_counted(&mut self) -> Option<&[u8]>;

    /// Takes an 8-bit number.
    fn take_u8(&mut self) -> Option<u8> {
        self.take_array::<1>().map(|[value]| value)
    }
    /// Takes a 16-bit number.
    fn take_u16(&mut self) -> Option<u16> {
        self.take_array().map(u16::from_le_bytes)
    }
    /// Takes a 32-bit number.
    fn take_u32(&mut self) -> Option<u32> {
        self.take_array().map(u32::from_le_bytes)
    }
    /// Takes a 64-bit number.
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

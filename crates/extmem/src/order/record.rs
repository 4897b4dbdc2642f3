//! Records of a fixed size, with a key at a fixed position.
//!
//! Invariant: the key lies within the record. Records with equal keys keep the order of arrival.

use std::cmp::Ordering;
use std::ops::Range;
use std::str::FromStr;

use super::{Order, SpecificationError, leading, turned};

/// The layout of records of a fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    record_bytes: usize,
    key: RecordKey,
}

/// The key of a record: `OFFSET:LENGTH[:u|i|b|f][:le|be][:r]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordKey {
    /// The number of bytes before the key.
    pub offset: usize,
    /// The number of bytes of the key.
    pub length: usize,
    /// The type of the key.
    pub kind: KeyKind,
    /// True if the least significant byte comes first.
    pub is_little_endian: bool,
    /// True if the greatest key comes first.
    pub is_reverse: bool,
}

/// The type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// An unsigned integer of up to 8 bytes.
    Unsigned,
    /// A two's complement integer of up to 8 bytes.
    Signed,
    /// A string of bytes, compared from the first byte on.
    Bytes,
    /// A floating-point number of 4 or 8 bytes, in the total order of IEEE 754: -0 before 0, and
    /// NaNs before or after all numbers, by their sign.
    Float,
}

impl RecordLayout {
    /// Creates the layout of records of `record_bytes` bytes with this key.
    ///
    /// # Errors
    /// [`SpecificationError`] if the key exceeds the record, or its type does not allow its length.
    pub fn new(record_bytes: usize, key: RecordKey) -> Result<Self, SpecificationError> {
        let wrong = |what: String| SpecificationError { text: key.to_string(), what };
        let end = key.offset.checked_add(key.length);
        if record_bytes == 0 || end.is_none_or(|end| end > record_bytes) {
            return Err(wrong(format!("it does not lie within a record of {record_bytes} bytes")));
        }
        let (is_fit, lengths) = match key.kind {
            KeyKind::Bytes => (key.length > 0, "at least 1 byte"),
            KeyKind::Unsigned | KeyKind::Signed => ((1..=8).contains(&key.length), "1 to 8 bytes"),
            KeyKind::Float => (matches!(key.length, 4 | 8), "4 or 8 bytes"),
        };
        if !is_fit {
            return Err(wrong(format!("a key of this kind has {lengths}")));
        }
        Ok(Self { record_bytes, key })
    }

    /// Returns the size of a record in bytes.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Returns the range of the key within a record.
    #[must_use]
    pub fn key_range(&self) -> Range<usize> {
        self.key.offset..self.key.offset + self.key.length
    }

    /// True if the prefix contains the whole key.
    #[must_use]
    pub fn is_in_prefix(&self) -> bool {
        self.key.length <= 8
    }

    /// Returns the prefix of a key, made from its first eight bytes or from all of them.
    #[must_use]
    #[inline]
    pub fn prefix_of_key(&self, key: &[u8]) -> u64 {
        let value = match self.key.kind {
            KeyKind::Bytes => leading(key),
            KeyKind::Unsigned => self.number(key),
            KeyKind::Signed => {
                let sign = 1 << (8 * self.key.length - 1);
                self.number(key) ^ sign
            }
            KeyKind::Float => {
                let (value, width) = (self.number(key), 8 * self.key.length as u32);
                let (sign, all) = (1_u64 << (width - 1), u64::MAX >> (64 - width));
                if value & sign == 0 { value | sign } else { !value & all }
            }
        };
        if self.key.is_reverse { !value } else { value }
    }

    /// Compares two whole keys.
    #[must_use]
    pub fn compare_keys(&self, left: &[u8], right: &[u8]) -> Ordering {
        match self.key.kind {
            KeyKind::Bytes => turned(left.cmp(right), self.key.is_reverse),
            KeyKind::Unsigned | KeyKind::Signed | KeyKind::Float => {
                self.prefix_of_key(left).cmp(&self.prefix_of_key(right))
            }
        }
    }

    /// Compares two pieces at the same position of two keys that are equal before that position.
    #[must_use]
    pub(crate) fn compare_pieces(&self, left: &[u8], right: &[u8]) -> Ordering {
        turned(left.cmp(right), self.key.is_reverse)
    }

    /// Returns the first bytes of a key, at most 8, as an integer.
    #[inline]
    fn number(&self, key: &[u8]) -> u64 {
        let count = self.key.length;
        let mut bytes = [0; 8];
        if self.key.is_little_endian {
            bytes[..count].copy_from_slice(&key[..count]);
            u64::from_le_bytes(bytes)
        } else {
            bytes[8 - count..].copy_from_slice(&key[..count]);
            u64::from_be_bytes(bytes)
        }
    }
}

impl Order for RecordLayout {
    fn prefix(&self, record: &[u8]) -> u64 {
        self.prefix_of_key(&record[self.key_range()])
    }

    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        self.compare_keys(&left[self.key_range()], &right[self.key_range()])
    }

    fn is_same(&self, left: &[u8], right: &[u8]) -> bool {
        left[self.key_range()] == right[self.key_range()]
    }
}

impl std::fmt::Display for RecordKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.offset, self.length)
    }
}

impl FromStr for RecordKey {
    type Err = SpecificationError;

    fn from_str(text: &str) -> Result<Self, SpecificationError> {
        let wrong =
            |what: &str| SpecificationError { text: text.to_owned(), what: what.to_owned() };
        let mut parts = text.split(':');
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        let (Some(offset), Some(length)) = (number(), number()) else {
            return Err(wrong("write OFFSET:LENGTH[:u|i|b|f][:le|be][:r], such as 0:8:u"));
        };
        let mut key = Self {
            offset,
            length,
            kind: KeyKind::Bytes,
            is_little_endian: cfg!(target_endian = "little"),
            is_reverse: false,
        };
        for part in parts {
            match part {
                "u" => key.kind = KeyKind::Unsigned,
                "i" => key.kind = KeyKind::Signed,
                "b" => key.kind = KeyKind::Bytes,
                "f" => key.kind = KeyKind::Float,
                "le" => key.is_little_endian = true,
                "be" => key.is_little_endian = false,
                "r" => key.is_reverse = true,
                other => {
                    return Err(wrong(&format!("{other:?} is none of u, i, b, f, le, be and r")));
                }
            }
        }
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, key: &str) -> RecordLayout {
        RecordLayout::new(size, key.parse().unwrap()).unwrap()
    }

    #[test]
    fn keys_are_read_and_mistakes_named() {
        let key: RecordKey = "8:4:i:be:r".parse().unwrap();
        assert_eq!((key.offset, key.length, key.kind), (8, 4, KeyKind::Signed));
        assert!(!key.is_little_endian && key.is_reverse);
        for (text, what) in [("8", "OFFSET:LENGTH"), ("a:4", "OFFSET"), ("0:4:x", "none of u")] {
            let error = text.parse::<RecordKey>().unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        for (key, what) in [("4:8", "within a record of 8"), ("0:5:f", "4 or 8"), ("0:0", "1 byte")]
        {
            let error = RecordLayout::new(8, key.parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn numbers_are_ordered_as_numbers() {
        let signed = layout(2, "0:2:i:le");
        let mut values: Vec<i16> = vec![0, -1, i16::MIN, i16::MAX, 1, 256, -256];
        values.sort_by(|a, b| signed.compare(&a.to_le_bytes(), &b.to_le_bytes()));
        assert!(values.is_sorted());
        let float = layout(8, "0:8:f:be:r");
        let mut values = vec![0.0, -1.5, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e-300, f64::NAN];
        values.sort_by(|a: &f64, b| float.compare(&a.to_be_bytes(), &b.to_be_bytes()));
        assert!(values.is_sorted_by(|a, b| b.total_cmp(a).is_le()), "{values:?}");
        let small = layout(4, "0:4:f:le");
        let mut values = [1.0_f32, -2.0, -0.0, 0.0, f32::MIN, f32::MAX];
        values.sort_by(|a, b| small.compare(&a.to_le_bytes(), &b.to_le_bytes()));
        assert!(values.is_sorted_by(|a, b| a.total_cmp(b).is_le()), "{values:?}");
    }

    #[test]
    fn a_prefix_agrees_with_the_whole() {
        let bytes = layout(12, "1:10:b:r");
        let (low, high) = (b"xabcdefghij_", b"xabcdefghik_");
        assert_eq!(bytes.prefix(low), bytes.prefix(high));
        assert_eq!(bytes.compare(low, high), Ordering::Greater);
        assert!(bytes.prefix(b"_a__________") > bytes.prefix(b"_b__________"));
    }
}

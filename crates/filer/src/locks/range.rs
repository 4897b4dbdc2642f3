//! Byte ranges (draft 6.5.18).
//!
//! Invariant: a range is never empty, and its last byte is not before its first byte. The largest
//! possible last byte means "up to the end of the file, whatever its size".

/// The bytes `first..=last` of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    first: u64,
    last: u64,
}

impl ByteRange {
    /// The whole file, whatever its size.
    pub const WHOLE: Self = Self { first: 0, last: u64::MAX };

    /// Creates the range of a LOCK request. The length `u64::MAX` extends the range to the end of
    /// the file. Returns `None` for the length 0, which the draft reserves, and for a range whose
    /// end exceeds 64 bits.
    #[must_use]
    pub const fn new(offset: u64, length: u64) -> Option<Self> {
        if length == u64::MAX {
            return Some(Self { first: offset, last: u64::MAX });
        }
        if length == 0 {
            return None;
        }
        match offset.checked_add(length - 1) {
            Some(last) => Some(Self { first: offset, last }),
            None => None,
        }
    }

    /// Creates the range `first..=last`. Returns `None` if `last` is less than `first`.
    #[must_use]
    pub const fn from_ends(first: u64, last: u64) -> Option<Self> {
        if first <= last { Some(Self { first, last }) } else { None }
    }

    /// Returns the offset of the first byte.
    #[must_use]
    pub const fn first(self) -> u64 {
        self.first
    }

    /// Returns the offset of the last byte. `u64::MAX` means the end of the file.
    #[must_use]
    pub const fn last(self) -> u64 {
        self.last
    }

    /// Returns the length in the form of the protocol: `u64::MAX` means up to the end of the file.
    #[must_use]
    pub const fn length(self) -> u64 {
        if self.last == u64::MAX { u64::MAX } else { self.last - self.first + 1 }
    }

    /// Returns true if the ranges have a byte in common.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Returns the range of bytes that are in both ranges. `None` if there are none.
    #[must_use]
    pub fn intersection(self, other: Self) -> Option<Self> {
        Self::from_ends(self.first.max(other.first), self.last.min(other.last))
    }

    /// Returns the smallest range that contains both.
    pub(super) fn hull(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// Returns the part of this range before `other`. `None` if there is none.
    pub(super) fn left_of(self, other: Self) -> Option<Self> {
        let last = other.first.checked_sub(1)?;
        Self::from_ends(self.first, self.last.min(last))
    }

    /// Returns the part of this range after `other`. `None` if there is none.
    pub(super) fn right_of(self, other: Self) -> Option<Self> {
        let first = other.last.checked_add(1)?;
        Self::from_ends(self.first.max(first), self.last)
    }

    /// Returns the range extended by one byte on either side where possible. All ranges that
    /// overlap or touch `self` overlap the result.
    pub(super) fn widened(self) -> Self {
        Self { first: self.first.saturating_sub(1), last: self.last.saturating_add(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(first: u64, last: u64) -> ByteRange {
        ByteRange::from_ends(first, last).unwrap()
    }

    #[test]
    fn lengths_are_interpreted_as_in_the_draft() {
        assert_eq!(ByteRange::new(0, u64::MAX), Some(ByteRange::WHOLE));
        assert_eq!(ByteRange::new(7, u64::MAX), Some(ends(7, u64::MAX)));
        assert_eq!(ByteRange::new(7, 1), Some(ends(7, 7)));
        assert_eq!(ByteRange::new(u64::MAX, 1), Some(ends(u64::MAX, u64::MAX)));
        assert_eq!(ByteRange::new(7, 0), None);
        assert_eq!(ByteRange::new(u64::MAX, 2), None);
        assert_eq!(ByteRange::new(2, u64::MAX - 1), Some(ends(2, u64::MAX)));
        assert_eq!(ends(7, 9).length(), 3);
        assert_eq!(ends(7, u64::MAX).length(), u64::MAX);
    }

    #[test]
    fn ranges_are_cut_at_each_other() {
        let (a, b) = (ends(10, 19), ends(15, 30));
        assert!(a.overlaps(b) && b.overlaps(a) && !a.overlaps(ends(20, 30)));
        assert_eq!(a.intersection(b), Some(ends(15, 19)));
        assert_eq!(a.intersection(ends(20, 30)), None);
        assert_eq!(a.left_of(b), Some(ends(10, 14)));
        assert_eq!(a.right_of(b), None);
        assert_eq!(b.right_of(a), Some(ends(20, 30)));
        assert_eq!(a.left_of(ByteRange::WHOLE), None);
        assert_eq!(a.right_of(ByteRange::WHOLE), None);
        assert_eq!(a.widened(), ends(9, 20));
        assert_eq!(ByteRange::WHOLE.widened(), ByteRange::WHOLE);
    }
}

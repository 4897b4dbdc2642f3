//! A scatter or gather list that allocates nothing while it is short, as nearly all lists are.
//!
//! Invariant: the segments keep their order.

use crate::LocalSegment;

/// Segments of registered regions, in order.
#[derive(Debug)]
pub(super) enum SegmentList {
    One(LocalSegment),
    Two([LocalSegment; 2]),
    Many(Box<[LocalSegment]>),
}

impl SegmentList {
    #[inline(always)]
    pub(super) fn new(segments: &[LocalSegment]) -> Self {
        match segments {
            [one] => Self::One(*one),
            [one, two] => Self::Two([*one, *two]),
            _ => Self::Many(segments.into()),
        }
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[LocalSegment] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Two(two) => two,
            Self::Many(many) => many,
        }
    }

    /// Returns the total length of all segments in bytes.
    pub(super) fn length(&self) -> u64 {
        self.as_slice().iter().map(|segment| u64::from(segment.length)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalKey;

    #[test]
    fn lists_of_any_length_keep_their_order() {
        for count in 0..6u32 {
            let segments: Vec<LocalSegment> = (0..count)
                .map(|i| LocalSegment { key: LocalKey(i), offset: 0, length: i })
                .collect();
            let list = SegmentList::new(&segments);
            assert_eq!(list.as_slice(), segments);
            assert_eq!(list.length(), u64::from((0..count).sum::<u32>()));
        }
    }
}

//! A scatter or gather list that needs no heap while it is short.
//!
//! Invariant: the order of the segments is the order given.

use crate::{LocalKey, LocalSegment};

/// Segments of registered regions, in order.
#[derive(Debug)]
pub(super) struct SegmentList {
    few: [LocalSegment; FEW],
    /// All of them, if they are more than a few.
    many: Vec<LocalSegment>,
    count: usize,
}

impl SegmentList {
    pub fn new(segments: &[LocalSegment]) -> Self {
        let empty = LocalSegment { key: LocalKey(0), offset: 0, length: 0 };
        let mut list = Self { few: [empty; FEW], many: Vec::new(), count: segments.len() };
        match list.few.get_mut(..segments.len()) {
            Some(few) => few.copy_from_slice(segments),
            None => list.many.extend_from_slice(segments),
        }
        list
    }

    #[inline]
    pub fn as_slice(&self) -> &[LocalSegment] {
        self.few.get(..self.count).unwrap_or(&self.many)
    }

    /// Octets of all segments together.
    pub fn length(&self) -> u64 {
        self.as_slice().iter().map(|segment| u64::from(segment.length)).sum()
    }
}

/// Lists as short as this stay off the heap; nearly all are.
const FEW: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

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

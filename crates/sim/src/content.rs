//! The model of one file's content. It knows the values that each byte may have after all requests
//! and replies so far.
//!
//! Invariant: each write or read adds a layer to the range that it covers. A layer is certain if
//! its operation is known to have been executed. A byte may have the value of any layer that covers
//! it. Excepted are layers that ended before the beginning of a certain layer that covers the byte.
//! A read adds a certain layer with the bytes that it returned.

use crate::operation::OperationNumber;

/// The model of one file's content. The model has its own time, in which the beginning and the end
/// of each operation are different moments.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// The bytes of the file at the last moment when no operation was in flight and all bytes were
    /// certain.
    base: Vec<u8>,
    layers: Vec<Layer>,
    /// A change of size that may or may not have taken effect.
    change: Option<SizeChange>,
    under_way: usize,
}

/// A range of the file with the bytes that a write has sent, or that a read has returned.
#[derive(Debug)]
struct Layer {
    number: OperationNumber,
    offset: usize,
    data: Vec<u8>,
    begin: u64,
    /// The moment at which the operation ended. `u64::MAX` while it may still be executed.
    end: u64,
    is_certain: bool,
    /// True if the data may have been damaged in transit, so that any value is possible.
    is_wild: bool,
}

#[derive(Debug)]
struct SizeChange {
    number: OperationNumber,
    before: usize,
    after: usize,
    /// True for a write, because only a part of it may be executed. False for other changes, which
    /// are executed completely or not at all.
    may_stop: bool,
    /// True if the change may still take effect.
    is_open: bool,
}

/// The range of a read and the bytes that the read returned.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    pub number: OperationNumber,
    pub begin: u64,
    pub end: u64,
    pub offset: u64,
    pub wanted: u32,
    pub bytes: &'a [u8],
    pub is_end: bool,
}

impl Content {
    /// Returns the size in bytes, if it is known.
    pub(crate) fn size(&self) -> Option<usize> {
        self.change.is_none().then_some(self.base.len())
    }

    /// Returns true if no operation on the file is in flight.
    pub(crate) fn is_quiet(&self) -> bool {
        self.under_way == 0 && self.change.as_ref().is_none_or(|change| !change.is_open)
    }

    /// Records the beginning of an operation that does not change the size.
    pub(crate) fn begin_other(&mut self) {
        self.under_way += 1;
    }

    pub(crate) fn end_other(&mut self) {
        self.under_way -= 1;
        self.flatten();
    }

    // ---- writes ---------------------------------------------------------------------

    /// Begins a write. If it may extend the file, no other operation may be in flight.
    pub(crate) fn begin_write(
        &mut self,
        at: u64,
        number: OperationNumber,
        offset: u64,
        data: &[u8],
    ) {
        let offset = index(offset);
        let (before, after) = (self.base.len(), offset + data.len());
        if after > before && !data.is_empty() {
            let may_stop = true;
            self.change = Some(SizeChange { number, before, after, may_stop, is_open: true });
            self.base.resize(after, 0);
        }
        self.under_way += 1;
        let data = data.to_vec();
        let (end, is_certain, is_wild) = (u64::MAX, false, false);
        self.layers.push(Layer { number, offset, data, begin: at, end, is_certain, is_wild });
    }

    /// Begins an append, which is a write at the end of the file that is executed completely or not
    /// at all. No other write may overlap the appended range.
    pub(crate) fn begin_append(&mut self, at: u64, number: OperationNumber, data: &[u8]) {
        self.begin_write(at, number, self.base.len() as u64, data);
        if let Some(change) = &mut self.change {
            change.may_stop = false;
        }
    }

    /// Returns the offset of the append in flight.
    pub(crate) fn end_before(&self, number: OperationNumber) -> Option<u64> {
        let change = self.change.as_ref().filter(|change| change.number == number)?;
        Some(change.before as u64)
    }

    /// Records that the first `length` bytes of a write are in the file.
    pub(crate) fn end_write(&mut self, at: u64, number: OperationNumber, length: usize) {
        self.under_way -= 1;
        let mut reached = 0;
        if let Some(layer) = self.layers.iter_mut().find(|layer| layer.number == number) {
            layer.data.truncate(length);
            layer.end = at;
            layer.is_certain = true;
            reached = layer.offset + layer.data.len();
        }
        if let Some(change) = self.change.take_if(|change| change.number == number) {
            self.set_size(if length > 0 { reached.max(change.before) } else { change.before });
        }
        self.flatten();
    }

    /// Records that a write without a reply can no longer take effect. It is unknown whether it
    /// took effect before. If `may_be_damaged` is true, the bytes in the file may differ from the
    /// bytes that were sent.
    pub(crate) fn lose_write(&mut self, at: u64, number: OperationNumber, may_be_damaged: bool) {
        self.under_way -= 1;
        if let Some(layer) = self.layers.iter_mut().find(|layer| layer.number == number) {
            layer.end = at;
            layer.is_wild = may_be_damaged;
        }
        self.close_change(number);
        self.flatten();
    }

    // ---- the size -------------------------------------------------------------------

    /// Begins a change of the size; no other operation may be in flight.
    pub(crate) fn begin_size(&mut self, number: OperationNumber, after: u64) {
        self.under_way += 1;
        let (before, after) = (self.base.len(), index(after));
        let may_stop = false;
        self.change = Some(SizeChange { number, before, after, may_stop, is_open: true });
        self.base.resize(before.max(after), 0);
    }

    /// Records that the size was changed.
    pub(crate) fn end_size(&mut self, number: OperationNumber) {
        self.under_way -= 1;
        if let Some(change) = self.change.take_if(|change| change.number == number) {
            self.set_size(change.after);
        }
        self.flatten();
    }

    /// Records that a change of size without a reply can no longer take effect. It is unknown
    /// whether it took effect before.
    pub(crate) fn lose_size(&mut self, number: OperationNumber) {
        self.under_way -= 1;
        self.close_change(number);
    }

    /// Checks a size that was read while no other operation was in flight.
    pub(crate) fn see_size(&mut self, size: u64) -> Result<(), String> {
        let size = index(size);
        let Some(change) = self.change.take() else {
            return match size == self.base.len() {
                true => Ok(()),
                false => Err(format!("the size is {size} bytes instead of {}", self.base.len())),
            };
        };
        let (least, most) = (change.before.min(change.after), change.before.max(change.after));
        let is_between = change.may_stop && (least..=most).contains(&size);
        if size != change.before && size != change.after && !is_between {
            return Err(format!("the size is {size} bytes after {change:?}"));
        }
        self.set_size(size);
        Ok(())
    }

    fn close_change(&mut self, number: OperationNumber) {
        if let Some(change) = self.change.as_mut().filter(|change| change.number == number) {
            change.is_open = false;
        }
    }

    fn set_size(&mut self, size: usize) {
        self.base.resize(size, 0);
        for layer in &mut self.layers {
            layer.data.truncate(size.saturating_sub(layer.offset));
        }
    }

    // ---- reads ----------------------------------------------------------------------

    /// Checks the bytes that a read returned.
    pub(crate) fn see(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let (offset, size) = (index(seen.offset), self.base.len());
        let reached = offset + seen.bytes.len();
        let is_whole = reached >= size.min(offset + seen.wanted as usize);
        if seen.bytes.len() > seen.wanted as usize || (reached > size && !seen.bytes.is_empty()) {
            return Err(format!(
                "a read of {} bytes at {offset} exceeds the size {size}",
                seen.bytes.len()
            ));
        }
        if seen.is_end && reached < size || !is_whole && seen.bytes.is_empty() {
            let (count, wanted) = (seen.bytes.len(), seen.wanted);
            return Err(format!(
                "a read of {wanted} bytes ended at {offset}+{count} of {size} bytes"
            ));
        }
        self.check(seen)?;
        if !self.layers.is_empty() {
            self.layers.push(Layer {
                number: seen.number,
                offset,
                data: seen.bytes.to_vec(),
                begin: seen.begin,
                end: seen.end,
                is_certain: true,
                is_wild: false,
            });
        }
        Ok(())
    }

    fn check(&self, seen: &Seen<'_>) -> Result<(), String> {
        let offset = index(seen.offset);
        for (start, end) in self.pieces(offset, offset + seen.bytes.len()) {
            let candidates = self.candidates(start, end, seen.begin);
            if self.is_wild(start, end, seen.begin) {
                continue;
            }
            let got = &seen.bytes[start - offset..end - offset];
            if candidates.contains(&got) {
                continue;
            }
            let is_strange = |at: &usize| candidates.iter().all(|c| c[*at] != got[*at]);
            if let Some(at) = (0..got.len()).find(is_strange) {
                let may: Vec<u8> = candidates.iter().map(|candidate| candidate[at]).collect();
                return Err(format!(
                    "byte {} is {}, but may only be one of {may:?}; writes over it: {:?}",
                    start + at,
                    got[at],
                    self.over(start, end).map(Layer::summary).collect::<Vec<_>>()
                ));
            }
        }
        Ok(())
    }

    /// Splits a range into pieces, so that all bytes of a piece are covered by the same layers.
    fn pieces(&self, start: usize, end: usize) -> Vec<(usize, usize)> {
        let mut cuts = vec![start, end];
        for layer in &self.layers {
            cuts.extend([layer.offset, layer.offset + layer.data.len()]);
        }
        cuts.retain(|cut| (start..=end).contains(cut));
        cuts.sort_unstable();
        cuts.dedup();
        cuts.windows(2).map(|pair| (pair[0], pair[1])).collect()
    }

    fn over(&self, start: usize, end: usize) -> impl Iterator<Item = &Layer> {
        self.layers
            .iter()
            .filter(move |layer| layer.offset <= start && end <= layer.offset + layer.data.len())
    }

    /// Returns the latest moment at which a certain layer over a range began. Layers that ended
    /// before that moment are hidden.
    fn bound(&self, start: usize, end: usize, at: u64) -> u64 {
        let latest = self.over(start, end).filter(|layer| layer.is_certain && layer.end < at);
        latest.map(|layer| layer.begin).max().unwrap_or(0)
    }

    fn is_wild(&self, start: usize, end: usize, at: u64) -> bool {
        let bound = self.bound(start, end, at);
        self.over(start, end).any(|layer| layer.is_wild && layer.end >= bound)
    }

    /// Returns the values of a piece that a read which began at `at` may return.
    fn candidates(&self, start: usize, end: usize, at: u64) -> Vec<&[u8]> {
        let bound = self.bound(start, end, at);
        let mut candidates = Vec::new();
        if bound == 0 {
            candidates.push(&self.base[start..end]);
        }
        let alive = self.over(start, end).filter(|layer| layer.end >= bound);
        candidates.extend(alive.map(|l| &l.data[start - l.offset..end - l.offset]));
        candidates
    }

    /// Moves the data of all layers into the base, if no operation is in flight and every byte is
    /// certain.
    fn flatten(&mut self) {
        if self.under_way > 0 || self.layers.is_empty() {
            return;
        }
        let mut flat = self.base.clone();
        for (start, end) in self.pieces(0, self.base.len()) {
            let candidates = self.candidates(start, end, u64::MAX);
            let differ = candidates.windows(2).any(|pair| pair[0] != pair[1]);
            if differ || self.is_wild(start, end, u64::MAX) {
                return;
            }
            flat[start..end].copy_from_slice(candidates[0]);
        }
        self.base = flat;
        self.layers.clear();
    }

    /// Returns the content if all its bytes and its size are certain.
    pub(crate) fn certain(&self) -> Option<&[u8]> {
        let is_certain = self.layers.is_empty() && self.change.is_none();
        is_certain.then_some(&self.base)
    }
}

impl Layer {
    fn summary(&self) -> String {
        let Self { number, offset, begin, end, is_certain, .. } = self;
        let end_offset = offset + self.data.len();
        format!("{number:?} {offset}..{end_offset} at {begin}..{end} certain: {is_certain}")
    }
}

/// Converts an offset to an index. All files in the simulation are small.
fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(begin: u64, end: u64, bytes: &[u8]) -> Seen<'_> {
        let wanted = u32::try_from(bytes.len()).unwrap();
        let number = OperationNumber(begin);
        Seen { number, begin, end, offset: 0, wanted, bytes, is_end: true }
    }

    fn content() -> Content {
        let mut content = Content::default();
        content.begin_write(1, OperationNumber(1), 0, b"old");
        content.end_write(2, OperationNumber(1), 3);
        assert_eq!(content.certain(), Some(&b"old"[..]));
        content
    }

    #[test]
    fn a_write_in_flight_may_be_seen_or_not() {
        let mut content = content();
        content.begin_write(3, OperationNumber(3), 0, b"new");
        content.see(&seen(4, 5, b"old")).unwrap();
        content.see(&seen(6, 7, b"new")).unwrap();
        assert!(content.see(&seen(8, 9, b"bad")).is_err());
    }

    #[test]
    fn a_lost_write_is_decided_by_the_first_read_after_it() {
        let mut content = content();
        content.begin_write(3, OperationNumber(3), 0, b"new");
        content.lose_write(4, OperationNumber(3), false);
        content.see(&seen(5, 6, b"old")).unwrap();
        assert!(content.see(&seen(7, 8, b"new")).is_err());
    }

    #[test]
    fn of_two_writes_at_once_either_may_be_the_last() {
        for last in [b"one", b"two"] {
            let mut content = content();
            content.begin_write(3, OperationNumber(3), 0, b"one");
            content.begin_write(4, OperationNumber(4), 0, b"two");
            content.end_write(5, OperationNumber(4), 3);
            content.end_write(6, OperationNumber(3), 3);
            assert!(content.see(&seen(7, 8, b"old")).is_err());
            content.see(&seen(9, 10, last)).unwrap();
        }
    }

    #[test]
    fn a_lost_append_is_there_or_not() {
        let mut content = content();
        content.begin_write(3, OperationNumber(3), 3, b"er");
        content.lose_write(4, OperationNumber(3), false);
        assert_eq!(content.size(), None);
        assert!(content.see_size(6).is_err());
    }
}

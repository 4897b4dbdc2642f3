//! The judge of one file's bytes: what each may be, given everything that was asked
//! and answered so far.
//!
//! Invariant: a byte may be what any layer over it says, but for layers that ended
//! before one that is certain began. What a read has seen is a certain layer too.

use crate::operation::OperationNumber;

/// See the [module](self). Moments are the judge's own: each beginning and each end of
/// an operation is one.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// What was certain when nothing was under way the last time.
    base: Vec<u8>,
    layers: Vec<Layer>,
    /// A change of size that is not decided.
    change: Option<SizeChange>,
    under_way: usize,
}

/// A write, or what a read saw.
#[derive(Debug)]
struct Layer {
    number: OperationNumber,
    offset: usize,
    data: Vec<u8>,
    begin: u64,
    /// `u64::MAX` while it may still happen.
    end: u64,
    is_certain: bool,
    /// What arrived may have been damaged on its way: any byte is possible.
    is_wild: bool,
}

#[derive(Debug)]
struct SizeChange {
    number: OperationNumber,
    before: usize,
    after: usize,
    /// A write may stop half-way; other changes happen or do not.
    may_stop: bool,
    /// It may still happen.
    is_open: bool,
}

/// What a read was asked for, and got.
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
    /// Bytes, if that is decided.
    pub(crate) fn size(&self) -> Option<usize> {
        self.change.is_none().then_some(self.base.len())
    }

    /// Nothing that concerns it is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.under_way == 0 && self.change.as_ref().is_none_or(|change| !change.is_open)
    }

    /// An operation that leaves the size alone begins or ends.
    pub(crate) fn begin_other(&mut self) {
        self.under_way += 1;
    }

    pub(crate) fn end_other(&mut self) {
        self.under_way -= 1;
        self.flatten();
    }

    // ---- writes ---------------------------------------------------------------------

    /// A write begins. If it may lengthen the file, nothing else is under way.
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

    /// An append begins: a write at the end, whole or not at all, that nothing overlaps.
    pub(crate) fn begin_append(&mut self, at: u64, number: OperationNumber, data: &[u8]) {
        self.begin_write(at, number, self.base.len() as u64, data);
        if let Some(change) = &mut self.change {
            change.may_stop = false;
        }
    }

    /// Where the append that is under way must be.
    pub(crate) fn end_before(&self, number: OperationNumber) -> Option<u64> {
        let change = self.change.as_ref().filter(|change| change.number == number)?;
        Some(change.before as u64)
    }

    /// The first `length` bytes of a write are in the file for certain.
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

    /// A write can no longer happen; whether it did is open. `may_be_damaged` if what it
    /// left need not be what was sent.
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

    /// A change of the size begins; nothing else is under way.
    pub(crate) fn begin_size(&mut self, number: OperationNumber, after: u64) {
        self.under_way += 1;
        let (before, after) = (self.base.len(), index(after));
        let may_stop = false;
        self.change = Some(SizeChange { number, before, after, may_stop, is_open: true });
        self.base.resize(before.max(after), 0);
    }

    /// The size is changed for certain.
    pub(crate) fn end_size(&mut self, number: OperationNumber) {
        self.under_way -= 1;
        if let Some(change) = self.change.take_if(|change| change.number == number) {
            self.set_size(change.after);
        }
        self.flatten();
    }

    /// The size can no longer change; whether it did is open.
    pub(crate) fn lose_size(&mut self, number: OperationNumber) {
        self.under_way -= 1;
        self.close_change(number);
    }

    /// The size was asked for while nothing else was under way.
    pub(crate) fn see_size(&mut self, size: u64) -> Result<(), String> {
        let size = index(size);
        let Some(change) = self.change.take() else {
            return match size == self.base.len() {
                true => Ok(()),
                false => Err(format!("{size} bytes where there are {}", self.base.len())),
            };
        };
        let (least, most) = (change.before.min(change.after), change.before.max(change.after));
        let is_between = change.may_stop && (least..=most).contains(&size);
        if size != change.before && size != change.after && !is_between {
            return Err(format!("{size} bytes after {change:?}"));
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

    /// A read ended.
    pub(crate) fn see(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let (offset, size) = (index(seen.offset), self.base.len());
        let reached = offset + seen.bytes.len();
        let is_whole = reached >= size.min(offset + seen.wanted as usize);
        if seen.bytes.len() > seen.wanted as usize || (reached > size && !seen.bytes.is_empty()) {
            return Err(format!("{} bytes at {offset} of {size}", seen.bytes.len()));
        }
        if seen.is_end && reached < size || !is_whole && seen.bytes.is_empty() {
            let (count, wanted) = (seen.bytes.len(), seen.wanted);
            return Err(format!(
                "the end at {offset}+{count} of {size} bytes, {wanted} were wanted"
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

    /// Pieces of a range over which the same layers lie.
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

    /// Layers that ended before this moment are hidden by one that began at it.
    fn bound(&self, start: usize, end: usize, at: u64) -> u64 {
        let latest = self.over(start, end).filter(|layer| layer.is_certain && layer.end < at);
        latest.map(|layer| layer.begin).max().unwrap_or(0)
    }

    fn is_wild(&self, start: usize, end: usize, at: u64) -> bool {
        let bound = self.bound(start, end, at);
        self.over(start, end).any(|layer| layer.is_wild && layer.end >= bound)
    }

    /// What a piece may be for somebody who looked at it from `at` on.
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

    /// With nothing under way, what is certain becomes the base.
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

    /// The bytes, if all are certain.
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

/// Files here are small.
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
    fn a_write_under_way_may_be_seen_or_not() {
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

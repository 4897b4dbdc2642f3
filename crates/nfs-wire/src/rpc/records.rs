//! Record marking (RFC 5531 section 11): finds records in a stream of bytes.
//!
//! Invariant: `Records` stores at most one incomplete record, of at most `record_bytes_max` bytes.
//! It allocates memory only for bytes that have arrived.

use crate::xdr::{Slot, Writer};

/// The length of the mark before each fragment, in bytes.
pub const MARK_BYTES: usize = 4;
/// The maximum number of fragments of one record. Common clients send records of one fragment.
pub const FRAGMENTS_MAX: usize = 64;
/// The largest maximum that a caller can set for the length of a record, in bytes.
pub const RECORD_BYTES_LIMIT: usize = LENGTH as usize;

/// The bit of a mark that is set if the fragment is the last of its record.
const LAST: u32 = 0x8000_0000;
/// The bits of a mark that contain the length of the fragment.
const LENGTH: u32 = 0x7fff_ffff;

/// Finds records in the bytes of one direction of a connection.
#[derive(Clone, Debug)]
pub struct Records {
    record_bytes_max: usize,
    /// The bytes of an incomplete mark.
    mark: [u8; MARK_BYTES],
    mark_length: usize,
    /// The fragment that is arriving; `None` if the next bytes are a mark.
    fragment: Option<Fragment>,
    /// The number of fragments of the record so far, including the one that is arriving.
    fragment_count: usize,
    /// The bytes of the record that have arrived.
    record: Vec<u8>,
    /// True if `record` was returned to the caller, so that it must be emptied for the next record.
    is_done: bool,
}

/// A fragment that is arriving.
#[derive(Clone, Copy, Debug)]
struct Fragment {
    left: usize,
    is_last: bool,
}

/// The reason why a stream must be closed: its records exceed a limit or are not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The record is longer than allowed.
    #[error("a record of {length} bytes or more is longer than {bound} bytes")]
    TooLong {
        /// The length of the record according to the marks so far.
        length: usize,
        /// The maximum length.
        bound: usize,
    },
    /// The record has too many fragments.
    #[error("a record has more than {FRAGMENTS_MAX} fragments")]
    TooManyFragments,
    /// A fragment has no bytes, and it is not the whole last fragment of an empty record.
    #[error("a fragment has no bytes")]
    EmptyFragment,
}

impl Records {
    /// Creates a parser at the start of a stream, for records of at most `record_bytes_max` bytes.
    #[must_use]
    pub fn new(record_bytes_max: usize) -> Self {
        Self {
            record_bytes_max: record_bytes_max.min(RECORD_BYTES_LIMIT),
            mark: [0; MARK_BYTES],
            mark_length: 0,
            fragment: None,
            fragment_count: 0,
            record: Vec::new(),
            is_done: false,
        }
    }

    /// Consumes bytes of `input` and returns the next complete record. Returns `None` if all of
    /// `input` was consumed and the record is not complete yet. If the whole record is in `input`,
    /// this returns a slice of `input`, without a copy.
    ///
    /// # Errors
    /// If the stream must be closed. The parser must not be used after that.
    pub fn next<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<&'s [u8]>, RecordError> {
        if std::mem::take(&mut self.is_done) {
            self.record.clear();
        }
        loop {
            let Some(fragment) = self.fragment else {
                if !self.take_mark(input)? {
                    return Ok(None);
                }
                continue;
            };
            let taken;
            (taken, *input) = input.split_at(fragment.left.min(input.len()));
            let left = fragment.left - taken.len();
            if left == 0 && fragment.is_last {
                self.fragment = None;
                self.fragment_count = 0;
                if self.record.is_empty() {
                    return Ok(Some(taken));
                }
                self.record.extend_from_slice(taken);
                self.is_done = true;
                return Ok(Some(&self.record));
            }
            self.record.extend_from_slice(taken);
            self.fragment = (left > 0).then_some(Fragment { left, ..fragment });
            if left > 0 {
                return Ok(None);
            }
        }
    }

    /// Returns the bytes of the incomplete record that have arrived, and the length of the whole
    /// record. Returns `None` if this length is unknown because the last fragment has not begun, or
    /// if no byte has arrived.
    #[must_use]
    pub fn arriving(&self) -> Option<(&[u8], usize)> {
        let fragment = self.fragment.filter(|fragment| fragment.is_last)?;
        if self.is_done || self.record.is_empty() {
            return None;
        }
        Some((&self.record, self.record.len() + fragment.left))
    }

    /// Removes and returns the bytes of the incomplete record, and the number of bytes that are
    /// missing. The caller itself receives the missing bytes from the stream; after them, a mark
    /// follows. `None` if [`Records::arriving`] returns `None`.
    pub fn take_over(&mut self) -> Option<(Vec<u8>, usize)> {
        self.arriving()?;
        let fragment = self.fragment.take()?;
        self.fragment_count = 0;
        Some((std::mem::take(&mut self.record), fragment.left))
    }

    /// Consumes bytes of a mark. Returns true if the mark is complete.
    fn take_mark(&mut self, input: &mut &[u8]) -> Result<bool, RecordError> {
        let wanted = MARK_BYTES - self.mark_length;
        let taken;
        (taken, *input) = input.split_at(wanted.min(input.len()));
        self.mark[self.mark_length..][..taken.len()].copy_from_slice(taken);
        self.mark_length += taken.len();
        if self.mark_length < MARK_BYTES {
            return Ok(false);
        }
        self.mark_length = 0;
        let mark = u32::from_be_bytes(self.mark);
        let (left, is_last) = ((mark & LENGTH) as usize, mark & LAST != 0);
        let length = self.record.len() + left;
        if length > self.record_bytes_max {
            return Err(RecordError::TooLong { length, bound: self.record_bytes_max });
        }
        if left == 0 && (!is_last || self.record.is_empty()) {
            return Err(RecordError::EmptyFragment);
        }
        self.fragment_count += 1;
        if self.fragment_count > FRAGMENTS_MAX {
            return Err(RecordError::TooManyFragments);
        }
        self.fragment = Some(Fragment { left, is_last });
        Ok(true)
    }
}

/// Begins a record of one fragment. [`end_record`] fills in its mark.
pub fn begin_record(writer: &mut Writer) -> Slot {
    writer.reserve()
}

/// Fills in the mark of a record that ends at the current position. Its length includes payloads.
pub fn end_record(writer: &mut Writer, begun: Slot) {
    let length = writer.length_after(begun);
    match u32::try_from(length) {
        Ok(length) if length <= LENGTH => writer.patch(begun, LAST | length),
        _ => writer.fail(crate::xdr::XdrError::Limit(RECORD_BYTES_LIMIT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::Piece;

    fn stream(records: &[&[&[u8]]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for fragments in records {
            for (index, fragment) in fragments.iter().enumerate() {
                let last = if index + 1 == fragments.len() { LAST } else { 0 };
                bytes.extend((last | fragment.len() as u32).to_be_bytes());
                bytes.extend_from_slice(fragment);
            }
        }
        bytes
    }

    #[test]
    fn records_come_whole_however_the_stream_is_cut() {
        let records: [&[&[u8]]; 4] =
            [&[b"first"], &[b"se", b"con", b"d"], &[b"third", b""], &[b"x"]];
        let bytes = stream(&records);
        for step in 1..=bytes.len() {
            let mut machine = Records::new(16);
            let mut found = Vec::new();
            for mut input in bytes.chunks(step) {
                while let Some(record) = machine.next(&mut input).unwrap() {
                    found.push(record.to_vec());
                }
                assert!(input.is_empty());
            }
            assert_eq!(found, [&b"first"[..], b"second", b"third", b"x"], "step {step}");
        }
    }

    #[test]
    fn a_stream_beyond_its_limits_is_refused() {
        let next = |bytes: &[u8]| Records::new(8).next(&mut &bytes[..]).map(|_| ());
        let too_long = |length| Err(RecordError::TooLong { length, bound: 8 });
        assert_eq!(next(&stream(&[&[b"123456789"]])), too_long(9));
        assert_eq!(next(&stream(&[&[b"1234", b"56789"]])), too_long(9));
        assert_eq!(next(&[0xff; 4]), too_long(0x7fff_ffff));
        assert_eq!(next(&[0x80, 0, 0, 0]), Err(RecordError::EmptyFragment));
        assert_eq!(next(&stream(&[&[b"1", b"", b"2"]])), Err(RecordError::EmptyFragment));
        let many: Vec<&[u8]> = vec![b"1"; FRAGMENTS_MAX + 1];
        let bytes = stream(&[&many]);
        let mut machine = Records::new(1 << 20);
        assert_eq!(machine.next(&mut &bytes[..]), Err(RecordError::TooManyFragments));
    }

    #[test]
    fn the_rest_of_a_long_record_can_be_received_elsewhere() {
        let bytes = stream(&[&[b"head, and then data"], &[b"next"]]);
        let mut machine = Records::new(64);
        assert_eq!(machine.arriving(), None);
        assert_eq!(machine.next(&mut &bytes[..8]), Ok(None));
        assert_eq!(machine.arriving(), Some((&b"head"[..], 19)));
        let (head, rest) = machine.take_over().unwrap();
        assert_eq!((&head[..], rest), (&b"head"[..], 15));
        let mut input = &bytes[8 + rest..];
        assert_eq!(machine.next(&mut input), Ok(Some(&b"next"[..])));
    }

    #[test]
    fn a_written_record_counts_its_payload() {
        let mut writer = Writer::new();
        writer.u32(9);
        let begun = begin_record(&mut writer);
        writer.payload(5);
        end_record(&mut writer, begun);
        let pieces: Vec<_> = writer.pieces().collect();
        let head = [0, 0, 0, 9, 0x80, 0, 0, 12, 0, 0, 0, 5];
        assert_eq!(pieces, [Piece::Bytes(&head), Piece::Payload(5), Piece::Bytes(&[0; 3])]);
    }
}

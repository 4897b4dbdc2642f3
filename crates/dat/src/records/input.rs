//! Cuts a stream of bytes into records.
//!
//! A record is a sequence of fragments. Each fragment begins with a mark of four bytes: the highest
//! bit is set if the fragment is the last of its record, and the other bits are the length of the
//! fragment.
//!
//! Invariants:
//! - The number of fragments of a record is limited, so that a peer cannot keep the parser busy
//!   with empty fragments.
//! - Of a record, only as many bytes are kept as the owner wants from this peer.

use super::inbox::Inbox;

/// The state of a record that is arriving.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// The bytes of the mark that have arrived.
    mark: [u8; 4],
    mark_length: usize,
    /// The number of bytes of the current fragment that have not arrived yet.
    left: usize,
    is_last: bool,
    fragments: u32,
    /// The number of bytes of the record that have arrived, including those that were dropped.
    length: usize,
    /// The bytes of the record that are kept.
    record: Vec<u8>,
    /// The maximum number of bytes of a record that are kept.
    kept_max: usize,
}

/// The destination of complete records.
pub(super) struct Sink<'a> {
    pub inbox: &'a mut Inbox,
    pub buffers: &'a mut Vec<Vec<u8>>,
    pub bytes_max: usize,
}

impl Input {
    /// Returns true if a record has begun to arrive and is not complete.
    pub(super) fn is_incomplete(&self) -> bool {
        self.mark_length > 0 || self.fragments > 0
    }

    /// Sets the maximum number of bytes of a record that are kept. Returns false if more bytes of
    /// the current record are wanted now, but some were dropped.
    pub(super) fn keep(&mut self, bytes_max: usize) -> bool {
        let is_cut = self.length > self.record.len();
        let is_more = bytes_max > std::mem::replace(&mut self.kept_max, bytes_max);
        !(is_cut && is_more)
    }

    /// Returns the maximum number of bytes of a record that are kept. It is 0 until records are
    /// wanted from this peer.
    pub(super) fn kept_max(&self) -> usize {
        self.kept_max
    }

    /// Returns the buffer into which the next bytes of the fragment can be read, and the number of
    /// bytes for which the buffer has space, which is at least `least`. Returns `None` if fewer
    /// than `least` bytes of the fragment are missing, or if not all of them are kept.
    pub(super) fn direct(&mut self, least: usize) -> Option<(&mut Vec<u8>, usize)> {
        if self.left < least || self.length + self.left > self.kept_max {
            return None;
        }
        let room = self.left.min(DIRECT_BYTES_MAX);
        self.record.reserve(room);
        Some((&mut self.record, room))
    }

    /// Counts bytes that the caller has appended to the buffer that [`Input::direct`] returned.
    pub(super) fn took(&mut self, count: usize, sink: &mut Sink<'_>) {
        self.left -= count;
        self.length += count;
        self.end_fragment(sink);
    }

    /// Processes bytes of the stream, in pieces of any size.
    ///
    /// # Errors
    /// The reason why the connection must be closed.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        sink: &mut Sink<'_>,
    ) -> Result<(), &'static str> {
        while !bytes.is_empty() {
            if self.left == 0 {
                let count = bytes.len().min(4 - self.mark_length);
                self.mark[self.mark_length..][..count].copy_from_slice(&bytes[..count]);
                self.mark_length += count;
                bytes = &bytes[count..];
                if self.mark_length == 4 {
                    self.begin_fragment(sink)?;
                }
                continue;
            }
            let count = bytes.len().min(self.left);
            let kept = count.min(self.kept_max.saturating_sub(self.record.len()));
            self.record.extend_from_slice(&bytes[..kept]);
            self.length += count;
            self.left -= count;
            bytes = &bytes[count..];
            self.end_fragment(sink);
        }
        Ok(())
    }

    fn begin_fragment(&mut self, sink: &mut Sink<'_>) -> Result<(), &'static str> {
        let mark = u32::from_be_bytes(self.mark);
        self.mark_length = 0;
        self.is_last = mark & LAST != 0;
        self.left = (mark & !LAST) as usize;
        self.fragments += 1;
        if self.length + self.left > sink.bytes_max {
            return Err("the peer sent a record that is too long");
        }
        if self.fragments > FRAGMENTS_MAX {
            return Err("the peer sent a record in too many fragments");
        }
        if self.record.capacity() == 0
            && let Some(buffer) = sink.buffers.pop()
        {
            self.record = buffer;
        }
        if self.left == 0 {
            self.end_fragment(sink);
        }
        Ok(())
    }

    fn end_fragment(&mut self, sink: &mut Sink<'_>) {
        if self.left > 0 || !self.is_last {
            return;
        }
        self.is_last = false;
        (self.fragments, self.length) = (0, 0);
        let bytes = std::mem::take(&mut self.record);
        sink.inbox.push(bytes);
    }
}

/// The bit of a mark that is set if the fragment is the last of its record.
const LAST: u32 = 1 << 31;
/// The maximum number of fragments of a record. Common clients send records of one fragment.
const FRAGMENTS_MAX: u32 = 64;
/// The maximum number of bytes by which a buffer grows before bytes have arrived to fill it.
const DIRECT_BYTES_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(mut inbox: Inbox) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| inbox.pop()).collect()
    }

    fn records(stream: &[u8], cut: usize) -> Result<Vec<Vec<u8>>, &'static str> {
        let (mut inbox, mut buffers) = (Inbox::default(), Vec::new());
        let mut input = Input::default();
        assert!(input.kept_max() == 0 && input.keep(usize::MAX) && input.kept_max() == usize::MAX);
        for part in stream.chunks(cut) {
            let mut sink = Sink { inbox: &mut inbox, buffers: &mut buffers, bytes_max: 1000 };
            input.take(part, &mut sink)?;
        }
        assert!(!input.is_incomplete());
        Ok(all_of(inbox))
    }

    fn fragment(is_last: bool, bytes: &[u8]) -> Vec<u8> {
        let mark = bytes.len() as u32 | if is_last { LAST } else { 0 };
        [&mark.to_be_bytes(), bytes].concat()
    }

    #[test]
    fn records_are_the_same_however_the_stream_is_cut() {
        let stream = [
            fragment(true, b"one"),
            fragment(false, b"two "),
            fragment(false, b""),
            fragment(true, b"halves"),
            fragment(true, b""),
            fragment(true, &[7; 900]),
        ]
        .concat();
        for cut in 1..stream.len() {
            let found = records(&stream, cut).unwrap();
            assert_eq!(found[..3], [b"one".to_vec(), b"two halves".to_vec(), Vec::new()]);
            assert_eq!(found[3..], [vec![7; 900]]);
        }
    }

    #[test]
    fn long_records_and_endless_fragments_are_refused() {
        assert!(records(&fragment(true, &[0; 1001]), 4096).is_err());
        let halves = [fragment(false, &[0; 600]), fragment(true, &[0; 600])].concat();
        assert!(records(&halves, 7).is_err());
        assert!(records(&fragment(false, b"").repeat(65), 4096).is_err());
        assert!(records(&(u32::MAX.to_be_bytes()), 4).is_err());
    }

    #[test]
    fn a_long_fragment_can_be_read_into_its_record() {
        let (mut inbox, mut buffers) = (Inbox::default(), Vec::new());
        let mut sink = Sink { inbox: &mut inbox, buffers: &mut buffers, bytes_max: 1000 };
        let mut input = Input::default();
        input.keep(800);
        input.take(&fragment(true, &[5; 800])[..14], &mut sink).unwrap();
        assert!(input.direct(791).is_none());
        let (buffer, room) = input.direct(790).unwrap();
        assert_eq!(room, 790);
        buffer.extend_from_slice(&[5; 790]);
        assert!(input.is_incomplete());
        input.took(790, &mut sink);
        assert!(!input.is_incomplete());
        assert_eq!(all_of(inbox), [[5; 800]]);
    }

    #[test]
    fn the_end_of_a_record_is_dropped_if_it_is_not_wanted() {
        let stream = [fragment(false, &[1; 90]), fragment(true, &[2; 700]), fragment(true, b"one")];
        let stream = stream.concat();
        for cut in 1..stream.len() {
            let (mut inbox, mut buffers) = (Inbox::default(), Vec::new());
            let mut input = Input::default();
            input.keep(100);
            for part in stream.chunks(cut) {
                let mut sink = Sink { inbox: &mut inbox, buffers: &mut buffers, bytes_max: 1000 };
                assert!(input.direct(200).is_none());
                input.take(part, &mut sink).unwrap();
            }
            let first = [vec![1; 90], vec![2; 10]].concat();
            assert_eq!(all_of(inbox), [first, b"one".to_vec()]);
        }
        let (mut inbox, mut buffers) = (Inbox::default(), Vec::new());
        let mut sink = Sink { inbox: &mut inbox, buffers: &mut buffers, bytes_max: 1000 };
        let mut input = Input::default();
        input.keep(100);
        input.take(&fragment(true, &[5; 800])[..104], &mut sink).unwrap();
        assert!(input.keep(200) && input.keep(110), "nothing was dropped yet");
        input.take(&[5; 20], &mut sink).unwrap();
        assert!(input.keep(50) && !input.keep(51), "the record has lost bytes");
        // Bytes that are dropped count for the length of the record.
        assert!(input.take(&[5; 680], &mut sink).is_ok() && !input.is_incomplete());
        input.take(&fragment(false, &[5; 800]), &mut sink).unwrap();
        assert!(input.take(&fragment(true, &[5; 201]), &mut sink).is_err());
    }
}

//! Encodes short messages as differences from the previous message.
//!
//! A client that reads a file sends nearly the same request again and again; only a few words
//! differ: sequence number, offset, buffer. The cost of a message is the number of cache lines that
//! move between the cores. Encoded as a difference, such a request takes one line instead of three.
//!
//! Invariant: both ends keep a copy of the same message: the latest short message that took more
//! than one line or was sent as a difference. When a message is sent in any other way, the sender
//! forgets its copy, so that the next message is sent in full.

/// The copy of the latest short message that took more than one line.
#[derive(Debug)]
pub(super) struct Last {
    bytes: [u8; SHORT_BYTES_MAX],
    /// The length of the copied message in bytes; 0 if there is no copy.
    length: usize,
}

/// The error for a difference that cannot be applied to the copy on this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadDelta;

impl Last {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; SHORT_BYTES_MAX], length: 0 }
    }

    /// Forgets the copy, so that the next message cannot be a difference.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.length = 0;
    }

    /// Stores a message that is sent or received in full, which must be longer than one line and
    /// have at most [`SHORT_BYTES_MAX`] bytes. `fill` writes the message into the copy.
    #[inline]
    pub(super) fn refill(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> &[u8] {
        self.length = if length.is_multiple_of(8) { length } else { 0 };
        let bytes = &mut self.bytes[..length];
        fill(bytes);
        bytes
    }

    /// Stores a message. Returns its difference from the previously stored message if the
    /// difference fits in one line: first a mask of the eight-byte words that change, then their
    /// new values.
    #[inline]
    pub(super) fn advance(&mut self, message: &[u8]) -> Option<[u64; LINE_WORDS]> {
        if message.len() <= LINE_BODY_BYTES {
            return None;
        }
        let mut changes = u64::MAX;
        if message.len() == self.length {
            let pairs = self.bytes[..self.length].chunks_exact(8).zip(message.chunks_exact(8));
            changes = pairs.enumerate().fold(0, |changes, (index, (old, new))| {
                changes | u64::from(word_of(old) != word_of(new)) << index
            });
        }
        if changes.count_ones() as usize > CHANGES_MAX {
            self.refill(message.len(), |bytes| bytes.copy_from_slice(message));
            return None;
        }
        let mut line = [0; LINE_WORDS];
        line[0] = changes;
        for (word, at) in line[1..].iter_mut().zip(places(changes)) {
            *word = word_of(&message[at..at + 8]);
            self.bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        Some(line)
    }

    /// Reconstructs the next message from the result of [`Last::advance`]. `length` is the message
    /// length in the frame's header.
    #[inline]
    pub(super) fn apply(
        &mut self,
        line: &[u64; LINE_WORDS],
        length: usize,
    ) -> Result<&[u8], BadDelta> {
        let changes = line[0];
        let fits = length == self.length
            && length > 0
            && changes.count_ones() as usize <= CHANGES_MAX
            && (64 - changes.leading_zeros()) as usize <= length / 8;
        if !fits {
            return Err(BadDelta);
        }
        for (word, at) in line[1..].iter().zip(places(changes)) {
            self.bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        Ok(&self.bytes[..length])
    }
}

/// Returns the indexes of the bits that are set in a mask, in ascending order.
#[inline]
fn places(mut changes: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let word = (changes != 0).then(|| changes.trailing_zeros() as usize)?;
        changes &= changes - 1;
        Some(word * 8)
    })
}

#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

/// The maximum length in bytes of a message of which a copy is kept.
pub(super) const SHORT_BYTES_MAX: usize = 512;
/// The number of bytes in a cache line that follow a frame's header.
pub(super) const LINE_BODY_BYTES: usize = 56;
/// The number of eight-byte words in a cache line that follow a frame's header.
pub(super) const LINE_WORDS: usize = LINE_BODY_BYTES / 8;
/// The maximum number of changed words that fit in a line after the mask.
const CHANGES_MAX: usize = LINE_WORDS - 1;

const _: () = assert!(SHORT_BYTES_MAX / 8 <= 64, "the mask has a bit for each word");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_stay_alike_over_any_sequence_of_messages() {
        let (mut sender, mut receiver) = (Last::new(), Last::new());
        let mut state = 9u64;
        let mut message = vec![0u8; 160];
        let mut deltas = 0;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(77);
            if state >> 58 == 0 {
                message = vec![3; 40 + (state >> 40) as usize % 40 * 8];
            }
            for change in 1..(state >> 20) as usize % 9 {
                let length = message.len().max(1);
                if let Some(place) = message.get_mut((state >> 9) as usize * change % length) {
                    *place = (state >> 13) as u8;
                }
            }
            match sender.advance(&message) {
                Some(line) => {
                    deltas += 1;
                    assert_eq!(receiver.apply(&line, message.len()), Ok(&message[..]));
                }
                None if message.len() > LINE_BODY_BYTES => {
                    receiver.refill(message.len(), |bytes| bytes.copy_from_slice(&message));
                }
                None => {}
            }
        }
        assert!(deltas > 5000);
    }

    #[test]
    fn a_difference_from_nothing_or_beyond_the_message_is_refused() {
        let mut last = Last::new();
        let line = |changes: u64| {
            let mut line = [1; LINE_WORDS];
            line[0] = changes;
            line
        };
        assert_eq!(last.apply(&line(1), 160), Err(BadDelta));
        last.refill(160, |bytes| bytes.fill(0));
        assert_eq!(last.apply(&line(1), 168), Err(BadDelta));
        assert_eq!(last.apply(&line(1 << 20), 160), Err(BadDelta));
        assert_eq!(last.apply(&line(0xff), 160), Err(BadDelta));
        assert!(last.apply(&line(1 << 19), 160).is_ok());
    }
}

//! Short messages as differences from the one before.
//!
//! A client that reads a file sends the same request again and again but for a few
//! words: sequence number, offset, buffer. What crosses between the cores is what the
//! transfer costs, a cache line at a time; as a difference such a request takes one
//! line instead of three.
//!
//! Invariant: both ends keep the last short message that went by in full or as a
//! difference, and keep the same one: whatever goes by otherwise makes the sender
//! forget its copy, so that it sends the next one in full.

/// The last short message.
#[derive(Debug)]
pub struct Last {
    octets: [u8; SHORT_BYTES_MAX],
    /// Octets; 0 while there is none.
    length: usize,
}

/// A difference: which words of eight octets change, and what they become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    mask: u64,
    words: [u64; CHANGES_MAX],
}

/// A difference that fits no message this side has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadDelta;

impl Last {
    pub const fn new() -> Self {
        Self { octets: [0; SHORT_BYTES_MAX], length: 0 }
    }

    /// The next message cannot be a difference.
    pub fn forget(&mut self) {
        self.length = 0;
    }

    /// The message.
    #[inline]
    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.length]
    }

    /// Remembers a message of at most [`SHORT_BYTES_MAX`] octets that goes by in full.
    pub fn remember(&mut self, message: &[u8]) {
        self.length = if message.len().is_multiple_of(8) { message.len() } else { 0 };
        self.octets[..message.len()].copy_from_slice(message);
    }

    /// Remembers a message, and says how it differs from the one before if that is
    /// shorter than the message.
    #[inline]
    pub fn advance(&mut self, message: &[u8]) -> Option<Delta> {
        if message.len() != self.length || message.len() <= LINE_BODY_BYTES {
            self.remember(message);
            return None;
        }
        let mut mask = 0u64;
        let pairs = self.octets[..self.length].chunks_exact(8).zip(message.chunks_exact(8));
        for (index, (old, new)) in pairs.enumerate() {
            mask |= u64::from(word_of(old) != word_of(new)) << index;
        }
        let mut delta = Delta { mask, words: [0; CHANGES_MAX] };
        if mask.count_ones() as usize > CHANGES_MAX {
            self.remember(message);
            return None;
        }
        for word in &mut delta.words {
            if mask == 0 {
                break;
            }
            let at = mask.trailing_zeros() as usize * 8;
            mask &= mask - 1;
            let changed = &message[at..at + 8];
            self.octets[at..at + 8].copy_from_slice(changed);
            *word = word_of(changed);
        }
        Some(delta)
    }

    /// Makes the next message from a difference. `length` is what the frame says.
    #[inline]
    pub fn apply(&mut self, delta: &Delta, length: usize) -> Result<(), BadDelta> {
        let changes = delta.mask.count_ones() as usize;
        let fits = length == self.length
            && length > 0
            && changes <= CHANGES_MAX
            && (64 - delta.mask.leading_zeros()) as usize <= length / 8;
        if !fits {
            return Err(BadDelta);
        }
        let mut mask = delta.mask;
        for word in &delta.words[..changes] {
            let at = mask.trailing_zeros() as usize * 8;
            self.octets[at..at + 8].copy_from_slice(&word.to_ne_bytes());
            mask &= mask - 1;
        }
        Ok(())
    }
}

impl Delta {
    /// As it stands in a line behind the frame's header.
    #[inline]
    pub fn to_line(self) -> [u8; LINE_BODY_BYTES] {
        let mut line = [0; LINE_BODY_BYTES];
        let (mask, words) = line.split_at_mut(8);
        mask.copy_from_slice(&self.mask.to_ne_bytes());
        for (place, word) in words.chunks_exact_mut(8).zip(self.words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        line
    }

    /// Reads what [`Delta::to_line`] wrote.
    #[inline]
    pub fn from_line(line: &[u8; LINE_BODY_BYTES]) -> Self {
        let (mask, rest) = line.split_at(8);
        let mut words = [0; CHANGES_MAX];
        for (word, octets) in words.iter_mut().zip(rest.chunks_exact(8)) {
            *word = word_of(octets);
        }
        Self { mask: word_of(mask), words }
    }
}

#[inline]
fn word_of(octets: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(octets);
    u64::from_ne_bytes(word)
}

/// Longest message that is remembered.
pub const SHORT_BYTES_MAX: usize = 512;
/// Octets of a cache line behind a frame's header.
pub const LINE_BODY_BYTES: usize = 56;
/// Changed words that fit a line behind the mask.
const CHANGES_MAX: usize = LINE_BODY_BYTES / 8 - 1;

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
                message = vec![3; 64 + (state >> 40) as usize % 40 * 8];
            }
            for change in 1..(state >> 20) as usize % 9 {
                let length = message.len().max(1);
                if let Some(place) = message.get_mut((state >> 9) as usize * change % length) {
                    *place = (state >> 13) as u8;
                }
            }
            match sender.advance(&message) {
                Some(delta) => {
                    deltas += 1;
                    let delta = Delta::from_line(&delta.to_line());
                    receiver.apply(&delta, message.len()).unwrap();
                    assert_eq!(receiver.octets(), message);
                }
                None => receiver.remember(&message),
            }
        }
        assert!(deltas > 5000);
    }

    #[test]
    fn a_difference_from_nothing_or_beyond_the_message_is_refused() {
        let mut last = Last::new();
        let delta = |mask| Delta { mask, words: [1; CHANGES_MAX] };
        assert_eq!(last.apply(&delta(1), 160), Err(BadDelta));
        last.remember(&[0; 160]);
        assert_eq!(last.apply(&delta(1), 168), Err(BadDelta));
        assert_eq!(last.apply(&delta(1 << 20), 160), Err(BadDelta));
        assert_eq!(last.apply(&delta(0xff), 160), Err(BadDelta));
        assert_eq!(last.apply(&delta(1 << 19), 160), Ok(()));
    }
}

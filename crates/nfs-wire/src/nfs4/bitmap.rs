//! Bitmaps: sets of small numbers (RFC 8881 section 3.3.7).
//!
//! Invariant: a bitmap keeps the number of words with which it was decoded, so that it is encoded
//! as the same bytes again.

use crate::xdr::{Inline, Reader, Shape, Writer, Xdr, XdrError};

use super::limits::BITMAP_WORDS_MAX;

/// A set of numbers below 256: the numbers of attributes, operations, hints or notifications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bitmap(Inline<u32, BITMAP_WORDS_MAX>);

impl Bitmap {
    /// The smallest number that is too large for a bitmap.
    pub const BITS: u32 = 32 * BITMAP_WORDS_MAX as u32;

    /// Returns the set of these numbers. Numbers from [`Bitmap::BITS`] on are ignored.
    #[must_use]
    pub fn of(numbers: &[u32]) -> Self {
        Self::from_words(|word| {
            let bits = numbers.iter().filter(|&&number| (number / 32) as usize == word);
            bits.fold(0, |bits, number| bits | 1 << (number % 32))
        })
    }

    /// Returns the set of the numbers in the first three words.
    pub(super) fn from_array(words: [u32; 3]) -> Self {
        Self::from_words(|index| words.get(index).copied().unwrap_or(0))
    }

    /// Returns the word at this index; 0 if the bitmap has fewer words.
    #[must_use]
    pub fn word(&self, index: usize) -> u32 {
        self.0.get(index).copied().unwrap_or(0)
    }

    /// Returns true if the number is in the set.
    #[must_use]
    pub fn contains(&self, number: u32) -> bool {
        self.word((number / 32) as usize) >> (number % 32) & 1 == 1
    }

    /// Returns true if no number is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Returns the numbers that are in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self::from_words(|word| self.word(word) & other.word(word))
    }

    /// Returns the numbers that are in one of the sets, or in both.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self::from_words(|word| self.word(word) | other.word(word))
    }

    /// Returns the numbers that are in this set, but not in the other.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self::from_words(|word| self.word(word) & !other.word(word))
    }

    /// Returns the set with this number added.
    #[must_use]
    pub fn with(&self, number: u32) -> Self {
        self.or(&Self::of(&[number]))
    }

    /// Returns true if both sets contain the same numbers, even if they have different numbers of
    /// words.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.without(other).is_empty() && other.without(self).is_empty()
    }

    /// Returns the numbers in the set, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let words = *self;
        (0..Self::BITS).filter(move |&number| words.contains(number))
    }

    /// Returns the bitmap with these words, without zero words at the end.
    fn from_words(word: impl Fn(usize) -> u32) -> Self {
        let count = (0..BITMAP_WORDS_MAX).rev().find(|&index| word(index) != 0);
        let mut words = Inline::default();
        for index in 0..count.map_or(0, |last| last + 1) {
            words.push(word(index));
        }
        Self(words)
    }
}

impl<'b> Xdr<'b> for Bitmap {
    const LEAST: usize = 4;
    const SHAPE: &'static Shape = <Inline<u32, BITMAP_WORDS_MAX> as Xdr<'b>>::SHAPE;
    #[inline]
    fn decode(reader: &mut Reader<'b>) -> Result<Self, XdrError> {
        Inline::decode(reader).map(Self)
    }
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        self.0.encode(writer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{decode_whole, encode_whole};

    #[test]
    fn numbers_come_back_in_order() {
        let set = Bitmap::of(&[75, 1, 0, 33, 255, 256]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 1, 33, 75, 255]);
        assert_eq!(set.without(&Bitmap::of(&[255, 1])).iter().collect::<Vec<_>>(), [0, 33, 75]);
        assert_eq!(set.and(&Bitmap::of(&[33, 34])).iter().collect::<Vec<_>>(), [33]);
        assert_eq!(Bitmap::default().with(7), Bitmap::of(&[7]));
        assert!(Bitmap::of(&[]).is_empty());
    }

    #[test]
    fn zero_words_at_the_end_change_nothing() {
        let bytes = [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
        let long: Bitmap = decode_whole(&bytes).expect("a bitmap");
        assert!(long.is_same(&Bitmap::of(&[0])) && long != Bitmap::of(&[0]));
        assert_eq!(encode_whole(&long).expect("it has an encoding"), bytes);
    }

    #[test]
    fn too_many_words_are_refused() {
        let mut bytes = vec![0; 4 + 9 * 4];
        bytes[3] = 9;
        assert!(decode_whole::<Bitmap>(&bytes).is_err());
        bytes.truncate(4 + 8 * 4);
        bytes[3] = 8;
        assert!(decode_whole::<Bitmap>(&bytes).is_ok());
        bytes.truncate(4 + 7 * 4);
        assert!(decode_whole::<Bitmap>(&bytes).is_err());
    }
}

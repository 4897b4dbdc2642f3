//! Numbers as text of any length, as `sort -n` reads them: blanks, an optional minus sign, digits,
//! a decimal point and digits. Text that is not a number counts as zero.
//!
//! Invariant: numbers are compared digit by digit. There is no limit of length and no rounding.

use std::cmp::Ordering;

use super::line::is_blank;

/// The number at the start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number<'t> {
    is_negative: bool,
    /// The digits before the decimal point, without leading zeros.
    whole: &'t [u8],
    /// The digits after the decimal point, without trailing zeros.
    fraction: &'t [u8],
}

impl<'t> Number<'t> {
    fn read(text: &'t [u8]) -> Self {
        let first = text.iter().position(|byte| !is_blank(*byte)).unwrap_or(text.len());
        let text = &text[first..];
        let (is_negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            text => (false, text),
        };
        let (whole, rest) = digits(text);
        let fraction = if let [b'.', rest @ ..] = rest { digits(rest).0 } else { &[] };
        let first = whole.iter().position(|digit| *digit != b'0').unwrap_or(whole.len());
        let last = fraction.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
        let (whole, fraction) = (&whole[first..], &fraction[..last]);
        let is_zero = whole.is_empty() && fraction.is_empty();
        Self { is_negative: is_negative && !is_zero, whole, fraction }
    }

    fn compare_size(&self, other: &Self) -> Ordering {
        let by_length = self.whole.len().cmp(&other.whole.len());
        by_length.then_with(|| (self.whole, self.fraction).cmp(&(other.whole, other.fraction)))
    }
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len()))
}

/// Compares two texts as numbers.
pub(super) fn compare(left: &[u8], right: &[u8]) -> Ordering {
    let (left, right) = (Number::read(left), Number::read(right));
    match (left.is_negative, right.is_negative) {
        (false, false) => left.compare_size(&right),
        (true, true) => right.compare_size(&left),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
    }
}

/// Returns an integer that does not contradict [`compare`]. The integer contains the number of
/// digits before the decimal point and the first twelve digits.
pub(super) fn prefix(text: &[u8]) -> u64 {
    let number = Number::read(text);
    let mut size = (number.whole.len() as u64).min(WHOLE_DIGITS_MAX);
    let is_huge = size == WHOLE_DIGITS_MAX;
    let mut digits = number.whole.iter().chain(number.fraction);
    for _ in 0..PREFIX_DIGITS {
        let digit = digits.next().map_or(0, |digit| u64::from(digit - b'0'));
        size = size << 4 | if is_huge { 0 } else { digit };
    }
    if number.is_negative { MIDDLE - size } else { MIDDLE + size }
}

const MIDDLE: u64 = 1 << 63;
const PREFIX_DIGITS: usize = 12;
/// Numbers with at least this many digits before the decimal point share one prefix.
const WHOLE_DIGITS_MAX: u64 = (1 << 15) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_ordered_as_numbers() {
        let sorted: [&[u8]; 13] = [
            b"-100",
            b"-99.5",
            b" -1",
            b"-0.25",
            b"-0.2",
            b"-0",
            b"0.001",
            b"0.01x",
            b"1.5",
            b"1.50001",
            b"\t2",
            b"10",
            b"123456789012345678901234567890",
        ];
        for (at, left) in sorted.iter().enumerate() {
            for right in &sorted[at + 1..] {
                assert_eq!(compare(left, right), Ordering::Less, "{left:?} {right:?}");
                assert_eq!(compare(right, left), Ordering::Greater);
                assert!(prefix(left) <= prefix(right), "{left:?} {right:?}");
            }
        }
        for zero in [&b""[..], b"-", b"abc", b"-0.0", b"+1", b".", b"000"] {
            assert_eq!(compare(zero, b"0"), Ordering::Equal, "{zero:?}");
            assert_eq!(prefix(zero), prefix(b"0"));
        }
    }
}

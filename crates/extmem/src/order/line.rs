//! Orders lines of text byte by byte, as `sort` does with `LC_ALL=C`, by whole lines or by keys.
//!
//! Invariant: an option in the notation of `sort` has the same meaning as there. Options that are
//! not supported are refused.

use std::cmp::Ordering;
use std::str::FromStr;

use super::{Order, SpecificationError, leading, number, turned};

/// The order of lines of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineOrder {
    keys: Vec<TextKey>,
    /// The byte that separates fields. Without it, a field begins at a blank after a nonblank.
    pub separator: Option<u8>,
    /// The byte that ends a line.
    pub terminator: u8,
    is_reverse: bool,
    /// True to keep lines with equal keys in their order of arrival. Otherwise such lines are
    /// ordered by the whole line.
    pub is_stable: bool,
}

/// A part of a line by which lines are ordered: `FIELD[.BYTE][bnr][,FIELD[.BYTE][bnr]]`, counted
/// from 1, as in `sort -k`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextKey {
    start: Position,
    end: Option<Position>,
    options: Options,
}

/// A position in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    /// The number of fields before this position.
    field: usize,
    /// The number of bytes of the field before this position. For the end of a key, the number of
    /// bytes up to and including the position, or 0 for the whole field.
    byte: usize,
    /// True to skip blanks at the start of the field.
    skips_blanks: bool,
}

/// The options of comparing a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Options {
    is_number: bool,
    is_reverse: bool,
}

impl LineOrder {
    /// Creates an order by these keys, the most significant first, or by whole lines if there are
    /// none. `options` are letters of `sort`: b (skip leading blanks), n (numbers), r (reverse).
    /// They apply to keys without options of their own.
    ///
    /// # Errors
    /// [`SpecificationError`] for unknown letters.
    pub fn new(keys: &[TextKey], options: &str) -> Result<Self, SpecificationError> {
        let (given, skips_blanks) = read_options(options, options)?;
        let mut keys = keys.to_vec();
        if keys.is_empty() && (given.is_number || skips_blanks) {
            keys.push("1".parse()?);
        }
        for key in &mut keys {
            if key.has_no_options() {
                key.options = given;
                key.start.skips_blanks = skips_blanks;
                key.end = key.end.map(|end| Position { skips_blanks, ..end });
            }
        }
        let is_reverse = given.is_reverse;
        Ok(Self { keys, separator: None, terminator: b'\n', is_reverse, is_stable: false })
    }

    fn compare_keys(&self, left: &[u8], right: &[u8]) -> Ordering {
        for key in &self.keys {
            let [a, b] = [left, right].map(|line| key.of(line, self.separator));
            let ordering = if key.options.is_number { number::compare(a, b) } else { a.cmp(b) };
            if ordering.is_ne() {
                return turned(ordering, key.options.is_reverse);
            }
        }
        Ordering::Equal
    }
}

impl Order for LineOrder {
    fn prefix(&self, line: &[u8]) -> u64 {
        let Some(key) = self.keys.first() else {
            return if self.is_reverse { !leading(line) } else { leading(line) };
        };
        let text = key.of(line, self.separator);
        let prefix = if key.options.is_number { number::prefix(text) } else { leading(text) };
        if key.options.is_reverse { !prefix } else { prefix }
    }

    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        let by_keys = self.compare_keys(left, right);
        // Without keys, the whole line is the key.
        if by_keys.is_ne() || (self.is_stable && !self.keys.is_empty()) {
            return by_keys;
        }
        turned(left.cmp(right), self.is_reverse)
    }

    fn is_same(&self, left: &[u8], right: &[u8]) -> bool {
        if self.keys.is_empty() { left == right } else { self.compare_keys(left, right).is_eq() }
    }
}

impl TextKey {
    fn has_no_options(&self) -> bool {
        let skips = |position: &Position| position.skips_blanks;
        self.options == Options::default()
            && !skips(&self.start)
            && !self.end.as_ref().is_some_and(skips)
    }

    /// Returns the key of a line.
    fn of<'l>(&self, line: &'l [u8], separator: Option<u8>) -> &'l [u8] {
        let start = self.start.of_start(line, separator);
        let end = self.end.map_or(line.len(), |end| end.of_end(line, separator));
        &line[start..end.max(start)]
    }
}

impl Position {
    fn of_start(&self, line: &[u8], separator: Option<u8>) -> usize {
        let mut at = 0;
        for _ in 0..self.field {
            at = field_end(line, at, separator);
            if separator.is_some() && at < line.len() {
                at += 1;
            }
        }
        if self.skips_blanks {
            at = blanks_end(line, at);
        }
        at.saturating_add(self.byte).min(line.len())
    }

    fn of_end(&self, line: &[u8], separator: Option<u8>) -> usize {
        let is_whole = self.byte == 0;
        let mut at = 0;
        for left in (0..self.field + usize::from(is_whole)).rev() {
            at = field_end(line, at, separator);
            // Skip the separator, unless the field before it is the last one of the key.
            if separator.is_some() && at < line.len() && (left > 0 || !is_whole) {
                at += 1;
            }
        }
        if is_whole {
            return at;
        }
        if self.skips_blanks {
            at = blanks_end(line, at);
        }
        at.saturating_add(self.byte).min(line.len())
    }
}

/// Returns the end of the field that begins at `at`, including its leading blanks.
fn field_end(line: &[u8], at: usize, separator: Option<u8>) -> usize {
    let from = if separator.is_some() { at } else { blanks_end(line, at) };
    let ends = |byte: &u8| separator.map_or_else(|| is_blank(*byte), |end| *byte == end);
    line[from..].iter().position(ends).map_or(line.len(), |length| from + length)
}

fn blanks_end(line: &[u8], at: usize) -> usize {
    line[at..].iter().position(|byte| !is_blank(*byte)).map_or(line.len(), |count| at + count)
}

/// True if a byte separates fields. Lines with another terminator may contain newlines.
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n')
}

fn read_options(letters: &str, whole: &str) -> Result<(Options, bool), SpecificationError> {
    let (mut options, mut skips_blanks) = (Options::default(), false);
    for letter in letters.chars() {
        match letter {
            'b' => skips_blanks = true,
            'n' => options.is_number = true,
            'r' => options.is_reverse = true,
            other => {
                let what = format!("{other:?} is none of the letters b, n and r");
                return Err(SpecificationError { text: whole.to_owned(), what });
            }
        }
    }
    Ok((options, skips_blanks))
}

impl FromStr for TextKey {
    type Err = SpecificationError;

    fn from_str(text: &str) -> Result<Self, SpecificationError> {
        let (start, end) = match text.split_once(',') {
            Some((start, end)) => (start, Some(end)),
            None => (text, None),
        };
        let (start, mut options) = read_position(start, text, true)?;
        let end = match end {
            Some(end) => {
                let (end, more) = read_position(end, text, false)?;
                options.is_number |= more.is_number;
                options.is_reverse |= more.is_reverse;
                Some(end)
            }
            None => None,
        };
        Ok(Self { start, end, options })
    }
}

fn read_position(
    part: &str,
    whole: &str,
    is_start: bool,
) -> Result<(Position, Options), SpecificationError> {
    let wrong = |what: &str| SpecificationError { text: whole.to_owned(), what: what.to_owned() };
    let letters = part.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(part.len());
    let (place, letters) = part.split_at(letters);
    let (field, byte) = match place.split_once('.') {
        Some((field, byte)) => (field, Some(byte)),
        None => (place, None),
    };
    let form = "write FIELD[.BYTE][bnr][,FIELD[.BYTE][bnr]], such as 2,2n";
    let field: usize = field.parse().map_err(|_| wrong(form))?;
    let byte: Option<usize> = byte.map(str::parse).transpose().map_err(|_| wrong(form))?;
    if field == 0 {
        return Err(wrong("fields are counted from 1"));
    }
    let byte = match (byte, is_start) {
        (Some(0), true) => return Err(wrong("bytes of a field are counted from 1")),
        (Some(byte), true) => byte - 1,
        (byte, _) => byte.unwrap_or(0),
    };
    let (options, skips_blanks) = read_options(letters, whole)?;
    Ok((Position { field: field - 1, byte, skips_blanks }, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> TextKey {
        text.parse().unwrap()
    }

    #[test]
    fn fields_are_those_of_sort() {
        let line = b"  one two  three";
        let of = |text: &str| String::from_utf8(key(text).of(line, None).to_vec()).unwrap();
        assert_eq!(of("2"), " two  three");
        assert_eq!(of("2,2"), " two");
        assert_eq!(of("2b,2"), "two");
        assert_eq!(of("1,1"), "  one");
        assert_eq!(of("3.2,3.4"), " th");
        assert_eq!(of("3b,3.3b"), "thr");
        assert_eq!(of("9"), "");
        assert_eq!(of("2,1"), "");
        let line = b"a::bc:d";
        let of = |text: &str| String::from_utf8(key(text).of(line, Some(b':')).to_vec()).unwrap();
        assert_eq!(
            (of("1,1"), of("2,2"), of("3,3"), of("4")),
            ("a".into(), "".into(), "bc".into(), "d".into())
        );
        assert_eq!(
            (of("3.2,3.2"), of("2,3"), of("1,3.1")),
            ("c".into(), ":bc".into(), "a::b".into())
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, what) in
            [("0", "from 1"), ("1.0", "from 1"), ("x", "such as"), ("1,", "such as"), ("1g", "'g'")]
        {
            let error = text.parse::<TextKey>().unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
        assert!(LineOrder::new(&[], "nV").is_err());
    }

    #[test]
    fn options_of_all_hold_for_keys_without_any() {
        let order = LineOrder::new(&[key("1,1"), key("2,2r")], "n").unwrap();
        assert_eq!(order.compare(b"9 b", b"10 a"), Ordering::Less);
        assert_eq!(order.compare(b"9 b", b"9 a"), Ordering::Less);
        assert!(order.is_same(b"09 a", b"9 a"));
        let stable = LineOrder { is_stable: true, ..LineOrder::new(&[key("1,1")], "").unwrap() };
        assert_eq!(stable.compare(b"a 1", b"a 2"), Ordering::Equal);
        assert!(stable.prefix(b"a 1") == stable.prefix(b"a 2"));
    }
}

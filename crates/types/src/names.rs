//! Translates file names between their bytes and the strings in messages.
//!
//! A name consists of bytes, of which Linux forbids only `/` and NUL. A string of DAFS 1.0 is
//! UTF-8. [`to_wire`] and [`from_wire`] translate between the two (`docs/spec/names.md`):
//!
//! - A name that is UTF-8 and contains none of the code points U+EF80 to U+EFFF is its own
//!   encoding.
//! - Each byte that belongs to no valid UTF-8 sequence is encoded as the code point U+EF00 plus the
//!   byte's value. Each of the three bytes of a code point from U+EF80 to U+EFFF is encoded in the
//!   same way.
//!
//! Invariant: each name has exactly one encoding, and no two names have the same encoding. A string
//! that is not the encoding of any name is refused.
//!
//! Slashes are not changed, so that a whole path can be translated at once.

use std::borrow::Cow;

/// The error for a string that is not the encoding of any name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the string has an escaped byte (U+EF80 to U+EFFF) in a place where no encoded name has one"
)]
pub struct NotAName;

/// Encodes a name or a path for a message.
#[must_use]
pub fn to_wire(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if !may_have_escapes(text) => Cow::Borrowed(text),
        _ => Cow::Owned(escape(name)),
    }
}

/// Decodes a name or a path from a message.
///
/// # Errors
/// [`NotAName`] if this string is not the result of [`to_wire`] for any name.
pub fn from_wire(text: &str) -> Result<Cow<'_, [u8]>, NotAName> {
    if !may_have_escapes(text) {
        return Ok(Cow::Borrowed(text.as_bytes()));
    }
    let mut name = Vec::with_capacity(text.len());
    for character in text.chars() {
        match escaped_byte(character) {
            Some(byte) => name.push(byte),
            None => name.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    // Any other string would be a second encoding of the same name.
    if escape(&name) == text { Ok(Cow::Owned(name)) } else { Err(NotAName) }
}

/// Returns the length in bytes of the name that a string in a message encodes.
#[must_use]
pub fn length_of_wire(text: &str) -> usize {
    if !may_have_escapes(text) {
        return text.len();
    }
    let escapes = text.chars().filter(|character| escaped_byte(*character).is_some()).count();
    text.len() - escapes * (ESCAPE_BYTES - 1)
}

/// Returns a name or a path for people to read, with bytes that are not UTF-8 written as `\xff`.
/// The result may contain control characters and cannot be converted back.
#[must_use]
pub fn shown(name: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(name) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(name.len() * 2);
    for chunk in name.utf8_chunks() {
        shown.push_str(chunk.valid());
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    Cow::Owned(shown)
}

/// The number of bytes that one escaped byte takes in a message.
pub const ESCAPE_BYTES: usize = 3;

/// The first UTF-8 byte of all code points from U+EF80 to U+EFFF, and of few other code points.
const LEAD: u8 = 0xee;
/// The difference between the code point that encodes an escaped byte and the byte's value.
const BASE: u32 = 0xef00;

fn may_have_escapes(text: &str) -> bool {
    text.as_bytes().contains(&LEAD)
}

/// Returns the byte that a code point encodes. `None` if it does not encode an escaped byte.
fn escaped_byte(character: char) -> Option<u8> {
    let byte = u32::from(character).checked_sub(BASE)?;
    u8::try_from(byte).ok().filter(|byte| !byte.is_ascii())
}

fn escape(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len() * ESCAPE_BYTES);
    let spell = |text: &mut String, bytes: &[u8]| {
        let points = bytes.iter().map(|byte| BASE + u32::from(*byte));
        // None of these numbers is a surrogate.
        text.extend(points.filter_map(char::from_u32));
    };
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match escaped_byte(character) {
                Some(_) => spell(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes()),
                None => text.push(character),
            }
        }
        spell(&mut text, chunk.invalid());
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::{NAME_BYTES_MAX, NAME_WIRE_BYTES_MAX};

    #[test]
    fn a_name_of_utf8_stands_for_itself() {
        for name in ["plain", "größe", "日本", "🦀", "\u{e000}\u{ef7f}\u{f000}", "a\\xff%ff"]
        {
            assert_eq!(to_wire(name.as_bytes()), name);
            assert_eq!(&*from_wire(name).unwrap(), name.as_bytes());
        }
    }

    #[test]
    fn bytes_that_are_no_utf8_are_escaped_one_by_one() {
        assert_eq!(to_wire(b"caf\xe9"), "caf\u{efe9}");
        assert_eq!(to_wire(b"\xff/\x80"), "\u{efff}/\u{ef80}");
        // An encoded surrogate; and the first byte of a sequence that does not continue.
        assert_eq!(to_wire(b"\xed\xa0\x80"), "\u{efed}\u{efa0}\u{ef80}");
        assert_eq!(to_wire("\u{e9}".as_bytes().split_at(1).0), "\u{efc3}");
    }

    #[test]
    fn the_code_points_of_escapes_are_escaped_themselves() {
        let wire = to_wire("\u{ef80}".as_bytes()).into_owned();
        assert_eq!(wire, "\u{efee}\u{efbe}\u{ef80}");
        assert_eq!(from_wire(&wire).unwrap(), "\u{ef80}".as_bytes());
    }

    #[test]
    fn a_string_that_no_name_is_written_as_is_refused() {
        // "é" in escapes: the name has a shorter encoding, which is the only valid one.
        assert_eq!(from_wire("\u{efc3}\u{efa9}"), Err(NotAName));
        // An escaped byte that together with the next bytes forms a valid sequence.
        assert_eq!(from_wire("\u{efe2}\u{ef82}\u{efac}"), Err(NotAName));
        assert_eq!(&*from_wire("x\u{efc3}y").unwrap(), b"x\xc3y");
    }

    #[test]
    fn shown_names_spell_out_what_is_no_utf8() {
        assert_eq!(shown("ü".as_bytes()), "ü");
        assert_eq!(shown(b"caf\xe9.txt"), "caf\\xe9.txt");
    }

    /// Generates names with many byte sequences that are almost UTF-8.
    fn names() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => any::<u8>().prop_map(|byte| vec![byte]),
            1 => any::<char>().prop_map(|character| character.to_string().into_bytes()),
            2 => (0xef80_u32..=0xefff).prop_map(|point| {
                char::from_u32(point).unwrap_or('x').to_string().into_bytes()
            }),
            1 => prop::sample::select(vec![
                &b"\xee"[..], b"\xee\xbe", b"\xee\xbf\xbf", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90",
            ]).prop_map(<[u8]>::to_vec),
        ];
        let bytes = prop::collection::vec(piece, 1..=NAME_BYTES_MAX).prop_map(|pieces| {
            let mut name = pieces.concat();
            name.truncate(NAME_BYTES_MAX);
            name
        });
        bytes.prop_map(|mut name| {
            name.iter_mut().filter(|byte| matches!(byte, 0 | b'/')).for_each(|byte| *byte = b'_');
            name
        })
    }

    proptest! {
        #[test]
        fn every_name_comes_back_from_the_wire(name in names()) {
            let wire = to_wire(&name).into_owned();
            prop_assert!(wire.len() <= NAME_WIRE_BYTES_MAX);
            prop_assert_eq!(length_of_wire(&wire), name.len());
            prop_assert_eq!(from_wire(&wire).unwrap(), name);
        }

        /// Checks that no two strings encode the same name: a string that can be decoded is the
        /// encoding of the resulting name.
        #[test]
        fn every_string_is_the_one_form_of_its_name_or_none(text in "[a\u{e9}\u{ef80}-\u{efff}]*") {
            if let Ok(name) = from_wire(&text) {
                prop_assert_eq!(&*to_wire(&name), &*text);
            }
        }

        /// Checks that a path can be encoded as a whole or name by name, with the same result.
        #[test]
        fn slashes_stay_where_they_are(first in names(), second in names()) {
            let path = [first.as_slice(), &second].join(&b'/');
            let whole = to_wire(&path).into_owned();
            prop_assert_eq!(whole, format!("{}/{}", to_wire(&first), to_wire(&second)));
        }
    }
}

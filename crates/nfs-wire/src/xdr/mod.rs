//! XDR (RFC 4506): decodes and encodes values, and declares types that have an encoding.
//!
//! Invariant: a value that `decode` returns is encoded as the same bytes again, except for padding.
//! Decoding accepts any padding bytes, as the Linux kernel does. Encoding writes zeros as padding.
//!
//! # Declaring types
//! The macro `xdr!` declares types and derives everything from the declaration. Types that borrow
//! from the message have the lifetime `'b`.
//!
//! ```ignore
//! xdr! {
//!     /// A structure: its fields are encoded one after the other.
//!     struct Entry<'b> {
//!         /// Every field has a comment, too.
//!         name: Opaque<'b, 255>,
//!         next: Option<NfsTime3>,
//!     }
//!     /// A closed enumeration. An unknown number is an error.
//!     enum Kind { Regular = 1, Directory = 2 }
//!     /// A bit mask; unknown bits are kept.
//!     flags Access: u32 { READ = 1, LOOKUP = 2 }
//!     /// A union over an enumeration: number of `Kind`, Rust variant, content.
//!     union Data<'b> on Kind { Regular => File(Entry<'b>), Directory => Nothing }
//!     /// A union over a number. `_` takes all other numbers; its variant keeps the number.
//!     union Answer on u32 { 0 => Done(u64), 1 => Empty, _ => Failed(WccData) }
//! }
//! ```
//! Without a `_` arm, a discriminant that is not listed is an error.

mod declare;
mod error;
mod reader;
mod shape;
mod values;
mod writer;

pub(crate) use declare::{bind, content, declare_union, otherwise, union_arms, xdr};
pub use error::XdrError;
pub use reader::{Place, Reader};
pub use shape::{Layout, Shape};
pub use values::{Chain, Inline, List, Opaque, PAYLOAD_BYTES_MAX, Payload};
pub use writer::{Mark, PAYLOADS_MAX, Piece, Slot, Writer};

/// A type whose values can be encoded as XDR and decoded from a message. Decoded values may borrow
/// from the message.
pub trait Xdr<'b>: Sized {
    /// The minimum number of bytes of an encoded value. Before memory for a list is allocated, the
    /// count of its items is checked against this number.
    const LEAST: usize;
    /// The description of the encoding, for documents and for the generator of test messages.
    const SHAPE: &'static Shape;

    /// Decodes a value at the reader's position.
    ///
    /// # Errors
    /// If the bytes are not an encoded value of this type; see [`XdrError`].
    fn decode(reader: &mut Reader<'b>) -> Result<Self, XdrError>;

    /// Appends the encoded value. If the value exceeds a bound, this sets the writer's fault.
    fn encode(&self, writer: &mut Writer);
}

/// Decodes a value that must take up all of the bytes.
///
/// # Errors
/// If the bytes are not an encoded value, or if bytes follow it.
pub fn decode_whole<'b, T: Xdr<'b>>(bytes: &'b [u8]) -> Result<T, XdrError> {
    let mut reader = Reader::new(bytes);
    let value = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

/// Encodes a value without external payloads into a new buffer. Use this for values that are small
/// or rare.
///
/// # Errors
/// If the value exceeds a bound, or if it has an external payload.
pub fn encode_whole<'b, T: Xdr<'b>>(value: &T) -> Result<Vec<u8>, XdrError> {
    let mut writer = Writer::new();
    value.encode(&mut writer);
    writer.contiguous().map(<[u8]>::to_vec)
}

/// Returns the number of zero bytes that follow `length` bytes of an opaque value.
#[must_use]
#[inline]
pub const fn padding(length: usize) -> usize {
    length.wrapping_neg() & 3
}

#[cfg(test)]
mod tests {
    #![allow(unreachable_pub, dead_code, reason = "the macro declares public types")]

    use super::*;

    xdr! {
        /// A structure for the tests below.
        #[derive(Copy)]
        struct Pair<'b> {
            /// A name of at most eight bytes.
            name: Opaque<'b, 8>,
            /// A number that may be missing.
            number: Option<u64>,
        }
        /// An enumeration for the tests below.
        enum Kind {
            /// The first kind.
            One = 1,
            /// The second kind.
            Two = 2,
            /// The third kind.
            Three = 3,
        }
        /// Bits for the tests below.
        flags Bits: u32 {
            /// The first bit.
            A = 1,
            /// The second bit.
            B = 2,
        }
        /// A union over an enumeration.
        union Choice<'b> on Kind {
            /// An arm with content.
            One => Named(Pair<'b>),
            /// An arm without content.
            Two => Nothing,
            /// All other arms.
            _ => Other(Bits),
        }
        /// A union over a number, with data.
        union Data<'b> on u32 {
            /// Data and a number behind it.
            0 => Read(Payload<'b>),
            /// An arm without content.
            7 => Nothing,
        }
        /// Data between other values.
        struct Around<'b> {
            /// A number before the data.
            before: u32,
            /// The data itself.
            data: Payload<'b>,
            /// A number behind the data.
            behind: u32,
        }
    }

    #[test]
    fn a_union_is_encoded_as_its_number_and_content() {
        let pair = Pair { name: Opaque(b"abcde"), number: Some(9) };
        let bytes = encode_whole(&Choice::Named(pair)).unwrap();
        let expected = [
            0, 0, 0, 1, 0, 0, 0, 5, b'a', b'b', b'c', b'd', b'e', 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0,
            0, 0, 0, 9,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(decode_whole::<Choice<'_>>(&bytes), Ok(Choice::Named(pair)));
        for cut in 0..bytes.len() {
            assert!(decode_whole::<Choice<'_>>(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let other = Choice::Other(Kind::Three, Bits::A | Bits::B);
        assert_eq!(encode_whole(&other).unwrap(), [0, 0, 0, 3, 0, 0, 0, 3]);
        // The arm for all others cannot stand for an arm of its own.
        let wrong = Choice::Other(Kind::Two, Bits::A);
        assert_eq!(encode_whole(&wrong), Err(XdrError::Value { kind: "Choice", value: 2 }));
        assert_eq!(
            decode_whole::<Choice<'_>>(&[0, 0, 0, 4]),
            Err(XdrError::Value { kind: "Kind", value: 4 })
        );
        assert_eq!(
            decode_whole::<Data<'_>>(&[0, 0, 0, 1]),
            Err(XdrError::Value { kind: "Data", value: 1 })
        );
    }

    #[test]
    fn a_payload_leaves_a_gap_with_its_padding_behind_it() {
        let mut writer = Writer::new();
        Around { before: 1, data: Payload::Elsewhere(5), behind: 2 }.encode(&mut writer);
        assert_eq!(writer.length(), 4 + 4 + 8 + 4);
        let pieces: Vec<_> = writer.pieces().collect();
        let head: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 5];
        let tail: &[u8] = &[0, 0, 0, 0, 0, 0, 2];
        assert_eq!(pieces, [Piece::Bytes(head), Piece::Payload(5), Piece::Bytes(tail)]);
        assert_eq!(writer.contiguous(), Err(XdrError::Elsewhere));
    }

    #[test]
    fn a_payload_is_found_before_it_arrives() {
        let data = [7; 10];
        let value = Around { before: 1, data: Payload::Here(&data), behind: 2 };
        let bytes = encode_whole(&value).unwrap();
        for arrived in 0..bytes.len() {
            let mut reader = Reader::partial(&bytes[..arrived], bytes.len());
            let before = u32::decode(&mut reader);
            if arrived < 8 {
                assert!(reader.payload().is_err());
                continue;
            }
            assert_eq!(before, Ok(1));
            let payload = reader.payload().unwrap();
            if arrived >= 20 {
                assert_eq!(payload, Payload::Here(&data));
                continue;
            }
            assert_eq!(payload, Payload::Elsewhere(10));
            assert_eq!(reader.place(), Some(Place { start: 8, length: 10 }));
            assert_eq!(reader.u32(), Err(XdrError::Absent));
            // Later the rest is there, and the data is where it was received.
            let missing = 18usize.saturating_sub(arrived);
            let tail = &bytes[arrived + missing..];
            let mut reader = Reader::around(&bytes[..arrived], missing, tail);
            let again = Around::decode(&mut reader).unwrap();
            assert_eq!(again, Around { before: 1, data: Payload::Elsewhere(10), behind: 2 });
            assert_eq!(reader.finish(), Ok(()));
        }
    }

    #[test]
    fn counts_that_lie_allocate_nothing() {
        let bytes = [0, 0, 0xff, 0xff, 0, 0, 0, 1];
        assert_eq!(
            decode_whole::<List<u32, 0x10000>>(&bytes),
            Err(XdrError::Short { needed: 4 * 0xffff, left: 4 })
        );
        assert_eq!(
            decode_whole::<List<u32, 8>>(&bytes),
            Err(XdrError::TooMany { count: 0xffff, bound: 8 })
        );
        assert_eq!(
            decode_whole::<Opaque<'_, 8>>(&[0xff; 8]),
            Err(XdrError::TooMany { count: 0xffff_ffff, bound: 8 })
        );
        assert!(decode_whole::<bool>(&[0, 0, 0, 2]).is_err());
        let chain = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
        let error = decode_whole::<Chain<(), 2>>(&chain);
        assert_eq!(error, Err(XdrError::TooMany { count: 3, bound: 2 }));
    }

    #[test]
    fn a_limit_stops_the_writer_and_a_mark_restores_it() {
        let mut writer = Writer::new();
        writer.set_limit(8);
        writer.u32(1);
        let mark = writer.mark();
        writer.u64(2);
        writer.u32(3);
        assert_eq!(writer.fault(), Some(XdrError::Limit(8)));
        assert_eq!(writer.length(), 4);
        writer.rewind(mark);
        writer.u32(3);
        assert_eq!(writer.contiguous(), Ok(&[0, 0, 0, 1, 0, 0, 0, 3][..]));
    }

    #[test]
    fn a_declaration_describes_itself() {
        let layout = Layout(<Choice<'_> as Xdr<'_>>::SHAPE).to_string();
        assert_eq!(layout, "Choice: Kind, then 1 Named Pair, 2 Nothing void, else Other Bits");
        let layout = Layout(<Pair<'_> as Xdr<'_>>::SHAPE).to_string();
        assert_eq!(layout, "Pair: name up to 8 bytes, number optional u64");
    }
}

//! The private data that applications exchange while a connection is established.
//!
//! InfiniBand's connection manager has fields of fixed size for private data and pads them with
//! zeros. So this module stores the length and a mark in the last two bytes of a field. iWARP
//! transmits the length itself, and the data is sent unchanged.
//!
//! Invariant: unpacking packed data returns the same bytes. Data that this provider has not packed
//! is returned unchanged.

/// The number of bytes of private data that every device can carry in a connection request. A reply
/// can carry more.
pub(super) const REQUEST_BYTES_MAX: usize = REQUEST_FIELD - TRAILER_BYTES;
/// The connection message that carries the private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Request,
    Reply,
    Rejection,
}

impl Word {
    /// Returns the size of the field in bytes.
    const fn field(self) -> usize {
        match self {
            Word::Request => REQUEST_FIELD,
            Word::Reply => REPLY_FIELD,
            Word::Rejection => REJECTION_FIELD,
        }
    }

    /// Packs private data for transmission. Returns `None` if it is too long.
    pub(super) fn pack(self, is_iwarp: bool, words: &[u8]) -> Option<Vec<u8>> {
        let room = self.field() - TRAILER_BYTES;
        let length = u8::try_from(words.len()).ok().filter(|_| words.len() <= room)?;
        let mut packed = words.to_vec();
        if !is_iwarp {
            packed.resize(room, 0);
            packed.extend([length, MARK]);
        }
        Some(packed)
    }
}

/// Returns the private data in a field, and true if it was packed by this provider.
pub(super) fn unpack(is_iwarp: bool, field: &[u8]) -> (Box<[u8]>, bool) {
    if !is_iwarp
        && let [words @ .., length, MARK] = field
        && let Some(words) = words.get(..usize::from(*length))
    {
        return (words.into(), true);
    }
    (field.into(), false)
}

/// The number of bytes that InfiniBand's connection manager leaves to applications that use IP
/// addresses.
const REQUEST_FIELD: usize = 56;
const REPLY_FIELD: usize = 196;
const REJECTION_FIELD: usize = 148;
/// The number of bytes for the length and the mark.
const TRAILER_BYTES: usize = 2;
const MARK: u8 = 0xda;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_length() {
        for word in [Word::Request, Word::Reply, Word::Rejection] {
            let room = word.field() - TRAILER_BYTES;
            for is_iwarp in [false, true] {
                for length in [0, 1, 16, room] {
                    let words = vec![7; length];
                    let packed = word.pack(is_iwarp, &words).unwrap();
                    assert_eq!(packed.len(), if is_iwarp { length } else { word.field() });
                    assert_eq!(unpack(is_iwarp, &packed), (words.into(), !is_iwarp));
                }
                assert_eq!(word.pack(is_iwarp, &vec![7; room + 1]), None);
            }
        }
    }

    #[test]
    fn what_others_say_comes_as_it_is() {
        for field in [&b""[..], b"x", &[0; 56], &[1; 196], &[200, MARK], &[9, 9, 9, MARK]] {
            assert_eq!(unpack(false, field), (field.into(), false));
        }
    }
}

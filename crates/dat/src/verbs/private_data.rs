//! The applications' own words while a connection is made.
//!
//! InfiniBand's connection manager has fields of fixed size for them, which come filled up with
//! zeros: the last two bytes of a field say how long the words are. Over iWARP words have their
//! length, and travel as they are.
//!
//! Invariant: what was packed is unpacked to the same bytes; what was not packed by us comes
//! out as it is.

/// Bytes of the application's that every device takes along with a connection request. More go
/// along with the answer.
pub const REQUEST_BYTES_MAX: usize = REQUEST_FIELD - TRAILER_BYTES;
/// Which words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Request,
    Reply,
    Rejection,
}

impl Word {
    /// Bytes of the field.
    const fn field(self) -> usize {
        match self {
            Word::Request => REQUEST_FIELD,
            Word::Reply => REPLY_FIELD,
            Word::Rejection => REJECTION_FIELD,
        }
    }

    /// Words as they travel. `None` if they are too long.
    pub fn pack(self, is_iwarp: bool, words: &[u8]) -> Option<Vec<u8>> {
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

/// What was packed, and whether it was.
pub fn unpack(is_iwarp: bool, field: &[u8]) -> (Box<[u8]>, bool) {
    if !is_iwarp
        && let [words @ .., length, MARK] = field
        && let Some(words) = words.get(..usize::from(*length))
    {
        return (words.into(), true);
    }
    (field.into(), false)
}

/// Bytes that InfiniBand's connection manager leaves to users of IP addresses.
const REQUEST_FIELD: usize = 56;
const REPLY_FIELD: usize = 196;
const REJECTION_FIELD: usize = 148;
/// The length, and a mark.
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

//! The layout of state ids in messages.
//!
//! The twelve bytes after the sequence number contain the number of the server's run (the epoch),
//! the kind of the state, and the generation and index of the state in its table:
//!
//! ```text
//! 0        4  2 bits  30 bits        8          12
//! ├─ epoch ─┼─ kind ─┼─ generation ──┼── index ──┤
//! ```

use dafs_base::Key;

use super::view::StateKind;
use crate::keys::StateKey;

/// A state id in a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stateid4 {
    /// The number of changes of the state. 0 in a request stands for the newest number.
    pub sequence: u32,
    /// The bytes that identify the state.
    pub other: [u8; 12],
}

impl Stateid4 {
    /// The special state id of a caller that has no open.
    pub const ANONYMOUS: Self = Self { sequence: 0, other: [0; 12] };
    /// The special state id of a caller that has no open and ignores the locks of other owners.
    pub const BYPASS: Self = Self { sequence: u32::MAX, other: [0xff; 12] };
    /// The special state id that stands for the compound's current state id.
    pub const CURRENT: Self = Self { sequence: 1, other: [0; 12] };
    /// A state id that is never valid, for the result of CLOSE.
    pub const INVALID: Self = Self { sequence: u32::MAX, other: [0; 12] };
}

/// The meaning of a special state id, which names no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpecialId {
    /// [`Stateid4::ANONYMOUS`], which needs no open.
    Anonymous,
    /// [`Stateid4::BYPASS`], which ignores the locks of other owners.
    Bypass,
    /// [`Stateid4::CURRENT`], which must be replaced by the compound's current state id.
    Current,
    /// [`Stateid4::INVALID`], and other ids that no server creates.
    Invalid,
}

/// The result of decoding a state id. Whether the state exists is not checked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Special(SpecialId),
    State { epoch: u32, tag: u8, key: StateKey },
}

impl Stateid4 {
    /// Creates the id of a state.
    pub(crate) fn new(epoch: u32, kind: StateKind, key: StateKey, sequence: u32) -> Self {
        let mut other = [0; 12];
        other[..4].copy_from_slice(&epoch.to_be_bytes());
        let word = u64::from(kind.tag()) << TAG_SHIFT | key.0.to_bits();
        other[4..].copy_from_slice(&word.to_be_bytes());
        Self { sequence, other }
    }

    /// Decodes the id. Does not check whether the state exists.
    pub(crate) fn named(&self) -> Named {
        let special = |id| Named::Special(id);
        match (self.other, self.sequence) {
            (ZEROS, 0) => return special(SpecialId::Anonymous),
            (ZEROS, 1) => return special(SpecialId::Current),
            (ONES, u32::MAX) => return special(SpecialId::Bypass),
            (ZEROS | ONES, _) => return special(SpecialId::Invalid),
            _ => {}
        }
        let mut words = [0; 12];
        words.copy_from_slice(&self.other);
        let [a, b, c, d, rest @ ..] = words;
        let word = u64::from_be_bytes(rest);
        Named::State {
            epoch: u32::from_be_bytes([a, b, c, d]),
            tag: (word >> TAG_SHIFT) as u8,
            key: StateKey(Key::from_bits(word & ((1 << TAG_SHIFT) - 1))),
        }
    }
}

const ZEROS: [u8; 12] = [0; 12];
const ONES: [u8; 12] = [0xff; 12];
/// The position of the kind in the upper word of the id. It uses the two highest bits, which are
/// always 0 in a key.
const TAG_SHIFT: u32 = 62;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_state() {
        for (tag, kind) in [0, 1, 2, 3, 3].into_iter().zip(StateKind::ALL) {
            let key = StateKey(Key::from_bits(3 << 32 | 77));
            let id = Stateid4::new(9, kind, key, 4);
            assert_eq!(id.named(), Named::State { epoch: 9, tag, key });
            assert_eq!(id.sequence, 4);
        }
    }

    #[test]
    fn special_ids_are_recognized() {
        assert_eq!(Stateid4::ANONYMOUS.named(), Named::Special(SpecialId::Anonymous));
        assert_eq!(Stateid4::BYPASS.named(), Named::Special(SpecialId::Bypass));
        assert_eq!(Stateid4::CURRENT.named(), Named::Special(SpecialId::Current));
        assert_eq!(Stateid4::INVALID.named(), Named::Special(SpecialId::Invalid));
        let odd = Stateid4 { sequence: 7, ..Stateid4::BYPASS };
        assert_eq!(odd.named(), Named::Special(SpecialId::Invalid));
    }
}

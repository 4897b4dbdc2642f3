//! Labels with which a server's operator can follow a client's requests.
//!
//! Invariant: a label is below 2^40. It is sent in the analyzer field of a request's header (draft
//! 4.1.1), which the server only copies into its reply; the bits above it belong to this library
//! (`impersonation`).

/// A number that marks a client's requests in the server's log, its traces and `dafs follow`. 0
/// means no label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(u64);

impl Label {
    /// The width of a label in bits.
    pub const BITS: u32 = 40;

    /// Makes a label; `None` if it has more than [`Label::BITS`] bits.
    #[must_use]
    pub const fn new(label: u64) -> Option<Self> {
        if label >> Self::BITS == 0 { Some(Self(label)) } else { None }
    }

    /// Returns the label as a number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_forty_bits() {
        assert_eq!(Label::new((1 << 40) - 1).map(Label::get), Some((1 << 40) - 1));
        assert_eq!(Label::new(1 << 40), None);
    }
}

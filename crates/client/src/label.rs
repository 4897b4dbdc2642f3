//! Labels that mark a client's requests, so that a server's operator can follow them.
//!
//! Invariant: a label is below 2^40. It is sent in the analyzer field of a request's header (draft
//! 4.1.1), which the server only copies into its reply. This library uses the upper bits of the
//! field itself (`impersonation`).

/// A number that marks a client's requests in the server's log, in its traces and in `dafs follow`.
/// The number 0 means no label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(u64);

impl Label {
    /// The width of a label in bits.
    pub const BITS: u32 = 40;

    /// Creates a label from a number; `None` if the number has more than [`Label::BITS`] bits.
    #[must_use]
    pub const fn new(label: u64) -> Option<Self> {
        if label >> Self::BITS == 0 { Some(Self(label)) } else { None }
    }

    /// Returns the label as a number, which is 0 if there is no label.
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

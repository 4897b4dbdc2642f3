//! Orders of records: how keys are extracted and compared.
//!
//! Invariant: an order is total, and a prefix never contradicts it: of two records with different
//! prefixes, the one with the smaller prefix comes first.

mod line;
mod number;
mod record;

use std::cmp::Ordering;

pub use line::{LineOrder, TextKey};
pub use record::{KeyKind, RecordKey, RecordLayout};

/// An order of records.
pub trait Order {
    /// Returns the prefix of a record's sort key, as an integer that sorts like the key.
    fn prefix(&self, record: &[u8]) -> u64;

    /// Compares two records.
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering;

    /// True if two records have the same key. If keys are to be unique, only one of them is kept.
    fn is_same(&self, left: &[u8], right: &[u8]) -> bool;
}

/// The error of a key specification that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid key: {what}")]
pub struct SpecificationError {
    pub(crate) text: String,
    pub(crate) what: String,
}

/// Returns the first eight bytes as an integer that sorts like the bytes.
fn leading(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let count = bytes.len().min(8);
    first[..count].copy_from_slice(&bytes[..count]);
    u64::from_be_bytes(first)
}

/// Reverses an ordering if `is_reverse`.
fn turned(ordering: Ordering, is_reverse: bool) -> Ordering {
    if is_reverse { ordering.reverse() } else { ordering }
}

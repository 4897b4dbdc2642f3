//! Orders of records: what their keys are, and which comes first.
//!
//! Invariant: an order is total on records, and a prefix never contradicts it: of two records with
//! different prefixes, the one with the lesser comes first.

mod line;
mod number;
mod record;

use std::cmp::Ordering;

pub use line::{LineOrder, TextKey};
pub use record::{KeyKind, RecordKey, RecordLayout};

/// Which of two records comes first.
pub trait Order {
    /// The beginning of a record's place in the order.
    fn prefix(&self, record: &[u8]) -> u64;

    /// The order of two records.
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering;

    /// Whether two records have the same key, so that one of them is enough where keys are to be
    /// unique.
    fn is_same(&self, left: &[u8], right: &[u8]) -> bool;
}

/// A specification of a key that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no key: {what}")]
pub struct SpecificationError {
    pub(crate) text: String,
    pub(crate) what: String,
}

/// The first eight bytes as a number that is ordered as they are.
fn leading(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let count = bytes.len().min(8);
    first[..count].copy_from_slice(&bytes[..count]);
    u64::from_be_bytes(first)
}

/// The other way round, where it is wanted.
fn turned(ordering: Ordering, is_reverse: bool) -> Ordering {
    if is_reverse { ordering.reverse() } else { ordering }
}

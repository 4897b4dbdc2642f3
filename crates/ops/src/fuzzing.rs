//! The body of the fuzz target, which plain tests can run too. Not part of the public interface.
//!
//! Invariant: no input causes a panic, and a value that was decoded is encoded to the same bytes.

use crate::codec::{decode_outcome, encode_outcome};
use crate::operation::Operation;

/// Decodes arbitrary bytes as an operation and as an outcome.
pub fn any(data: &[u8]) {
    if let Some(mut operation) = Operation::decode(data) {
        let mut again = Vec::new();
        operation.encode(&mut again);
        assert_eq!(again, data, "an operation has other bytes than it came from");
        let named = operation.handles().map(|handle| handle.copied());
        for (handle, before) in operation.handles_mut().into_iter().zip(named) {
            assert_eq!(handle.map(|handle| *handle), before, "two lists of handles differ");
        }
        let _ = (operation.fenced_objects(), operation.changes_names());
    }
    if let Some(outcome) = decode_outcome(data) {
        let mut again = Vec::new();
        encode_outcome(&outcome, &mut again);
        assert_eq!(again, data, "an outcome has other bytes than it came from");
        let is_same = match outcome.clone() {
            Ok(done) => Ok(done.into_owned()) == outcome,
            Err(refusal) => Err(refusal.into_owned()) == outcome,
        };
        assert!(is_same, "an outcome without anything borrowed is another");
    }
}

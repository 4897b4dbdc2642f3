//! Encoded values decode to the same values, and nothing else decodes.

use crate::material::{Material, material};
use dafs_ops::{Done, Fault, Operation, decode_outcome, encode_outcome};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

fn bytes_of_operation(operation: &Operation<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    bytes
}

fn all_bytes(material: &Material) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let slices = material.slices();
    let operations = material.operations(&slices).iter().map(bytes_of_operation).collect();
    let outcome_bytes = |outcome| {
        let mut bytes = Vec::new();
        encode_outcome(outcome, &mut bytes);
        bytes
    };
    (operations, material.outcomes().iter().map(outcome_bytes).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn operations_come_back(material in material()) {
        let slices = material.slices();
        for operation in material.operations(&slices) {
            let bytes = bytes_of_operation(&operation);
            prop_assert_eq!(Operation::decode(&bytes), Some(operation));
        }
    }

    #[test]
    fn outcomes_come_back(material in material()) {
        for outcome in material.outcomes() {
            let mut bytes = Vec::new();
            encode_outcome(&outcome, &mut bytes);
            prop_assert_eq!(decode_outcome(&bytes), Some(outcome));
        }
    }

    #[test]
    fn any_bytes_are_refused_or_are_the_only_ones_for_what_they_say(
        bytes in prop::collection::vec(any::<u8>(), 0..400)
    ) {
        dafs_ops::fuzzing::any(&bytes);
    }
}

/// All bytes must be read: no operation is a prefix of another, and none has meaningless bytes.
#[test]
fn nothing_shorter_or_longer_is_taken_for_it() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..4 {
        let material = material().new_tree(&mut runner).unwrap().current();
        let (operations, outcomes) = all_bytes(&material);
        for mut bytes in operations {
            for length in 0..bytes.len() {
                assert_eq!(Operation::decode(&bytes[..length]), None);
            }
            bytes.push(0);
            assert_eq!(Operation::decode(&bytes), None);
        }
        for mut bytes in outcomes {
            for length in 0..bytes.len() {
                assert_eq!(decode_outcome(&bytes[..length]), None);
            }
            bytes.push(0);
            assert_eq!(decode_outcome(&bytes), None);
        }
    }
}

/// Ensures that the tests above miss no row.
#[test]
fn the_material_has_every_row() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let material = material().new_tree(&mut runner).unwrap().current();
    let slices = material.slices();
    let of_operations: std::collections::BTreeSet<u8> =
        material.operations(&slices).iter().map(Operation::number).collect();
    let rows = Operation::layouts().into_iter().map(|layout| layout.number).collect();
    assert_eq!(of_operations, rows);
    let done = material.outcomes().into_iter().filter_map(Result::ok);
    let of_results: std::collections::BTreeSet<u8> = done.map(|done| done.number()).collect();
    let rows = Done::layouts().into_iter().map(|layout| layout.number).collect();
    assert_eq!(of_results, rows);
    let refused = material.outcomes().into_iter().filter_map(Result::err);
    assert_eq!(refused.count(), Fault::ALL.len() + 2);
}

/// A count alone must not decide how much memory is allocated.
#[test]
fn a_count_without_its_elements_is_refused() {
    let of_page = [0, 8, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(decode_outcome(&of_page), None);
    let mut of_lookup = vec![2];
    of_lookup.extend([7; 64]);
    of_lookup.extend([0xff; 4]);
    assert_eq!(Operation::decode(&of_lookup), None);
    let too_long = vec![1; dafs_ops::ENCODED_BYTES_MAX + 2];
    assert_eq!(Operation::decode(&too_long), None);
}

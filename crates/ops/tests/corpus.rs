//! Runs the fuzz target's body over its committed seeds and many mutations of them. Set
//! `DAFS_WRITE_CORPUS=1` to write the seeds again.

use std::fs;
use std::path::PathBuf;

use crate::material::material;
use dafs_ops::encode_outcome;
use dafs_types::Random;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// The number of mutations tried.
const MUTATIONS: usize = 20_000;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/operations")
}

fn mutate(seed: &[u8], other: &[u8], numbers: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len());
        match numbers.below(5) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] ^= 1 << numbers.below(8),
            2 if !bytes.is_empty() => bytes[at] = [0, 1, 8, 0x7f, 0x80, 0xff][numbers.below(6)],
            3 => bytes.insert(at, numbers.below(256) as u8),
            _ => bytes.extend_from_slice(&other[numbers.below(other.len())..]),
        }
    }
    bytes
}

#[test]
fn operations_and_outcomes_do_not_panic() {
    let mut files: Vec<_> = fs::read_dir(folder())
        .unwrap_or_else(|error| panic!("corpus of operations: {error}"))
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    files.sort();
    let seeds: Vec<_> = files.iter().map(|file| fs::read(file).expect("a readable seed")).collect();
    assert!(!seeds.is_empty(), "no seeds of operations");
    seeds.iter().for_each(|seed| dafs_ops::fuzzing::any(seed));
    let mut numbers = Random::new(1);
    for _ in 0..MUTATIONS {
        let (seed, other) = (numbers.below(seeds.len()), numbers.below(seeds.len()));
        dafs_ops::fuzzing::any(&mutate(&seeds[seed], &seeds[other], &mut numbers));
    }
}

/// Writes one seed for every row if asked to.
#[test]
fn seeds_can_be_written() {
    if std::env::var_os("DAFS_WRITE_CORPUS").is_none() {
        return;
    }
    let mut runner = TestRunner::deterministic();
    let material = material().new_tree(&mut runner).expect("material").current();
    fs::create_dir_all(folder()).expect("a folder");
    let slices = material.slices();
    for operation in material.operations(&slices) {
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        let name = operation.name().replace(' ', "-");
        fs::write(folder().join(name), bytes).expect("a seed");
    }
    for outcome in material.outcomes() {
        let mut bytes = Vec::new();
        encode_outcome(&outcome, &mut bytes);
        let name = match &outcome {
            Ok(done) => format!("done-{}", done.number()),
            Err(refusal) => format!("refused-{}", refusal.fault.number()),
        };
        // Refusals differ in their data; four of them show all kinds.
        if outcome.as_ref().err().is_none_or(|refusal| refusal.fault.number() <= 4) {
            fs::write(folder().join(name), bytes).expect("a seed");
        }
    }
}

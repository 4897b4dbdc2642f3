//! Runs the body of the fuzz target over its committed seeds and many mutations of them. Set
//! `DAFS_WRITE_CORPUS=1` to write the seeds again.

use std::fs;
use std::path::PathBuf;

use dafs_rpcrdma::fuzzing;
use dafs_types::Random;

/// The number of mutations tried.
const MUTATIONS: usize = 20_000;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rpcrdma_messages")
}

fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..random.below(3) {
        bytes.extend_from_slice(&seeds[random.below(seeds.len())]);
    }
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = [0, 1, 4, 0x7f, 0x80, 0xff][random.below(6)],
            3 => bytes.insert(at, random.below(256) as u8),
            // A word of the first message.
            _ => {
                let aligned = at / 4 * 4 + 1;
                if let Some(word) = bytes.get_mut(aligned..aligned + 4) {
                    word.copy_from_slice(&(random.below(100) as u32).to_be_bytes());
                }
            }
        }
    }
    bytes
}

#[test]
fn messages_do_not_panic() {
    let mut files: Vec<_> = fs::read_dir(folder())
        .unwrap_or_else(|error| panic!("the corpus: {error}"))
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    files.sort();
    let seeds: Vec<_> = files.iter().map(|file| fs::read(file).expect("a readable seed")).collect();
    assert!(seeds.len() > 5, "the seeds are missing");
    seeds.iter().for_each(|seed| fuzzing::messages(seed));
    let mut random = Random::new(1);
    for _ in 0..MUTATIONS {
        fuzzing::messages(&mutate(&seeds, &mut random));
    }
}

/// Writes the seeds if asked to.
#[test]
fn seeds_can_be_written() {
    if std::env::var_os("DAFS_WRITE_CORPUS").is_none() {
        return;
    }
    fs::create_dir_all(folder()).expect("a folder");
    for (name, bytes) in fuzzing::seeds() {
        fs::write(folder().join(name), bytes).expect("a seed");
    }
}

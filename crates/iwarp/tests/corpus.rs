//! Replays the fuzz corpora, and pseudo-random changes of them, in every test run.

use std::fs;
use std::path::PathBuf;

use dafs_iwarp::fuzzing;

const MUTATION_COUNT: usize = 20_000;

/// xorshift64*: enough to wander about, and the same in every run.
struct Wanderer(u64);

impl Wanderer {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound.max(1)
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn mutate(seeds: &[Vec<u8>], wanderer: &mut Wanderer) -> Vec<u8> {
    let mut octets = seeds[wanderer.below(seeds.len())].clone();
    for _ in 0..=wanderer.below(4) {
        let place = wanderer.below(octets.len());
        match wanderer.below(6) {
            0 | 1 if !octets.is_empty() => octets[place] ^= 1 << wanderer.below(8),
            2 if !octets.is_empty() => octets[place] = wanderer.below(256) as u8,
            3 => octets.truncate(place),
            4 => octets.insert(place.min(octets.len()), wanderer.below(256) as u8),
            _ => {
                let other = &seeds[wanderer.below(seeds.len())];
                octets.extend_from_slice(&other[wanderer.below(other.len())..]);
            }
        }
    }
    octets
}

fn replay(target: &str, body: fn(&[u8])) {
    let seeds = corpus(target);
    assert!(!seeds.is_empty());
    for seed in &seeds {
        body(seed);
    }
    let mut wanderer = Wanderer(0x9e37_79b9_7f4a_7c15);
    for _ in 0..MUTATION_COUNT {
        body(&mutate(&seeds, &mut wanderer));
    }
}

#[test]
fn connect() {
    replay("iwarp_connect", fuzzing::connect);
}

#[test]
fn stream() {
    replay("iwarp_stream", fuzzing::stream);
}

//! Replays the fuzz corpora of the transports, and pseudo-random variations of them, in every test
//! run. The crates `wire` and `server` have their own variations and replay their corpora
//! themselves.

use std::fs;
use std::path::PathBuf;

use dafs_types::Random;

fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(4) {
        let place = random.below(bytes.len());
        match random.below(6) {
            0 | 1 if !bytes.is_empty() => bytes[place] ^= 1 << random.below(8),
            2 if !bytes.is_empty() => bytes[place] = random.below(256) as u8,
            3 => bytes.truncate(place),
            4 => bytes.insert(place.min(bytes.len()), random.below(256) as u8),
            _ => {
                let other = &seeds[random.below(seeds.len())];
                bytes.extend_from_slice(&other[random.below(other.len())..]);
            }
        }
    }
    bytes
}

fn replay(target: &str, mutation_count: usize, body: fn(&[u8])) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut paths: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(!seeds.is_empty());
    seeds.iter().for_each(|seed| body(seed));
    let mut random = Random::new(1);
    for _ in 0..mutation_count {
        body(&mutate(&seeds, &mut random));
    }
}

#[test]
fn iwarp_connect() {
    replay("iwarp_connect", 20_000, dafs_iwarp::fuzzing::connect);
}

#[test]
fn iwarp_stream() {
    replay("iwarp_stream", 20_000, dafs_iwarp::fuzzing::stream);
}

#[test]
fn records() {
    replay("records", 20_000, dafs_dat::fuzzing::records);
}

#[test]
fn shm_control() {
    replay("shm_control", 20_000, dafs_dat::fuzzing::shm_control);
}

#[test]
fn tcp_receive() {
    replay("tcp_receive", 3000, dafs_dat::fuzzing::tcp_receive);
}

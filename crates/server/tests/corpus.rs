//! Replays the fuzz corpus, and pseudo-random requests, in every test run.

use std::fs;
use std::path::PathBuf;

use dafs_server::fuzzing;
use dafs_types::Random;

#[test]
fn the_corpus_harms_no_server() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/server_request");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        fuzzing::request(&fs::read(path).unwrap());
    }
}

#[test]
fn random_requests_harm_no_server() {
    let mut random = Random::new(1);
    for _ in 0..300 {
        let mut data = Vec::new();
        for _ in 0..random.below(8) {
            let length = random.below(100);
            data.extend(random.octets(2));
            data.push(length as u8);
            // Mostly zeros, as in requests.
            data.extend((0..2 * length).map(|_| (random.below(8) / 7 * random.below(256)) as u8));
        }
        fuzzing::request(&data);
    }
}

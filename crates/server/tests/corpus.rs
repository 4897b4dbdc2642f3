//! Replays the fuzz corpus, and pseudo-random requests, in every test run.

use std::fs;
use std::path::PathBuf;

use dafs_server::fuzzing;

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
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (state >> 33) as usize
    };
    for _ in 0..300 {
        let mut data = Vec::new();
        for _ in 0..next() % 8 {
            let length = next() % 100;
            data.extend([next() as u8, next() as u8, length as u8]);
            // Mostly zeros, as in requests.
            data.extend((0..2 * length).map(|_| (next() % 8 / 7 * next() % 256) as u8));
        }
        fuzzing::request(&data);
    }
}

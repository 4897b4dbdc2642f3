//! Any bytes as attributes, directory entries and link text.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dafs_wire::fuzzing::attributes(data));

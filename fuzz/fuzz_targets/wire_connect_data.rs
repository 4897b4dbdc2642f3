//! Any bytes as connect data.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dafs_wire::fuzzing::connect_data(data));

//! Any bytes as an operation, and as an outcome.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dafs_ops::fuzzing::any(data));

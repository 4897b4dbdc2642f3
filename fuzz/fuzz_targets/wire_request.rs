//! Any bytes as a DAFS request.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dafs_wire::fuzzing::request(data));

//! One byte that chooses a procedure, then any bytes as its response.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dafs_wire::fuzzing::response(data));

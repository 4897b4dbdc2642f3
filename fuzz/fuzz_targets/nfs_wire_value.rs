//! Two bytes that choose a type, then any bytes as a value of it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dafs_nfs_wire::fuzzing::value(data));

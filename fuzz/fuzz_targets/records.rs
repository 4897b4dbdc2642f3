//! Any bytes as a stream of ONC RPC records, whole and in parts.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dafs_dat::fuzzing::records(data));

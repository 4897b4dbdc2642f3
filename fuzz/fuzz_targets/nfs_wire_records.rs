//! Any bytes as a stream of ONC RPC records, whole and in parts.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dafs_nfs_wire::fuzzing::records(data));

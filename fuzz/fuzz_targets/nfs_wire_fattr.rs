//! Any bytes as encoded attributes of NFSv4.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dafs_nfs_wire::fuzzing::nfs4::fattr(data));

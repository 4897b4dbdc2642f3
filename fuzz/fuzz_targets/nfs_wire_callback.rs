//! Any bytes as arguments and results of an NFSv4 CB_COMPOUND.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dafs_nfs_wire::fuzzing::nfs4::callback(data));

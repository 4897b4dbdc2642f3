//! Any bytes as a call of NFS or a program beside it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dafs_nfs_wire::fuzzing::call(data));

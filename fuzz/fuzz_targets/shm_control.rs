//! Any bytes as control packets, frames of a ring, or its words.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dafs_dat::fuzzing::shm_control(data));

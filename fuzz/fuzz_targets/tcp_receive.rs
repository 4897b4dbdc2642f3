//! Any bytes as a TCP stream behind a good start.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dafs_dat::fuzzing::tcp_receive(data));

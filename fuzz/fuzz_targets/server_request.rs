//! Any bytes as requests of a session of a real server.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dafs_server::fuzzing::request(data));

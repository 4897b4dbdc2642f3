//! Any bytes as messages of RPC-over-RDMA from a client.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dafs_rpcrdma::fuzzing::messages(data));

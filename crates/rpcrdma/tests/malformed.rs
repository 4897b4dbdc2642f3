//! Headers with faults, from a generator: each gets its error, and nothing is kept for it.

use dafs_rpcrdma::fuzzing::malformed;
use dafs_rpcrdma::header::{Body, Xid, decode};
use dafs_rpcrdma::limits::{ClientConfig, ServerConfig};
use dafs_types::Random;

use crate::common::pair;

/// Sends messages with faults, and checks what is sent for them.
fn send(count: usize, seed: u64) {
    let (mut server, _, mut memory) = pair(ServerConfig::default(), ClientConfig::default());
    let mut random = Random::new(seed);
    // The numbers in the state grow, and with them their digits.
    let size = |server: &crate::common::Server| format!("{:?}", server.connection).len();
    let before = size(&server);
    for index in 0..count {
        let (message, fault) = malformed(&mut random);
        let found = decode(&message).expect_err("a fault");
        assert_eq!(found.fault, fault, "{index}");
        server.receive(&message, &mut memory);
        let sent = server.out.pop();
        assert!(server.out.is_empty() && server.ended.is_none(), "{index}");
        let Some(error) = fault.error() else {
            assert_eq!(sent, None, "{index}");
            continue;
        };
        let (sent, _) = sent.expect("an error");
        let sent = decode(&sent).expect("a valid error");
        assert_eq!((sent.body, Some(sent.xid)), (Body::Error(error), xid_of(&message)), "{index}");
        assert!((1..=64).contains(&sent.credits), "{index}");
        if index % 10_000 == 0 {
            assert!(size(&server) < before + 64, "{index}: something is kept");
        }
    }
    assert!(size(&server) < before + 64, "something is kept");
    assert_eq!(server.connection.deadline(), None);
}

fn xid_of(message: &[u8]) -> Option<Xid> {
    message.first_chunk().map(|bytes| Xid(u32::from_be_bytes(*bytes)))
}

#[test]
fn headers_with_faults_get_their_errors() {
    send(50_000, 8166);
}

/// The memory of this process, in pages.
fn resident_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number")
}

/// Run alone, because the memory of the process is measured:
/// `cargo test -p dafs-rpcrdma a_million -- --ignored`.
#[test]
#[ignore = "takes long; the test above sends a part of it"]
fn a_million_headers_with_faults_take_no_memory() {
    send(50_000, 1);
    let before = resident_pages();
    send(1_000_000, 2);
    let after = resident_pages();
    assert!(after <= before + 64, "{before} pages before, {after} after");
}

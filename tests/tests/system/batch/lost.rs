//! Tests batches of the client library over lost connections and killed servers.

use std::time::Duration;

use dafs_client::{
    Batched, Buffer, Client, ClientConfig, ClientError, File, OpenOptions, Session, SessionOptions,
};
use dafs_dat::Address;
use dafs_types::Random;

use super::messages::patient;
use crate::fixture::{Fixture, Transport, await_that, pattern, transports};
use crate::reconnect::child::ServerProcess;
use crate::reconnect::proxy::Proxy;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);
const PIECE: usize = 1000;
const PIECES: usize = 40;

fn connect(address: &Address, checksums: bool) -> (Client, Session, File) {
    let client = Client::new(ClientConfig::default()).unwrap();
    let options = SessionOptions::default().checksums(checksums);
    let session = client.connect_to(address, &options).unwrap();
    let file = session.open("/file", &OpenOptions::write()).unwrap();
    (client, session, file)
}

/// Writes one half of a buffer to one half of the file and reads the other half, in pieces.
fn begin(session: &Session, file: &File, buffer: &Buffer, submitted: bool) -> Batched {
    let mut batch = session.batch();
    for piece in 0..PIECES {
        let slice = buffer.slice(piece * PIECE, PIECE).unwrap();
        let offset = (piece * PIECE) as u64;
        batch = if piece < PIECES / 2 {
            batch.write(file, offset, slice)
        } else {
            batch.read(file, offset, slice)
        };
    }
    if submitted { batch.submit().unwrap() } else { batch.start().unwrap() }
}

#[test]
fn what_was_submitted_is_submitted_again_when_the_session_has_come_back() {
    for checksums in [false, true] {
        let fixture = patient(|_| {});
        let content = std::fs::read(fixture.local("file")).unwrap();
        let proxy = Proxy::before(&fixture.address(Transport::Tcp));
        let (client, session, file) = connect(&proxy.address, checksums);
        let buffer = client.allocate(4 * PIECE).unwrap();
        buffer.write(0, &[5; 4 * PIECE]);
        let slice = |at: usize| buffer.slice(at * PIECE, PIECE).unwrap();
        let batch = session.batch().latency(LONG).completions(1);
        let batch = batch.read(&file, 0, slice(0)).read(&file, 1000, slice(1));
        let batched = batch.write(&file, 9000, slice(2)).read(&file, 0, slice(3));
        let batched = batched.submit().unwrap();
        // With checksums, a batch is accepted after its bytes have arrived.
        await_that("the batch to be accepted", || batched.expedite(0).unwrap());
        while batched.left() == 4 {
            client.process_events(None);
        }
        assert!(batched.cancel(3));
        proxy.cut();
        // The channel reconnects after the session.
        await_that("the batch to be submitted again", || batched.expedite(1).unwrap());
        assert!(batched.expedite(2).unwrap());
        assert!(!batched.expedite(0).unwrap(), "its end was told");
        let whole = Ok(PIECE as u32);
        let expected = [whole.clone(), whole.clone(), whole, Err(ClientError::Cancelled)];
        assert_eq!(batched.wait(), expected);
        let mut bytes = vec![0; 2 * PIECE];
        buffer.read(0, &mut bytes);
        assert_eq!(bytes, content[..2 * PIECE]);
        assert_eq!(std::fs::read(fixture.local("file")).unwrap()[9000..10_000], [5; PIECE]);
    }
}

#[test]
fn connections_that_break_again_and_again_cost_no_batch_anything() {
    const SEED: u64 = 20_011_001;
    for checksums in [false, true] {
        let mut random = Random::new(SEED);
        let fixture = Fixture::new();
        std::fs::write(fixture.local("file"), pattern(PIECES * PIECE, 1)).unwrap();
        let proxy = Proxy::before(&fixture.address(Transport::Tcp));
        let (client, session, file) = connect(&proxy.address, checksums);
        let buffer = client.allocate(PIECES * PIECE).unwrap();
        for round in 0..40 {
            let content = pattern(PIECES * PIECE, 2 + round);
            std::fs::write(fixture.local("file"), pattern(PIECES * PIECE, 1)).unwrap();
            buffer.write(0, &content);
            let batched = begin(&session, &file, &buffer, round % 2 == 0);
            for _ in 0..random.below(8) {
                client.process_events(Some(Duration::ZERO));
            }
            proxy.cut();
            let outcomes = batched.wait();
            let note = || format!("round {round}, seed {SEED}: {outcomes:?}");
            assert!(outcomes.iter().all(|o| *o == Ok(PIECE as u32)), "{}", note());
            let local = std::fs::read(fixture.local("file")).unwrap();
            let half = PIECES / 2 * PIECE;
            assert!(local[..half] == content[..half], "{}", note());
            let mut bytes = vec![0; half];
            buffer.read(half, &mut bytes);
            assert!(bytes == local[half..], "{}", note());
        }
    }
}

#[test]
fn batches_go_on_with_a_server_that_was_killed() {
    for transport in transports() {
        for keeps_results in [true, false] {
            let mut server = ServerProcess::start_with(keeps_results);
            std::fs::write(server.local("file"), pattern(PIECES * PIECE, 1)).unwrap();
            let (client, session, file) = connect(&server.address(transport), false);
            let buffer = client.allocate(PIECES * PIECE).unwrap();
            for round in 0..6 {
                let content = pattern(PIECES * PIECE, 2 + round);
                buffer.write(0, &content);
                let batched = begin(&session, &file, &buffer, round % 2 == 0);
                if round > 3 {
                    client.process_events(Some(Duration::ZERO));
                }
                server.kill();
                server.revive();
                let outcomes = batched.wait();
                assert!(outcomes.iter().all(|o| *o == Ok(PIECE as u32)), "{outcomes:?}");
                let local = std::fs::read(server.local("file")).unwrap();
                let half = PIECES / 2 * PIECE;
                assert!(local[..half] == content[..half], "round {round}");
                let mut bytes = vec![0; half];
                buffer.read(half, &mut bytes);
                assert!(bytes == local[half..], "round {round}");
            }
        }
    }
}

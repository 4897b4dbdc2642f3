//! Tests batches during which a session, its back-control channel or only the reply is lost.

use dafs_types::{SequenceNumber, SessionId, Status, StreamId};
use dafs_wire::messages::{CachedResponse, SessionOptions as WireOptions};
use dafs_wire::{Procedure, Request};

use super::messages::{
    AT_ONCE, Asked, Batcher, HELD, One, PLACE, READ, SYNCHRONOUS, WRITE, patient,
};
use crate::fixture::{Fixture, await_that, over_each, pattern, transports};

/// Stops a server and checks that it holds no resources of any client.
fn stop_empty(fixture: Fixture) {
    let (_, stats) = fixture.stop();
    let held = (stats.batched_requests, stats.parked_requests, stats.loans, stats.chains);
    assert_eq!(held, (0, 0, 0, 0));
}

#[test]
fn what_is_held_goes_with_its_session() {
    for transport in transports() {
        let fixture = patient(|_| {});
        let before = std::fs::read(fixture.local("file")).unwrap();
        let mut batcher = Batcher::connect(&fixture, transport, b"batcher");
        batcher.listen(&fixture, transport);
        let requests = [One(1, READ, 0, 4000), One(2, WRITE, 50_000, 4000)];
        assert_eq!(batcher.submit(&requests, HELD), Status::Ok);
        drop(batcher);
        // A later client finds the server idle.
        let mut other = Batcher::connect(&fixture, transport, b"other");
        assert_eq!(other.run(&[One(1, READ, 50_000, 4000)])[0].length, 4000);
        assert_eq!(other.bytes(1, 4000), before[50_000..54_000]);
        drop(other);
        stop_empty(fixture);
    }
}

#[test]
fn what_is_in_flight_ends_with_its_connection() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), pattern(100_000, 1)).unwrap();
        let mut batcher = Batcher::connect(fixture, transport, b"batcher");
        batcher.listen(fixture, transport);
        // Over TCP the server waits for bytes that this client never sends.
        let writes: Vec<_> =
            (0..25).map(|name| One(name, WRITE, name * 4096, PLACE as u32)).collect();
        batcher.send(1, &writes, AT_ONCE);
        let reads: Vec<_> =
            (30..55).map(|name| One(name, READ, name * 4096 - 122_880, PLACE as u32)).collect();
        batcher.send(2, &reads, SYNCHRONOUS);
        batcher.rogue.interface.flush();
        drop(batcher);
        let mut other = Batcher::connect(fixture, transport, b"other");
        assert_eq!(other.run(&[One(1, READ, 0, 4000)])[0].status, Status::Ok);
        other.memory.write(2 * PLACE, &[7; PLACE]);
        assert_eq!(other.run(&[One(2, WRITE, 0, PLACE as u32)])[0].status, Status::Ok);
    });
    // The same, but the server stops meanwhile.
    for transport in transports() {
        let fixture = patient(|_| {});
        let mut batcher = Batcher::connect(&fixture, transport, b"batcher");
        let writes: Vec<_> =
            (0..20).map(|name| One(name, WRITE, name * 4096, PLACE as u32)).collect();
        batcher.send(1, &writes, SYNCHRONOUS);
        batcher.rogue.interface.flush();
        drop(batcher);
        let mut other = Batcher::connect(&fixture, transport, b"other");
        assert_eq!(other.run(&[One(1, READ, 0, 4000)])[0].status, Status::Ok);
        drop(other);
        stop_empty(fixture);
    }
}

#[test]
fn without_its_channel_a_session_goes_on_and_its_submitted_batches_are_forgotten() {
    for transport in transports() {
        let fixture = patient(|_| {});
        let mut batcher = Batcher::connect(&fixture, transport, b"batcher");
        batcher.listen(&fixture, transport);
        let requests: Vec<_> = (0..9).map(|name| One(name, READ, name * 4096, 100)).collect();
        assert_eq!(batcher.submit(&requests, HELD), Status::Ok);
        let back = batcher.back.take().unwrap();
        batcher.rogue.interface.disconnect(back);
        assert_eq!(batcher.rogue.message_on(back), None);
        await_that("the server to notice", || {
            batcher.submit(&requests, HELD) == Status::BackChannelUnusable
        });
        assert_eq!(batcher.hurry(1), Status::BatchRequestNotFound);
        assert_eq!(batcher.run(&requests).len(), 9, "the names are free");
        batcher.listen(&fixture, transport);
        assert_eq!(batcher.submit(&requests, Asked { count: 9, ..AT_ONCE }), Status::Ok);
        assert_eq!(batcher.told().len(), 9);
        drop(batcher);
        await_that("the session to end", || {
            let mut other = Batcher::connect(&fixture, transport, b"other");
            other.run(&[One(1, READ, 0, 10)])[0].status == Status::Ok
        });
        stop_empty(fixture);
    }
}

/// Returns the status of a query for the result of a batch of an earlier session.
fn is_kept(batcher: &mut Batcher, session: SessionId, (stream, sequence): (u16, u16)) -> Status {
    let about = CachedResponse {
        session,
        stream: StreamId(stream),
        sequence: SequenceNumber(sequence),
        procedure: Procedure::BatchSubmit.number(),
    };
    batcher.rogue.outcome(&Request::CheckResponse(about)).unwrap()
}

#[test]
fn only_a_complete_batch_of_writes_is_known_afterwards() {
    for transport in transports() {
        let options = WireOptions {
            back_control_channel: true,
            response_cache: true,
            requests_max: 8,
            ..WireOptions::default()
        };
        let fixture = patient(|_| {});
        let mut batcher = Batcher::connect_with(&fixture, transport, b"batcher", options);
        batcher.listen(&fixture, transport);
        let (write, read) = (One(1, WRITE, 0, 100), One(2, READ, 0, 100));
        let cases = [
            (&[write][..], SYNCHRONOUS, Status::Ok),
            (&[write, read][..], SYNCHRONOUS, Status::NoXidMatch),
            (&[write][..], HELD, Status::NoXidMatch),
        ];
        for (index, (requests, manner, expected)) in cases.into_iter().enumerate() {
            let number = 500 + index as u16;
            batcher.with(requests, manner, |rogue, request| rogue.request(0, number, request));
            assert_eq!(batcher.rogue.status(), Some(Status::Ok));
            let session = batcher.session;
            drop(batcher);
            batcher = Batcher::connect_with(&fixture, transport, b"batcher", options);
            batcher.listen(&fixture, transport);
            assert_eq!(is_kept(&mut batcher, session, (0, number)), expected, "case {index}");
        }
    }
}

#[test]
fn many_sessions_end_amid_their_batches_and_nothing_stays() {
    for transport in transports() {
        let fixture = patient(|limits| limits.early_start_below = 1);
        for round in 0..30u64 {
            let mut batcher = Batcher::connect(&fixture, transport, b"batcher");
            batcher.listen(&fixture, transport);
            let ways = [READ, WRITE];
            let requests: Vec<_> = (0..28)
                .map(|name| One(name, ways[(name + round) as usize % 2], name * 3000, 3000))
                .collect();
            let manner = [AT_ONCE, SYNCHRONOUS, HELD][round as usize % 3];
            batcher.send(1, &requests, manner);
            batcher.send(0, &requests[..0], AT_ONCE);
            if round % 4 != 0 {
                // The server has processed at least this much.
                batcher.rogue.answer();
            }
        }
        let mut other = Batcher::connect(&fixture, transport, b"other");
        assert_eq!(other.run(&[One(1, READ, 0, 4000)])[0].status, Status::Ok);
        drop(other);
        stop_empty(fixture);
    }
}

//! Clients that lie, hold back, or ask for more than they may have.

use std::time::Duration;

use dafs_nfs_wire::xdr::Writer;
use dafs_rpcrdma::header::{
    Body, Chunk, Chunks, Handle, Message, ReadSegment, Segment, TransportError, Xid, decode, encode,
};
use dafs_rpcrdma::limits::{ClientConfig, ServerConfig};
use dafs_rpcrdma::server::EndReason;

use crate::common::{Answer, Memory, Server, call_of, pair, reply_to};

const CONFIG: ServerConfig = ServerConfig {
    credits: 4,
    receive_bytes: 4096,
    send_bytes: 4096,
    remote_invalidation: true,
    reads: 2,
    call_bytes: 10_000,
    connection_bytes: 15_000,
    patience: Duration::from_secs(10),
    callbacks: 2,
};

fn null(xid: u32) -> Vec<u8> {
    call_of(xid, 100_003, 3, 0, |_: &mut Writer| {})
}

fn message(xid: u32, chunks: Chunks, rpc: Option<&[u8]>) -> Vec<u8> {
    let body = match rpc {
        Some(rpc) => Body::Message { chunks, rpc },
        None => Body::NoMessage { chunks },
    };
    let mut bytes = Vec::new();
    encode(&Message { xid: Xid(xid), credits: 100, body }, &mut bytes);
    bytes
}

fn read(position: u32, segment: Segment) -> ReadSegment {
    ReadSegment { position, segment }
}

fn with_reads(xid: u32, reads: Vec<ReadSegment>) -> Vec<u8> {
    let rpc = null(xid);
    message(xid, Chunks { reads, ..Chunks::default() }, Some(&rpc))
}

fn server() -> (Server, Memory) {
    let (server, _, memory) = pair(CONFIG, ClientConfig::default());
    (server, memory)
}

/// Has all credits granted by one call.
fn warm(server: &mut Server, memory: &mut Memory) {
    server.receive(&message(0, Chunks::default(), Some(&null(0))), memory);
    let (call, _) = server.next_call();
    server.reply(call.id, Answer::of(&reply_to(0), vec![], &[]), memory).unwrap();
    assert_eq!(decode(&server.out.remove(0).0).unwrap().credits, 4);
}

#[track_caller]
fn refused(message: &[u8]) {
    let (mut server, mut memory) = server();
    server.receive(message, &mut memory);
    let (sent, invalidated) = server.out.pop().expect("an error");
    let sent = decode(&sent).unwrap();
    assert_eq!((sent.xid, invalidated), (Xid(1), None));
    assert_eq!(sent.body, Body::Error(TransportError::Chunk));
    assert!(sent.credits > 0);
    assert!(server.calls.is_empty() && server.buffers.is_empty() && server.ended.is_none());
    assert_eq!((server.connection.reserved_bytes(), server.connection.calls_in_flight()), (0, 0));
}

#[test]
fn memory_that_does_not_exist_ends_the_connection() {
    for is_read in [true, false] {
        for lie in 0..4 {
            let (mut server, mut memory) = server();
            let own = memory.register(&[7; 64]);
            let segment = match lie {
                0 => Segment { handle: Handle(own.handle.0 ^ 1), ..own },
                1 => Segment { length: 65, ..own },
                2 => Segment { offset: own.offset - 1, ..own },
                _ => Segment { offset: own.offset + 1, ..own },
            };
            if is_read {
                server.receive(&with_reads(1, vec![read(40, segment)]), &mut memory);
            } else {
                let reply = Some(Chunk(vec![segment; 65]));
                let chunks = Chunks { reply, ..Chunks::default() };
                let rpc = null(1);
                // More segments than there may be in one header.
                server.receive(&message(1, chunks, Some(&rpc)), &mut memory);
                assert_eq!(server.calls.len(), 0);
                let reply = Some(Chunk(vec![segment; 64]));
                let chunks = Chunks { reply, ..Chunks::default() };
                server.receive(&message(1, chunks, Some(&rpc)), &mut memory);
                let (call, _) = server.next_call();
                let mut writer = reply_to(1);
                writer.padded(&[9; 4060]);
                let answer = Answer::of(&writer, vec![], &[]);
                // The reply is planned for what the client offered, and its writes fail.
                server.reply(call.id, answer, &mut memory).unwrap();
            }
            assert_eq!(server.ended, Some(EndReason::Transfer), "{is_read} {lie}");
            assert!(server.buffers.is_empty());
            server.receive(&with_reads(1, vec![read(40, own)]), &mut memory);
            assert_eq!(server.connection.poll_action(), None, "nothing follows the end");
            assert_eq!(server.connection.deadline(), None);
        }
    }
}

#[test]
fn a_call_without_a_credit_ends_the_connection() {
    let (mut server, mut memory) = server();
    server.receive(&message(1, Chunks::default(), Some(&null(1))), &mut memory);
    server.receive(&message(2, Chunks::default(), Some(&null(2))), &mut memory);
    assert_eq!(server.ended, Some(EndReason::Credits), "one call before the first reply");
    let (mut server, mut memory) = self::server();
    warm(&mut server, &mut memory);
    for xid in 1..=4 {
        server.receive(&message(xid, Chunks::default(), Some(&null(xid))), &mut memory);
        assert_eq!(server.ended, None);
    }
    // A message that is not valid needs a credit, too.
    server.receive(&[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0], &mut memory);
    assert_eq!(server.ended, Some(EndReason::Credits));
}

#[test]
fn buffers_have_a_limit_and_calls_wait_for_them() {
    let (mut server, mut memory) = server();
    warm(&mut server, &mut memory);
    let segment = memory.register(&[5; 6000]);
    server.reads_end = false;
    for xid in 1..=4 {
        server.receive(&with_reads(xid, vec![read(40, segment)]), &mut memory);
    }
    assert_eq!((server.ended, server.buffers.len()), (None, 2));
    assert_eq!(server.connection.reserved_bytes(), 12_000);
    // The reads that stay open end the connection, and with it the calls that wait.
    let deadline = server.connection.deadline().unwrap();
    assert_eq!(deadline, server.now.after(Duration::from_secs(10)));
    server.connection.on_time(server.now);
    server.run(&mut memory);
    assert_eq!(server.ended, None);
    server.connection.on_time(deadline);
    server.run(&mut memory);
    assert_eq!(server.ended, Some(EndReason::Patience));
    assert_eq!((server.connection.reserved_bytes(), server.buffers.len()), (0, 0));
}

#[test]
fn calls_that_wait_for_buffers_get_them_in_their_order() {
    let (mut server, mut memory) = server();
    warm(&mut server, &mut memory);
    for (xid, length) in [(1, 9000), (2, 9000), (3, 100)] {
        let segment = memory.register(&vec![5; length]);
        server.receive(&with_reads(xid, vec![read(40, segment)]), &mut memory);
    }
    assert_eq!(server.calls.len(), 1, "the small call does not overtake");
    for xid in 1..=3 {
        let (call, fetched) = server.next_call();
        assert_eq!((call.xid, call.assemble(&fetched)[..40].to_vec()), (Xid(xid), null(xid)));
        server.reply(call.id, Answer::of(&reply_to(xid), vec![], &[]), &mut memory).unwrap();
    }
    assert_eq!((server.ended, server.most_reserved), (None, 9100));
}

#[test]
fn few_reads_are_in_flight() {
    let (mut server, mut memory) = server();
    let reads = (0..60).map(|_| read(40, memory.register(&[1; 16]))).collect();
    server.reads_end = false;
    server.receive(&with_reads(1, reads), &mut memory);
    assert_eq!(server.reads_max, 2);
}

#[test]
fn a_client_that_does_not_receive_is_disconnected() {
    let (mut server, mut memory) = server();
    warm(&mut server, &mut memory);
    server.sends_end = false;
    for xid in 1..100 {
        server.receive(&message(xid, Chunks::default(), Some(&null(xid))), &mut memory);
        if server.ended.is_some() {
            break;
        }
        let (call, _) = server.next_call();
        server.reply(call.id, Answer::of(&reply_to(xid), vec![], &[]), &mut memory).unwrap();
    }
    assert_eq!(server.ended, Some(EndReason::Congested));
    assert_eq!(server.out.len(), 12, "twice the credits of both directions");
    // A single reply that is not taken ends it, too, after a while.
    let (mut server, mut memory) = self::server();
    server.sends_end = false;
    server.receive(&message(1, Chunks::default(), Some(&null(1))), &mut memory);
    let (call, _) = server.next_call();
    server.reply(call.id, Answer::of(&reply_to(1), vec![], &[]), &mut memory).unwrap();
    server.connection.on_time(server.connection.deadline().unwrap());
    server.run(&mut memory);
    assert_eq!(server.ended, Some(EndReason::Patience));
}

#[test]
fn errors_that_nobody_takes_do_not_pile_up() {
    let (mut server, mut memory) = server();
    server.sends_end = false;
    let bad = [0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0];
    for _ in 0..100 {
        server.receive(&bad, &mut memory);
    }
    assert_eq!((server.ended, server.out.len()), (Some(EndReason::Congested), 12));
}

#[test]
fn read_chunks_at_wrong_positions_are_refused() {
    let segment = |length| Segment { handle: Handle(1), length, offset: 0 };
    refused(&with_reads(1, vec![read(0, segment(8))]));
    refused(&with_reads(1, vec![read(4, segment(8))]));
    refused(&with_reads(1, vec![read(38, segment(8))]));
    // After the end of the call, which has 40 bytes.
    refused(&with_reads(1, vec![read(44, segment(8))]));
    // Inside other data.
    refused(&with_reads(1, vec![read(36, segment(8)), read(40, segment(8))]));
    refused(&with_reads(1, vec![read(u32::MAX - 3, segment(8))]));
    // Too long, as a whole and by its segments.
    refused(&with_reads(1, vec![read(40, segment(u32::MAX))]));
    refused(&with_reads(1, vec![read(40, segment(5000)), read(40, segment(5000))]));
    refused(&with_reads(1, vec![read(40, segment(u32::MAX)); 60]));
    // More chunks than there may be.
    refused(&with_reads(1, (0..17).map(|index| read(40 + 4 * index, segment(4))).collect()));
    // A long call without its first part, or with too small a one.
    let long = |reads| message(1, Chunks { reads, ..Chunks::default() }, None);
    refused(&long(vec![read(40, segment(8))]));
    refused(&long(vec![read(0, segment(7))]));
    refused(&long(vec![read(0, segment(40)), read(44, segment(8))]));
    let reply = Some(Chunk(vec![segment(8)]));
    refused(&message(1, Chunks { reply, ..Chunks::default() }, None));
    // RPC messages that are none.
    refused(&message(1, Chunks::default(), Some(&[])));
    refused(&message(1, Chunks::default(), Some(&[0, 0, 0, 1, 0, 0, 0])));
    refused(&message(1, Chunks::default(), Some(&[0, 0, 0, 2, 0, 0, 0, 0])));
    refused(&message(1, Chunks::default(), Some(&[0, 0, 0, 1, 0, 0, 0, 2])));
}

#[test]
fn a_read_chunk_that_contains_no_call_is_refused() {
    for start in [[0, 0, 0, 2, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0, 1]] {
        let (mut server, mut memory) = server();
        let rpc = [&start[..], &[0; 32]].concat();
        // The start of the call may be in any number of segments.
        let segments = memory.register_split(&rpc, &[1, 5]);
        let reads = segments.iter().map(|segment| read(0, *segment)).collect();
        let chunks = Chunks { reads, ..Chunks::default() };
        server.receive(&message(1, chunks, None), &mut memory);
        let sent = decode(&server.out[0].0).unwrap();
        assert_eq!((sent.xid, sent.body), (Xid(1), Body::Error(TransportError::Chunk)));
        assert!(server.calls.is_empty() && server.buffers.is_empty());
        assert_eq!(server.connection.reserved_bytes(), 0);
    }
}

#[test]
fn empty_segments_and_chunks_are_harmless() {
    let (mut server, mut memory) = server();
    let empty = Segment::default();
    let rpc = null(1);
    let chunks = Chunks {
        reads: vec![read(40, empty), read(40, empty)],
        writes: vec![Chunk::default(), Chunk(vec![empty])],
        reply: Some(Chunk::default()),
    };
    server.receive(&message(1, chunks.clone(), Some(&rpc)), &mut memory);
    let (call, fetched) = server.next_call();
    assert_eq!((call.assemble(&fetched), call.fetched_bytes()), (rpc, 0));
    server.reply(call.id, Answer::of(&reply_to(1), vec![], &[]), &mut memory).unwrap();
    let sent = decode(&server.out[0].0).unwrap();
    let Body::Message { chunks: found, .. } = sent.body else { panic!("a reply in a Send") };
    assert_eq!((found.writes, found.reply), (chunks.writes, None));
}

#[test]
fn a_done_is_ignored() {
    let (mut server, mut memory) = server();
    let mut done = Vec::new();
    encode(&Message { xid: Xid(1), credits: 1, body: Body::Done }, &mut done);
    (0..1000).for_each(|_| server.receive(&done, &mut memory));
    assert!(server.out.is_empty() && server.ended.is_none());
    assert_eq!(server.connection.deadline(), None);
}

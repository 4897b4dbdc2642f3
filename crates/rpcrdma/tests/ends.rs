//! Both ends of a connection, over simulated memory.

use dafs_nfs_wire::nfs3;
use dafs_nfs_wire::rpc::{Target, decode_call};
use dafs_nfs_wire::xdr::{Opaque, Payload, Reader, Writer, Xdr};
use dafs_rpcrdma::binding::{check_call, reply_items};
use dafs_rpcrdma::client::{Call, CallFault, Client, Event, Failure};
use dafs_rpcrdma::header::{Chunk, Chunks, ReadSegment, Segment, TransportError, Xid};
use dafs_rpcrdma::limits::{ClientConfig, ServerConfig};
use dafs_rpcrdma::server::{Piece, ReplyFault};
use dafs_types::Random;

use crate::common::{
    Answer, Memory, Server, call_of, pair, reply_to, usual_pair, whole, with, without,
};

const READ: Target = Target { program: 100_003, version: 3, procedure: 6 };

fn data(length: usize) -> Vec<u8> {
    Random::new(length as u64).bytes(length)
}

/// Encodes a call of NFS version 3.
fn nfs3_call(xid: u32, arguments: &nfs3::Arguments<'_>) -> Vec<u8> {
    let encode = |writer: &mut Writer| arguments.encode(writer);
    call_of(xid, 100_003, 3, arguments.procedure().number(), encode)
}

fn read_call(xid: u32, count: u32) -> Vec<u8> {
    let file = Opaque(&[1; 32]);
    nfs3_call(xid, &nfs3::Arguments::Read(nfs3::ReadArgs { file, offset: 0, count }))
}

/// Returns the reply to a READ, whose data is outside of the encoded bytes.
fn read_reply(xid: u32, data: &[u8]) -> Answer {
    let mut writer = reply_to(xid);
    nfs3::ReadResult::Ok(nfs3::ReadOk {
        attributes: None,
        count: data.len() as u32,
        eof: true,
        data: Payload::Elsewhere(data.len()),
    })
    .encode(&mut writer);
    let items = reply_items(&READ, &writer).unwrap();
    assert_eq!(items.len(), 1);
    Answer::of(&writer, items, &[data])
}

fn write_call(xid: u32, data: &[u8]) -> (Vec<u8>, usize) {
    let arguments = nfs3::Arguments::Write(nfs3::WriteArgs {
        file: Opaque(&[2; 28]),
        offset: 4096,
        count: data.len() as u32,
        stable: nfs3::Stability::Unstable,
        data: Payload::Here(data),
    });
    let call = nfs3_call(xid, &arguments);
    let position = call.len() - data.len() - (data.len().wrapping_neg() & 3);
    (call, position)
}

fn reads(position: usize, segments: &[Segment]) -> Vec<ReadSegment> {
    let read = |segment: &Segment| ReadSegment { position: position as u32, segment: *segment };
    segments.iter().map(read).collect()
}

fn reply(event: Event) -> dafs_rpcrdma::client::Reply {
    match event {
        Event::Reply(reply) => reply,
        other => panic!("not a reply: {other:?}"),
    }
}

#[test]
fn the_data_of_a_read_goes_to_its_write_chunk() {
    for length in [0, 1, 5, 4000, 70_001] {
        let (mut server, mut client, mut memory) = usual_pair();
        let segments = memory.register_split(&vec![0; 80_000], &[3, 65_536, 8_000]);
        let writes = vec![Chunk(segments.clone())];
        let chunks = Chunks { writes, ..Chunks::default() };
        let rpc = read_call(5, 80_000);
        let call = Call { xid: Xid(5), rpc: &rpc, chunks, long: &[] };
        let message = client.call(call).unwrap();
        server.receive(&message, &mut memory);
        let (call, fetched) = server.next_call();
        assert_eq!(call.pieces(), [Piece::Inline(0..rpc.len())]);
        assert_eq!(call.assemble(&fetched), rpc);
        assert_eq!(server.connection.room(call.id).unwrap().writes, [80_000]);
        let bytes = data(length);
        let answer = read_reply(5, &bytes);
        let whole = answer.whole();
        server.reply(call.id, answer, &mut memory).unwrap();
        let reply = reply(server.deliver(&mut client));
        assert_eq!((reply.written, reply.reply_bytes), (vec![length as u64], 0));
        assert_eq!(memory.gather(&segments, length as u64), bytes);
        // Neither the data nor its padding is in the message.
        let rpc = reply.rpc.unwrap();
        assert_eq!(with(&rpc, rpc.len(), &bytes), whole);
        assert_eq!(client.calls_in_flight(), 0);
        assert_eq!(server.connection.calls_in_flight(), 0);
        assert_eq!(server.connection.deadline(), None);
    }
}

#[test]
fn without_a_write_chunk_data_is_in_the_message_or_in_the_reply_chunk() {
    let (mut server, mut client, mut memory) = usual_pair();
    for (length, is_long) in [(100, false), (6001, true)] {
        let segments = memory.register_split(&vec![0; 8192], &[1000]);
        let chunks = Chunks { reply: Some(Chunk(segments.clone())), ..Chunks::default() };
        let rpc = read_call(6, 8192);
        let message = client.call(Call { xid: Xid(6), rpc: &rpc, chunks, long: &[] }).unwrap();
        server.receive(&message, &mut memory);
        let (call, _) = server.next_call();
        let answer = read_reply(6, &data(length));
        let whole = answer.whole();
        server.reply(call.id, answer, &mut memory).unwrap();
        let reply = reply(server.deliver(&mut client));
        let found = match reply.rpc {
            Some(rpc) => rpc,
            None => memory.gather(&segments, reply.reply_bytes),
        };
        assert_eq!(found, whole);
        assert_eq!(reply.reply_bytes > 0, is_long);
    }
}

#[test]
fn the_data_of_a_write_is_read_and_never_copied() {
    for length in [1, 6, 4096, 100_003] {
        let (mut server, mut client, mut memory) = usual_pair();
        let bytes = data(length);
        let (whole, position) = write_call(7, &bytes);
        let rpc = without(&whole, position, length);
        let segments = memory.register_split(&bytes, &[length / 3, length / 2]);
        let chunks = Chunks { reads: reads(position, &segments), ..Chunks::default() };
        let message = client.call(Call { xid: Xid(7), rpc: &rpc, chunks, long: &[] }).unwrap();
        server.receive(&message, &mut memory);
        let (call, fetched) = server.next_call();
        assert_eq!((call.length(), fetched.len()), (whole.len(), length));
        assert_eq!(call.assemble(&fetched), whole);
        assert_eq!(check_call(&call, &fetched), Ok(()));
        let mut reader = call.reader(&fetched).unwrap();
        decode_call(&mut reader).unwrap();
        let arguments = nfs3::Arguments::decode(nfs3::Procedure::Write, &mut reader).unwrap();
        let nfs3::Arguments::Write(arguments) = arguments else { panic!("a WRITE") };
        assert_eq!(arguments.data, Payload::Elsewhere(length));
        assert_eq!(reader.finish(), Ok(()));
        assert_eq!(server.connection.reserved_bytes(), length);
        let writer = reply_to(7);
        server.reply(call.id, Answer::of(&writer, vec![], &[]), &mut memory).unwrap();
        assert_eq!(reply(server.deliver(&mut client)).rpc.unwrap(), writer.bytes());
        assert_eq!(server.connection.reserved_bytes(), 0);
        assert!(server.buffers.is_empty());
    }
}

#[test]
fn a_long_call_is_in_the_chunk_with_position_zero() {
    let (mut server, mut client, mut memory) = usual_pair();
    // All of the call, and then all but the data of its WRITE.
    for is_reduced in [false, true] {
        let bytes = data(9001);
        let (whole, position) = write_call(8, &bytes);
        let (rpc, reads) = match is_reduced {
            false => (whole.clone(), vec![]),
            true => {
                // A header that does not fit beside the call.
                let segments = memory.register_split(&bytes, &[1; 38]);
                (without(&whole, position, 9001), reads(position, &segments))
            }
        };
        let long = memory.register_split(&rpc, &[3]);
        let chunks = Chunks { reads, ..Chunks::default() };
        let call = Call { xid: Xid(8), rpc: &rpc, chunks: chunks.clone(), long: &long };
        let message = match is_reduced {
            false => client.call(call).unwrap(),
            true => {
                let mut small = Client::new(
                    ClientConfig { send_bytes: 1024, ..ClientConfig::default() },
                    server.connection.private_data(),
                );
                small.call(call).unwrap()
            }
        };
        server.receive(&message, &mut memory);
        let (call, fetched) = server.next_call();
        assert_eq!(call.assemble(&fetched), whole);
        assert_eq!(call.reader(&fetched).is_some(), !is_reduced);
        assert_eq!(check_call(&call, &fetched), Ok(()));
        server.reply(call.id, Answer::of(&reply_to(8), vec![], &[]), &mut memory).unwrap();
        server.out.clear();
        assert_eq!(server.ended, None);
    }
}

#[test]
fn a_reply_that_does_not_fit_becomes_a_shorter_one_or_an_error() {
    let (mut server, mut client, mut memory) = usual_pair();
    for is_refused in [true, false] {
        let chunks = Chunks {
            writes: vec![Chunk(vec![memory.register(&[0; 100])])],
            reply: Some(Chunk(vec![memory.register(&[0; 200])])),
            ..Chunks::default()
        };
        let rpc = read_call(9, 5000);
        let message = client.call(Call { xid: Xid(9), rpc: &rpc, chunks, long: &[] }).unwrap();
        server.receive(&message, &mut memory);
        let (call, _) = server.next_call();
        let long = read_reply(9, &data(101));
        let fault = server.reply(call.id, long, &mut memory);
        assert_eq!(fault, Err(ReplyFault::WriteChunk { length: 101, room: 100 }));
        let mut writer = reply_to(9);
        writer.padded(&data(4100));
        let length = writer.bytes().len();
        let fault = server.reply(call.id, Answer::of(&writer, vec![], &[]), &mut memory);
        let inline = server.connection.room(call.id).unwrap().inline;
        assert_eq!(fault, Err(ReplyFault::Long { length, inline, room: 200 }));
        assert!(server.out.is_empty(), "nothing was sent");
        if is_refused {
            server.refuse(call.id, &mut memory);
            let failure = Failure::Transport(TransportError::Chunk);
            let wanted = Event::Failed { xid: Xid(9), failure };
            assert_eq!(server.deliver(&mut client), wanted);
        } else {
            server.reply(call.id, read_reply(9, &data(100)), &mut memory).unwrap();
            assert_eq!(reply(server.deliver(&mut client)).written, [100]);
        }
        let again = server.reply(call.id, read_reply(9, &[]), &mut memory);
        assert_eq!(again, Err(ReplyFault::Unknown));
    }
}

#[test]
fn a_reply_invalidates_the_only_handle_if_both_ends_can() {
    for (both, handles) in [(true, 1), (true, 2), (false, 1)] {
        let client = ClientConfig { remote_invalidation: both, ..ClientConfig::default() };
        let (mut server, mut client, mut memory) = pair(ServerConfig::default(), client);
        let segments: Vec<_> = (0..handles).map(|_| memory.register(&[0; 64])).collect();
        let writes = vec![Chunk(segments.clone())];
        let chunks = Chunks { writes, ..Chunks::default() };
        let rpc = read_call(10, 64);
        let message = client.call(Call { xid: Xid(10), rpc: &rpc, chunks, long: &[] }).unwrap();
        server.receive(&message, &mut memory);
        let (call, _) = server.next_call();
        server.reply(call.id, read_reply(10, &[3; 64]), &mut memory).unwrap();
        let is_invalidated = both && handles == 1;
        assert_eq!(memory.is_registered(segments[0].handle), !is_invalidated);
        let wanted = is_invalidated.then_some(segments[0].handle);
        assert_eq!(server.out[0].1, wanted);
        assert_eq!(reply(server.deliver(&mut client)).written, [64]);
    }
}

#[test]
fn a_client_has_one_call_in_flight_until_it_knows_the_grant() {
    let server = ServerConfig { credits: 3, ..ServerConfig::default() };
    let (mut server, mut client, mut memory) = pair(server, ClientConfig::default());
    let send = |client: &mut Client, server: &mut Server, memory: &mut Memory, xid: u32| {
        let rpc = read_call(xid, 8);
        let chunks = Chunks::default();
        let message = client.call(Call { xid: Xid(xid), rpc: &rpc, chunks, long: &[] })?;
        server.receive(&message, memory);
        Ok::<_, CallFault>(())
    };
    send(&mut client, &mut server, &mut memory, 1).unwrap();
    let refused = send(&mut client, &mut server, &mut memory, 2);
    assert_eq!(refused, Err(CallFault::Credits));
    let (call, _) = server.next_call();
    server.reply(call.id, read_reply(1, &[1]), &mut memory).unwrap();
    reply(server.deliver(&mut client));
    for xid in 2..5 {
        send(&mut client, &mut server, &mut memory, xid).unwrap();
    }
    assert!(!client.has_credit());
    assert_eq!((server.calls.len(), server.ended), (3, None));
}

#[test]
fn a_client_refuses_replies_whose_lists_lie() {
    use dafs_rpcrdma::header::{Body, Handle, Message, encode};
    let own = Segment { handle: Handle(1), length: 64, offset: 0 };
    let other = Segment { handle: Handle(2), ..own };
    let shorter = Segment { length: 10, ..own };
    let lists = |writes: Vec<Vec<Segment>>, reply: Option<Vec<Segment>>| Chunks {
        reads: vec![],
        writes: writes.into_iter().map(Chunk).collect(),
        reply: reply.map(Chunk),
    };
    let good = lists(vec![vec![own, Segment { length: 0, ..own }]], None);
    let bad = [
        lists(vec![], None),
        lists(vec![vec![own, own], vec![]], None),
        lists(vec![vec![own]], None),
        lists(vec![vec![own, other]], None),
        lists(vec![vec![Segment { length: 65, ..own }, own]], None),
        lists(vec![vec![Segment { offset: 1, ..own }, own]], None),
        // Not filled from the start.
        lists(vec![vec![shorter, shorter]], None),
        // A message is not in two places.
        lists(vec![vec![own, own]], Some(vec![shorter])),
        Chunks { reads: reads(0, &[own]), ..good.clone() },
    ];
    let rpc = read_call(11, 64);
    let offered = lists(vec![vec![own, own]], Some(vec![own]));
    let answer = |found: Chunks, rpc_reply: &[u8], invalidated| {
        let mut client = Client::new(ClientConfig::default(), Default::default());
        let call = Call { xid: Xid(11), rpc: &rpc, chunks: offered.clone(), long: &[] };
        client.call(call).unwrap();
        let mut message = Vec::new();
        let body = Body::Message { chunks: found, rpc: rpc_reply };
        encode(&Message { xid: Xid(11), credits: 0, body }, &mut message);
        let event = client.receive(&message, invalidated);
        assert_eq!(client.calls_in_flight(), 0);
        assert_eq!(client.receive(&message, invalidated), Event::Ignored, "sent again");
        event
    };
    let writer = reply_to(11);
    for found in bad {
        let event = answer(found.clone(), writer.bytes(), None);
        assert_eq!(event, Event::Failed { xid: Xid(11), failure: Failure::Lists }, "{found:?}");
    }
    assert_eq!(reply(answer(good.clone(), writer.bytes(), Some(Handle(1)))).written, [64]);
    let event = answer(good.clone(), writer.bytes(), Some(Handle(3)));
    assert_eq!(event, Event::Failed { xid: Xid(11), failure: Failure::Invalidated });
    let event = answer(good, reply_to(12).bytes(), None);
    assert_eq!(event, Event::Failed { xid: Xid(11), failure: Failure::Rpc });
}

/// Calls of random sizes, with their parts cut at random places, many in flight.
#[test]
fn whatever_is_sent_arrives() {
    let mut random = Random::new(20_049);
    for _ in 0..60 {
        let sizes = [1024, 2048, 4096, 65_536];
        let server = ServerConfig {
            credits: 1 + random.below(8) as u32,
            send_bytes: sizes[random.below(4)],
            receive_bytes: 4096,
            reads: 1 + random.below(4),
            call_bytes: 40_000,
            connection_bytes: 40_000 + random.below(80_000),
            ..ServerConfig::default()
        };
        let client = ClientConfig { receive_bytes: sizes[random.below(4)], ..Default::default() };
        let (mut server, mut client, mut memory) = pair(server, client);
        let mut expected = Vec::new();
        for xid in 0..40 {
            exchange(xid, &mut random, &mut server, &mut client, &mut memory, &mut expected);
            assert_eq!(server.ended, None);
        }
        serve(&mut random, &mut server, &mut client, &mut memory, &mut expected);
        assert!(expected.is_empty(), "calls were lost");
        assert!(server.most_reserved <= 120_000);
        assert_eq!(server.connection.reserved_bytes(), 0);
        assert!(server.buffers.is_empty());
    }
}

/// Sends a call if there is a credit, and sometimes replies to all calls.
fn exchange(
    xid: u32,
    random: &mut Random,
    server: &mut Server,
    client: &mut Client,
    memory: &mut Memory,
    expected: &mut Vec<(Vec<u8>, Chunks)>,
) {
    let cuts = |random: &mut Random| (0..random.below(4)).map(|_| random.below(9000)).collect();
    if client.has_credit() {
        let length = 1 + random.below(20_000);
        let bytes = random.bytes(length);
        let (whole, position) = write_call(xid, &bytes);
        let cut: Vec<usize> = cuts(random);
        let is_reduced = random.percent(60);
        let (rpc, reads) = match is_reduced {
            true => {
                let segments = memory.register_split(&bytes, &cut);
                (without(&whole, position, length), reads(position, &segments))
            }
            false => (whole.clone(), vec![]),
        };
        let write = memory.register_split(&vec![0; 20_000], &cut);
        let whole_reply = memory.register_split(&vec![0; 21_000], &cut);
        let chunks = Chunks {
            reads,
            writes: if random.percent(60) { vec![Chunk(write)] } else { vec![] },
            reply: Some(Chunk(whole_reply)),
        };
        let long = memory.register_split(&rpc, &cut);
        let call = Call { xid: Xid(xid), rpc: &rpc, chunks: chunks.clone(), long: &long };
        let message = client.call(call).unwrap();
        server.receive(&message, memory);
        expected.push((whole, chunks));
    }
    if !client.has_credit() || random.percent(50) {
        serve(random, server, client, memory, expected);
    }
}

/// Replies to all calls.
fn serve(
    random: &mut Random,
    server: &mut Server,
    client: &mut Client,
    memory: &mut Memory,
    expected: &mut Vec<(Vec<u8>, Chunks)>,
) {
    while !server.calls.is_empty() {
        let (call, fetched) = server.next_call();
        let at = expected.iter().position(|(whole, _)| whole[..4] == call.xid.0.to_be_bytes());
        let (whole, chunks) = expected.remove(at.unwrap());
        assert_eq!(call.assemble(&fetched), whole);
        assert_eq!(check_call(&call, &fetched), Ok(()));
        let length = random.below(20_000);
        let bytes = random.bytes(length);
        let answer = read_reply(call.xid.0, &bytes);
        let wanted = answer.whole();
        server.reply(call.id, answer, memory).unwrap();
        let reply = reply(server.deliver(client));
        let mut found = match reply.rpc {
            Some(rpc) => rpc,
            None => memory.gather(&chunks.reply.as_ref().unwrap().0, reply.reply_bytes),
        };
        if let Some(written) = reply.written.first() {
            let data = memory.gather(&chunks.writes[0].0, *written);
            found = with(&found, found.len(), &data);
        }
        assert_eq!(found, wanted);
    }
}

#[test]
fn an_answer_of_a_writer_is_the_message_of_the_writer() {
    let mut writer = reply_to(1);
    Payload::Elsewhere(5).encode(&mut writer);
    let mut reader = Reader::new(writer.bytes());
    assert_eq!(reader.u32(), Ok(1));
    let items = vec![dafs_rpcrdma::server::Item {
        at: writer.bytes().len() - 3,
        length: 5,
        is_outside: true,
        is_eligible: false,
    }];
    let answer = Answer::of(&writer, items, &[b"abcde"]);
    assert_eq!(answer.whole(), whole(&writer, &[b"abcde"]));
}

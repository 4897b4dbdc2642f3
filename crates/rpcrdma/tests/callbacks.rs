//! Calls from the server to the client, on the same connection (RFC 8167).

use std::time::Duration;

use dafs_nfs_wire::xdr::Writer;
use dafs_rpcrdma::client::{Call, Event};
use dafs_rpcrdma::header::{Body, Chunk, Chunks, Message, TransportError, Xid, decode, encode};
use dafs_rpcrdma::limits::{ClientConfig, ServerConfig};
use dafs_rpcrdma::server::{CallbackFault, CallbackRefused};

use crate::common::{Answer, Memory, Server, call_of, pair, reply_to, usual_pair};

/// Encodes a CB_NULL of the callback program.
fn callback(xid: u32) -> Vec<u8> {
    call_of(xid, 0x4000_0000, 1, 0, |_: &mut Writer| {})
}

fn call_back(server: &mut Server, memory: &mut Memory, xid: u32) -> Result<(), CallbackRefused> {
    server.connection.call_back(Xid(xid), &callback(xid), server.now)?;
    server.run(memory);
    Ok(())
}

#[test]
fn calls_of_both_directions_share_a_connection_and_even_an_identifier() {
    let (mut server, mut client, mut memory) = usual_pair();
    let rpc = call_of(5, 100_003, 3, 0, |_: &mut Writer| {});
    let chunks = Chunks::default();
    let forward = client.call(Call { xid: Xid(5), rpc: &rpc, chunks, long: &[] }).unwrap();
    call_back(&mut server, &mut memory, 5).unwrap();
    server.receive(&forward, &mut memory);
    let event = server.deliver(&mut client);
    assert_eq!(event, Event::Callback { xid: Xid(5), rpc: callback(5) });
    let back = client.reply_back(Xid(5), reply_to(5).bytes()).unwrap();
    server.receive(&back, &mut memory);
    assert_eq!(server.callbacks, [(Xid(5), Ok(reply_to(5).bytes().to_vec()))]);
    let (call, _) = server.next_call();
    server.reply(call.id, Answer::of(&reply_to(5), vec![], &[]), &mut memory).unwrap();
    assert!(matches!(server.deliver(&mut client), Event::Reply(reply) if reply.xid == Xid(5)));
}

#[test]
fn each_direction_has_its_own_credits() {
    let client = ClientConfig { callbacks: 2, ..ClientConfig::default() };
    let (mut server, mut client, mut memory) = pair(ServerConfig::default(), client);
    // Before the first reply there is one credit. The other callbacks wait.
    for xid in 1..=4 {
        call_back(&mut server, &mut memory, xid).unwrap();
        assert_eq!(call_back(&mut server, &mut memory, xid), Err(CallbackRefused::InFlight));
        assert_eq!(server.out.len(), 1);
    }
    server.deliver(&mut client);
    let back = client.reply_back(Xid(1), reply_to(1).bytes()).unwrap();
    assert_eq!(decode(&back).unwrap().credits, 2);
    server.receive(&back, &mut memory);
    let xids: Vec<_> = server.out.iter().map(|(sent, _)| decode(sent).unwrap().xid).collect();
    assert_eq!(xids, [Xid(2), Xid(3)]);
    assert_eq!(server.connection.calls_in_flight(), 0);
    // A server that ignores them is not served.
    server.deliver(&mut client);
    let (message, _) = server.out.remove(0);
    client.receive(&message, None);
    assert_eq!(client.receive(&message, None), Event::Overrun);
}

#[test]
fn callbacks_that_wait_for_credits_end_and_have_a_limit() {
    let (mut server, _, mut memory) = usual_pair();
    for xid in 0..=256 {
        call_back(&mut server, &mut memory, xid).unwrap();
    }
    assert_eq!(call_back(&mut server, &mut memory, 1000), Err(CallbackRefused::Credits));
    // The client replies to none of them.
    server.now = server.now.after(Duration::from_secs(30));
    server.connection.on_time(server.now);
    server.run(&mut memory);
    let ended: Vec<_> = std::mem::take(&mut server.callbacks);
    assert_eq!(ended.len(), 257);
    assert!(ended.iter().all(|(_, outcome)| *outcome == Err(CallbackFault::Patience)));
    assert_eq!((server.connection.deadline(), server.ended), (None, None));
}

#[test]
fn a_callback_ends_whatever_the_client_does() {
    let (mut server, mut client, mut memory) = usual_pair();
    // No reply.
    call_back(&mut server, &mut memory, 1).unwrap();
    assert_eq!(server.connection.deadline(), Some(server.now.after(Duration::from_secs(30))));
    server.now = server.now.after(Duration::from_secs(30));
    server.connection.on_time(server.now);
    server.run(&mut memory);
    assert_eq!(server.callbacks.pop(), Some((Xid(1), Err(CallbackFault::Patience))));
    // A reply that is too late, and one to a callback that was never sent.
    server.deliver(&mut client);
    let late = client.reply_back(Xid(1), reply_to(1).bytes()).unwrap();
    server.receive(&late, &mut memory);
    let never = client.reply_back(Xid(9), reply_to(9).bytes()).unwrap();
    server.receive(&never, &mut memory);
    assert!(server.callbacks.is_empty() && server.out.is_empty());
    // An error of the transport.
    call_back(&mut server, &mut memory, 2).unwrap();
    let mut error = Vec::new();
    let body = Body::Error(TransportError::VERSION);
    encode(&Message { xid: Xid(2), credits: 1, body }, &mut error);
    server.receive(&error, &mut memory);
    let refused = Err(CallbackFault::Refused(TransportError::VERSION));
    assert_eq!(server.callbacks.pop(), Some((Xid(2), refused)));
    // A reply with chunks, which would name memory.
    call_back(&mut server, &mut memory, 3).unwrap();
    let mut reply = Vec::new();
    let chunks =
        Chunks { writes: vec![Chunk(vec![memory.register(&[0; 8])])], ..Chunks::default() };
    let writer = reply_to(3);
    let body = Body::Message { chunks, rpc: writer.bytes() };
    encode(&Message { xid: Xid(3), credits: 1, body }, &mut reply);
    server.receive(&reply, &mut memory);
    assert_eq!(server.callbacks.pop(), Some((Xid(3), Err(CallbackFault::Chunks))));
    assert_eq!((server.connection.deadline(), server.ended), (None, None));
}

#[test]
fn callbacks_have_no_chunks_and_fit_in_a_send() {
    let (mut server, mut client, mut memory) = usual_pair();
    let long = call_of(1, 0x4000_0000, 1, 1, |writer| writer.padded(&[0; 5000]));
    let refused = server.connection.call_back(Xid(1), &long, server.now);
    assert_eq!(refused, Err(CallbackRefused::Long));
    let other = server.connection.call_back(Xid(2), &callback(1), server.now);
    assert_eq!(other, Err(CallbackRefused::NotACall));
    let reply = server.connection.call_back(Xid(1), reply_to(1).bytes(), server.now);
    assert_eq!(reply, Err(CallbackRefused::NotACall));
    call_back(&mut server, &mut memory, 1).unwrap();
    let message = decode(&server.out[0].0).unwrap();
    let rpc = callback(1);
    assert_eq!(message.body, Body::Message { chunks: Chunks::default(), rpc: &rpc });
    // A client answers a callback with chunks by an error.
    let mut message = Vec::new();
    let chunks = Chunks { reply: Some(Chunk::default()), ..Chunks::default() };
    let body = Body::Message { chunks, rpc: &rpc };
    encode(&Message { xid: Xid(1), credits: 1, body }, &mut message);
    let Event::Answer(answer) = client.receive(&message, None) else { panic!("an error") };
    assert_eq!(decode(&answer).unwrap().body, Body::Error(TransportError::Chunk));
}

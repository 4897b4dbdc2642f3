//! The rules for NFS: which data may be in chunks, in which order, and how large replies can be.

use dafs_nfs_wire::nfs3;
use dafs_nfs_wire::nfs4::data::{DataPart, HolePart, Part, ReadArgs, ReadDone, ReadPlusDone};
use dafs_nfs_wire::nfs4::directory::{CreateArgs, CreateKind};
use dafs_nfs_wire::nfs4::{
    Answer as Result4, Bitmap, CallWriter, Fattr, Operation, Reply, ReplyWriter, Status, data,
};
use dafs_nfs_wire::rpc::Target;
use dafs_nfs_wire::xdr::{List, Opaque, Payload, Place, Reader, Writer, Xdr};
use dafs_rpcrdma::binding::{
    Protocol, ROWS, call_items, check_call, nfs3_reply_size, nfs4_reply_size, reply_items,
};
use dafs_rpcrdma::client::{Call, Event};
use dafs_rpcrdma::header::{Chunk, Chunks, ReadSegment, Xid};
use dafs_rpcrdma::server::{Item, ReplyFault};

use crate::common::{Answer, call_of, reply_to, usual_pair, with, without};

const COMPOUND: Target = Target { program: 100_003, version: 4, procedure: 1 };

fn compound(xid: u32, operations: &[Operation<'_>]) -> Vec<u8> {
    call_of(xid, 100_003, 4, 1, |writer| {
        let mut calls = CallWriter::new(writer, Opaque(b"tag"), 2, 0);
        operations.iter().for_each(|operation| calls.push(writer, operation));
    })
}

fn compound_reply(xid: u32, answers: &[Result4<'_>]) -> Writer {
    let mut writer = reply_to(xid);
    let mut reply = ReplyWriter::new(&mut writer, Opaque(b"tag"));
    answers.iter().for_each(|answer| reply.push(&mut writer, answer));
    reply.finish(&mut writer, answers.last().map_or(Status::Ok, Result4::status));
    writer
}

fn write(data: &[u8]) -> Operation<'_> {
    Operation::Write(data::WriteArgs {
        state: Default::default(),
        offset: 0,
        stability: Default::default(),
        data: Payload::Here(data),
    })
}

fn symlink(text: &'static [u8]) -> Operation<'static> {
    Operation::Create(CreateArgs {
        kind: CreateKind::SymbolicLink(Opaque(text)),
        name: Opaque(b"name"),
        attributes: Fattr { mask: Bitmap::default(), values: Opaque(b"") },
    })
}

fn read_done(length: usize) -> Result4<'static> {
    Result4::Read(Reply::Ok(ReadDone { is_end: false, data: Payload::Elsewhere(length) }))
}

/// Finds a text that occurs once.
fn position(bytes: &[u8], text: &[u8]) -> usize {
    bytes.windows(text.len()).position(|window| window == text).unwrap()
}

#[test]
fn the_items_of_calls_are_found() {
    let (first, second) = (*b"the data of a file", *b"other data");
    let operations = [Operation::PutRootFh, write(&first), symlink(b"a/link"), write(&second)];
    let call = compound(1, &operations);
    let items = call_items(Reader::new(&call));
    let wanted = [&first[..], b"a/link", &second]
        .map(|text| Place { start: position(&call, text), length: text.len() });
    assert_eq!(items, wanted);
    let link = nfs3::Arguments::SymLink(nfs3::SymLinkArgs {
        at: nfs3::DirectoryOp { directory: Opaque(&[1; 8]), name: Opaque(b"name") },
        link: nfs3::SymLinkData {
            attributes: nfs3::SetAttributes::default(),
            target: Opaque(b"a/target"),
        },
    });
    let call = call_of(1, 100_003, 3, 10, |writer| link.encode(writer));
    let wanted = Place { start: position(&call, b"a/target"), length: 8 };
    assert_eq!(call_items(Reader::new(&call)), [wanted]);
    // Names, callbacks and other programs have none.
    let lookup = compound(1, &[Operation::Lookup(Opaque(b"name"))]);
    assert_eq!(call_items(Reader::new(&lookup)), []);
    for (program, version, procedure) in [(100_005, 3, 1), (0x4000_0000, 1, 1), (100_003, 3, 99)] {
        let other = call_of(1, program, version, procedure, |writer| writer.padded(&[0; 40]));
        assert_eq!(call_items(Reader::new(&other)), []);
    }
}

#[test]
fn a_read_chunk_must_contain_an_item() {
    let bytes = [7_u8; 1001];
    let operations = [Operation::PutRootFh, write(&bytes), symlink(b"some/text")];
    let call = compound(2, &operations);
    let data_at = position(&call, &bytes);
    let text_at = position(&call, b"some/text");
    // Where the chunk is, how long it is, whether it is allowed.
    let cases = [
        (data_at, 1001, true),
        (data_at, 1004, true),
        (text_at, 9, true),
        (text_at, 12, true),
        (data_at, 1000, false),
        (data_at + 4, 997, false),
        (text_at - 4, 13, false),
        (40, 8, false),
    ];
    for (start, length, is_allowed) in cases {
        let (mut server, mut client, mut memory) = usual_pair();
        let end = start + length;
        let segment = memory.register(&call[start..end]);
        let pad = length.wrapping_neg() & 3;
        let rpc = [&call[..start], &call[end + pad..]].concat();
        let reads = vec![ReadSegment { position: start as u32, segment }];
        let chunks = Chunks { reads, ..Chunks::default() };
        let message = client.call(Call { xid: Xid(2), rpc: &rpc, chunks, long: &[] }).unwrap();
        server.receive(&message, &mut memory);
        let (incoming, fetched) = server.next_call();
        let checked = check_call(&incoming, &fetched);
        assert_eq!(checked.is_ok(), is_allowed, "{start} {length}: {checked:?}");
        if is_allowed {
            assert_eq!(incoming.assemble(&fetched), call);
        }
    }
}

#[test]
fn several_items_of_a_call_are_in_several_chunks() {
    let bytes = [[1_u8; 501], [2; 501], [3; 501]];
    let operations = [write(&bytes[0]), write(&bytes[1]), write(&bytes[2])];
    let call = compound(3, &operations);
    let (mut server, mut client, mut memory) = usual_pair();
    let mut rpc = call.clone();
    let mut reads = Vec::new();
    for data in bytes.iter().rev() {
        let start = position(&call, data);
        rpc = without(&rpc, start, data.len());
        for segment in memory.register_split(data, &[100]) {
            reads.push(ReadSegment { position: start as u32, segment });
        }
    }
    let chunks = Chunks { reads, ..Chunks::default() };
    let message = client.call(Call { xid: Xid(3), rpc: &rpc, chunks, long: &[] }).unwrap();
    server.receive(&message, &mut memory);
    let (incoming, fetched) = server.next_call();
    assert_eq!(incoming.assemble(&fetched), call);
    assert_eq!(check_call(&incoming, &fetched), Ok(()));
}

#[test]
fn each_read_of_a_compound_has_its_write_chunk() {
    let target = &COMPOUND;
    let plus = Result4::ReadPlus(Reply::Ok(ReadPlusDone {
        is_end: true,
        parts: List(vec![
            Part::Data(DataPart { offset: 0, data: Payload::Elsewhere(9) }),
            Part::Hole(HolePart { offset: 9, length: 100 }),
            Part::Data(DataPart { offset: 109, data: Payload::Here(b"inside") }),
        ]),
    }));
    let link = Result4::ReadLink(Reply::Ok(Opaque(b"a/link")));
    let failed = Result4::Read(Reply::Failed(Status::Stale));
    let answers =
        [Result4::PutRootFh(Status::Ok), read_done(0), plus, link, read_done(1001), failed];
    let writer = compound_reply(4, &answers);
    let items = reply_items(target, &writer).unwrap();
    let found: Vec<_> =
        items.iter().map(|item| (item.length, item.is_outside, item.is_eligible)).collect();
    let wanted = [
        (0, false, true),
        (9, true, false),
        (6, false, false),
        (6, false, true),
        (1001, true, true),
    ];
    assert_eq!(found, wanted);

    let (mut server, mut client, mut memory) = usual_pair();
    let chunk =
        |memory: &mut crate::common::Memory, length| Chunk(vec![memory.register(&vec![0; length])]);
    let writes: Vec<_> = [50, 8, 2000, 70].map(|length| chunk(&mut memory, length)).to_vec();
    let chunks = Chunks { writes: writes.clone(), ..Chunks::default() };
    let rpc = compound(4, &[Operation::PutRootFh]);
    let message = client.call(Call { xid: Xid(4), rpc: &rpc, chunks, long: &[] }).unwrap();
    server.receive(&message, &mut memory);
    let (call, _) = server.next_call();
    let answer = Answer::of(&writer, items.clone(), &[&[4; 9], &[5; 1001]]);
    let whole = answer.whole();
    server.reply(call.id, answer, &mut memory).unwrap();
    let Event::Reply(reply) = server.deliver(&mut client) else { panic!("a reply") };
    // The chunk of the READ that failed is unused.
    assert_eq!(reply.written, [0, 6, 1001, 0]);
    assert_eq!(memory.gather(&writes[1].0, 6), b"a/link");
    assert_eq!(memory.gather(&writes[2].0, 1001), [5; 1001]);
    let link_at = position(&whole, b"a/link");
    let data_at = position(&whole, &[5; 1001]);
    let with_link = with(&reply.rpc.unwrap(), link_at, b"a/link");
    assert_eq!(with(&with_link, data_at, &[5; 1001]), whole);
}

#[test]
fn an_empty_write_chunk_leaves_its_data_in_the_message() {
    let (mut server, mut client, mut memory) = usual_pair();
    let full = memory.register(&[0; 16]);
    let writes = vec![Chunk::default(), Chunk(vec![full])];
    let chunks = Chunks { writes, ..Chunks::default() };
    let rpc = compound(5, &[Operation::PutRootFh]);
    let message = client.call(Call { xid: Xid(5), rpc: &rpc, chunks, long: &[] }).unwrap();
    server.receive(&message, &mut memory);
    let (call, _) = server.next_call();
    let writer = compound_reply(5, &[read_done(5), read_done(6)]);
    let items = reply_items(&COMPOUND, &writer).unwrap();
    let answer = Answer::of(&writer, items, &[b"first", b"second"]);
    server.reply(call.id, answer, &mut memory).unwrap();
    let Event::Reply(reply) = server.deliver(&mut client) else { panic!("a reply") };
    assert_eq!(reply.written, [0, 6]);
    assert_eq!(memory.gather(&[full], 6), b"second");
    position(&reply.rpc.unwrap(), b"first");
}

#[test]
fn replies_without_items_have_none() {
    let mut writer = reply_to(1);
    nfs3::ReadResult::Fail(nfs3::Status::Stale, None).encode(&mut writer);
    let target = Target { program: 100_003, version: 3, procedure: 6 };
    assert_eq!(reply_items(&target, &writer), Ok(vec![]));
    let mut link = reply_to(1);
    nfs3::ReadLinkResult::Ok(nfs3::ReadLinkOk { attributes: None, target: Opaque(b"text") })
        .encode(&mut link);
    let target = Target { program: 100_003, version: 3, procedure: 5 };
    let item = Item { at: link.bytes().len() - 4, length: 4, is_outside: false, is_eligible: true };
    assert_eq!(reply_items(&target, &link), Ok(vec![item]));
    // Data of a program that has no items must not be lost.
    let mut other = reply_to(1);
    Payload::Elsewhere(8).encode(&mut other);
    let target = Target { program: 100_005, version: 3, procedure: 6 };
    assert!(reply_items(&target, &other).is_err());
}

#[test]
fn items_at_wrong_positions_are_an_error_of_the_server() {
    let (mut server, mut client, mut memory) = usual_pair();
    let rpc = compound(6, &[Operation::PutRootFh]);
    let chunks = Chunks::default();
    let message = client.call(Call { xid: Xid(6), rpc: &rpc, chunks, long: &[] }).unwrap();
    server.receive(&message, &mut memory);
    let (call, _) = server.next_call();
    let writer = reply_to(6);
    for (at, length, is_outside) in
        [(25, 0, true), (20, 5, false), (24, 1, true), (usize::MAX, 1, false)]
    {
        let item = Item { at, length, is_outside, is_eligible: true };
        let answer =
            Answer { bytes: writer.bytes().to_vec(), items: vec![item], data: vec![vec![]] };
        assert_eq!(server.reply(call.id, answer, &mut memory), Err(ReplyFault::Items), "{item:?}");
    }
}

#[test]
fn sizes_of_replies_decide_about_chunks() {
    let file = Opaque(&[1; 32]);
    let read = nfs3::Arguments::Read(nfs3::ReadArgs { file, offset: 0, count: 65_536 });
    let size = nfs3_reply_size(&read);
    assert_eq!((size.write_chunks(4096), size.reply_chunk(4096)), (&[65_536][..], None));
    let small = nfs3::Arguments::Read(nfs3::ReadArgs { file, offset: 0, count: 100 });
    let size = nfs3_reply_size(&small);
    assert_eq!((size.write_chunks(4096), size.reply_chunk(4096)), (&[][..], None));
    let attributes = nfs3_reply_size(&nfs3::Arguments::GetAttr(nfs3::FileArgs { file }));
    assert_eq!(attributes.reply_chunk(1024), None);
    let list = nfs3::ReadDirArgs {
        directory: file,
        cookie: 0,
        verifier: Default::default(),
        count: 32_768,
    };
    let size = nfs3_reply_size(&nfs3::Arguments::ReadDir(list));
    assert!(size.reply_chunk(4096).is_some_and(|length| length >= 32_768));

    let arguments = ReadArgs { count: 70_000, ..ReadArgs::default() };
    let operations = [Operation::PutRootFh, Operation::Read(arguments), Operation::Read(arguments)];
    let size = nfs4_reply_size(3, operations.iter(), 1 << 20);
    assert_eq!((size.write_chunks(4096), size.reply_chunk(4096)), (&[70_000; 2][..], None));
    // Mode and size are short, access control lists are not.
    let short = [Operation::GetAttr(Bitmap::of(&[4, 33]))];
    assert_eq!(nfs4_reply_size(0, short.iter(), 1 << 20).reply_chunk(1024), None);
    let long = [Operation::GetAttr(Bitmap::of(&[4, 12]))];
    let size = nfs4_reply_size(0, long.iter(), 1 << 20);
    assert_eq!(size.reply_chunk(1024), Some(1 << 20), "at most what the session allows");
    let plus = [Operation::ReadPlus(arguments)];
    let size = nfs4_reply_size(0, plus.iter(), 1 << 20);
    assert!(size.write_chunks(4096).is_empty() && size.reply_chunk(4096) >= Some(70_000));
}

#[test]
fn a_reply_is_never_longer_than_its_size() {
    let file = Opaque(&[1; 32]);
    let bytes = [7; 333];
    let mut writer = reply_to(1);
    nfs3::ReadResult::Ok(nfs3::ReadOk {
        attributes: None,
        count: 333,
        eof: true,
        data: Payload::Here(&bytes),
    })
    .encode(&mut writer);
    let read = nfs3::Arguments::Read(nfs3::ReadArgs { file, offset: 0, count: 333 });
    assert!(writer.bytes().len() as u64 <= nfs3_reply_size(&read).whole());
    let arguments = ReadArgs { count: 333, ..ReadArgs::default() };
    let operations = [Operation::Read(arguments), Operation::ReadLink];
    let answers = [
        Result4::Read(Reply::Ok(ReadDone { is_end: true, data: Payload::Here(&bytes) })),
        Result4::ReadLink(Reply::Ok(Opaque(b"text"))),
    ];
    let writer = compound_reply(1, &answers);
    let size = nfs4_reply_size(3, operations.iter(), 1 << 20);
    assert!(writer.bytes().len() as u64 <= size.whole());
}

#[test]
fn the_table_has_what_the_rfc_lists() {
    let numbers = |protocol, in_call: bool| -> Vec<u32> {
        let has = |row: &&dafs_rpcrdma::binding::Row| match in_call {
            true => row.in_call.is_some(),
            false => row.in_reply.is_some(),
        };
        let own = ROWS.iter().filter(|row| row.protocol == protocol);
        own.filter(has).map(|row| row.number).collect()
    };
    // SYMLINK and WRITE, READLINK and READ.
    assert_eq!(numbers(Protocol::Nfs3, true), [7, 10]);
    assert_eq!(numbers(Protocol::Nfs3, false), [5, 6]);
    // CREATE and WRITE, READ and READLINK.
    assert_eq!(numbers(Protocol::Nfs4, true), [6, 38]);
    assert_eq!(numbers(Protocol::Nfs4, false), [25, 27]);
    assert_eq!(Protocol::of(100_003, 2), None);
    assert_eq!(Protocol::of(100_227, 3), None);
}

//! A server and a client exchange compounds: the server decodes one operation at a time and encodes
//! one answer at a time, and counts in headers that lie do no harm.

use dafs_nfs_wire::nfs4::attributes::number;
use dafs_nfs_wire::nfs4::callbacks::{CbRecallArgs, CbSequenceArgs, CbSequenceDone};
use dafs_nfs_wire::nfs4::data::{ReadArgs, ReadDone, WriteArgs};
use dafs_nfs_wire::nfs4::directory::ReadDirDone;
use dafs_nfs_wire::nfs4::limits::OPERATIONS_MAX;
use dafs_nfs_wire::nfs4::session::{SequenceArgs, SequenceDone};
use dafs_nfs_wire::nfs4::types::{
    ClientId, ObjectType, SessionId, Stability, Verifier, check_name,
};
use dafs_nfs_wire::nfs4::{
    Answer, AttributeError, Attributes, Bitmap, CallReader, CallWriter, Callback, CallbackAnswer,
    Fattr, ListingWriter, Operation, OperationKind, Outcome, Reply, ReplyReader, ReplyWriter,
    StateId, Status, Time,
};
use dafs_nfs_wire::xdr::{Opaque, Payload, Piece, Reader, Writer, XdrError, decode_whole};

/// Returns the bytes of a compound with these operations.
fn compound(minor_version: u32, operations: &[Operation<'_>]) -> Vec<u8> {
    let mut writer = Writer::new();
    let mut call = CallWriter::new(&mut writer, Opaque(b"tag"), minor_version, 0);
    operations.iter().for_each(|operation| call.push(&mut writer, operation));
    writer.contiguous().expect("a compound").to_vec()
}

#[test]
fn a_server_answers_one_operation_after_the_other() {
    let sequence = SequenceArgs { session: SessionId([7; 16]), sequence: 3, ..Default::default() };
    let wanted = Bitmap::of(&[number::type_, number::size, number::owner]);
    let bytes = compound(
        1,
        &[
            Operation::Sequence(sequence),
            Operation::PutRootFh,
            Operation::GetAttr(wanted),
            Operation::Lookup(Opaque(b"missing")),
            Operation::GetFh,
        ],
    );
    let mut reader = CallReader::<Operation<'_>>::new(Reader::new(&bytes)).expect("a header");
    assert_eq!((&reader.tag()[..], reader.minor_version(), reader.count()), (&b"tag"[..], 1, 5));
    let mut writer = Writer::new();
    let mut reply = ReplyWriter::new(&mut writer, reader.tag());
    let attributes = Attributes {
        type_: Some(ObjectType::Directory),
        change: Some(9),
        size: Some(4096),
        ..Default::default()
    };
    let mut status = Status::Ok;
    while let Some(call) = reader.next_call() {
        match call.expect("a call") {
            Operation::Sequence(asked) => {
                let done = SequenceDone {
                    session: asked.session,
                    sequence: asked.sequence,
                    ..Default::default()
                };
                reply.push(&mut writer, &Answer::Sequence(Reply::Ok(done)));
            }
            Operation::GetAttr(wanted) => reply.attributes(&mut writer, &attributes, &wanted),
            Operation::Lookup(name) => {
                assert_eq!(check_name(&name, 255), Ok(&b"missing"[..]));
                status = Status::NoEnt;
                reply.push(&mut writer, &Answer::failed(OperationKind::Lookup, status));
                break;
            }
            other => reply.push(&mut writer, &Answer::failed(other.kind(), Status::Ok)),
        }
    }
    assert_eq!((reply.count(), reader.left()), (4, 1));
    reply.finish(&mut writer, status);
    let bytes = writer.contiguous().expect("a reply");
    let mut reader = ReplyReader::<Operation<'_>>::new(Reader::new(bytes)).expect("a header");
    assert_eq!((reader.status(), &reader.tag()[..]), (Status::NoEnt, &b"tag"[..]));
    let answers: Vec<Answer<'_>> =
        std::iter::from_fn(|| reader.next_answer()).collect::<Result<_, _>>().expect("answers");
    assert_eq!(reader.finish(), Ok(()));
    assert_eq!(answers[1], Answer::PutRootFh(Status::Ok));
    assert_eq!(answers[3], Answer::Lookup(Status::NoEnt));
    let Answer::GetAttr(Reply::Ok(fattr)) = &answers[2] else { panic!("not {answers:?}") };
    // The owner has no value, and the change was not asked for.
    let expected = Attributes { change: None, ..attributes };
    assert_eq!(fattr.decode(), Ok(expected));
    assert_eq!(answers[0].status(), Status::Ok);
}

#[test]
fn numbers_that_are_not_assigned_are_illegal() {
    for (minor, number, is_illegal) in [
        (1, 0, true),
        (1, 2, true),
        (1, 58, false),
        (1, 59, true),
        (2, 59, false),
        (2, 75, false),
        (2, 76, true),
        (1, 10_044, true),
        (2, u32::MAX, true),
    ] {
        let mut bytes = compound(minor, &[]);
        let at = bytes.len() - 1;
        bytes[at] = 2;
        bytes.extend(u32::to_be_bytes(number));
        bytes.extend([0; 64]);
        let mut reader = CallReader::<Operation<'_>>::new(Reader::new(&bytes)).expect("a header");
        assert_eq!(reader.peek(), Some(number));
        let call = reader.next_call().expect("an operation");
        assert_eq!(call == Ok(Operation::Illegal(number)), is_illegal, "{minor}: {number}");
        if is_illegal {
            // What follows an operation without known arguments cannot be found.
            assert_eq!(reader.next_call(), None);
            assert_eq!(call.map(|call| call.kind()), Ok(OperationKind::Illegal));
        }
    }
}

#[test]
fn operations_of_minor_version_0_are_decoded() {
    let bytes = compound(1, &[Operation::Renew(ClientId(5)), Operation::PutRootFh]);
    let mut reader = CallReader::<Operation<'_>>::new(Reader::new(&bytes)).expect("a header");
    assert_eq!(reader.next_call(), Some(Ok(Operation::Renew(ClientId(5)))));
    assert_eq!(reader.next_call(), Some(Ok(Operation::PutRootFh)));
    let kind = Operation::Renew(ClientId(5)).kind();
    assert!(kind.errors().contains(Status::NotSupp));
}

#[test]
fn a_count_that_lies_is_refused_or_ends_early() {
    let bytes = compound(1, &[Operation::PutRootFh, Operation::GetFh]);
    let at = bytes.len() - 12;
    let with = |count: u32| {
        let mut copy = bytes.clone();
        copy[at..at + 4].copy_from_slice(&count.to_be_bytes());
        copy
    };
    for count in [3, 100, OPERATIONS_MAX as u32, OPERATIONS_MAX as u32 + 1, u32::MAX] {
        let copy = with(count);
        assert!(CallReader::<Operation<'_>>::new(Reader::new(&copy)).is_err(), "{count}");
    }
    let copy = with(1);
    let mut reader = CallReader::<Operation<'_>>::new(Reader::new(&copy)).expect("a header");
    assert_eq!(reader.next_call(), Some(Ok(Operation::PutRootFh)));
    assert_eq!(reader.next_call(), None);
    assert_eq!(reader.finish(), Err(XdrError::Trailing(4)));
    let many = compound(1, &vec![Operation::PutRootFh; 10_000]);
    let mut reader = CallReader::<Operation<'_>>::new(Reader::new(&many)).expect("a header");
    assert_eq!(std::iter::from_fn(|| reader.next_call()).count(), 10_000);
}

#[test]
fn a_tag_that_is_too_long_is_refused() {
    let mut bytes = 1025_u32.to_be_bytes().to_vec();
    bytes.extend([b'x'; 1028]);
    bytes.extend([0; 8]);
    let header = CallReader::<Operation<'_>>::new(Reader::new(&bytes));
    assert!(matches!(header, Err(XdrError::TooMany { count: 1025, bound: 1024 })));
}

#[test]
fn the_data_of_a_read_is_not_copied() {
    let mut writer = Writer::new();
    let mut reply = ReplyWriter::new(&mut writer, Opaque(b""));
    for length in [5, 8] {
        let done = ReadDone { is_end: true, data: Payload::Elsewhere(length) };
        reply.push(&mut writer, &Answer::Read(Reply::Ok(done)));
    }
    reply.finish(&mut writer, Status::Ok);
    assert_eq!(writer.payload_count(), 2);
    let mut sources = [&b"first"[..], b"secondxx"].into_iter();
    let mut message = Vec::new();
    for piece in writer.pieces() {
        match piece {
            Piece::Bytes(bytes) => message.extend(bytes),
            Piece::Payload(length) => {
                let source = sources.next().expect("two payloads");
                assert_eq!(source.len(), length);
                message.extend(source);
            }
        }
    }
    let mut reader = ReplyReader::<Operation<'_>>::new(Reader::new(&message)).expect("a header");
    for expected in [&b"first"[..], b"secondxx"] {
        let done = ReadDone { is_end: true, data: Payload::Here(expected) };
        assert_eq!(reader.next_answer(), Some(Ok(Answer::Read(Reply::Ok(done)))));
    }
    assert_eq!(reader.finish(), Ok(()));
}

#[test]
fn a_write_is_decoded_before_its_data_has_arrived() {
    let data = [3; 1000];
    let write = WriteArgs {
        state: StateId::ANONYMOUS,
        offset: 512,
        stability: Stability::FileSync,
        data: Payload::Here(&data),
    };
    let bytes = compound(1, &[Operation::PutRootFh, Operation::Write(write), Operation::GetFh]);
    let arrived = 200;
    let partial = Reader::partial(&bytes[..arrived], bytes.len());
    let mut reader = CallReader::<Operation<'_>>::new(partial).expect("a header");
    assert_eq!(reader.next_call(), Some(Ok(Operation::PutRootFh)));
    let expected = WriteArgs { data: Payload::Elsewhere(1000), ..write };
    assert_eq!(reader.next_call(), Some(Ok(Operation::Write(expected))));
    let place = reader.reader().place().expect("the data is elsewhere");
    assert_eq!(bytes[place.start..place.end()], data);
    let missing = place.end() - arrived;
    let around = Reader::around(&bytes[..arrived], missing, &bytes[place.end()..]);
    let mut reader = CallReader::<Operation<'_>>::new(around).expect("a header");
    let calls: Vec<_> = std::iter::from_fn(|| reader.next_call()).collect();
    let kinds: Vec<_> = calls.iter().flatten().map(Operation::kind).collect();
    assert_eq!(kinds, [OperationKind::PutRootFh, OperationKind::Write, OperationKind::GetFh]);
}

#[test]
fn a_listing_stops_at_the_limit_of_the_client() {
    let attributes = Attributes { fileid: Some(4), ..Default::default() };
    let wanted = Bitmap::of(&[number::fileid]);
    let mut last = 0;
    for bytes_max in 0..600 {
        let mut writer = Writer::new();
        let mut reply = ReplyWriter::new(&mut writer, Opaque(b""));
        reply.begin(&mut writer, OperationKind::ReadDir, Status::Ok);
        let start = writer.length();
        let mut listing = ListingWriter::new(&mut writer, Verifier([1; 8]), bytes_max);
        let mut count = 0;
        while count < 9 && listing.push(&mut writer, count, Opaque(b"a name"), &attributes, &wanted)
        {
            count += 1;
        }
        listing.finish(&mut writer, count == 9);
        assert!(count == 0 || writer.length() - start <= bytes_max);
        reply.finish(&mut writer, Status::Ok);
        let bytes = writer.contiguous().expect("a reply");
        let mut reader = ReplyReader::<Operation<'_>>::new(Reader::new(bytes)).expect("a header");
        let Some(Ok(Answer::ReadDir(Reply::Ok(done)))) = reader.next_answer() else {
            panic!("no listing");
        };
        let ReadDirDone { verifier, entries, is_end } = done;
        assert_eq!((verifier, entries.len() as u64, is_end), (Verifier([1; 8]), count, count == 9));
        assert!(entries.iter().all(|entry| entry.attributes.decode() == Ok(attributes.clone())));
        assert!(count >= last, "a larger limit allows more entries");
        last = count;
    }
    assert_eq!(last, 9);
}

#[test]
fn an_answer_that_does_not_fit_is_taken_back() {
    let mut writer = Writer::new();
    writer.set_limit(60);
    let mut reply = ReplyWriter::new(&mut writer, Opaque(b""));
    reply.push_encoded(&mut writer, &[0, 0, 0, 24, 0, 0, 0, 0], 1);
    let mark = reply.mark(&writer);
    reply.push(&mut writer, &Answer::GetFh(Reply::Ok(Opaque(&[7; 64]))));
    assert!(writer.fault().is_some());
    reply.rewind(&mut writer, mark);
    reply.push(&mut writer, &Answer::failed(OperationKind::GetFh, Status::RepTooBig));
    reply.finish(&mut writer, Status::RepTooBig);
    let bytes = writer.contiguous().expect("a reply");
    let mut reader = ReplyReader::<Operation<'_>>::new(Reader::new(bytes)).expect("a header");
    assert_eq!(reader.status(), Status::RepTooBig);
    assert_eq!(std::iter::from_fn(|| reader.next_answer()).count(), 2);
}

#[test]
fn a_callback_goes_there_and_back() {
    let mut writer = Writer::new();
    let mut call = CallWriter::new(&mut writer, Opaque(b""), 1, 77);
    call.push(&mut writer, &Callback::Sequence(CbSequenceArgs::default()));
    let recall =
        CbRecallArgs { state: StateId::CURRENT, truncate: true, handle: Opaque(b"handle") };
    call.push(&mut writer, &Callback::Recall(recall));
    let bytes = writer.contiguous().expect("a callback").to_vec();
    let mut reader = CallReader::<Callback<'_>>::new(Reader::new(&bytes)).expect("a header");
    assert_eq!((reader.ident(), reader.count()), (77, 2));
    let mut writer = Writer::new();
    let mut reply = ReplyWriter::new(&mut writer, reader.tag());
    while let Some(call) = reader.next_call() {
        match call.expect("a callback") {
            Callback::Sequence(_) => {
                let done = CallbackAnswer::Sequence(Reply::Ok(CbSequenceDone::default()));
                reply.push(&mut writer, &done);
            }
            Callback::Recall(asked) => {
                assert_eq!(asked, recall);
                reply.push(&mut writer, &CallbackAnswer::Recall(Outcome::failed(Status::Ok)));
            }
            other => panic!("{other:?} was not sent"),
        }
    }
    reply.finish(&mut writer, Status::Ok);
    let bytes = writer.contiguous().expect("a reply");
    let mut reader = ReplyReader::<Callback<'_>>::new(Reader::new(bytes)).expect("a header");
    let statuses: Vec<Status> = std::iter::from_fn(|| reader.next_answer())
        .map(|answer| answer.expect("an answer").status())
        .collect();
    assert_eq!(statuses, [Status::Ok, Status::Ok]);
    // CB_OFFLOAD came with minor version 2.
    let mut bytes = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 15];
    bytes.extend([0; 64]);
    let mut reader = CallReader::<Callback<'_>>::new(Reader::new(&bytes)).expect("a header");
    assert_eq!(reader.next_call(), Some(Ok(Callback::Illegal(15))));
}

#[test]
fn attributes_are_refused_with_the_right_status() {
    let status = |mask: &[u32], values: &[u8]| {
        let fattr = Fattr { mask: Bitmap::of(mask), values: Opaque(values) };
        fattr.decode().map_err(AttributeError::status).err()
    };
    let size = 5_u64.to_be_bytes();
    assert_eq!(status(&[number::size], &size), None);
    assert_eq!(status(&[number::size], &size[..7]), Some(Status::BadXdr));
    assert_eq!(status(&[number::size], &[&size[..], &[0; 4]].concat()), Some(Status::BadXdr));
    assert_eq!(status(&[], &size), Some(Status::BadXdr));
    assert_eq!(status(&[87], &[]), Some(Status::AttrNotSupp));
    assert_eq!(status(&[255], &[]), Some(Status::AttrNotSupp));
    assert_eq!(status(&[number::type_], &[0, 0, 0, 10]), Some(Status::BadXdr));
    let time = |nanoseconds: u32| {
        let client = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
        [&client[..], &nanoseconds.to_be_bytes()].concat()
    };
    assert_eq!(status(&[number::time_modify_set], &time(999_999_999)), None);
    assert_eq!(status(&[number::time_modify_set], &time(1_000_000_000)), Some(Status::Inval));
    assert_eq!(status(&[number::time_modify_set], &[0, 0, 0, 2]), Some(Status::BadXdr));
    // A list of a million entries in no bytes.
    let lie = 1_000_000_u32.to_be_bytes();
    assert_eq!(status(&[number::acl], &lie), Some(Status::BadXdr));
}

#[test]
fn names_are_refused_with_the_right_status() {
    let check = |name: &'static [u8]| check_name(&Opaque(name), 8).err();
    assert_eq!(check(b"12345678"), None);
    assert_eq!(check(b"\xff\xfe"), None);
    assert_eq!(check(b""), Some(Status::Inval));
    assert_eq!(check(b"123456789"), Some(Status::NameTooLong));
    assert_eq!(check(b"."), Some(Status::BadName));
    assert_eq!(check(b".."), Some(Status::BadName));
    assert_eq!(check(b"a/b"), Some(Status::BadChar));
    assert_eq!(check(b"a\0b"), Some(Status::BadChar));
}

#[test]
fn special_state_ids_are_known() {
    for state in [StateId::ANONYMOUS, StateId::READ_BYPASS, StateId::CURRENT, StateId::INVALID] {
        assert!(state.is_special());
    }
    let mut other = [0; 12];
    other[11] = 1;
    assert!(!StateId { sequence: 1, other }.is_special());
    assert!(!Time { seconds: 0, nanoseconds: 1_000_000_000 }.is_valid());
}

#[test]
fn an_answer_with_a_status_that_contradicts_it_is_not_encoded() {
    let mut writer = Writer::new();
    let mut reply = ReplyWriter::new(&mut writer, Opaque(b""));
    let wrong: Reply<StateId> = Reply::Failed(Status::Ok);
    reply.push(&mut writer, &Answer::Close(wrong));
    assert!(writer.fault().is_some());
    let read = ReadArgs::default();
    assert_eq!(decode_whole::<ReadArgs>(&[0; 28]), Ok(read));
}

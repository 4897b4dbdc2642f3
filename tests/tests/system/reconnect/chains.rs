//! Tests how an interrupted chain continues, request by request.

use std::ffi::OsStr;

use dafs_client::{
    Client, ClientConfig, LockOptions, NewFile, OpenOptions, SessionOptions, Status, block_on,
};
use dafs_types::{SetAttributes, Stability, Verifier};
use dafs_wire::messages::{InlineData, LockResult, OpenTarget, ReadInlineResult, WriteResult};
use dafs_wire::{Procedure, Request, Response};

use super::script::{Act, Script, handle, opened};
use super::scripted::{closed, connect, discarded, made, names, restarted};

fn read() -> Act {
    let result = ReadInlineResult { end_of_file: true, data: InlineData::Here(b"bytes") };
    Act::Say(Status::Ok, Response::ReadInline(result))
}

fn written() -> Act {
    let (length, committed, verifier) = (5, Stability::Unstable, Verifier([1; 8]));
    Act::Say(Status::Ok, Response::WriteInline(WriteResult { length, committed, verifier }))
}

fn locked() -> Act {
    Act::Say(Status::Ok, Response::Lock(LockResult { conflict: None }))
}

#[test]
fn what_was_not_carried_out_goes_on_where_the_chain_was() {
    let mut fetches = 0;
    let script = Script::start(
        |_| 1,
        move |connection, request| match (connection, request) {
            (1, Request::Create(create)) if create.name == "c" => Act::Break,
            (1, _) => Act::Wait,
            (_, Request::FetchResponse(_)) => {
                fetches += 1;
                if fetches == 1 { made() } else { Act::refuse(Status::NoXidMatch) }
            }
            (_, Request::DiscardResponses(_)) => discarded(),
            (_, _) => made(),
        },
    );
    let (_client, session, events) = connect(&script);
    let chain = session.chain().create_dir("a", 0o755).create_dir("b", 0o755);
    assert_eq!(chain.create_dir("c", 0o755).run().unwrap().len(), 3);
    assert_eq!(
        script.asked(),
        [
            "1: CREATE a >",
            "1: CREATE b + file >",
            "1: CREATE c + file",
            "2: FETCH CREATE of 1",
            "2: FETCH CREATE of 1",
            "2: FETCH CREATE of 1",
            "2: DISCARD 1",
            // The results of the first one are known from its reply.
            "2: CREATE b in 9 >",
            "2: CREATE c + file",
        ]
    );
    assert_eq!(
        names(&events).last().unwrap(),
        "recovered: reissued 2 fetched 1 reclaimed 0 lost 0 unknown 0"
    );
}

#[test]
fn behind_a_failure_nothing_is_carried_out() {
    let script = Script::start(
        |_| 1,
        |connection, request| match (connection, request) {
            (1, Request::Create(create)) if create.name == "b" => Act::Break,
            (1, _) => Act::Wait,
            (_, Request::FetchResponse(fetch)) if fetch.stream.0 == 0 => Act::refuse(Status::Exist),
            (_, Request::FetchResponse(_)) => Act::refuse(Status::ChainBroken),
            (_, other) => match other {
                Request::DiscardResponses(_) => discarded(),
                other => panic!("{other:?}"),
            },
        },
    );
    let (_client, session, _) = connect(&script);
    let chain = session.chain().create_dir("a", 0o755).create_dir("b", 0o755);
    let failure = chain.run().unwrap_err();
    assert_eq!((failure.member, failure.error.status()), (0, Some(Status::Exist)));
}

#[test]
fn a_file_that_was_closed_already_is_opened_once_more_for_what_is_missing() {
    let script = Script::start(
        |_| 1,
        |connection, request| match (connection, request) {
            (1, Request::Close(_)) => Act::Break,
            (1, _) => Act::Wait,
            (_, Request::FetchResponse(fetch)) if fetch.stream.0 == 0 => opened(7, 11),
            (_, Request::FetchResponse(fetch)) if fetch.stream.0 == 1 => written(),
            (_, Request::FetchResponse(_)) => closed(),
            (_, Request::DiscardResponses(_)) => discarded(),
            (_, Request::Open(open)) => {
                // The file exists, and the written data must not be truncated.
                assert_eq!(open.creation, dafs_wire::messages::OpenCreation::NoCreate);
                opened(7, 12)
            }
            (_, Request::ReadInline(_)) => read(),
            (_, _) => closed(),
        },
    );
    let (_client, session, _) = connect(&script);
    let options = OpenOptions::write().truncate(true);
    let chain = session.chain().open("/file", &options).write_inline(0, b"bytes");
    assert_eq!(chain.read_inline(0, 5).close().run().unwrap().len(), 4);
    assert_eq!(
        script.asked(),
        [
            "1: OPEN file Both >",
            "1: WRITE_INLINE + file state >",
            "1: READ_INLINE + file state >",
            "1: CLOSE 0 + file state",
            "2: FETCH OPEN of 1",
            "2: FETCH WRITE_INLINE of 1",
            "2: FETCH CLOSE of 1",
            "2: DISCARD 1",
            "2: OPEN file Both >",
            "2: READ_INLINE + file state >",
            // The state id comes from the chain, whatever the request contains.
            "2: CLOSE 11 + file state",
        ]
    );
}

#[test]
fn what_a_chain_has_open_is_taken_back_and_written_anew() {
    let script = Script::start(restarted, |connection, request| match (connection, request) {
        (1, Request::Open(_)) => opened(7, 11),
        (1, Request::WriteInline(_)) => written(),
        (1, _) => Act::Break,
        (_, Request::FetchResponse(_)) => Act::refuse(Status::NoXidMatch),
        (_, Request::LockT(_)) => Act::refuse(Status::Grace),
        (_, Request::DiscardResponses(_)) => discarded(),
        (_, Request::Open(open)) if matches!(open.target, OpenTarget::Previous { .. }) => {
            opened(7, 22)
        }
        (_, Request::WriteInline(_)) => written(),
        (_, _) => closed(),
    });
    let (_client, session, events) = connect(&script);
    let chain = session.chain().open("/file", &OpenOptions::write());
    assert_eq!(chain.write_inline(0, b"bytes").close().run().unwrap().len(), 3);
    assert_eq!(
        script.asked()[3..],
        [
            "2: FETCH CLOSE of 1",
            "2: OPEN again 7 Both",
            "2: LOCKT",
            "2: DISCARD 1",
            "2: WRITE_INLINE >",
            // With the state id from the reclaimed open.
            "2: CLOSE 22 +",
        ]
    );
    assert_eq!(
        names(&events).last().unwrap(),
        "recovered from a restart: reissued 2 fetched 0 reclaimed 1 lost 0 unknown 0"
    );
}

#[test]
fn what_a_chain_was_found_to_have_open_is_taken_back_from_the_servers_next_life() {
    let script = Script::start(
        // The server is up when the client reconnects, and is killed while it is queried.
        |connection| if connection < 3 { 1 } else { 2 },
        |connection, request| match (connection, request) {
            (1, _) => Act::Break,
            (2, Request::FetchResponse(about)) if about.procedure == Procedure::Open.number() => {
                opened(7, 11)
            }
            (2, Request::FetchResponse(about)) if about.procedure == Procedure::Close.number() => {
                Act::Break
            }
            (_, Request::FetchResponse(_)) => Act::refuse(Status::NoXidMatch),
            (_, Request::LockT(_)) => Act::refuse(Status::Grace),
            (_, Request::DiscardResponses(_)) => discarded(),
            (_, Request::Open(_)) => opened(7, 33),
            (_, Request::WriteInline(_)) => written(),
            (_, _) => closed(),
        },
    );
    let (_client, session, _) = connect(&script);
    let chain = session.chain().open("/file", &OpenOptions::write());
    assert_eq!(chain.write_inline(0, b"bytes").close().run().unwrap().len(), 3);
    let asked = script.asked();
    let last: Vec<_> = asked.iter().skip_while(|what| !what.starts_with("3: OPEN")).collect();
    assert_eq!(last[0], "3: OPEN again 7 Both", "{asked:?}");
    assert_eq!(*last[last.len() - 1], "3: CLOSE 33 +", "{asked:?}");
}

#[test]
fn a_chain_that_is_put_off_goes_on_from_there() {
    let mut patience = 1;
    let script = Script::start(
        |_| 1,
        move |_, request| match request {
            Request::Create(create) if create.name == "a" => made(),
            Request::Create(create) if create.name == "b" && patience > 0 => {
                patience -= 1;
                Act::refuse(Status::Grace)
            }
            Request::Create(create) if create.name == "c" && patience == 0 => {
                patience = -1;
                Act::refuse(Status::ChainBroken)
            }
            _ => made(),
        },
    );
    let (_client, session, _) = connect(&script);
    let chain = session.chain().create_dir("a", 0o755).create_dir("b", 0o755);
    assert_eq!(chain.create_dir("c", 0o755).run().unwrap().len(), 3);
    assert_eq!(script.asked()[3..], ["1: CREATE b in 9 >", "1: CREATE c + file"]);
}

#[test]
fn what_is_closed_with_its_server_is_not_taken_back() {
    let script = Script::start(restarted, |connection, request| match (connection, request) {
        (1, Request::Open(_)) => opened(7, 11),
        (_, Request::Lock(_)) => locked(),
        (1, _) => Act::Break,
        (_, Request::CheckResponse(_)) => Act::refuse(Status::UnknownSession),
        (_, Request::DiscardResponses(_)) => discarded(),
        (_, _) => closed(),
    });
    let (_client, session, _) = connect(&script);
    let file = session.open("/file", &OpenOptions::write()).unwrap();
    let kind = dafs_client::LockKind::Exclusive;
    assert_eq!(file.try_lock(kind, 5, 10, LockOptions::default()), Ok(None));
    file.close().unwrap();
    session.ping().unwrap();
    assert_eq!(script.asked()[2..], ["1: CLOSE 11", "2: CHECK of 1", "2: DISCARD 1", "2: NULL"]);
}

#[test]
fn a_lock_that_is_lost_takes_its_open_with_it() {
    let script = Script::start(restarted, |connection, request| match (connection, request) {
        (1, Request::Open(_)) => opened(7, 11),
        (1, Request::Lock(_)) => locked(),
        (1, _) => Act::Break,
        (_, Request::CheckResponse(_)) => Act::refuse(Status::UnknownSession),
        (_, Request::DiscardResponses(_)) => discarded(),
        (_, Request::Open(_)) => opened(7, 22),
        (_, Request::Lock(lock)) if lock.offset == 5 => locked(),
        (_, Request::Lock(_)) => Act::refuse(Status::Expired),
        (_, Request::Close(close)) if close.state.0 == 11 => Act::refuse(Status::StaleStateId),
        (_, _) => closed(),
    });
    let client = Client::new(ClientConfig::default()).unwrap();
    let session = client.connect_to(&script.address, &SessionOptions::default()).unwrap();
    let file = session.open("/file", &OpenOptions::write()).unwrap();
    let kind = dafs_client::LockKind::Exclusive;
    file.try_lock(kind, 5, 10, LockOptions::default()).unwrap();
    file.try_lock(kind, 50, 10, LockOptions::default()).unwrap();
    session.ping().unwrap();
    assert_eq!(file.close().unwrap_err().status(), Some(Status::Stale));
    assert_eq!(
        script.asked()[3..],
        [
            "1: NULL",
            "2: CHECK of 1",
            "2: OPEN again 7 Both",
            "2: LOCK again 22 Write 5",
            "2: LOCK again 22 Write 50",
            "2: CLOSE 22",
            "2: DISCARD 1",
            "2: NULL",
            "2: CLOSE 11",
        ]
    );
}

#[test]
fn a_new_file_whose_close_was_refused_is_closed_once_more() {
    let mut closes = 0;
    let script = Script::start(
        |_| 1,
        move |_, request| match request {
            Request::Open(_) => opened(7, 11),
            Request::Close(_) => {
                closes += 1;
                if closes == 1 { Act::refuse(Status::Io) } else { closed() }
            }
            Request::SetAttrInline(_) => Act::refuse(Status::ChainBroken),
            _ => made(),
        },
    );
    let (client, session, _) = connect(&script);
    let (name, path) = (OsStr::new("f"), OsStr::new("/f"));
    let attributes = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let (directory, content, is_stable) = (handle(0), None, false);
    let new = NewFile { directory, name, path, mode: 0o644, content, is_stable, attributes };
    let failure = block_on(&client, session.make_file_async(&new)).unwrap_err();
    assert_eq!(failure.status(), Some(Status::Io));
    session.create_dir("/d", 0o755).unwrap();
    let asked = script.asked();
    let closes: Vec<&String> = asked.iter().filter(|asked| asked.contains("CLOSE")).collect();
    assert_eq!(closes, ["1: CLOSE 0 + file state >", "1: CLOSE 11"], "{asked:?}");
}

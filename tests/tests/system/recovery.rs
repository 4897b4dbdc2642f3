//! Tests the recovery of a broken session message by message (draft 5.2, 6.3).

use std::os::unix::fs::MetadataExt;

use dafs_memory::{Memory, Pages};
use dafs_types::{
    CacheHint, FileHandle, RemoveMode, SequenceNumber, SessionId, SetAttributes, SetTime,
    Stability, StateId, Status, StreamId, Timestamp,
};
use dafs_wire::messages::{
    CachedResponse, Create, DiscardResponses, NewObject, Remove, SessionOptions as WireOptions,
    SetAttributesInline, WriteDirect,
};
use dafs_wire::{
    ByteOrder, Checksum, FileAttributeBlock, Procedure, Request, Response, decode_response,
    encode_request,
};

use crate::fixture::{Fixture, Transport, far, over_each};
use crate::rogue::Rogue;

/// Connects a client that keeps its name over its connections.
fn keeper(fixture: &Fixture, transport: Transport) -> (Rogue, SessionId) {
    named(fixture, transport, b"keeper")
}

fn named(fixture: &Fixture, transport: Transport, name: &'static [u8]) -> (Rogue, SessionId) {
    let mut rogue = Rogue::connect(&fixture.address(transport));
    let options = WireOptions { response_cache: true, ..WireOptions::default() };
    let results = rogue.log_in_as(name, options);
    assert!(results.options.response_cache);
    (rogue, results.session)
}

fn attributes(buffer: &mut [u8; 64]) -> FileAttributeBlock<'_> {
    let none = dafs_types::SetAttributes::default();
    FileAttributeBlock::encode_set(ByteOrder::NATIVE, &none, buffer).unwrap()
}

/// Creates a directory on a stream, with a sequence number.
fn make(rogue: &mut Rogue, root: FileHandle, name: &str, stream: u16, sequence: u16) {
    let mut buffer = [0; 64];
    let object = NewObject::Directory;
    let attributes = attributes(&mut buffer);
    let create = Create { directory: root, name, object, attributes };
    rogue.request(stream, sequence, &Request::Create(create));
}

fn about(session: SessionId, stream: u16, sequence: u16, procedure: Procedure) -> CachedResponse {
    CachedResponse {
        session,
        stream: StreamId(stream),
        sequence: SequenceNumber(sequence),
        procedure: procedure.number(),
    }
}

#[test]
fn what_was_done_is_found_after_the_connection_broke() {
    over_each(|fixture, transport| {
        let (mut rogue, old) = keeper(fixture, transport);
        let root = rogue.root();
        make(&mut rogue, root, "made", 3, 70);
        let answer = rogue.answer().unwrap();
        make(&mut rogue, root, "made", 4, 71);
        assert_eq!(rogue.status(), Some(Status::Exist));
        drop(rogue);
        let (mut rogue, new) = keeper(fixture, transport);
        assert_ne!(new, old);
        let check = |about| Request::CheckResponse(about);
        let made = about(old, 3, 70, Procedure::Create);
        assert_eq!(rogue.outcome(&check(made)), Some(Status::Ok));
        // Requests with other numbers, procedures or streams were not executed.
        for wrong in [
            about(old, 3, 69, Procedure::Create),
            about(old, 3, 70, Procedure::Remove),
            about(old, 2, 70, Procedure::Create),
            about(old, 60_000, 70, Procedure::Create),
        ] {
            assert_eq!(rogue.outcome(&check(wrong)), Some(Status::NoXidMatch));
        }
        // The result is that of the lost reply, with the header of the query.
        let fetched = rogue.ask(&Request::FetchResponse(made)).unwrap();
        assert_eq!(fetched[40..], answer[40..]);
        let (_, response) =
            decode_response(ByteOrder::NATIVE, Procedure::Create, &fetched).unwrap();
        assert!(matches!(response, Response::Create(_)));
        // A failure is a result, too.
        let failed = Request::FetchResponse(about(old, 4, 71, Procedure::Create));
        assert_eq!(rogue.outcome(&failed), Some(Status::Exist));
        let discard = Request::DiscardResponses(DiscardResponses { session: old });
        assert_eq!(rogue.outcome(&discard), Some(Status::Ok));
        assert_eq!(rogue.outcome(&check(made)), Some(Status::UnknownSession));
    });
}

#[test]
fn what_was_written_is_found_after_the_connection_broke() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), [0; 4096]).unwrap();
        let (mut rogue, old) = keeper(fixture, transport);
        let (file, state) = rogue.open("file");
        let memory = Memory::shared(4096, Pages::Small).unwrap();
        memory.write(0, &[7; 4096]);
        let region = rogue.expose(&memory);
        let buffer = [rogue.buffer(&region, 0, 4096)];
        let write = |stability| {
            let (hint, checksum) = (CacheHint(0), Checksum::NONE);
            let (offset, length, buffers) = (0, 4096, (&buffer[..]).into());
            let arguments =
                WriteDirect { file, state, offset, length, stability, hint, checksum, buffers };
            Request::WriteDirect(arguments)
        };
        let question = |stream, sequence| about(old, stream, sequence, Procedure::WriteDirect);
        // Data that is in the cache already only needs a copy; the other path takes longer.
        rogue.request(1, 5, &write(Stability::FileSync));
        assert_eq!(rogue.status(), Some(Status::Ok));
        rogue.request(1, 6, &write(Stability::Unstable));
        let answer = rogue.answer().unwrap();
        for stream in 2..=4 {
            rogue.request(stream, 7, &write(Stability::Unstable));
        }
        for _ in 2..=4 {
            assert_eq!(rogue.status(), Some(Status::Ok));
        }
        drop(rogue);
        let (mut rogue, _) = keeper(fixture, transport);
        let fetched = rogue.ask(&Request::FetchResponse(question(1, 6))).unwrap();
        assert_eq!(fetched[40..], answer[40..]);
        for (stream, sequence, found) in [
            (1, 5, Status::NoXidMatch),
            (1, 7, Status::NoXidMatch),
            (2, 7, Status::Ok),
            (3, 7, Status::Ok),
            (4, 7, Status::Ok),
        ] {
            let check = Request::CheckResponse(question(stream, sequence));
            assert_eq!(rogue.outcome(&check), Some(found), "stream {stream}");
        }
    });
}

#[test]
fn a_client_asks_for_its_own_broken_sessions_alone() {
    over_each(|fixture, transport| {
        let (mut rogue, old) = keeper(fixture, transport);
        let root = rogue.root();
        make(&mut rogue, root, "made", 0, 99);
        rogue.answer().unwrap();
        let question = Request::CheckResponse(about(old, 0, 99, Procedure::Create));
        assert_eq!(rogue.outcome(&question), Some(Status::BadSession), "it has not broken");
        let (mut other, _) = named(fixture, transport, b"somebody else");
        assert_eq!(other.outcome(&question), Some(Status::UnknownSession));
        drop(rogue);
        assert_eq!(other.outcome(&question), Some(Status::UnknownSession));
    });
}

#[test]
fn asking_for_a_session_ends_its_connection() {
    over_each(|fixture, transport| {
        let (mut old_rogue, old) = keeper(fixture, transport);
        let root = old_rogue.root();
        make(&mut old_rogue, root, "made", 1, 5);
        old_rogue.answer().unwrap();
        // The client has given up the old connection, but the server has not noticed.
        let (mut rogue, _) = keeper(fixture, transport);
        let question = Request::CheckResponse(about(old, 1, 5, Procedure::Create));
        assert_eq!(rogue.outcome(&question), Some(Status::Ok));
        old_rogue.ends();
    });
}

#[test]
fn sessions_that_leave_in_order_or_do_not_ask_are_not_kept() {
    over_each(|fixture, transport| {
        let (mut rogue, old) = keeper(fixture, transport);
        let root = rogue.root();
        make(&mut rogue, root, "made", 1, 5);
        rogue.answer().unwrap();
        let leave = Request::Disconnect(dafs_wire::messages::Empty);
        assert_eq!(rogue.outcome(&leave), Some(Status::Ok));
        drop(rogue);
        let mut plain = Rogue::connect(&fixture.address(transport));
        let results = plain.log_in_as(b"keeper", WireOptions::default());
        assert!(!results.options.response_cache);
        let question = |session| Request::CheckResponse(about(session, 1, 5, Procedure::Create));
        assert_eq!(plain.outcome(&question(old)), Some(Status::UnknownSession));
        make(&mut plain, root, "plain", 1, 5);
        plain.answer().unwrap();
        drop(plain);
        let (mut rogue, _) = keeper(fixture, transport);
        assert_eq!(rogue.outcome(&question(results.session)), Some(Status::UnknownSession));
    });
}

#[test]
fn results_are_told_in_the_byte_order_of_the_question() {
    let fixture = Fixture::new();
    let (mut rogue, old) = keeper(&fixture, far());
    let root = rogue.root();
    make(&mut rogue, root, "made", 2, 6);
    let answer = rogue.answer().unwrap();
    let (_, wanted) = decode_response(ByteOrder::NATIVE, Procedure::Create, &answer).unwrap();
    drop(rogue);
    let other = match ByteOrder::NATIVE {
        ByteOrder::Little => ByteOrder::Big,
        ByteOrder::Big => ByteOrder::Little,
    };
    let mut rogue = Rogue::connect(&fixture.address(far()));
    let mut send = |request: &Request<'_>, sequence: u16| {
        let mut buffer = vec![0; 4096];
        let header = dafs_wire::RequestHeader::new(StreamId(0), SequenceNumber(sequence));
        let length = encode_request(other, &header, request, &mut buffer).unwrap();
        rogue.send(&buffer[..length]);
        rogue.answer().unwrap()
    };
    let options = WireOptions { response_cache: true, ..WireOptions::default() };
    send(&crate::rogue::login_as(b"keeper", options), 0);
    let fetch = Request::FetchResponse(about(old, 2, 6, Procedure::Create));
    let fetched = send(&fetch, 1);
    let (_, found) = decode_response(other, Procedure::Create, &fetched).unwrap();
    assert_eq!(format!("{found:?}"), format!("{wanted:?}"));
}

#[test]
fn a_stream_keeps_its_newest_result_alone() {
    over_each(|fixture, transport| {
        let (mut rogue, old) = keeper(fixture, transport);
        let root = rogue.root();
        make(&mut rogue, root, "made", 1, 5);
        rogue.answer().unwrap();
        let (directory, name, mode) = (root, "made", RemoveMode::Unchecked);
        rogue.request(1, 6, &Request::Remove(Remove { directory, name, mode }));
        rogue.answer().unwrap();
        drop(rogue);
        let (mut rogue, _) = keeper(fixture, transport);
        let made = Request::CheckResponse(about(old, 1, 5, Procedure::Create));
        assert_eq!(rogue.outcome(&made), Some(Status::NoXidMatch));
        let removed = Request::CheckResponse(about(old, 1, 6, Procedure::Remove));
        assert_eq!(rogue.outcome(&removed), Some(Status::Ok));
    });
}

#[test]
fn results_outlive_the_server() {
    for transport in crate::fixture::transports() {
        let fixture = Fixture::with_journal();
        let (mut rogue, old) = keeper(&fixture, transport);
        let root = rogue.root();
        make(&mut rogue, root, "made", 1, 5);
        let answer = rogue.answer().unwrap();
        make(&mut rogue, root, "made", 2, 6);
        assert_eq!(rogue.status(), Some(Status::Exist));
        // Twice: replies that were found must be found again.
        let fixture = fixture.journaled().journaled();
        let (mut rogue, _) = keeper(&fixture, transport);
        let fetch = Request::FetchResponse(about(old, 1, 5, Procedure::Create));
        assert_eq!(rogue.ask(&fetch).unwrap()[40..], answer[40..]);
        // A request that failed at the first check was not executed: it can be sent again.
        let failed = Request::FetchResponse(about(old, 2, 6, Procedure::Create));
        assert_eq!(rogue.outcome(&failed), Some(Status::NoXidMatch));
        let discard = Request::DiscardResponses(DiscardResponses { session: old });
        assert_eq!(rogue.outcome(&discard), Some(Status::Ok));
        let fixture = fixture.journaled();
        let (mut rogue, _) = keeper(&fixture, transport);
        assert_eq!(rogue.outcome(&fetch), Some(Status::UnknownSession));
    }
}

/// Sets attributes on a stream, with a sequence number.
fn set(
    rogue: &mut Rogue,
    file: FileHandle,
    wanted: &SetAttributes,
    (stream, sequence): (u16, u16),
) -> Option<Status> {
    let mut buffer = [0; 128];
    let attributes = FileAttributeBlock::encode_set(ByteOrder::NATIVE, wanted, &mut buffer);
    let (state, attributes) = (StateId::ANONYMOUS, attributes.unwrap());
    let request = SetAttributesInline { file, state, attributes };
    rogue.request(stream, sequence, &Request::SetAttrInline(request));
    rogue.status()
}

/// The state of a file does not tell whether its times were set by a request or before it. So they
/// are set again, and no record of it is stored. A change of the mode is recorded: setting it again
/// could undo what another client has set meanwhile.
#[test]
fn a_change_of_times_is_asked_anew_and_one_of_the_mode_is_found() {
    for transport in crate::fixture::transports() {
        let fixture = Fixture::with_journal();
        std::fs::write(fixture.local("file"), [1; 100]).unwrap();
        let modified = Timestamp { seconds: 1_000_000, nanoseconds: 500 };
        let time_modify = Some(SetTime::Client(modified));
        let times = SetAttributes { time_modify, ..SetAttributes::default() };
        let mode = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
        let both = SetAttributes { mode: Some(0o640), ..times.clone() };
        let (mut rogue, old) = keeper(&fixture, transport);
        let file = rogue.lookup("file");
        assert_eq!(set(&mut rogue, file, &times, (1, 5)), Some(Status::Ok));
        assert_eq!(set(&mut rogue, file, &mode, (2, 6)), Some(Status::Ok));
        assert_eq!(set(&mut rogue, file, &both, (3, 7)), Some(Status::Ok));
        // While the server runs, it is found like every request.
        drop(rogue);
        let (mut rogue, _) = keeper(&fixture, transport);
        let check = |stream, sequence| {
            Request::CheckResponse(about(old, stream, sequence, Procedure::SetAttrInline))
        };
        assert_eq!(rogue.outcome(&check(1, 5)), Some(Status::Ok));
        let fixture = fixture.journaled();
        let (mut rogue, _) = keeper(&fixture, transport);
        assert_eq!(rogue.outcome(&check(1, 5)), Some(Status::NoXidMatch));
        assert_eq!(rogue.outcome(&check(2, 6)), Some(Status::Ok));
        assert_eq!(rogue.outcome(&check(3, 7)), Some(Status::Ok));
        let found = std::fs::metadata(fixture.local("file")).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (1_000_000, 500));
        assert_eq!(found.mode() & 0o7777, 0o640);
        let file = rogue.lookup("file");
        assert_eq!(set(&mut rogue, file, &times, (1, 7)), Some(Status::Ok));
        let (_, stats) = fixture.stop();
        assert_eq!((stats.journaled_requests, stats.parked_requests), (0, 0));
    }
}

#[test]
fn everything_that_goes_through_the_journal_is_answered() {
    for transport in crate::fixture::transports() {
        let fixture = Fixture::with_journal();
        let options = dafs_client::SessionOptions::default().response_cache(true);
        let (_, session) = fixture.connect_with(transport, &options);
        session.create_dir("/d", 0o755).unwrap();
        let file = session.open("/d/f", &dafs_client::OpenOptions::write()).unwrap();
        file.append(b"one").unwrap();
        file.append(b"two").unwrap();
        drop(file);
        session.hard_link("/d/f", "/d/g").unwrap();
        session.rename("/d/g", "/h").unwrap();
        session.symlink("d", "/s").unwrap();
        session.remove("/d/f").unwrap();
        let mode = dafs_types::SetAttributes { mode: Some(0o600), ..Default::default() };
        session.set_attributes("/h", &mode).unwrap();
        let truncating = dafs_client::OpenOptions::write().truncate(true);
        assert_eq!(std::fs::read(fixture.local("h")).unwrap(), b"onetwo");
        session.open("/h", &truncating).unwrap();
        assert_eq!(std::fs::metadata(fixture.local("h")).unwrap().len(), 0);
        assert_eq!(session.remove("/none").unwrap_err().status(), Some(Status::NoEnt));
        assert_eq!(session.create_dir("/d", 0o755).unwrap_err().status(), Some(Status::Exist));
        let (_, stats) = fixture.stop();
        assert_eq!((stats.journaled_requests, stats.parked_requests), (0, 0));
    }
}

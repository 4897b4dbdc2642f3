//! Tests inline data, stability and appends (draft 4.2.1, 6.5.3, 6.5.8, 6.5.27, 6.5.37).

use dafs_memory::{Memory, Pages};
use dafs_types::{CacheHint, Credentials, FileHandle, Random, Stability, StateId, Status, limits};
use dafs_wire::messages::{
    AppendDirect, AppendInline, CacheHintRequest, Close, Commit, InlineData, LockTest, LockType,
    Placement, ReadDirect, ReadInline, SessionOptions as WireOptions, WriteInline,
};
use dafs_wire::{Checksum, DirectBuffer, DirectBuffers, Request};

use super::found;
use crate::fixture::{Fixture, Transport, far, over_each, pattern};
use crate::rogue::{Rogue, status_of};

const HINT: CacheHint = CacheHint(0);

fn prepared(fixture: &Fixture, transport: Transport) -> (Rogue, FileHandle, StateId) {
    std::fs::write(fixture.local("file"), b"").unwrap();
    let mut rogue = Rogue::logged_in(&fixture.address(transport));
    let (file, state) = rogue.open("file");
    (rogue, file, state)
}

fn writing(
    (file, state): (FileHandle, StateId),
    offset: u64,
    stability: Stability,
    placement: Placement,
    bytes: &[u8],
) -> Request<'_> {
    let data = InlineData::Here(bytes);
    let hint = HINT;
    Request::WriteInline(WriteInline { file, state, offset, stability, hint, placement, data })
}

#[test]
fn data_in_a_message_begins_where_that_was_agreed() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"").unwrap();
        let mut rogue = Rogue::connect(&fixture.address(transport));
        let options = WireOptions { inline_write_header_bytes: 256, ..WireOptions::default() };
        let granted = rogue.log_in_as(b"padder", options).options;
        assert_eq!(granted.inline_write_header_bytes, 256);
        let open = rogue.open("file");
        let padded = |header_bytes| Placement::Padded { header_bytes };
        let (file, state) = open;
        let mut write = |offset, placement, bytes| {
            let request = writing(open, offset, Stability::Unstable, placement, bytes);
            rogue.outcome(&request).unwrap()
        };
        assert_eq!(write(0, padded(256), b"padded"), Status::Ok);
        assert_eq!(write(6, Placement::Packed, b" and packed"), Status::Ok);
        assert_eq!(write(0, padded(264), b"elsewhere"), Status::Inval);
        let read = ReadInline { file, state, offset: 0, length: 100, hint: HINT };
        let answer = rogue.ask(&Request::ReadInline(read)).unwrap();
        let result = found!(ReadInline, &answer);
        assert_eq!(result.data.bytes(), Some(&b"padded and packed"[..]));
        assert!(result.end_of_file);
        let within = Request::ReadInline(ReadInline { length: 6, ..read });
        let answer = rogue.ask(&within).unwrap();
        assert!(!found!(ReadInline, &answer).end_of_file);
    });
}

#[test]
fn no_answer_is_longer_than_was_agreed() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), [1; 4096]).unwrap();
        let mut rogue = Rogue::connect(&fixture.address(transport));
        let options = WireOptions { response_bytes_max: 512, ..WireOptions::default() };
        let granted = rogue.log_in_as(b"small", options).options;
        assert_eq!(granted.response_bytes_max, 512);
        let (file, state) = rogue.open("file");
        let mut read = |length| {
            let read = ReadInline { file, state, offset: 0, length, hint: HINT };
            rogue.ask(&Request::ReadInline(read)).unwrap()
        };
        let longest = read(512 - 48);
        assert_eq!((status_of(&longest), longest.len()), (Status::Ok, 512));
        assert_eq!(status_of(&read(512 - 47)), Status::TooSmall);
    });
}

#[test]
fn each_stability_is_kept_and_told() {
    over_each(|fixture, transport| {
        let (mut rogue, file, state) = prepared(fixture, transport);
        let on_disk = || std::fs::read(fixture.local("file")).unwrap();
        let mut verifiers = Vec::new();
        for (stability, byte) in [(Stability::DataSync, 1u8), (Stability::FileSync, 2)] {
            let bytes = [byte; 5000];
            let placement = Placement::Packed;
            let request = writing((file, state), 0, stability, placement, &bytes[..4000]);
            let answer = rogue.ask(&request).unwrap();
            let result = found!(WriteInline, &answer);
            assert_eq!(result.length, 4000);
            assert!(result.committed >= stability);
            assert_eq!(on_disk(), bytes[..4000]);
            verifiers.push(result.verifier);
        }
        let request = writing((file, state), 0, Stability::Unstable, Placement::Packed, &[3; 4000]);
        let answer = rogue.ask(&request).unwrap();
        let result = found!(WriteInline, &answer);
        assert_eq!((result.length, result.committed), (4000, Stability::Unstable));
        verifiers.push(result.verifier);
        // A range, and up to the end of the file.
        for (offset, length) in [(0, 4000), (100, 1), (0, 0)] {
            let commit = Request::Commit(Commit { file, offset, length });
            let answer = rogue.ask(&commit).unwrap();
            verifiers.push(found!(Commit, &answer).verifier);
            assert_eq!(on_disk(), [3; 4000]);
        }
        assert!(verifiers.iter().all(|verifier| *verifier == verifiers[0]), "nothing was lost");
    });
}

#[test]
fn an_append_is_put_at_the_end_and_says_where() {
    over_each(|fixture, transport| {
        let (mut rogue, file, state) = prepared(fixture, transport);
        let memory = Memory::shared(2 << 20, Pages::Small).unwrap();
        memory.write(0, &pattern(2 << 20, 1));
        let region = rogue.expose(&memory);
        let mut end = 0;
        for stability in [Stability::DataSync, Stability::FileSync] {
            for placement in [Placement::Packed, Placement::Padded { header_bytes: 192 }] {
                let data = InlineData::Here(&[7; 333]);
                let append = AppendInline { file, state, stability, hint: HINT, placement, data };
                let answer = rogue.ask(&Request::AppendInline(append)).unwrap();
                let result = found!(AppendInline, &answer);
                assert_eq!(result.offset, end);
                assert!(result.committed >= stability);
                end += 333;
            }
            let length = limits::APPEND_BYTES_MAX;
            let direct = |buffer: DirectBuffer| {
                let (length, hint, checksum) = (buffer.length, HINT, Checksum::NONE);
                let append =
                    AppendDirect { file, state, stability, length, hint, checksum, buffer };
                Request::AppendDirect(append)
            };
            let whole = rogue.buffer(&region, 0, length);
            let answer = rogue.ask(&direct(whole)).unwrap();
            assert_eq!(found!(AppendDirect, &answer).offset, end);
            end += u64::from(length);
            // An append is executed completely or not at all.
            let over = direct(rogue.buffer(&region, 0, length + 1));
            assert_eq!(rogue.outcome(&over), Some(Status::WriteTooBig));
            let is = std::fs::read(fixture.local("file")).unwrap();
            assert_eq!(is.len() as u64, end);
            assert!(is.ends_with(&pattern(2 << 20, 1)[..length as usize]));
        }
    });
}

#[test]
fn what_the_server_places_is_summed_for_those_who_asked() {
    over_each(|fixture, transport| {
        let data = pattern(10_000, 4);
        std::fs::write(fixture.local("file"), &data).unwrap();
        for sealed in [true, false] {
            let mut rogue = if sealed {
                Rogue::logged_in_sealed(&fixture.address(transport))
            } else {
                Rogue::logged_in(&fixture.address(transport))
            };
            let (file, state) = rogue.open("file");
            let memory = Memory::shared(16 << 10, Pages::Small).unwrap();
            let region = rogue.expose(&memory);
            // From several buffers, up to the available bytes.
            let buffers = [rogue.buffer(&region, 8192, 5000), rogue.buffer(&region, 0, 7000)];
            let buffers = DirectBuffers::from(&buffers[..]);
            let read = ReadDirect { file, state, offset: 1, length: 12_000, hint: HINT, buffers };
            let answer = rogue.ask(&Request::ReadDirect(read)).unwrap();
            let result = found!(ReadDirect, &answer);
            assert_eq!((result.length, result.end_of_file), (9_999, true));
            assert_eq!(memory.to_vec(8192, 5000), data[1..5001]);
            assert_eq!(memory.to_vec(0, 4999), data[5001..]);
            let expected = if sealed { Checksum::of(&data[1..]) } else { Checksum::NONE };
            assert_eq!(result.checksum, expected);
            assert_eq!(dafs_wire::is_intact(&answer), sealed, "of the message, too");
        }
    });
}

/// Each append is at the offset in its reply, in one piece, whichever other clients append.
#[test]
fn appends_at_the_same_time_lie_one_behind_the_other() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"").unwrap();
        let append = |writer: u8| {
            let mut rogue = Rogue::logged_in(&fixture.address(transport));
            let (file, state) = rogue.open("file");
            let mut random = Random::new(u64::from(writer));
            let mut put = Vec::new();
            for round in 0..60u8 {
                let bytes = vec![writer << 6 | round; 1 + random.below(3000)];
                let (data, placement) = (InlineData::Here(&bytes), Placement::Packed);
                let stability = Stability::DataSync;
                let append = AppendInline { file, state, stability, hint: HINT, placement, data };
                let answer = rogue.ask(&Request::AppendInline(append)).unwrap();
                let offset = found!(AppendInline, &answer).offset;
                put.push((offset, bytes));
            }
            put
        };
        let mut put: Vec<_> = std::thread::scope(|scope| {
            let append = &append;
            let writers: Vec<_> = (0..3).map(|w| scope.spawn(move || append(w))).collect();
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
        });
        put.sort_by_key(|(offset, _)| *offset);
        let mut end = 0;
        for (offset, bytes) in &put {
            assert_eq!(*offset, end, "neither a gap nor an overlap");
            end += bytes.len() as u64;
        }
        let expected: Vec<u8> = put.into_iter().flat_map(|(_, bytes)| bytes).collect();
        assert!(std::fs::read(fixture.local("file")).unwrap() == expected);
    });
}

/// Returns the requests that any client can send that only knows a file's handle.
fn chores(file: FileHandle) -> [Request<'static>; 3] {
    let (offset, length, pattern) = (0, 4096, dafs_types::CachePattern::DontNeed);
    let lock_type = LockType::Write;
    [
        Request::Commit(Commit { file, offset, length }),
        Request::CacheHint(CacheHintRequest { file, offset, length, pattern, hint: HINT }),
        Request::LockT(LockTest { file, lock_type, owner: b"rogue", offset, length: 4096 }),
    ]
}

#[test]
fn a_handle_alone_has_nobodys_file_synced_fetched_or_asked_about() {
    if !dafs_tests::is_root() {
        return;
    }
    let stranger = Credentials::plain(1002, 1002).unwrap();
    let fixture =
        Fixture::with(|config| config.sessions.authentication.anonymous = Some(stranger.clone()));
    let path = fixture.local("file");
    std::fs::write(&path, b"secret").unwrap();
    let set_mode = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&path, permissions).unwrap();
    };
    set_mode(0o600);
    let mut owner = Rogue::logged_in(&fixture.address(Transport::Shm));
    let (file, state) = owner.open("file");
    let write = writing((file, state), 0, Stability::Unstable, Placement::Packed, b"public");
    assert_eq!(owner.outcome(&write), Some(Status::Ok));
    let mut rogue = Rogue::connect(&fixture.address(far()));
    rogue.log_in_as(b"stranger", WireOptions::default());
    for chore in chores(file) {
        assert_eq!(rogue.outcome(&chore), Some(Status::Access), "{}", chore.procedure().name());
        assert_eq!(owner.outcome(&chore), Some(Status::Ok), "{}", chore.procedure().name());
    }
    // A client that could open it keeps the right as long as the open.
    set_mode(0o666);
    let (file, state) = rogue.open("file");
    set_mode(0o600);
    let write = writing((file, state), 0, Stability::Unstable, Placement::Packed, b"second");
    assert_eq!(rogue.outcome(&write), Some(Status::Ok));
    for chore in chores(file) {
        assert_eq!(rogue.outcome(&chore), Some(Status::Ok), "{}", chore.procedure().name());
    }
    let close = Request::Close(Close { file, state });
    assert_eq!(rogue.outcome(&close), Some(Status::Ok));
    for chore in chores(file) {
        assert_eq!(rogue.outcome(&chore), Some(Status::Access), "{}", chore.procedure().name());
    }
}

//! Tests ranges of files: storage that is reserved and freed, searches for holes, and copies within
//! the server.

use std::os::unix::fs::MetadataExt;

use dafs_client::{CopySpan, File, LockKind, LockOptions, OpenOptions, Status};
use dafs_types::FileHandle;
use dafs_types::StateId;
use dafs_wire::messages::{CopyRange, FileRange, Seek};
use dafs_wire::{ByteOrder, Procedure, Request, Response, decode_response};

use crate::fixture::{Fixture, any, over_each, pattern};
use crate::rogue::Rogue;

fn span(source_offset: u64, offset: u64, length: u64) -> CopySpan {
    CopySpan { source_offset, offset, length }
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; 64 << 20];
    let count = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(count);
    bytes
}

fn status<T: std::fmt::Debug>(result: dafs_client::Result<T>) -> Status {
    result.unwrap_err().status().unwrap()
}

#[test]
fn holes_are_seen_by_every_client_and_by_local_processes() {
    over_each(|fixture, transport| {
        let (_ann, ann) = fixture.connect(transport);
        let (_bob, bob) = fixture.connect(transport);
        let mut data = pattern(1 << 20, 3);
        let file = ann.open("/file", &OpenOptions::write()).unwrap();
        let seen = bob.open("/file", &OpenOptions::write()).unwrap();
        file.write_at(&data, 0).unwrap();
        assert!(content(&seen) == data);
        // Nothing is committed, so part of the data is in the server's cache alone.
        match file.deallocate(100_000, 500_001) {
            Err(error) if error.status() == Some(Status::NotSupp) => {
                return dafs_tests::skip("this file system makes no holes");
            }
            done => done.unwrap(),
        }
        data[100_000..600_001].fill(0);
        assert!(content(&seen) == data);
        assert!(content(&file) == data);
        let hole = seen.seek_hole(0).unwrap().unwrap();
        assert!((100_000..200_000).contains(&hole), "{hole}");
        let end = seen.seek_data(hole).unwrap().unwrap();
        assert!((500_000..=600_001).contains(&end), "{end}");
        file.commit().unwrap();
        assert!(std::fs::read(fixture.local("file")).unwrap() == data);
        // What is written into the hole is data, although only the cache has it.
        seen.write_at(b"new", 300_000).unwrap();
        let data_at = file.seek_data(hole).unwrap().unwrap();
        assert!((200_000..=300_000).contains(&data_at), "{data_at}");
    });
}

#[test]
fn storage_is_reserved_and_the_file_grows() {
    over_each(|fixture, transport| {
        let (_client, session) = fixture.connect(transport);
        let file = session.open("/file", &OpenOptions::write()).unwrap();
        file.write_at(b"begin", 0).unwrap();
        match file.allocate(0, 1 << 20) {
            Err(error) if error.status() == Some(Status::NotSupp) => {
                return dafs_tests::skip("this file system reserves no storage");
            }
            done => done.unwrap(),
        }
        assert_eq!(file.metadata().unwrap().size, 1 << 20);
        let mut expected = vec![0; 1 << 20];
        expected[..5].copy_from_slice(b"begin");
        assert!(content(&file) == expected);
        assert!(std::fs::metadata(fixture.local("file")).unwrap().blocks() * 512 >= 1 << 20);
        assert_eq!(file.seek_hole(0).unwrap().map(|at| at <= 1 << 20), Some(true));
        assert_eq!(file.seek_data(1 << 20).unwrap(), None);
        assert_eq!(status(file.allocate(0, 0)), Status::Inval);
        assert_eq!(status(file.allocate(5, u64::MAX - 5)), Status::FBig);
        assert_eq!(status(file.allocate(u64::MAX, u64::MAX)), Status::FBig);
        assert_eq!(status(file.deallocate(0, 0)), Status::Inval);
        file.deallocate(1 << 30, u64::MAX).unwrap();
        assert_eq!(file.metadata().unwrap().size, 1 << 20);
    });
}

#[test]
fn copies_take_data_that_is_not_written_yet() {
    over_each(|fixture, transport| {
        let (_client, session) = fixture.connect(transport);
        let data = pattern(9_000_001, 7);
        let source = session.open("/source", &OpenOptions::write()).unwrap();
        let target = session.open("/target", &OpenOptions::write()).unwrap();
        source.write_at(&data, 0).unwrap();
        target.write_at(&[9; 100], 0).unwrap();
        let copied = target.copy_range(&source, span(1000, 50, 8_900_000)).unwrap();
        assert_eq!(copied, 8_900_000);
        let mut expected = vec![9; 50];
        expected.extend(&data[1000..8_901_000]);
        assert!(content(&target) == expected);
        target.commit().unwrap();
        assert!(std::fs::read(fixture.local("target")).unwrap() == expected);
        // Within one file, and to the end.
        assert_eq!(target.copy_range(&target, span(0, 8_900_050, 1000)).unwrap(), 1000);
        expected.extend_from_within(..1000);
        assert!(content(&target) == expected);
        let (first, second) = (source.metadata().unwrap(), 9_000_001);
        assert_eq!(first.size, second);
        assert_eq!(target.copy_range(&source, span(9_000_000, 0, 0)).unwrap(), 1);
        expected[0] = data[9_000_000];
        assert!(content(&target) == expected);
        assert_eq!(target.copy_range(&source, span(9_000_001, 0, 0)).unwrap(), 0);
        for refused in [
            target.copy_range(&source, span(9_000_002, 0, 0)),
            target.copy_range(&source, span(9_000_000, 0, 2)),
            target.copy_range(&target, span(0, 999, 1000)),
        ] {
            assert_eq!(status(refused), Status::Inval);
        }
        assert_eq!(status(target.copy_range(&source, span(0, u64::MAX - 5, 9))), Status::FBig);
        assert!(content(&target) == expected);
    });
}

#[test]
fn clones_share_storage_or_are_refused() {
    let fixture = Fixture::new();
    let (_client, session) = fixture.connect(any());
    let data = pattern(1 << 20, 5);
    let source = session.open("/source", &OpenOptions::write()).unwrap();
    let target = session.open("/target", &OpenOptions::write()).unwrap();
    source.write_at(&data, 0).unwrap();
    match target.clone_range(&source, span(0, 0, 0)) {
        Ok(()) => assert!(content(&target) == data),
        Err(error) => {
            assert_eq!(error.status(), Some(Status::NotSupp));
            assert_eq!(target.metadata().unwrap().size, 0);
            dafs_tests::skip("this file system shares no storage between files");
        }
    }
}

#[test]
fn what_refuses_writes_refuses_changes_of_ranges() {
    let fixture = Fixture::new();
    std::fs::write(fixture.local("file"), pattern(50_000, 1)).unwrap();
    std::fs::write(fixture.local("other"), pattern(50_000, 2)).unwrap();
    let (_ann, ann) = fixture.connect(any());
    let (_bob, bob) = fixture.connect(any());
    // An open for reading.
    let reader = ann.open("/file", &OpenOptions::read()).unwrap();
    let other = ann.open("/other", &OpenOptions::write()).unwrap();
    assert_eq!(status(reader.allocate(0, 10)), Status::Access);
    assert_eq!(status(reader.deallocate(0, 10)), Status::Access);
    assert_eq!(status(reader.copy_range(&other, span(0, 0, 10))), Status::Access);
    assert_eq!(status(reader.clone_range(&other, span(0, 0, 4096))), Status::Access);
    assert_eq!(other.copy_range(&reader, span(0, 0, 10)).unwrap(), 10);
    // A lock of another client.
    let file = ann.open("/file", &OpenOptions::write()).unwrap();
    let holder = bob.open("/file", &OpenOptions::write()).unwrap();
    holder.lock(LockKind::Exclusive, 1000, 1000, LockOptions::default(), None).unwrap();
    assert_eq!(status(file.allocate(1999, 10)), Status::Locked);
    assert_eq!(status(file.deallocate(0, 1001)), Status::Locked);
    assert_eq!(status(file.copy_range(&other, span(0, 0, 0))), Status::Locked);
    assert_eq!(status(other.copy_range(&file, span(0, 0, 0))), Status::Locked);
    assert_eq!(file.copy_range(&other, span(0, 2000, 10)).unwrap(), 10);
    holder.deallocate(1000, 1000).unwrap();
    let mut expected = pattern(50_000, 1);
    expected[1000..2000].fill(0);
    expected.copy_within(..10, 2000);
    assert!(content(&holder) == expected);
}

/// A copy that takes several jobs must not go on under a lock that another client was granted
/// meanwhile; and requests of others must be served during the copy.
#[test]
fn others_are_served_during_a_long_copy() {
    let fixture = Fixture::new();
    std::fs::write(fixture.local("source"), pattern(40 << 20, 1)).unwrap();
    std::fs::write(fixture.local("target"), pattern(40 << 20, 2)).unwrap();
    let (_ann, ann) = fixture.connect(any());
    let source = ann.open("/source", &OpenOptions::read()).unwrap();
    let target = ann.open("/target", &OpenOptions::write()).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (_bob, bob) = fixture.connect(any());
            let file = bob.open("/target", &OpenOptions::write()).unwrap();
            for round in 0..50u64 {
                file.write_at(&[round as u8; 100], (40 << 20) + round * 100).unwrap();
            }
        });
        assert_eq!(target.copy_range(&source, span(0, 0, 0)).unwrap(), 40 << 20);
        writer.join().unwrap();
    });
    let mut expected = pattern(40 << 20, 1);
    expected.extend((0..50u8).flat_map(|round| [round; 100]));
    assert!(content(&target) == expected);
}

/// Peers may send anything in these requests.
#[test]
fn strange_ranges_get_a_status_and_change_nothing() {
    let fixture = Fixture::new();
    let bytes = pattern(10_000, 1);
    std::fs::write(fixture.local("file"), &bytes).unwrap();
    let mut rogue = Rogue::logged_in(&fixture.address(any()));
    let (file, state) = rogue.open("file");
    let strange = FileHandle([7; 64]);
    let mut refused = 0;
    for (offset, length) in [(u64::MAX, 1), (0, u64::MAX), (1 << 63, 1 << 63), (u64::MAX, u64::MAX)]
    {
        for (file, state) in
            [(file, state), (strange, state), (file, StateId(99)), (strange, StateId(99))]
        {
            let range = FileRange { file, state, offset, length };
            let copy = CopyRange {
                source: file,
                file,
                source_state: state,
                state,
                source_offset: length,
                offset,
                length,
            };
            for request in [
                Request::Allocate(range),
                Request::CloneRange(copy),
                Request::CopyRange(copy),
                Request::Seek(Seek { file, state, offset, hole: true }),
            ] {
                let status = rogue.outcome(&request).expect("an answer");
                refused += usize::from(status != Status::Ok);
            }
        }
    }
    // A search from the start is the only one of these that means something.
    assert_eq!(refused, 4 * 4 * 4 - 1);
    let reply = rogue.ask(&Request::Seek(Seek { file, state, offset: 0, hole: true })).unwrap();
    match decode_response(ByteOrder::NATIVE, Procedure::Seek, &reply).unwrap().1 {
        Response::Seek(found) => assert!(found.offset <= 10_000),
        other => panic!("{other:?}"),
    }
    assert_eq!(std::fs::read(fixture.local("file")).unwrap(), bytes);
}

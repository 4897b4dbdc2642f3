//! Files with holes, read by NFS clients with READ_PLUS: holes are returned as holes, and data that
//! only the server's cache has is never one of them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use dafs_client::{LockKind, LockOptions, OpenOptions};
use dafs_nfs_suite::nfs4::ops;
use dafs_nfs_suite::nfs4::results::Part;
use dafs_nfs_suite::nfs4::session::Wish;
use dafs_nfs_suite::nfs4::{Body, Session, StateId};
use dafs_nfs_suite::rpc::Auth;
use dafs_nfs_suite::status;

use crate::fixture::{Fixture, any, pattern};
use crate::nfs_state;

const MIB: u64 = 1 << 20;

/// Starts a server that keeps written data in its cache, and creates a sparse file with this size
/// and these pieces of data. `None` if this process may not act as other users, or if the file
/// system makes no holes.
fn fixture(size: u64, pieces: &[(u64, Vec<u8>)]) -> Option<Fixture> {
    let fixture =
        nfs_state::fixture(|config| config.cache.write_back_age = Duration::from_secs(3600))?;
    let file = File::create_new(fixture.local("file")).unwrap();
    file.set_len(size).unwrap();
    for (offset, data) in pieces {
        file.write_all_at(data, *offset).unwrap();
    }
    file.sync_all().unwrap();
    let used = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512;
    if used >= size {
        dafs_tests::skip("this file system makes no holes");
        return None;
    }
    Some(fixture)
}

/// Returns a session of version 4.2, and the handle of the file.
fn client(fixture: &Fixture) -> (Session, Vec<u8>) {
    let wish = Wish::new(b"reader", Auth::user(0), 2);
    let mut session = Session::start(fixture.nfs(), &wish).unwrap();
    let reply = session.ok(&[ops::putrootfh(), ops::lookup("file"), ops::getfh()]).unwrap();
    let fh = reply.fh(2).unwrap();
    (session, fh)
}

/// Calls READ_PLUS. Returns the end-of-file flag and the parts.
fn read(session: &mut Session, fh: &[u8], offset: u64, count: u64) -> (bool, Vec<Part>) {
    let op = ops::read_plus(StateId::ANONYMOUS, offset, count as u32);
    let reply = session.ok(&[ops::putfh(fh), op]).unwrap();
    match reply.body(1).unwrap() {
        Body::Parts { eof, parts } => (*eof, parts.clone()),
        other => panic!("{other:?} are no parts"),
    }
}

fn hole(offset: u64, end: u64) -> Part {
    (offset, end - offset, None)
}

fn data(offset: u64, bytes: &[u8]) -> Part {
    (offset, bytes.len() as u64, Some(bytes.to_vec()))
}

#[test]
fn holes_are_returned_as_holes_and_use_no_memory() {
    let piece = pattern(8192, 1);
    let Some(fixture) = fixture(8 * MIB + 10_000, &[(2 * MIB, piece.clone())]) else { return };
    let (mut session, fh) = client(&fixture);
    let before = fixture.look().stats.cache;
    assert_eq!(read(&mut session, &fh, 0, MIB), (false, vec![hole(0, MIB)]));
    let last = || (true, vec![hole(8 * MIB, 8 * MIB + 10_000)]);
    assert_eq!(read(&mut session, &fh, 8 * MIB, 20_000), last());
    assert_eq!(read(&mut session, &fh, 8 * MIB, 10_000), last());
    let before_end = (false, vec![hole(8 * MIB, 8 * MIB + 9_999)]);
    assert_eq!(read(&mut session, &fh, 8 * MIB, 9_999), before_end);
    assert_eq!(read(&mut session, &fh, 8 * MIB + 10_000, 10), (true, vec![]));
    let after = fixture.look().stats.cache;
    assert_eq!((after.used_bytes, after.fill_bytes), (before.used_bytes, before.fill_bytes));

    let around = read(&mut session, &fh, 2 * MIB - 4096, 20_000);
    let end = 2 * MIB - 4096 + 20_000;
    let (first, middle) = (hole(2 * MIB - 4096, 2 * MIB), data(2 * MIB, &piece));
    assert_eq!(around, (false, vec![first, middle, hole(2 * MIB + 8192, end)]));
    // Two operations of one compound: each has parts of its own.
    let op = |at| ops::read_plus(StateId::ANONYMOUS, at, 8192);
    let reply = session.ok(&[ops::putfh(&fh), op(2 * MIB - 4096), op(2 * MIB)]).unwrap();
    let Body::Parts { parts, .. } = reply.body(2).unwrap() else { panic!("{reply:?}") };
    assert_eq!(*parts, [data(2 * MIB, &piece)]);
}

#[test]
fn data_that_only_the_cache_has_is_not_a_hole() {
    let Some(fixture) = fixture(4 * MIB, &[]) else { return };
    let (mut session, fh) = client(&fixture);
    assert_eq!(read(&mut session, &fh, 0, MIB), (false, vec![hole(0, MIB)]));
    let (_client, other) = fixture.connect(any());
    let file = other.open("/file", &OpenOptions::write()).unwrap();
    file.write_at(b"new", 40_960).unwrap();
    file.write_at(b"behind the end", 4 * MIB).unwrap();

    let mut block = vec![0; 4096];
    block[..3].copy_from_slice(b"new");
    let parts = vec![hole(0, 40_960), data(40_960, &block), hole(45_056, MIB)];
    assert_eq!(read(&mut session, &fh, 0, MIB), (false, parts));
    let parts = vec![hole(4 * MIB - 4096, 4 * MIB), data(4 * MIB, b"behind the end")];
    assert_eq!(read(&mut session, &fh, 4 * MIB - 4096, 8192), (true, parts));
    let stats = fixture.look().stats.cache;
    assert_eq!((stats.flush_bytes, stats.dirty_bytes), (0, 8192), "only the cache has the data");
    let mut local = vec![1; 3];
    File::open(fixture.local("file")).unwrap().read_exact_at(&mut local, 40_960).unwrap();
    assert_eq!(local, [0; 3]);
}

#[test]
fn a_range_with_many_holes_has_few_parts_and_all_bytes() {
    let pieces: Vec<_> = (0..60).map(|at| (at * 12_288, pattern(4096, at))).collect();
    let Some(fixture) = fixture(MIB, &pieces) else { return };
    let mut content = vec![0; MIB as usize];
    for (offset, data) in &pieces {
        content[*offset as usize..][..data.len()].copy_from_slice(data);
    }
    let (mut session, fh) = client(&fixture);
    let (mut at, mut holes) = (0, 0);
    loop {
        let (eof, parts) = read(&mut session, &fh, at, MIB);
        assert!(!parts.is_empty() && parts.len() <= 17, "{} parts", parts.len());
        for (offset, length, bytes) in parts {
            assert_eq!(offset, at);
            holes += usize::from(bytes.is_none());
            let bytes = bytes.unwrap_or_else(|| vec![0; length as usize]);
            assert!(content[at as usize..][..bytes.len()] == bytes, "at {at}");
            at += bytes.len() as u64;
        }
        if eof {
            break;
        }
    }
    assert_eq!(at, MIB);
    assert!(holes > 0);
}

#[test]
fn a_lock_of_another_client_protects_holes_too() {
    let Some(fixture) = fixture(4 * MIB, &[(2 * MIB, vec![7; 8192])]) else { return };
    let (mut session, fh) = client(&fixture);
    let (_client, other) = fixture.connect(any());
    let file = other.open("/file", &OpenOptions::write()).unwrap();
    file.lock(LockKind::Exclusive, MIB, 4096, LockOptions::default(), None).unwrap();
    assert_eq!(read(&mut session, &fh, 0, MIB), (false, vec![hole(0, MIB)]));
    let op = ops::read_plus(StateId::ANONYMOUS, MIB, 10);
    session.fails(&[status::LOCKED], &[ops::putfh(&fh), op]).unwrap();
}

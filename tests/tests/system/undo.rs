//! Tests auto-recovery locks: changes under them are undone (draft 4.4.1.4).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dafs_journal::CrashStorage;
use dafs_server::{Defect, ServerConfig};
use dafs_types::{Random, SessionId, SetAttributes, StateId, Status};
use dafs_wire::messages::{
    Close, Commit, CopyRange, Empty, FileRange, LockOptions, LockType,
    SessionOptions as WireOptions, SetAttributesInline,
};
use dafs_wire::{ByteOrder, FileAttributeBlock, Request};

use crate::fixture::{Fixture, await_that, far, transports};
use crate::locks::{Holder, NONE, holder, served};
use crate::rogue::Rogue;

const A: LockOptions = LockOptions::AUTO_RECOVERY;
const ALL: (u64, u64) = (0, u64::MAX);
/// The initial contents of the file that `served` makes.
const OLD: [u8; 100] = [7; 100];

impl Holder {
    fn lock_undone(&mut self, place: (u64, u64)) {
        assert_eq!(self.lock_with(LockType::Write, A, place), Status::Ok);
    }

    fn abort(&mut self, place: (u64, u64)) -> Status {
        self.lock_with(LockType::Abort, NONE, place)
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        assert_eq!(self.write(self.state, offset, bytes), Status::Ok);
    }

    fn cut(&mut self, size: u64) -> Status {
        let (size, mut buffer) = (Some(size), [0; 64]);
        let wanted = SetAttributes { size, ..SetAttributes::default() };
        let attributes =
            FileAttributeBlock::encode_set(ByteOrder::NATIVE, &wanted, &mut buffer).unwrap();
        let request = SetAttributesInline { file: self.file, state: self.state, attributes };
        self.rogue.outcome(&Request::SetAttrInline(request)).unwrap()
    }

    fn close(&mut self) -> Status {
        let (file, state) = (self.file, self.state);
        self.rogue.outcome(&Request::Close(Close { file, state })).unwrap()
    }

    fn leave(&mut self) {
        assert_eq!(self.rogue.outcome(&Request::Disconnect(Empty)), Some(Status::Ok));
    }
}

fn content(fixture: &Fixture) -> Vec<u8> {
    std::fs::read(fixture.local("file")).unwrap()
}

fn undo_files(directory: &Path) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            count += undo_files(&entry.path());
        } else {
            count += usize::from(entry.file_name().to_string_lossy().starts_with("undo-"));
        }
    }
    count
}

#[test]
fn abort_takes_everything_back_and_keeps_the_lock() {
    for transport in transports() {
        let fixture = served();
        let mut ann = holder(&fixture, transport, b"ann");
        ann.lock_undone(ALL);
        ann.put(10, b"changed");
        ann.put(95, &[8; 50]);
        assert_eq!(ann.cut(20), Status::Ok);
        ann.put(50, b"behind a hole");
        assert_eq!(ann.abort(ALL), Status::Ok);
        assert_eq!(content(&fixture), OLD);
        let mut bob = holder(&fixture, transport, b"bob");
        assert_eq!(bob.lock(LockType::Read, (0, 1)), Status::Denied);
        // Once more, and this time it is committed.
        ann.put(0, b"new");
        assert_eq!(ann.unlock(ALL), Status::Ok);
        assert_eq!(&content(&fixture)[..4], b"new\x07");
        assert_eq!(ann.abort(ALL), Status::Inval);
        assert_eq!(bob.lock(LockType::Write, ALL), Status::Ok);
        assert_eq!(bob.close(), Status::Ok);
        await_that("undo data goes", || undo_files(fixture.root()) == 0);
    }
}

#[test]
fn holes_and_copies_are_taken_back() {
    let fixture = served();
    let mut ann = holder(&fixture, far(), b"ann");
    ann.lock_undone(ALL);
    let (file, state) = (ann.file, ann.state);
    let range = |offset, length| FileRange { file, state, offset, length };
    let copy = CopyRange {
        source: file,
        file,
        source_state: state,
        state,
        source_offset: 0,
        offset: 60,
        length: 20,
    };
    for request in [
        Request::Deallocate(range(10, 30)),
        Request::CopyRange(copy),
        Request::Allocate(range(50, 5000)),
    ] {
        let status = ann.rogue.outcome(&request).unwrap();
        assert!(matches!(status, Status::Ok | Status::NotSupp), "{status:?}");
    }
    assert_ne!(content(&fixture), OLD);
    assert_eq!(ann.abort(ALL), Status::Ok);
    assert_eq!(content(&fixture), OLD);
}

#[test]
fn only_the_range_is_taken_back() {
    let fixture = served();
    let mut ann = holder(&fixture, far(), b"ann");
    let mut bob = holder(&fixture, far(), b"bob");
    ann.lock_undone((20, 20));
    ann.put(0, b"stays");
    ann.put(20, &[1; 20]);
    ann.put(60, b"stays");
    bob.put(80, b"stays");
    // Half of it is final.
    assert_eq!(ann.unlock((30, 10)), Status::Ok);
    assert_eq!(ann.abort((20, 10)), Status::Ok);
    let mut expected = OLD;
    for at in [0, 60, 80] {
        expected[at..at + 5].copy_from_slice(b"stays");
    }
    expected[30..40].fill(1);
    let commit = Request::Commit(Commit { file: ann.file, offset: 0, length: 0 });
    assert_eq!(ann.rogue.outcome(&commit), Some(Status::Ok));
    assert_eq!(content(&fixture), expected);
}

#[test]
fn a_file_that_grew_in_the_range_is_cut_off_and_one_that_others_made_longer_is_not() {
    let fixture = served();
    let mut ann = holder(&fixture, far(), b"ann");
    let mut bob = holder(&fixture, far(), b"bob");
    ann.lock_undone((50, 100));
    ann.put(90, &[1; 60]);
    assert_eq!(ann.abort((50, 100)), Status::Ok);
    assert_eq!(content(&fixture), OLD);
    ann.put(90, &[1; 60]);
    bob.put(200, b"others'");
    assert_eq!(ann.abort((50, 100)), Status::Ok);
    let mut expected = OLD.to_vec();
    expected.resize(200, 0);
    expected.extend(b"others'");
    assert_eq!(content(&fixture), expected);
}

#[test]
fn whoever_fails_leaves_what_was_there() {
    for transport in transports() {
        // Its lease ends: a client without stored replies has none.
        let fixture = served();
        let mut rogue = Rogue::connect(&fixture.address(transport));
        let session = rogue.log_in_as(b"ann", WireOptions::default()).session;
        let (file, state) = rogue.open("file");
        let mut ann = Holder { rogue, session, file, state };
        ann.lock_undone((0, 40));
        ann.put(0, &[1; 40]);
        drop(ann);
        let mut bob = holder(&fixture, transport, b"bob");
        await_that("the lock is gone", || bob.lock(LockType::Write, ALL) == Status::Ok);
        assert_eq!(content(&fixture), OLD);
        // It restarts.
        let mut cid = holder(&fixture, transport, b"cid");
        assert_eq!(bob.unlock(ALL), Status::Ok);
        cid.lock_undone(ALL);
        cid.put(0, &[2; 70]);
        let mut again = Rogue::connect(&fixture.address(transport));
        again.log_in_anew(b"cid", WireOptions::default());
        await_that("the lock is gone", || bob.lock(LockType::Write, ALL) == Status::Ok);
        assert_eq!(content(&fixture), OLD);
    }
}

#[test]
fn a_lock_outlives_the_server_with_all_that_is_to_be_taken_back() {
    let fixture = served();
    let mut ann = holder(&fixture, far(), b"ann");
    ann.lock_undone(ALL);
    ann.put(0, &[1; 40]);
    let fixture = fixture.journaled();
    let mut ann = ann.back(&fixture);
    assert_eq!(ann.lock_with(LockType::Write, A.with(LockOptions::RECLAIM), ALL), Status::Ok);
    ann.put(20, &[2; 40]);
    // Again: the undo data was recovered and is continued.
    let fixture = fixture.journaled();
    assert_eq!(&content(&fixture)[..61], [&[1; 20][..], &[2; 40], &[7]].concat());
    let mut ann = ann.back(&fixture);
    assert_eq!(ann.lock_with(LockType::Write, A.with(LockOptions::RECLAIM), ALL), Status::Ok);
    ann.put(50, &[3; 100]);
    assert_eq!(ann.abort(ALL), Status::Ok);
    assert_eq!(content(&fixture), OLD);
}

#[test]
fn nobody_comes_back_for_it() {
    let fixture = served();
    let mut ann = holder(&fixture, far(), b"ann");
    ann.lock_undone((10, 1000));
    ann.put(10, &[1; 200]);
    drop(ann);
    let fixture = fixture.journaled_with(|config| config.filer.lease = Duration::from_millis(10));
    let mut rogue = Rogue::connect(&fixture.address(far()));
    rogue.log_in_as(b"bob", WireOptions::default());
    let mut open = None;
    await_that("the time to take back is over", || {
        open = rogue.try_open("file").ok();
        open.is_some()
    });
    let (file, state) = open.unwrap();
    let mut bob = Holder { rogue, session: SessionId(0), file, state };
    await_that("the lock is gone", || bob.lock(LockType::Write, ALL) == Status::Ok);
    assert_eq!(content(&fixture), OLD);
    assert_eq!(bob.close(), Status::Ok);
    await_that("undo data goes", || undo_files(fixture.root()) == 0);
}

#[test]
fn a_broken_lock_is_repaired_over_what_was_there() {
    let fixture = served();
    let mut ann = holder(&fixture, far(), b"ann");
    let both = A.with(LockOptions::PERSIST);
    assert_eq!(ann.lock_with(LockType::Write, both, (0, 50)), Status::Ok);
    ann.put(0, &[1; 50]);
    let mut again = Rogue::connect(&fixture.address(far()));
    again.log_in_anew(b"ann", WireOptions::default());
    let mut bob = holder(&fixture, far(), b"bob");
    assert_eq!(bob.lock(LockType::Write, (0, 10)), Status::LockBroken);
    let repair = A.with(LockOptions::REPAIR);
    await_that("it is rolled back", || {
        bob.lock_with(LockType::Write, repair, (0, 50)) == Status::Ok
    });
    assert_eq!(content(&fixture), OLD);
    bob.put(0, &[2; 50]);
    assert_eq!(bob.abort((0, 50)), Status::Ok);
    assert_eq!(content(&fixture), OLD);
}

#[test]
fn what_cannot_be_had_is_refused() {
    let plain = Fixture::new();
    std::fs::write(plain.local("file"), OLD).unwrap();
    let mut ann = holder(&plain, far(), b"ann");
    assert_eq!(ann.lock_with(LockType::Write, A, ALL), Status::NotSupp);
    let fixture = served();
    let mut ann = holder(&fixture, far(), b"ann");
    assert_eq!(ann.lock_with(LockType::Read, A, ALL), Status::NotSupp);
    assert_eq!(ann.abort(ALL), Status::Inval);
    assert_eq!(ann.lock(LockType::Write, ALL), Status::Ok);
    assert_eq!(ann.abort(ALL), Status::Inval);
    // Others can neither write nor truncate below it or in it.
    let mut bob = holder(&fixture, far(), b"bob");
    assert_eq!(bob.cut(0), Status::Locked);
    assert_eq!(bob.write(StateId::ANONYMOUS, 0, b"x"), Status::Locked);
}

/// Compares random locks, writes, truncations, aborts and unlocks with bytes in memory.
#[test]
fn random_changes_leave_what_a_model_has() {
    for seed in 0..10 {
        eprintln!("seed {seed}");
        let mut random = Random::new(seed);
        let mut fixture = served();
        let mut ann = holder(&fixture, far(), b"ann");
        let mut kept = OLD.to_vec();
        ann.lock_undone(ALL);
        let mut now = kept.clone();
        for _ in 0..40 {
            match random.below(12) {
                0..=6 => {
                    let offset = random.below(120);
                    let length = random.below(60);
                    let bytes = random.bytes(1 + length);
                    if now.len() < offset + bytes.len() {
                        now.resize(offset + bytes.len(), 0);
                    }
                    now[offset..offset + bytes.len()].copy_from_slice(&bytes);
                    ann.put(offset as u64, &bytes);
                }
                7 => {
                    let size = random.below(140);
                    now.resize(size, 0);
                    assert_eq!(ann.cut(size as u64), Status::Ok);
                }
                8 | 9 => {
                    assert_eq!(ann.abort(ALL), Status::Ok);
                    now.clone_from(&kept);
                    assert_eq!(content(&fixture), now, "seed {seed}");
                }
                10 => {
                    assert_eq!(ann.unlock(ALL), Status::Ok);
                    kept.clone_from(&now);
                    assert_eq!(content(&fixture), now, "seed {seed}");
                    ann.lock_undone(ALL);
                }
                _ => {
                    fixture = fixture.journaled();
                    ann = ann.back(&fixture);
                    let reclaim = A.with(LockOptions::RECLAIM);
                    assert_eq!(ann.lock_with(LockType::Write, reclaim, ALL), Status::Ok);
                }
            }
        }
        assert_eq!(ann.abort(ALL), Status::Ok);
        assert_eq!(content(&fixture), kept, "seed {seed}");
        ann.leave();
    }
}

/// Does the same where undo data shares blocks with the file, as far as can be observed: larger
/// files, restarts with and without a client that comes back for the lock.
#[test]
fn random_changes_of_what_is_cloned_leave_what_a_model_has() {
    let mut cloned_bytes = 0;
    for seed in 0..6 {
        eprintln!("seed {seed}");
        let mut random = Random::new(seed);
        let storage = CrashStorage::new();
        storage.set_reflinks(true);
        let on_storage = |config: &mut ServerConfig| {
            let journal = config.journal.as_mut().unwrap();
            journal.storage = Arc::new(storage.clone());
            (journal.undo.clone_bytes_min, journal.undo.clone_bytes_max) = (8 << 10, 32 << 10);
        };
        let mut fixture = Fixture::with_journal().journaled_with(on_storage);
        let mut kept = random.bytes(100_000);
        std::fs::write(fixture.local("file"), &kept).unwrap();
        let mut ann = holder(&fixture, far(), b"ann");
        // Data that is only in the cache is cloned as well.
        kept[50_000..51_000].fill(0);
        ann.put(50_000, &[0; 1000]);
        ann.lock_undone(ALL);
        let mut now = kept.clone();
        for _ in 0..40 {
            match random.below(12) {
                0..=7 => {
                    let offset = random.below(110_000);
                    let length = 1 + random.below(1500);
                    let bytes = random.bytes(length);
                    now.resize(now.len().max(offset + length), 0);
                    now[offset..offset + length].copy_from_slice(&bytes);
                    ann.put(offset as u64, &bytes);
                }
                8 => {
                    let size = random.below(120_000);
                    now.resize(size, 0);
                    assert_eq!(ann.cut(size as u64), Status::Ok);
                }
                9 => {
                    assert_eq!(ann.abort(ALL), Status::Ok);
                    now.clone_from(&kept);
                    assert!(content(&fixture) == now, "seed {seed}");
                }
                10 => {
                    assert_eq!(ann.unlock(ALL), Status::Ok);
                    kept.clone_from(&now);
                    assert!(content(&fixture) == now, "seed {seed}");
                    ann.lock_undone(ALL);
                }
                _ => {
                    fixture = fixture.journaled_with(on_storage);
                    ann = ann.back(&fixture);
                    let reclaim = A.with(LockOptions::RECLAIM);
                    assert_eq!(ann.lock_with(LockType::Write, reclaim, ALL), Status::Ok);
                }
            }
        }
        assert_eq!(ann.abort(ALL), Status::Ok);
        assert!(content(&fixture) == kept, "seed {seed}");
        ann.leave();
        let (_, stats) = fixture.stop();
        cloned_bytes += stats.cloned_bytes;
    }
    assert!(cloned_bytes > 0, "nothing was cloned");
}

#[test]
fn a_piece_that_was_not_saved_would_be_noticed() {
    let fixture = served();
    let fixture = fixture.journaled_with(|config| config.defect = Some(Defect::ForgetUndoBlock));
    let mut ann = holder(&fixture, far(), b"ann");
    ann.lock_undone(ALL);
    ann.put(10, b"changed");
    assert_eq!(ann.abort(ALL), Status::Ok);
    assert_ne!(content(&fixture), OLD);
}

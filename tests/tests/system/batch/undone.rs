//! Tests batches under auto-recovery locks: their changes are undone with the others.

use dafs_client::{ClientConfig, LockKind, LockOptions, OpenOptions, SessionOptions};
use dafs_types::Status;
use dafs_wire::messages::{LockType, SessionOptions as WireOptions};

use super::messages::{Batcher, HELD, One, WRITE};
use crate::fixture::{Fixture, await_that, transports};
use crate::locks::{Holder, holder, served};
use crate::rogue::Rogue;

const A: LockOptions = LockOptions::AUTO_RECOVERY;
/// The initial contents of the file that `served` makes.
const OLD: [u8; 100] = [7; 100];

#[test]
fn abort_takes_back_what_a_batch_has_written() {
    for transport in transports() {
        for checksums in [false, true] {
            let fixture = served();
            let content = || std::fs::read(fixture.local("file")).unwrap();
            let client = dafs_client::Client::new(ClientConfig::default()).unwrap();
            let options = SessionOptions::default().checksums(checksums);
            let session = client.connect_to(&fixture.address(transport), &options).unwrap();
            let file = session.open("/file", &OpenOptions::write()).unwrap();
            assert_eq!(file.try_lock(LockKind::Exclusive, 20, u64::MAX, A).unwrap(), None);
            let buffer = client.allocate(8192).unwrap();
            buffer.write(0, &[8; 8192]);
            let slice = |length| buffer.slice(0, length).unwrap();
            for submitted in [false, true] {
                // Some of it before the locked range, some after the end.
                let batch = session.batch().write(&file, 10, slice(15)).write(&file, 90, slice(50));
                let batch = batch.write(&file, 30, slice(3)).write(&file, 100_000, slice(8192));
                let outcomes =
                    if submitted { batch.submit().unwrap().wait() } else { batch.run().unwrap() };
                assert_eq!(outcomes, [Ok(15), Ok(50), Ok(3), Ok(8192)]);
                assert_eq!(content().len(), 108_192);
                assert_eq!(content()[30..33], [8; 3]);
                file.abort_lock(20, u64::MAX).unwrap();
                let mut expected = OLD;
                expected[10..20].fill(8);
                assert_eq!(content(), expected);
            }
            // Once more, and this time it is committed.
            let batch = session.batch().write(&file, 20, slice(80));
            assert_eq!(batch.run().unwrap(), [Ok(80)]);
            file.unlock(20, u64::MAX).unwrap();
            assert_eq!(content()[10..], [8; 90]);
        }
    }
}

#[test]
fn a_batch_that_was_held_back_finds_the_file_as_it_was() {
    for transport in transports() {
        let fixture = Fixture::new().journaled_with(|config| {
            config.sessions.batch.early_start_below = 0;
            config.sessions.batch.window_max = std::time::Duration::from_secs(3600);
        });
        std::fs::write(fixture.local("file"), OLD).unwrap();
        // A client without stored replies has no lease either.
        let mut rogue = Rogue::connect(&fixture.address(transport));
        let session = rogue.log_in_as(b"ann", WireOptions::default()).session;
        let (file, state) = rogue.open("file");
        let mut ann = Holder { rogue, session, file, state };
        let mut bob = Batcher::connect(&fixture, transport, b"bob");
        bob.listen(&fixture, transport);
        bob.memory.write(4096, &[9; 60]);
        assert_eq!(bob.submit(&[One(1, WRITE, 40, 60)], HELD), Status::Ok);
        assert_eq!(ann.lock_with(LockType::Write, A, (0, 60)), Status::Ok);
        assert_eq!(ann.write(ann.state, 0, &[1; 60]), Status::Ok);
        assert_eq!(bob.hurry(1), Status::Ok);
        assert_eq!(bob.told(), [(1, Status::Locked)]);
        assert_eq!(bob.submit(&[One(1, WRITE, 40, 60)], HELD), Status::Ok);
        // After a failure the old contents are back, and waiting clients continue.
        drop(ann);
        let mut cid = holder(&fixture, transport, b"cid");
        await_that("the lock to end", || cid.lock(LockType::Write, (0, 60)) == Status::Ok);
        assert_eq!(cid.unlock((0, 60)), Status::Ok);
        assert_eq!(bob.hurry(1), Status::Ok);
        assert_eq!(bob.told(), [(1, Status::Ok)]);
        let mut expected = OLD;
        expected[40..].fill(9);
        assert_eq!(std::fs::read(fixture.local("file")).unwrap(), expected);
    }
}

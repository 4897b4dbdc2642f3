//! Tests byte-range locks through the client library, over broken connections and killed servers.

use std::time::Duration;

use dafs_client::{
    Client, ClientConfig, ClientError, File, LockKind, LockOptions, OpenOptions, Session,
    SessionOptions, Status,
};
use dafs_dat::Address;

use crate::fixture::{Fixture, Transport, over_each, transports};
use crate::reconnect::child::ServerProcess;
use crate::reconnect::proxy::Proxy;

const NONE: LockOptions = LockOptions::from_bits(0).unwrap();
const END: u64 = u64::MAX;

struct Party {
    // Declared before its client, so that the session ends first.
    file: File,
    session: Session,
    _client: Client,
}

fn party(address: &Address) -> Party {
    let client = Client::new(ClientConfig::default()).unwrap();
    let session = client.connect_to(address, &SessionOptions::default()).unwrap();
    let file = session.open("/file", &OpenOptions::write()).unwrap();
    Party { file, session, _client: client }
}

fn is_kept_out(file: &File, offset: u64) -> bool {
    match file.write_at(b"x", offset) {
        // A restart loses uncommitted data, which another test checks.
        Ok(_) => file.commit().is_err(),
        Err(error) => {
            assert_eq!(error.status(), Some(Status::Locked), "{error}");
            true
        }
    }
}

#[test]
fn a_lock_keeps_others_out_until_it_is_given_up() {
    over_each(|fixture, transport| {
        let (ann, bob) = (party(&fixture.address(transport)), party(&fixture.address(transport)));
        assert_eq!(ann.file.try_lock(LockKind::Exclusive, 10, 10, NONE).unwrap(), None);
        let holder = bob.file.try_lock(LockKind::Shared, 0, END, NONE).unwrap().unwrap();
        assert_eq!((holder.kind, holder.offset, holder.length), (LockKind::Exclusive, 10, 10));
        assert_eq!(bob.file.test_lock(LockKind::Shared, 15, 1).unwrap(), Some(holder));
        assert_eq!(ann.file.test_lock(LockKind::Shared, 15, 1).unwrap(), None, "her own");
        assert!(is_kept_out(&bob.file, 19) && !is_kept_out(&bob.file, 20));
        assert_eq!(ann.file.try_lock(LockKind::Shared, 10, 5, NONE).unwrap(), None);
        assert_eq!(bob.file.try_lock(LockKind::Shared, 0, 15, NONE).unwrap(), None);
        ann.file.unlock(0, END).unwrap();
        assert!(!is_kept_out(&bob.file, 19));
        let error = ann.file.abort_lock(0, 10).unwrap_err();
        assert!(error.to_string().starts_with("/file: "), "{error}");
    });
}

#[test]
fn who_waits_has_its_turn_and_who_does_not_want_to_any_more_stops() {
    over_each(|fixture, transport| {
        let ann = party(&fixture.address(transport));
        ann.file.lock(LockKind::Exclusive, 0, END, NONE, None).unwrap();
        let address = fixture.address(transport);
        let (told, is_asking) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                let bob = party(&address);
                let short = Some(Duration::from_millis(1));
                let error = bob.file.lock(LockKind::Shared, 0, 1, NONE, short).unwrap_err();
                assert_eq!(error, ClientError::TimedOut);
                told.send(()).unwrap();
                bob.file.lock(LockKind::Shared, 0, 1, NONE, None).unwrap();
                bob.file.unlock(0, 1).unwrap();
            });
            is_asking.recv().unwrap();
            ann.file.unlock(0, END).unwrap();
            waiting.join().unwrap();
        });
    });
}

#[test]
fn locks_are_held_over_a_broken_connection() {
    let fixture = Fixture::with_journal();
    let proxy = Proxy::before(&fixture.address(Transport::Tcp));
    let (ann, bob) = (party(&proxy.address), party(&fixture.address(Transport::Tcp)));
    ann.file.lock(LockKind::Exclusive, 0, 10, NONE, None).unwrap();
    proxy.cut();
    assert!(is_kept_out(&bob.file, 0));
    ann.file.unlock(0, 5).unwrap();
    assert!(is_kept_out(&bob.file, 5) && !is_kept_out(&bob.file, 4));
    // A lock that was requested when the connection broke is granted once.
    let asking = ann.file.try_lock_async(LockKind::Exclusive, 20, 10, NONE);
    proxy.cut();
    assert_eq!(dafs_client::block_on(&ann.session.client(), asking).unwrap(), None);
    assert!(is_kept_out(&bob.file, 29));
}

#[test]
fn locks_are_taken_back_from_a_server_that_was_killed() {
    for transport in transports() {
        let mut server = ServerProcess::start();
        let (ann, bob) = (party(&server.address(transport)), party(&server.address(transport)));
        ann.file.lock(LockKind::Exclusive, 0, 100, NONE, None).unwrap();
        ann.file.lock(LockKind::Shared, 40, 10, NONE, None).unwrap();
        ann.file.unlock(60, 10).unwrap();
        ann.file.lock(LockKind::Exclusive, 1000, END, LockOptions::PERSIST, None).unwrap();
        bob.file.lock(LockKind::Shared, 45, 5, NONE, None).unwrap();
        for _ in 0..2 {
            server.kill();
            server.revive();
            // Each client reconnects with its next request; no client gets a new lock before that.
            let comes_back = |party: &Party| party.session.ping().unwrap();
            comes_back(&ann);
            comes_back(&bob);
            assert!(is_kept_out(&bob.file, 0) && is_kept_out(&bob.file, 99));
            assert!(!is_kept_out(&bob.file, 65) && !is_kept_out(&bob.file, 100));
            assert!(is_kept_out(&bob.file, 45), "she shares it");
            assert!(is_kept_out(&ann.file, 45), "he shares it");
            assert!(is_kept_out(&bob.file, 1 << 40));
            let mut byte = [0];
            bob.file.read_at(&mut byte, 41).unwrap();
        }
        ann.file.unlock(0, END).unwrap();
        assert!(!is_kept_out(&bob.file, 99) && !is_kept_out(&bob.file, 1 << 20));
    }
}

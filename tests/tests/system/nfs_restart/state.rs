//! Opens and locks of NFSv4.1 clients that are reclaimed after the server was killed.

use dafs_nfs_suite::fault::Fault;
use dafs_nfs_suite::nfs4::ops::{self, Claim, How, Locker, Op};
use dafs_nfs_suite::nfs4::results::Body;
use dafs_nfs_suite::nfs4::session::{Session, Wish};
use dafs_nfs_suite::nfs4::{Reply, Set, StateId};
use dafs_nfs_suite::rpc::Auth;
use dafs_nfs_suite::status::{DELAY, DENIED, GRACE, NO_GRACE, RECLAIM_BAD};

use super::calls::{connect, root, user};
use crate::reconnect::child::ServerProcess;

const BOTH: u32 = ops::share::BOTH | ops::share::WANT_NONE;
const DENY_WRITE: u32 = 2;
const WRITE_LOCK: u32 = 2;

/// A client with an open file, whose first ten bytes it may have locked.
struct Holder {
    wish: Wish,
    file: Vec<u8>,
}

impl Holder {
    /// Opens a file, and locks some of it.
    fn new(server: &ServerProcess, root: &[u8], name: &str, locks: bool) -> Self {
        let wish = Wish::new(name.as_bytes(), user(), 1);
        let mut session = Session::start(server.nfs(), &wish).unwrap();
        session.dir = root.to_vec();
        let how = How::Unchecked(Set::new().mode(0o666));
        let (opened, file) = session.open("owner", (BOTH, DENY_WRITE), &how, name).unwrap();
        if locks {
            let locker = Locker::New(opened.state, b"locker".to_vec());
            let lock = ops::lock(WRITE_LOCK, false, 0, 10, &locker);
            session.ok(&[ops::putfh(&file), lock]).unwrap();
        }
        // The end of a session ends its client, but the server will be killed.
        std::mem::forget(session);
        Self { wish, file }
    }

    /// Begins a new session after the server was killed.
    fn returns(&self, server: &ServerProcess) -> Session {
        Session::without_reclaim_complete(server.nfs(), &self.wish).unwrap()
    }

    /// Reclaims the open.
    fn reclaim(&self, session: &mut Session) -> Reply {
        let open = ops::open(b"owner", BOTH, DENY_WRITE, &How::Open, &Claim::Previous(0));
        session.once(&[ops::putfh(&self.file), open]).unwrap()
    }
}

fn status(session: &mut Session, ops: &[Op]) -> u32 {
    session.once(ops).unwrap().status
}

/// Opens a new file.
fn opens_new(session: &mut Session, root: &[u8], name: &str) -> u32 {
    let how = How::Unchecked(Set::new().mode(0o666));
    let open = ops::open(b"new", BOTH, 0, &how, &Claim::Name(name.into()));
    status(session, &[ops::putfh(root), open])
}

#[test]
fn opens_and_locks_are_reclaimed_and_the_grace_period_ends_with_the_last_client() {
    let mut server = ServerProcess::start_for_nfs();
    let root = root(server.nfs());
    let (a, b) = (Holder::new(&server, &root, "a", true), Holder::new(&server, &root, "b", false));
    server.kill();
    std::fs::write(server.local("other"), "").unwrap();
    server.revive();

    let mut first = a.returns(&server);
    assert_eq!(opens_new(&mut first, &root, "c"), GRACE);
    // A client may remove files before it has reclaimed everything. This does not end its reclaims.
    assert_eq!(status(&mut first, &[ops::putfh(&root), ops::remove("other")]), GRACE);
    let mut second = b.returns(&server);
    assert_eq!(b.reclaim(&mut second).status, 0);
    second.ok(&[ops::reclaim_complete(false)]).unwrap();
    assert_eq!(opens_new(&mut second, &root, "c"), GRACE, "the first client may still reclaim");

    // A client of version 3 waits.
    let mut third = connect(server.nfs());
    let refused = third.remove(&root, "other").unwrap_err();
    // The status has this number in version 4, too, and the name JUKEBOX in version 3.
    assert!(matches!(refused, Fault::Status { status: DELAY, .. }), "{refused}");

    let reclaimed = a.reclaim(&mut first);
    assert_eq!(reclaimed.status, 0);
    let state = reclaimed.state(1).unwrap();
    let locker = Locker::New(state, b"locker".to_vec());
    let lock = ops::lock(WRITE_LOCK, true, 0, 10, &locker);
    assert_eq!(status(&mut first, &[ops::putfh(&a.file), lock]), 0);
    first.ok(&[ops::reclaim_complete(false)]).unwrap();

    // All clients have reclaimed what they had, so the grace period has ended.
    assert_eq!(opens_new(&mut second, &root, "c"), 0);
    third.remove(&root, "other").unwrap();
    let test = ops::lockt(WRITE_LOCK, 5, 1, b"other");
    let denied = second.once(&[ops::putfh(&a.file), test]).unwrap();
    assert_eq!(denied.status, DENIED);
    assert!(matches!(denied.body(1).unwrap(), Body::Denied { offset: 0, length: 10, .. }));
    // The share reservation was reclaimed, too.
    let write = ops::write(StateId::ANONYMOUS, 0, 2, b"data");
    assert_ne!(status(&mut second, &[ops::putfh(&a.file), write]), 0);
    let write = ops::write(state, 0, 2, b"data");
    assert_eq!(status(&mut first, &[ops::putfh(&a.file), write]), 0);
    assert_eq!(a.reclaim(&mut first).status, NO_GRACE);
}

#[test]
fn who_held_nothing_reclaims_nothing() {
    let mut server = ServerProcess::start_for_nfs();
    let root = root(server.nfs());
    let holder = Holder::new(&server, &root, "a", true);
    server.kill();
    server.revive();
    let stranger = Holder { wish: Wish::new(b"stranger", user(), 1), file: holder.file.clone() };
    // Another user of the client's machine who says that it is the client.
    let wish = Wish::new(b"a", Auth::user(12_345), 1);
    let thief = Holder { wish, file: holder.file.clone() };
    for other in [stranger, thief] {
        let mut session = other.returns(&server);
        let status = other.reclaim(&mut session).status;
        assert!(matches!(status, NO_GRACE | RECLAIM_BAD), "{status}");
        session.ok(&[ops::reclaim_complete(false)]).unwrap();
        assert_eq!(opens_new(&mut session, &root, "new"), GRACE);
    }
    // Neither of them has ended the reclaims of the client that held something.
    let mut session = holder.returns(&server);
    assert_eq!(holder.reclaim(&mut session).status, 0);
    session.ok(&[ops::reclaim_complete(false)]).unwrap();
    assert_eq!(opens_new(&mut session, &root, "new"), 0);
}

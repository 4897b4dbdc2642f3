//! NFS clients and DAFS clients at the same files: each kind recalls the delegations of the other.
//! Also what happens to the state of NFS clients that do not renew their leases or do not return a
//! delegation.

use std::time::Duration;

use dafs_client::{Client, ClientConfig, LockKind, LockOptions, OpenOptions, SessionOptions};
use dafs_dat::Address;
use dafs_nfs_suite::nfs4::callback::Callback;
use dafs_nfs_suite::nfs4::ops::{self, Channel, Claim, How, Locker, lock_type, share};
use dafs_nfs_suite::nfs4::results::Delegation;
use dafs_nfs_suite::nfs4::session::Wish;
use dafs_nfs_suite::nfs4::{Body, Session, Set, StateId, run};
use dafs_nfs_suite::rpc::Auth;
use dafs_nfs_suite::status;
use dafs_server::ServerConfig;

use crate::fixture::{Fixture, any, await_that, serve_nfs};

/// Starts a server for both kinds of clients. `None` if this process may not act as other users.
pub(crate) fn fixture(change: impl FnOnce(&mut ServerConfig)) -> Option<Fixture> {
    if !dafs_tests::is_root() {
        return None;
    }
    Some(Fixture::with(|config| {
        serve_nfs(config, 0);
        change(config);
    }))
}

/// Returns a session of a new NFS client, whose directory is the root and whose back channel has
/// one slot.
pub(crate) fn client(fixture: &Fixture, owner: &[u8]) -> Session {
    let back = Channel { requests: 1, ..Channel::BACK };
    let wish = Wish { back, ..Wish::new(owner, Auth::user(0), 1) };
    let mut session = Session::start(fixture.nfs(), &wish).unwrap();
    session.dir = session.ok(&[ops::putrootfh(), ops::getfh()]).unwrap().fh(1).unwrap();
    session
}

/// Writes to the file as a new DAFS client.
fn write(server: &Address) {
    let client = Client::new(ClientConfig::default()).unwrap();
    let session = client.connect_to(server, &SessionOptions::default()).unwrap();
    let file = session.open("file", &OpenOptions::write()).unwrap();
    file.write_at(b"new", 0).unwrap();
    file.close().unwrap();
}

/// Opens a file until the client has a delegation. Returns its state id and the file's handle.
fn delegated(session: &mut Session, access: u32) -> (StateId, Vec<u8>) {
    let mut found = None;
    await_that("the server grants a delegation", || {
        let (opened, fh) = session.open("o", (access, 0), &How::Open, "file").unwrap();
        match opened.delegation {
            Delegation::Read(state) | Delegation::Write(state) => found = Some((state, fh)),
            _ => drop(session.ok(&[ops::putfh(&fh), ops::close(opened.state)]).unwrap()),
        }
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn a_dafs_client_waits_for_the_delegation_of_an_nfs_client() {
    let Some(fixture) = fixture(|_| {}) else { return };
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut holder = client(&fixture, b"holder");
    let (state, fh) = delegated(&mut holder, share::READ);
    let address = fixture.address(any());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&address));
        let told = holder.callback().unwrap();
        assert!(
            matches!(&told[..], [Callback::Recall { state: of, fh: file, .. }]
                if of.other == state.other && *file == fh),
            "{told:?}"
        );
        let reply = holder.ok(&[ops::putfh(&fh), ops::read(state, 0, 10)]).unwrap();
        assert_eq!(reply.data(1).unwrap().1, b"old");
        assert!(!writer.is_finished(), "the file was opened while it was delegated");
        holder.ok(&[ops::putfh(&fh), ops::delegreturn(state)]).unwrap();
        writer.join().unwrap();
    });
    assert_eq!(std::fs::read(fixture.local("file")).unwrap(), b"new");
}

#[test]
fn a_delegation_that_is_not_returned_is_revoked_and_the_client_told() {
    let soon = |config: &mut ServerConfig| {
        // A recall gets at least the time of a lease.
        config.filer.lease = Duration::from_secs(1);
        config.filer.delegations.recall_timeout = Duration::ZERO;
        config.filer.delegations.quiet = Duration::ZERO;
    };
    let Some(fixture) = fixture(soon) else { return };
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut holder = client(&fixture, b"holder");
    let (state, fh) = delegated(&mut holder, share::READ);
    let (_client, session) = fixture.connect(any());
    session.open("file", &OpenOptions::write()).unwrap().close().unwrap();

    let refused =
        holder.fails(&[status::DELEG_REVOKED], &[ops::putfh(&fh), ops::read(state, 0, 3)]);
    refused.unwrap();
    let flags = holder.last.unwrap().flags;
    assert_eq!(flags & RECALLABLE_STATE_REVOKED, RECALLABLE_STATE_REVOKED, "{flags:#x}");
    let reply = holder.ok(&[ops::test_stateid(&[state])]).unwrap();
    assert_eq!(reply.body(0).unwrap(), &Body::Statuses(vec![status::DELEG_REVOKED]));
    holder.ok(&[ops::free_stateid(state)]).unwrap();
    holder.ok(&[]).unwrap();
    assert_eq!(holder.last.unwrap().flags & RECALLABLE_STATE_REVOKED, 0);
    // A client that has acknowledged the revocation gets delegations again.
    delegated(&mut holder, share::READ);
}

#[test]
fn a_recall_that_nobody_waits_for_is_completed_on_the_next_connection() {
    let soon = |config: &mut ServerConfig| {
        // The callback ends after a lease, long before the delegation is revoked.
        config.filer.lease = Duration::from_secs(1);
        config.filer.delegations.recall_timeout = Duration::from_secs(4);
        config.filer.delegations.recall_retry = Duration::from_secs(60);
        config.filer.delegations.quiet = Duration::ZERO;
    };
    let Some(fixture) = fixture(soon) else { return };
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut holder = client(&fixture, b"holder");
    let (state, _) = delegated(&mut holder, share::READ);
    let address = fixture.address(any());
    write(&address);
    // The delegation is revoked, because the client has not replied to the recall. The slot of the
    // recall stays in use until the client replies, on whichever connection.
    holder.connection = holder.another_connection().unwrap();
    let bind = ops::bind_conn(holder.created.id, FORE_OR_BOTH);
    run(&mut holder.connection, &holder.auth, holder.minor, &[bind]).unwrap().all_ok().unwrap();
    assert_eq!(holder.callback().unwrap(), [], "the delegation was already revoked");
    holder.ok(&[ops::free_stateid(state)]).unwrap();
    // The slot can be used again.
    let (state, fh) = delegated(&mut holder, share::READ);
    std::thread::scope(|scope| {
        scope.spawn(|| write(&address));
        let told = holder.callback().unwrap();
        assert!(matches!(&told[..], [Callback::Recall { .. }]), "{told:?}");
        holder.ok(&[ops::putfh(&fh), ops::delegreturn(state)]).unwrap();
    });
}

#[test]
fn an_open_of_a_client_whose_lease_has_expired_ends_at_a_conflict() {
    let Some(fixture) = fixture(|config| config.filer.lease = Duration::from_secs(1)) else {
        return;
    };
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut gone = client(&fixture, b"gone");
    let access = share::BOTH | share::WANT_NONE;
    gone.open("o", (access, share::BOTH), &How::Open, "file").unwrap();
    let mut other = client(&fixture, b"other");
    let claim = Claim::Name(b"file".to_vec());
    let open = [other.dir(), ops::open(b"o", access, 0, &How::Open, &claim)];
    other.fails(&[status::SHARE_DENIED], &open).unwrap();
    await_that("the expired open ends", || other.run(&open).unwrap().status == 0);
    // The client has lost its session together with its open.
    assert!(gone.once(&[ops::putrootfh()]).is_err());
}

#[test]
fn a_lock_of_a_client_whose_lease_has_expired_ends_at_a_conflict() {
    let Some(fixture) = fixture(|config| config.filer.lease = Duration::from_secs(1)) else {
        return;
    };
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let access = share::BOTH | share::WANT_NONE;
    let lock = |session: &mut Session| {
        let (opened, fh) = session.open("o", (access, 0), &How::Open, "file").unwrap();
        let locker = Locker::New(opened.state, b"locker".to_vec());
        [ops::putfh(&fh), ops::lock(lock_type::WRITE, false, 0, 10, &locker)]
    };
    let mut gone = client(&fixture, b"gone");
    let first = lock(&mut gone);
    gone.ok(&first).unwrap();
    let mut other = client(&fixture, b"other");
    let second = lock(&mut other);
    other.fails(&[status::DENIED], &second).unwrap();
    await_that("the expired lock ends", || other.run(&second).unwrap().status == 0);
}

#[test]
fn an_open_of_a_client_whose_lease_has_expired_ends_when_another_sets_the_size() {
    let Some(fixture) = fixture(|config| config.filer.lease = Duration::from_secs(1)) else {
        return;
    };
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut gone = client(&fixture, b"gone");
    let access = share::READ | share::WANT_NONE;
    let (_, fh) = gone.open("o", (access, share::WRITE), &How::Open, "file").unwrap();
    let mut other = client(&fixture, b"other");
    let cut = [ops::putfh(&fh), ops::setattr(StateId::ANONYMOUS, &Set::new().size(1))];
    other.fails(&[status::LOCKED], &cut).unwrap();
    await_that("the expired open ends", || other.run(&cut).unwrap().status == 0);
    assert_eq!(std::fs::read(fixture.local("file")).unwrap(), b"o");
}

#[test]
fn nfs_clients_that_wait_for_a_lock_are_told_when_a_dafs_client_has_unlocked() {
    let Some(fixture) = fixture(|_| {}) else { return };
    std::fs::write(fixture.local("file"), b"text").unwrap();
    let (_client, session) = fixture.connect(any());
    let file = session.open("file", &OpenOptions::write()).unwrap();
    let plain = LockOptions::from_bits(0).unwrap();
    assert_eq!(file.try_lock(LockKind::Exclusive, 0, 10, plain).unwrap(), None);
    let ask = |session: &mut Session, kind: u32, offset: u64| {
        let access = share::BOTH | share::WANT_NONE;
        let (opened, fh) = session.open("o", (access, 0), &How::Open, "file").unwrap();
        assert_eq!(opened.flags & MAY_NOTIFY_LOCK, MAY_NOTIFY_LOCK);
        let locker = Locker::New(opened.state, b"locker".to_vec());
        [ops::putfh(&fh), ops::lock(kind, false, offset, 10, &locker)]
    };
    let [mut first, mut second, mut third] =
        [&b"first"[..], b"second", b"third"].map(|name| client(&fixture, name));
    let waiting = [
        ask(&mut first, lock_type::WRITEW, 5),
        ask(&mut second, lock_type::READW, 0),
        // This client does not say that it waits.
        ask(&mut third, lock_type::WRITE, 5),
    ];
    for (session, ask) in [&mut first, &mut second, &mut third].into_iter().zip(&waiting) {
        session.fails(&[status::DENIED], ask).unwrap();
    }
    file.unlock(0, 10).unwrap();
    for session in [&mut first, &mut second] {
        let told = session.callback().unwrap();
        let is_told =
            matches!(&told[..], [Callback::NotifyLock { owner, .. }] if owner == b"locker");
        assert!(is_told, "{told:?}");
    }
    // Nothing is reserved: whoever asks first gets the lock.
    third.ok(&waiting[2]).unwrap();
    first.fails(&[status::DENIED], &waiting[0]).unwrap();
    second.fails(&[status::DENIED], &waiting[1]).unwrap();
    // The end of the client frees its lock.
    drop(third);
    for session in [&mut first, &mut second] {
        let told = session.callback().unwrap();
        assert!(matches!(&told[..], [Callback::NotifyLock { .. }]), "{told:?}");
    }
    first.ok(&waiting[0]).unwrap();
}

#[test]
fn a_client_that_holds_an_open_cannot_be_destroyed() {
    let Some(fixture) = fixture(|_| {}) else { return };
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut session = client(&fixture, b"client");
    let access = share::READ | share::WANT_NONE;
    let (opened, fh) = session.open("o", (access, 0), &How::Open, "file").unwrap();
    let destroy = ops::destroy_clientid(session.client.id);
    session.fails(&[status::CLIENTID_BUSY], &[destroy]).unwrap();
    session.ok(&[ops::putfh(&fh), ops::close(opened.state)]).unwrap();
}

/// The flag of OPEN by which the server says that it tells of locks.
const MAY_NOTIFY_LOCK: u32 = 0x20;
/// The direction in BIND_CONN_TO_SESSION that asks for both channels.
const FORE_OR_BOTH: u32 = 3;
/// The flag of SEQUENCE by which the server tells that it has revoked a delegation.
const RECALLABLE_STATE_REVOKED: u32 = 0x40;

//! NFS clients that open and lock without end: each is stopped at its limit, and others go on.

use dafs_nfs_suite::nfs4::ops::{self, Claim, How, Locker, Op, lock_type, share};
use dafs_nfs_suite::nfs4::{Session, StateId};
use dafs_nfs_suite::status::DELAY;

use crate::nfs_state::{client, fixture};

const OPENS: u32 = 40;
const LOCKS: u32 = 30;

/// Returns an OPEN of the file by an owner with this number.
fn open_by(number: u32) -> Op {
    let claim = Claim::Name(b"file".to_vec());
    let access = share::BOTH | share::WANT_NONE;
    ops::open(&number.to_be_bytes(), access, 0, &How::Open, &claim)
}

/// Opens the file. Returns the state id and the handle.
fn opened(session: &mut Session) -> (StateId, Vec<u8>) {
    let access = share::BOTH | share::WANT_NONE;
    let (opened, fh) = session.open("owner", (access, 0), &How::Open, "file").unwrap();
    (opened.state, fh)
}

#[test]
fn a_client_that_opens_without_end_is_delayed_and_others_open() {
    let few = |config: &mut dafs_server::ServerConfig| config.filer.opens_per_client_max = OPENS;
    let Some(fixture) = fixture(few) else { return };
    std::fs::write(fixture.local("file"), b"text").unwrap();
    let mut flood = client(&fixture, b"flood");
    let (state, fh) = opened(&mut flood);
    for number in 1..OPENS {
        flood.ok(&[flood.dir(), open_by(number)]).unwrap();
    }
    for number in 0..3 {
        flood.fails(&[DELAY], &[flood.dir(), open_by(OPENS + number)]).unwrap();
    }
    let mut other = client(&fixture, b"other");
    opened(&mut other);
    // An open that ends makes room for another one.
    flood.ok(&[ops::putfh(&fh), ops::close(state)]).unwrap();
    flood.ok(&[flood.dir(), open_by(OPENS)]).unwrap();
    flood.fails(&[DELAY], &[flood.dir(), open_by(OPENS + 1)]).unwrap();
}

#[test]
fn a_client_that_locks_without_end_is_delayed_and_others_lock() {
    let few =
        |config: &mut dafs_server::ServerConfig| config.filer.locks.locks_per_client_max = LOCKS;
    let Some(fixture) = fixture(few) else { return };
    std::fs::write(fixture.local("file"), b"text").unwrap();
    let mut flood = client(&fixture, b"flood");
    let (open, fh) = opened(&mut flood);
    let range = |number: u32| (2 * u64::from(number), 1);
    let lock = |open: StateId, owner: u32, (offset, length)| {
        let locker = Locker::New(open, owner.to_be_bytes().to_vec());
        ops::lock(lock_type::WRITE, false, offset, length, &locker)
    };
    let mut first = None;
    // Each range of an owner of its own, and then one range of the first owner.
    for number in 0..LOCKS {
        let reply = flood.ok(&[ops::putfh(&fh), lock(open, number, range(number))]).unwrap();
        first.get_or_insert(reply.state(1).unwrap());
    }
    for owner in [LOCKS, 0] {
        let more = lock(open, owner, range(LOCKS));
        flood.fails(&[DELAY], &[ops::putfh(&fh), more]).unwrap();
    }
    let mut other = client(&fixture, b"other");
    let (of_other, _) = opened(&mut other);
    other.ok(&[ops::putfh(&fh), lock(of_other, 0, range(LOCKS))]).unwrap();
    // A range that is released makes room for another one.
    let (offset, length) = range(0);
    let first = first.unwrap();
    let release = ops::locku(lock_type::WRITE, first, offset, length);
    flood.ok(&[ops::putfh(&fh), release]).unwrap();
    flood.ok(&[ops::putfh(&fh), lock(open, LOCKS, range(LOCKS + 1))]).unwrap();
}

#[test]
fn clients_of_one_host_do_not_take_all_locks() {
    let few = |config: &mut dafs_server::ServerConfig| config.filer.locks.locks_max = 4 * LOCKS;
    let Some(fixture) = fixture(few) else { return };
    std::fs::write(fixture.local("file"), b"text").unwrap();
    let mut granted = 0;
    let mut floods: Vec<Session> =
        (0..4_u8).map(|number| client(&fixture, &[b'f', number])).collect();
    for flood in &mut floods {
        let (open, fh) = opened(flood);
        for _ in 0..LOCKS {
            let locker = Locker::New(open, b"locker".to_vec());
            let lock = ops::lock(lock_type::WRITE, false, 2 * granted, 1, &locker);
            match flood.once(&[ops::putfh(&fh), lock]).unwrap().status {
                0 => granted += 1,
                DELAY => break,
                status => panic!("status {status}"),
            }
        }
    }
    // All clients of this test are at one address, which gets three quarters.
    assert_eq!(granted, u64::from(3 * LOCKS));
}

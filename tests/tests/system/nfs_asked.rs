//! Attributes of files that an NFS client holds a delegation for writing of: the server asks the
//! holder (CB_GETATTR), and recalls the delegation only if the holder says nothing.

use std::time::Duration;

use dafs_nfs_suite::fault::Fault;
use dafs_nfs_suite::mount::Mount;
use dafs_nfs_suite::nfs3::Nfs3;
use dafs_nfs_suite::nfs4::attributes::{Attrs, CHANGE, SIZE, TIME_MODIFY};
use dafs_nfs_suite::nfs4::callback::{self, Callback};
use dafs_nfs_suite::nfs4::ops::{self, Claim, How, Op, share};
use dafs_nfs_suite::nfs4::results::Delegation;
use dafs_nfs_suite::nfs4::{Body, Session, StateId};
use dafs_nfs_suite::rpc::{Auth, Connection};
use dafs_nfs_suite::status;
use dafs_nfs_suite::xdr::Put;
use dafs_server::ServerConfig;

use crate::fixture::{Fixture, any, await_that};
use crate::nfs_state;

/// A client that holds a delegation for writing.
struct Holder {
    session: Session,
    fh: Vec<u8>,
    state: StateId,
    /// The change attribute that it was shown together with the delegation.
    change: u64,
}

impl Holder {
    /// Opens the file `file` of a server until the client has a delegation.
    fn new(fixture: &Fixture) -> Self {
        std::fs::write(fixture.local("file"), b"old").unwrap();
        let mut session = nfs_state::client(fixture, b"holder");
        // Until the clock goes on, each query gets another number.
        let mut last = 0;
        await_that("the change attribute settles", || {
            let all = [session.dir(), ops::lookup("file"), ops::getattr(&[CHANGE])];
            let now = session.ok(&all).unwrap().attrs(2).unwrap().number(CHANGE).unwrap();
            std::mem::replace(&mut last, now) == now
        });
        let claim = Claim::Name(b"file".to_vec());
        let open = ops::open(b"o", share::BOTH | share::WANT_WRITE, 0, &How::Open, &claim);
        let all = [session.dir(), open, ops::getfh(), ops::getattr(&[CHANGE])];
        let mut found = None;
        await_that("the server grants a delegation", || {
            let reply = session.ok(&all).unwrap();
            let Body::Open(opened) = reply.body(1).unwrap() else { panic!("{reply:?}") };
            let fh = reply.fh(2).unwrap();
            match opened.delegation {
                Delegation::Write(state) => {
                    found = Some((fh, state, reply.attrs(3).unwrap().number(CHANGE).unwrap()));
                }
                _ => drop(session.ok(&[ops::putfh(&fh), ops::close(opened.state)]).unwrap()),
            }
            found.is_some()
        });
        let (fh, state, change) = found.unwrap();
        Self { session, fh, state, change }
    }

    /// Waits for a question, and replies with these attributes.
    fn report(&mut self, change: u64, size: u64) {
        let attributes = Put::new().u32(1).u32(1 << CHANGE | 1 << SIZE);
        let attributes = attributes.opaque(Put::new().u64(change).u64(size).0).0;
        let asked = callback::answer(&mut self.session.connection, &attributes).unwrap();
        let [Callback::Sequence { .. }, Callback::GetAttr { fh, wanted }] = &asked[..] else {
            panic!("{asked:?}");
        };
        assert_eq!((fh, &wanted[..]), (&self.fh, &[CHANGE, SIZE][..]));
    }

    fn give_back(&mut self) {
        let give_back = [ops::putfh(&self.fh), ops::delegreturn(self.state)];
        self.session.ok(&give_back).unwrap();
    }
}

fn fixture(change: impl FnOnce(&mut ServerConfig)) -> Option<Fixture> {
    nfs_state::fixture(change)
}

/// Has the server revoke delegations that are not returned within a lease of one second.
fn revoking_soon(config: &mut ServerConfig) {
    config.filer.lease = Duration::from_secs(1);
    config.filer.delegations.recall_timeout = Duration::ZERO;
}

fn question(fh: &[u8]) -> [Op; 2] {
    [ops::putfh(fh), ops::getattr(&[CHANGE, SIZE, TIME_MODIFY])]
}

/// Asks for attributes while the holder replies once with these.
fn attributes(other: &mut Session, holder: &mut Holder, change: u64, size: u64) -> Attrs {
    let xid = other.send(0, false, &question(&holder.fh)).unwrap();
    holder.report(change, size);
    other.finish(0, xid).unwrap().all_ok().unwrap().attrs(1).unwrap().clone()
}

#[test]
fn another_client_sees_what_the_holder_of_a_delegation_reports() {
    let Some(fixture) = fixture(|_| {}) else { return };
    let mut holder = Holder::new(&fixture);
    let granted = holder.change;
    let mut other = nfs_state::client(&fixture, b"other");
    let unchanged = attributes(&mut other, &mut holder, granted, 3);
    assert_eq!(unchanged.number(CHANGE).unwrap(), granted);
    assert_eq!(unchanged.number(SIZE).unwrap(), 3);
    // A holder need not report another number at each question after its change.
    let first = attributes(&mut other, &mut holder, granted + 1, 777);
    let second = attributes(&mut other, &mut holder, granted + 1, 777);
    for found in [&first, &second] {
        assert_eq!(found.number(SIZE).unwrap(), 777);
        assert!(found.time(TIME_MODIFY).unwrap() > unchanged.time(TIME_MODIFY).unwrap());
    }
    let numbers = [&unchanged, &first, &second].map(|found| found.number(CHANGE).unwrap());
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");

    // The delegation was not recalled: the holder writes and returns it when it likes to.
    let write = ops::write(holder.state, 0, 2, &[7; 777]);
    holder.session.ok(&[ops::putfh(&holder.fh), write]).unwrap();
    holder.give_back();
    let reply = other.ok(&question(&holder.fh)).unwrap();
    let last = reply.attrs(1).unwrap();
    assert_eq!(last.number(SIZE).unwrap(), 777);
    assert!(last.number(CHANGE).unwrap() > numbers[2]);
}

#[test]
fn a_holder_that_lies_does_not_choose_the_change_attribute() {
    let Some(fixture) = fixture(|_| {}) else { return };
    let mut holder = Holder::new(&fixture);
    let granted = holder.change;
    let mut other = nfs_state::client(&fixture, b"other");
    let lied = attributes(&mut other, &mut holder, u64::MAX, 5);
    assert!(lied.number(CHANGE).unwrap() < u64::MAX / 2, "{lied:?}");
    let back = attributes(&mut other, &mut holder, 0, 5);
    assert!(back.number(CHANGE).unwrap() > lied.number(CHANGE).unwrap());
    // A size that no file can have is no reply, so the delegation is recalled.
    let xid = other.send(0, false, &question(&holder.fh)).unwrap();
    holder.report(granted + 1, u64::MAX);
    assert_eq!(other.finish(0, xid).unwrap().status, status::DELAY);
    let told = holder.session.callback().unwrap();
    assert!(matches!(&told[..], [Callback::Recall { .. }]), "{told:?}");
    holder.give_back();
    let reply = other.ok(&question(&holder.fh)).unwrap();
    assert_eq!(reply.attrs(1).unwrap().number(SIZE).unwrap(), 3);
}

#[test]
fn dafs_clients_and_clients_of_version_3_see_what_the_holder_reports() {
    let Some(fixture) = fixture(|_| {}) else { return };
    let mut holder = Holder::new(&fixture);
    let changed = holder.change + 1;
    std::thread::scope(|scope| {
        let size = scope.spawn(|| {
            let (_client, session) = fixture.connect(any());
            session.symlink_metadata("file").unwrap().size
        });
        holder.report(changed, 777);
        assert_eq!(size.join().unwrap(), 777);
    });
    let auth = Auth::user(0);
    let connect = || Connection::open(fixture.nfs()).unwrap();
    let root = Mount { connection: connect(), auth: auth.clone() }.mnt("/").unwrap().fh;
    let mut old = Nfs3 { connection: connect(), auth };
    let fh = old.lookup(&root, "file").unwrap().fh;
    std::thread::scope(|scope| {
        let size = scope.spawn(|| old.getattr(&fh).unwrap().size);
        holder.report(changed, 778);
        assert_eq!(size.join().unwrap(), 778);
    });
    holder.give_back();
    assert_eq!(old.getattr(&fh).unwrap().size, 3);
}

#[test]
fn a_holder_that_reports_nothing_is_asked_to_return_its_delegation() {
    let Some(fixture) = fixture(|_| {}) else { return };
    let mut holder = Holder::new(&fixture);
    let mut other = nfs_state::client(&fixture, b"other");
    let xid = other.send(0, false, &question(&holder.fh)).unwrap();
    // Its reply contains no attributes.
    let told = holder.session.callback().unwrap();
    assert!(matches!(&told[..], [Callback::GetAttr { .. }]), "{told:?}");
    assert_eq!(other.finish(0, xid).unwrap().status, status::DELAY);
    let told = holder.session.callback().unwrap();
    assert!(matches!(&told[..], [Callback::Recall { .. }]), "{told:?}");
    holder.give_back();
    other.ok(&question(&holder.fh)).unwrap();
}

#[test]
fn a_silent_holder_delays_only_those_who_ask_for_its_file() {
    let Some(fixture) = fixture(revoking_soon) else { return };
    let mut holder = Holder::new(&fixture);
    std::fs::write(fixture.local("another"), b"text").unwrap();
    let mut other = nfs_state::client(&fixture, b"other");
    let xid = other.send(0, false, &question(&holder.fh)).unwrap();
    let mut third = nfs_state::client(&fixture, b"third");
    let reply = third.ok(&[third.dir(), ops::lookup("another"), ops::getattr(&[SIZE])]).unwrap();
    assert_eq!(reply.attrs(2).unwrap().number(SIZE).unwrap(), 4);
    // The holder was asked but does not reply, so its delegation is recalled and then revoked.
    assert_eq!(other.finish(0, xid).unwrap().status, status::DELAY);
    other.ok(&question(&holder.fh)).unwrap();
    let read = [ops::putfh(&holder.fh), ops::read(holder.state, 0, 3)];
    holder.session.fails(&[status::DELEG_REVOKED], &read).unwrap();
}

#[test]
fn a_holder_without_a_connection_is_not_asked() {
    let Some(fixture) = fixture(revoking_soon) else { return };
    let mut holder = Holder::new(&fixture);
    holder.session.connection = holder.session.another_connection().unwrap();
    let mut other = nfs_state::client(&fixture, b"other");
    let mut delays = 0;
    await_that("the delegation is revoked", || match other.once(&question(&holder.fh)) {
        Ok(reply) if reply.status == status::DELAY => {
            delays += 1;
            false
        }
        Ok(reply) => reply.status == 0,
        Err(Fault::Hangs(_)) => panic!("the server asks nobody"),
        Err(fault) => panic!("{fault}"),
    });
    assert!(delays > 0, "the delegation was not recalled");
}

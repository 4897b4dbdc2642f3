//! Operators see the calls of NFS clients: single calls, their times, and the traffic of machines.

use dafs_nfs_suite::bench::Bench;
use dafs_nfs_suite::nfs4::ops;
use dafs_nfs_suite::rpc::Auth;
use dafs_nfs_suite::status;
use dafs_nfs_suite::suite::Protocol;
use dafs_server::{Followed, NfsProcedureNumbers, RequestNumber, RequestRecord};

use crate::fixture::{Fixture, await_that};
use crate::nfs::target;

/// Returns the records of a procedure up to now, and those after them once there are as many.
fn records_of(followed: &Followed, name: &str, count: usize) -> Vec<RequestRecord> {
    let mut found = Vec::new();
    await_that("the server reports the calls", || {
        while let Some(record) = followed.take().unwrap() {
            if record.name.to_string() == name {
                found.push(record);
            }
        }
        found.len() >= count
    });
    found
}

fn procedure(fixture: &Fixture, program: &str, name: &str) -> NfsProcedureNumbers {
    let found = &fixture.look().nfs.procedures;
    let row = found.iter().find(|row| (row.program, row.procedure) == (program, name));
    row.unwrap_or_else(|| panic!("{program} {name} was called")).clone()
}

#[test]
fn calls_of_version_3_are_reported_with_status_bytes_and_address() {
    if !dafs_tests::is_root() {
        return;
    }
    let fixture = Fixture::for_nfs();
    let mut bench = Bench::new(&target(&fixture), 1, Protocol::Nfs3).unwrap();
    let fh = bench.file_with_mode("f", 0o666).unwrap();
    let followed = fixture.follow();
    bench.c.write(&fh, 0, 2, &[7; 5000]).unwrap();
    bench.c.read(&fh, 1000, 1000).unwrap();
    let dir = bench.dir.clone();
    bench.c.lookup(&dir, "missing").unwrap_err();
    let [written] = &records_of(&followed, "nfs3 WRITE", 1)[..] else { panic!("one write") };
    assert!(written.status.is_ok(), "{written:?}");
    assert_eq!(written.bytes, 5000);
    assert_eq!(written.address, Some(fixture.nfs().ip()));
    assert!(matches!(written.number, RequestNumber::Nfs(_)), "{written:?}");

    let followed = fixture.follow();
    bench.c.read(&fh, 1000, 1000).unwrap();
    bench.c.lookup(&dir, "missing").unwrap_err();
    let [read] = &records_of(&followed, "nfs3 READ", 1)[..] else { panic!("one read") };
    assert_eq!((read.bytes, read.status.to_string()), (1000, "Ok".to_owned()));

    let followed = fixture.follow();
    bench.c.lookup(&dir, "missing").unwrap_err();
    let [lookup] = &records_of(&followed, "nfs3 LOOKUP", 1)[..] else { panic!("one lookup") };
    assert_eq!(lookup.status.to_string(), "NOENT");

    let reads = procedure(&fixture, "nfs3", "READ");
    assert_eq!((reads.calls, reads.failed, reads.bytes), (2, 0, 2000));
    assert_eq!(reads.times.count(), 2);
    assert_eq!(procedure(&fixture, "nfs3", "LOOKUP").failed, 3);
    await_that("the traffic of the machine is shown", || {
        let found = fixture.look();
        let [machine] = &found.nfs.clients[..] else { return false };
        machine.address == fixture.nfs().ip()
            && machine.read_bytes == 2000
            && machine.written_bytes == 5000
    });
}

#[test]
fn a_call_with_refused_credentials_is_reported_as_refused() {
    if !dafs_tests::is_root() {
        return;
    }
    let fixture = Fixture::for_nfs();
    let bench = Bench::new(&target(&fixture), 1, Protocol::Nfs3).unwrap();
    let followed = fixture.follow();
    let forged = Auth::Raw(77, Vec::new());
    bench.client(forged).unwrap().getattr(&bench.root).unwrap_err();
    let [refused] = &records_of(&followed, "nfs3 GETATTR", 1)[..] else { panic!("one call") };
    assert_eq!(refused.status.to_string(), "refused");
    assert!(!refused.status.is_ok());
}

#[test]
fn a_compound_is_reported_by_its_main_operation() {
    if !dafs_tests::is_root() {
        return;
    }
    let fixture = Fixture::for_nfs();
    let mut bench = Bench::new(&target(&fixture), 1, Protocol::Nfs41).unwrap();
    let mut session = bench.session().unwrap();
    let (state, fh) = session.opened("f").unwrap();
    let followed = fixture.follow();
    session.ok(&[ops::putfh(&fh), ops::write(state, 0, 2, &[7; 5000])]).unwrap();
    let [written] = &records_of(&followed, "nfs4 WRITE", 1)[..] else { panic!("one write") };
    assert_eq!((written.bytes, written.status.is_ok()), (5000, true));

    let followed = fixture.follow();
    session.ok(&[ops::putfh(&fh), ops::read(state, 0, 100), ops::read(state, 0, 50)]).unwrap();
    let [read] = &records_of(&followed, "nfs4 READ", 1)[..] else { panic!("one compound") };
    assert_eq!(read.bytes, 150);

    let followed = fixture.follow();
    session.fails(&[status::NOENT], &[ops::putrootfh(), ops::lookup("missing")]).unwrap();
    let [lookup] = &records_of(&followed, "nfs4 LOOKUP", 1)[..] else { panic!("one lookup") };
    assert_eq!(lookup.status.to_string(), "NOENT");
    let reads = procedure(&fixture, "nfs4", "READ");
    assert_eq!((reads.calls, reads.times.count(), reads.bytes), (2, 1, 150));
}

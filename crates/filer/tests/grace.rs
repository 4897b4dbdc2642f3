//! The grace period, in which clients reclaim their state after a restart.

use std::time::Duration;

use crate::common::*;
use dafs_filer::*;
use dafs_ops::Fault;
use dafs_types::*;

/// A server in its grace period; these clients had state when the previous one ended.
fn restarted(records: Vec<ClientRecord>) -> Bench {
    let mut bench = Bench::new(FilerConfig::default());
    bench.filer.begin_grace(records, Moment(0));
    bench
}

fn records(names: &[&str]) -> Vec<ClientRecord> {
    let record = |name: &&str| ClientRecord {
        name: name.as_bytes().into(),
        verifier: Verifier([1; 8]),
        principal: Principal::Anonymous,
        has_locks: false,
    };
    names.iter().map(record).collect()
}

fn new(file: u64) -> OpenArguments<'static> {
    open_for(file, "o", ShareAccess::Read)
}

fn taken_back(file: u64) -> OpenArguments<'static> {
    OpenArguments { is_reclaim: true, ..new(file) }
}

/// Returns the names of the clients on stable storage.
fn written_down(bench: &Bench) -> Vec<String> {
    let records = bench.filer.client_records().into_iter();
    records.map(|record| String::from_utf8(record.name.into_vec()).unwrap()).collect()
}

fn lapsed(bench: &mut Bench) -> Vec<String> {
    let (names, _) = bench.filer.take_expired_records();
    names.into_iter().map(|name| String::from_utf8(name.into_vec()).unwrap()).collect()
}

#[test]
fn a_client_that_reclaimed_only_in_part_is_not_expected_by_the_next_server() {
    let mut bench = restarted(records(&["a", "b", "c"]));
    let (a, b) = (bench.session("a"), bench.session("b"));
    bench.open(a, &taken_back(1)).unwrap();
    bench.open(b, &taken_back(1)).unwrap();
    assert_eq!(bench.open(b, &new(2)), Err(Fault::Grace));
    assert_eq!(written_down(&bench), ["a", "b", "c"]);
    bench.filer.on_tick(LATER);
    // Client b may have file 2 now; client a does not know that it lost it.
    bench.open(b, &new(2)).unwrap();
    assert_eq!(lapsed(&mut bench), ["a", "c"]);
    assert_eq!(written_down(&bench), ["b"]);
    let mut next = restarted(bench.filer.client_records());
    let a = next.session("a");
    assert_eq!(next.open(a, &taken_back(2)), Err(Fault::NoGrace));
}

#[test]
fn such_a_client_is_recorded_again_when_it_asks_for_new_state() {
    let mut bench = restarted(records(&["a", "b"]));
    let a = bench.session("a");
    bench.open(a, &taken_back(1)).unwrap();
    bench.filer.on_tick(LATER);
    assert_eq!(lapsed(&mut bench), ["a", "b"]);
    bench.open(a, &new(2)).unwrap();
    let record = bench.filer.client_to_record(a).unwrap();
    assert_eq!(*record.name, *b"a");
    assert_eq!(bench.filer.client_to_record(a), None, "the client is recorded once");
    assert_eq!(written_down(&bench), ["a"]);
}

#[test]
fn a_client_that_disconnects_while_reclaiming_stays_recorded() {
    let mut bench = restarted(records(&["a", "b"]));
    let a = bench.session("a");
    bench.lose(a);
    assert_eq!(lapsed(&mut bench), [""; 0]);
    let a = bench.session("a");
    bench.open(a, &taken_back(1)).unwrap();
    assert_eq!(bench.open(a, &new(2)), Err(Fault::Grace));
    bench.filer.on_tick(LATER);
    assert_eq!(lapsed(&mut bench), ["b"]);
    assert_eq!(written_down(&bench), ["a"]);
    // The record is removed with the client's state.
    bench.lose(a);
    assert_eq!(lapsed(&mut bench), ["a"]);
}

#[test]
fn clients_that_still_reclaim_get_at_most_one_lease_more() {
    let lease = FilerConfig::default().lease;
    let second = Duration::from_secs(1);
    let mut bench = restarted(records(&["a", "b"]));
    let a = bench.session("a");
    let mut now = Moment(0).after(lease.checked_sub(second).unwrap());
    for file in 1.. {
        let reclaimed = bench.filer.open(a, &taken_back(file), now);
        bench.filer.on_tick(now);
        if reclaimed == Err(Fault::NoGrace) {
            break;
        }
        reclaimed.unwrap();
        now = now.after(second);
    }
    let lasted = now.since(Moment(0));
    assert!(lasted > 2 * lease - 2 * second && lasted <= 2 * lease + second, "{lasted:?}");
    // A client that pauses gets no more time.
    let mut bench = restarted(records(&["a", "b"]));
    let a = bench.session("a");
    bench.filer.open(a, &taken_back(1), Moment(0).after(lease)).unwrap();
    bench.filer.on_tick(Moment(0).after(lease + 3 * second));
    assert!(!bench.filer.is_in_grace());
}

#[test]
fn another_principal_of_the_same_name_does_not_end_reclaiming() {
    let user = Principal::User("ada".into());
    let mut expected = records(&["a"]);
    expected[0].principal = user;
    let mut bench = restarted(expected);
    // The same name and verifier, but another principal.
    let other = bench.session("a");
    assert_eq!(bench.open(other, &new(1)), Err(Fault::Grace));
    assert_eq!(bench.open(other, &taken_back(1)), Err(Fault::NoGrace));
    assert!(bench.filer.is_in_grace());
}

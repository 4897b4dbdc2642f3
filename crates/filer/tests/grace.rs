//! The time in which clients take back what they held before a restart.

use crate::common::*;
use dafs_filer::*;
use dafs_ops::Fault;
use dafs_types::*;

/// A server that these clients had state with when it ended.
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

#[test]
fn somebody_else_by_the_name_does_not_say_what_is_wanted_back() {
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

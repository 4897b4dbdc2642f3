//! NFS clients: the conformance suite, run against a real server.
//!
//! `DAFS_NFS_FILTER` names a protocol or a part of a name, to run only some cases.

use dafs_nfs_suite::bench::Target;
use dafs_nfs_suite::cases;
use dafs_nfs_suite::hostile::{self, Load};
use dafs_nfs_suite::suite::{self, Protocol, Verdict};

use crate::fixture::Fixture;

/// Returns the exports of a fixture.
fn target(fixture: &Fixture) -> Target {
    Target {
        nfs: fixture.nfs(),
        mount: fixture.nfs(),
        path: "/export".into(),
        read_only: Some("/readonly".into()),
        squashed: Some("/squashed".into()),
        restart_seconds: 0,
    }
}

/// Runs the cases of some protocols. All must pass, or be known to fail.
fn run(protocols: &[Protocol]) {
    if !rustix::process::geteuid().is_root() {
        return dafs_tests::skip("only a server that runs as root can act as its clients' users");
    }
    let fixture = Fixture::for_nfs();
    let filter = std::env::var("DAFS_NFS_FILTER").unwrap_or_default();
    let mut cases = cases::all();
    cases.retain(|case| protocols.contains(&case.protocol) && case.matches(&filter));
    let counts = suite::run_all(&cases, &target(&fixture), |case, verdict| {
        fixture.goes_on();
        match verdict {
            Verdict::Passed => {}
            Verdict::Failed(text) => eprintln!("FAILED   {case}\n         {text}"),
            Verdict::Known(text, reason) => {
                eprintln!("known    {case}\n         {text} ({reason})")
            }
            Verdict::Skipped(reason) => eprintln!("left out {case}\n         {reason}"),
        }
    });
    let (passed, known, skipped) = (counts.passed, counts.known.len(), counts.skipped.len());
    eprintln!("{passed} passed, {known} are known to fail, {skipped} cannot run");
    assert!(counts.failed.is_empty(), "{} cases fail", counts.failed.len());
}

#[test]
fn nfs_3_and_the_protocols_below_it_are_as_their_standards_say() {
    run(&[Protocol::Rpc, Protocol::Mount3, Protocol::Nfs3]);
}

#[test]
fn nfs_4_1_is_as_its_standard_says() {
    run(&[Protocol::Nfs41]);
}

#[test]
fn nfs_4_2_is_as_its_standard_says() {
    run(&[Protocol::Nfs42]);
}

/// A short load. `nfs-hostile` of the suite sends a million messages and measures a server alone;
/// here the memory is that of server and clients together.
#[test]
fn hostile_nfs_clients_neither_stop_others_nor_fill_the_memory() {
    let fixture = Fixture::for_nfs();
    let load = Load {
        target: target(&fixture),
        process: std::process::id(),
        messages: 2000,
        seed: 1,
        growth_bytes_max: 256 << 20,
        // Not those that connect, send and disconnect at once: they make this test slow.
        only: [
            "half-records",
            "endless-fragments",
            "slow-readers",
            "long-compounds",
            "many-clients",
            "slot-games",
            "short-connections",
        ]
        .map(Into::into)
        .to_vec(),
    };
    let report = hostile::run(&load).unwrap();
    eprintln!("{report:?}");
    assert!(report.witnessed > 0 && report.actions > 0, "{report:?}");
}

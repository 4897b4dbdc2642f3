//! NFS clients: the conformance suite, run against a real server, and what depends on changes of
//! fences and access rules meanwhile.
//!
//! `DAFS_NFS_FILTER` names a protocol or a part of a name, to run only some cases.

use dafs_client::{Client, ClientConfig, FenceAccess, FenceObject, FenceUpdate, SessionOptions};
use dafs_nfs_suite::bench::Target;
use dafs_nfs_suite::cases;
use dafs_nfs_suite::fault::Fault;
use dafs_nfs_suite::hostile::{self, Load};
use dafs_nfs_suite::mount::Mount;
use dafs_nfs_suite::nfs3::{Nfs3, Sattr, Wcc};
use dafs_nfs_suite::rpc::{Auth, Connection};
use dafs_nfs_suite::status;
use dafs_nfs_suite::suite::{self, Protocol, Verdict};
use dafs_server::{AccessRules, NfsRules};

use crate::fixture::{Fixture, any, me};

/// Returns the exports of a fixture.
pub(crate) fn target(fixture: &Fixture) -> Target {
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
    if !dafs_tests::is_root() {
        return;
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

/// Returns a client of version 3 that is the user of this process, and the handle of an export.
fn client_of_version_3(fixture: &Fixture) -> (Nfs3, Vec<u8>) {
    let auth = Auth::user(me().uid());
    let connect = || Connection::open(fixture.nfs()).unwrap();
    let mounted = Mount { connection: connect(), auth: auth.clone() }.mnt("/export").unwrap();
    (Nfs3 { connection: connect(), auth }, mounted.fh)
}

#[test]
fn a_client_of_version_3_that_a_fence_keeps_out_sees_no_attributes() {
    let fixture = Fixture::for_nfs();
    let export = fixture.directory.path().join("export");
    std::fs::write(export.join("file"), "data").unwrap();
    std::fs::create_dir(export.join("directory")).unwrap();
    let (mut nfs, root) = client_of_version_3(&fixture);
    let [file, directory] = ["file", "directory"].map(|name| nfs.lookup(&root, name).unwrap().fh);

    let client = Client::new(ClientConfig::default()).unwrap();
    let session = client.connect_to(&fixture.address(any()), &SessionOptions::default()).unwrap();
    for path in ["/export/file", "/export/directory"] {
        let (object, access, update) =
            (FenceObject::File, FenceAccess::Allow, FenceUpdate::Overwrite);
        session.set_fence(path, object, access, update, &["another"]).unwrap();
    }
    let failures = [
        nfs.getattr(&file).err(),
        nfs.access(&file, 1).err(),
        nfs.read(&file, 0, 4).err(),
        nfs.write(&file, 0, 0, b"new!").err(),
        nfs.readlink(&file).err(),
        nfs.setattr(&file, Sattr::mode(0o600), None).err(),
        nfs.commit(&file, 0, 0).err(),
        nfs.lookup(&directory, "name").err(),
        nfs.readdir(&directory, 0, [0; 8], 4096).err(),
        nfs.mkdir(&directory, "name", Sattr::default()).err(),
    ];
    for failure in failures {
        let Some(Fault::Status { what, status, wcc }) = failure else {
            panic!("{failure:?}");
        };
        assert_eq!(status, status::ACCESS, "{what}");
        assert!(wcc.iter().all(|wcc| *wcc == Wcc::default()), "{what} shows {wcc:?}");
    }
}

#[test]
fn calls_in_progress_end_although_the_access_rules_are_replaced() {
    let fixture = Fixture::for_nfs();
    let (mut nfs, root) = client_of_version_3(&fixture);
    let rules = AccessRules { nfs: NfsRules::for_all(Vec::new(), true), ..AccessRules::default() };
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            let names = (0..200).map(|number| format!("directory-{number}"));
            names.filter_map(|name| nfs.mkdir(&root, name, Sattr::mode(0o700)).err()).collect()
        });
        while !made.is_finished() {
            let version = fixture.reloader.read(rules.clone(), None).unwrap();
            fixture.reloader.apply(version);
        }
        let failures: Vec<Fault> = made.join().unwrap();
        assert!(failures.is_empty(), "{failures:?}");
    });
}

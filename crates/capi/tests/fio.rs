//! Runs fio with the engine in `tools/fio`: verifies blocks, and checks error messages.
//!
//! If fio or its source is missing (`FIO_SOURCE`, or `target/fio` after `make fio-engine` has
//! fetched it), this is skipped. With `DAFS_REQUIRE_FACES=1` the source is fetched if possible.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock, PoisonError};

use dafs_tests::Required;

use crate::support::{Served, TRANSPORTS, Transport, has, library, repository, succeed};

/// Returns the source of the installed fio.
fn source() -> Option<&'static Path> {
    static SOURCE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let said = succeed(Command::new("fio").arg("--version"));
        let version = String::from_utf8_lossy(&said.stdout).trim().replace("fio-", "");
        let fetched = repository(&format!("target/fio/fio-{version}"));
        let source = std::env::var_os("FIO_SOURCE").map_or(fetched, PathBuf::from);
        if !source.join("fio.h").exists() && Required::Faces.is_set() {
            // Without a network, or a package of that version, there is no source.
            let _ = Command::new(repository("tools/fio/build")).arg("--source").status();
        }
        source.join("fio.h").exists().then_some(source)
    };
    let found = SOURCE.get_or_init(find).as_deref();
    if found.is_none() {
        dafs_tests::skip("the source of the installed fio is missing (FIO_SOURCE)");
    }
    found
}

/// Builds the engine for the installed fio.
fn engine(place: &Path) -> Option<PathBuf> {
    static BUILT: Mutex<()> = Mutex::new(());
    if !has("fio") {
        return None;
    }
    let source = source()?;
    // The first build configures the source.
    let _alone = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let engine = place.join("dafs.so");
    let mut build = Command::new(repository("tools/fio/build"));
    build.env("FIO_SOURCE", source).env("DAFS_LIBDIR", library());
    succeed(build.env("FIO_OUTPUT", &engine));
    Some(engine)
}

/// Runs fio with the engine, a server and more arguments.
fn fio(place: &Path, engine: &Path, url: Option<&str>, arguments: &str) -> Output {
    let mut fio = Command::new("fio");
    // fio leaves files in its directory.
    fio.current_dir(place).arg(format!("--ioengine=external:{}", engine.display()));
    fio.args(["--name=job", "--size=1m"]).args(arguments.split_whitespace());
    if let Some(url) = url {
        fio.arg(format!("--dafs_url={url}"));
    }
    fio.output().unwrap()
}

/// Runs fio, which must succeed and find every block as it was written.
fn works(place: &Path, engine: &Path, url: &str, arguments: &str) -> String {
    let output = fio(place, engine, Some(url), arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {said}{complained}");
    assert!(said.contains("err= 0"), "{arguments}: {said}");
    assert_eq!(complained, "", "{arguments}");
    said
}

#[test]
fn blocks_are_what_was_written() {
    let place = tempfile::tempdir().unwrap();
    let Some(engine) = engine(place.path()) else { return };
    for transport in TRANSPORTS {
        let served = Served::start(transport);
        let works = |arguments: &str| works(place.path(), &engine, &served.url, arguments);
        let checked = "--bs=4k --iodepth=32 --verify=crc32c";
        for way in ["write", "randwrite", "randrw"] {
            works(&format!("--filename={way} --rw={way} {checked}"));
            assert_eq!(std::fs::metadata(served.local(way)).unwrap().len(), 1 << 20);
        }
        // Read what another run has written.
        for way in ["read", "randread"] {
            works(&format!("--filename=write --rw={way} {checked}"));
        }
        works(&format!("--rw=randrw --numjobs=3 {checked}"));
        works(&format!("--rw=randrw --numjobs=3 --thread {checked}"));
        works(&format!("--rw=randrw --nrfiles=5 {checked}"));
        works(&format!("--rw=randrw --iodepth=200 --bs=512 {checked}"));
        let synced = works("--rw=write --bs=4k --iodepth=4 --fsync=8 --end_fsync=1");
        assert!(synced.contains("fsync/fdatasync"), "{synced}");
        works("--rw=write --bs=64k --fdatasync=4 --unlink=1 --filename=gone");
        assert!(!served.local("gone").exists());
        works("--rw=randread --bs=4k --iodepth=32 --time_based --runtime=1");
        works(
            "--rw=read --bs=1m --iodepth=2 --verify=crc32c --filename=write --verify_interval=4k",
        );
    }
}

#[test]
fn it_and_fios_own_engines_read_what_the_other_has_written() {
    let place = tempfile::tempdir().unwrap();
    let Some(engine) = engine(place.path()) else { return };
    let served = Served::start(Transport::SharedMemory);
    let checked = "--bs=4k --verify=crc32c";
    let local = |way: &str| {
        let mut fio = Command::new("fio");
        fio.current_dir(place.path()).args(["--ioengine=psync", "--name=job", "--size=1m", way]);
        fio.arg(format!("--filename={}", served.local("x").display()));
        succeed(fio.args(checked.split_whitespace()));
    };
    local("--rw=write");
    works(place.path(), &engine, &served.url, &format!("--rw=read --filename=x {checked}"));
    let anew = format!("--rw=randwrite --filename=x --randseed=7 --end_fsync=1 {checked}");
    works(place.path(), &engine, &served.url, &anew);
    local("--rw=read");
}

#[test]
fn errors_say_why() {
    let place = tempfile::tempdir().unwrap();
    let Some(engine) = engine(place.path()) else { return };
    let served = Served::start(Transport::Tcp);
    let fails = |url: Option<&str>, arguments: &str, why: &str| {
        let output = fio(place.path(), &engine, url, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{arguments}: {said}");
    };
    let url = Some(&*served.url);
    fails(None, "--rw=read", "dafs_url says where the files are");
    fails(Some("nonsense"), "--rw=read", "is not a DAFS URL");
    fails(Some("dafs://127.0.0.1:1/"), "--rw=read", "Connection refused");
    fails(url, "--rw=read --dafs_transport=pigeon", "dafs_transport");
    fails(url, "--rw=randtrim", "nothing to trim with");
    fails(url, "--rw=write --filename=none/x", "no such file or directory");
    std::fs::create_dir(served.local("directory")).unwrap();
    fails(url, "--rw=write --filename=directory", "is a directory");
}

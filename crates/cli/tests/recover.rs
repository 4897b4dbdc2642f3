//! Tests a few rounds of `dafs recover-test`, and a server that starts while the previous one is
//! ending.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::place::Place;
use crate::program::{await_that, dafs};

#[test]
fn a_server_that_is_killed_again_and_again_does_everything_once() {
    recover("1");
}

#[test]
fn a_server_with_several_reactors_that_is_killed_again_and_again_does_everything_once() {
    recover("3");
}

#[test]
fn a_server_that_is_killed_loses_and_repeats_nothing_of_nfs_clients_and_dafs_clients() {
    let (told, said) = run("5", &["--nfs", "--life", "2000"]);
    assert_eq!(said.matches("1024").count(), 1, "each server warns: {said}");
    let nfs = &told["nfs"];
    assert!(nfs["opens_taken_back"].as_u64().unwrap() > 0, "{told:#}");
    assert!(nfs["requests_repeated"].as_u64().unwrap() > 0, "{told:#}");
    let by_kind = told["by_kind"].as_object().unwrap();
    let nfs_done = by_kind.iter().filter(|(kind, _)| kind.starts_with("over NFS"));
    assert!(nfs_done.map(|(_, count)| count.as_u64().unwrap()).sum::<u64>() > 0, "{told:#}");
}

fn recover(reactors: &str) {
    let rounds = std::env::var("DAFS_RECOVER_ROUNDS").unwrap_or_else(|_| "25".into());
    let (told, _) = run(&rounds, &["--reactors", reactors]);
    assert_eq!(told["reactors"].as_u64().unwrap().to_string(), reactors, "{told:#}");
    assert!(told["opens_taken_back"].as_u64().unwrap() > 0, "{told:#}");
    for (kind, count) in told["by_kind"].as_object().unwrap() {
        assert!(count.as_u64().unwrap() > 0, "{kind}: {told:#}");
    }
}

/// Runs `dafs recover-test`. Returns what it reports, and what it says on standard error.
fn run(rounds: &str, more: &[&str]) -> (Value, String) {
    let place = tempfile::tempdir().unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_dafs"))
        .args(["recover-test", "--json", "--rounds", rounds])
        .args(more)
        .arg(place.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{said}");
    let told: Value = serde_json::from_slice(&ran.stdout).unwrap();
    eprintln!("{told:#}");
    assert_eq!(told["kills"].as_u64().unwrap().to_string(), rounds, "{told:#}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "it leaves nothing");
    (told, said)
}

/// Takes the lock of the only journal beneath a directory, in the name of a process.
fn lock_journal(state: &Path, process: u32) -> File {
    let journals = std::fs::read_dir(state.join("journals")).unwrap();
    let [journal] = &journals.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()[..] else {
        panic!("there is one journal")
    };
    let mut lock = File::create(journal.join("lock")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    writeln!(lock, "process {process}").unwrap();
    lock
}

fn serve(place: &Place) -> Command {
    let mut server = dafs();
    server.arg("serve").arg(place.path("export")).args(["--no-tcp", "--socket"]);
    server.arg(place.path("socket")).arg("--state").arg(place.path("state"));
    server.stdout(Stdio::piped()).stderr(Stdio::piped());
    server
}

#[test]
fn a_server_waits_for_the_last_one_to_end() {
    let mut place = Place::new();
    place.kill_server();
    // The process is not waited for, so it has ended but its id is not reused.
    let mut zombie = Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", zombie.id());
    await_that("it has ended", || std::fs::read_to_string(&stat).unwrap().contains(") Z "));
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    for process in [zombie.id(), gone.id()] {
        let lock = lock_journal(&place.path("state"), process);
        let mut server = serve(&place).spawn().unwrap();
        let mut said = String::new();
        let mut stderr = BufReader::new(server.stderr.take().unwrap());
        stderr.read_line(&mut said).unwrap();
        assert!(said.contains(&format!("process {process}, which is ending")), "{said}");
        drop(lock);
        let mut ready = String::new();
        let mut stdout = BufReader::new(server.stdout.take().unwrap());
        stdout.read_line(&mut ready).unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(ready.starts_with("ready: "), "{ready}");
        let rest: Vec<_> = stderr.lines().map(Result::unwrap).collect();
        assert!(!rest.iter().any(|line| line.contains("is ending")), "told twice: {rest:?}");
    }
    zombie.wait().unwrap();
}

#[test]
fn a_server_does_not_wait_for_one_that_lives_and_names_it() {
    let mut place = Place::new();
    let own = std::process::id();
    let refused = serve(&place).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("process {}", place.server_id())), "{said}");
    assert!(!said.contains("is ending"), "{said}");
    place.kill_server();
    let _lock = lock_journal(&place.path("state"), own);
    let refused = serve(&place).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("process {own}")) && !said.contains("is ending"), "{said}");
}

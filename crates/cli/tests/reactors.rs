//! Tests `dafs serve --reactors`: several threads serve connections, and clients see one server.

use std::path::Path;
use std::process::{Child, Stdio};

use dafs_client::{
    Client, ClientConfig, Location, LockKind, LockOptions, OpenOptions, Session, SessionOptions,
};
use serde_json::Value;

use crate::place::Place;
use crate::program::{await_that, dafs};
use crate::watched::Server;

#[test]
fn a_server_has_as_many_reactors_as_the_flag_or_the_file_says() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("dafs.toml");
    std::fs::write(&config, "reactors = 2\n").unwrap();
    let config = ["--config", config.to_str().unwrap()];
    // A flag takes precedence over the file.
    for (options, count) in [
        (vec!["--reactors", "3"], 3),
        (config.to_vec(), 2),
        ([&config[..], &["--reactors", "1"]].concat(), 1),
    ] {
        let place = tempfile::tempdir().unwrap();
        let server = Server::start(place.path(), "127.0.0.1:0", &options);
        let told = said(&["sessions", server.socket()]);
        assert!(told.contains(&format!("{count} reactors")), "{told}");
        let top = said(&["top", "--once", "--interval", "0.1", server.socket()]);
        assert!(top.contains(&format!("reactors {count}")), "{top}");
        let metrics = server.get("/metrics").body;
        assert!(metrics.contains(&format!("\ndafs_reactors {count}\n")), "{metrics}");
        assert!(metrics.contains("\ndafs_reactor_messages_total "), "{metrics}");
        // The first reactor may run on the main thread.
        let threads = reactors_of(server.process());
        assert!(threads == count || threads + 1 == count, "{threads} of {count} threads");
        server.stop();
    }
}

#[test]
fn trees_go_in_and_out_over_all_reactors_at_once() {
    let mut place = Place::new();
    place.restart_with(REACTORS);
    let tree = place.path("tree");
    make_tree(&tree);
    let copies = 2 * REACTORS;
    let url = |number: usize| match number % 2 {
        0 => place.url(&format!("copy-{number}")),
        _ => place.tcp_url(&format!("copy-{number}")),
    };
    let all = |copy: &dyn Fn(usize) -> Child| {
        let copies: Vec<_> = (0..copies).map(copy).collect();
        copies.into_iter().for_each(finish);
    };
    let cp = |from: &str, to: &str| dafs().args(["cp", "-r", from, to]).spawn().unwrap();
    all(&|number| cp(tree.to_str().unwrap(), &url(number)));
    // Data that was written through one connection is read through the next.
    let out = |number: usize| place.path(&format!("out-{number}"));
    all(&|number| cp(&url((number + 1) % copies), out(number).to_str().unwrap()));
    for number in 0..copies {
        let mut diff = std::process::Command::new("diff");
        diff.arg("-r").arg(&tree).arg(out(number)).stdout(Stdio::inherit());
        assert!(diff.status().unwrap().success());
    }
}

#[test]
fn clients_of_different_reactors_see_one_file_one_lock_and_one_list_of_sessions() {
    let mut place = Place::new();
    place.restart_with(REACTORS);
    let sessions: Vec<_> = (0..2 * REACTORS).map(|number| session(&place, number)).collect();
    let told = said(&["sessions", "--json", place.path("socket").to_str().unwrap()]);
    let found: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(found["reactors"]["count"].as_u64(), Some(REACTORS as u64), "{found:#}");
    assert_eq!(reactors_in(&found), [0, 0, 1, 1, 2, 2], "{found:#}");
    // Each session appends after the data of all others.
    for round in 0..3_u8 {
        for (number, (_, session)) in sessions.iter().enumerate() {
            let file = session.open("/log", &OpenOptions::write()).unwrap();
            file.append(&[round, number as u8]).unwrap();
            file.close().unwrap();
        }
    }
    let expected: Vec<u8> =
        (0..3).flat_map(|round| (0..sessions.len() as u8).flat_map(move |n| [round, n])).collect();
    for (_, session) in &sessions {
        let file = session.open("/log", &OpenOptions::read()).unwrap();
        let mut content = vec![0; expected.len() + 1];
        assert_eq!(file.read_at(&mut content, 0).unwrap(), expected.len());
        assert_eq!(content[..expected.len()], expected);
    }
}

#[test]
fn a_lock_goes_from_reactor_to_reactor() {
    let mut place = Place::new();
    place.restart_with(REACTORS);
    std::fs::write(place.path("export").join("counter"), 0_u64.to_le_bytes()).unwrap();
    let rounds = 50;
    std::thread::scope(|scope| {
        for number in 0..2 * REACTORS {
            let place = &place;
            scope.spawn(move || {
                let (_client, session) = session(place, number);
                let file = session.open("/counter", &OpenOptions::write()).unwrap();
                for _ in 0..rounds {
                    file.lock(LockKind::Exclusive, 0, 8, LockOptions::default(), None).unwrap();
                    let mut count = [0; 8];
                    assert_eq!(file.read_at(&mut count, 0).unwrap(), 8);
                    let count = u64::from_le_bytes(count) + 1;
                    file.write_at(&count.to_le_bytes(), 0).unwrap();
                    file.unlock(0, 8).unwrap();
                }
                file.close().unwrap();
            });
        }
    });
    let (_client, session) = session(&place, 0);
    let file = session.open("/counter", &OpenOptions::read()).unwrap();
    let mut count = [0; 8];
    file.read_at(&mut count, 0).unwrap();
    assert_eq!(u64::from_le_bytes(count), 2 * REACTORS as u64 * rounds);
    // A client that waits on one reactor for a lock held on another is notified of its release.
    let told = said(&["locks", place.path("socket").to_str().unwrap()]);
    assert!(!told.contains("counter"), "{told}");
}

#[test]
fn a_client_that_dies_frees_its_lock_for_whoever_waits_on_any_reactor() {
    let mut place = Place::new();
    place.restart_with(REACTORS);
    std::fs::write(place.path("export").join("file"), "").unwrap();
    let socket = place.path("socket");
    let mut lock = dafs();
    lock.args(["lock", &place.url("file"), "--", "sleep", "1000"]);
    let mut holder = lock.spawn().unwrap();
    let rows = |table: &str| -> usize {
        let told = said(&["locks", "--json", socket.to_str().unwrap()]);
        let found: Value = serde_json::from_str(&told).unwrap();
        found[table].as_array().unwrap().len()
    };
    await_that("the lock is held", || rows("locks") == 1);
    let wait = |number: usize| {
        let url = if number.is_multiple_of(2) { place.tcp_url("file") } else { place.url("file") };
        dafs().args(["lock", &url, "--", "true"]).spawn().unwrap()
    };
    let waiters: Vec<_> = (0..2 * REACTORS).map(wait).collect();
    await_that("all others wait", || rows("waiters") == waiters.len());
    holder.kill().unwrap();
    holder.wait().unwrap();
    waiters.into_iter().for_each(finish);
}

#[test]
fn clients_with_a_second_connection_for_delegations_are_spread_all_the_same() {
    let mut place = Place::new();
    place.restart_with(2);
    std::fs::write(place.path("export").join("file"), "some").unwrap();
    let client = |number: usize| {
        let client = Client::new(ClientConfig::default()).unwrap();
        let url = if number.is_multiple_of(2) { place.url("") } else { place.tcp_url("") };
        let options = SessionOptions::default().delegations(true);
        let session = client.connect(&Location::parse(url).unwrap(), &options).unwrap();
        let file = session.open("/file", &OpenOptions::read()).unwrap();
        assert_eq!(file.read_at(&mut [0; 5], 0).unwrap(), 4);
        (client, session, file)
    };
    let clients: Vec<_> = (0..4).map(client).collect();
    let told = said(&["sessions", "--json", place.path("socket").to_str().unwrap()]);
    let found: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(found["connections"].as_u64(), Some(2 * clients.len() as u64), "{found:#}");
    assert_eq!(reactors_in(&found), [0, 0, 1, 1], "{found:#}");
}

/// Starts a session over shared memory or TCP.
fn session(place: &Place, number: usize) -> (Client, Session) {
    let client = Client::new(ClientConfig::default()).unwrap();
    let url = if number.is_multiple_of(2) { place.url("") } else { place.tcp_url("") };
    let location = Location::parse(url).unwrap();
    let session = client.connect(&location, &SessionOptions::default()).unwrap();
    (client, session)
}

/// Returns the reactors of all sessions, in order.
fn reactors_in(found: &Value) -> Vec<u64> {
    let sessions = found["sessions"].as_array().unwrap().iter();
    let mut reactors: Vec<_> =
        sessions.map(|session| session["reactor"].as_u64().unwrap()).collect();
    reactors.sort_unstable();
    reactors
}

fn make_tree(tree: &Path) {
    for directory in 0..6 {
        let directory = tree.join(format!("d{directory}/below"));
        std::fs::create_dir_all(&directory).unwrap();
        for file in 0..25_usize {
            let length = file * file * 331;
            let content: Vec<u8> = (0..length).map(|at| (at * 7 + file) as u8).collect();
            std::fs::write(directory.join(format!("f{file}")), content).unwrap();
        }
    }
}

/// Returns the number of a process's threads that are named as reactors.
fn reactors_of(process: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap()
    };
    tasks.map(name).filter(|name| name.starts_with("dafs-reactor-")).count()
}

fn finish(mut child: Child) {
    assert!(child.wait().unwrap().success());
}

fn said(arguments: &[&str]) -> String {
    let output = dafs().args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const REACTORS: usize = 3;

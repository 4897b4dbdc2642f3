//! Calls of NFSv3 that are sent again after the server was killed.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;

use dafs_nfs_suite::mount::Mount;
use dafs_nfs_suite::nfs3::{How, Nfs3, Sattr, at};
use dafs_nfs_suite::rpc::{Auth, Call, Connection, results_of};
use dafs_nfs_suite::xdr::{Get, Put};
use dafs_server::Defect;

use crate::fixture::me;
use crate::reconnect::child::ServerProcess;

const CREATE: u32 = 8;
const MKDIR: u32 = 9;
const SYMLINK: u32 = 10;
const REMOVE: u32 = 12;
const RMDIR: u32 = 13;
const RENAME: u32 = 14;
const LINK: u32 = 15;
const SETATTR: u32 = 2;

/// The number of the first call; the calls of a test have consecutive numbers.
const XID: u32 = 0x5000_0000;

pub(super) fn user() -> Auth {
    Auth::user(me().uid())
}

pub(super) fn connect(server: SocketAddr) -> Nfs3 {
    Nfs3 { connection: Connection::open(server).unwrap(), auth: user() }
}

/// Returns the handle of the export.
pub(super) fn root(server: SocketAddr) -> Vec<u8> {
    let connection = Connection::open(server).unwrap();
    Mount { connection, auth: user() }.mnt("/").unwrap().fh
}

/// Sends a call with a number, and returns the bytes of the results.
fn send(client: &mut Nfs3, call: &Call, xid: u32) -> Vec<u8> {
    client.connection.send_record(&call.encode(xid)).unwrap();
    results_of(&client.connection.reply(xid).unwrap()).unwrap().to_vec()
}

fn status(results: &[u8]) -> u32 {
    Get(results).u32().unwrap()
}

/// Returns the handle in the results of a creation. Other results do not begin with a handle.
fn made(results: &[u8]) -> Option<Vec<u8>> {
    let mut get = Get(results);
    (get.u32().ok()?, get.u32().ok()?, get.u32().ok()?).eq(&(0, 1, 64)).then_some(())?;
    get.raw(64).ok().map(<[u8]>::to_vec)
}

/// Makes the objects that the calls need, and returns one call of each procedure that must be
/// executed once.
fn calls(client: &mut Nfs3, root: &[u8]) -> Vec<Call> {
    let unchecked = || How::Unchecked(Sattr::mode(0o644));
    for name in ["removed", "renamed", "linked", "changed"] {
        client.create(root, name, unchecked()).unwrap();
    }
    client.mkdir(root, "old", Sattr::mode(0o755)).unwrap();
    let mut handle = |name| client.lookup(root, name).unwrap().fh;
    let (linked, changed) = (handle("linked"), handle("changed"));
    let (seconds, nanoseconds) = client.getattr(&changed).unwrap().ctime;
    let guarded = Put::new().opaque(&changed);
    let guarded = Sattr::mode(0o600).put(guarded).u32(1).u32(seconds).u32(nanoseconds);
    [
        (CREATE, Sattr::mode(0o644).put(at(root, "made").u32(1))),
        (MKDIR, Sattr::mode(0o755).put(at(root, "new"))),
        (SYMLINK, Sattr::default().put(at(root, "link")).opaque("target")),
        (REMOVE, at(root, "removed")),
        (RMDIR, at(root, "old")),
        (RENAME, at(root, "renamed").opaque(root).opaque("to")),
        (LINK, Put::new().opaque(&linked).opaque(root).opaque("second")),
        (SETATTR, guarded),
    ]
    .map(|(procedure, arguments)| client.prepare(procedure, arguments))
    .into()
}

/// Checks that each call was executed once.
fn check_effects(server: &ServerProcess) {
    for (name, is_there) in [
        ("made", true),
        ("new", true),
        // The symbolic link leads nowhere.
        ("target", false),
        ("removed", false),
        ("old", false),
        ("renamed", false),
        ("to", true),
        ("second", true),
    ] {
        assert_eq!(server.local(name).exists(), is_there, "{name}");
    }
    assert_eq!(std::fs::read_link(server.local("link")).unwrap().to_str(), Some("target"));
    assert_eq!(server.local("second").metadata().unwrap().nlink(), 2);
    assert_eq!(server.local("changed").metadata().unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_call_repeated_after_a_kill_gets_its_first_reply() {
    let mut server = ServerProcess::start_for_nfs();
    let root = root(server.nfs());
    let mut client = connect(server.nfs());
    let calls = calls(&mut client, &root);
    let numbered = || calls.iter().zip(XID..);
    let first: Vec<_> = numbered().map(|(call, xid)| send(&mut client, call, xid)).collect();
    assert!(first.iter().all(|results| status(results) == 0), "{first:?}");
    check_effects(&server);
    for _ in 0..2 {
        server.kill();
        server.revive();
        let mut client = connect(server.nfs());
        for ((call, xid), first) in numbered().zip(&first) {
            let again = send(&mut client, call, xid);
            // If the server was killed before its last records were durable, it has made the reply
            // anew from the result. The attributes of directories may differ then.
            let shown = if made(first).is_some() { made(&again) } else { None };
            assert_eq!((status(&again), shown), (0, made(first)), "procedure {}", call.procedure);
        }
        check_effects(&server);
    }
    // The same call with another number is another call.
    let mut client = connect(server.nfs());
    let again: Vec<_> =
        calls.iter().zip(XID + 100..).map(|(call, xid)| send(&mut client, call, xid)).collect();
    assert!(again.iter().all(|results| status(results) != 0), "{again:?}");
}

/// Sends one call to a server that dies from a defect before it replies. Then sends the call again
/// to the next server, which must reply with success.
fn dies(defect: Defect, number: usize, was_executed: bool) {
    let mut server = ServerProcess::start_for_nfs();
    let root = root(server.nfs());
    let calls = calls(&mut connect(server.nfs()), &root);
    server.kill();
    server.revive_with(defect);
    let mut client = connect(server.nfs());
    client.connection.send_record(&calls[number].encode(XID)).unwrap();
    server.await_death();
    let name = ["made", "new", "", "removed", "old", "renamed", "second"].get(number);
    let creates = matches!(number, 0 | 1 | 6);
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        assert_eq!(server.local(name).exists(), creates == was_executed, "{name}");
    }
    server.revive();
    let mut replies = Vec::new();
    for _ in 0..2 {
        let mut client = connect(server.nfs());
        replies.push(send(&mut client, &calls[number], XID));
        assert_eq!(status(&replies[0]), 0, "procedure {}", calls[number].procedure);
    }
    assert_eq!(replies[0], replies[1]);
    let mut client = connect(server.nfs());
    for (other, xid) in (0..calls.len()).filter(|other| *other != number).zip(XID + 1..) {
        assert_eq!(status(&send(&mut client, &calls[other], xid)), 0, "call {other}");
    }
    check_effects(&server);
    if number == 0 {
        let mut get = Get(&replies[0][4..]);
        let handle = get.option(Get::opaque).unwrap().unwrap();
        assert_eq!(client.lookup(&root, "made").unwrap().fh, handle);
    }
}

#[test]
fn a_call_that_was_executed_before_the_kill_is_not_executed_again() {
    for number in 0..8 {
        dies(Defect::DieBeforeOutcome, number, true);
    }
}

#[test]
fn a_call_that_was_not_executed_before_the_kill_is_executed_when_it_comes_again() {
    for number in 0..8 {
        dies(Defect::DieAfterIntent, number, false);
    }
}

#[test]
fn without_the_table_of_calls_a_repeat_would_be_executed_again() {
    let mut server = ServerProcess::start_for_nfs();
    let root = root(server.nfs());
    let mut client = connect(server.nfs());
    let calls = calls(&mut client, &root);
    assert_eq!(status(&send(&mut client, &calls[3], XID)), 0);
    server.kill();
    server.revive_with(Defect::ExecuteRepeats);
    let mut client = connect(server.nfs());
    assert_ne!(status(&send(&mut client, &calls[3], XID)), 0);
}

#[test]
fn data_that_was_lost_is_noticed_by_the_verifier_and_written_again() {
    let mut server = ServerProcess::start_for_nfs();
    let root = root(server.nfs());
    let mut client = connect(server.nfs());
    let made = client.create(&root, "file", How::Unchecked(Sattr::mode(0o644))).unwrap();
    let file = made.fh.unwrap();
    let first = client.write(&file, 0, 0, b"data").unwrap().verifier;
    server.kill();
    server.revive();
    let mut client = connect(server.nfs());
    let (_, second) = client.commit(&file, 0, 0).unwrap();
    assert_ne!(first, second);
    client.write(&file, 0, 0, b"data").unwrap();
    assert_eq!(client.commit(&file, 0, 0).unwrap().1, second);
    assert_eq!(std::fs::read(server.local("file")).unwrap(), b"data");
}

#[test]
fn many_calls_at_once_are_each_executed_once() {
    let mut server = ServerProcess::start_for_nfs();
    let root = root(server.nfs());
    let mut client = connect(server.nfs());
    let name = |number| format!("file-{number}");
    let calls: Vec<_> = (0..200)
        .map(|number| {
            client.prepare(CREATE, Sattr::mode(0o644).put(at(&root, name(number)).u32(1)))
        })
        .collect();
    for (call, xid) in calls.iter().zip(XID..) {
        client.connection.send_record(&call.encode(xid)).unwrap();
    }
    // The server is killed in the middle of the calls.
    client.connection.reply(XID + 50).unwrap();
    server.kill();
    server.revive();
    let mut client = connect(server.nfs());
    for (call, xid) in calls.iter().zip(XID..) {
        client.connection.send_record(&call.encode(xid)).unwrap();
    }
    for (number, xid) in (0..200).zip(XID..) {
        let reply = client.connection.reply(xid).unwrap();
        assert_eq!(status(results_of(&reply).unwrap()), 0, "file {number}");
        assert!(server.local(&name(number)).exists());
    }
}

//! Persistent sessions of NFSv4.1: requests that are sent again after the server was killed are
//! executed once.

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

use dafs_nfs_suite::nfs4::ops::{self, Claim, How, Op};
use dafs_nfs_suite::nfs4::session::{Session, Wish};
use dafs_nfs_suite::nfs4::{Body, Reply, Set, StateId, call_of, decode, run};
use dafs_nfs_suite::rpc::{Connection, results_of};
use dafs_nfs_suite::status::{
    BAD_STATEID, BADSESSION, EXIST, GRACE, NOENT, NOT_SAME, OK, SEQ_FALSE_RETRY, STALE_STATEID,
    name,
};
use dafs_server::Defect;

use super::calls::{connect, root, user};
use crate::reconnect::child::ServerProcess;

const CLIENTS: usize = 4;
/// The number of times that each client makes, renames and removes directories.
const ROUNDS: usize = 40;
const KILLS: usize = 12;

const PERSIST: u32 = 1;
const RESTART_RECLAIM_NEEDED: u32 = 0x100;
const ACCESS: u32 = ops::share::BOTH | ops::share::WANT_NONE;
/// The number of the OPEN in the list of requests.
const OPEN: usize = 7;

/// Creates a persistent session.
fn start(server: &ServerProcess, owner: &str) -> Session {
    let wish = Wish { flags: PERSIST, ..Wish::new(owner.as_bytes(), user(), 1) };
    let session = Session::start(server.nfs(), &wish).unwrap();
    assert_eq!(session.created.flags, PERSIST);
    session
}

/// Connects to the server again after it was killed.
fn reconnect(session: &mut Session, server: &ServerProcess) {
    session.connection = Connection::open(server.nfs()).unwrap();
}

/// Sends the first request of a slot. Returns the number of the call.
fn send(session: &mut Session, slot: u32, ops: &[Op]) -> u32 {
    let mut all = vec![ops::sequence(session.created.id, 1, slot, slot, true)];
    all.extend_from_slice(ops);
    session.connection.send(&call_of(&session.auth, b"", 1, &all)).unwrap()
}

/// Sends the first request of a slot. Returns the bytes of the results.
fn call(session: &mut Session, slot: u32, ops: &[Op]) -> Vec<u8> {
    let xid = send(session, slot, ops);
    results_of(&session.connection.reply(xid).unwrap()).unwrap().to_vec()
}

fn reply(results: &[u8]) -> Reply {
    decode(results).unwrap()
}

fn status(results: &[u8]) -> u32 {
    reply(results).status
}

/// Returns the flags in the result of SEQUENCE.
fn flags(reply: &Reply) -> u32 {
    match reply.body(0).unwrap() {
        Body::Sequence(sequence) => sequence.flags,
        other => panic!("{other:?}"),
    }
}

fn open(name: &str) -> Op {
    let how = How::Guarded(Set::new().mode(0o644));
    ops::open(b"owner", ACCESS, 0, &how, &Claim::Name(name.into()))
}

/// Makes the objects that the requests need, and returns requests that must be executed once. A
/// second execution of any of them would fail.
fn requests(server: &ServerProcess, root: &[u8]) -> Vec<Vec<Op>> {
    for name in ["removed", "renamed", "linked", "changed"] {
        std::fs::write(server.local(name), "").unwrap();
        let mode = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(server.local(name), mode).unwrap();
    }
    std::fs::create_dir(server.local("old")).unwrap();
    let mut client = connect(server.nfs());
    let mut handle = |name| client.lookup(root, name).unwrap().fh;
    let (linked, changed) = (ops::putfh(&handle("linked")), ops::putfh(&handle("changed")));
    let directory = || ops::putfh(root);
    let mode = |mode| Set::new().mode(mode);
    vec![
        vec![directory(), ops::mkdir("new"), ops::getfh()],
        vec![directory(), ops::symlink("link", "target"), ops::getfh()],
        vec![directory(), ops::remove("removed")],
        vec![directory(), ops::remove("old")],
        vec![directory(), ops::savefh(), directory(), ops::rename("renamed", "to")],
        vec![linked, ops::savefh(), directory(), ops::link("second")],
        vec![changed, ops::verify(&mode(0o644)), ops::setattr(StateId::ANONYMOUS, &mode(0o600))],
        vec![directory(), open("made"), ops::getfh()],
    ]
}

/// Waits until the replies to all requests so far are durable. This is so when another request is
/// executed, because its intent follows them in the journal.
fn settle(session: &mut Session, root: &[u8]) {
    let last = session.created.fore.requests - 1;
    assert_eq!(status(&call(session, last, &[ops::putfh(root), ops::mkdir("last")])), OK);
}

/// Checks that each request was executed.
fn check_effects(server: &ServerProcess) {
    for (name, is_there) in [
        ("new", true),
        ("removed", false),
        ("old", false),
        ("renamed", false),
        ("to", true),
        ("second", true),
        ("made", true),
    ] {
        assert_eq!(server.local(name).exists(), is_there, "{name}");
    }
    assert_eq!(std::fs::read_link(server.local("link")).unwrap().to_str(), Some("target"));
    assert_eq!(server.local("second").metadata().unwrap().nlink(), 2);
    assert_eq!(server.local("changed").metadata().unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_request_repeated_after_a_kill_gets_its_first_reply() {
    let mut server = ServerProcess::start_for_nfs();
    let root = root(server.nfs());
    let mut session = start(&server, "client");
    let requests = requests(&server, &root);
    let all = |session: &mut Session| -> Vec<Vec<u8>> {
        (1..).zip(&requests).map(|(slot, ops)| call(session, slot, ops)).collect()
    };
    let first = all(&mut session);
    assert!(first.iter().all(|results| status(results) == OK), "{first:?}");
    check_effects(&server);
    settle(&mut session, &root);
    for _ in 0..2 {
        server.kill();
        server.revive();
        reconnect(&mut session, &server);
        assert_eq!(all(&mut session), first);
        check_effects(&server);
    }
    // The same requests with the next number are other requests.
    session.ok(&[ops::reclaim_complete(false)]).unwrap();
    for (slot, ops) in (1..).zip(&requests) {
        let slot = slot as u32;
        session.next[slot as usize] = 2;
        let xid = session.send(slot, true, ops).unwrap();
        let status = session.finish(slot, xid).unwrap().status;
        assert!(matches!(status, EXIST | NOENT | NOT_SAME), "{}", name(status));
    }
}

/// Sends one request to a server that dies from a defect before it replies. Then sends the request
/// again to the next server, which must reply with success.
fn dies(defect: Defect, number: usize, was_executed: bool) {
    let mut server = ServerProcess::start_for_nfs();
    let root = root(server.nfs());
    let mut session = start(&server, "client");
    let requests = requests(&server, &root);
    server.kill();
    server.revive_with(defect);
    reconnect(&mut session, &server);
    session.ok(&[ops::reclaim_complete(false)]).unwrap();
    send(&mut session, 1, &requests[number]);
    server.await_death();
    let name = ["new", "", "removed", "old", "renamed", "second", "", "made"][number];
    let creates = matches!(number, 0 | 5 | OPEN);
    if !name.is_empty() {
        assert_eq!(server.local(name).exists(), creates == was_executed, "{name}");
    }
    server.revive();
    reconnect(&mut session, &server);
    let other = [ops::putfh(&root), ops::remove("elsewhere")];
    // The journal has the state of the request, so another one in its place is noticed.
    assert_eq!(status(&call(&mut session, 1, &other)), SEQ_FALSE_RETRY);
    if !was_executed {
        session.ok(&[ops::reclaim_complete(false)]).unwrap();
    }
    let first = call(&mut session, 1, &requests[number]);
    assert_eq!(status(&first), OK, "request {number}");
    assert_eq!(call(&mut session, 1, &requests[number]), first);
    assert_eq!(status(&call(&mut session, 1, &other)), SEQ_FALSE_RETRY);
    if was_executed {
        if number == OPEN {
            reclaim(&mut session, &reply(&first));
        }
        session.ok(&[ops::reclaim_complete(false)]).unwrap();
    }
    for (slot, other) in (2..).zip((0..requests.len()).filter(|other| *other != number)) {
        assert_eq!(status(&call(&mut session, slot, &requests[other])), OK, "request {other}");
    }
    check_effects(&server);
}

/// Reclaims the open that a request has made before a restart. Returns its new state id.
fn reclaim(session: &mut Session, first: &Reply) -> StateId {
    let (state, file) = (first.state(2).unwrap(), first.fh(3).unwrap());
    let write = ops::write(state, 0, 2, b"data");
    let refused = session.once(&[ops::putfh(&file), write]).unwrap();
    assert_eq!(refused.status, STALE_STATEID);
    let again = ops::open(b"owner", ACCESS, 0, &How::Open, &Claim::Previous(0));
    session.ok(&[ops::putfh(&file), again]).unwrap().state(1).unwrap()
}

#[test]
fn a_request_that_was_executed_before_the_kill_is_not_executed_again() {
    for number in 0..=OPEN {
        dies(Defect::DieBeforeOutcome, number, true);
    }
}

#[test]
fn a_request_that_was_not_executed_before_the_kill_is_executed_when_it_comes_again() {
    for number in 0..=OPEN {
        dies(Defect::DieAfterIntent, number, false);
    }
}

#[test]
fn a_request_that_was_cut_off_is_taken_up_where_it_stopped() {
    let mut server = ServerProcess::start_for_nfs();
    let root = root(server.nfs());
    let mut session = start(&server, "client");
    for name in ["a", "b"] {
        std::fs::write(server.local(name), "").unwrap();
    }
    server.kill();
    server.revive_with(Defect::DieBeforeOutcome);
    reconnect(&mut session, &server);
    let request = [
        ops::putfh(&root),
        ops::getfh(),
        ops::remove("a"),
        ops::remove("b"),
        ops::mkdir("c"),
        ops::getfh(),
        ops::remove("nothing"),
    ];
    send(&mut session, 1, &request);
    server.await_death();
    let is_there = |server: &ServerProcess| ["a", "b", "c"].map(|name| server.local(name).exists());
    assert_eq!(is_there(&server), [false, true, false]);
    let mut last = None;
    for _ in 0..2 {
        server.revive();
        reconnect(&mut session, &server);
        let results = call(&mut session, 1, &request);
        let reply = reply(&results);
        let statuses: Vec<u32> = reply.results.iter().map(|result| result.status).collect();
        assert_eq!(statuses, [OK, OK, OK, OK, OK, OK, OK, NOENT]);
        assert_eq!(reply.fh(2).unwrap(), root);
        assert_eq!(is_there(&server), [false, false, true]);
        assert_eq!(call(&mut session, 1, &request), results);
        last.get_or_insert(results.clone());
        assert_eq!(last, Some(results), "the reply has changed in a restart");
        server.kill();
    }
    server.revive();
}

#[test]
fn a_session_goes_on_and_its_client_reclaims_its_opens() {
    let mut server = ServerProcess::start_for_nfs();
    let root = root(server.nfs());
    let mut session = start(&server, "client");
    let made = call(&mut session, 1, &[ops::putfh(&root), open("file"), ops::getfh()]);
    assert_eq!(status(&made), OK);
    assert_eq!(flags(&reply(&made)), 0);
    settle(&mut session, &root);
    server.kill();
    server.revive();
    reconnect(&mut session, &server);
    let attributes = [ops::putfh(&root), ops::getattr(&[])];
    let flags_now = |session: &mut Session| {
        session.ok(&attributes).unwrap();
        session.last.unwrap().flags
    };
    assert_eq!(flags_now(&mut session), RESTART_RECLAIM_NEEDED);
    // The reply of before names an open that has ended with the server.
    assert_eq!(call(&mut session, 1, &[ops::putfh(&root), open("file"), ops::getfh()]), made);
    let new = [ops::putfh(&root), open("other")];
    assert_eq!(session.once(&new).unwrap().status, GRACE);
    let state = reclaim(&mut session, &reply(&made));
    assert_eq!(flags_now(&mut session), RESTART_RECLAIM_NEEDED);
    session.ok(&[ops::reclaim_complete(false)]).unwrap();
    assert_eq!(flags_now(&mut session), 0);
    let file = reply(&made).fh(3).unwrap();
    session.ok(&[ops::putfh(&file), ops::write(state, 0, 2, b"data")]).unwrap();
    session.ok(&new).unwrap();
}

/// A client that gets the first reply to an OPEN late cannot have reclaimed that open. It would wait
/// forever if the server said STALE_STATEID, which means that there is something to reclaim.
#[test]
fn an_open_that_was_not_reclaimed_is_no_longer_known_after_the_reclaims() {
    let mut server = ServerProcess::start_for_nfs();
    let root = root(server.nfs());
    let mut session = start(&server, "client");
    let made = call(&mut session, 1, &[ops::putfh(&root), open("file"), ops::getfh()]);
    settle(&mut session, &root);
    server.kill();
    server.revive();
    reconnect(&mut session, &server);
    assert_eq!(call(&mut session, 1, &[ops::putfh(&root), open("file"), ops::getfh()]), made);
    let (state, file) = (reply(&made).state(2).unwrap(), reply(&made).fh(3).unwrap());
    let write = [ops::putfh(&file), ops::write(state, 0, 2, b"data")];
    session.fails(&[STALE_STATEID], &write).unwrap();
    session.ok(&[ops::reclaim_complete(false)]).unwrap();
    session.fails(&[BAD_STATEID], &write).unwrap();
    session.fails(&[BAD_STATEID], &[ops::free_stateid(state)]).unwrap();
    let again = ops::open(b"owner", ACCESS, 0, &How::Open, &Claim::Fh);
    let state = session.ok(&[ops::putfh(&file), again]).unwrap().state(1).unwrap();
    session.ok(&[ops::putfh(&file), ops::write(state, 0, 2, b"data")]).unwrap();
}

#[test]
fn a_session_that_was_destroyed_stays_destroyed() {
    let mut server = ServerProcess::start_for_nfs();
    let mut sessions = [start(&server, "one"), start(&server, "two")];
    for session in &mut sessions {
        let destroy = ops::destroy_session(session.created.id);
        run(&mut session.connection, &session.auth, 1, &[destroy]).unwrap().all_ok().unwrap();
    }
    let mut third = start(&server, "three");
    server.kill();
    server.revive();
    for session in sessions.iter_mut().chain([&mut third]) {
        reconnect(session, &server);
    }
    for session in &mut sessions {
        assert_eq!(status(&call(session, 0, &[ops::putrootfh()])), BADSESSION);
    }
    third.ok(&[ops::putrootfh()]).unwrap();
}

#[test]
fn many_requests_at_once_are_each_executed_once() {
    let mut server = ServerProcess::start_for_nfs();
    let root = root(server.nfs());
    let mut session = start(&server, "client");
    let slots = 0..session.created.fore.requests;
    let name = |slot| format!("directory-{slot}");
    let make = |slot| [ops::putfh(&root), ops::mkdir(name(slot)), ops::getfh()];
    let slots = slots.skip(1);
    let calls: Vec<u32> = slots.clone().map(|slot| send(&mut session, slot, &make(slot))).collect();
    // The server is killed in the middle of the requests.
    session.connection.reply(calls[calls.len() / 2]).unwrap();
    server.kill();
    server.revive();
    reconnect(&mut session, &server);
    for slot in slots {
        let again = call(&mut session, slot, &make(slot));
        assert_eq!(status(&again), OK, "slot {slot}");
        assert!(server.local(&name(slot)).is_dir());
    }
}

/// A client that sends one request after the other, and sends each one again until it gets a reply.
struct Stubborn {
    session: Session,
    server: SocketAddr,
    number: u32,
    /// The number of starts of the server when the client connected.
    life: usize,
    lives: Arc<(Mutex<usize>, Condvar)>,
    done: Sender<()>,
}

impl Stubborn {
    fn request(&mut self, ops: &[Op]) {
        let Session { created, auth, .. } = &self.session;
        let mut all = vec![ops::sequence(created.id, self.number, 1, 1, true)];
        all.extend_from_slice(ops);
        let call = call_of(auth, b"", 1, &all);
        let reply = loop {
            let connection = &mut self.session.connection;
            let reply = connection.send(&call).and_then(|xid| connection.reply(xid));
            match reply {
                Ok(reply) => break decode(results_of(&reply).unwrap()).unwrap(),
                Err(_) => self.connect(),
            }
        };
        assert_eq!(reply.status, OK, "request {}: {}", self.number, reply.last_name());
        self.number += 1;
        // The receiver is gone after the last kill.
        let _ = self.done.send(());
    }

    /// Connects when the server is there again.
    fn connect(&mut self) {
        self.session.connection = loop {
            let (lives, changed) = &*self.lives;
            let lives = lives.lock().unwrap();
            self.life = *changed.wait_while(lives, |lives| *lives == self.life).unwrap();
            if let Ok(connection) = Connection::open(self.server) {
                break connection;
            }
        };
    }
}

#[test]
fn a_server_that_is_killed_again_and_again_executes_each_request_once() {
    let mut server = ServerProcess::start_for_nfs();
    let root = root(server.nfs());
    let lives = Arc::new((Mutex::new(0), Condvar::new()));
    let (done, is_done) = channel();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let session = start(&server, &format!("client {client}"));
            let (server, lives, done) = (server.nfs(), lives.clone(), done.clone());
            let mut stubborn = Stubborn { session, server, number: 1, life: 0, lives, done };
            let root = root.clone();
            std::thread::spawn(move || {
                for round in 0..ROUNDS {
                    let name = |what: &str| format!("{what}-{client}-{round}");
                    let directory = || ops::putfh(&root);
                    stubborn.request(&[
                        directory(),
                        ops::mkdir(name("a")),
                        directory(),
                        ops::mkdir(name("b")),
                    ]);
                    let rename = ops::rename(name("a"), name("c"));
                    stubborn.request(&[directory(), ops::savefh(), directory(), rename]);
                    stubborn.request(&[
                        directory(),
                        ops::remove(name("b")),
                        ops::remove(name("c")),
                    ]);
                }
            })
        })
        .collect();
    drop(done);
    for _ in 0..KILLS {
        // If a client has failed, there are fewer requests.
        let _ = is_done.iter().take(CLIENTS * ROUNDS * 3 / (KILLS + 1)).count();
        server.kill();
        server.revive();
        *lives.0.lock().unwrap() += 1;
        lives.1.notify_all();
    }
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(std::fs::read_dir(server.local("")).unwrap().count(), 0);
}

#[test]
fn without_a_journal_no_session_is_persistent() {
    let server = ServerProcess::start_for_nfs_without_journal();
    let wish = Wish { flags: PERSIST, ..Wish::new(b"client", user(), 1) };
    let session = Session::start(server.nfs(), &wish).unwrap();
    assert_eq!(session.created.flags, 0);
}

//! Copies of NFS clients that continue after the reply to their COPY: their progress, their end, and
//! what happens to them with their client, the rules about clients, and the server.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use dafs_nfs_suite::nfs4::callback::Callback;
use dafs_nfs_suite::nfs4::ops::{self, How, Op, share};
use dafs_nfs_suite::nfs4::session::Wish;
use dafs_nfs_suite::nfs4::{Body, Reply, Session, Set, StateId};
use dafs_nfs_suite::rpc::Auth;
use dafs_nfs_suite::status;
use dafs_server::{AccessRules, NfsRules};

use crate::fixture::{Fixture, await_that, pattern, serve_nfs};
use crate::fragile::{Gate, Opening, gated};
use crate::nfs_state;

/// The number of bytes of a part of a copy, which is one job of the server.
const PART: usize = 4 << 20;
/// The size of the source: long enough for a copy that continues after the reply.
const SIZE: u64 = 72 << 20;

/// Starts a server with a source file, whose writes must pass a gate. `None` if this process may
/// not act as other users.
fn fixture() -> Option<(Fixture, Arc<Gate>)> {
    if !dafs_tests::is_root() {
        return None;
    }
    let (fixture, gate) = gated(|config| {
        // One thread for each copy, and some for the others.
        config.pool_threads = 8;
        serve_nfs(config, 0);
    });
    write_source(&fixture);
    Some((fixture, gate))
}

fn write_source(fixture: &Fixture) {
    let source = File::create(fixture.local("source")).unwrap();
    source.set_len(SIZE).unwrap();
    for at in [0, 9 << 20, SIZE - 1000] {
        source.write_all_at(&pattern(1000, at), at).unwrap();
    }
}

/// A client with the source and a target open.
struct Copier {
    session: Session,
    from: (StateId, Vec<u8>),
    to: (StateId, Vec<u8>),
}

impl Copier {
    fn new(fixture: &Fixture, root: &str) -> Self {
        let wish = Wish::new(b"copier", Auth::user(0), 2);
        let mut session = Session::start(fixture.nfs(), &wish).unwrap();
        let mut walk = vec![ops::putrootfh()];
        walk.extend((!root.is_empty()).then(|| ops::lookup(root)));
        walk.push(ops::getfh());
        session.dir = session.ok(&walk).unwrap().fh(walk.len() - 1).unwrap();
        let access = share::READ | share::WANT_NONE;
        let (opened, fh) = session.open("o", (access, 0), &How::Open, "source").unwrap();
        let from = (opened.state, fh);
        let to = target(&mut session, "target");
        Self { session, from, to }
    }

    /// Returns the operations of a COPY of the whole source.
    fn copy(&self, to: &(StateId, Vec<u8>)) -> Vec<Op> {
        let copy = ops::copy(self.from.0, to.0, (0, 0), 0, false);
        vec![ops::putfh(&self.from.1), ops::savefh(), ops::putfh(&to.1), copy]
    }

    /// Starts a copy that continues after the reply. Returns its state id.
    fn start(&mut self, to: &(StateId, Vec<u8>)) -> StateId {
        let ops = self.copy(to);
        match started(&self.session.ok(&ops).unwrap()) {
            (Some(id), 0, false) => id,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the number of bytes that were copied, and the status if the copy has ended.
    fn status(&mut self, copy: StateId) -> (u64, Option<u32>) {
        let ops = [ops::putfh(&self.to.1), ops::offload_status(copy)];
        match self.session.ok(&ops).unwrap().body(1).unwrap() {
            Body::Offload { count, complete } => (*count, *complete),
            other => panic!("{other:?}"),
        }
    }

    /// Starts a copy into the target, which stops in its third part.
    fn start_and_stop(&mut self, gate: &Gate) -> StateId {
        gate.let_through(2 * PART);
        let to = self.to.clone();
        let copy = self.start(&to);
        await_that("two parts are copied", || self.status(copy) == (2 * PART as u64, None));
        copy
    }

    fn fails_as_unknown(&mut self, copy: StateId) {
        for op in [ops::offload_status(copy), ops::offload_cancel(copy)] {
            self.session.fails(&[status::BAD_STATEID], &[ops::putfh(&self.to.1), op]).unwrap();
        }
    }

    /// Waits for the CB_OFFLOAD of a copy. Returns its status.
    fn told(&mut self, copy: StateId) -> u32 {
        match &self.session.callback().unwrap()[..] {
            [Callback::Offload { fh, state, status }] => {
                assert_eq!((fh, state.other), (&self.to.1, copy.other));
                *status
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Creates an empty file, which stays open.
fn target(session: &mut Session, name: &str) -> (StateId, Vec<u8>) {
    let access = share::BOTH | share::WANT_NONE;
    let how = How::Unchecked(Set::new().mode(0o644));
    let (opened, fh) = session.open("o", (access, 0), &how, name).unwrap();
    (opened.state, fh)
}

/// Returns the state id, the number of bytes and the synchrony in the reply to a COPY.
fn started(reply: &Reply) -> (Option<StateId>, u64, bool) {
    match reply.body(3).unwrap() {
        Body::Copied { callback, count, synchronous, .. } => (*callback, *count, *synchronous),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_long_copy_continues_after_the_reply_and_the_client_is_told_of_its_end() {
    let Some((fixture, gate)) = fixture() else { return };
    let mut copier = Copier::new(&fixture, "");
    let _opening = Opening(&gate);
    let copy = copier.start_and_stop(&gate);
    // Others are served meanwhile, and so is the client itself.
    let mut other = nfs_state::client(&fixture, b"other");
    let read = ops::read(StateId::ANONYMOUS, 0, 1000);
    for session in [&mut other, &mut copier.session] {
        let reply = session.ok(&[ops::putfh(&copier.from.1), read.clone()]).unwrap();
        assert_eq!(reply.data(1).unwrap().1, pattern(1000, 0));
    }
    // The state id is that of this copy and of nothing else.
    let (fh, from) = (copier.to.1.clone(), copier.from.1.clone());
    let wrong = [ops::putfh(&from), ops::offload_status(copy)];
    copier.session.fails(&[status::BAD_STATEID], &wrong).unwrap();
    let wrong = [ops::putfh(&fh), ops::read(copy, 0, 10)];
    copier.session.fails(&[status::BAD_STATEID], &wrong).unwrap();
    let wrong = [ops::putfh(&fh), ops::offload_status(copier.to.0)];
    copier.session.fails(&[status::BAD_STATEID], &wrong).unwrap();

    gate.let_through(usize::MAX);
    assert_eq!(copier.told(copy), 0);
    copier.fails_as_unknown(copy);
    copier.session.ok(&[ops::putfh(&fh), ops::commit(0, 0)]).unwrap();
    let content = |name| std::fs::read(fixture.local(name)).unwrap();
    assert!(content("target") == content("source"));
}

#[test]
fn a_short_copy_is_complete_before_the_reply() {
    let Some((fixture, _gate)) = fixture() else { return };
    let mut copier = Copier::new(&fixture, "");
    let copy = ops::copy(copier.from.0, copier.to.0, (0, 0), 1000, false);
    let all = [ops::putfh(&copier.from.1), ops::savefh(), ops::putfh(&copier.to.1), copy];
    assert_eq!(started(&copier.session.ok(&all).unwrap()), (None, 1000, true));
}

#[test]
fn a_cancelled_copy_writes_nothing_after_the_reply() {
    let Some((fixture, gate)) = fixture() else { return };
    let mut copier = Copier::new(&fixture, "");
    let _opening = Opening(&gate);
    let copy = copier.start_and_stop(&gate);
    let cancel = [ops::putfh(&copier.to.1), ops::offload_cancel(copy)];
    let xid = copier.session.send(1, false, &cancel).unwrap();
    // The part that is being copied is not complete yet, so the cancellation is not either.
    let again = copier.session.once(&cancel).unwrap();
    assert_eq!(again.status, status::DELAY);
    assert_eq!(copier.status(copy), (2 * PART as u64, None));
    gate.let_through(usize::MAX);
    copier.session.finish(1, xid).unwrap().all_ok().unwrap();
    copier.fails_as_unknown(copy);
    let local = std::fs::metadata(fixture.local("target")).unwrap();
    assert_eq!(local.len(), 3 * PART as u64);
}

#[test]
fn a_client_has_few_copies_that_continue() {
    let Some((fixture, gate)) = fixture() else { return };
    let mut copier = Copier::new(&fixture, "");
    let targets: Vec<_> =
        (0..5).map(|at| target(&mut copier.session, &format!("target-{at}"))).collect();
    let _opening = Opening(&gate);
    gate.let_through(0);
    for to in &targets[..4] {
        copier.start(to);
    }
    let ops = copier.copy(&targets[4]);
    let xid = copier.session.send(1, false, &ops).unwrap();
    gate.let_through(usize::MAX);
    let mut ended = 0;
    while ended < 4 {
        let told = copier.session.callback().unwrap();
        assert!(matches!(&told[..], [Callback::Offload { status: 0, .. }]), "{told:?}");
        ended += 1;
    }
    let reply = copier.session.finish(1, xid).unwrap().all_ok().unwrap();
    assert_eq!(started(&reply), (None, SIZE, true));
    // The ends were acknowledged, so there is room again.
    let to = target(&mut copier.session, "another");
    copier.start(&to);
}

#[test]
fn a_copy_ends_with_its_client() {
    let Some((fixture, gate)) = fixture() else { return };
    let mut copier = Copier::new(&fixture, "");
    let opening = Opening(&gate);
    copier.start_and_stop(&gate);
    // A new incarnation of the client.
    let wish = Wish { verifier: *b"restart!", ..Wish::new(b"copier", Auth::user(0), 2) };
    let _new = Session::start(fixture.nfs(), &wish).unwrap();
    drop(opening);
    await_that("the copy ends", || fixture.look().stats.parked_requests == 0);
    let local = std::fs::metadata(fixture.local("target")).unwrap();
    assert_eq!(local.len(), 3 * PART as u64);
}

#[test]
fn a_copy_ends_early_if_the_rules_about_clients_change() {
    let Some((fixture, gate)) = fixture() else { return };
    let mut copier = Copier::new(&fixture, "");
    let _opening = Opening(&gate);
    let copy = copier.start_and_stop(&gate);
    let rules = AccessRules { nfs: NfsRules::for_all(Vec::new(), true), ..AccessRules::default() };
    let version = fixture.reloader.read(rules, None).unwrap();
    fixture.reloader.apply(version);
    // The next call of anybody is served by the new rules.
    assert_eq!(copier.status(copy), (2 * PART as u64, None));
    gate.let_through(usize::MAX);
    await_that("the copy ends", || copier.status(copy).1.is_some());
    // What was copied was copied; the client copies the rest by another COPY.
    assert_eq!(copier.status(copy), (3 * PART as u64, Some(0)));
    assert_eq!(copier.told(copy), 0);
}

#[test]
fn a_restarted_server_knows_no_copies() {
    if !dafs_tests::is_root() {
        return;
    }
    let fixture = Fixture::for_nfs();
    write_source(&fixture);
    let mut copier = Copier::new(&fixture, "export");
    let to = copier.to.clone();
    let copy = copier.start(&to);
    let (directory, _) = fixture.stop();
    let fixture = Fixture::for_nfs_with(directory, |_| {});
    let wish = Wish::new(b"another", Auth::user(0), 2);
    let mut session = Session::start(fixture.nfs(), &wish).unwrap();
    let all = [ops::putfh(&to.1), ops::offload_status(copy)];
    session.fails(&[status::BAD_STATEID], &all).unwrap();
}

//! Byte-range locks when clients fail and servers restart: the draft's table of 4.4.1.5 and
//! 4.4.1.6, row by row, with the exact actions of each.

use crate::locks_common::*;
use dafs_filer::IoKind;
use dafs_filer::locks::*;
use dafs_ops::Fault;
use dafs_types::*;

/// The failure of one row, applied to a lock of bytes 0 to 9.
type Failure = fn(&mut Bench, &LockOwner<'_>);

fn lease(bench: &mut Bench, owner: &LockOwner<'_>) {
    bench.table.lease_expired(owner.client.id, T0);
}

fn restart(bench: &mut Bench, owner: &LockOwner<'_>) {
    bench.table.client_restarted(owner.client.id, T0);
}

/// Makes a lock with these attributes (its record is 1) and lets its owner fail. Returns the
/// actions of the failure.
fn failed(attributes: LockAttributes, failure: Failure) -> (Bench, Vec<LockAction>) {
    let mut bench = Bench::new(config());
    let a = owner(1, "a");
    bench.take(&a, with(attributes, request(Write, 0, 9)));
    failure(&mut bench, &a);
    let actions = bench.actions();
    (bench, actions)
}

fn conditions(bench: &Bench) -> Vec<LockCondition> {
    bench.held().into_iter().map(|entry| entry.5).collect()
}

fn of_a(attributes: LockAttributes, phase: RecordPhase) -> LockRecord {
    record(1, &owner(1, "a"), attributes, ends(0, 9), phase)
}

fn taken(bench: &mut Bench) -> LockReply {
    bench.ask(&owner(2, "b"), request(Write, 5, 5))
}

#[test]
fn plain_locks_end_with_lease_or_client() {
    for failure in [lease as Failure, restart] {
        let (bench, actions) = failed(PLAIN, failure);
        assert_eq!(actions, []);
        bench.assert_empty();
    }
}

#[test]
fn auto_recovery_locks_are_rolled_back_and_then_end() {
    for failure in [lease as Failure, restart] {
        let (mut bench, actions) = failed(A, failure);
        assert_eq!(actions, [write(of_a(A, RecordPhase::Revoked)), roll_back(1, 0, 9)]);
        assert_eq!(conditions(&bench), [LockCondition::RollingBack]);
        // Meanwhile the range is locked for all owners.
        let a = owner(1, "a");
        assert_eq!(taken(&mut bench), denied(&a, Write, 0, 9));
        assert_eq!(bench.ask(&a, request(Read, 9, 9)), denied(&a, Write, 0, 9));
        for state in [StateId::ANONYMOUS, a.state, owner(2, "b").state] {
            for kind in [IoKind::Read, IoKind::Write] {
                let io = bench.table.check_io(FILE, state, 0, 1, kind);
                assert_eq!(io, Err(Fault::RangeLocked));
            }
        }
        let waits = bench.ask(&owner(2, "b"), parked(7, request(Write, 5, 5)));
        assert!(matches!(waits, LockReply::Waiting { position: 0, .. }));
        assert!(bench.table.rollback_done(RollbackId(1), T0));
        assert_eq!(bench.actions(), [remove(1), drop_undo(0, 9), ready(7)]);
        assert!(!bench.table.rollback_done(RollbackId(1), T0));
        assert_eq!(taken(&mut bench), LockReply::Granted);
    }
}

#[test]
fn persistent_locks_become_breakable_with_the_lease_and_break_on_conflict() {
    let (mut bench, actions) = failed(P, lease);
    let (a, b) = (owner(1, "a"), owner(2, "b"));
    // There is nothing to write: until the lock breaks, its client may reclaim it.
    assert_eq!(actions, []);
    assert_eq!(conditions(&bench), [LockCondition::Breakable]);
    // A test does not conflict; nor do reads and writes, nor locks that do not overlap.
    let tested = bench.table.test(b.name(), FILE, 0, END, Read);
    assert_eq!(tested, Ok(LockTestReply::Denied(conflict(&a, Write, 0, 9))));
    let io = bench.table.check_io(FILE, b.state, 0, 1, IoKind::Read);
    assert_eq!(io, Err(Fault::RangeLocked));
    assert_eq!(bench.ask(&b, request(Write, 10, 19)), LockReply::Granted);
    assert_eq!(conditions(&bench)[0], LockCondition::Breakable);
    // The first conflicting request breaks the lock and gets LOCK_BROKEN, like all later ones.
    assert_eq!(taken(&mut bench), broken(&a, Write, 0, 9));
    assert_eq!(bench.actions(), [write(of_a(P, RecordPhase::Broken))]);
    assert_eq!(taken(&mut bench), broken(&a, Write, 0, 9));
    let waiting = bench.ask(&b, parked(1, request(Read, 0, 0)));
    assert_eq!(waiting, broken(&a, Write, 0, 9));
    let tested = bench.table.test(b.name(), FILE, 0, END, Read);
    assert_eq!(tested, Ok(LockTestReply::Broken(conflict(&a, Write, 0, 9))));
    // The former owner does not hold it any more.
    assert_eq!(bench.ask(&a, request(Read, 0, 0)), broken(&a, Write, 0, 9));
    let io = |bench: &Bench, state| bench.table.check_io(FILE, state, 9, 1, IoKind::Read);
    assert_eq!(io(&bench, a.state), Err(Fault::StaleState));
    assert_eq!(io(&bench, b.state), Err(Fault::StaleState));
    assert_eq!(io(&bench, StateId::ANONYMOUS), Err(Fault::RangeLocked));
    bench.unlock(&a, 0, END);
    bench.table.release_client(a.client.id, T0);
    bench.table.client_renewed(a.client.id);
    assert_eq!(conditions(&bench)[0], LockCondition::Broken);
    assert_eq!(bench.actions(), []);
}

#[test]
fn a_lease_renewed_in_time_keeps_a_persistent_lock() {
    for attributes in [P, PA] {
        let (mut bench, actions) = failed(attributes, lease);
        assert_eq!(actions, []);
        bench.table.client_renewed(ClientId(10));
        assert_eq!(conditions(&bench), [LockCondition::Held]);
        assert_eq!(taken(&mut bench), denied(&owner(1, "a"), Write, 0, 9));
        assert_eq!(bench.actions(), []);
    }
}

#[test]
fn persistent_locks_break_when_the_client_restarts() {
    // The result is the same whether or not the locks were breakable.
    for lease_before in [false, true] {
        let (mut bench, _) = failed(P, if lease_before { lease } else { |_, _| () });
        restart(&mut bench, &owner(1, "a"));
        assert_eq!(bench.actions(), [write(of_a(P, RecordPhase::Broken))]);
        assert_eq!(taken(&mut bench), broken(&owner(1, "a"), Write, 0, 9));
        // The client's next incarnation does not own the lock.
        assert_eq!(bench.table.client_connected(&life(1, 1, "a").client, T0), Ok(()));
        assert_eq!(bench.ask(&life(1, 1, "a"), request(Read, 0, 0)), taken(&mut bench));
        assert_eq!(bench.actions(), []);
    }
}

#[test]
fn with_both_options_the_rollback_waits_for_the_break() {
    let breaks: [(Failure, Failure); 2] = [
        (restart, |_, _| ()),
        (lease, |bench, a| assert_eq!(taken(bench), broken(a, Write, 0, 9))),
    ];
    for (failure, trigger) in breaks {
        let (mut bench, mut actions) = failed(PA, failure);
        let a = owner(1, "a");
        trigger(&mut bench, &a);
        actions.extend(bench.actions());
        assert_eq!(actions, [write(of_a(PA, RecordPhase::BrokenUnrolled)), roll_back(1, 0, 9)]);
        // The lock is broken at once, but can be repaired only after the rollback.
        assert_eq!(conditions(&bench), [LockCondition::RollingBack]);
        assert_eq!(taken(&mut bench), broken(&a, Write, 0, 9));
        let b = owner(2, "b");
        let repair = claiming(Claim::Repair, request(Write, 0, 9));
        assert_eq!(bench.ask(&b, repair), denied(&a, Write, 0, 9));
        let io = bench.table.check_io(FILE, b.state, 0, 1, IoKind::Read);
        assert_eq!(io, Err(Fault::StaleState));
        bench.table.rollback_done(RollbackId(1), T0);
        let done = [write(of_a(PA, RecordPhase::Broken)), drop_undo(0, 9)];
        assert_eq!(bench.actions(), done);
        assert_eq!(conditions(&bench), [LockCondition::Broken]);
        assert_eq!(bench.ask(&b, repair), LockReply::Granted);
    }
}

#[test]
fn a_repair_takes_over_its_range_and_unlocking_ends_it() {
    let (mut bench, _) = failed(P, restart);
    let (a, b, c) = (owner(1, "a"), owner(2, "b"), owner(3, "c"));
    let repair = |first, last| claiming(Claim::Repair, request(Write, first, last));
    assert_eq!(bench.refused(&b, repair(10, 19)), LockError::NothingThere);
    let shared = claiming(Claim::Repair, request(Read, 0, 9));
    assert_eq!(bench.refused(&b, shared), LockError::NothingThere);
    // Adjacent locks of other owners block a repair as they block any request.
    bench.take(&c, request(Read, 10, 19));
    assert_eq!(bench.ask(&b, repair(0, 10)), denied(&c, Read, 10, 19));
    bench.unlock(&c, 0, END);
    // A repair of the middle: the repairer's record comes first, even if PERSIST was not asked for.
    assert_eq!(bench.ask(&b, repair(4, 6)), LockReply::Granted);
    let mine = |id, first, last| record(id, &b, P, ends(first, last), RecordPhase::Held);
    let rest = |id, first, last| record(id, &a, P, ends(first, last), RecordPhase::Broken);
    let expected = [write(mine(3, 4, 6)), write(rest(2, 7, 9)), write(rest(1, 0, 3))];
    assert_eq!(bench.actions(), expected);
    assert_eq!(bench.refused(&c, repair(4, 6)), LockError::NothingThere);
    assert_eq!(bench.ask(&c, repair(0, 9)), denied(&b, Write, 4, 6));
    // A repair of the whole, over the own part and both remainders.
    assert_eq!(bench.refused(&b, request(Write, 5, 5)), LockError::OptionsDiffer);
    assert_eq!(bench.ask(&b, repair(0, 19)), LockReply::Granted);
    assert_eq!(bench.actions(), [write(mine(3, 0, 19)), remove(1), remove(2)]);
    assert_eq!(bench.table.check_io(FILE, b.state, 0, 20, IoKind::Write), Ok(()));
    bench.unlock(&b, 0, END);
    assert_eq!(bench.actions(), [remove(3)]);
    assert_eq!(bench.table.counters().repaired, 3);
    bench.assert_empty();
}

#[test]
fn a_repairer_that_fails_leaves_the_lock_broken() {
    let (mut bench, _) = failed(P, restart);
    let b = owner(2, "b");
    let repair = claiming(Claim::Repair, request(Write, 0, 9));
    assert_eq!(bench.ask(&b, repair), LockReply::Granted);
    bench.actions();
    restart(&mut bench, &b);
    let left = record(2, &b, P, ends(0, 9), RecordPhase::Broken);
    assert_eq!(bench.actions(), [write(left)]);
    assert_eq!(bench.ask(&owner(3, "c"), request(Write, 0, 9)), broken(&b, Write, 0, 9));
}

#[test]
fn a_repair_of_a_breakable_lock_breaks_it_first() {
    let (mut bench, _) = failed(P, lease);
    let repair = claiming(Claim::Repair, request(Write, 0, 9));
    let b = owner(2, "b");
    assert_eq!(bench.ask(&b, repair), broken(&owner(1, "a"), Write, 0, 9));
    assert_eq!(bench.ask(&b, repair), LockReply::Granted);
}

#[test]
fn a_waiter_breaks_locks_that_become_breakable() {
    for (attributes, failure) in [(P, lease as Failure), (P, restart), (PA, lease)] {
        let mut bench = Bench::new(config());
        let (a, b) = (owner(1, "a"), owner(2, "b"));
        bench.take(&a, with(attributes, request(Write, 0, 9)));
        bench.ask(&b, parked(5, request(Read, 0, 0)));
        // A request that waits for an unbroken lock keeps its position.
        bench.take(&owner(3, "c"), request(Write, 10, 10));
        bench.ask(&b, parked(6, request(Read, 10, 10)));
        bench.actions();
        failure(&mut bench, &a);
        let told =
            LockAction::WaiterBroken { waiter: WaiterId(5), conflict: conflict(&a, Write, 0, 9) };
        let actions = bench.actions();
        assert_eq!(actions.last(), Some(&told), "{actions:?}");
        assert_eq!(bench.table.counters().waiters, 1);
    }
}

#[test]
fn an_abort_rolls_back_and_keeps_the_lock() {
    let mut bench = Bench::new(config());
    let a = owner(1, "a");
    bench.take(&a, with(A, request(Write, 0, 9)));
    let abort = |bench: &mut Bench, first, last| {
        let length = ends(first, last).length();
        bench.table.abort(a.name(), FILE, first, length)
    };
    assert_eq!(abort(&mut bench, 10, 19), Err(LockError::NothingThere));
    assert_eq!(abort(&mut bench, 5, END), Ok(vec![RollbackId(1)]));
    let held = |id, first, last| record(id, &a, A, ends(first, last), RecordPhase::Held);
    let expected = [write(held(2, 5, 9)), write(held(1, 0, 4)), roll_back(1, 5, 9)];
    assert_eq!(bench.actions(), expected);
    // The range is also locked for the owner's reads, writes and requests.
    let io = bench.table.check_io(FILE, a.state, 9, 1, IoKind::Read);
    assert_eq!(io, Err(Fault::RangeLocked));
    assert_eq!(bench.table.check_io(FILE, a.state, 0, 5, IoKind::Write), Ok(()));
    assert_eq!(bench.refused(&a, with(A, request(Write, 0, 5))), LockError::RollingBack);
    let unlock = bench.table.unlock(a.name(), FILE, 0, END, T0);
    assert_eq!(unlock, Err(LockError::RollingBack));
    assert_eq!(abort(&mut bench, 0, 9), Err(LockError::RollingBack));
    assert_eq!(taken(&mut bench), denied(&a, Write, 5, 9));
    // After the rollback the lock is held again, undo data starts anew, and the parts are joined.
    bench.table.rollback_done(RollbackId(1), T0);
    let expected = [drop_undo(5, 9), keep_undo(5, 9), write(held(1, 0, 9)), remove(2)];
    assert_eq!(bench.actions(), expected);
    assert_eq!(conditions(&bench), [LockCondition::Held]);
    bench.unlock(&a, 0, END);
    assert_eq!(bench.actions(), [remove(1), drop_undo(0, 9)]);
    bench.assert_empty();
}

#[test]
fn a_lock_under_abort_ends_as_its_options_say_when_its_owner_leaves() {
    fn close(bench: &mut Bench, owner: &LockOwner<'_>) {
        bench.table.release_open(owner.name(), FILE, T0);
    }
    use RecordPhase::{Broken, BrokenUnrolled, Revoked};
    // Attributes, failure, record phase after it, and the effect of the end of the rollback.
    let rows: [(LockAttributes, Failure, Option<RecordPhase>, Vec<LockAction>); 6] = [
        (A, close, Some(Revoked), vec![remove(1), drop_undo(0, 9)]),
        (A, lease, Some(Revoked), vec![remove(1), drop_undo(0, 9)]),
        (A, restart, Some(Revoked), vec![remove(1), drop_undo(0, 9)]),
        (PA, close, Some(Revoked), vec![remove(1), drop_undo(0, 9)]),
        (PA, lease, None, vec![drop_undo(0, 9), keep_undo(0, 9)]),
        (PA, restart, Some(BrokenUnrolled), vec![write(of_a(PA, Broken)), drop_undo(0, 9)]),
    ];
    for (attributes, event, then, done) in rows {
        let mut bench = Bench::new(config());
        let a = owner(1, "a");
        bench.take(&a, with(attributes, request(Write, 0, 9)));
        bench.table.abort(a.name(), FILE, 0, END).unwrap();
        assert_eq!(bench.actions(), [roll_back(1, 0, 9)]);
        event(&mut bench, &a);
        let expected: Vec<_> =
            then.map(|phase| write(of_a(attributes, phase))).into_iter().collect();
        assert_eq!(bench.actions(), expected);
        bench.table.rollback_done(RollbackId(1), T0);
        assert_eq!(bench.actions(), done);
    }
    // The lease is renewed before the rollback is done: the lock is held after all.
    let mut bench = Bench::new(config());
    let a = owner(1, "a");
    bench.take(&a, with(PA, request(Write, 0, 9)));
    bench.table.abort(a.name(), FILE, 0, END).unwrap();
    lease(&mut bench, &a);
    bench.table.client_renewed(a.client.id);
    bench.table.rollback_done(RollbackId(1), T0);
    assert_eq!(conditions(&bench), [LockCondition::Held]);
}

/// A server that has restarted with these records and is in its grace period.
fn restarted(records: Vec<LockRecord>) -> Bench {
    let mut bench = Bench::new(config());
    bench.table.restore(records);
    bench.table.begin_grace();
    bench
}

/// Client 1 after it has come back to a restarted server: the same incarnation under another id.
fn returned() -> LockOwner<'static> {
    let before = owner(1, "a");
    let client = LockClient { id: ClientId(19), ..before.client };
    LockOwner { client, state: StateId(19_000), ..before }
}

fn reclaim(attributes: LockAttributes, first: u64, last: u64) -> LockRequest {
    claiming(Claim::Reclaim, with(attributes, request(Write, first, last)))
}

#[test]
fn recorded_locks_are_reclaimed_as_they_were() {
    for attributes in [P, A, PA] {
        let mut bench = restarted(vec![of_a(attributes, RecordPhase::Held)]);
        assert_eq!(bench.actions(), []);
        assert_eq!(conditions(&bench), [LockCondition::Unclaimed]);
        let (a, back) = (owner(1, "a"), returned());
        assert_eq!(taken(&mut bench), denied(&a, Write, 0, 9));
        // No other owner can reclaim it, and neither can the client before it is known to have come
        // back.
        let thief = LockOwner { client: owner(2, "b").client, ..back };
        assert_eq!(bench.refused(&thief, reclaim(attributes, 0, 9)), LockError::Lost);
        assert_eq!(bench.refused(&back, reclaim(attributes, 0, 9)), LockError::Lost);
        let foreign = LockClient { principal: b"x", ..back.client };
        assert_eq!(bench.table.client_connected(&foreign, T0), Err(ForeignLocks));
        assert_eq!(bench.table.client_connected(&back.client, T0), Ok(()));
        // A reclaim must ask for exactly what was held.
        assert_eq!(bench.refused(&back, reclaim(attributes, 0, 10)), LockError::Lost);
        let other = if attributes == PA { P } else { PA };
        let refused = bench.refused(&back, reclaim(other, 0, 9));
        assert!(matches!(refused, LockError::Lost | LockError::OptionsDiffer));
        assert_eq!(bench.ask(&back, reclaim(attributes, 0, 9)), LockReply::Granted);
        assert_eq!(conditions(&bench), [LockCondition::Held]);
        assert_eq!(bench.table.check_io(FILE, back.state, 0, 1, IoKind::Write), Ok(()));
        assert_eq!(bench.ask(&back, reclaim(attributes, 0, 9)), LockReply::Granted);
        assert_eq!(bench.actions(), []);
        bench.table.grace_over(T0);
        assert_eq!(bench.actions(), []);
        bench.table.release_client(back.client.id, T0);
        bench.assert_empty();
    }
}

#[test]
fn locks_not_reclaimed_in_the_grace_period_become_breakable_or_end() {
    // P: breakable, but the owner can still reclaim it.
    let mut bench = restarted(vec![of_a(P, RecordPhase::Held)]);
    bench.table.grace_over(T0);
    assert_eq!((bench.actions(), conditions(&bench)), (vec![], vec![LockCondition::Breakable]));
    bench.table.client_connected(&returned().client, T0).unwrap();
    assert_eq!(bench.ask(&returned(), reclaim(P, 0, 9)), LockReply::Granted);
    assert_eq!(conditions(&bench), [LockCondition::Held]);
    // P with a conflicting request first: broken, and the owner gets LOCK_BROKEN like all others.
    for attributes in [P, PA] {
        let mut bench = restarted(vec![of_a(attributes, RecordPhase::Held)]);
        bench.table.grace_over(T0);
        assert_eq!(taken(&mut bench), broken(&owner(1, "a"), Write, 0, 9));
        let expected = match attributes {
            P => vec![write(of_a(P, RecordPhase::Broken))],
            _ => vec![write(of_a(PA, RecordPhase::BrokenUnrolled)), roll_back(1, 0, 9)],
        };
        assert_eq!(bench.actions(), expected);
        bench.table.client_connected(&returned().client, T0).unwrap();
        let late = bench.ask(&returned(), reclaim(attributes, 0, 9));
        assert_eq!(late, broken(&owner(1, "a"), Write, 0, 9));
    }
    // A: rolled back before any other owner gets it.
    let mut bench = restarted(vec![of_a(A, RecordPhase::Held)]);
    bench.table.grace_over(T0);
    let expected = [write(of_a(A, RecordPhase::Revoked)), roll_back(1, 0, 9)];
    assert_eq!(bench.actions(), expected);
    assert_eq!(taken(&mut bench), denied(&owner(1, "a"), Write, 0, 9));
    bench.table.rollback_done(RollbackId(1), T0);
    assert_eq!(bench.actions(), [remove(1), drop_undo(0, 9)]);
    assert_eq!(taken(&mut bench), LockReply::Granted);
}

#[test]
fn plain_locks_can_be_reclaimed_only_in_the_grace_period() {
    let mut bench = restarted(vec![of_a(P, RecordPhase::Held)]);
    let (b, c) = (owner(2, "b"), owner(3, "c"));
    assert!(bench.table.in_grace());
    assert_eq!(bench.ask(&b, reclaim(PLAIN, 20, 29)), LockReply::Granted);
    assert_eq!(bench.ask(&c, reclaim(PLAIN, 29, 29)), denied(&b, Write, 20, 29));
    assert_eq!(bench.ask(&c, reclaim(PLAIN, 9, 9)), denied(&owner(1, "a"), Write, 0, 9));
    bench.table.grace_over(T0);
    assert!(!bench.table.in_grace());
    assert_eq!(bench.refused(&c, reclaim(PLAIN, 30, 39)), LockError::Lost);
    // The owner may reclaim a lock that it has.
    assert_eq!(bench.ask(&b, reclaim(PLAIN, 20, 29)), LockReply::Granted);
    assert_eq!(bench.table.counters().reclaimed, 2);
}

#[test]
fn a_client_that_restarted_while_the_server_did_breaks_its_locks() {
    let records = vec![
        of_a(P, RecordPhase::Held),
        record(2, &owner(1, "a"), A, ends(20, 29), RecordPhase::Held),
    ];
    let mut bench = restarted(records);
    let next = life(1, 1, "a");
    bench.table.client_connected(&next.client, T0).unwrap();
    let revoked = record(2, &owner(1, "a"), A, ends(20, 29), RecordPhase::Revoked);
    let expected = [write(of_a(P, RecordPhase::Broken)), write(revoked), roll_back(1, 20, 29)];
    assert_eq!(bench.actions(), expected);
    assert_eq!(bench.ask(&next, reclaim(P, 0, 9)), broken(&owner(1, "a"), Write, 0, 9));
}

#[test]
fn broken_locks_and_rollbacks_survive_the_server() {
    use RecordPhase::{Broken, BrokenUnrolled, Revoked};
    let at = |id, attributes, first, phase| {
        record(id, &owner(1, "a"), attributes, ends(first, first + 9), phase)
    };
    let records = vec![
        at(9, A, 30, Revoked),
        at(1, P, 0, Broken),
        at(4, PA, 10, BrokenUnrolled),
        at(6, PA, 20, Broken),
    ];
    let mut bench = restarted(records.clone());
    assert_eq!(bench.actions(), [roll_back(1, 10, 19), roll_back(2, 30, 39)]);
    let mut sorted = records;
    sorted.sort_by_key(|record| record.id);
    assert_eq!(bench.table.records(), sorted);
    bench.table.grace_over(T0);
    bench.table.rollback_done(RollbackId(2), T0);
    bench.table.rollback_done(RollbackId(1), T0);
    let expected = [remove(9), drop_undo(30, 39), write(at(4, PA, 10, Broken)), drop_undo(10, 19)];
    assert_eq!(bench.actions(), expected);
    // New records have new ids.
    let repair = claiming(Claim::Repair, request(Write, 0, 29));
    assert_eq!(bench.ask(&owner(2, "b"), repair), LockReply::Granted);
    let mine = record(10, &owner(2, "b"), P, ends(0, 29), RecordPhase::Held);
    assert_eq!(bench.actions(), [write(mine), remove(1), remove(4), remove(6)]);
}

#[test]
fn an_incarnation_recorded_under_two_ids_is_one_client() {
    let newer = record(2, &returned(), P, ends(20, 29), RecordPhase::Held);
    let mut bench = restarted(vec![of_a(P, RecordPhase::Held), newer]);
    assert_eq!(bench.table.counters().clients, 1);
    let again =
        LockOwner { client: LockClient { id: ClientId(18), ..returned().client }, ..returned() };
    bench.table.client_connected(&again.client, T0).unwrap();
    for first in [0, 20] {
        let answer = bench.ask(&again, reclaim(P, first, first + 9));
        assert_eq!(answer, LockReply::Granted);
    }
    assert_eq!(bench.actions(), []);
}

#[test]
fn an_unreclaimed_lock_is_used_under_no_open() {
    let mut bench = restarted(vec![of_a(P, RecordPhase::Held)]);
    bench.table.grace_over(T0);
    let back = returned();
    bench.table.client_connected(&back.client, T0).unwrap();
    // Neither another lock nor a renewed lease counts as a reclaim.
    bench.take(&back, request(Write, 20, 29));
    bench.table.client_renewed(back.client.id);
    assert_eq!(conditions(&bench), [LockCondition::Breakable, LockCondition::Held]);
    let io = |bench: &Bench| bench.table.check_io(FILE, back.state, 9, 1, IoKind::Write);
    assert_eq!(io(&bench), Err(Fault::RangeLocked));
    assert_eq!(bench.ask(&back, reclaim(P, 0, 9)), LockReply::Granted);
    assert_eq!(io(&bench), Ok(()));
}

#[test]
fn a_shared_lock_over_the_owners_broken_lock_survives() {
    let shared = |record| LockRecord { mode: Read, ..record };
    let records = vec![
        shared(of_a(P, RecordPhase::Broken)),
        shared(record(2, &owner(1, "a"), P, ends(0, 9), RecordPhase::Held)),
    ];
    let mut bench = restarted(records.clone());
    assert_eq!((bench.table.records(), bench.actions()), (records, vec![]));
}

#[test]
fn the_older_of_two_overlapping_records_wins() {
    let (a, b) = (owner(1, "a"), owner(2, "b"));
    let held = |id, owner, first, last| record(id, owner, P, ends(first, last), RecordPhase::Held);
    // The crash came while record 1 was being cut and record 3 was being taken over.
    let records = vec![
        held(1, &a, 0, 99),
        held(2, &a, 60, 149),
        record(3, &a, P, ends(200, 299), RecordPhase::Broken),
        held(4, &b, 200, 299),
    ];
    let mut bench = restarted(records);
    assert_eq!(bench.actions(), [write(held(2, &a, 100, 149)), remove(4)]);
    let kept: Vec<u64> = bench.table.records().iter().map(|record| record.id.0).collect();
    assert_eq!(kept, [1, 2, 3]);
}

#[test]
fn broken_shared_locks_permit_reads() {
    let mut bench = Bench::new(config());
    let (a, b, c) = (owner(1, "a"), owner(2, "b"), owner(3, "c"));
    bench.take(&a, with(P, request(Read, 0, 9)));
    bench.take(&b, request(Read, 0, 9));
    restart(&mut bench, &a);
    bench.actions();
    let io = |bench: &Bench, kind| bench.table.check_io(FILE, b.state, 0, 1, kind);
    assert_eq!(io(&bench, IoKind::Read), Ok(()));
    assert_eq!(io(&bench, IoKind::Write), Err(Fault::StaleState));
    assert_eq!(bench.ask(&c, request(Read, 0, 9)), LockReply::Granted);
    assert_eq!(bench.ask(&c, request(Write, 0, 9)), broken(&a, Read, 0, 9));
    let repair = |mode| claiming(Claim::Repair, request(mode, 0, 9));
    assert_eq!(bench.ask(&c, repair(Write)), denied(&b, Read, 0, 9));
    assert_eq!(bench.ask(&c, repair(Read)), LockReply::Granted);
}

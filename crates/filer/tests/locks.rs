//! Byte-range locks: ranges, options, limits, reads and writes.

use crate::locks_common::*;
use dafs_filer::IoKind;
use dafs_filer::locks::*;
use dafs_ops::Fault;
use dafs_types::*;

use LockCondition::Held;

#[test]
fn shared_locks_are_compatible_and_exclusive_ones_are_not() {
    let mut bench = Bench::new(config());
    let (a, b, c) = (owner(1, "a"), owner(2, "b"), owner(1, "c"));
    bench.take(&a, request(Read, 0, 99));
    bench.take(&b, request(Read, 50, 149));
    assert_eq!(bench.ask(&c, request(Write, 60, 60)), denied(&a, Read, 0, 99));
    assert_eq!(bench.ask(&c, request(Write, 100, END)), denied(&b, Read, 50, 149));
    bench.take(&c, request(Write, 150, END));
    assert_eq!(bench.ask(&a, request(Read, 149, 150)), denied(&c, Write, 150, END));
    assert_eq!(bench.actions(), []);
    // An owner of the same name in another client is a different owner.
    let stranger = owner(2, "a");
    assert_eq!(bench.ask(&stranger, request(Write, 0, 0)), denied(&a, Read, 0, 99));
    let other_file = LockRequest { file: dafs_filer::FileKey(2), ..request(Write, 0, END) };
    bench.take(&stranger, other_file);
    for owner in [a, b, c, stranger] {
        bench.table.release_client(owner.client.id, T0);
    }
    assert_eq!(bench.actions(), []);
    bench.assert_empty();
}

#[test]
fn an_owner_replaces_splits_and_joins_its_own_locks() {
    let mut bench = Bench::new(config());
    let a = owner(1, "a");
    let name = || "a".to_owned();
    bench.take(&a, request(Read, 0, 99));
    bench.take(&a, request(Write, 40, 59));
    let parted = [
        (10, name(), 0, 39, Read, Held),
        (10, name(), 40, 59, Write, Held),
        (10, name(), 60, 99, Read, Held),
    ];
    assert_eq!(bench.held(), parted);
    // After the downgrade the three pieces are one again.
    bench.take(&a, request(Read, 40, 59));
    assert_eq!(bench.held(), [(10, name(), 0, 99, Read, Held)]);
    bench.take(&a, request(Read, 100, END));
    assert_eq!(bench.held(), [(10, name(), 0, END, Read, Held)]);
    bench.unlock(&a, 10, 19);
    bench.unlock(&a, 15, 24);
    bench.unlock(&a, 1000, END);
    let left = [(10, name(), 0, 9, Read, Held), (10, name(), 25, 999, Read, Held)];
    assert_eq!(bench.held(), left);
    bench.take(&a, request(Write, 5, 30));
    bench.take(&a, request(Write, 0, END));
    assert_eq!(bench.held(), [(10, name(), 0, END, Write, Held)]);
    bench.unlock(&a, 0, END);
    bench.unlock(&a, 0, END);
    assert_eq!(bench.actions(), []);
    bench.assert_empty();
}

#[test]
fn upgrades_conflict_with_other_owners_and_change_nothing_when_denied() {
    let mut bench = Bench::new(config());
    let (a, b) = (owner(1, "a"), owner(2, "b"));
    bench.take(&a, request(Read, 0, 9));
    bench.take(&b, request(Read, 5, 5));
    let before = bench.held();
    assert_eq!(bench.ask(&a, request(Write, 0, 9)), denied(&b, Read, 5, 5));
    assert_eq!(bench.held(), before);
    bench.take(&a, request(Write, 6, 9));
    bench.unlock(&b, 0, END);
    bench.take(&a, request(Write, 0, 9));
}

#[test]
fn a_lock_test_reports_the_conflict_that_a_lock_would_have() {
    let mut bench = Bench::new(config());
    let (a, b) = (owner(1, "a"), owner(2, "b"));
    bench.take(&a, request(Write, 10, 19));
    let test = |bench: &Bench, who: &LockOwner<'_>, offset, length, mode| {
        bench.table.test(who.name(), FILE, offset, length, mode)
    };
    let there = Ok(LockTestReply::Denied(conflict(&a, Write, 10, 19)));
    assert_eq!(test(&bench, &b, 0, 11, Read), there);
    assert_eq!(test(&bench, &b, 0, 10, Write), Ok(LockTestReply::Free));
    assert_eq!(test(&bench, &a, 0, END, Write), Ok(LockTestReply::Free));
    assert_eq!(test(&bench, &b, 5, 0, Read), Err(LockError::Range));
    assert_eq!(bench.table.counters().owners, 1);
}

#[test]
fn unsupported_ranges_and_options_are_refused() {
    let mut bench = Bench::new(config());
    let a = owner(1, "a");
    let empty = LockRequest { length: 0, ..request(Read, 0, 0) };
    let beyond = LockRequest { length: 2, ..request(Read, END, END) };
    assert_eq!(bench.refused(&a, empty), LockError::Range);
    assert_eq!(bench.refused(&a, beyond), LockError::Range);
    assert_eq!(bench.refused(&a, with(A, request(Read, 0, 0))), LockError::NotSupported);
    bench.assert_empty();

    let mut bench = Bench::new(LockConfig::default());
    for attributes in [P, A, PA] {
        let asked = with(attributes, request(Write, 0, END));
        assert_eq!(bench.refused(&a, asked), LockError::NotSupported);
    }
    let repair = claiming(Claim::Repair, request(Write, 0, END));
    assert_eq!(bench.refused(&a, repair), LockError::NotSupported);

    let whole = LockConfig { auto_recovery: AutoRecovery::WholeFile, ..config() };
    let mut bench = Bench::new(whole);
    assert_eq!(bench.refused(&a, with(A, request(Write, 1, END))), LockError::NotSupported);
    bench.take(&a, with(A, request(Write, 0, END)));
    assert_eq!(bench.table.unlock(a.name(), FILE, 0, 10, T0), Err(LockError::SubRange));
    assert_eq!(bench.table.abort(a.name(), FILE, 1, END), Err(LockError::SubRange));
    bench.unlock(&a, 0, END);
    bench.assert_empty();
}

#[test]
fn statuses_are_those_of_the_draft() {
    let errors = [
        (LockError::Range, Fault::Invalid),
        (LockError::Contradiction, Fault::Invalid),
        (LockError::NothingThere, Fault::Invalid),
        (LockError::OptionsDiffer, Fault::LockRange),
        (LockError::SubRange, Fault::LockRange),
        (LockError::NotSupported, Fault::NotSupported),
        (LockError::Resource, Fault::Limit),
        (LockError::Lost, Fault::Expired),
        (LockError::RollingBack, Fault::WouldWait),
    ];
    assert!(errors.iter().all(|(error, fault)| Fault::from(*error) == *fault));
    let conflict = conflict(&owner(1, "a"), Read, 0, 0);
    let waiting = LockReply::Waiting { position: 0, conflict: conflict.clone() };
    assert_eq!(LockReply::Granted.fault(), None);
    assert_eq!(LockReply::Denied(conflict.clone()).fault(), Some(Fault::Denied));
    assert_eq!(waiting.fault(), Some(Fault::Denied));
    assert_eq!(LockReply::Broken(conflict.clone()).fault(), Some(Fault::LockBroken));
    assert_eq!(LockReply::Deadlock(conflict).fault(), Some(Fault::Deadlock));
}

#[test]
fn records_and_undo_follow_the_ranges() {
    let mut bench = Bench::new(config());
    let a = owner(1, "a");
    let held = |id, attributes, first, last| {
        record(id, &a, attributes, ends(first, last), RecordPhase::Held)
    };
    // A grant: first the record, then the undo data.
    assert_eq!(bench.ask(&a, with(PA, request(Write, 0, 99))), LockReply::Granted);
    assert_eq!(bench.actions(), [write(held(1, PA, 0, 99)), keep_undo(0, 99)]);
    // An extension: one record grows, and undo data is kept for the new bytes.
    assert_eq!(bench.ask(&a, with(PA, request(Write, 50, 149))), LockReply::Granted);
    assert_eq!(bench.actions(), [write(held(1, PA, 0, 149)), keep_undo(100, 149)]);
    // A split: the new record first, then the old one shrinks; the middle is final.
    bench.unlock(&a, 40, 59);
    let expected = [write(held(2, PA, 60, 149)), write(held(1, PA, 0, 39)), drop_undo(40, 59)];
    assert_eq!(bench.actions(), expected);
    // A join: one record takes all, then the other is removed.
    assert_eq!(bench.ask(&a, with(PA, request(Write, 40, 59))), LockReply::Granted);
    assert_eq!(bench.actions(), [write(held(1, PA, 0, 149)), remove(2), keep_undo(40, 59)]);
    // Nothing new, so there is nothing to do.
    assert_eq!(bench.ask(&a, with(PA, request(Write, 10, 20))), LockReply::Granted);
    assert_eq!(bench.actions(), []);
    assert_eq!(bench.table.records(), [held(1, PA, 0, 149)]);
    bench.table.release_open(a.name(), FILE, T0);
    assert_eq!(bench.actions(), [remove(1), drop_undo(0, 149)]);
    bench.assert_empty();
}

#[test]
fn options_can_be_added_but_not_removed() {
    let mut bench = Bench::new(config());
    let a = owner(1, "a");
    let held = |id, attributes, first, last| {
        record(id, &a, attributes, ends(first, last), RecordPhase::Held)
    };
    bench.take(&a, request(Write, 0, 99));
    assert_eq!(bench.ask(&a, with(P, request(Write, 20, 39))), LockReply::Granted);
    assert_eq!(bench.actions(), [write(held(1, P, 20, 39))]);
    // Only part of the piece gets the option: the rest keeps its own record.
    assert_eq!(bench.ask(&a, with(PA, request(Write, 30, 49))), LockReply::Granted);
    let expected = [write(held(2, PA, 30, 49)), write(held(1, P, 20, 29)), keep_undo(30, 49)];
    assert_eq!(bench.actions(), expected);
    let before = bench.held();
    assert_eq!(before.len(), 4);
    for asked in [request(Write, 0, 20), with(P, request(Write, 29, 30)), request(Read, 49, 49)] {
        assert_eq!(bench.refused(&a, asked), LockError::OptionsDiffer);
    }
    let asked = with(A, request(Write, 25, 25));
    assert_eq!(bench.refused(&a, asked), LockError::OptionsDiffer);
    assert_eq!(bench.held(), before);
    // A downgrade keeps the record.
    assert_eq!(bench.ask(&a, with(P, request(Read, 20, 29))), LockReply::Granted);
    let shared = LockRecord { mode: Read, ..held(1, P, 20, 29) };
    assert_eq!(bench.actions(), [write(shared)]);
}

#[test]
fn limits_count_the_locks_that_a_request_adds() {
    let limited = LockConfig {
        locks_max: 6,
        locks_per_file_max: 5,
        locks_per_client_max: 4,
        locks_per_owner_max: 3,
        ..config()
    };
    let mut bench = Bench::new(limited);
    let (a, b, c) = (owner(1, "a"), owner(1, "b"), owner(2, "c"));
    bench.take(&a, request(Read, 0, 9));
    bench.take(&a, request(Read, 20, 29));
    bench.take(&a, request(Read, 40, 49));
    // One more lock of this owner: by a new lock, by an upgrade inside one, by a hole in one.
    assert_eq!(bench.refused(&a, request(Read, 60, 60)), LockError::Resource);
    assert_eq!(bench.refused(&a, request(Write, 5, 9)), LockError::Resource);
    let hole = bench.table.unlock(a.name(), FILE, 5, 1, T0);
    assert_eq!(hole, Err(LockError::Resource));
    // Joining or replacing locks adds none.
    bench.take(&a, request(Read, 10, 19));
    assert_eq!(bench.held().len(), 2);
    bench.take(&a, request(Write, 0, 9));
    bench.take(&b, request(Read, 60, 60));
    assert_eq!(bench.refused(&b, request(Read, 70, 70)), LockError::Resource);
    bench.take(&c, request(Read, 60, 60));
    assert_eq!(bench.refused(&c, request(Read, 70, 70)), LockError::Resource);
    let elsewhere = LockRequest { file: dafs_filer::FileKey(2), ..request(Read, 0, 0) };
    bench.take(&c, elsewhere);
    let third = LockRequest { file: dafs_filer::FileKey(3), ..request(Read, 0, 0) };
    assert_eq!(bench.refused(&c, third), LockError::Resource);
    assert_eq!(bench.table.counters().resource, 5);
}

#[test]
fn reads_and_writes_conflict_with_locks_of_other_owners() {
    let mut bench = Bench::new(config());
    let (a, b) = (owner(1, "a"), owner(2, "b"));
    let io = |bench: &Bench, state, offset, count, kind| {
        bench.table.check_io(FILE, state, offset, count, kind)
    };
    let (none, read, write) = (StateId::ANONYMOUS, IoKind::Read, IoKind::Write);
    assert_eq!(io(&bench, none, 0, 1, write), Ok(()));
    bench.take(&a, request(Read, 0, 9));
    bench.take(&a, request(Write, 10, 19));
    let cases = [
        // Under the shared lock.
        (none, 0, 10, read, Ok(())),
        (none, 9, 1, write, Err(Fault::RangeLocked)),
        (b.state, 0, 1, write, Err(Fault::RangeLocked)),
        (a.state, 0, 10, write, Ok(())),
        // Under the exclusive lock.
        (none, 10, 1, read, Err(Fault::RangeLocked)),
        (b.state, 0, 11, read, Err(Fault::RangeLocked)),
        (a.state, 0, 20, read, Ok(())),
        (a.state, 0, 20, write, Ok(())),
        // Beside both locks; an empty access; up to the end of all offsets.
        (b.state, 20, END, write, Ok(())),
        (b.state, 10, 0, write, Ok(())),
        (b.state, 19, END, read, Err(Fault::RangeLocked)),
    ];
    for (state, offset, count, kind, expected) in cases {
        assert_eq!(io(&bench, state, offset, count, kind), expected, "{offset} {count} {kind:?}");
    }
    // With two readers, neither may write.
    bench.take(&b, request(Read, 5, 5));
    assert_eq!(io(&bench, a.state, 0, 10, write), Err(Fault::RangeLocked));
    assert_eq!(io(&bench, a.state, 0, 5, write), Ok(()));
    let other = bench.table.check_io(dafs_filer::FileKey(9), none, 0, 1, write);
    assert_eq!(other, Ok(()));
}

#[test]
fn advisory_locks_only_block_writes_that_a_rollback_would_undo() {
    let mut bench = Bench::new(LockConfig { mandatory: false, ..config() });
    let (a, b) = (owner(1, "a"), owner(2, "b"));
    let io =
        |bench: &Bench, state, offset, kind| bench.table.check_io(FILE, state, offset, 1, kind);
    bench.take(&a, request(Write, 0, 9));
    bench.take(&a, with(A, request(Write, 10, 19)));
    bench.take(&a, with(P, request(Read, 20, 29)));
    bench.take(&b, with(P, request(Read, 20, 29)));
    assert_eq!(io(&bench, b.state, 0, IoKind::Write), Ok(()));
    assert_eq!(io(&bench, b.state, 10, IoKind::Read), Ok(()));
    assert_eq!(io(&bench, b.state, 10, IoKind::Write), Err(Fault::RangeLocked));
    assert_eq!(io(&bench, a.state, 10, IoKind::Write), Ok(()));
    assert_eq!(io(&bench, a.state, 20, IoKind::Write), Ok(()));
    // A broken range is still closed to all owners,
    bench.table.client_restarted(b.client.id, T0);
    assert_eq!(io(&bench, a.state, 20, IoKind::Write), Err(Fault::StaleState));
    assert_eq!(io(&bench, StateId::ANONYMOUS, 20, IoKind::Write), Err(Fault::RangeLocked));
    assert_eq!(io(&bench, a.state, 20, IoKind::Read), Ok(()));
    // and so is a range under rollback.
    bench.table.lease_expired(a.client.id, T0);
    assert_eq!(io(&bench, b.state, 10, IoKind::Read), Err(Fault::RangeLocked));
}

#[test]
fn a_write_gets_the_ranges_to_save_first() {
    let mut bench = Bench::new(config());
    let a = owner(1, "a");
    let undo = |bench: &Bench, offset, count| {
        let mut ranges = Vec::new();
        bench.table.undo_ranges(FILE, offset, count, |range| ranges.push(range));
        ranges
    };
    assert_eq!(undo(&bench, 0, END), []);
    bench.take(&a, request(Write, 0, 9));
    assert_eq!(undo(&bench, 0, END), []);
    bench.take(&a, with(A, request(Write, 10, 19)));
    bench.take(&a, with(PA, request(Write, 30, END)));
    assert_eq!(undo(&bench, 0, 10), []);
    assert_eq!(undo(&bench, 0, 11), [ends(10, 10)]);
    assert_eq!(undo(&bench, 15, 100), [ends(15, 19), ends(30, 114)]);
    assert_eq!(undo(&bench, 15, 0), []);
    bench.unlock(&a, 0, END);
    assert_eq!(undo(&bench, 0, END), []);
}

#[test]
fn owners_and_clients_leave_in_good_order() {
    let mut bench = Bench::new(config());
    let (a, b, c) = (owner(1, "a"), owner(1, "b"), owner(2, "c"));
    let elsewhere = LockRequest { file: dafs_filer::FileKey(2), ..request(Write, 0, 9) };
    bench.take(&a, with(P, request(Write, 0, 9)));
    bench.take(&a, elsewhere);
    bench.take(&b, request(Write, 10, 19));
    let waits = bench.ask(&c, parked(1, request(Write, 0, 9)));
    assert!(matches!(waits, LockReply::Waiting { position: 0, .. }));
    bench.table.release_owner(a.name(), T0);
    assert_eq!(bench.actions(), [remove(1), ready(1)]);
    assert_eq!(bench.held().len(), 1);
    bench.table.release_client(b.client.id, T0);
    bench.table.release_client(c.client.id, T0);
    assert_eq!(bench.actions(), [gone(1)]);
    bench.table.release_client(c.client.id, T0);
    bench.assert_empty();
}

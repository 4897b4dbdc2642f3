//! Fences: the effect of each change, when it is complete, and what it leaves on stable storage.

use std::collections::{BTreeMap, BTreeSet};

use crate::dice::*;
use dafs_filer::*;
use dafs_ops::Fault;
use dafs_types::*;

const TRUSTED: FenceAuthority = FenceAuthority { is_owner: false, is_trusted: true };
const OWNER: FenceAuthority = FenceAuthority { is_owner: true, is_trusted: false };

fn file(number: u8) -> FileHandle {
    FileHandle::new(FsHandle([number / 10; 16]), [number + 1; 48])
}

fn id(text: &str) -> FenceId {
    FenceId::new(text).unwrap()
}

fn ids(text: &str) -> Vec<FenceId> {
    text.split_whitespace().map(id).collect()
}

struct Bench {
    table: FenceTable,
    running: Vec<(OperationId, FenceId, FileHandle)>,
}

impl Bench {
    fn new() -> Self {
        Self { table: FenceTable::new(FenceLimits::default()), running: Vec::new() }
    }

    fn enter(&mut self, operation: u64, fence_id: &str, file: FileHandle) -> Result<(), Fault> {
        self.table.enter(&id(fence_id), &file)?;
        self.running.push((OperationId(operation), id(fence_id), file));
        Ok(())
    }

    fn leave(&mut self, operation: u64) {
        self.running.retain(|running| running.0 != OperationId(operation));
        self.table.leave(OperationId(operation));
    }

    fn set(
        &mut self,
        request: u64,
        object: FencedObject,
        access: FenceAccess,
        update: FenceUpdate,
        fence_ids: &str,
    ) -> Result<usize, Fault> {
        let fence_ids = ids(fence_ids);
        let change = FenceChange { object, access, update, fence_ids: &fence_ids };
        let running = self.running.iter().map(|(operation, fence_id, file)| RunningOperation {
            operation: *operation,
            fence_id,
            file,
        });
        self.table.set(FenceRequest(request), &change, TRUSTED, running)
    }

    /// Sets a list and completes the change.
    fn fence(&mut self, object: FencedObject, fence_ids: &str) {
        self.set(99, object, FenceAccess::Allow, FenceUpdate::Overwrite, fence_ids).unwrap();
        let stores = self.stores();
        assert_eq!(stores.len(), 1);
        self.table.stored(stores[0].0, true);
        let completed = FenceAction::Completed { request: FenceRequest(99) };
        assert_eq!(self.actions(), [completed]);
    }

    fn actions(&mut self) -> Vec<FenceAction> {
        std::iter::from_fn(|| self.table.poll_action()).collect()
    }

    /// Returns the actions, which must all be stores.
    fn stores(&mut self) -> Vec<(FenceStoreId, FenceRecord)> {
        let store = |action| match action {
            FenceAction::Store { id, record } => (id, record),
            other => panic!("{other:?}"),
        };
        self.actions().into_iter().map(store).collect()
    }
}

const FS: FencedObject = FencedObject::FileSystem(FsHandle([0; 16]));

#[test]
fn without_a_fence_every_operation_enters() {
    let mut bench = Bench::new();
    assert!(bench.table.is_idle());
    assert_eq!(bench.enter(1, "a", file(1)), Ok(()));
    assert_eq!(bench.enter(2, "", file(1)), Ok(()));
    bench.leave(1);
    bench.leave(1);
    assert_eq!(bench.table.counters(), FenceCounters::default());
}

#[test]
fn a_denial_blocks_at_once_and_completes_when_stored_and_drained() {
    use FenceAccess::Deny;
    for is_stored_first in [true, false] {
        let mut bench = Bench::new();
        let object = FencedObject::File(file(1));
        bench.fence(object, "a b");
        for (operation, fence_id) in [(1, "a"), (2, "b"), (3, "b")] {
            bench.enter(operation, fence_id, file(1)).unwrap();
        }
        bench.enter(4, "b", file(2)).unwrap();
        assert_eq!(bench.set(7, object, Deny, FenceUpdate::Remove, "b"), Ok(2));
        let waits: Vec<_> = bench.table.waits_for(FenceRequest(7)).collect();
        assert_eq!(waits, [OperationId(2), OperationId(3)]);
        let stores = bench.stores();
        let record = FenceRecord { object, fence_ids: ids("a").into() };
        assert_eq!(stores, [(FenceStoreId(1), record)]);
        assert_eq!(bench.enter(5, "b", file(1)), Err(Fault::Fenced));
        assert_eq!(bench.enter(6, "a", file(1)), Ok(()));
        if is_stored_first {
            bench.table.stored(stores[0].0, true);
        }
        bench.leave(4);
        bench.leave(2);
        assert_eq!(bench.actions(), []);
        bench.leave(3);
        if !is_stored_first {
            assert_eq!(bench.actions(), []);
            bench.table.stored(stores[0].0, true);
        }
        let completed = FenceAction::Completed { request: FenceRequest(7) };
        assert_eq!(bench.actions(), [completed]);
        assert_eq!(bench.enter(5, "b", file(1)), Err(Fault::Fenced));
        assert_eq!(bench.table.list(&object, OWNER), Ok(&ids("a")[..]));
        let counters = FenceCounters {
            objects: 1,
            bytes: 1,
            changing: 0,
            draining: 0,
            completed: 2,
            failed: 0,
            refused: 0,
            drained: 2,
            fenced_out: 2,
        };
        assert_eq!(bench.table.counters(), counters);
    }
}

#[test]
fn an_operation_that_continues_under_another_id_is_waited_for() {
    let mut bench = Bench::new();
    let object = FencedObject::File(file(1));
    bench.enter(1, "a", file(1)).unwrap();
    let waits = bench.set(1, object, FenceAccess::Allow, FenceUpdate::Overwrite, "b").unwrap();
    assert_eq!(waits, 1);
    bench.table.pass_on(OperationId(1), OperationId(2));
    bench.leave(1);
    assert_eq!(bench.table.waits_for(FenceRequest(1)).collect::<Vec<_>>(), [OperationId(2)]);
    bench.leave(2);
    assert_eq!(bench.table.waits_for(FenceRequest(1)).count(), 0);
}

#[test]
fn operations_from_before_the_first_fence_are_drained() {
    let mut bench = Bench::new();
    for (operation, fence_id) in [(1, "a"), (2, "b"), (3, "")] {
        bench.enter(operation, fence_id, file(1)).unwrap();
    }
    // A RENAME touches two files but ends once.
    bench.running.push((OperationId(2), id("b"), file(2)));
    let update = FenceUpdate::Overwrite;
    assert_eq!(bench.set(1, FS, FenceAccess::Allow, update, "a"), Ok(2));
    assert_eq!(bench.enter(4, "b", file(3)), Err(Fault::Fenced));
    assert_eq!(bench.enter(4, "b", file(13)), Ok(()));
    let stores = bench.stores();
    bench.table.stored(stores[0].0, true);
    bench.leave(2);
    assert_eq!(bench.actions(), []);
    bench.leave(3);
    assert_eq!(bench.actions(), [FenceAction::Completed { request: FenceRequest(1) }]);
}

#[test]
fn an_admitted_session_waits_until_the_change_is_certain() {
    let mut bench = Bench::new();
    bench.fence(FS, "a");
    bench.set(1, FS, FenceAccess::Allow, FenceUpdate::Append, "b").unwrap();
    assert_eq!(bench.enter(1, "b", file(1)), Err(Fault::Fenced));
    let stores = bench.stores();
    bench.table.stored(stores[0].0, true);
    assert_eq!(bench.actions(), [FenceAction::Completed { request: FenceRequest(1) }]);
    assert_eq!(bench.enter(1, "b", file(1)), Ok(()));
    // Lifting the fence admits all sessions, and leaves no record behind.
    bench.fence(FS, "");
    assert!(bench.table.is_idle());
    assert_eq!(bench.enter(2, "", file(1)), Ok(()));
    assert_eq!(bench.table.counters().bytes, 0);
}

#[test]
fn a_change_that_cannot_be_stored_has_no_effect() {
    let mut bench = Bench::new();
    bench.enter(1, "a", file(1)).unwrap();
    assert_eq!(bench.set(1, FS, FenceAccess::Allow, FenceUpdate::Overwrite, "b"), Ok(1));
    let stores = bench.stores();
    bench.table.stored(stores[0].0, false);
    let failed = FenceAction::Failed { request: FenceRequest(1), fault: Fault::Io };
    assert_eq!(bench.actions(), [failed]);
    assert!(bench.table.is_idle());
    assert_eq!(bench.table.counters().draining, 0);
    bench.leave(1);
    // The same list is stored again, because it is unknown what the first attempt left behind.
    bench.fence(FS, "b");
    assert_eq!(bench.enter(1, "a", file(1)), Err(Fault::Fenced));
}

#[test]
fn a_file_and_its_file_system_must_both_admit_a_session() {
    let mut bench = Bench::new();
    bench.fence(FencedObject::File(file(1)), "a b");
    bench.fence(FS, "b c");
    let verdicts = ["a", "b", "c", ""].map(|fence_id| bench.enter(1, fence_id, file(1)).is_ok());
    assert_eq!(verdicts, [false, true, false, false]);
    assert_eq!(bench.enter(1, "c", file(2)), Ok(()));
}

#[test]
fn rights_to_ask_and_to_change() {
    let mut bench = Bench::new();
    let nobody = FenceAuthority::default();
    let of_file = FencedObject::File(file(1));
    let rows = [(of_file, nobody, false), (of_file, OWNER, true), (of_file, TRUSTED, true)];
    let fs_rows = [(FS, nobody, false), (FS, OWNER, false), (FS, TRUSTED, true)];
    for (object, authority, may) in rows.into_iter().chain(fs_rows) {
        let fence_ids = ids("a");
        let (access, update) = (FenceAccess::Allow, FenceUpdate::Overwrite);
        let change = FenceChange { object, access, update, fence_ids: &fence_ids };
        let outcome = bench.table.set(FenceRequest(1), &change, authority, []);
        assert_eq!(outcome.is_ok(), may);
        assert_eq!(bench.table.list(&object, authority).is_ok(), may);
        for (store, _) in bench.stores() {
            bench.table.stored(store, true);
            bench.actions();
        }
    }
    assert_eq!(bench.table.list(&FS, OWNER), Err(Fault::NotAuthorized));
    assert_eq!(bench.table.counters().refused, 3);
}

#[test]
fn one_change_of_an_object_at_a_time() {
    let mut bench = Bench::new();
    let (allow, over) = (FenceAccess::Allow, FenceUpdate::Overwrite);
    bench.set(1, FS, allow, over, "a").unwrap();
    assert_eq!(bench.set(2, FS, allow, over, "b"), Err(Fault::WouldWait));
    bench.set(3, FencedObject::File(file(1)), allow, over, "b").unwrap();
    assert_eq!(bench.table.counters().changing, 2);
}

#[test]
fn the_handle_tells_a_file_from_a_file_system() {
    let fs = FsHandle([3; 16]);
    let handle = FileHandle::new(fs, [0; 48]);
    assert_eq!(FencedObject::asked_for(&handle), FencedObject::FileSystem(fs));
    assert_eq!(FencedObject::asked_for(&file(1)), FencedObject::File(file(1)));
    let named = FencedObject::named(&file(1), FenceObject::FileSystem);
    assert_eq!(named, FencedObject::FileSystem(file(1).fs()));
}

#[test]
fn a_removed_file_takes_its_fence_along() {
    let mut bench = Bench::new();
    let object = FencedObject::File(file(1));
    bench.fence(object, "a");
    bench.enter(1, "a", file(1)).unwrap();
    let (allow, over) = (FenceAccess::Allow, FenceUpdate::Overwrite);
    assert_eq!(bench.set(5, object, allow, over, "b"), Ok(1));
    let stores = bench.stores();
    bench.table.file_removed(&file(1));
    let failed = FenceAction::Failed { request: FenceRequest(5), fault: Fault::Stale };
    let record = FenceRecord { object, fence_ids: Box::default() };
    let store = FenceAction::Store { id: FenceStoreId(2), record };
    assert_eq!(bench.actions(), [failed, store]);
    // A late report about a change that has ended.
    bench.table.stored(stores[0].0, true);
    bench.table.stored(FenceStoreId(2), true);
    bench.leave(1);
    assert_eq!(bench.actions(), []);
    assert!(bench.table.is_idle());
    assert_eq!(bench.table.counters().bytes, 0);
    bench.table.file_removed(&file(1));
    assert_eq!(bench.actions(), []);
}

#[test]
fn nothing_grows_beyond_its_limit() {
    let limits = FenceLimits { lists_max: 2, ids_per_list_max: 3, bytes_max: 8, changes_max: 2 };
    let mut bench = Bench { table: FenceTable::new(limits), running: Vec::new() };
    let (allow, over) = (FenceAccess::Allow, FenceUpdate::Overwrite);
    let object = |number| FencedObject::File(file(number));
    assert_eq!(bench.set(1, FS, allow, over, "a b c d"), Err(Fault::Limit));
    assert_eq!(bench.set(1, FS, allow, over, "123456789"), Err(Fault::Limit));
    bench.fence(FS, "a b c");
    let more = bench.set(1, FS, allow, FenceUpdate::Append, "d");
    assert_eq!(more, Err(Fault::Limit));
    bench.fence(object(1), "abcde");
    assert_eq!(bench.set(1, object(2), allow, over, "a"), Err(Fault::Limit));
    // The old list is counted until the new one is in force, but lifting a fence is always
    // possible.
    assert_eq!(bench.set(1, FS, allow, over, "a"), Err(Fault::Limit));
    bench.fence(FS, "");
    assert_eq!(bench.set(1, object(3), allow, over, "a"), Ok(0));
    assert_eq!(bench.set(2, object(4), allow, over, ""), Ok(0));
    assert_eq!(bench.set(3, object(5), allow, over, ""), Err(Fault::WouldWait));
}

#[test]
fn restored_lists_are_in_force_or_the_server_must_not_start() {
    let record = |number, text| FenceRecord {
        object: FencedObject::File(file(number)),
        fence_ids: ids(text).into(),
    };
    let limits = FenceLimits { lists_max: 2, ..FenceLimits::default() };
    let restored = |records: &[FenceRecord]| {
        let mut table = FenceTable::new(limits.clone());
        table.restore(records.iter().cloned()).map(|()| table)
    };
    let mut table = restored(&[record(1, "b a"), record(2, "c")]).unwrap();
    assert_eq!(table.enter(&id("c"), &file(1)), Err(Fault::Fenced));
    assert_eq!(table.enter(&id("c"), &file(2)), Ok(()));
    let shown: Vec<_> = table.iter().collect();
    assert_eq!(shown[0].fence_ids, &ids("a b")[..]);
    assert_eq!((shown[1].object, shown[1].change), (FencedObject::File(file(2)), None));
    let object = FencedObject::File(file(1));
    let twice = [record(1, "a"), record(1, "b")];
    assert_eq!(restored(&twice).unwrap_err(), FenceRestoreError::Twice(object));
    assert_eq!(restored(&[record(1, "")]).unwrap_err(), FenceRestoreError::Empty(object));
    let many = [record(2, "a"), record(3, "a"), record(1, "b")];
    assert_eq!(restored(&many).unwrap_err(), FenceRestoreError::TooMany(object));
}

// ---- The model -------------------------------------------------------------------------

/// An open list is an empty set.
type List = BTreeSet<&'static str>;

const IDS: [&str; 4] = ["", "a", "b", "c"];
const FILES: [u8; 3] = [1, 2, 11];

struct Pending {
    object: FencedObject,
    next: List,
    store: FenceStoreId,
    is_stored: bool,
}

#[derive(Default)]
struct Model {
    lists: BTreeMap<FencedObject, List>,
    pending: BTreeMap<FenceRequest, Pending>,
    running: Vec<(u64, &'static str, u8)>,
    /// Records that are still to be stored.
    unstored: Vec<(FenceStoreId, FenceRecord)>,
    disk: BTreeMap<FencedObject, Box<[FenceId]>>,
    count: u64,
}

fn lets_in(list: &List, fence_id: &str) -> bool {
    list.is_empty() || list.contains(fence_id)
}

impl Model {
    fn list(&self, object: &FencedObject) -> List {
        self.lists.get(object).cloned().unwrap_or_default()
    }

    fn allows(&self, fence_id: &str, number: u8) -> bool {
        let covers = |object: &FencedObject| object.covers(&file(number));
        let now = self.lists.iter().filter(|(object, _)| covers(object)).map(|(_, list)| list);
        let next = self.pending.values().filter(|p| covers(&p.object)).map(|p| &p.next);
        now.chain(next).all(|list| lets_in(list, fence_id))
    }

    /// Returns true if the change waits for nothing.
    fn is_due(&self, pending: &Pending) -> bool {
        let stays = |&(_, fence_id, number): &(u64, &str, u8)| {
            pending.object.covers(&file(number)) && !lets_in(&pending.next, fence_id)
        };
        pending.is_stored && !self.running.iter().any(stays)
    }

    fn expected(
        &self,
        object: &FencedObject,
        change: (FenceAccess, FenceUpdate),
        given: &List,
    ) -> Option<List> {
        let list = self.list(object);
        if given.contains("") {
            return None;
        }
        let rest: List = list.difference(given).copied().collect();
        match change {
            (FenceAccess::Allow, FenceUpdate::Overwrite) => Some(given.clone()),
            (FenceAccess::Allow, FenceUpdate::Append) => Some(list.union(given).copied().collect()),
            (FenceAccess::Deny, FenceUpdate::Append | FenceUpdate::Remove) => {
                (!rest.is_empty() || given.is_empty()).then_some(rest)
            }
            _ => None,
        }
    }
}

fn objects() -> [FencedObject; 5] {
    let fs = |number| FencedObject::FileSystem(FsHandle([number; 16]));
    let [a, b, c] = FILES.map(|number| FencedObject::File(file(number)));
    [a, b, c, fs(0), fs(1)]
}

fn step(bench: &mut Bench, model: &mut Model, random: &mut Random) {
    match random.below(20) {
        0..6 => {
            model.count += 1;
            let (fence_id, number) = (pick(random, &IDS), pick(random, &FILES));
            let entered = bench.enter(model.count, fence_id, file(number));
            assert_eq!(entered.is_ok(), model.allows(fence_id, number));
            if entered.is_ok() {
                model.running.push((model.count, fence_id, number));
            }
        }
        6..11 if !model.running.is_empty() => {
            let (operation, ..) = model.running.swap_remove(random.below(model.running.len()));
            bench.leave(operation);
        }
        11..15 => set(bench, model, random),
        15..19 if !model.unstored.is_empty() => {
            let at = random.below(model.unstored.len());
            // Records of one object are stored in order.
            let object = model.unstored[at].1.object;
            let at = model.unstored.iter().position(|(_, r)| r.object == object).unwrap();
            let (store, record) = model.unstored.remove(at);
            store_record(bench, model, store, record, random.percent(80));
        }
        19 => remove_file(bench, model, pick(random, &FILES)),
        _ => {}
    }
}

fn set(bench: &mut Bench, model: &mut Model, random: &mut Random) {
    model.count += 1;
    let object = pick(random, &objects());
    let access = pick(random, FenceAccess::ALL);
    let update = pick(random, FenceUpdate::ALL);
    let from = usize::from(!random.percent(5));
    let given: List = IDS[from..].iter().filter(|_| random.percent(45)).copied().collect();
    let request = FenceRequest(model.count);
    let fence_ids: Vec<_> = given.iter().map(|text| id(text)).collect();
    let change = FenceChange { object, access, update, fence_ids: &fence_ids };
    let running = bench.running.iter().map(|(operation, fence_id, file)| RunningOperation {
        operation: *operation,
        fence_id,
        file,
    });
    let outcome = bench.table.set(request, &change, TRUSTED, running);
    if model.pending.values().any(|pending| pending.object == object) {
        assert_eq!(outcome, Err(Fault::WouldWait));
        return;
    }
    let Some(next) = model.expected(&object, (access, update), &given) else {
        assert_eq!(outcome, Err(Fault::Invalid));
        return;
    };
    assert!(outcome.is_ok());
    let stores = bench.stores();
    assert_eq!(stores.len(), 1);
    let store = stores[0].0;
    model.unstored.extend(stores);
    model.pending.insert(request, Pending { object, next, store, is_stored: false });
}

fn store_record(
    bench: &mut Bench,
    model: &mut Model,
    store: FenceStoreId,
    record: FenceRecord,
    is_stable: bool,
) {
    let of = model.pending.iter().find(|(_, p)| p.store == store).map(|(&request, _)| request);
    // An erasure has no request that could fail; it is retried until it succeeds.
    if is_stable || of.is_none() {
        model.disk.insert(record.object, record.fence_ids);
    }
    bench.table.stored(store, is_stable);
    match of.and_then(|request| model.pending.get_mut(&request)) {
        Some(pending) if is_stable => pending.is_stored = true,
        Some(_) => {
            let request = of.unwrap();
            model.pending.remove(&request);
            let failed = FenceAction::Failed { request, fault: Fault::Io };
            assert_eq!(bench.actions(), [failed]);
        }
        None => {}
    }
}

fn remove_file(bench: &mut Bench, model: &mut Model, number: u8) {
    let object = FencedObject::File(file(number));
    bench.table.file_removed(&file(number));
    model.lists.remove(&object);
    let gone = model.pending.iter().find(|(_, p)| p.object == object).map(|(&r, _)| r);
    for action in bench.actions() {
        match action {
            FenceAction::Store { id, record } => model.unstored.push((id, record)),
            FenceAction::Failed { request, fault: status } => {
                assert_eq!((Some(request), status), (gone, Fault::Stale));
                model.pending.remove(&request);
            }
            FenceAction::Completed { .. } => panic!("a deleted file was fenced"),
        }
    }
    assert!(model.pending.values().all(|pending| pending.object != object));
}

/// Checks the completions: exactly those changes that are due.
fn settle(bench: &mut Bench, model: &mut Model) {
    let is_due = |(_, pending): &(&FenceRequest, &Pending)| model.is_due(pending);
    let due: BTreeSet<_> = model.pending.iter().filter(is_due).map(|(&r, _)| r).collect();
    let mut completed = BTreeSet::new();
    for action in bench.actions() {
        let FenceAction::Completed { request } = action else { panic!("{action:?}") };
        completed.insert(request);
        let Pending { object, next, .. } = model.pending.remove(&request).unwrap();
        let stored: Vec<_> = model.disk[&object].iter().map(FenceId::as_str).collect();
        assert_eq!(stored, next.iter().copied().collect::<Vec<_>>());
        if next.is_empty() {
            model.lists.remove(&object);
        } else {
            model.lists.insert(object, next);
        }
    }
    assert_eq!(completed, due);
}

fn check(bench: &mut Bench, model: &Model) {
    for number in FILES {
        for fence_id in IDS {
            let verdict = bench.table.enter(&id(fence_id), &file(number));
            assert_eq!(verdict.is_ok(), model.allows(fence_id, number), "{fence_id} {number}");
        }
    }
    // Every running operation is admitted, or a change waits for it.
    for &(operation, fence_id, number) in &model.running {
        let is_waited_for = model.pending.keys().any(|&request| {
            bench.table.waits_for(request).any(|waited| waited == OperationId(operation))
        });
        assert_eq!(is_waited_for, !model.allows(fence_id, number));
    }
    assert_eq!(bench.table.is_idle(), model.lists.is_empty() && model.pending.is_empty());
}

#[test]
fn no_excluded_operation_runs_or_enters_after_a_fence_is_complete() {
    for_seeds("no_excluded_operation_runs_or_enters_after_a_fence_is_complete", 300, |random| {
        let (mut bench, mut model) = (Bench::new(), Model::default());
        for _ in 0..200 {
            step(&mut bench, &mut model, random);
            settle(&mut bench, &mut model);
            check(&mut bench, &model);
        }
        for (operation, ..) in std::mem::take(&mut model.running) {
            bench.leave(operation);
        }
        for (store, record) in std::mem::take(&mut model.unstored) {
            store_record(&mut bench, &mut model, store, record, true);
        }
        settle(&mut bench, &mut model);
        assert!(model.pending.is_empty());
        check(&mut bench, &model);
        let bytes: usize = model.lists.values().flatten().map(|text| text.len()).sum();
        let counters = bench.table.counters();
        assert_eq!((counters.bytes, counters.changing), (bytes as u64, 0));
        assert_eq!(counters.draining, 0);
        // A new server finds the same fences.
        let mut restored = FenceTable::new(FenceLimits::default());
        let kept = model.disk.iter().filter(|(_, fence_ids)| !fence_ids.is_empty());
        let records =
            kept.map(|(&object, fence_ids)| FenceRecord { object, fence_ids: fence_ids.clone() });
        restored.restore(records).unwrap();
        assert_eq!(restored.iter().collect::<Vec<_>>(), bench.table.iter().collect::<Vec<_>>());
    });
}

//! Errors without a crash: what was done, what the caller was told, and that each takes effect
//! once.

use dafs_sim::disk::{CrashStore, Fault, FaultEffect, FaultOn};
use dafs_store::{AttributeChanges, NewNode, Store, StoreError};

use super::tools::{
    count, create, create_directory, disk, find, open, read, read_handle, top, who, write,
};

const SEEDS: u64 = 100;

fn inject(store: &CrashStore, on: FaultOn, skip: u64, effect: FaultEffect) {
    store.inject(Fault { on, skip, error: StoreError::NoSpace, effect });
}

#[test]
fn the_nth_write_fails_and_no_other() {
    let store = disk();
    let file = create(&store, &top(&store), "f").unwrap();
    inject(&store, FaultOn::Write, 2, FaultEffect::Before);
    inject(&store, FaultOn::Write, 3, FaultEffect::After);
    assert_eq!(write(&*file, b"a", 0), Ok(()));
    assert_eq!(write(&*file, b"b", 1), Ok(()));
    assert_eq!(write(&*file, b"c", 2), Err(StoreError::NoSpace));
    assert_eq!(read(&*file), b"ab");
    assert_eq!(write(&*file, b"d", 2), Err(StoreError::NoSpace));
    assert_eq!(read(&*file), b"abd");
    assert_eq!(write(&*file, b"e", 3), Ok(()));
    assert_eq!(store.faults_waiting(), 0);
}

#[test]
fn a_write_can_stop_in_the_middle() {
    let store = disk();
    let file = create(&store, &top(&store), "f").unwrap();
    write(&*file, &[1; 10_000], 0).unwrap();
    inject(&store, FaultOn::Write, 0, FaultEffect::Part(450));
    assert_eq!(write(&*file, &[2; 20_000], 0), Err(StoreError::NoSpace));
    assert_eq!(read(&*file), [vec![2; 9_000], vec![1; 1_000]].concat());
    inject(&store, FaultOn::Write, 0, FaultEffect::Part(500));
    assert_eq!(write(&*file, &[3; 2_000], 9_500), Err(StoreError::NoSpace));
    assert_eq!(read(&*file).len(), 10_500);
}

#[test]
fn a_change_of_size_is_done_or_not() {
    for (effect, size) in
        [(FaultEffect::Before, 3), (FaultEffect::Part(500), 3), (FaultEffect::After, 1)]
    {
        let store = disk();
        let file = create(&store, &top(&store), "f").unwrap();
        write(&*file, b"abc", 0).unwrap();
        inject(&store, FaultOn::Write, 0, effect);
        assert_eq!(file.set_size(1), Err(StoreError::NoSpace));
        assert_eq!(file.attributes().unwrap().size, size, "{effect:?}");
    }
}

#[test]
fn a_sync_that_fails_has_done_nothing_or_all() {
    for effect in [FaultEffect::Before, FaultEffect::After] {
        let whole = count(SEEDS, |_, random| {
            let store = disk();
            let file = create(&store, &top(&store), "f").unwrap();
            write(&*file, b"bytes", 0).unwrap();
            inject(&store, FaultOn::Sync, 0, effect);
            assert_eq!(file.sync(false), Err(StoreError::NoSpace));
            store.power_loss(random);
            let found = find(&store, &top(&store), "f");
            found.is_some_and(|found| read_handle(&store, &found) == b"bytes")
        });
        if effect == FaultEffect::After {
            assert_eq!(whole, SEEDS);
        } else {
            assert!((1..SEEDS).contains(&whole), "{whole}");
        }
    }
    for (effect, kept_always) in [(FaultEffect::Before, false), (FaultEffect::After, true)] {
        let kept = count(SEEDS, |_, random| {
            let store = disk();
            create(&store, &top(&store), "f").unwrap();
            inject(&store, FaultOn::Sync, 0, effect);
            assert_eq!(store.sync(&top(&store)), Err(StoreError::NoSpace));
            store.power_loss(random);
            find(&store, &top(&store), "f").is_some()
        });
        assert_eq!(kept == SEEDS, kept_always, "{effect:?}: {kept}");
    }
}

#[test]
fn a_sync_after_a_failed_one_succeeds_without_writing_the_blocks() {
    for seed in 0..SEEDS {
        let (store, mut random) = (disk(), dafs_sim::Random::new(seed));
        let file = create(&store, &top(&store), "f").unwrap();
        write(&*file, &[1; 4 * 4096], 0).unwrap();
        inject(&store, FaultOn::Sync, 0, FaultEffect::Part(500));
        assert_eq!(file.sync(false), Err(StoreError::NoSpace));
        assert_eq!(file.sync(false), Ok(()));
        assert_eq!(read(&*file), [1; 4 * 4096], "processes still see all of it");
        // A caller that repeats unacknowledged writes is safe.
        write(&*file, &[2; 4096], 2 * 4096).unwrap();
        file.sync(false).unwrap();
        store.power_loss(&mut random);
        let left = read_handle(&store, &file.handle());
        assert_eq!(left, [[1; 4096], [1; 4096], [2; 4096], [0; 4096]].concat(), "seed {seed}");
    }
}

#[test]
fn every_operation_on_names_can_fail_before_and_after() {
    type Act = fn(&CrashStore) -> Option<StoreError>;
    let acts: [Act; 7] = [
        |store| create(store, &top(store), "new").err(),
        |store| {
            let none = AttributeChanges::default();
            let node = NewNode::SymbolicLink(b"text");
            store.create_node(&who(), &top(store), b"new", node, &none).err()
        },
        |store| store.remove(&who(), &top(store), b"f").err(),
        |store| store.remove(&who(), &top(store), b"d").err(),
        |store| store.rename(&who(), &top(store), b"f", &top(store), b"g").err(),
        |store| {
            let f = find(store, &top(store), "f").unwrap();
            store.link(&who(), &f, &top(store), b"new").err()
        },
        |store| {
            let mode = AttributeChanges { mode: Some(0o123), ..AttributeChanges::default() };
            store.set_attributes(&who(), &top(store), &mode).err()
        },
    ];
    for (index, act) in acts.iter().enumerate() {
        for (effect, is_done) in [
            (FaultEffect::Before, false),
            (FaultEffect::Part(900), false),
            (FaultEffect::After, true),
        ] {
            let store = disk();
            create(&store, &top(&store), "f").unwrap();
            create(&store, &top(&store), "g").unwrap();
            create_directory(&store, &top(&store), "d");
            let before = store.attributes(&who(), &top(&store)).unwrap().change;
            inject(&store, FaultOn::Name, 0, effect);
            assert_eq!(act(&store), Some(StoreError::NoSpace), "{index} {effect:?}");
            let after = store.attributes(&who(), &top(&store)).unwrap().change;
            assert_eq!(before != after, is_done, "{index} {effect:?}");
            assert_eq!(store.faults_waiting(), 0);
        }
    }
}

#[test]
fn a_failed_creation_without_a_name_leaves_nothing() {
    let store = disk();
    inject(&store, FaultOn::Name, 0, FaultEffect::After);
    let none = AttributeChanges::default();
    let made = store.create_unlinked(&who(), &top(&store), &none);
    assert_eq!(made.err(), Some(StoreError::NoSpace));
    let space = store.fs_attributes(&who(), &top(&store)).unwrap();
    assert_eq!(space.files_free.map(|free| free + 1), space.files_total, "the root alone");
    assert!(store.create_unlinked(&who(), &top(&store), &none).is_ok());
}

#[test]
fn faults_of_a_seed_are_of_all_kinds_and_wait_for_their_operation() {
    let (mut effects, mut sorts) = ([0; 3], [0; 3]);
    count(SEEDS, |_, random| {
        let fault = Fault::draw(random, 5);
        assert!(fault.skip < 5);
        effects[match fault.effect {
            FaultEffect::Before => 0,
            FaultEffect::After => 1,
            FaultEffect::Part(_) => 2,
        }] += 1;
        sorts[fault.on as usize] += 1;
        true
    });
    assert!(effects.iter().chain(&sorts).all(|times| *times > 10), "{effects:?} {sorts:?}");
    let store = disk();
    inject(&store, FaultOn::Sync, 0, FaultEffect::Before);
    let file = create(&store, &top(&store), "f").unwrap();
    assert_eq!(write(&*file, b"x", 0), Ok(()));
    store.kill();
    assert_eq!(store.faults_waiting(), 1, "a fault belongs to the disk, not to the process");
    let file = open(&store, &file.handle()).unwrap();
    assert_eq!(file.sync(true), Err(StoreError::NoSpace));
    inject(&store, FaultOn::Sync, 0, FaultEffect::Before);
    store.clear_faults();
    assert_eq!(file.sync(true), Ok(()));
}

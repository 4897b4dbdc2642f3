//! Every guarantee in both directions: what must survive always survives, and what may be lost is
//! lost for some seeds.

use dafs_sim::Random;
use dafs_sim::disk::{CrashStore, Pending};
use dafs_store::{AttributeChanges, Store, StoreError};
use dafs_types::{CreateMode, FileHandle, Moment, ShareAccess, Timestamp, Verifier};

use super::tools::{
    count, create, create_directory, disk, find, list, open, read, read_handle, top, who, write,
};

const SEEDS: u64 = 200;
const BLOCK: usize = 4096;
const SECTOR: usize = 512;

/// Makes a durable file with a name and these bytes.
fn durable(store: &CrashStore, name: &str, bytes: &[u8]) -> FileHandle {
    let top = top(store);
    let file = create(store, &top, name).unwrap();
    write(&*file, bytes, 0).unwrap();
    file.sync(false).unwrap();
    store.sync(&top).unwrap();
    file.handle()
}

fn sometimes(times: u64) {
    assert!((1..SEEDS).contains(&times), "{times} of {SEEDS}");
}

fn names(store: &CrashStore) -> Vec<String> {
    list(store, &top(store)).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_synced_file_survives_with_its_name_and_its_bytes() {
    for data_only in [false, true] {
        let whole = count(SEEDS, |seed, random| {
            let store = disk();
            let file = create(&store, &top(&store), "f").unwrap();
            let bytes = random.bytes(10_000);
            write(&*file, &bytes, 0).unwrap();
            file.sync(data_only).unwrap();
            store.power_loss(random);
            let found = find(&store, &top(&store), "f").unwrap_or_else(|| panic!("seed {seed}"));
            found == file.handle() && read_handle(&store, &found) == bytes
        });
        assert_eq!(whole, SEEDS);
    }
}

#[test]
fn an_unsynced_file_may_be_gone_short_empty_or_torn() {
    let (mut gone, mut short, mut whole, mut zeros, mut torn) = (0, 0, 0, 0, 0);
    for seed in 0..SEEDS {
        let (store, mut random) = (disk(), Random::new(seed));
        let bytes = vec![7; 3 * BLOCK];
        let file = create(&store, &top(&store), "f").unwrap();
        write(&*file, &bytes, 0).unwrap();
        store.power_loss(&mut random);
        let Some(found) = find(&store, &top(&store), "f") else {
            gone += 1;
            continue;
        };
        let left = read_handle(&store, &found);
        assert!(left.len().is_multiple_of(BLOCK), "seed {seed}");
        for sector in left.chunks(SECTOR) {
            assert!(sector == [0; SECTOR] || sector == [7; SECTOR], "seed {seed}");
        }
        short += u64::from(left.len() < bytes.len());
        whole += u64::from(left == bytes);
        zeros += u64::from(left == vec![0; bytes.len()]);
        let is_torn = |block: &[u8]| block.contains(&0) && block.contains(&7);
        torn += u64::from(left.chunks(BLOCK).any(is_torn));
    }
    for times in [gone, short, whole, zeros, torn] {
        sometimes(times);
    }
}

#[test]
fn a_synced_directory_keeps_its_names_and_not_their_bytes() {
    let whole = count(SEEDS, |seed, random| {
        let store = disk();
        let file = create(&store, &top(&store), "f").unwrap();
        write(&*file, b"bytes", 0).unwrap();
        let last = create(&store, &top(&store), "g").unwrap();
        store.sync(&top(&store)).unwrap();
        store.power_loss(random);
        assert_eq!(names(&store), ["f", "g"], "seed {seed}");
        assert_eq!(find(&store, &top(&store), "g"), Some(last.handle()));
        read_handle(&store, &file.handle()) == b"bytes"
    });
    sometimes(whole);
}

#[test]
fn operations_survive_in_order() {
    let all = ["a", "b", "c", "d"];
    let mut left = [0; 5];
    for seed in 0..SEEDS {
        let (store, mut random) = (disk(), Random::new(seed));
        let directories = ["x", "y"].map(|name| create_directory(&store, &top(&store), name));
        store.sync(&directories[1]).unwrap();
        for (index, name) in all.iter().enumerate() {
            create(&store, &directories[index % 2], name).unwrap();
        }
        store.power_loss(&mut random);
        let is_there =
            |(index, name): (usize, &&str)| find(&store, &directories[index % 2], name).is_some();
        let there: Vec<bool> = all.iter().enumerate().map(is_there).collect();
        let length = there.iter().take_while(|is_there| **is_there).count();
        assert!(there[length..].iter().all(|is_there| !is_there), "seed {seed}: {there:?}");
        left[length] += 1;
    }
    assert!(left.iter().all(|times| *times > 0), "{left:?}");
}

#[test]
fn a_sync_writes_everything_before_it_and_nothing_after() {
    let after = count(SEEDS, |seed, random| {
        let store = disk();
        let elsewhere = create_directory(&store, &top(&store), "elsewhere");
        create(&store, &elsewhere, "before").unwrap();
        let file = create(&store, &top(&store), "f").unwrap();
        create(&store, &elsewhere, "after").unwrap();
        store.sync(&file.handle()).unwrap();
        store.power_loss(random);
        assert!(find(&store, &elsewhere, "before").is_some(), "seed {seed}");
        find(&store, &elsewhere, "after").is_some()
    });
    sometimes(after);
}

#[test]
fn overwritten_blocks_survive_independently_in_whole_sectors() {
    let mut fates = [[0; 3]; 2];
    for seed in 0..SEEDS {
        let (store, mut random) = (disk(), Random::new(seed));
        let handle = durable(&store, "f", &[1; 3 * BLOCK]);
        let file = open(&store, &handle).unwrap();
        // The end of one block, the whole of the next, nothing of the last.
        write(&*file, &[2; BLOCK + 100], (BLOCK - 100) as u64).unwrap();
        store.power_loss(&mut random);
        let left = read_handle(&store, &handle);
        assert_eq!(left[..BLOCK - SECTOR], [1; BLOCK - SECTOR], "seed {seed}");
        assert_eq!(left[2 * BLOCK..], [1; BLOCK], "seed {seed}");
        let new = [(&left[BLOCK - 100..BLOCK]), &left[BLOCK..2 * BLOCK]];
        for (fates, new) in fates.iter_mut().zip(new) {
            let has = |byte| usize::from(new.contains(&byte));
            fates[has(1) * 2 + has(2) - 1] += 1;
        }
        for sector in left[BLOCK..].chunks(SECTOR) {
            assert!(sector == [1; SECTOR] || sector == [2; SECTOR], "seed {seed}");
        }
    }
    // New; old; or a mix, which is impossible for a hundred bytes in one sector.
    let [small, whole] = fates;
    assert!(small[0] > 0 && small[1] > 0 && small[2] == 0, "{fates:?}");
    assert!(whole.iter().all(|times| *times > 0), "{fates:?}");
}

#[test]
fn a_rename_is_whole_or_not_at_all() {
    let renamed = count(SEEDS, |seed, random| {
        let store = disk();
        let (new, old) = (durable(&store, "new", b"new"), durable(&store, "f", b"old"));
        store.rename(&who(), &top(&store), b"new", &top(&store), b"f").unwrap();
        store.power_loss(random);
        let found = find(&store, &top(&store), "f");
        let is_renamed = find(&store, &top(&store), "new").is_none();
        assert_eq!(found, Some(if is_renamed { new } else { old }), "seed {seed}");
        let bytes: &[u8] = if is_renamed { b"new" } else { b"old" };
        assert_eq!(read_handle(&store, &found.unwrap()), bytes, "seed {seed}");
        let victim = store.attributes(&who(), &old);
        assert_eq!(victim.is_err(), is_renamed, "seed {seed}");
        is_renamed
    });
    sometimes(renamed);
}

#[test]
fn a_file_renamed_before_its_bytes_were_synced_may_be_empty_under_its_new_name() {
    for syncs_first in [true, false] {
        let new = count(SEEDS, |seed, random| {
            let store = disk();
            durable(&store, "f", b"old");
            let file = create(&store, &top(&store), "new").unwrap();
            write(&*file, b"new", 0).unwrap();
            if syncs_first {
                file.sync(true).unwrap();
            }
            store.rename(&who(), &top(&store), b"new", &top(&store), b"f").unwrap();
            store.sync(&top(&store)).unwrap();
            store.power_loss(random);
            let left = read_handle(&store, &find(&store, &top(&store), "f").unwrap());
            assert!(left == b"new" || left == [0; 3], "seed {seed}: {left:?}");
            left == b"new"
        });
        if syncs_first {
            assert_eq!(new, SEEDS);
        } else {
            sometimes(new);
        }
    }
}

#[test]
fn a_sync_of_data_alone_may_leave_other_metadata_behind() {
    for data_only in [true, false] {
        let changed = count(SEEDS, |seed, random| {
            let store = disk();
            let handle = durable(&store, "f", b"old");
            let file = open(&store, &handle).unwrap();
            write(&*file, b"longer", 0).unwrap();
            let mode = AttributeChanges { mode: Some(0o444), ..AttributeChanges::default() };
            store.set_attributes(&who(), &handle, &mode).unwrap();
            store.link(&who(), &handle, &top(&store), b"g").unwrap();
            file.sync(data_only).unwrap();
            store.power_loss(random);
            assert_eq!(read_handle(&store, &handle), b"longer", "seed {seed}");
            let found = store.attributes(&who(), &handle).unwrap();
            let has_name = find(&store, &top(&store), "g").is_some();
            assert_eq!(found.link_count, 1 + u32::from(has_name));
            found.mode == 0o444 && has_name
        });
        if data_only {
            sometimes(changed);
        } else {
            assert_eq!(changed, SEEDS);
        }
    }
}

#[test]
fn truncated_data_comes_back_only_with_the_earlier_size() {
    let (mut old, mut cut, mut grown) = (0, 0, 0);
    for seed in 0..SEEDS {
        let (store, mut random) = (disk(), Random::new(seed));
        let handle = durable(&store, "f", &[1; 3 * BLOCK]);
        let file = open(&store, &handle).unwrap();
        file.set_size(100).unwrap();
        file.set_size(2 * BLOCK as u64).unwrap();
        assert_eq!(read(&*file)[100..], [0; 2 * BLOCK - 100]);
        store.power_loss(&mut random);
        let left = read_handle(&store, &handle);
        assert_eq!(left[..100], [1; 100], "seed {seed}");
        match left.len() {
            // The block that is kept may have been written without its end.
            12_288 => {
                assert_eq!(left[BLOCK..], [1; 2 * BLOCK], "seed {seed}");
                old += 1;
            }
            100 => cut += 1,
            8192 => {
                assert_eq!(left[100..], [0; 2 * BLOCK - 100], "seed {seed}");
                grown += 1;
            }
            other => panic!("seed {seed}: {other} bytes"),
        }
    }
    for times in [old, cut, grown] {
        sometimes(times);
    }
}

#[test]
fn synced_data_written_after_a_truncation_survives_a_late_journal() {
    let whole = count(SEEDS, |_, random| {
        let store = disk();
        let handle = durable(&store, "f", &[1; 300]);
        let file = open(&store, &handle).unwrap();
        file.set_size(100).unwrap();
        write(&*file, &[2; 200], 100).unwrap();
        // The block may be written to the disk long before the journal.
        store.settle(random);
        file.sync(true).unwrap();
        store.power_loss(random);
        read_handle(&store, &handle) == [[1; 100], [2; 100], [2; 100]].concat()
    });
    assert_eq!(whole, SEEDS);
}

#[test]
fn nothing_shows_another_files_bytes() {
    for seed in 0..SEEDS {
        let (store, mut random) = (disk(), Random::new(seed));
        durable(&store, "secret", &[9; 4 * BLOCK]);
        store.remove(&who(), &top(&store), b"secret").unwrap();
        if seed % 2 == 0 {
            store.sync(&top(&store)).unwrap();
        }
        let file = create(&store, &top(&store), "f").unwrap();
        write(&*file, &[1; 4 * BLOCK], 0).unwrap();
        file.set_size(5 * BLOCK as u64).unwrap();
        store.power_loss(&mut random);
        if let Some(found) = find(&store, &top(&store), "f") {
            assert!(!read_handle(&store, &found).contains(&9), "seed {seed}");
        }
    }
}

#[test]
fn a_write_into_a_hole_is_lost_or_not_until_it_is_synced() {
    for syncs in [false, true] {
        let written = count(SEEDS, |seed, random| {
            let store = disk();
            let handle = durable(&store, "f", &[]);
            let file = open(&store, &handle).unwrap();
            file.set_size(10 * BLOCK as u64).unwrap();
            file.sync(false).unwrap();
            write(&*file, &[5; BLOCK], 3 * BLOCK as u64).unwrap();
            if syncs {
                file.sync(true).unwrap();
            }
            store.power_loss(random);
            let left = read_handle(&store, &handle);
            assert_eq!(left.len(), 10 * BLOCK, "seed {seed}");
            assert!(left[..3 * BLOCK].iter().chain(&left[4 * BLOCK..]).all(|byte| *byte == 0));
            left[3 * BLOCK..4 * BLOCK] == [5; BLOCK]
        });
        if syncs {
            assert_eq!(written, SEEDS);
        } else {
            sometimes(written);
        }
    }
}

#[test]
fn a_kill_loses_only_objects_without_a_name() {
    let store = disk();
    let file = create(&store, &top(&store), "f").unwrap();
    write(&*file, b"bytes", 0).unwrap();
    let removed = create(&store, &top(&store), "g").unwrap();
    store.remove(&who(), &top(&store), b"g").unwrap();
    let none = AttributeChanges::default();
    let unlinked = store.create_unlinked(&who(), &top(&store), &none).unwrap().1;
    let linked = store.create_unlinked(&who(), &top(&store), &none).unwrap().1;
    store.link(&who(), &linked.handle(), &top(&store), b"h").unwrap();
    store.kill();
    for file in [&file, &removed, &unlinked, &linked] {
        assert_eq!(file.attributes().err(), Some(StoreError::Stale));
        assert_eq!(write(&**file, b"x", 0), Err(StoreError::Stale));
        assert_eq!(file.sync(false), Err(StoreError::Stale));
        assert_eq!(file.set_size(0), Err(StoreError::Stale));
    }
    for file in [&removed, &unlinked] {
        assert_eq!(store.attributes(&who(), &file.handle()).err(), Some(StoreError::Stale));
    }
    assert_eq!(names(&store), ["f", "h"]);
    let again = open(&store, &file.handle()).unwrap();
    assert_eq!((read(&*again), again.key()), (b"bytes".to_vec(), file.key()));
    // The end of an open from before the crash closes none of the present opens.
    store.remove(&who(), &top(&store), b"f").unwrap();
    drop(file);
    assert_eq!(read(&*again), b"bytes");
}

#[test]
fn a_power_failure_may_lose_unsynced_data_of_a_killed_process() {
    let kept = count(SEEDS, |_, random| {
        let store = disk();
        let file = create(&store, &top(&store), "f").unwrap();
        write(&*file, b"bytes", 0).unwrap();
        store.kill();
        store.power_loss(random);
        let found = find(&store, &top(&store), "f");
        found.is_some_and(|found| read_handle(&store, &found) == b"bytes")
    });
    sometimes(kept);
}

#[test]
fn an_object_without_a_name_does_not_survive_a_power_failure_even_if_synced() {
    for seed in 0..SEEDS {
        let (store, mut random) = (disk(), Random::new(seed));
        let none = AttributeChanges::default();
        let unlinked = store.create_unlinked(&who(), &top(&store), &none).unwrap().1;
        write(&*unlinked, &[1; 1000], 0).unwrap();
        unlinked.sync(false).unwrap();
        let removed = open(&store, &durable(&store, "f", b"bytes")).unwrap();
        store.remove(&who(), &top(&store), b"f").unwrap();
        removed.sync(false).unwrap();
        store.power_loss(&mut random);
        for file in [unlinked, removed] {
            assert_eq!(file.attributes().err(), Some(StoreError::Stale));
            let found = store.attributes(&who(), &file.handle());
            assert_eq!(found.err(), Some(StoreError::Stale), "seed {seed}");
        }
        let space = store.fs_attributes(&who(), &top(&store)).unwrap();
        assert_eq!(space.space_free, space.space_total);
    }
}

#[test]
fn handles_of_survivors_stay_valid_and_lost_ones_are_never_reused() {
    let lost = count(SEEDS, |seed, random| {
        let store = disk();
        let kept = durable(&store, "kept", b"bytes");
        let key = open(&store, &kept).unwrap().key();
        let number = store.attributes(&who(), &kept).unwrap().file_id;
        let fresh = create(&store, &top(&store), "fresh").unwrap();
        store.power_loss(random);
        assert_eq!(find(&store, &top(&store), "kept"), Some(kept), "seed {seed}");
        assert_eq!(open(&store, &kept).unwrap().key(), key);
        assert_eq!(store.attributes(&who(), &kept).unwrap().file_id, number);
        let is_lost = find(&store, &top(&store), "fresh").is_none();
        let next = create(&store, &top(&store), "next").unwrap();
        assert!(next.handle() != fresh.handle() && next.key() != fresh.key(), "seed {seed}");
        let expected = if is_lost { Some(StoreError::Stale) } else { None };
        assert_eq!(store.attributes(&who(), &fresh.handle()).err(), expected, "seed {seed}");
        is_lost
    });
    sometimes(lost);
}

#[test]
fn the_kernel_writes_data_back_and_that_data_survives() {
    let written = count(SEEDS, |_, random| {
        let store = disk();
        let file = create(&store, &top(&store), "f").unwrap();
        write(&*file, &[3; 2 * BLOCK], 0).unwrap();
        for _ in 0..3 {
            store.settle(random);
        }
        let is_written = store.pending() == Pending::default();
        store.power_loss(random);
        if is_written {
            let found = find(&store, &top(&store), "f").unwrap();
            assert_eq!(read_handle(&store, &found), [3; 2 * BLOCK]);
        }
        is_written
    });
    sometimes(written);
}

#[test]
fn bytes_between_two_write_backs_can_be_what_a_crash_leaves() {
    let middle = count(SEEDS, |_, random| {
        let store = disk();
        let handle = durable(&store, "f", &[1; 100]);
        let file = open(&store, &handle).unwrap();
        write(&*file, &[2; 100], 0).unwrap();
        store.settle(random);
        write(&*file, &[3; 100], 0).unwrap();
        store.power_loss(random);
        read_handle(&store, &handle) == [2; 100]
    });
    sometimes(middle);
}

#[test]
fn a_full_journal_writes_its_oldest_operation() {
    let store = disk();
    create(&store, &top(&store), "oldest").unwrap();
    let file = create(&store, &top(&store), "f").unwrap();
    for _ in 0..10_000 {
        write(&*file, b"x", 0).unwrap();
    }
    assert!(store.pending().operations < 5_000);
    for seed in 0..SEEDS {
        store.power_loss(&mut Random::new(seed));
        assert_eq!(names(&store)[0], "oldest");
    }
}

#[test]
fn time_stamps_come_from_the_given_clock_and_are_durable() {
    let store = disk();
    store.set_time(Moment(5_000_000_007));
    let file = create(&store, &top(&store), "f").unwrap();
    let made = file.attributes().unwrap();
    let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
    assert_eq!(made.time_create, Some(at(1_000_000_005, 7)));
    write(&*file, b"x", 0).unwrap();
    let written = file.attributes().unwrap();
    assert!(written.change > made.change && written.time_modify > made.time_modify);
    file.sync(false).unwrap();
    store.set_time(Moment(9_000_000_000));
    write(&*file, b"y", 0).unwrap();
    assert_eq!(file.attributes().unwrap().time_modify, at(1_000_000_009, 0));
    let kept = count(SEEDS, |_, random| {
        let store = disk();
        let file = create(&store, &top(&store), "f").unwrap();
        file.sync(false).unwrap();
        let synced = file.attributes().unwrap();
        store.set_time(Moment(1_000_000_000));
        write(&*file, b"x", 0).unwrap();
        let written = file.attributes().unwrap();
        store.power_loss(random);
        let left = store.attributes(&who(), &file.handle()).unwrap();
        assert!(left == synced || left == written, "{left:?}");
        left == written
    });
    sometimes(kept);
}

#[test]
fn a_synced_exclusive_creation_is_recognized_after_a_crash() {
    for seed in 0..SEEDS {
        let (store, mut random) = (disk(), Random::new(seed));
        let again = |store: &CrashStore, verifier| {
            let (mode, none) = (CreateMode::Exclusive(Verifier(verifier)), Default::default());
            store.create_file(&who(), &top(store), b"f", mode, &none, ShareAccess::Both)
        };
        let (made, file) = again(&store, *b"verifier").unwrap();
        file.sync(false).unwrap();
        store.power_loss(&mut random);
        let (found, _file) = again(&store, *b"verifier").unwrap();
        assert!(!found.is_new && found.object.handle == made.object.handle, "seed {seed}");
        assert_eq!(again(&store, *b"another1").err(), Some(StoreError::Exists));
    }
}

//! Watches: owners are told when a lock that was denied can be taken.

use std::time::Duration;

use crate::locks_common::*;
use dafs_filer::FileKey;
use dafs_filer::locks::*;
use dafs_types::*;

const HANDLE: FileHandle = FileHandle([7; 64]);

fn watch(bench: &mut Bench, owner: &LockOwner<'_>, request: LockRequest, word: u64) -> bool {
    let until = T0.after(Duration::from_secs(90));
    bench.table.watch(owner.name(), &request, LockWatch { handle: HANDLE, word, until })
}

/// Asks for a lock that must be denied, and watches it.
fn ask_and_watch(bench: &mut Bench, owner: &LockOwner<'_>, request: LockRequest, word: u64) {
    assert!(matches!(bench.ask(owner, request), LockReply::Denied(_)));
    assert!(watch(bench, owner, request, word));
    assert_eq!(bench.actions(), []);
}

fn free(owner: &LockOwner<'_>, word: u64) -> LockAction {
    let (client, owner) = (owner.client.id, owner.owner.into());
    LockAction::Free { client, owner, handle: HANDLE, word }
}

#[test]
fn an_owner_is_told_once_and_only_when_nothing_stands_against_its_lock() {
    let mut bench = Bench::new(config());
    let [a, b, c, d] = [owner(1, "a"), owner(2, "b"), owner(3, "c"), owner(4, "d")];
    bench.take(&a, request(Write, 0, 9));
    bench.take(&b, request(Read, 20, 29));
    ask_and_watch(&mut bench, &c, request(Write, 5, 24), 1);
    ask_and_watch(&mut bench, &d, request(Read, 9, 24), 2);
    bench.unlock(&a, 0, 4);
    assert_eq!(bench.actions(), []);
    bench.unlock(&a, 5, 9);
    // The shared lock stands against the exclusive lock alone.
    assert_eq!(bench.actions(), [free(&d, 2)]);
    bench.take(&d, request(Read, 9, 24));
    bench.unlock(&b, 0, END);
    assert_eq!(bench.actions(), []);
    bench.unlock(&d, 0, END);
    assert_eq!(bench.actions(), [free(&c, 1)]);
    // Nothing is reserved for an owner that was told, and it is told no more.
    bench.take(&a, request(Write, 0, END));
    bench.unlock(&a, 0, END);
    assert_eq!(bench.actions(), []);
    bench.assert_empty();
}

#[test]
fn all_who_watch_are_told_after_those_who_wait() {
    let mut bench = Bench::new(config());
    let [a, b, c, d] = [owner(1, "a"), owner(2, "b"), owner(3, "c"), owner(4, "d")];
    bench.take(&a, request(Write, 0, 9));
    ask_and_watch(&mut bench, &b, request(Write, 0, 9), 1);
    bench.ask(&c, parked(5, request(Write, 0, 9)));
    ask_and_watch(&mut bench, &d, request(Write, 0, 9), 2);
    bench.unlock(&a, 0, END);
    assert_eq!(bench.actions(), [ready(5)]);
    bench.take(&c, request(Write, 0, 9));
    bench.table.lease_expired(c.client.id, T0);
    assert_eq!(bench.actions(), [free(&b, 1), free(&d, 2)]);
}

#[test]
fn a_repeated_watch_replaces_the_first_one_and_a_late_one_ends() {
    let mut bench = Bench::new(config());
    let [a, b] = [owner(1, "a"), owner(2, "b")];
    bench.take(&a, request(Write, 0, 9));
    ask_and_watch(&mut bench, &b, request(Write, 0, 9), 1);
    ask_and_watch(&mut bench, &b, request(Write, 0, 9), 2);
    bench.unlock(&a, 0, END);
    assert_eq!(bench.actions(), [free(&b, 2)]);
    bench.take(&a, request(Write, 0, 9));
    ask_and_watch(&mut bench, &b, request(Write, 0, 9), 3);
    bench.table.on_tick(T0.after(Duration::from_secs(89)));
    bench.table.on_tick(T0.after(Duration::from_secs(90)));
    bench.unlock(&a, 0, END);
    assert_eq!(bench.actions(), []);
}

#[test]
fn watches_are_limited_for_a_file_and_for_a_client() {
    let mut bench = Bench::new(config());
    let a = owner(1, "a");
    let at =
        |file: u64, first: u64| LockRequest { file: FileKey(file), ..request(Write, first, first) };
    let mut watch_all = |client: u8, files: std::ops::Range<u64>, of_file: u64| {
        let b = owner(client, "b");
        let mut taken = 0;
        for file in files {
            bench.take(&a, LockRequest { file: FileKey(file), ..request(Write, 0, END) });
            taken +=
                (0..of_file).filter(|first| watch(&mut bench, &b, at(file, *first), 0)).count();
        }
        taken
    };
    assert_eq!(watch_all(2, 0..1, 100), 64, "of a file");
    assert_eq!(watch_all(3, 1..100, 10), 256, "of a client");
    // What has ended makes room.
    bench.table.on_tick(T0.after(Duration::from_secs(90)));
    assert!(watch(&mut bench, &owner(3, "b"), at(0, 0), 0));
}

//! Objects read in part, as streams, and while others replace them.

use std::ops::Range;

use bytes::Bytes;
use dafs_object_store::Durability;
use dafs_types::Random;
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt};

use crate::server::{Served, TRANSPORTS, Transport};

fn content(seed: u64, length: usize) -> Bytes {
    Random::new(seed).bytes(length).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_ranges_are_read_as_they_were_written() {
    let served = Served::start();
    for transport in TRANSPORTS {
        let builder = served.builder(transport, "/").with_connections(2);
        let store = builder.with_durability(Durability::Server).build().unwrap();
        for (seed, length) in [(1, 1), (2, 300 << 10), (3, 23 << 20)] {
            let (path, bytes) = (Path::from("x"), content(seed, length));
            store.put(&path, bytes.clone().into()).await.unwrap();
            let got = store.get(&path).await.unwrap();
            assert_eq!(got.meta.size, length as u64);
            assert!(got.bytes().await.unwrap() == bytes, "{transport:?} {length}");
            let mut random = Random::new(seed);
            let mut range = || {
                let start = random.below(length);
                let longest = 1 << random.below(24);
                let end = start + 1 + random.below((length - start).min(longest));
                start as u64..end as u64
            };
            let ranges: Vec<Range<u64>> = (0..40).map(|_| range()).collect();
            let read = store.get_ranges(&path, &ranges).await.unwrap();
            for (range, read) in ranges.iter().zip(read) {
                let expected = &bytes[range.start as usize..range.end as usize];
                assert!(read == expected, "{transport:?} {range:?} of {length}");
            }
            for range in ranges.iter().take(8) {
                let read = store.get_range(&path, range.clone()).await.unwrap();
                assert!(read == bytes[range.start as usize..range.end as usize], "{range:?}");
                let suffix = GetOptions::new().with_range(Some(GetRange::Suffix(range.end)));
                let read = store.get_opts(&path, suffix).await.unwrap().bytes().await.unwrap();
                assert!(read == bytes[length - range.end as usize..], "{range:?}");
            }
            let behind = length as u64..length as u64 + 1;
            store.get_range(&path, behind.clone()).await.unwrap_err();
            store.get_ranges(&path, &[behind]).await.unwrap_err();
            #[expect(clippy::single_range_in_vec_init)]
            let cut = store.get_ranges(&path, &[0..u64::MAX]).await.unwrap();
            assert!(cut[0] == bytes);
        }
        let error = store.get_ranges(&Path::from("none"), &[]).await;
        assert!(error.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_sees_one_version_though_the_object_is_replaced_and_deleted() {
    let served = Served::start();
    for transport in TRANSPORTS {
        let store = served.store(transport, "/");
        let (path, first) = (Path::from("d/x"), content(4, 12 << 20));
        let old = store.put(&path, first.clone().into()).await.unwrap();
        let got = store.get(&path).await.unwrap();
        let stale = store.get(&path).await.unwrap().into_stream();
        let mut stream = got.into_stream();
        let mut read = stream.next().await.unwrap().unwrap().to_vec();
        let new = store.put(&path, content(5, 3 << 20).into()).await.unwrap();
        assert_ne!(old.e_tag, new.e_tag);
        store.delete(&path).await.unwrap();
        while let Some(piece) = stream.next().await {
            read.extend_from_slice(&piece.unwrap());
        }
        assert!(read == first, "{transport:?}");
        drop(stale);
        let error = store.get(&path).await.unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_see_whole_objects_while_writers_replace_them() {
    let served = Served::start();
    let path = Path::from("x");
    let length = 3 << 20;
    let whole = move |fill: u8| Bytes::from(vec![fill; length]);
    let first = served.store(Transport::SharedMemory, "/");
    first.put(&path, whole(0).into()).await.unwrap();
    let writers = TRANSPORTS.map(|transport| {
        let (store, path) = (served.store(transport, "/"), path.clone());
        tokio::spawn(async move {
            for fill in 1..15 {
                store.put(&path, whole(fill).into()).await.unwrap();
            }
        })
    });
    let readers = TRANSPORTS.map(|transport| {
        let (store, path) = (served.store(transport, "/"), path.clone());
        tokio::spawn(async move {
            for _ in 0..20 {
                let bytes = store.get(&path).await.unwrap().bytes().await.unwrap();
                assert_eq!(bytes.len(), length);
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "two versions in one");
            }
        })
    });
    for task in writers.into_iter().chain(readers) {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_given_up_leave_nothing_behind() {
    let served = Served::start();
    let store = served.store(Transport::SharedMemory, "/");
    let path = Path::from("x");
    store.put(&path, content(6, 8 << 20).into()).await.unwrap();
    // More than there are permits.
    for _ in 0..300 {
        let mut get = Box::pin(store.get(&path));
        let _ = futures_util::poll!(&mut get);
        let mut put = Box::pin(store.put(&path, "y".into()));
        let _ = futures_util::poll!(&mut put);
    }
    let got = store.get(&path).await.unwrap();
    assert!(got.meta.size == 1 || got.meta.size == 8 << 20);
    // A put that was given up is done or not, and none is left half done.
    store.put(&path, "z".into()).await.unwrap();
    assert!(served.temporary_files().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_callers_than_permits_get_on() {
    let served = Served::start();
    let store = served.store(Transport::SharedMemory, "/");
    let (path, bytes) = (Path::from("x"), content(7, 17 << 20));
    store.put(&path, bytes.clone().into()).await.unwrap();
    // Two batches each, by more callers than there are permits.
    let whole = 0..17 << 20;
    let ranges = std::slice::from_ref(&whole);
    let wide = futures_util::stream::iter(0..100).map(|_| store.get_ranges(&path, ranges));
    let mut wide = wide.buffer_unordered(70);
    while let Some(read) = wide.next().await {
        assert!(read.unwrap()[0] == bytes);
    }
}

#[test]
fn a_store_needs_no_executor_of_tokio() {
    let served = Served::start();
    let store = served.store(Transport::SharedMemory, "/");
    let path = Path::from("x");
    futures_executor::block_on(async {
        store.connect().await.unwrap();
        store.put(&path, "text".into()).await.unwrap();
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "text");
    });
}

/// A merge of many objects reads from each of them in turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_held_and_not_read_hold_up_nobody() {
    let served = Served::start();
    for transport in TRANSPORTS {
        let store = served.store(transport, "/");
        let long = content(1, 9 << 20);
        let path = Path::from("long");
        store.put(&path, long.clone().into()).await.unwrap();
        for directory in 0..20 {
            let empty = Path::from(format!("tree/{directory:02}/x"));
            store.put(&empty, "".into()).await.unwrap();
        }
        let work = async {
            let (mut gets, mut lists) = (Vec::new(), Vec::new());
            for _ in 0..100 {
                let mut get = store.get(&path).await.unwrap().into_stream();
                let mut list = store.list(Some(&Path::from("tree")));
                for _ in 0..2 {
                    get.next().await.unwrap().unwrap();
                    list.next().await.unwrap().unwrap();
                }
                gets.push(get);
                lists.push(list);
            }
            store.put(&Path::from("short"), "x".into()).await.unwrap();
            assert_eq!(lists.pop().unwrap().count().await, 18);
            // The rest of it is as it was, whichever way its bytes came.
            let mut rest = Vec::new();
            for piece in gets.pop().unwrap().collect::<Vec<_>>().await {
                rest.extend(piece.unwrap());
            }
            assert!(long.ends_with(&rest) && rest.len() > 4 << 20);
        };
        let limit = std::time::Duration::from_secs(90);
        tokio::time::timeout(limit, work).await.expect("the store stands still");
    }
}

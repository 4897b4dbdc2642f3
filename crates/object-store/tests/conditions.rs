//! Conditional puts, deletes and renames, by many clients at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use dafs_client::{Client, ClientConfig, DeleteDisposition, Location, OpenOptions, SessionOptions};
use dafs_object_store::DafsStore;
use dafs_types::Random;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};

use crate::server::{Served, TRANSPORTS, Transport};

/// Stores of one directory, over both transports, with several connections.
fn stores(served: &Served, count: usize) -> Vec<DafsStore> {
    let transport = |index: usize| TRANSPORTS[index % TRANSPORTS.len()];
    (0..count).map(|index| served.store(transport(index), "/shared")).collect()
}

fn version(e_tag: Option<String>) -> PutMode {
    PutMode::Update(UpdateVersion { e_tag, version: None })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_updates_of_one_version_one_succeeds() {
    let served = Served::start();
    let stores = stores(&served, 6);
    let path = Path::from("counter");
    let mut e_tag = stores[0].put(&path, "start".into()).await.unwrap().e_tag;
    for round in 0..20 {
        let updates = stores.iter().enumerate().map(|(index, store)| {
            let (path, mode) = (&path, version(e_tag.clone()));
            let text = format!("{round}: {index}");
            async move {
                store.put_opts(path, text.clone().into(), mode.into()).await.map(|put| (put, text))
            }
        });
        let outcomes = futures_util::future::join_all(updates).await;
        let mut won = Vec::new();
        for outcome in outcomes {
            match outcome {
                Ok(update) => won.push(update),
                Err(error) => assert!(matches!(error, Error::Precondition { .. }), "{error}"),
            }
        }
        assert_eq!(won.len(), 1, "round {round}: {won:?}");
        let (put, text) = won.pop().unwrap();
        let got = stores[round % stores.len()].get(&path).await.unwrap();
        assert_eq!(got.meta.e_tag, put.e_tag);
        assert_eq!(got.bytes().await.unwrap(), text);
        e_tag = put.e_tag;
    }
    assert!(served.temporary_files().is_empty());
}

/// Creates and deletes are counted: an update that brought back what was deleted, or a put that
/// went over what was created, would be found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_neither_bring_back_nor_go_over_anything() {
    let served = Served::start();
    let path = Path::from("a/b/contended");
    let count = Arc::new(AtomicI64::new(0));
    let workers = stores(&served, 5).into_iter().enumerate().map(|(index, store)| {
        let (path, count) = (path.clone(), count.clone());
        tokio::spawn(async move {
            let mut random = Random::new(index as u64);
            for step in 0..60 {
                let text = format!("{index}.{step}");
                let tagged = store.head(&path).await;
                let outcome = match random.below(4) {
                    0 => store
                        .put_opts(&path, text.into(), PutMode::Create.into())
                        .await
                        .map(|_| count.fetch_add(1, Ordering::SeqCst)),
                    1 => store.delete(&path).await.map(|()| count.fetch_sub(1, Ordering::SeqCst)),
                    _ => match tagged {
                        Ok(meta) => {
                            let mode = version(meta.e_tag);
                            store.put_opts(&path, text.into(), mode.into()).await.map(|_| 0)
                        }
                        Err(error) => Err(error),
                    },
                };
                if let Err(error) = outcome {
                    let is_expected = matches!(
                        error,
                        Error::Precondition { .. }
                            | Error::AlreadyExists { .. }
                            | Error::NotFound { .. }
                    );
                    assert!(is_expected, "{error:?}");
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let store = served.store(Transport::SharedMemory, "/shared");
    let exists = store.head(&path).await.is_ok();
    assert_eq!(count.load(Ordering::SeqCst), i64::from(exists));
    assert!(served.temporary_files().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renames_lose_and_double_no_object() {
    let served = Served::start();
    let stores = stores(&served, 4);
    let slot = |number: usize| Path::from(format!("d{}/slot{number}", number % 3));
    for number in 0..4 {
        let path = slot(number);
        stores[0].put(&path, format!("object {number}").into()).await.unwrap();
    }
    let workers = stores.iter().cloned().enumerate().map(|(index, store)| {
        tokio::spawn(async move {
            let mut random = Random::new(100 + index as u64);
            for _ in 0..40 {
                let (from, to) = (slot(random.below(7)), slot(random.below(7)));
                match store.rename_if_not_exists(&from, &to).await {
                    Ok(()) | Err(Error::NotFound { .. } | Error::AlreadyExists { .. }) => {}
                    Err(error) => panic!("{from} -> {to}: {error:?}"),
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let mut found = Vec::new();
    for number in 0..7 {
        if let Ok(got) = stores[0].get(&slot(number)).await {
            found.push(String::from_utf8(got.bytes().await.unwrap().to_vec()).unwrap());
        }
    }
    found.sort();
    assert_eq!(found, ["object 0", "object 1", "object 2", "object 3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crossing_renames_end() {
    let served = Served::start();
    let stores = stores(&served, 2);
    let (a, b) = (Path::from("a"), Path::from("b"));
    for _ in 0..10 {
        stores[0].put(&a, "a".into()).await.unwrap();
        stores[0].put(&b, "b".into()).await.unwrap();
        let (one, other) =
            futures_util::future::join(stores[0].rename(&a, &b), stores[1].rename(&b, &a)).await;
        // One of them comes first; what it has moved the other may move back.
        assert!(one.is_ok() || other.is_ok(), "{one:?} {other:?}");
        let left = [stores[0].head(&a).await.is_ok(), stores[0].head(&b).await.is_ok()];
        assert_eq!(left.iter().filter(|exists| **exists).count(), 1, "{one:?} {other:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_names_its_version() {
    let served = Served::start();
    let store = served.store(Transport::SharedMemory, "/");
    let path = Path::from("x");
    let put = store.put(&path, "one".into()).await.unwrap();
    for mode in [
        version(None),
        version(Some("another".into())),
        PutMode::Update(UpdateVersion { e_tag: put.e_tag, version: Some("1".into()) }),
    ] {
        store.put_opts(&path, "two".into(), mode.into()).await.unwrap_err();
    }
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_copy_is_replaced_by_itself() {
    let served = Served::start();
    let store = served.store(Transport::Tcp, "/");
    let (one, two) = (Path::from("one"), Path::from("deep/er/two"));
    store.put(&one, "text".into()).await.unwrap();
    store.copy(&one, &two).await.unwrap();
    store.copy(&one, &two).await.unwrap();
    store.copy(&one, &one).await.unwrap();
    store.rename(&one, &one).await.unwrap();
    // Two names of one file: the old one goes.
    store.rename(&one, &two).await.unwrap();
    assert!(matches!(store.head(&one).await, Err(Error::NotFound { .. })));
    assert_eq!(store.get(&two).await.unwrap().bytes().await.unwrap(), "text");
    // A copy stays what it was when the other is replaced.
    store.copy(&two, &one).await.unwrap();
    store.put(&two, "new".into()).await.unwrap();
    assert_eq!(store.get(&one).await.unwrap().bytes().await.unwrap(), "text");
    assert!(served.temporary_files().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rename_does_not_meet_its_own_new_name() {
    let served = Served::start();
    let store = served.store(Transport::SharedMemory, "/");
    let (old, new) = (Path::from("old"), Path::from("new"));
    store.put(&old, "text".into()).await.unwrap();
    let url = served.url(Transport::SharedMemory, "/");
    let has_linked = served.local("new");
    // An open that keeps the old name, until the new one is there for a while.
    let (opened, wait) = tokio::sync::oneshot::channel();
    let keeper = std::thread::spawn(move || {
        let client = Client::new(ClientConfig::default()).unwrap();
        let location = Location::parse(&url).unwrap();
        let session = client.connect(&location, &SessionOptions::default()).unwrap();
        let options = OpenOptions::read().delete_disposition(DeleteDisposition::Deny);
        let file = session.open("/old", &options).unwrap();
        opened.send(()).unwrap();
        while !has_linked.exists() {
            std::thread::yield_now();
        }
        // So many changes later the rename has tried to remove the old name.
        for _ in 0..50 {
            session.create_dir("/d", 0o755).unwrap();
            session.remove("/d").unwrap();
        }
        file.close().unwrap();
    });
    wait.await.unwrap();
    store.rename_if_not_exists(&old, &new).await.unwrap();
    keeper.join().unwrap();
    assert!(matches!(store.head(&old).await, Err(Error::NotFound { .. })));
    assert_eq!(store.get(&new).await.unwrap().bytes().await.unwrap(), "text");
    // The name of another object is still in the way, and so is one of the same.
    store.put(&old, "other".into()).await.unwrap();
    let error = store.rename_if_not_exists(&old, &new).await.unwrap_err();
    assert!(matches!(error, Error::AlreadyExists { .. }), "{error:?}");
    store.copy(&old, &new).await.unwrap();
    let error = store.rename_if_not_exists(&old, &new).await.unwrap_err();
    assert!(matches!(error, Error::AlreadyExists { .. }), "{error:?}");
}

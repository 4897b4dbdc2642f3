//! Names that are no objects, and ways that lead out of the store.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use dafs_client::{ClientError, Status};
use dafs_object_store::StoreError;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};

use crate::server::{Served, TRANSPORTS, Transport};

fn source<E: std::error::Error + 'static>(error: &Error) -> Option<&E> {
    std::error::Error::source(error)?.downcast_ref()
}

async fn listed(store: &dyn ObjectStore, prefix: Option<&Path>) -> Vec<String> {
    let listed = store.list(prefix).map_ok(|meta| meta.location.to_string());
    listed.try_collect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn symbolic_links_are_neither_followed_nor_replaced() {
    let served = Served::start();
    std::fs::create_dir_all(served.local("root/real")).unwrap();
    std::fs::create_dir(served.local("outside")).unwrap();
    std::fs::write(served.local("outside/secret"), "secret").unwrap();
    std::fs::write(served.local("root/real/file"), "file").unwrap();
    symlink("../outside", served.local("root/way")).unwrap();
    symlink("/etc/passwd", served.local("root/file")).unwrap();
    symlink("real/file", served.local("root/inside")).unwrap();
    for transport in TRANSPORTS {
        let store = served.store(transport, "/root");
        assert_eq!(listed(&store, None).await, ["real/file"]);
        assert_eq!(listed(&store, Some(&Path::from("way"))).await, [""; 0]);
        let prefixes = store.list_with_delimiter(None).await.unwrap().common_prefixes;
        assert_eq!(prefixes, [Path::from("real")]);
        for path in ["way/secret", "file", "inside", "way"].map(Path::from) {
            let error = store.get(&path).await.unwrap_err();
            assert!(matches!(error, Error::NotFound { .. }), "{error}");
            store.head(&path).await.unwrap_err();
            store.delete(&path).await.unwrap_err();
            store.copy(&path, &Path::from("copy")).await.unwrap_err();
            store.rename(&path, &Path::from("copy")).await.unwrap_err();
            store.put(&path, "x".into()).await.unwrap_err();
            if let Ok(mut upload) = store.put_multipart(&path).await {
                upload.complete().await.unwrap_err();
                upload.abort().await.unwrap();
            }
        }
        store.put(&Path::from("way/new/one"), "x".into()).await.unwrap_err();
        assert_eq!(listed(&store, None).await, ["real/file"]);
    }
    assert_eq!(std::fs::read_dir(served.local("outside")).unwrap().count(), 1);
    assert!(served.local("root/file").is_symlink() && served.local("root/inside").is_symlink());
    assert_eq!(std::fs::read(served.local("root/real/file")).unwrap(), b"file");
    assert!(served.temporary_files().is_empty(), "{:?}", served.temporary_files());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_temporary_files_are_no_objects() {
    let served = Served::start();
    let store = served.store(Transport::SharedMemory, "/");
    std::fs::create_dir(served.local(".dafs-object-store-d")).unwrap();
    std::fs::write(served.local(".dafs-object-store-d/x"), "").unwrap();
    assert_eq!(listed(&store, None).await, [""; 0]);
    for path in [".dafs-object-store-1", "a/.dafs-object-store-d/x"].map(Path::from) {
        let error = store.put(&path, "x".into()).await.unwrap_err();
        assert_eq!(source::<StoreError>(&error), Some(&StoreError::ReservedName), "{error}");
        store.get(&path).await.unwrap_err();
        store.put_multipart(&path).await.unwrap_err();
        assert_eq!(listed(&store, Some(&path)).await, [""; 0]);
    }
    let error = store.put(&Path::ROOT, "x".into()).await.unwrap_err();
    assert_eq!(source::<StoreError>(&error), Some(&StoreError::EmptyPath), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_refuses_is_told_with_its_status() {
    let served = Served::start();
    let store = served.store(Transport::Tcp, "/");
    let status = |error: &Error| source::<ClientError>(error).and_then(ClientError::status);
    let long = Path::from("n".repeat(256));
    let error = store.put(&long, "x".into()).await.unwrap_err();
    assert_eq!(status(&error), Some(Status::NameTooLong), "{error}");
    store.put(&Path::from("file"), "x".into()).await.unwrap();
    let error = store.put(&Path::from("file/below"), "x".into()).await.unwrap_err();
    assert_eq!(status(&error), Some(Status::NotDir), "{error}");
    let error = store.get(&Path::from("file/below")).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    store.put(&Path::from("d/x"), "x".into()).await.unwrap();
    store.put(&Path::from("d"), "x".into()).await.unwrap_err();
    let error = store.delete(&Path::from("d")).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    assert!(error.to_string().contains('d'));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_no_paths_are_not_listed_and_deep_ones_are() {
    let served = Served::start();
    std::fs::write(served.local("").join(OsStr::from_bytes(b"caf\xe9")), "").unwrap();
    std::fs::write(served.local("a\nb"), "").unwrap();
    std::fs::write(served.local("a b%20\u{efe9}"), "").unwrap();
    for transport in TRANSPORTS {
        let store = served.store(transport, "/");
        assert_eq!(listed(&store, None).await, ["a b%20\u{efe9}"]);
        let path = Path::parse("a b%20\u{efe9}").unwrap();
        store.get(&path).await.unwrap();
        let names = (0..60).map(|number| format!("{number}{}", "n".repeat(number * 3)));
        let deep = Path::from_iter(names);
        store.put(&deep, "deep".into()).await.unwrap();
        store.put(&deep, "deeper".into()).await.unwrap();
        assert_eq!(store.get(&deep).await.unwrap().bytes().await.unwrap(), "deeper");
        assert_eq!(listed(&store, Some(&Path::from("0"))).await, [deep.to_string()]);
        store.delete(&deep).await.unwrap();
        assert_eq!(listed(&store, Some(&Path::from("0"))).await, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_are_in_the_order_of_paths_and_empty_directories_can_go() {
    let served = Served::start();
    let builder = served.builder(Transport::SharedMemory, "/").with_directory_removal(true);
    let store = builder.build().unwrap();
    let mut paths: Vec<Path> = Vec::new();
    for number in 0..300 {
        let name = format!("{}/{}.x/{number}", number % 7, number % 13);
        paths.push(Path::from(name));
        paths.push(Path::from(format!("{}.{number}", number % 7)));
    }
    let puts = paths.iter().map(|path| store.put(path, "".into()));
    futures_util::future::try_join_all(puts).await.unwrap();
    paths.sort();
    let expected: Vec<String> = paths.iter().map(Path::to_string).collect();
    assert_eq!(listed(&store, None).await, expected);
    let offset = Path::from("3/5.x/200");
    let behind = store.list_with_offset(None, &offset).map_ok(|meta| meta.location);
    let behind: Vec<Path> = behind.try_collect().await.unwrap();
    let expected: Vec<Path> = paths.iter().filter(|path| **path > offset).cloned().collect();
    assert_eq!(behind, expected);
    let all = futures_util::stream::iter(paths.into_iter().map(Ok));
    store.delete_stream(Box::pin(all)).try_collect::<Vec<_>>().await.unwrap();
    let prefixes = store.list_with_delimiter(None).await.unwrap().common_prefixes;
    assert_eq!(prefixes, []);
    assert_eq!(std::fs::read_dir(served.local("")).unwrap().count(), 0);
}

/// Directories are made from the deepest one upwards: no path to it is short enough for the system.
fn make_deep(top: &std::path::Path, depth: usize) {
    let (made, above) = (top.join("made"), top.join("above"));
    std::fs::create_dir(&made).unwrap();
    std::fs::write(made.join("object"), "").unwrap();
    for _ in 1..depth {
        std::fs::create_dir(&above).unwrap();
        std::fs::rename(&made, above.join("d")).unwrap();
        std::fs::rename(&above, &made).unwrap();
    }
    std::fs::rename(made, top.join("d")).unwrap();
}

fn remove_deep(top: &std::path::Path) {
    let (now, next) = (top.join("now"), top.join("next"));
    std::fs::rename(top.join("d"), &now).unwrap();
    while std::fs::rename(now.join("d"), &next).is_ok() {
        std::fs::remove_dir(&now).unwrap();
        std::fs::rename(&next, &now).unwrap();
    }
    std::fs::remove_dir_all(now).unwrap();
}

#[test]
fn a_deep_tree_is_listed_on_a_small_stack() {
    let served = Served::start();
    let top = served.local("");
    make_deep(&top, DEPTH);
    let store = served.store(Transport::SharedMemory, "/");
    let list = move || futures_executor::block_on(listed(&store, None));
    let lister = std::thread::Builder::new().stack_size(256 << 10).spawn(list).unwrap();
    let found = lister.join();
    remove_deep(&top);
    assert_eq!(found.unwrap(), [format!("{}object", "d/".repeat(DEPTH))]);
}

/// Levels that no recursion with a frame for each fits into that stack.
const DEPTH: usize = 1500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leftovers_below_a_reserved_prefix_are_nobodys() {
    let served = Served::start();
    let store = served.store(Transport::SharedMemory, "/");
    std::fs::create_dir(served.local("d")).unwrap();
    std::fs::write(served.local("d/.dafs-object-store-1"), "").unwrap();
    let reserved = Path::from(".dafs-object-store-d/x");
    assert_eq!(store.remove_leftovers(Some(&reserved)).await.unwrap(), 0);
    assert_eq!(served.temporary_files().len(), 1);
    assert_eq!(store.remove_leftovers(Some(&Path::from("d"))).await.unwrap(), 1);
    assert!(served.temporary_files().is_empty());
}

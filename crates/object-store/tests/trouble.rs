//! Servers that are killed, and servers that are not there.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dafs_client::{ClientError, Recovery, SessionOptions};
use dafs_object_store::DafsStoreBuilder;
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode};

use crate::server::{Served, TRANSPORTS, Transport};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_were_put_are_there_whoever_kills_the_server() {
    let mut served = Served::start();
    for transport in TRANSPORTS {
        let store = served.store(transport, "/");
        let own = store.clone();
        let (told, mut tell) = tokio::sync::mpsc::channel(1);
        let writer = tokio::spawn(async move {
            let mut put = Vec::new();
            for number in 0..60 {
                // Short ones, and some of several pieces.
                let length = if number % 6 == 0 { 5_000_000 } else { 1000 + number };
                let path = Path::from(format!("{transport:?}/{}/{number}", number % 5));
                let mode = if number % 2 == 0 { PutMode::Create } else { PutMode::Overwrite };
                let bytes = vec![number as u8; length];
                let done = own.put_opts(&path, bytes.into(), mode.into()).await.unwrap();
                put.push((path, length, done.e_tag));
                let _ = told.try_send(());
            }
            put
        });
        for _ in 0..3 {
            for _ in 0..4 {
                let _ = tell.recv().await;
            }
            served.kill();
            served.revive();
        }
        for (path, length, e_tag) in writer.await.unwrap() {
            let got = store.get(&path).await.unwrap();
            assert_eq!(got.meta.e_tag, e_tag, "{path}");
            let bytes = got.bytes().await.unwrap();
            assert_eq!(bytes.len(), length, "{path}");
            assert!(bytes.windows(2).all(|pair| pair[0] == pair[1]), "{path}");
        }
        assert!(served.temporary_files().is_empty(), "{:?}", served.temporary_files());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_session_has_ended_connects_anew() {
    for transport in TRANSPORTS {
        let mut served = Served::start();
        let options = SessionOptions::default().recovery(Recovery::Off);
        let builder = served.builder(transport, "/").with_session_options(options);
        let store = builder.with_connections(2).build().unwrap();
        store.connect().await.unwrap();
        let path = Path::from("x");
        store.put(&path, vec![1; 9_000_000].into()).await.unwrap();
        let mut stream = store.get(&path).await.unwrap().into_stream();
        served.kill();
        let error = store.head(&path).await.unwrap_err();
        let ended = std::error::Error::source(&error).and_then(|e| e.downcast_ref());
        assert!(matches!(ended, Some(ClientError::SessionEnded { .. })), "{error:?}");
        let error = store.head(&path).await.unwrap_err();
        assert!(error.to_string().contains("onnect") || error.to_string().contains("ended"));
        served.revive();
        // Each connection finds out by itself.
        let mut heads = Vec::new();
        for _ in 0..4 {
            heads.push(store.head(&path).await);
        }
        assert!(heads[2..].iter().all(Result::is_ok), "{heads:?}");
        // What was open is lost, and says so.
        let pieces: Vec<_> = stream.by_ref().collect().await;
        assert!(pieces.iter().any(Result::is_err));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_told() {
    let nowhere = tempfile::tempdir().unwrap();
    let url = format!("dafs+shm://{}!/", nowhere.path().join("none").display());
    let store = DafsStoreBuilder::from_url(&url).unwrap().build().unwrap();
    let error = store.connect().await.unwrap_err();
    let source = std::error::Error::source(&error).and_then(|e| e.downcast_ref());
    assert!(matches!(source, Some(ClientError::Connect { .. })), "{error:?}");
    assert!(error.to_string().contains("none"), "{error}");
    assert!(format!("{store}").contains("none"));
    let served = Served::start();
    let url = served.url(Transport::Tcp, "/not/there");
    let store = DafsStoreBuilder::from_url(&url).unwrap().build().unwrap();
    assert!(store.connect().await.is_err());
    assert!(matches!(store.head(&Path::from("x")).await, Err(Error::Generic { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_fails_leaves_no_temporary_file() {
    for transport in TRANSPORTS {
        let served = Served::start();
        let store = served.builder(transport, "/").with_named_temporaries(true).build().unwrap();
        let path = Path::from("d/x");
        store.put(&path, "first".into()).await.unwrap();
        served.limit_files(Some(FILE_BYTES_MAX));
        store.put(&path, vec![1; FILE_BYTES_MAX as usize + 1].into()).await.unwrap_err();
        assert!(served.temporary_files().is_empty(), "{:?}", served.temporary_files());
        served.limit_files(None);
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "first");
    }
}

/// Longer than the files of the server's journal.
const FILE_BYTES_MAX: u64 = 20 << 20;

/// Passes connections on to a port, or closes them when it is told. Counts them.
fn counted(listener: TcpListener, port: Option<u16>) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counting = count.clone();
    let pass = |mut from: TcpStream, mut to: TcpStream| {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            if to.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    };
    std::thread::spawn(move || {
        for incoming in listener.incoming() {
            let incoming = incoming.unwrap();
            counting.fetch_add(1, Ordering::SeqCst);
            let Some(port) = port else { continue };
            let outgoing = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (back, forth) = (outgoing.try_clone().unwrap(), incoming.try_clone().unwrap());
            std::thread::spawn(move || pass(incoming, outgoing));
            std::thread::spawn(move || pass(back, forth));
        }
    });
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_begin_together_share_one_connect() {
    let served = Served::start();
    served.store(Transport::Tcp, "/").put(&Path::from("x"), "x".into()).await.unwrap();
    for port in [Some(served.port()), None] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("dafs://{}/", listener.local_addr().unwrap());
        let builder = DafsStoreBuilder::from_url(&url).unwrap();
        let store = builder.with_option("transport", "tcp").unwrap().build().unwrap();
        let path = Path::from("x");
        // The listener accepts only after all operations have asked.
        let heads: Vec<_> = (0..20).map(|_| store.head(&path)).collect();
        let mut all = Box::pin(futures_util::future::join_all(heads));
        assert!(futures_util::poll!(&mut all).is_pending());
        let count = counted(listener, port);
        let outcomes = all.await;
        assert!(outcomes.iter().all(|outcome| outcome.is_ok() == port.is_some()), "{outcomes:?}");
        let first = count.load(Ordering::SeqCst);
        assert_eq!(first, 1);
        // A later one asks the server again if it was not there.
        let later = store.head(&path).await;
        assert_eq!(later.is_ok(), port.is_some());
        assert_eq!(count.load(Ordering::SeqCst) > first, port.is_none());
    }
}

//! Uploads in parts: ended, given up, and left behind.

use std::time::{Duration, Instant};

use dafs_client::{Recovery, SessionOptions};
use dafs_object_store::DafsStoreBuilder;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::server::{Served, TRANSPORTS, Transport, say_ready, spawn};

/// Waits until no temporary file is left, which is soon.
async fn until_clean(served: &Served) {
    let begun = Instant::now();
    while !served.temporary_files().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", served.temporary_files());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_is_a_hidden_file_until_it_is_complete() {
    let served = Served::start();
    for transport in TRANSPORTS {
        let store = served.store(transport, "/");
        let path = Path::from("deep/below/x");
        let mut upload = store.put_multipart(&path).await.unwrap();
        let parts: Vec<_> =
            (0..6).map(|fill| upload.put_part(vec![fill; 700_000].into())).collect();
        futures_util::future::try_join_all(parts).await.unwrap();
        assert_eq!(served.temporary_files().len(), 1);
        store.head(&path).await.unwrap_err();
        assert_eq!(store.remove_leftovers(None).await.unwrap(), 0, "it is in use");
        let put = upload.complete().await.unwrap();
        assert!(served.temporary_files().is_empty());
        let got = store.get(&path).await.unwrap();
        assert_eq!(got.meta.e_tag, put.e_tag);
        let bytes = got.bytes().await.unwrap();
        let expected: Vec<u8> = (0..6).flat_map(|fill| vec![fill; 700_000]).collect();
        assert!(bytes == expected);
        // It is over.
        upload.complete().await.unwrap_err();
        upload.put_part("x".into()).await.unwrap_err();
        upload.abort().await.unwrap_err();
        store.delete(&path).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_that_are_aborted_or_dropped_leave_nothing() {
    let served = Served::start();
    for transport in TRANSPORTS {
        let store = served.store(transport, "/");
        let path = Path::from("d/x");
        let mut upload = store.put_multipart(&path).await.unwrap();
        upload.put_part(vec![1; 100_000].into()).await.unwrap();
        upload.abort().await.unwrap();
        assert!(served.temporary_files().is_empty());
        let mut upload = store.put_multipart(&path).await.unwrap();
        upload.put_part(vec![1; 100_000].into()).await.unwrap();
        // A part under way when the upload goes.
        let mut part = upload.put_part(vec![2; 5_000_000].into());
        let _ = futures_util::poll!(&mut part);
        drop(upload);
        drop(part);
        until_clean(&served).await;
        store.head(&path).await.unwrap_err();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_is_not_completed_without_its_parts() {
    let served = Served::start();
    let store = served.store(Transport::SharedMemory, "/");
    let path = Path::from("x");
    let mut upload = store.put_multipart(&path).await.unwrap();
    let first = upload.put_part("first ".into());
    upload.put_part("second".into()).await.unwrap();
    let error = upload.complete().await.unwrap_err().to_string();
    assert!(error.contains("6 bytes"), "{error}");
    first.await.unwrap();
    upload.complete().await.unwrap();
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "first second");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_outlives_its_server() {
    let mut served = Served::start();
    for transport in TRANSPORTS {
        let store = served.store(transport, "/");
        let path = Path::from(format!("{transport:?}/x"));
        let mut upload = store.put_multipart(&path).await.unwrap();
        let mut expected = Vec::new();
        for fill in 0..4 {
            let part = vec![fill; 3_000_000];
            expected.extend_from_slice(&part);
            upload.put_part(part.into()).await.unwrap();
        }
        // In the midst of two parts.
        let mut parts = Vec::new();
        for fill in 4..6 {
            let part = vec![fill; 3_000_000];
            expected.extend_from_slice(&part);
            parts.push(tokio::spawn(upload.put_part(part.into())));
        }
        served.kill();
        served.revive();
        for part in parts {
            part.await.unwrap().unwrap();
        }
        upload.complete().await.unwrap();
        let bytes = store.get(&path).await.unwrap().bytes().await.unwrap();
        assert!(bytes == expected, "{transport:?}");
        assert!(served.temporary_files().is_empty());
    }
}

const URL: &str = "DAFS_TEST_UPLOAD_URL";

/// No test: a client that begins an upload and is killed.
#[test]
fn a_client_for_another_process() {
    let Ok(url) = std::env::var(URL) else { return };
    // Its server keeps nothing of it when the connection is lost.
    let options = SessionOptions::default().recovery(Recovery::Off);
    let builder = DafsStoreBuilder::from_url(&url).unwrap().with_session_options(options);
    let store = builder.build().unwrap();
    futures_executor::block_on(async {
        let mut upload = store.put_multipart(&Path::from("dead/x")).await.unwrap();
        upload.put_part(vec![7; 100_000].into()).await.unwrap();
        say_ready("");
        std::future::pending::<()>().await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_client_has_left_is_hidden_and_can_be_removed() {
    let served = Served::start();
    for transport in TRANSPORTS {
        let url = served.url(transport, "/");
        let (mut client, _) = spawn("uploads::a_client_for_another_process", &[(URL, url)]);
        let store = served.store(transport, "/");
        let mut own = store.put_multipart(&Path::from("dead/own")).await.unwrap();
        own.put_part("own".into()).await.unwrap();
        assert_eq!(store.remove_leftovers(None).await.unwrap(), 0, "both are alive");
        client.kill().unwrap();
        client.wait().unwrap();
        let dead = Path::from("dead");
        let listed = store.list_with_delimiter(Some(&dead)).await.unwrap();
        assert!(listed.objects.is_empty() && listed.common_prefixes.is_empty());
        assert_eq!(store.remove_leftovers(Some(&Path::from("other"))).await.unwrap_or(0), 0);
        // Once the server knows that it is dead.
        let begun = Instant::now();
        while store.remove_leftovers(None).await.unwrap() == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "it stays");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        own.complete().await.unwrap();
        let bytes = store.get(&Path::from("dead/own")).await.unwrap().bytes().await.unwrap();
        assert_eq!(bytes, "own");
        store.delete(&Path::from("dead/own")).await.unwrap();
        assert!(served.temporary_files().is_empty());
    }
}

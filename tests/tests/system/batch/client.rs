//! Tests batches that the client library builds.

use std::time::Duration;

use dafs_client::{ClientError, OpenOptions, SessionOptions};

use crate::fixture::{Fixture, any, over_each, pattern};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_batch_reads_what_is_there_and_says_how_much() {
    over_each(|fixture, transport| {
        let content = pattern(100_000, 1);
        std::fs::write(fixture.local("file"), &content).unwrap();
        let (client, session) = fixture.connect(transport);
        let file = session.open("/file", &OpenOptions::read()).unwrap();
        for submitted in [false, true] {
            let buffer = client.allocate(64 * 4096).unwrap();
            let mut batch = session.batch().latency(Duration::from_millis(1));
            let places: Vec<usize> = (0..64).map(|n| n * 31 % 64 * 1550).collect();
            for (slot, place) in places.iter().enumerate() {
                let slice = buffer.slice(slot * 4096, 4096).unwrap();
                batch = batch.read(&file, *place as u64, slice);
            }
            let outcomes =
                if submitted { batch.submit().unwrap().wait() } else { batch.run().unwrap() };
            assert_eq!(outcomes.len(), 64);
            for ((slot, place), outcome) in places.iter().enumerate().zip(outcomes) {
                let expected = &content[*place..content.len().min(place + 4096)];
                assert_eq!(outcome.unwrap() as usize, expected.len());
                let mut bytes = vec![0; expected.len()];
                buffer.read(slot * 4096, &mut bytes);
                assert_eq!(bytes, expected, "slot {slot}");
            }
        }
    });
}

#[test]
fn what_a_batch_has_written_is_in_the_file_and_stable() {
    over_each(|fixture, transport| {
        let (client, session) = fixture.connect(transport);
        let file = session.open("/file", &OpenOptions::write()).unwrap();
        let content = pattern(64 * 1000, 2);
        for submitted in [false, true] {
            let buffer = client.allocate(content.len()).unwrap();
            buffer.write(0, &content);
            let mut batch = session.batch();
            for slot in 0..64 {
                let place = slot * 37 % 64 * 1000;
                let slice = buffer.slice(place, 1000).unwrap();
                batch = batch.write(&file, place as u64, slice);
            }
            let outcomes =
                if submitted { batch.submit().unwrap().wait() } else { batch.run().unwrap() };
            assert!(outcomes.iter().all(|outcome| *outcome == Ok(1000)), "{outcomes:?}");
            // Without a commit a local process sees the data, because it was written before it was
            // reported.
            assert_eq!(std::fs::read(fixture.local("file")).unwrap(), content);
            std::fs::write(fixture.local("file"), b"").unwrap();
            drop(session.open("/file", &OpenOptions::read()).unwrap());
        }
    });
}

#[test]
fn lists_are_cut_differently_in_the_file_and_in_memory() {
    over_each(|fixture, transport| {
        let (client, session) = fixture.connect(transport);
        let file = session.open("/file", &OpenOptions::write()).unwrap();
        let content = pattern(10_000, 3);
        let buffer = client.allocate(20_000).unwrap();
        buffer.write(100, &content[..3000]);
        buffer.write(9000, &content[3000..]);
        let slices = || vec![buffer.slice(100, 3000).unwrap(), buffer.slice(9000, 7000).unwrap()];
        let ranges = [(50_000, 4999), (0, 1), (7000, 5000)];
        let outcomes = session.batch().write_list(&file, &ranges, slices()).run().unwrap();
        assert_eq!(outcomes, [Ok(10_000)]);
        let local = std::fs::read(fixture.local("file")).unwrap();
        assert_eq!(local[50_000..54_999], content[..4999]);
        assert_eq!(local[..1], content[4999..5000]);
        assert_eq!(local[7000..12_000], content[5000..]);
        buffer.write(0, &[0; 20_000]);
        let outcomes = session.batch().read_list(&file, &ranges, slices()).run().unwrap();
        assert_eq!(outcomes, [Ok(10_000)]);
        let mut bytes = vec![0; 20_000];
        buffer.read(0, &mut bytes);
        assert_eq!(bytes[100..3100], content[..3000]);
        assert_eq!(bytes[9000..16_000], content[3000..]);
    });
}

#[test]
fn sums_are_checked_in_sessions_that_have_them() {
    over_each(|fixture, transport| {
        let options = SessionOptions::default().checksums(true);
        let (client, session) = fixture.connect_with(transport, &options);
        let file = session.open("/file", &OpenOptions::write()).unwrap();
        let content = pattern(30_001, 4);
        let buffer = client.allocate(content.len()).unwrap();
        buffer.write(0, &content);
        let ranges = [(20_000, 10_001), (0, 20_000)];
        for submitted in [false, true] {
            let whole = || vec![buffer.slice(0, 777).unwrap(), buffer.slice(777, 29_224).unwrap()];
            let batch = session.batch().write_list(&file, &ranges, whole());
            let outcomes =
                if submitted { batch.submit().unwrap().wait() } else { batch.run().unwrap() };
            assert_eq!(outcomes, [Ok(30_001)]);
            let behind = client.allocate(10).unwrap();
            let batch = session.batch().read_list(&file, &ranges, whole()).read(
                &file,
                29_999,
                behind.slice(0, 10).unwrap(),
            );
            let outcomes =
                if submitted { batch.submit().unwrap().wait() } else { batch.run().unwrap() };
            assert_eq!(outcomes, [Ok(30_001), Ok(2)]);
            let mut bytes = vec![0; content.len()];
            buffer.read(0, &mut bytes);
            assert_eq!(bytes, content);
        }
    });
}

#[test]
fn each_request_fails_by_itself() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), pattern(5000, 5)).unwrap();
        let (client, session) = fixture.connect(transport);
        let read = session.open("/file", &OpenOptions::read()).unwrap();
        let closed = session.open("/file", &OpenOptions::read()).unwrap();
        let stale = session.opened(closed.handle(), closed.state(), "/file");
        closed.close().unwrap();
        let buffer = client.allocate(10_000).unwrap();
        let slice = |at| buffer.slice(at, 1000).unwrap();
        let outcomes = session
            .batch()
            .read(&read, 0, slice(0))
            .write(&read, 0, slice(1000))
            .read(&stale, 0, slice(2000))
            .read(&read, 4500, slice(3000))
            .read(&read, 9000, slice(4000))
            .run()
            .unwrap();
        let statuses: Vec<_> = outcomes
            .iter()
            .map(|outcome| outcome.clone().map_err(|error| error.status().unwrap()))
            .collect();
        use dafs_client::Status;
        let expected = [Ok(1000), Err(Status::Access), Err(Status::OldStateId), Ok(500), Ok(0)];
        assert_eq!(statuses, expected);
        drop(stale.start_close());
    });
}

#[test]
fn a_window_holds_a_batch_and_hurrying_ends_that() {
    for transport in crate::fixture::transports() {
        // No request begins before its time.
        let fixture = Fixture::with(|config| {
            config.sessions.batch.early_start_below = 0;
            config.sessions.batch.window_max = LONG;
        });
        std::fs::write(fixture.local("file"), pattern(5000, 6)).unwrap();
        let (client, session) = fixture.connect(transport);
        let file = session.open("/file", &OpenOptions::read()).unwrap();
        let buffer = client.allocate(3000).unwrap();
        let slice = |at| buffer.slice(at, 1000).unwrap();
        let batch = session.batch().latency(LONG);
        let batch = batch.read(&file, 0, slice(0)).read(&file, 2000, slice(1000));
        let batched = batch.submit().unwrap();
        session.ping().unwrap();
        assert_eq!(batched.left(), 2, "held");
        assert!(batched.expedite(1).unwrap());
        while batched.left() == 2 {
            client.process_events(None);
        }
        assert_eq!((batched.outcome(0), batched.outcome(1)), (None, Some(Ok(1000))));
        assert!(!batched.expedite(1).unwrap(), "it has ended");
        assert!(batched.cancel(0));
        assert_eq!(batched.wait(), [Err(ClientError::Cancelled), Ok(1000)]);
    }
}

#[test]
fn a_batch_that_is_dropped_leaves_nothing_behind() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), pattern(100_000, 7)).unwrap();
        let (client, session) = fixture.connect(transport);
        let file = session.open("/file", &OpenOptions::write()).unwrap();
        for round in 0..20 {
            let buffer = client.allocate(8192).unwrap();
            let batch = session.batch().read(&file, round * 4096, buffer.slice(0, 4096).unwrap());
            let batch = batch.write(&file, 90_000, buffer.slice(4096, 4096).unwrap());
            drop(if round % 2 == 0 { batch.start().unwrap() } else { batch.submit().unwrap() });
        }
        session.ping().unwrap();
        let buffer = client.allocate(1000).unwrap();
        let read = session.batch().read(&file, 0, buffer.slice(0, 1000).unwrap());
        assert_eq!(read.submit().unwrap().wait(), [Ok(1000)]);
    });
}

#[test]
fn foreign_files_and_buffers_are_refused_before_anything_is_sent() {
    let fixture = Fixture::new();
    std::fs::write(fixture.local("file"), pattern(5000, 8)).unwrap();
    let (client, session) = fixture.connect(any());
    let (other_client, other) = fixture.connect(any());
    let file = session.open("/file", &OpenOptions::read()).unwrap();
    let foreign = other.open("/file", &OpenOptions::read()).unwrap();
    let slice = client.allocate(10).unwrap().slice(0, 10).unwrap();
    let foreign_slice = other_client.allocate(10).unwrap().slice(0, 10).unwrap();
    let is_foreign =
        |outcome: Result<_, ClientError>| matches!(outcome, Err(ClientError::Foreign { .. }));
    assert!(is_foreign(session.batch().read(&foreign, 0, slice.clone()).run()));
    assert!(is_foreign(session.batch().read(&file, 0, foreign_slice).run()));
    let uneven = session.batch().read_list(&file, &[(0, 9)], vec![slice]).run().unwrap();
    assert_eq!(uneven[0].clone().unwrap_err().status(), Some(dafs_client::Status::Inval));
    assert_eq!(session.batch().run().unwrap(), []);
    assert_eq!(session.batch().submit().unwrap().wait(), []);
}

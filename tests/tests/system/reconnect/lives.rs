//! Tests the effects of a killed server on single operations.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dafs_client::{
    Client, ClientConfig, ClientError, OpenOptions, ReadStream, Recovery, RecoveryOptions, Session,
    SessionEvent, SessionOptions, Stability, Status, WriteStream, block_on,
};

use super::child::ServerProcess;
use super::proxy::Proxy;
use crate::fixture::{Fixture, Transport, pattern, transports};

fn connect(server: &ServerProcess, transport: Transport) -> (Client, Session) {
    let client = Client::new(ClientConfig::default()).unwrap();
    let options = SessionOptions::default();
    let session = client.connect_to(&server.address(transport), &options).unwrap();
    (client, session)
}

fn over_each(case: impl Fn(&mut ServerProcess, Transport)) {
    for transport in transports() {
        eprintln!("over {transport:?}");
        case(&mut ServerProcess::start(), transport);
    }
}

fn restart(server: &mut ServerProcess) {
    server.kill();
    server.revive();
}

#[test]
fn a_file_stays_open_over_its_servers_life() {
    over_each(|server, transport| {
        let (_client, session) = connect(server, transport);
        let file = session.open("/file", &OpenOptions::write()).unwrap();
        file.write_at(b"kept", 0).unwrap();
        file.commit().unwrap();
        let former = file.state();
        restart(server);
        let mut bytes = [0; 4];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 4);
        assert_eq!(&bytes, b"kept");
        assert_ne!(file.state(), former);
        file.append(b"more").unwrap();
        file.set_len(6).unwrap();
        file.close().unwrap();
        assert_eq!(std::fs::read(server.local("file")).unwrap(), b"keptmo");
    });
}

#[test]
fn a_file_without_a_name_goes_with_its_server_and_says_so() {
    over_each(|server, transport| {
        let (_client, session) = connect(server, transport);
        let file = session.create_unlinked("/", &OpenOptions::write()).unwrap();
        file.write_at(b"nowhere", 0).unwrap();
        restart(server);
        let error = file.read_at(&mut [0; 7], 0).unwrap_err();
        assert_eq!(error.status(), Some(Status::Stale), "{error}");
        assert!(error.to_string().contains("lost when the server restarted"), "{error}");
        assert_eq!(file.append(b"x").unwrap_err().status(), Some(Status::Stale));
        assert_eq!(file.close().unwrap_err().status(), Some(Status::Stale));
    });
}

#[test]
fn data_that_nobody_committed_is_said_to_be_lost() {
    over_each(|server, transport| {
        let (_client, session) = connect(server, transport);
        let file = session.open("/committed", &OpenOptions::write()).unwrap();
        let closed = session.open("/closed", &OpenOptions::write()).unwrap();
        let both = [&file, &closed];
        both.iter().for_each(|file| file.write_at(b"uncommitted", 0).unwrap());
        restart(server);
        let lost = |error: &ClientError| matches!(error, ClientError::DataLost { .. });
        assert!(lost(&file.commit().unwrap_err()));
        assert!(lost(&closed.close().unwrap_err()));
        file.write_at(b"once more", 0).unwrap();
        file.commit().unwrap();
        restart(server);
        let mut bytes = [0; 9];
        file.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"once more");
        file.close().unwrap();
    });
}

#[test]
fn a_commit_does_not_vouch_for_what_was_written_behind_it() {
    over_each(|server, transport| {
        let (client, session) = connect(server, transport);
        let file = session.open("/file", &OpenOptions::write()).unwrap();
        file.write_at(b"before", 0).unwrap();
        let behind = client.allocate(4096).unwrap();
        let commit = file.commit_async();
        let write = file.write_async(6, behind.slice(0, 6).unwrap());
        let written = block_on(&client, write).unwrap();
        file.note_unstable(written.verifier).unwrap();
        let committed = block_on(&client, commit).unwrap();
        file.note_committed(committed.verifier).unwrap();
        restart(server);
        let error = file.commit().unwrap_err();
        assert!(matches!(error, ClientError::DataLost { .. }), "{error}");
        file.commit().unwrap();
        restart(server);
        file.commit().unwrap();
        file.close().unwrap();
    });
}

#[test]
fn streams_go_on_over_a_servers_life() {
    over_each(|server, transport| {
        let (_client, session) = connect(server, transport);
        let data = pattern(3_000_000, 11);
        let file = session.open("/stream", &OpenOptions::write()).unwrap();
        let mut writing = WriteStream::new(&file, 4, 64 << 10).unwrap();
        for (number, part) in data.chunks(500_000).enumerate() {
            writing.write_all(part).unwrap();
            if number % 2 == 1 {
                restart(server);
            }
        }
        writing.finish().unwrap();
        assert!(std::fs::read(server.local("stream")).unwrap() == data);
        let mut back = vec![0; data.len()];
        let mut reading = ReadStream::new(&file, 4, 64 << 10).unwrap();
        let (first, rest) = back.split_at_mut(data.len() / 2);
        reading.read_exact(first).unwrap();
        restart(server);
        reading.read_exact(rest).unwrap();
        assert!(back == data);
        drop(reading);
        file.close().unwrap();
    });
}

/// Tests a request to a server that is killed before it processes it.
fn killed_before_it_was_asked(keeps_results: bool, transport: Transport) {
    let mut server = ServerProcess::start_with(keeps_results);
    let (client, session) = connect(&server, transport);
    std::fs::write(server.local("file"), b"bytes").unwrap();
    let file = session.open("/file", &OpenOptions::read()).unwrap();
    server.freeze();
    let root = session.root();
    let making = session.create_dir_in_async(root, "made", "/made", 0o755);
    let slice = client.allocate(4096).unwrap().slice(0, 5).unwrap();
    let reading = file.read_async(0, slice);
    client.process_events(Some(Duration::ZERO));
    restart(&mut server);
    // A query is sent again in any case.
    assert_eq!(block_on(&client, reading).unwrap().length, 5);
    let made = block_on(&client, making);
    if keeps_results {
        made.unwrap();
    } else {
        let error = made.unwrap_err();
        assert!(matches!(error, ClientError::OutcomeUnknown { .. }), "{error}");
    }
    assert_eq!(server.local("made").exists(), keeps_results);
    session.create_dir("/other", 0o755).unwrap();
}

#[test]
fn a_request_that_its_server_never_saw_is_made_by_the_next() {
    transports().into_iter().for_each(|transport| killed_before_it_was_asked(true, transport));
}

#[test]
fn a_server_that_keeps_no_results_leaves_changes_undecided() {
    transports().into_iter().for_each(|transport| killed_before_it_was_asked(false, transport));
}

#[test]
fn a_silent_network_is_noticed_by_whoever_waits_for_completions() {
    let server = ServerProcess::start();
    let proxy = Proxy::before(&server.address(Transport::Tcp));
    let data = pattern(2_000_000, 12);
    std::fs::write(server.local("file"), &data).unwrap();
    let client = Client::new(ClientConfig::default()).unwrap();
    let answer_timeout = Some(Duration::from_millis(50));
    let options = SessionOptions::default().answer_timeout(answer_timeout);
    let session = client.connect_to(&proxy.address, &options).unwrap();
    let file = session.open("/file", &OpenOptions::read()).unwrap();
    let mut back = vec![0; data.len()];
    let mut reading = ReadStream::new(&file, 4, 16 << 10).unwrap();
    for part in back.chunks_mut(400_000) {
        proxy.part();
        reading.read_exact(part).unwrap();
    }
    assert!(back == data);
}

#[test]
fn a_stream_hands_out_what_has_come_before_it_tells_of_a_loss() {
    const BLOCK: usize = 64 << 10;
    over_each(|server, transport| {
        let data = pattern(16 * BLOCK, 13);
        std::fs::write(server.local("file"), &data).unwrap();
        let client = Client::new(ClientConfig::default()).unwrap();
        let options = SessionOptions::default().recovery(Recovery::Off);
        let session = client.connect_to(&server.address(transport), &options).unwrap();
        let file = session.open("/file", &OpenOptions::read()).unwrap();
        // Then the server has received it, and replies in the order of requests.
        let mut back = vec![0; data.len()];
        file.read_at(&mut back, 0).unwrap();
        back.clear();
        let mut reading = ReadStream::new(&file, 4, BLOCK).unwrap();
        session.ping().unwrap();
        server.kill();
        reading.read_to_end(&mut back).unwrap_err();
        assert!(back == data[..4 * BLOCK], "{} bytes", back.len());
        reading.read_to_end(&mut back).unwrap_err();
        assert_eq!(back.len(), 4 * BLOCK, "nothing comes behind what is missing");
    });
}

#[test]
fn a_session_that_is_lost_leaves_in_order_all_the_same() {
    over_each(|server, transport| {
        let (_client, session) = connect(server, transport);
        let file = session.open("/file", &OpenOptions::write()).unwrap();
        restart(server);
        session.disconnect().unwrap();
        let error = file.close().unwrap_err();
        assert!(matches!(error, ClientError::SessionEnded { .. }), "{error}");
    });
}

#[test]
fn other_sessions_of_the_client_go_on_meanwhile() {
    over_each(|server, transport| {
        let other = Fixture::new();
        let (client, session) = connect(server, transport);
        let healthy =
            client.connect_to(&other.address(transport), &SessionOptions::default()).unwrap();
        server.kill();
        let root = session.root();
        let looking = session.metadata_async(root, "/");
        healthy.create_dir("/meanwhile", 0o755).unwrap();
        (0..100).for_each(|_| healthy.ping().unwrap());
        server.revive();
        block_on(&client, looking).unwrap();
    });
}

#[test]
fn when_the_time_is_over_everything_fails_at_once_and_says_why() {
    over_each(|server, transport| {
        std::fs::write(server.local("file"), b"bytes").unwrap();
        let client = Client::new(ClientConfig::default()).unwrap();
        let give_up_after = Duration::from_millis(200);
        let recovery = Recovery::On(RecoveryOptions::default().give_up_after(give_up_after));
        let options = SessionOptions::default().recovery(recovery);
        let session = client.connect_to(&server.address(transport), &options).unwrap();
        let events = Arc::new(Mutex::new(Vec::new()));
        let told = events.clone();
        session.on_event(move |event| told.lock().unwrap().push(event.clone()));
        let file = session.open("/file", &OpenOptions::write()).unwrap();
        let group = client.group();
        let buffer = client.allocate(1 << 20).unwrap();
        server.kill();
        let root = session.root();
        let making = session.create_dir_in_async(root, "made", "/made", 0o755);
        for number in 0..100 {
            let slice = buffer.slice(number * 4096, 4096).unwrap();
            let context = number as u64;
            match number % 2 {
                0 => session.submit_read(&file, 0, slice, group, context).unwrap(),
                _ => {
                    let unstable = Stability::Unstable;
                    session.submit_write(&file, 0, slice, unstable, group, context).unwrap()
                }
            };
        }
        assert_eq!(client.wait(group, 100, None), 100);
        let error = block_on(&client, making).unwrap_err();
        assert!(matches!(error, ClientError::SessionEnded { .. }), "{error}");
        assert!(error.to_string().contains("attempts to reconnect within"), "{error}");
        while let Some(completion) = client.next(group) {
            assert_eq!(completion.result.unwrap_err(), error);
        }
        let events = events.lock().unwrap();
        assert!(matches!(events.first(), Some(SessionEvent::Lost { .. })));
        assert!(matches!(events.last(), Some(SessionEvent::GaveUp { .. })));
        let attempts =
            events.iter().filter(|e| matches!(e, SessionEvent::Reconnecting { .. })).count();
        assert!(attempts > 1 && attempts == events.len() - 2, "{events:?}");
        server.revive();
        assert_eq!(session.ping().unwrap_err(), error, "it has ended for good");
        drop(events);
        drop((file, session));
    });
}

#[test]
fn without_recovery_a_broken_connection_ends_the_session() {
    let server = ServerProcess::start();
    let proxy = Proxy::before(&server.address(Transport::Tcp));
    let client = Client::new(ClientConfig::default()).unwrap();
    let options = SessionOptions::default().recovery(Recovery::Off);
    let session = client.connect_to(&proxy.address, &options).unwrap();
    session.on_event(|event| panic!("nobody is told of {event:?}"));
    session.ping().unwrap();
    proxy.cut();
    let error = session.ping().unwrap_err();
    assert!(matches!(error, ClientError::SessionEnded { .. }), "{error}");
}

#[test]
fn a_session_with_a_server_known_by_its_name_comes_back() {
    let mut server = ServerProcess::start();
    let address = server.address(Transport::Tcp);
    let dafs_dat::Address::Tcp(socket) = address else { unreachable!() };
    let location = dafs_client::Location::parse(format!("dafs://{socket}/")).unwrap();
    let client = Client::new(ClientConfig::default()).unwrap();
    let session = client.connect(&location, &SessionOptions::default()).unwrap();
    restart(&mut server);
    session.ping().unwrap();
}

//! Tests the data that a client caches under delegations against a model.

use dafs_client::{Client, ClientConfig, File, OpenOptions, Session, SessionOptions};
use dafs_types::{Random, SetAttributes, ShareAccess};

use super::holder::{lively, open_delegated};
use crate::fixture::{Fixture, Transport, any, pattern, transports};

/// Makes two sessions of one client, which drives both: each handles recalls while the other waits.
fn two(fixture: &Fixture, transport: Transport) -> (Client, [Session; 2]) {
    let client = Client::new(ClientConfig::default()).unwrap();
    let options = SessionOptions::default().delegations(true);
    let session = || client.connect_to(&fixture.address(transport), &options).unwrap();
    let sessions = [session(), session()];
    (client, sessions)
}

fn read(file: &File, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, offset).unwrap();
    bytes.truncate(read);
    bytes
}

#[test]
fn what_is_kept_is_read_without_a_message() {
    for transport in transports() {
        let fixture = Fixture::with(lively(|_| {}));
        let content = pattern(300_000, 7);
        std::fs::write(fixture.local("file"), &content).unwrap();
        let (_client, [session, _]) = two(&fixture, transport);
        let file = open_delegated(&session, "file", &OpenOptions::read());
        assert_eq!(read(&file, 0, 400_000), content);
        assert_eq!(file.metadata().unwrap().size, 300_000);
        let hits = session.delegated_reads();
        for _ in 0..100 {
            assert_eq!(read(&file, 1234, 200_000), content[1234..201_234]);
            assert_eq!(read(&file, 299_999, 100), content[299_999..]);
            assert_eq!(read(&file, 300_000, 100), b"");
            assert_eq!(file.metadata().unwrap().size, 300_000);
        }
        assert!(session.delegated_reads() >= hits + 400);
        file.close().unwrap();
        assert_eq!(read_anew(&session, "file"), content);
        let asked = fixture.stop().1.requests;
        assert!(asked < 400, "{asked} requests");
    }
}

fn read_anew(session: &Session, name: &str) -> Vec<u8> {
    read(&session.open(name, &OpenOptions::read()).unwrap(), 0, 1 << 20)
}

#[test]
fn a_session_sees_its_own_changes() {
    let fixture = Fixture::with(lively(|_| {}));
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let (_client, [session, _]) = two(&fixture, any());
    let file = open_delegated(&session, "file", &OpenOptions::write());
    assert_eq!(read(&file, 0, 10), b"old");
    file.write_at(b"newer", 0).unwrap();
    assert_eq!(read(&file, 0, 10), b"newer");
    assert_eq!(file.metadata().unwrap().size, 5);
    file.append(b" still").unwrap();
    assert_eq!(read(&file, 0, 20), b"newer still");
    assert_eq!(file.metadata().unwrap().size, 11);
    session.metadata("file").unwrap();
    let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    session.set_attributes("file", &mode).unwrap();
    assert_eq!(file.metadata().unwrap().mode, 0o600);
    file.set_len(3).unwrap();
    assert_eq!(read(&file, 0, 10), b"new");
    let other = session.open("file", &OpenOptions::write()).unwrap();
    other.write_at(b"N", 0).unwrap();
    assert_eq!(read(&file, 0, 10), b"New");
}

#[test]
fn nobody_reads_what_is_no_more() {
    for transport in transports() {
        for seed in 0..SEEDS {
            let fixture = Fixture::with(lively(|_| {}));
            follow(&fixture, transport, seed);
        }
    }
}

/// Compares random operations with a model of the files, whose contents every read must return.
fn follow(fixture: &Fixture, transport: Transport, seed: u64) {
    let mut random = Random::new(seed);
    let mut model: Vec<Vec<u8>> = (0..FILES).map(|file| pattern(LENGTH, file as u64)).collect();
    for (file, content) in model.iter().enumerate() {
        std::fs::write(fixture.local(&format!("file{file}")), content).unwrap();
    }
    let (_client, sessions) = two(fixture, transport);
    let mut open: [[Option<File>; FILES]; 2] = Default::default();
    for step in 0..STEPS {
        let who = random.below(2);
        let place = random.below(FILES);
        let name = format!("file{place}");
        let said = format!("seed {seed}, step {step}, session {who}, {name}, {transport:?}");
        let file = open[who][place].get_or_insert_with(|| {
            let access = if random.below(3) == 0 { ShareAccess::Both } else { ShareAccess::Read };
            sessions[who].open(&name, &OpenOptions::read().access(access)).unwrap()
        });
        let content = &mut model[place];
        match random.below(12) {
            0..=6 => {
                let offset = random.below(LENGTH + 100);
                let length = random.below(3 * LENGTH / 2);
                let from = offset.min(content.len());
                let to = (from + length).min(content.len());
                assert!(read(file, offset as u64, length) == content[from..to], "{said}");
            }
            7 => {
                assert_eq!(file.metadata().unwrap().size, content.len() as u64, "{said}");
            }
            8 | 9 => {
                let offset = random.below(LENGTH);
                let length = 1 + random.below(5000);
                let bytes = random.bytes(length);
                let write = OpenOptions::read().access(ShareAccess::Write);
                let writer = sessions[who].open(&name, &write).unwrap();
                writer.write_at(&bytes, offset as u64).unwrap();
                let end = offset + bytes.len();
                content.resize(content.len().max(end), 0);
                content[offset..end].copy_from_slice(&bytes);
            }
            10 => {
                let size = random.below(LENGTH);
                let wanted = SetAttributes { size: Some(size as u64), ..SetAttributes::default() };
                sessions[who].set_attributes(&name, &wanted).unwrap();
                content.resize(size, 0);
            }
            _ => open[who][place] = None,
        }
    }
    let hits: u64 = sessions.iter().map(Session::delegated_reads).sum();
    assert!(hits > 0, "seed {seed}: nothing was kept");
}

const FILES: usize = 3;
const LENGTH: usize = 150_000;
const STEPS: usize = 400;
const SEEDS: u64 = 4;

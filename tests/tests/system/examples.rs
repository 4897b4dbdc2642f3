//! The examples of the client library, run against a server.

use dafs_client::{Location, ServerName};
use dafs_dat::Address;

use crate::fixture::{Fixture, Transport, over_each, pattern, transports};

#[allow(dead_code)]
#[path = "../../../crates/client/examples/async.rs"]
mod many;

#[allow(dead_code)]
#[path = "../../../crates/client/examples/copy.rs"]
mod copy;

#[allow(dead_code)]
#[path = "../../../crates/client/examples/lock.rs"]
mod lock;

/// A path on the server as the examples take it.
fn location(fixture: &Fixture, transport: Transport, path: &str) -> Location {
    let server = match fixture.address(transport) {
        Address::Shm(socket) => ServerName::Socket(socket),
        Address::Tcp(address) => {
            ServerName::Host { host: address.ip().to_string(), port: address.port(), tls: false }
        }
        Address::Verbs(address) => {
            ServerName::Verbs { host: address.ip().to_string(), port: address.port() }
        }
        other @ Address::Sim { .. } => panic!("{other} has no URL"),
    };
    Location::new(server, path)
}

#[test]
fn the_example_of_a_copy_copies_there_and_back() {
    over_each(|fixture, transport| {
        let place = location(fixture, transport, "/copied");
        let (source, back) = (fixture.root().join("source"), fixture.root().join("back"));
        let data = pattern(5_000_001, 3);
        std::fs::write(&source, &data).unwrap();
        assert_eq!(copy::store(source.to_str().unwrap(), &place).unwrap(), 5_000_001);
        assert_eq!(std::fs::read(fixture.local("copied")).unwrap(), data);
        assert_eq!(copy::fetch(&place, back.to_str().unwrap()).unwrap(), 5_000_001);
        assert_eq!(std::fs::read(&back).unwrap(), data);
    });
}

#[test]
fn the_example_of_many_requests_reads_every_file() {
    over_each(|fixture, transport| {
        std::fs::create_dir(fixture.local("many")).unwrap();
        for index in 0..40 {
            let path = fixture.local("many").join(format!("file{index}"));
            std::fs::write(path, vec![1; index * 200]).unwrap();
        }
        let mut found = many::first_blocks(&location(fixture, transport, "/many")).unwrap();
        found.sort_by_key(|(_, length)| *length);
        let lengths: Vec<usize> = found.iter().map(|(_, length)| *length).collect();
        let expected: Vec<usize> = (0..40).map(|index| (index * 200).min(4096)).collect();
        assert_eq!(lengths, expected);
    });
}

#[test]
fn the_example_of_a_lock_loses_no_count_between_clients() {
    // Undo data is kept by servers with a journal.
    for transport in transports() {
        let fixture = Fixture::with_journal();
        let place = location(&fixture, transport, "/counter");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        lock::count(&place).unwrap();
                    }
                });
            }
        });
        assert_eq!(lock::count(&place).unwrap(), 21);
    }
}

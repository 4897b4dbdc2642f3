//! Tests invalid requests, and requests beyond the limits of a session.

use dafs_client::OpenOptions;
use dafs_dat::EndpointConfig;
use dafs_types::{CacheHint, CachePattern, RemoveMode, Stability, StateId, Status};
use dafs_wire::messages::{
    CacheHintRequest, Commit, Create, Empty, InlineData, Lookup, NewObject, Placement, ReadInline,
    Remove, WriteInline,
};
use dafs_wire::{ByteOrder, FileAttributeBlock, Path, Request};

use crate::bystander::beside_bystanders;
use crate::fixture::{Transport, await_that};
use crate::rogue::{Rogue, encoded, login, opening};

#[test]
fn garbage_ends_the_connection() {
    beside_bystanders(|fixture, transport| {
        for length in [1, 7, 39, 40, 41, 300, 4096] {
            for byte in [0, 0xa5, 0xff] {
                let mut rogue = Rogue::connect(&fixture.address(transport));
                rogue.send(&vec![byte; length]);
                rogue.ends();
            }
        }
    });
}

#[test]
fn an_empty_message_ends_the_connection() {
    beside_bystanders(|fixture, transport| {
        let mut rogue = Rogue::connect(&fixture.address(transport));
        rogue.send(&[]);
        rogue.ends();
    });
}

#[test]
fn garbage_after_an_honest_start_ends_the_connection() {
    beside_bystanders(|fixture, transport| {
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        rogue.send(&[0; 8]);
        rogue.ends();
    });
}

#[test]
fn a_request_cut_anywhere_is_refused_or_ends_the_connection() {
    beside_bystanders(|fixture, transport| {
        let whole = encoded(0, 0, &login());
        for length in (1..whole.len()).step_by(3) {
            let mut rogue = Rogue::connect(&fixture.address(transport));
            rogue.send(&whole[..length]);
            assert_ne!(rogue.status(), Some(Status::Ok), "{length} bytes");
        }
    });
}

#[test]
fn requests_before_authentication_are_refused() {
    beside_bystanders(|fixture, transport| {
        let mut rogue = Rogue::connect(&fixture.address(transport));
        rogue.request(0, 0, &Request::GetRootHandle(Empty));
        assert_eq!(rogue.status(), Some(Status::NotAuthenticated));
    });
}

#[test]
fn more_requests_than_credits_end_the_connection() {
    beside_bystanders(|fixture, transport| {
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        for stream in 0..200 {
            rogue.request(stream, 1, &Request::Null(Empty));
        }
        rogue.ends();
    });
}

#[test]
fn a_stream_beyond_the_credits_ends_the_connection() {
    beside_bystanders(|fixture, transport| {
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        rogue.request(60_000, 0, &Request::Null(Empty));
        rogue.ends();
    });
}

#[test]
fn names_that_lead_astray_are_refused() {
    beside_bystanders(|fixture, transport| {
        std::fs::create_dir(fixture.local("directory")).unwrap();
        std::fs::write(fixture.root().join("secret"), b"beside the export").unwrap();
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let (root, directory) = (rogue.root(), rogue.lookup("directory"));
        for name in ["..", ".", "", "../secret", "a/b", "/", "a\0b", "\u{0}"] {
            for directory in [root, directory] {
                // Our encoder would refuse it, so it gets a name that is then overwritten.
                let blank = "Q".repeat(name.len().max(1));
                let names = [blank.as_str()];
                let path = Path::new(&names);
                let mode = RemoveMode::Unchecked;
                let requests = [
                    Request::Lookup(Lookup { directory, path }),
                    Request::Open(opening(directory, path)),
                    Request::Create(making(directory, &blank)),
                    Request::Remove(Remove { directory, name: &blank, mode }),
                ];
                for request in requests {
                    let status = rogue.outcome_of(|stream, sequence| {
                        renamed(&encoded(stream, sequence, &request), &blank, name)
                    });
                    let refused = [Status::Inval, Status::NoEnt, Status::Exist, Status::NotDir];
                    // OPEN of "." refers to the directory itself, which is not a file.
                    let is_itself = name == "." && matches!(request, Request::Open(_));
                    let is_refused = match status {
                        Some(Status::IsDir) => is_itself,
                        Some(status) => refused.contains(&status),
                        None => false,
                    };
                    assert!(is_refused, "{name:?}: {status:?}");
                }
            }
        }
        let names = ["directory", "QQ", "QQ", "secret"];
        let lookup = Request::Lookup(Lookup { directory: root, path: Path::new(&names) });
        let status = rogue.outcome_of(|stream, sequence| {
            let message = renamed(&encoded(stream, sequence, &lookup), "QQ", "..");
            renamed(&message, "QQ", "..")
        });
        assert_eq!(status, Some(Status::Inval));
        let listed: Vec<_> = std::fs::read_dir(fixture.local("")).unwrap().collect();
        assert_eq!(listed.len(), 2, "nothing was made or removed");
    });
}

/// Replaces the last `blank` of a message by another name that is not longer. Names come after
/// handles, which may contain any bytes.
fn renamed(message: &[u8], blank: &str, name: &str) -> Vec<u8> {
    let mut message = message.to_vec();
    let counted = [&(blank.len() as u32).to_ne_bytes(), blank.as_bytes()].concat();
    let at = 4 + message.windows(counted.len()).rposition(|w| w == counted).unwrap();
    message[at - 4..at].copy_from_slice(&(name.len() as u32).to_ne_bytes());
    message[at..at + name.len()].copy_from_slice(name.as_bytes());
    message
}

fn making(directory: dafs_types::FileHandle, name: &str) -> Create<'_> {
    let (object, attributes) = (NewObject::Directory, FileAttributeBlock::empty(ByteOrder::NATIVE));
    Create { directory, name, object, attributes }
}

#[test]
fn a_name_of_ten_megabytes_is_refused_before_it_is_read() {
    beside_bystanders(|fixture, transport| {
        let name = "n".repeat(10 << 20);
        // The library of an honest client reports that, and its session continues.
        let (_, session) = fixture.connect(transport);
        let error = session.open(format!("/{name}"), &OpenOptions::read()).err().unwrap();
        assert_eq!(error.status(), Some(Status::NameTooLong));
        session.ping().unwrap();
        // A request of the maximum length, and a length of 10 MB in one of a few bytes.
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let directory = rogue.root();
        let blank = "Q".repeat(200);
        let names = [blank.as_str()];
        let lookup = Request::Lookup(Lookup { directory, path: Path::new(&names) });
        for (length, more) in [(4200, 4000), (10 << 20, 0)] {
            let status = rogue.outcome_of(|stream, sequence| {
                let mut message = encoded(stream, sequence, &lookup);
                let at = message.windows(4).position(|w| w == b"QQQQ").unwrap();
                message[at - 4..at].copy_from_slice(&u32::to_ne_bytes(length));
                message.extend(std::iter::repeat_n(b'Q', more));
                let whole = u32::try_from(message.len()).unwrap();
                message[36..40].copy_from_slice(&whole.to_ne_bytes());
                message
            });
            let refused = [Status::NameTooLong, Status::Inval];
            assert!(status.is_some_and(|status| refused.contains(&status)), "{status:?}");
        }
        // The complete message, longer than any posted receive. A ring has no frame that long.
        let length = if transport == Transport::Shm { 900 << 10 } else { 10 << 20 };
        let config = EndpointConfig { message_bytes_max: 12 << 20, ..EndpointConfig::default() };
        let mut rogue = Rogue::connect_with(&fixture.address(transport), &config);
        rogue.log_in();
        rogue.send(&name.as_bytes()[..length]);
        rogue.ends();
    });
}

#[test]
fn offsets_near_the_end_of_all_numbers_are_refused() {
    beside_bystanders(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"short").unwrap();
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let (file, state) = rogue.open("file");
        let hint = CacheHint::default();
        for offset in [u64::MAX, u64::MAX - 1, u64::MAX - 4095, 1 << 63, (1 << 63) - 2048] {
            for state in [state, StateId::ANONYMOUS] {
                let read = ReadInline { file, state, offset, length: 4000, hint };
                assert_eq!(rogue.outcome(&Request::ReadInline(read)), Some(Status::FBig));
                let write = WriteInline {
                    file,
                    state,
                    offset,
                    stability: Stability::FileSync,
                    hint,
                    placement: Placement::Packed,
                    data: InlineData::Here(&[1; 4000]),
                };
                assert_eq!(rogue.outcome(&Request::WriteInline(write)), Some(Status::FBig));
            }
            // Hints and commits of missing objects: any reply, but there must be one.
            for length in [0, 1, 4096, u32::MAX] {
                let pattern = CachePattern::WillNeed;
                let wanted = CacheHintRequest { file, offset, length, pattern, hint };
                assert!(rogue.outcome(&Request::CacheHint(wanted)).is_some());
                let commit = Commit { file, offset, length };
                assert!(rogue.outcome(&Request::Commit(commit)).is_some());
            }
        }
        assert_eq!(std::fs::read(fixture.local("file")).unwrap(), b"short");
    });
}

#[test]
fn a_client_that_vanishes_half_way_leaves_nothing_behind() {
    beside_bystanders(|fixture, transport| {
        std::fs::write(fixture.local("file"), vec![1; 1 << 20]).unwrap();
        for round in 0..60 {
            let mut rogue = Rogue::connect(&fixture.address(transport));
            if round % 3 > 0 {
                rogue.log_in();
            }
            if round % 3 == 1 {
                rogue.open("file");
            }
            rogue.request(0, 900, &Request::GetRootHandle(Empty));
        }
        // Their opens affect no client after the server has noticed their end.
        let (_, honest) = fixture.connect(transport);
        let deny = OpenOptions::read().deny(dafs_client::ShareDeny::Both);
        await_that("what the vanished had open is closed", || honest.open("/file", &deny).is_ok());
    });
}

//! Tests names that are not UTF-8: any bytes but a slash and NUL.
//!
//! Invariant: every object that a client creates has the same name for local processes, byte for
//! byte, and every local name is the same for clients.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use dafs_client::{Client, ObjectType, OpenOptions, Session, Status};
use dafs_types::names::to_wire;
use dafs_types::{Random, RemoveMode};
use dafs_wire::messages::{ReadDirectory, Remove, SessionOptions as WireOptions};
use dafs_wire::{AttributeBitmap, Procedure, Request, Response};

use crate::fixture::{Fixture, Transport, any, over_each};
use crate::rogue::{Rogue, decoded};

/// All names of one byte, the longest names, names that look like escapes, and random names.
fn odd_names() -> Vec<OsString> {
    let mut names: Vec<Vec<u8>> =
        (1..=255).filter(|byte| !matches!(byte, b'/' | b'.')).map(|byte| vec![byte]).collect();
    names.extend([vec![0xff; 255], vec![0x80; 255], b"\xee\xbe\x80".repeat(85)]);
    let escapes = ["\u{efff}", "\u{ef80}x", "\u{efc3}\u{efa9}", "e\u{301}", "\u{e9}"];
    names.extend(escapes.map(|name| name.as_bytes().to_vec()));
    let mut random = Random::new(1);
    for _ in 0..60 {
        let length = 1 + random.below(255);
        let mut name = random.bytes(length);
        name.iter_mut().filter(|byte| matches!(byte, 0 | b'/')).for_each(|byte| *byte = b'_');
        names.push(name);
    }
    let names: BTreeSet<Vec<u8>> = names.into_iter().filter(|name| name != b".").collect();
    names.into_iter().map(OsString::from_vec).collect()
}

fn local_names(directory: &Path) -> BTreeSet<OsString> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

fn listed(session: &Session, path: &str) -> BTreeSet<OsString> {
    let entries = session.read_dir(path).unwrap();
    assert!(entries.iter().all(|entry| entry.metadata.is_some()));
    entries.into_iter().map(|entry| entry.name).collect()
}

#[test]
fn any_bytes_are_a_name_for_clients_and_local_processes_alike() {
    let names = odd_names();
    let all: BTreeSet<OsString> = names.iter().cloned().collect();
    over_each(|fixture, transport| {
        let (_, session) = fixture.connect(transport);
        let (ours, theirs) = (fixture.local("ours"), fixture.local("theirs"));
        session.create_dir("/ours", 0o755).unwrap();
        std::fs::create_dir(&theirs).unwrap();
        for name in &names {
            let file = session.open(Path::new("/ours").join(name), &OpenOptions::write()).unwrap();
            file.write_at(name.as_bytes(), 0).unwrap();
            file.close().unwrap();
            std::fs::write(theirs.join(name), name.as_bytes()).unwrap();
        }
        assert_eq!(local_names(&ours), all);
        assert_eq!(listed(&session, "/ours"), all);
        assert_eq!(listed(&session, "/theirs"), all);
        for name in &names {
            assert_eq!(std::fs::read(ours.join(name)).unwrap(), name.as_bytes());
            let path = Path::new("/theirs").join(name);
            assert_eq!(session.metadata(&path).unwrap().size, name.len() as u64, "{name:?}");
            let file = session.open(&path, &OpenOptions::read()).unwrap();
            let mut bytes = [0; 256];
            let count = file.read_at(&mut bytes, 0).unwrap();
            assert_eq!(&bytes[..count], name.as_bytes());
            session.remove(&path).unwrap();
        }
        assert_eq!(local_names(&theirs), BTreeSet::new());
    });
}

#[test]
fn names_of_any_bytes_are_renamed_linked_and_led_to() {
    let names = odd_names();
    over_each(|fixture, transport| {
        let (_, session) = fixture.connect(transport);
        for pair in names.windows(2) {
            let [old, new] = pair else { unreachable!() };
            let (old, new) = (Path::new("/").join(old), Path::new("/").join(new));
            let local = |path: &Path| fixture.local("").join(path.strip_prefix("/").unwrap());
            session.create_file(&old, b"content", 0o644).unwrap();
            session.rename(&old, &new).unwrap();
            assert!(!local(&old).exists() && local(&new).is_file(), "{old:?} -> {new:?}");
            session.hard_link(&new, &old).unwrap();
            assert_eq!(session.metadata(&new).unwrap().link_count, 2);
            session.remove(&new).unwrap();
            // The text of a link is also a path of bytes and is followed as such.
            let text = old.strip_prefix("/").unwrap().as_os_str().as_bytes();
            session.symlink(text, &new).unwrap();
            assert_eq!(std::fs::read_link(local(&new)).unwrap().as_os_str().as_bytes(), text);
            assert_eq!(session.read_link(&new).unwrap(), text);
            assert_eq!(session.metadata(&new).unwrap().size, 7);
            session.remove(&old).unwrap();
            session.remove(&new).unwrap();
        }
        assert_eq!(local_names(&fixture.local("")), BTreeSet::new());
    });
}

#[test]
fn a_way_leads_through_directories_whose_names_are_any_bytes() {
    over_each(|fixture, transport| {
        let (_, session) = fixture.connect(transport);
        // In its encoded form, longer than a request.
        let name = OsString::from_vec(vec![0xfe; 255]);
        let (mut path, mut local) = (OsString::from("/"), fixture.local(""));
        for _ in 0..14 {
            path = Path::new(&path).join(&name).into_os_string();
            local.push(&name);
            session.create_dir(&path, 0o755).unwrap();
        }
        assert_eq!(session.metadata(&path).unwrap().kind, ObjectType::Directory);
        let file = Path::new(&path).join(OsStr::from_bytes(b"\xffile"));
        session.create_file(&file, b"deep", 0o644).unwrap();
        assert_eq!(session.metadata(&file).unwrap().size, 4);
        let up = Path::new(&path).join("..").join(&name).join(OsStr::from_bytes(b"\xffile"));
        assert_eq!(session.metadata(&up).unwrap().size, 4);
        let found = session.chain().lookup(Path::new("/").join(&name)).getattr().run();
        assert!(found.is_ok(), "{found:?}");
    });
}

#[test]
fn a_name_that_is_too_long_is_refused_whatever_its_form_is() {
    let fixture = Fixture::new();
    let (_, session): (Client, Session) = fixture.connect(any());
    for name in [vec![b'a'; 256], vec![0xff; 256], vec![0xff; 2000]] {
        let path = Path::new("/").join(OsString::from_vec(name));
        let refused = session.create_file(&path, b"", 0o644).unwrap_err();
        assert_eq!(refused.status(), Some(Status::NameTooLong));
        assert_eq!(session.create_dir(&path, 0o755).unwrap_err().status(), refused.status());
    }
    assert_eq!(local_names(&fixture.local("")), BTreeSet::new());
}

#[test]
fn a_message_says_which_bytes_a_name_has() {
    let fixture = Fixture::new();
    let (_, session) = fixture.connect(any());
    let missing = session.metadata(OsStr::from_bytes(b"/caf\xe9")).unwrap_err().to_string();
    assert!(missing.contains("/caf\\xe9"), "{missing}");
}

/// The operations of a client that uses the encoded names directly.
#[test]
fn a_client_without_knowledge_of_escapes_reaches_what_has_them() {
    over_each(|fixture, transport: Transport| {
        let name = OsStr::from_bytes(b"caf\xe9");
        std::fs::write(fixture.local("").join(name), b"").unwrap();
        let mut rogue = Rogue::connect(&fixture.address(transport));
        rogue.log_in_as(b"plain", WireOptions::default());
        let root = rogue.root();
        let listing = ReadDirectory {
            directory: root,
            cookie: Default::default(),
            verifier: Default::default(),
            names_bytes: 4096,
            result_bytes_max: 4096,
            wanted: AttributeBitmap::NONE,
        };
        let answer = rogue.ask(&Request::ReadDirInline(listing)).unwrap();
        let Response::ReadDirInline(page) = decoded(Procedure::ReadDirInline, &answer) else {
            panic!("a listing")
        };
        let seen: Vec<String> = page.entries.iter().map(|it| it.unwrap().name.to_owned()).collect();
        assert_eq!(seen, ["caf\u{efe9}"]);
        let mode = RemoveMode::Unchecked;
        let remove = |name| Request::Remove(Remove { directory: root, name, mode });
        // There is no second encoding: a name has only one form.
        let twice = to_wire(seen[0].as_bytes()).into_owned();
        assert_eq!(rogue.outcome(&remove(&twice)), Some(Status::NoEnt));
        assert_eq!(rogue.outcome(&remove("\u{efe3}\u{ef81}\u{ef82}")), Some(Status::Inval));
        assert_eq!(rogue.outcome(&remove(&seen[0])), Some(Status::Ok));
        assert_eq!(local_names(&fixture.local("")), BTreeSet::new());
    });
}

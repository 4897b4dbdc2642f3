//! Tests chains that the client builds.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;

use dafs_client::{
    Chain, ChainFailure, Client, ClientConfig, ClientError, NewFile, OpenOptions, Outcome, Session,
    SessionOptions, Status, block_on,
};
use dafs_types::{FileAttributes, SetAttributes, SetTime, Timestamp};
use dafs_wire::messages::{Empty, LockType};
use dafs_wire::{Procedure, Request};

use crate::fixture::{Fixture, over_each, pattern, transports};

fn create_new() -> OpenOptions {
    OpenOptions::write().create_new(true)
}

#[test]
fn each_member_brings_its_result() {
    over_each(|fixture, transport| {
        let (client, session) = fixture.connect(transport);
        let buffer = client.allocate(9000).unwrap();
        let content = pattern(9000, 4);
        buffer.write(0, &content);
        let outcomes = session
            .chain()
            .create_dir("d", 0o755)
            .open("f", &create_new())
            .write_from(0, buffer.slice(0, 9000).unwrap())
            .write_inline(10, b"inline")
            .append(b"more")
            .append_from(buffer.slice(0, 100).unwrap())
            .setattr(&SetAttributes { mode: Some(0o640), ..SetAttributes::default() })
            .commit()
            .getattr()
            .read_inline(5, 20)
            .access(dafs_client::AccessMask::READ)
            .close()
            .run()
            .unwrap();
        let mut whole = content.clone();
        whole[10..16].copy_from_slice(b"inline");
        whole.extend_from_slice(b"more");
        whole.extend_from_slice(&content[..100]);
        assert_eq!(std::fs::read(fixture.local("d/f")).unwrap(), whole);
        assert_eq!(outcomes.len(), 12);
        assert_eq!(outcomes[2].transferred().unwrap().length, 9000);
        assert!(matches!(outcomes[4], Outcome::Appended { offset: 9000, .. }));
        let Outcome::Metadata(metadata) = &outcomes[8] else { panic!("{:?}", outcomes[8]) };
        assert_eq!((metadata.size, metadata.mode), (9104, 0o640));
        assert_eq!(Some(metadata.handle), outcomes[1].handle());
        let read = Outcome::Bytes { bytes: whole[5..25].to_vec(), end_of_file: false };
        assert_eq!(outcomes[9], read);
        assert_eq!(outcomes[10], Outcome::Access(dafs_client::AccessMask::READ));
        assert_eq!(outcomes[11], Outcome::Done);

        let d = outcomes[0].handle().unwrap();
        let f = outcomes[1].handle().unwrap();
        let linked = session.chain().at(d).link(f, "g").symlink("g", "s").read_link();
        assert_eq!(linked.run().unwrap()[2], Outcome::LinkText(b"g".to_vec()));
        let outcomes = session.chain().lookup("/d/s").read_link().run().unwrap();
        assert_eq!(outcomes[1], Outcome::LinkText(b"g".to_vec()));
        let moved = session.chain().lookup("d").rename(d, "g", "h").remove("s").parent();
        let outcomes = moved.lookup("d/h").run().unwrap();
        assert_eq!(outcomes[4].handle(), Some(f));
        assert!(!fixture.local("d/g").exists() && !fixture.local("d/s").exists());
    });
}

#[test]
fn the_first_failure_says_what_was_done_before_it() {
    over_each(|fixture, transport| {
        let (_, session) = fixture.connect(transport);
        let chain = session.chain().create_dir("d", 0o755).create_dir("e", 0o755);
        let failure = chain.lookup("none").create_dir("f", 0o755).null().run().unwrap_err();
        assert_eq!((failure.member, failure.name), (2, "LOOKUP"));
        assert_eq!(failure.error.status(), Some(Status::NoEnt));
        assert_eq!(failure.done.len(), 2);
        assert!(failure.done.iter().all(|outcome| outcome.handle().is_some()));
        assert!(fixture.local("d/e").is_dir());
        let text = failure.to_string();
        assert!(text.starts_with("member 3 of the chain, LOOKUP: none: "), "{text}");
        assert_eq!(ClientError::from(failure).status(), Some(Status::NoEnt));
    });
}

#[test]
fn what_is_misplaced_is_refused_before_anything_is_sent() {
    let fixture = Fixture::new();
    let (client, session) = fixture.connect(crate::fixture::any());
    let refused = |chain: Chain<'_>, member: usize, status: Status, text: &str| {
        let failure: ChainFailure = chain.run().unwrap_err();
        assert_eq!((failure.member, failure.done.len()), (member, 0), "{failure}");
        assert_eq!(failure.error.status(), Some(status), "{failure}");
        assert!(failure.to_string().contains(text), "{failure}");
    };
    let made = || session.chain().create_dir("never", 0o755);
    let form = Status::ChainForm;
    refused(made().getattr().remove("x"), 2, form, "REMOVE cannot follow");
    refused(made().getattr().null().commit(), 3, form, "COMMIT cannot follow");
    refused(made().save(), 1, form, "only for simple");
    refused(session.chain().save(), 0, form, "before the first");
    refused(made().null().save(), 1, form, "nothing follows");
    refused(made().lookup("../x"), 1, Status::Inval, "../x");
    refused(made().lookup("/"), 1, Status::Inval, "/");
    let truncating = OpenOptions::read().truncate(true);
    refused(made().open("x", &truncating), 1, Status::Inval, "x");
    let large = vec![0; 100_000];
    let written = made().open("x", &create_new()).write_inline(0, &large);
    refused(written, 2, Status::WriteTooBig, "WRITE_INLINE");
    refused(made().create_dir("x".repeat(300), 0o755), 1, Status::NameTooLong, "CREATE");
    for &procedure in Procedure::ALL {
        let special = match procedure {
            Procedure::Disconnect => Request::Disconnect(Empty),
            Procedure::SecInfo => Request::SecInfo(Empty),
            Procedure::BcNull => Request::BcNull(Empty),
            _ => continue,
        };
        refused(made().request(&special), 1, form, "cannot be in a chain");
    }
    let other = Client::new(ClientConfig::default()).unwrap();
    let foreign = other.allocate(10).unwrap();
    let failure = session.chain().read_into(0, foreign.slice(0, 10).unwrap()).run().unwrap_err();
    assert!(matches!(failure.error, ClientError::Foreign { .. }));
    assert!(!fixture.local("never").exists());
    assert_eq!(session.chain().run(), Ok(Vec::new()), "a chain of none does nothing");
    drop((client, other));
}

#[test]
fn members_work_on_open_files_and_guard_each_other() {
    over_each(|fixture, transport| {
        let (client, session) = fixture.connect(transport);
        let file = session.open("/f", &OpenOptions::write()).unwrap();
        file.write_at(b"12345", 0).unwrap();
        let size = |size| FileAttributes { size: Some(size), ..FileAttributes::default() };
        let guarded = |guard: u64| {
            session.chain().of(&file).verify(&size(guard)).write_inline(0, b"changed").run()
        };
        assert_eq!(guarded(4).unwrap_err().error.status(), Some(Status::NotSame));
        assert_eq!(guarded(5).unwrap().len(), 2);
        let unchanged = session.chain().of(&file).verify_not(&size(7)).write_inline(0, b"again");
        assert_eq!(unchanged.run().unwrap_err().error.status(), Some(Status::Same));
        // Two pieces at once, and an open that a chain has left open.
        let buffer = client.allocate(7).unwrap();
        let read = session
            .chain()
            .of(&file)
            .read_into(0, buffer.slice(0, 3).unwrap())
            .read_into(3, buffer.slice(3, 4).unwrap());
        assert_eq!(read.run().unwrap()[1].transferred().unwrap().length, 4);
        let mut bytes = [0; 7];
        buffer.read(0, &mut bytes);
        assert_eq!(&bytes, b"changed");
        let left = session.chain().open("f", &OpenOptions::read()).run().unwrap();
        let Outcome::Opened { file: handle, state } = left[0] else { panic!("{left:?}") };
        let left = session.opened(handle, state, "/f");
        assert_eq!(left.read_at(&mut bytes, 0).unwrap(), 7);
        left.close().unwrap();
        // A lock may be in a place where a write may not. Whether there is one, the server decides.
        let locked = session
            .chain()
            .of(&file)
            .lock(LockType::Read, 0, 10)
            .read_inline(0, 7)
            .unlock(LockType::Read, 0, 10);
        match locked.run() {
            Ok(outcomes) => assert_eq!(outcomes.len(), 3),
            Err(failure) => assert_eq!(failure.error.status(), Some(Status::NotSupp)),
        }
        file.close().unwrap();
        assert_eq!(std::fs::read(fixture.local("f")).unwrap(), b"changed");
    });
}

#[test]
fn chains_longer_than_the_credits_go_on_as_members_are_answered() {
    for transport in transports() {
        for credits in [1, 2, 3, 8] {
            let fixture = Fixture::new();
            let options = SessionOptions::default().credits(credits);
            let (client, session) = fixture.connect_with(transport, &options);
            // Other requests wait after it, whatever they are.
            let file = session.open("/f", &OpenOptions::write()).unwrap();
            let buffer = client.allocate(100).unwrap();
            let long = |name: &str| {
                let mut chain = session.chain();
                for depth in 0..20 {
                    chain = chain.create_dir(format!("{name}{depth}"), 0o755);
                }
                chain.run_async()
            };
            let (first, write) = (long("a"), file.write_async(0, buffer.slice(0, 100).unwrap()));
            let root = session.root();
            let (second, look) = (long("b"), session.metadata_async(root, "/"));
            block_on(&client, async {
                assert_eq!(first.await.unwrap().len(), 20);
                assert_eq!(write.await.unwrap().length, 100);
                assert!(look.await.is_ok());
                assert_eq!(second.await.unwrap().len(), 20);
            });
            let path: Vec<_> = (0..20).map(|depth| format!("b{depth}")).collect();
            assert!(fixture.local(&path.join("/")).is_dir());
            assert!(session.credits() <= credits);
            session.ping().unwrap();
            drop((session, client));
            let (_, stats) = fixture.stop();
            assert_eq!((stats.chains, stats.parked_requests), (0, 0));
        }
    }
}

#[test]
fn many_chains_run_beside_each_other() {
    over_each(|fixture, transport| {
        let (client, session) = fixture.connect(transport);
        const COUNT: usize = 200;
        let contents: Vec<_> = (0..COUNT).map(|at| pattern(2000 + at, at as u64)).collect();
        let write = |at: usize| {
            let chain = session.chain().open(format!("f{at}"), &create_new());
            chain.write_inline(0, &contents[at]).commit().close().run_async()
        };
        let all: Vec<_> = (0..COUNT).map(write).collect();
        block_on(&client, async {
            for chain in all {
                assert_eq!(chain.await.unwrap().len(), 4);
            }
        });
        let buffer = client.allocate(COUNT * 4096).unwrap();
        let read = |at: usize| {
            let slice = buffer.slice(at * 4096, 4096).unwrap();
            let chain = session.chain().open(format!("f{at}"), &OpenOptions::read());
            chain.read_into(0, slice).close().run_async()
        };
        let all: Vec<_> = (0..COUNT).map(read).collect();
        block_on(&client, async {
            for (chain, content) in all.into_iter().zip(&contents) {
                let read = chain.await.unwrap()[1].transferred().unwrap();
                assert_eq!(read.length as usize, content.len());
                assert!(read.end_of_file);
            }
        });
        for (at, content) in contents.iter().enumerate() {
            let mut bytes = vec![0; content.len()];
            buffer.read(at * 4096, &mut bytes);
            assert_eq!(bytes, *content, "file {at}");
            assert_eq!(std::fs::read(fixture.local(&format!("f{at}"))).unwrap(), *content);
        }
    });
}

#[test]
fn chains_carry_checksums_and_go_on_without_their_futures() {
    for transport in transports() {
        let fixture = Fixture::new();
        let options = SessionOptions::default().checksums(true);
        let (client, session) = fixture.connect_with(transport, &options);
        let content = pattern(20_000, 9);
        let buffer = client.allocate(content.len()).unwrap();
        buffer.write(0, &content);
        let slice = || buffer.slice(0, content.len()).unwrap();
        let written = session.chain().open("f", &create_new()).write_from(0, slice()).close();
        assert_eq!(written.run().unwrap().len(), 3);
        buffer.write(0, &vec![0; content.len()]);
        let read = session.chain().open("f", &OpenOptions::read()).read_into(0, slice()).close();
        assert_eq!(read.run().unwrap()[1].transferred().unwrap().length, 20_000);
        assert_eq!(buffer.memory().to_vec(0, content.len()), content);
        drop(session.chain().create_dir("dropped", 0o755).create_dir("too", 0o755).run_async());
        session.ping().unwrap();
        assert!(fixture.local("dropped/too").is_dir());
    }
}

#[test]
fn small_files_are_read_and_made_as_a_whole() {
    over_each(|fixture, transport| {
        let (client, session) = fixture.connect(transport);
        let buffer = client.allocate(1 << 20).unwrap();
        let whole = |path: &str, length: usize| -> Result<Vec<u8>, ClientError> {
            let read = session.read_file_once(path, buffer.slice(0, length)?)?;
            Ok(buffer.memory().to_vec(0, read.length as usize))
        };
        session.create_dir("/d", 0o755).unwrap();
        session.symlink("d", "/link").unwrap();
        session.symlink("f0", "/d/also").unwrap();
        for (at, length) in [0, 1, 4096, 5000, 700_000].into_iter().enumerate() {
            let content = pattern(length, at as u64);
            let path = format!("/d/f{at}");
            session.create_file(&path, b"something else, which goes", 0o644).unwrap();
            session.create_file(&path, &content, 0o644).unwrap();
            assert_eq!(std::fs::read(fixture.local(&path[1..])).unwrap(), content);
            assert_eq!(whole(&path, 1 << 20).unwrap(), content);
            assert_eq!(whole(&format!("/link/f{at}"), 1 << 20).unwrap(), content);
            assert_eq!(
                whole(&path, length / 2 + 1).unwrap(),
                content[..length.min(length / 2 + 1)]
            );
        }
        session.create_file("/link/new", b"over a link", 0o600).unwrap();
        session.create_file("/d/../d/also", b"at the end of one", 0o600).unwrap();
        assert_eq!(std::fs::read(fixture.local("d/new")).unwrap(), b"over a link");
        assert_eq!(std::fs::read(fixture.local("d/f0")).unwrap(), b"at the end of one");
        assert_eq!(whole("/d/none", 10).unwrap_err().status(), Some(Status::NoEnt));
        assert_eq!(whole("/d", 10).unwrap_err().status(), Some(Status::IsDir));
        let refused = session.create_file("/none/f", b"", 0o600).unwrap_err();
        assert_eq!(refused.status(), Some(Status::NoEnt));
        // No open is left: the name can be removed and with it the file.
        let guarded = OpenOptions::write().deny(dafs_client::ShareDeny::Both);
        session.open("/d/f4", &guarded).unwrap().close().unwrap();
    });
}

/// A file is created with its contents, its mode and its times. An existing file is not changed.
#[test]
fn a_new_file_is_made_complete_in_one_round_trip() {
    over_each(|fixture, transport| {
        let (client, session) = fixture.connect(transport);
        let buffer = client.allocate(1 << 20).unwrap();
        session.create_dir("/d", 0o755).unwrap();
        let directory = session.metadata("/d").unwrap().handle;
        let modified = Timestamp { seconds: 1_234_567, nanoseconds: 89 };
        let make = |name: &str, length: usize, is_stable: bool, mode: u32| {
            let content = (length > 0).then(|| buffer.slice(0, length).unwrap());
            let time_modify = Some(SetTime::Client(modified));
            let attributes = SetAttributes { time_modify, ..SetAttributes::default() };
            let (name, path) = (OsStr::new(name), format!("/d/{name}"));
            let path = OsStr::new(&path);
            let new = NewFile { directory, name, path, mode, content, is_stable, attributes };
            block_on(&client, session.make_file_async(&new))
        };
        for (at, length) in [0, 1, 4096, 5000, 700_000].into_iter().enumerate() {
            let (content, name) = (pattern(length, at as u64), format!("f {at}"));
            buffer.write(0, &content);
            let made = make(&name, length, at % 2 == 0, 0o640).unwrap().unwrap();
            let path = format!("d/{name}");
            assert_eq!(session.metadata(format!("/{path}")).unwrap().handle, made);
            assert_eq!(std::fs::read(fixture.local(&path)).unwrap(), content);
            let found = std::fs::metadata(fixture.local(&path)).unwrap();
            assert_eq!((found.mtime(), found.mtime_nsec()), (1_234_567, 89));
            assert_eq!(found.mode() & 0o777, 0o640);
            // The data that is read back is the data that was written.
            let file = session.open(format!("/{path}"), &OpenOptions::read()).unwrap();
            let mut again = vec![0; length + 1];
            assert_eq!(file.read_at(&mut again, 0).unwrap(), length);
            assert_eq!(again[..length], content);
        }
        let refused = make("f 3", 10, false, 0o600).unwrap_err();
        assert_eq!(refused.status(), Some(Status::Exist));
        assert!(refused.to_string().contains("/d/f 3"), "{refused}");
        assert_eq!(std::fs::metadata(fixture.local("d/f 3")).unwrap().len(), 5000);
        // A file whose mode allows no writing is written all the same, and no open is left.
        make("guarded", 10, true, 0o444).unwrap().unwrap();
        let all = OpenOptions::read().deny(dafs_client::ShareDeny::Both);
        session.open("/d/guarded", &all).unwrap().close().unwrap();
    });
}

#[test]
fn a_session_that_ends_ends_its_chains() {
    over_each(|fixture, transport| {
        let (client, session) = fixture.connect(transport);
        let chain = session.chain().create_dir("d", 0o755).null().run_async();
        let leaving: Session = session.clone();
        leaving.disconnect().unwrap();
        let ended = block_on(&client, chain);
        if let Err(failure) = ended {
            assert!(matches!(failure.error, ClientError::SessionEnded { .. }), "{failure}");
        }
        let failure = session.chain().null().null().run().unwrap_err();
        assert!(matches!(failure.error, ClientError::SessionEnded { .. }), "{failure}");
        assert_eq!(failure.member, 0);
    });
}

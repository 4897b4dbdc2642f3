//! Tests names and attributes, as the client and local processes see them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dafs_client::{
    NewObject, ObjectType, OpenOptions, SetAttributes, SetTime, Status, Timestamp, block_on,
};

use crate::fixture::{Fixture, any, over_each, pattern, transports};

#[test]
fn directories_are_made_listed_and_removed() {
    over_each(|fixture, transport| {
        let (_, session) = fixture.connect(transport);
        session.create_dir("/d", 0o755).unwrap();
        for number in 0..300 {
            std::fs::write(fixture.local(&format!("d/file-{number:03}")), b"x").unwrap();
        }
        let mut names: Vec<_> =
            session.read_dir("/d").unwrap().into_iter().map(|entry| entry.name).collect();
        names.sort();
        let expected: Vec<_> =
            (0..300).map(|number| OsString::from(format!("file-{number:03}"))).collect();
        assert_eq!(names, expected);
        assert_eq!(session.remove("/d").unwrap_err().status(), Some(Status::NotEmpty));
        for name in names {
            session.remove(Path::new("/d").join(name)).unwrap();
        }
        session.remove("/d").unwrap();
        assert!(!fixture.local("d").exists());
    });
}

#[test]
fn attributes_are_told_and_set() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), vec![7; 12_345]).unwrap();
        let (_, session) = fixture.connect(transport);
        let before = session.metadata("/file").unwrap();
        assert_eq!((before.kind, before.size), (ObjectType::Regular, 12_345));
        let time = Timestamp { seconds: 1_000_000_000, nanoseconds: 5_000 };
        let wanted = SetAttributes {
            mode: Some(0o640),
            size: Some(100),
            time_modify: Some(SetTime::Client(time)),
            ..SetAttributes::default()
        };
        session.set_attributes("/file", &wanted).unwrap();
        let after = session.metadata("/file").unwrap();
        assert_eq!((after.mode, after.size), (0o640, 100));
        assert_eq!(after.time_modify, time);
        assert_eq!(std::fs::metadata(fixture.local("file")).unwrap().len(), 100);
    });
}

/// Written data reaches the file later, which must not change the times.
#[test]
fn times_that_are_set_are_those_of_the_file_though_data_is_on_its_way() {
    over_each(|fixture, transport| {
        let (_, session) = fixture.connect(transport);
        let options = OpenOptions::write().create(true);
        let file = session.open("/file", &options).unwrap();
        file.write_at(&[7; 10_000], 0).unwrap();
        let time = |seconds| Timestamp { seconds, nanoseconds: 5_000 };
        let wanted = SetAttributes {
            mode: Some(0o640),
            time_access: Some(SetTime::Client(time(2_000_000))),
            time_modify: Some(SetTime::Client(time(1_000_000))),
            ..SetAttributes::default()
        };
        session.set_attributes("/file", &wanted).unwrap();
        assert_eq!(session.metadata("/file").unwrap().time_modify, time(1_000_000));
        file.close().unwrap();
        let after = session.metadata("/file").unwrap();
        assert_eq!((after.mode, after.size), (0o640, 10_000));
        assert_eq!((after.time_access, after.time_modify), (time(2_000_000), time(1_000_000)));
        assert_eq!(std::fs::read(fixture.local("file")).unwrap(), vec![7; 10_000]);
    });
}

#[test]
fn symbolic_links_are_followed_by_the_client() {
    over_each(|fixture, transport| {
        let (_, session) = fixture.connect(transport);
        session.create_dir("/a", 0o755).unwrap();
        session.create_dir("/a/b", 0o755).unwrap();
        std::fs::write(fixture.local("a/b/file"), b"found").unwrap();
        session.symlink("a/b", "/short").unwrap();
        session.symlink("../../short/file", "/a/b/back").unwrap();
        session.symlink("/a/b/back", "/far").unwrap();
        session.symlink("loop", "/loop").unwrap();
        session.symlink("../../../../../etc/passwd", "/out").unwrap();
        for path in ["/short/file", "/a/b/back", "/far", "/short/../b/./file"] {
            let file = session.open(path, &OpenOptions::read());
            let mut bytes = [0; 5];
            let file = file.unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 5, "{path}");
            assert_eq!(&bytes, b"found");
        }
        assert_eq!(session.read_link("/far").unwrap(), b"/a/b/back");
        session.symlink(b"b\xffd", "/bytes").unwrap();
        assert_eq!(session.read_link("/bytes").unwrap(), b"b\xffd");
        let missing = session.open("/bytes", &OpenOptions::read()).map(drop).unwrap_err();
        assert_eq!(missing.status(), Some(Status::NoEnt));
        std::fs::write(fixture.local("").join(OsStr::from_bytes(b"b\xffd")), b"led to").unwrap();
        assert_eq!(session.metadata("/bytes").unwrap().size, 6);
        session.open("/bytes", &OpenOptions::read()).unwrap();
        assert!(session.metadata("/loop").is_err());
        assert_eq!(session.metadata("/out").unwrap_err().status(), Some(Status::NoEnt));
    });
}

#[test]
fn handles_outlive_renames_and_restarts_and_names_do_not_outlive_removal() {
    let fixture = Fixture::new();
    std::fs::write(fixture.local("old"), pattern(1000, 1)).unwrap();
    let (client, session) = fixture.connect(any());
    let file = session.open("/old", &OpenOptions::read()).unwrap();
    session.rename("/old", "/new").unwrap();
    let mut bytes = vec![0; 1000];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 1000);
    let handle = file.handle();
    drop((file, session, client));
    let (directory, _) = fixture.stop();
    let fixture = Fixture::again(directory);
    let (_, session) = fixture.connect(any());
    assert_eq!(session.metadata("/new").unwrap().handle, handle);
    assert_eq!(session.metadata("/old").unwrap_err().status(), Some(Status::NoEnt));
}

#[test]
fn links_and_renames_do_what_they_say() {
    over_each(|fixture, transport| {
        let (_, session) = fixture.connect(transport);
        std::fs::write(fixture.local("one"), b"1").unwrap();
        std::fs::write(fixture.local("two"), b"2").unwrap();
        session.hard_link("/one", "/same").unwrap();
        assert_eq!(session.metadata("/one").unwrap().link_count, 2);
        assert_eq!(session.hard_link("/one", "/two").unwrap_err().status(), Some(Status::Exist));
        session.rename("/two", "/same").unwrap();
        assert_eq!(std::fs::read(fixture.local("same")).unwrap(), b"2");
        assert!(!fixture.local("two").exists());
        let error = session.rename("/none", "/x").unwrap_err();
        assert_eq!(error.status(), Some(Status::NoEnt));
        assert!(error.to_string().contains("/none"), "{error}");
    });
}

#[test]
fn bad_names_get_the_right_answer() {
    over_each(|fixture, transport| {
        let (_, session) = fixture.connect(transport);
        let long = "n".repeat(256);
        let status = |path: &str| {
            session.open(path, &OpenOptions::write()).err().and_then(|error| error.status())
        };
        assert_eq!(status(&format!("/{long}")), Some(Status::NameTooLong));
        // Also longer than a message: whichever side refuses it, the error names it.
        for path in [format!("/{long}"), format!("/{}", "n".repeat(20_000))] {
            for error in [
                session.metadata(&path).unwrap_err(),
                session.create_dir(&path, 0o755).unwrap_err(),
                session.remove(&path).unwrap_err(),
                session.rename("/none", &path).unwrap_err(),
            ] {
                assert_eq!(error.status(), Some(Status::NameTooLong));
                assert!(error.to_string().contains(&path), "{error}");
            }
        }
        assert_eq!(status("/no/such/file"), Some(Status::NoEnt));
        assert_eq!(status(""), Some(Status::Inval));
        let deep = format!("/{}", "d/".repeat(3000));
        assert!(session.metadata(&deep).is_err());
        session.create_dir("/dir", 0o755).unwrap();
        // Paths that end in no name refer to directories, if anything.
        for path in ["/dir", "/dir/", "/", "//", "/dir/.", "/dir/.."] {
            assert_eq!(status(path), Some(Status::IsDir), "{path}");
        }
        assert_eq!(status("/none/.."), Some(Status::NoEnt));
        let new = OpenOptions::write().create_new(true);
        assert_eq!(session.open("/", &new).err().unwrap().status(), Some(Status::Exist));
        std::fs::write(fixture.local("plain"), b"").unwrap();
        assert_eq!(status("/plain/below"), Some(Status::NotDir));
    });
}

#[test]
fn the_file_system_tells_its_limits() {
    over_each(|fixture, transport| {
        let (_, session) = fixture.connect(transport);
        let limits = session.file_system("/").unwrap();
        assert!(limits.space_total.unwrap() >= limits.space_free.unwrap());
        assert!(limits.max_append.unwrap() >= 65_536);
        assert_eq!(limits.lease_time, Some(90));
        assert!(fixture.root().exists());
    });
}

#[test]
fn a_memory_store_serves_alike() {
    let fixture = Fixture::in_memory();
    for transport in transports() {
        let (_, session) = fixture.connect(transport);
        let path = format!("/file-{transport:?}");
        let made = session.open(&path, &OpenOptions::write());
        // Its root belongs to the superuser.
        if rustix::process::getuid().is_root() {
            let file = made.unwrap();
            file.write_at(&pattern(300_000, 2), 0).unwrap();
            file.commit().unwrap();
            let mut back = vec![0; 300_000];
            assert_eq!(file.read_at(&mut back, 0).unwrap(), 300_000);
            assert!(back == pattern(300_000, 2));
        } else {
            assert_eq!(made.err().and_then(|e| e.status()), Some(Status::Access));
        }
    }
}

/// The superuser creates objects for others; other users only for themselves.
#[test]
fn objects_are_made_for_whom_they_are_to_belong_to() {
    over_each(|fixture, transport| {
        let is_root = rustix::process::getuid().is_root();
        let (_, session) = fixture.connect(transport);
        let other = (rustix::process::getuid().as_raw() + 1, 4321);
        let options = OpenOptions::write().create_new(true).owner(Some(other));
        let opened = session.open("/theirs", &options);
        let wanted = SetAttributes {
            mode: Some(0o640),
            owner: Some(other.0.to_string()),
            owner_group: Some(other.1.to_string()),
            ..SetAttributes::default()
        };
        let root = session.root();
        let made = [NewObject::Directory, NewObject::Fifo, NewObject::SymbolicLink(b"text")];
        let names = ["directory", "pipe", "link"];
        for (object, name) in made.into_iter().zip(names) {
            let made = session.create_in_async(root, name, name, object, &wanted);
            assert_eq!(block_on(&session.client(), made).is_ok(), is_root, "{name}");
        }
        if !is_root {
            assert_eq!(opened.err().and_then(|error| error.status()), Some(Status::Perm));
            assert!(!fixture.local("theirs").exists());
            return;
        }
        opened.unwrap().close().unwrap();
        for name in names.into_iter().chain(["theirs"]) {
            let found = std::fs::symlink_metadata(fixture.local(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), other, "{name}");
        }
        let mode = std::fs::metadata(fixture.local("directory")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o640);
    });
}

#[test]
fn a_rename_can_be_refused_where_there_is_something() {
    over_each(|fixture, transport| {
        let (client, session) = fixture.connect(transport);
        let root = session.root();
        std::fs::write(fixture.local("file"), b"file").unwrap();
        std::fs::write(fixture.local("taken"), b"taken").unwrap();
        std::fs::create_dir_all(fixture.local("directory/inner")).unwrap();
        std::os::unix::fs::symlink("nowhere", fixture.local("link")).unwrap();
        for name in ["file", "directory", "link"] {
            let rename = |new| {
                let renamed = session.rename_new_in_async((root, name), (root, new), name);
                block_on(&client, renamed).err().and_then(|error| error.status())
            };
            assert_eq!(rename("taken"), Some(Status::Exist), "{name}");
            let new = format!("new {name}");
            assert_eq!(rename(&new), None);
            assert!(fixture.local(&new).symlink_metadata().is_ok());
            assert!(fixture.local(name).symlink_metadata().is_err());
        }
        assert!(fixture.local("new directory/inner").is_dir());
        assert_eq!(std::fs::read(fixture.local("taken")).unwrap(), b"taken");
    });
}

#[test]
fn two_who_remove_one_tree_at_once_leave_nothing_and_miss_nothing() {
    let fixture = Fixture::new();
    for round in 0..5 {
        for directory in 0..30 {
            let path = fixture.local(&format!("tree/{directory}"));
            std::fs::create_dir_all(&path).unwrap();
            (0..10).for_each(|file| std::fs::write(path.join(file.to_string()), "").unwrap());
        }
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let (client, session) = fixture.connect(any());
                    let mut tell = |error| panic!("{round}: {error}");
                    let removal = session.remove_tree_in_async(
                        session.root(),
                        "tree",
                        "tree",
                        None,
                        &mut tell,
                    );
                    match block_on(&client, removal) {
                        // The other request was executed before this one began.
                        Err(error) if error.status() == Some(Status::NoEnt) => {}
                        done => done.unwrap(),
                    }
                });
            }
        });
        assert!(!fixture.local("tree").exists(), "{round}");
    }
}

//! Tests named attributes, access control lists, MIME types and quotas over the wire.

use std::time::Duration;

use dafs_client::{
    Client, OpenOptions, Recovery, RecoveryOptions, Session, SessionOptions, SetAttributes, Status,
    block_on,
};
use dafs_types::acl::{EVERYONE, GROUP, OWNER};
use dafs_types::{
    AccessMask, Ace, AceFlags, AceKind, AceRights, Credentials, FileAttributes, FileHandle,
    ObjectType,
};
use dafs_wire::attributes::file::bits;
use dafs_wire::messages::{GetAttributes, OneHandle, Rename};
use dafs_wire::{AttributeBitmap, Request, Response};
use rustix::fs::XattrFlags;

use crate::fixture::{Fixture, Transport, far, over_each, pattern};

/// Runs a request and returns its reply.
fn ask<T>(
    client: &Client,
    session: &Session,
    request: &Request<'_>,
    read: impl FnOnce(&Response<'_>) -> Option<T>,
) -> Result<T, Status> {
    let reply = block_on(client, session.start(request).unwrap()).unwrap();
    match reply.read().unwrap() {
        (Status::Ok, response) => Ok(read(&response).expect("the answer to this request")),
        (status, _) => Err(status),
    }
}

fn open_attributes(
    client: &Client,
    session: &Session,
    file: FileHandle,
) -> Result<FileHandle, Status> {
    ask(client, session, &Request::OpenAttr(OneHandle { file }), |response| match response {
        Response::OpenAttr(result) => Some(result.file),
        _ => None,
    })
}

fn attributes(
    client: &Client,
    session: &Session,
    file: FileHandle,
    wanted: AttributeBitmap,
) -> FileAttributes {
    let request = Request::GetAttrInline(GetAttributes { file, wanted });
    let answer = ask(client, session, &request, |response| match response {
        Response::GetAttrInline(result) => Some(result.attributes.file()),
        _ => None,
    });
    answer.unwrap()
}

fn handle(session: &Session, path: &str) -> FileHandle {
    session.metadata(path).unwrap().handle
}

fn status<T>(result: Result<T, dafs_client::ClientError>) -> Option<Status> {
    result.err().and_then(|error| error.status())
}

/// True if the fixture's directory supports user attributes. Otherwise prints a message.
fn keeps_attributes(fixture: &Fixture) -> bool {
    let file = fixture.local("probe");
    std::fs::write(&file, b"").unwrap();
    let kept = rustix::fs::setxattr(&file, "user.probe", b"1", XattrFlags::empty()).is_ok();
    std::fs::remove_file(&file).unwrap();
    if !kept {
        dafs_tests::skip("this file system keeps no extended attributes");
    }
    kept
}

/// True if it supports access control lists. A list of three entries is only a mode, so four are
/// tried.
fn keeps_lists(fixture: &Fixture) -> bool {
    let file = fixture.local("probe");
    std::fs::write(&file, b"").unwrap();
    let mut list = vec![2, 0, 0, 0];
    for (tag, bits, id) in
        [(1u16, 6u16, !0u32), (2, 4, 1), (4, 4, !0), (0x10, 4, !0), (0x20, 0, !0)]
    {
        list.extend(tag.to_le_bytes());
        list.extend(bits.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    let name = "system.posix_acl_access";
    let kept = rustix::fs::setxattr(&file, name, &list, XattrFlags::empty()).is_ok();
    std::fs::remove_file(&file).unwrap();
    if !kept {
        dafs_tests::skip("this file system keeps no access control lists");
    }
    kept
}

fn local_attribute(fixture: &Fixture, path: &str, name: &str) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(65_536);
    let spare = rustix::buffer::spare_capacity(&mut value);
    rustix::fs::getxattr(fixture.local(path), name, spare).ok().map(|_| value)
}

/// Runs a check over each transport on the attributes of a file, which has none yet. Skipped where
/// its directory supports none.
fn over_attributes_of_a_file(check: impl Fn(&Fixture, &Client, &Session, FileHandle)) {
    over_each(|fixture, transport| {
        if !keeps_attributes(fixture) {
            return;
        }
        std::fs::write(fixture.local("file"), b"").unwrap();
        // A request that the server delays fails after this short time.
        let give_up_after = Duration::from_millis(200);
        let recovery = Recovery::On(RecoveryOptions::default().give_up_after(give_up_after));
        let options = SessionOptions::default().recovery(recovery);
        let (client, session) = fixture.connect_with(transport, &options);
        let directory = open_attributes(&client, &session, handle(&session, "/file")).unwrap();
        check(fixture, &client, &session, directory);
    });
}

#[test]
fn named_attributes_are_files_in_a_directory_of_their_own() {
    over_each(|fixture, transport| {
        if !keeps_attributes(fixture) {
            return;
        }
        std::fs::write(fixture.local("file"), b"data").unwrap();
        std::fs::create_dir(fixture.local("dir")).unwrap();
        let (client, session) = fixture.connect(transport);
        for path in ["file", "dir"] {
            let object = handle(&session, &format!("/{path}"));
            let has_any = || attributes(&client, &session, object, bits::NAMED_ATTR);
            assert_eq!(has_any().named_attributes, Some(false));
            let directory = open_attributes(&client, &session, object).unwrap();
            let kind =
                |handle| block_on(&client, session.metadata_async(handle, "it")).unwrap().kind;
            assert_eq!(kind(directory), ObjectType::AttributeDirectory);
            let file = session.open_in(directory, "color", "color", &OpenOptions::write()).unwrap();
            file.write_at(b"blue", 0).unwrap();
            file.write_at(b"ish", 4).unwrap();
            assert_eq!(file.metadata().unwrap().size, 7);
            file.commit().unwrap();
            assert_eq!(local_attribute(fixture, path, "user.color").unwrap(), b"blueish");
            file.set_len(4).unwrap();
            assert_eq!(file.metadata().unwrap().kind, ObjectType::NamedAttribute);
            file.close().unwrap();
            assert_eq!(local_attribute(fixture, path, "user.color").unwrap(), b"blue");
            assert_eq!(has_any().named_attributes, Some(true));
            // A named attribute has no attributes of its own.
            let color = block_on(&client, session.lookup_in_async(directory, "color", "color"));
            for beneath in [directory, color.unwrap()] {
                let refused = open_attributes(&client, &session, beneath);
                assert_eq!(refused, Err(Status::NotSupp));
            }
            let request = Request::Rename(Rename {
                source: directory,
                target: directory,
                old_name: "color",
                new_name: "colour",
            });
            ask(&client, &session, &request, |_| Some(())).unwrap();
            assert_eq!(local_attribute(fixture, path, "user.colour").unwrap(), b"blue");
            block_on(&client, session.remove_in_async(directory, "colour", "colour")).unwrap();
            let gone = session.open_in(directory, "colour", "colour", &OpenOptions::read());
            assert_eq!(status(gone), Some(Status::NoEnt));
        }
    });
}

#[test]
fn a_local_change_of_an_attribute_is_seen_at_the_next_open() {
    over_attributes_of_a_file(|fixture, _, session, directory| {
        let set = |value: &[u8]| {
            let path = fixture.local("file");
            rustix::fs::setxattr(path, "user.note", value, XattrFlags::empty()).unwrap();
        };
        for value in [&b"one"[..], b"two", b"three", b"", b"four"] {
            set(value);
            let file = session.open_in(directory, "note", "note", &OpenOptions::read()).unwrap();
            let mut bytes = [0; 16];
            let length = file.read_at(&mut bytes, 0).unwrap();
            assert_eq!(&bytes[..length], value);
            file.close().unwrap();
        }
    });
}

#[test]
fn an_attribute_made_again_serves_those_who_have_it_open() {
    over_attributes_of_a_file(|fixture, client, session, directory| {
        let open = || session.open_in(directory, "note", "note", &OpenOptions::write()).unwrap();
        let (old, request) = (
            open(),
            Rename { source: directory, target: directory, old_name: "note", new_name: "other" },
        );
        let busy = ask(client, session, &Request::Rename(request), |_| Some(()));
        assert_eq!(busy, Err(Status::Delay));
        block_on(client, session.remove_in_async(directory, "note", "note")).unwrap();
        assert_eq!(local_attribute(fixture, "file", "user.note"), None);
        let new = open();
        assert_eq!(new.handle(), old.handle());
        new.write_at(b"kept", 0).unwrap();
        new.close().unwrap();
        old.close().unwrap();
        assert_eq!(local_attribute(fixture, "file", "user.note").unwrap(), b"kept");
    });
}

#[test]
fn attributes_that_are_too_large_are_refused() {
    over_attributes_of_a_file(|fixture, _, session, directory| {
        let file = session.open_in(directory, "big", "big", &OpenOptions::write()).unwrap();
        assert_eq!(status(file.set_len(65_537)), Some(Status::FBig));
        file.write_at(&pattern(65_537, 1), 0).unwrap();
        // The limit depends on the file system, but this length exceeds every limit.
        assert!(matches!(status(file.commit()), Some(Status::FBig | Status::NoSpc)));
        assert_eq!(file.metadata().unwrap().size, 0);
        // An open that has lost data reports that until it is closed.
        drop(file);
        let file = session.open_in(directory, "big", "big", &OpenOptions::write()).unwrap();
        file.write_at(&pattern(1000, 2), 0).unwrap();
        file.commit().unwrap();
        assert!(local_attribute(fixture, "file", "user.big").unwrap() == pattern(1000, 2));
    });
}

fn allow(who: &str, rights: u32) -> Ace {
    let (kind, rights) = (AceKind::Allow, AceRights(rights));
    Ace { kind, flags: AceFlags::default(), rights, who: who.to_owned() }
}

const READ: u32 = 0x1;
const WRITE: u32 = 0x6;
/// Users different from that of this process.
const FRIEND: u32 = 4321;
const STRANGER: u32 = 4322;

/// Starts a server that maps remote clients to this user.
fn serving(uid: u32) -> Fixture {
    let who = Credentials::plain(uid, uid).unwrap();
    Fixture::with(|config| config.sessions.authentication.anonymous = Some(who))
}

#[test]
fn lists_are_set_told_and_obeyed() {
    for uid in [FRIEND, STRANGER] {
        let fixture = serving(uid);
        if !keeps_lists(&fixture) {
            return;
        }
        std::fs::write(fixture.local("file"), b"secret").unwrap();
        // The kernel knows this user.
        let (client, owner) = fixture.connect(Transport::Shm);
        let list = vec![
            allow(OWNER, READ | WRITE),
            allow(&FRIEND.to_string(), READ),
            allow(GROUP, 0),
            allow(EVERYONE, 0),
        ];
        let set = SetAttributes { acl: Some(list), ..SetAttributes::default() };
        owner.set_attributes("/file", &set).unwrap();
        let file = handle(&owner, "/file");
        let told = attributes(&client, &owner, file, bits::ACL.with(bits::MODE));
        assert_eq!(told.mode, Some(0o640), "the group bits are the mask");
        let told = told.acl.unwrap();
        assert!(told.iter().any(|entry| entry.who == FRIEND.to_string()
            && entry.kind == AceKind::Allow
            && entry.rights.contains(AceRights::READ_DATA)));
        // The reported list can be set and is reported again.
        let set = SetAttributes { acl: Some(told.clone()), ..SetAttributes::default() };
        owner.set_attributes("/file", &set).unwrap();
        assert_eq!(attributes(&client, &owner, file, bits::ACL).acl, Some(told));

        let (_, other) = fixture.connect(far());
        let wanted = AccessMask::READ | AccessMask::MODIFY;
        let mut bytes = [0; 6];
        if uid == FRIEND {
            let file = other.open("/file", &OpenOptions::read()).unwrap();
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 6);
            assert_eq!(other.access("/file", wanted).unwrap(), AccessMask::READ);
        } else {
            let refused = status(other.open("/file", &OpenOptions::read()));
            assert_eq!(refused, Some(Status::Access));
            assert_eq!(other.access("/file", wanted).unwrap(), AccessMask::default());
        }
        assert_eq!(status(other.open("/file", &OpenOptions::write())), Some(Status::Access));
        assert_eq!(status(other.set_attributes("/file", &set)), Some(Status::Perm));
    }
}

#[test]
fn lists_that_cannot_be_kept_are_refused_and_change_nothing() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"").unwrap();
        let (client, session) = fixture.connect(transport);
        let file = handle(&session, "/file");
        let before = attributes(&client, &session, file, bits::ACL.with(bits::MODE));
        let audit = Ace { kind: AceKind::Audit, ..allow(EVERYONE, READ) };
        let deny = Ace { kind: AceKind::Deny, ..allow(GROUP, WRITE) };
        for (list, expected) in [
            (vec![audit], Status::NotSupp),
            (vec![deny, allow(OWNER, READ | WRITE)], Status::NotSupp),
            (vec![allow("nobody in particular", READ)], Status::Inval),
        ] {
            let set = SetAttributes { acl: Some(list), ..SetAttributes::default() };
            assert_eq!(status(session.set_attributes("/file", &set)), Some(expected));
        }
        let after = attributes(&client, &session, file, bits::ACL.with(bits::MODE));
        assert_eq!(after, before);
    });
}

#[test]
fn the_type_of_a_body_is_kept_with_the_file() {
    over_each(|fixture, transport| {
        if !keeps_attributes(fixture) {
            return;
        }
        std::fs::write(fixture.local("page"), b"<p>").unwrap();
        let (client, session) = fixture.connect(transport);
        let page = handle(&session, "/page");
        let told = || attributes(&client, &session, page, bits::MIME_TYPE).mime_type;
        assert_eq!(told(), None);
        let set = |text: &str| {
            let mime_type = Some(text.to_owned());
            let wanted = SetAttributes { mime_type, ..SetAttributes::default() };
            session.set_attributes("/page", &wanted).unwrap();
        };
        set("text/html");
        assert_eq!(told().as_deref(), Some("text/html"));
        assert_eq!(local_attribute(fixture, "page", "user.mime_type").unwrap(), b"text/html");
        set("");
        assert_eq!(told(), None);
    });
}

#[test]
fn quotas_that_are_off_are_not_made_up() {
    over_each(|fixture, transport| {
        let (_, session) = fixture.connect(transport);
        let told = session.file_system("/").unwrap();
        let root = std::fs::File::open(fixture.root()).unwrap();
        let uid = rustix::process::getuid().as_raw();
        if dafs_memory::quota::Quota::of_user(std::os::fd::AsFd::as_fd(&root), uid).is_ok() {
            dafs_tests::skip("this file system has quotas");
            return;
        }
        assert_eq!((told.quota_hard, told.quota_soft, told.quota_used), (None, None, None));
        assert!(told.max_name.is_some() && told.acl_support.is_some());
    });
}

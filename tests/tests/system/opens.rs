//! Tests opens: sharing, keys, unlinked files, deletion on the last close.

use dafs_client::{
    ClientError, DeleteDisposition, OpenOptions, Outcome, SetAttributes, ShareAccess, ShareDeny,
    ShareKey, Status, block_on,
};
use dafs_wire::Request;
use dafs_wire::messages::Close;

use crate::fixture::{over_each, pattern};

fn status<T>(result: Result<T, ClientError>) -> Option<Status> {
    result.err().and_then(|error| error.status())
}

#[test]
fn share_reservations_hold_between_sessions() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"x").unwrap();
        let (_, first) = fixture.connect(transport);
        let (_, second) = fixture.connect(transport);
        let deny = OpenOptions::read().deny(ShareDeny::Write);
        let held = first.open("/file", &deny).unwrap();
        assert_eq!(status(second.open("/file", &OpenOptions::write())), Some(Status::ShareDenied));
        let reader = second.open("/file", &OpenOptions::read()).unwrap();
        held.close().unwrap();
        second.open("/file", &OpenOptions::write()).unwrap().close().unwrap();
        reader.close().unwrap();
    });
}

#[test]
fn a_denial_of_writing_also_keeps_the_size() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"text").unwrap();
        let (_, first) = fixture.connect(transport);
        let (_, second) = fixture.connect(transport);
        let held = first.open("/file", &OpenOptions::write().deny(ShareDeny::Write)).unwrap();
        let cut = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
        let refused = second.set_attributes("/file", &cut(1));
        assert_eq!(status(refused), Some(Status::Locked));
        assert_eq!(std::fs::read(fixture.local("file")).unwrap(), b"text");
        // The one who denies the access still has it.
        held.set_attributes(&cut(2)).unwrap();
        held.close().unwrap();
        second.set_attributes("/file", &cut(1)).unwrap();
        assert_eq!(std::fs::read(fixture.local("file")).unwrap(), b"t");
    });
}

#[test]
fn all_opens_show_the_same_key() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"x").unwrap();
        let (_, first) = fixture.connect(transport);
        let (_, second) = fixture.connect(transport);
        let with = |key| OpenOptions::read().key(Some(ShareKey(key)));
        let held = first.open("/file", &with(1)).unwrap();
        second.open("/file", &with(1)).unwrap().close().unwrap();
        assert_eq!(status(second.open("/file", &with(2))), Some(Status::KeyMismatch));
        held.close().unwrap();
        second.open("/file", &with(2)).unwrap().close().unwrap();
    });
}

#[test]
fn a_removed_file_lives_until_its_last_close() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"still here").unwrap();
        let (_, session) = fixture.connect(transport);
        let file = session.open("/file", &OpenOptions::write()).unwrap();
        session.remove("/file").unwrap();
        assert!(!fixture.local("file").exists());
        let mut bytes = [0; 10];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 10);
        assert_eq!(&bytes, b"still here");
        file.write_at(b"changed", 0).unwrap();
        assert_eq!(file.metadata().unwrap().size, 10);
        file.close().unwrap();
        assert_eq!(status(session.metadata("/file")), Some(Status::NoEnt));
    });
}

#[test]
fn a_file_is_opened_by_its_handle_whatever_its_name_is() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"by handle").unwrap();
        let (_, session) = fixture.connect(transport);
        let first = session.open("/file", &OpenOptions::read()).unwrap();
        let handle = first.handle();
        let read = || {
            let mut bytes = [0; 9];
            let file = session.open_handle(handle, "the file", &OpenOptions::read()).unwrap();
            assert_eq!((file.handle(), file.read_at(&mut bytes, 0).unwrap()), (handle, 9));
            assert_eq!(&bytes, b"by handle");
            file.close().unwrap();
        };
        read();
        session.rename("/file", "/other").unwrap();
        read();
        session.remove("/other").unwrap();
        read();
        let truncating = OpenOptions::write().create(false).truncate(true);
        let cut = session.open_handle(handle, "the file", &truncating).unwrap();
        assert_eq!(cut.metadata().unwrap().size, 0);
        cut.close().unwrap();
        let making = session.open_handle(handle, "the file", &OpenOptions::write());
        assert_eq!(status(making), Some(Status::Inval));
        first.close().unwrap();
        let gone = session.open_handle(handle, "the file", &OpenOptions::read());
        assert_eq!(status(gone), Some(Status::Stale));
        let root = session.open_handle(session.root(), "/", &OpenOptions::read());
        assert_eq!(status(root), Some(Status::IsDir));
    });
}

/// Share reservations also apply to opens by handle.
#[test]
fn an_open_by_handle_meets_what_others_deny() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"x").unwrap();
        let (_, first) = fixture.connect(transport);
        let (_, second) = fixture.connect(transport);
        let deny = OpenOptions::read().deny(ShareDeny::Write);
        let held = first.open("/file", &deny).unwrap();
        let writing = OpenOptions::write().create(false);
        let denied = second.open_handle(held.handle(), "the file", &writing);
        assert_eq!(status(denied), Some(Status::ShareDenied));
        held.close().unwrap();
    });
}

#[test]
fn an_open_can_keep_the_name() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"x").unwrap();
        let (_, session) = fixture.connect(transport);
        let delete_disposition = DeleteDisposition::Deny;
        let options = OpenOptions::read().delete_disposition(delete_disposition);
        let file = session.open("/file", &options).unwrap();
        assert_eq!(status(session.remove("/file")), Some(Status::DenyDispConflict));
        file.close().unwrap();
        session.remove("/file").unwrap();
    });
}

#[test]
fn every_mode_of_creation() {
    over_each(|fixture, transport| {
        let (_, session) = fixture.connect(transport);
        let missing = OpenOptions::write().create(false);
        assert_eq!(status(session.open("/file", &missing)), Some(Status::NoEnt));
        let new = OpenOptions::write().create_new(true).mode(0o600);
        let file = session.open("/file", &new).unwrap();
        file.write_at(b"content", 0).unwrap();
        file.close().unwrap();
        assert_eq!(session.metadata("/file").unwrap().mode, 0o600);
        assert_eq!(status(session.open("/file", &new)), Some(Status::Exist));
        session.open("/file", &OpenOptions::write()).unwrap().close().unwrap();
        assert_eq!(session.metadata("/file").unwrap().size, 7);
        let cut = OpenOptions::write().truncate(true);
        session.open("/file", &cut).unwrap().close().unwrap();
        assert_eq!(std::fs::read(fixture.local("file")).unwrap(), b"");
    });
}

#[test]
fn an_unlinked_file_has_no_name_and_ends_with_its_open() {
    over_each(|fixture, transport| {
        let (_, session) = fixture.connect(transport);
        let file = session.create_unlinked("/", &OpenOptions::write()).unwrap();
        file.write_at(b"nowhere", 0).unwrap();
        let mut bytes = [0; 7];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 7);
        assert!(session.read_dir("/").unwrap().is_empty());
        file.close().unwrap();
        assert_eq!(std::fs::read_dir(fixture.local("")).unwrap().count(), 0);
    });
}

#[test]
fn a_read_only_open_does_not_write() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"x").unwrap();
        let (_, session) = fixture.connect(transport);
        let file = session.open("/file", &OpenOptions::read()).unwrap();
        assert_eq!(status(file.write_at(b"y", 0)), Some(Status::Access));
        let options = OpenOptions::read().access(ShareAccess::Write);
        let file = session.open("/file", &options).unwrap();
        assert_eq!(status(file.read_at(&mut [0; 1], 0)), Some(Status::Access));
    });
}

/// The reply to a CLOSE is sent before the open has ended, but a request immediately after it finds
/// it closed.
#[test]
fn what_is_asked_right_behind_a_close_finds_the_file_closed() {
    over_each(|fixture, transport| {
        let (client, session) = fixture.connect(transport);
        let content = pattern(100, 8);
        std::fs::write(fixture.local("file"), &content).unwrap();
        let mine = OpenOptions::read().deny(ShareDeny::Both);
        for _ in 0..50 {
            let file = session.open("/file", &mine).unwrap();
            let (handle, state) = (file.handle(), file.state());
            let again = Request::Close(Close { file: handle, state });
            let first = file.start_close().unwrap();
            let next = session.open_in_async(session.root(), "file", "/file", &mine);
            let twice = session.start(&again).unwrap();
            block_on(&client, async {
                assert_eq!(first.await.unwrap().read().unwrap().0, Status::Ok);
                assert_eq!(twice.await.unwrap().read().unwrap().0, Status::OldStateId);
                next.await.unwrap().close().unwrap();
            });
            let chain = session.chain().open("/file", &mine).close().open("/file", &mine).close();
            let next = session.chain().open("/file", &mine).read_inline(0, 100).close();
            let (chain, next) = (chain.run_async(), next.run_async());
            block_on(&client, async {
                assert_eq!(chain.await.unwrap().len(), 4);
                let whole = Outcome::Bytes { bytes: content.clone(), end_of_file: true };
                assert_eq!(next.await.unwrap()[1], whole);
            });
        }
    });
}

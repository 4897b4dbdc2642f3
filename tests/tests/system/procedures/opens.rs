//! Tests the modes of OPEN, OPEN_DOWNGRADE, and REMOVE of open files (draft 6.5.24 to 6.5.31).

use dafs_types::{
    FileHandle, RemoveMode, SetAttributes, ShareAccess, ShareDeny, ShareKey, StateId, Status,
    Verifier,
};
use dafs_wire::messages::{
    Close, Delegation, Link, Open, OpenCreation, OpenDowngrade, OpenFlags, OpenTarget, ReadInline,
    Remove,
};
use dafs_wire::{ByteOrder, FileAttributeBlock, Path, Request};

use super::{found, walk};
use crate::fixture::over_each;
use crate::rogue::{Rogue, opening, status_of};

fn opened(rogue: &mut Rogue, open: Open<'_>) -> Result<(FileHandle, StateId), Status> {
    let answer = rogue.ask(&Request::Open(open)).unwrap();
    match status_of(&answer) {
        Status::Ok => {
            let result = found!(Open, &answer);
            Ok((result.file, result.state))
        }
        status => Err(status),
    }
}

#[test]
fn each_mode_of_creation_treats_what_is_there_in_its_way() {
    over_each(|fixture, transport| {
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let directory = rogue.root();
        let mut room = [0; 64];
        let mode = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
        let block = FileAttributeBlock::encode_set(ByteOrder::NATIVE, &mode, &mut room).unwrap();
        let mut open = |name: &str, creation| {
            let names = [name];
            opened(&mut rogue, Open { creation, ..opening(directory, Path::new(&names)) })
        };
        assert_eq!(open("a", OpenCreation::NoCreate), Err(Status::NoEnt));
        let (made, _) = open("a", OpenCreation::Unchecked(block)).unwrap();
        assert_eq!(open("a", OpenCreation::Unchecked(block)).unwrap().0, made);
        assert_eq!(open("a", OpenCreation::NoCreate).unwrap().0, made);
        assert_eq!(open("a", OpenCreation::Guarded(block)), Err(Status::Exist));
        assert!(open("b", OpenCreation::Guarded(block)).is_ok());
        // With the same verifier the creation is repeated, because the first reply may have been
        // lost.
        let mine = OpenCreation::Exclusive(Verifier(*b"verifier"));
        let (exclusive, _) = open("c", mine).unwrap();
        assert_eq!(open("c", mine).unwrap().0, exclusive);
        let other = OpenCreation::Exclusive(Verifier(*b"another!"));
        assert_eq!(open("c", other), Err(Status::Exist));
        assert_eq!(open("a", mine), Err(Status::Exist));
        use std::os::unix::fs::PermissionsExt;
        for name in ["a", "b"] {
            let mode = std::fs::metadata(fixture.local(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o640, "{name}");
        }
    });
}

#[test]
fn an_open_says_what_it_did_and_how_the_file_is_to_be_used() {
    over_each(|fixture, transport| {
        std::fs::create_dir(fixture.local("d")).unwrap();
        std::fs::write(fixture.local("d/f"), b"x").unwrap();
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let root = rogue.root();
        let (_, directory, _) = walk(&mut rogue, &["d"]);
        let answer = rogue.ask(&Request::Open(opening(root, Path::new(&["d", "f"])))).unwrap();
        let result = found!(Open, &answer);
        assert_eq!((result.component_count, result.flags), (2, OpenFlags::MANDATORY_LOCKS));
        assert_eq!(result.delegation, Delegation::None);
        assert_eq!(result.file, walk(&mut rogue, &["d", "f"]).1);
        let creation = OpenCreation::Exclusive(Verifier([1; 8]));
        let make = Open { creation, ..opening(root, Path::new(&["d", "new"])) };
        let answer = rogue.ask(&Request::Open(make)).unwrap();
        let change = found!(Open, &answer).directory;
        assert_ne!(change.before, change.after);
        // The error says how many components were resolved.
        let miss = Request::Open(opening(root, Path::new(&["d", "none", "f"])));
        let answer = rogue.ask(&miss).unwrap();
        assert_eq!(status_of(&answer), Status::NoEnt);
        let (_, reached) =
            dafs_wire::decode_response(ByteOrder::NATIVE, dafs_wire::Procedure::Open, &answer)
                .unwrap();
        let dafs_wire::Response::Open(reached) = reached else { panic!("{reached:?}") };
        assert_eq!((reached.file, reached.component_count), (directory, 1));
    });
}

#[test]
fn an_unlinked_file_can_be_given_a_name() {
    over_each(|fixture, transport| {
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let directory = rogue.root();
        let target = OpenTarget::CreateUnlinked { directory };
        let make = Open { target, ..opening(directory, Path::new(&["unused"])) };
        let (named, named_state) = opened(&mut rogue, make).unwrap();
        let (nameless, state) = opened(&mut rogue, make).unwrap();
        assert_ne!(named, nameless);
        assert_eq!(std::fs::read_dir(fixture.local("")).unwrap().count(), 0);
        let link = Request::Link(Link { source: named, directory, name: "name" });
        let answer = rogue.ask(&link).unwrap();
        let change = found!(Link, &answer).directory;
        assert_ne!(change.before, change.after);
        for (file, state, left) in
            [(named, named_state, Status::Ok), (nameless, state, Status::Stale)]
        {
            let close = Request::Close(Close { file, state });
            assert_eq!(rogue.outcome(&close), Some(Status::Ok));
            let hint = dafs_types::CacheHint(0);
            let state = StateId::ANONYMOUS;
            let read = ReadInline { file, state, offset: 0, length: 1, hint };
            assert_eq!(rogue.outcome(&Request::ReadInline(read)), Some(left));
        }
        assert!(fixture.local("name").exists());
    });
}

#[test]
fn an_open_gives_up_what_it_does_not_need_any_more() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"x").unwrap();
        let mut ann = Rogue::connect(&fixture.address(transport));
        ann.log_in_as(b"ann", dafs_wire::messages::SessionOptions::default());
        let mut bob = Rogue::connect(&fixture.address(transport));
        bob.log_in_as(b"bob", dafs_wire::messages::SessionOptions::default());
        let root = ann.root();
        let key = Some(ShareKey(5));
        let plain = opening(root, Path::new(&["file"]));
        let (file, state) = opened(&mut ann, Open { deny: ShareDeny::Both, key, ..plain }).unwrap();
        let mut tries = |access, key| opened(&mut bob, Open { access, key, ..plain }).err();
        assert_eq!(tries(ShareAccess::Read, key), Some(Status::ShareDenied));
        let mut downgrade = |access, deny, key| {
            let request = OpenDowngrade { file, state, access, deny, key };
            ann.outcome(&Request::OpenDowngrade(request)).unwrap()
        };
        let (read, both) = (ShareAccess::Read, ShareAccess::Both);
        assert_eq!(downgrade(read, ShareDeny::Write, key), Status::Ok);
        assert_eq!(downgrade(both, ShareDeny::Write, key), Status::Inval, "never more");
        assert_eq!(tries(ShareAccess::Write, key), Some(Status::ShareDenied));
        assert_eq!(tries(read, Some(ShareKey(6))), Some(Status::KeyMismatch));
        assert_eq!(tries(read, key), None);
        assert_eq!(downgrade(read, ShareDeny::None, key), Status::Ok);
        assert_eq!(tries(both, key), None);
    });
}

#[test]
fn a_name_that_is_open_is_removed_unless_that_is_asked() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"x").unwrap();
        let mut rogue = Rogue::logged_in(&fixture.address(transport));
        let directory = rogue.root();
        let (file, state) = rogue.open("file");
        let mut remove = |mode| {
            let remove = Remove { directory, name: "file", mode };
            let answer = rogue.ask(&Request::Remove(remove)).unwrap();
            match status_of(&answer) {
                Status::Ok => Ok(found!(Remove, &answer).directory),
                status => Err(status),
            }
        };
        assert_eq!(remove(RemoveMode::CheckOpen), Err(Status::DenyDispConflict));
        let change = remove(RemoveMode::Unchecked).unwrap();
        assert_ne!(change.before, change.after);
        assert_eq!(remove(RemoveMode::Unchecked), Err(Status::NoEnt));
        let close = Request::Close(Close { file, state });
        assert_eq!(rogue.outcome(&close), Some(Status::Ok));
        // No client has it open.
        std::fs::write(fixture.local("file"), b"x").unwrap();
        let remove = Remove { directory, name: "file", mode: RemoveMode::CheckOpen };
        assert_eq!(rogue.outcome(&Request::Remove(remove)), Some(Status::Ok));
    });
}

//! Tests which operations conflict with which delegations: every row of
//! `dafs_filer::DelegationTable`.

use dafs_nfs_suite::nfs4::attributes::SIZE;
use dafs_nfs_suite::nfs4::ops;
use dafs_types::{
    CacheHint, RemoveMode, SetAttributes, ShareAccess, ShareDeny, Stability, StateId, Status,
};
use dafs_wire::attributes::file::bits;
use dafs_wire::messages::{
    GetAttributes, InlineData, Link, Lock, LockOptions, LockType, Open, OpenCreation, OpenTarget,
    Placement, ReadInline, Remove, Rename, SetAttributesInline, WriteInline,
};
use dafs_wire::{
    ByteOrder, FileAttributeBlock, Path, Procedure, Request, Response, decode_response,
};

use super::holder::{Asked, Holder, lively, opened};
use crate::fixture::{Fixture, Transport, any, far, serve_nfs, transports};
use crate::nfs_state;
use crate::rogue::{Rogue, opening, status_of};

/// An operation of another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    OpenToRead,
    OpenToReadDenyingReads,
    OpenToReadDenyingWrites,
    OpenToWrite,
    OpenTruncating,
    Read,
    Write,
    GetAttributes,
    SetMode,
    Truncate,
    Remove,
    RenameOver,
    Rename,
    Link,
}

/// How the holder reacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Free,
    Recall,
    Asks,
}

const DEEDS: [(Deed, Way, Way); 14] = [
    (Deed::OpenToRead, Way::Free, Way::Recall),
    (Deed::OpenToReadDenyingReads, Way::Recall, Way::Recall),
    (Deed::OpenToReadDenyingWrites, Way::Free, Way::Recall),
    (Deed::OpenToWrite, Way::Recall, Way::Recall),
    (Deed::OpenTruncating, Way::Recall, Way::Recall),
    (Deed::Read, Way::Free, Way::Recall),
    (Deed::Write, Way::Recall, Way::Recall),
    (Deed::GetAttributes, Way::Free, Way::Asks),
    (Deed::SetMode, Way::Recall, Way::Recall),
    (Deed::Truncate, Way::Recall, Way::Recall),
    (Deed::Remove, Way::Recall, Way::Recall),
    (Deed::RenameOver, Way::Recall, Way::Recall),
    (Deed::Rename, Way::Recall, Way::Recall),
    (Deed::Link, Way::Recall, Way::Recall),
];

/// Sends the request of the operation without waiting for its reply.
fn begin(rogue: &mut Rogue, deed: Deed, file: dafs_types::FileHandle) -> Procedure {
    let directory = rogue.root();
    let names = ["file"];
    let target = OpenTarget::Null { directory, path: Path::new(&names) };
    let mut buffer = [0; 256];
    let mut block = |wanted: &SetAttributes| {
        FileAttributeBlock::encode_set(ByteOrder::NATIVE, wanted, &mut buffer)
            .unwrap()
            .bytes()
            .to_vec()
    };
    let cut = block(&SetAttributes { size: Some(0), ..SetAttributes::default() });
    let mode = block(&SetAttributes { mode: Some(0o600), ..SetAttributes::default() });
    let cut = FileAttributeBlock::parse(ByteOrder::NATIVE, &cut).unwrap();
    let mode = FileAttributeBlock::parse(ByteOrder::NATIVE, &mode).unwrap();
    let plain = Open { target, access: ShareAccess::Read, ..opening(directory, Path::new(&names)) };
    let state = StateId::ANONYMOUS;
    let hint = CacheHint(0);
    let request = match deed {
        Deed::OpenToRead => Request::Open(plain),
        Deed::OpenToReadDenyingReads => Request::Open(Open { deny: ShareDeny::Read, ..plain }),
        Deed::OpenToReadDenyingWrites => Request::Open(Open { deny: ShareDeny::Write, ..plain }),
        Deed::OpenToWrite => Request::Open(Open { access: ShareAccess::Write, ..plain }),
        Deed::OpenTruncating => Request::Open(Open {
            access: ShareAccess::Write,
            creation: OpenCreation::Unchecked(cut),
            ..plain
        }),
        Deed::Read => Request::ReadInline(ReadInline { file, state, offset: 0, length: 9, hint }),
        Deed::Write => Request::WriteInline(WriteInline {
            file,
            state,
            offset: 0,
            stability: Stability::Unstable,
            hint,
            placement: Placement::Packed,
            data: InlineData::Here(b"new"),
        }),
        Deed::GetAttributes => {
            let wanted = bits::OBJECT_SIZE.with(bits::CHANGE);
            Request::GetAttrInline(GetAttributes { file, wanted })
        }
        Deed::SetMode => {
            Request::SetAttrInline(SetAttributesInline { file, state, attributes: mode })
        }
        Deed::Truncate => {
            Request::SetAttrInline(SetAttributesInline { file, state, attributes: cut })
        }
        Deed::Remove => {
            Request::Remove(Remove { directory, name: "file", mode: RemoveMode::Unchecked })
        }
        Deed::RenameOver => Request::Rename(Rename {
            source: directory,
            target: directory,
            old_name: "other",
            new_name: "file",
        }),
        Deed::Rename => Request::Rename(Rename {
            source: directory,
            target: directory,
            old_name: "file",
            new_name: "moved",
        }),
        Deed::Link => Request::Link(Link { source: file, directory, name: "linked" }),
    };
    let procedure = request.procedure();
    rogue.request(1, 1, &request);
    procedure
}

/// Makes a client with two credits: for the operation, and for requests while it waits.
fn other(fixture: &Fixture, transport: Transport) -> Rogue {
    let mut rogue = Rogue::connect(&fixture.address(transport));
    rogue.credits = 8;
    rogue.log_in_as(
        b"other",
        dafs_wire::messages::SessionOptions { requests_max: 8, ..Default::default() },
    );
    rogue
}

/// Runs an operation of another client while a delegation is held.
fn meet(fixture: &Fixture, transport: Transport, access: ShareAccess, deed: Deed, way: Way) {
    eprintln!("{transport:?}, {access:?}: {deed:?}");
    std::fs::write(fixture.local("file"), b"old").unwrap();
    std::fs::write(fixture.local("other"), b"other").unwrap();
    let mut holder = Holder::new(fixture, transport, b"holder");
    let held = holder.hold("file", access);
    let (state, _) = held.delegation.unwrap();
    let mut rogue = other(fixture, transport);
    begin(&mut rogue, deed, held.file);
    match way {
        Way::Free => {}
        Way::Recall => {
            let (recalled, truncate) = holder.recalled(Status::Ok);
            assert_eq!(recalled, state);
            assert_eq!(truncate, matches!(deed, Deed::OpenTruncating | Deed::Truncate));
            // The holder still sees the old contents.
            let read = Request::ReadInline(ReadInline {
                file: held.file,
                state,
                offset: 0,
                length: 9,
                hint: CacheHint(0),
            });
            let bytes = holder.rogue.ask(&read).unwrap();
            let decoded = decode_response(ByteOrder::NATIVE, Procedure::ReadInline, &bytes);
            match decoded.unwrap().1 {
                Response::ReadInline(read) => {
                    assert_eq!(read.data.bytes(), Some(b"old".as_slice()));
                }
                other => panic!("{other:?}"),
            }
            assert!(fixture.local("file").exists());
            assert_eq!(holder.give_back(state), Status::Ok);
            assert_eq!(holder.give_back(state), Status::OldStateId);
        }
        Way::Asks => {
            let (header, asked) = holder.asked();
            let Asked::GetAttributes { file, wanted } = asked else { panic!("{asked:?}") };
            assert_eq!(file, held.file);
            holder.tell_size(&header, wanted, 777);
        }
    }
    let bytes = rogue.answer().unwrap();
    let expected = match deed {
        // The holder has it open for reading, and for a write delegation also for writing.
        Deed::OpenToReadDenyingReads => Status::ShareDenied,
        Deed::OpenToReadDenyingWrites if access != ShareAccess::Read => Status::ShareDenied,
        _ => Status::Ok,
    };
    assert_eq!(status_of(&bytes), expected);
    if way == Way::Asks {
        let decoded = decode_response(ByteOrder::NATIVE, Procedure::GetAttrInline, &bytes);
        let Response::GetAttrInline(told) = decoded.unwrap().1 else { panic!() };
        assert_eq!(told.attributes.file().size, Some(777));
    }
}

#[test]
fn every_deed_meets_every_delegation() {
    for transport in transports() {
        for (deed, of_read, of_write) in DEEDS {
            for (access, way) in [(ShareAccess::Read, of_read), (ShareAccess::Both, of_write)] {
                let fixture = Fixture::with(lively(|_| {}));
                meet(&fixture, transport, access, deed, way);
            }
        }
    }
}

#[test]
fn an_nfs_client_sees_what_a_dafs_client_with_a_delegation_reports() {
    if !dafs_tests::is_root() {
        return;
    }
    let fixture = Fixture::with(|config| {
        lively(|_| {})(config);
        serve_nfs(config, 0);
    });
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut holder = Holder::new(&fixture, any(), b"holder");
    holder.hold("file", ShareAccess::Both);
    let mut other = nfs_state::client(&fixture, b"other");
    let question = [other.dir(), ops::lookup("file"), ops::getattr(&[SIZE])];
    let xid = other.send(0, false, &question).unwrap();
    let (header, asked) = holder.asked();
    let Asked::GetAttributes { wanted, .. } = asked else { panic!("{asked:?}") };
    holder.tell_size(&header, wanted, 777);
    let reply = other.finish(0, xid).unwrap().all_ok().unwrap();
    assert_eq!(reply.attrs(2).unwrap().number(SIZE).unwrap(), 777);
}

#[test]
fn the_same_behind_a_journal() {
    for (deed, of_read, of_write) in DEEDS {
        for (access, way) in [(ShareAccess::Read, of_read), (ShareAccess::Both, of_write)] {
            let fixture = Fixture::with(|_| {}).journaled_with(lively(|_| {}));
            meet(&fixture, any(), access, deed, way);
        }
    }
}

#[test]
fn locks_call_back() {
    for (access, lock_type, is_recalled) in [
        (ShareAccess::Read, LockType::Read, false),
        (ShareAccess::Read, LockType::Write, true),
        (ShareAccess::Both, LockType::Read, true),
    ] {
        let fixture = Fixture::with(lively(|_| {}));
        std::fs::write(fixture.local("file"), b"old").unwrap();
        let mut rogue = other(&fixture, any());
        let lock = |rogue: &mut Rogue, file, state| {
            let lock = Lock {
                file,
                state,
                lock_type,
                options: LockOptions::default(),
                offset: 0,
                length: 1,
            };
            rogue.request(1, 1, &Request::Lock(lock));
        };
        let mut holder = Holder::new(&fixture, any(), b"holder");
        let held = holder.hold("file", access);
        let (state, _) = held.delegation.unwrap();
        // Without an open the lock is refused; the delegation is recalled all the same, or not.
        lock(&mut rogue, held.file, StateId(5));
        if is_recalled {
            assert_eq!(holder.recalled(Status::Ok).0, state);
            assert_eq!(holder.give_back(state), Status::Ok);
        }
        assert_ne!(rogue.status(), Some(Status::Ok));
        assert_eq!(fixture.stop().1.delegations.recalled, u64::from(is_recalled));
    }
}

#[test]
fn who_cannot_be_called_back_gets_nothing_and_readers_share() {
    let fixture = Fixture::with(lively(|_| {}));
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut holders = [Holder::new(&fixture, any(), b"one"), Holder::new(&fixture, far(), b"two")];
    for holder in &mut holders {
        let held = holder.hold("file", ShareAccess::Read);
        assert!(!held.delegation.unwrap().1);
    }
    let mut plain = other(&fixture, any());
    let (directory, names) = (plain.root(), ["file"]);
    let open = Open { access: ShareAccess::Read, ..opening(directory, Path::new(&names)) };
    let bytes = plain.ask(&Request::Open(open)).unwrap();
    assert_eq!(opened(&bytes).unwrap().delegation, None);
    // A writer recalls both delegations and waits for both.
    begin(&mut plain, Deed::Write, opened(&bytes).unwrap().file);
    for holder in &mut holders {
        let (state, _) = holder.recalled(Status::Ok);
        assert_eq!(holder.give_back(state), Status::Ok);
    }
    assert_eq!(plain.status(), Some(Status::Ok));
    assert_eq!(fixture.stop().1.delegations.returned, 2);
}

#[test]
fn a_holder_that_knows_nothing_is_asked_again() {
    let fixture = Fixture::with(lively(|policy| {
        policy.recall_retry = std::time::Duration::from_millis(1);
    }));
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut holder = Holder::new(&fixture, far(), b"holder");
    let held = holder.hold("file", ShareAccess::Read);
    let mut rogue = other(&fixture, far());
    begin(&mut rogue, Deed::Write, held.file);
    let (state, _) = holder.recalled(Status::BadHandle);
    assert_eq!(holder.recalled(Status::Ok).0, state);
    assert_eq!(holder.give_back(state), Status::Ok);
    assert_eq!(rogue.status(), Some(Status::Ok));
}

#[test]
fn too_many_do_not_wait() {
    let fixture = Fixture::with(lively(|policy| policy.waiters_max = 1));
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut holder = Holder::new(&fixture, any(), b"holder");
    let held = holder.hold("file", ShareAccess::Read);
    let mut rogue = other(&fixture, any());
    begin(&mut rogue, Deed::Write, held.file);
    let (state, _) = holder.recalled(Status::Ok);
    let remove = Request::Remove(Remove {
        directory: holder.rogue.root(),
        name: "file",
        mode: RemoveMode::Unchecked,
    });
    let mut third = Rogue::logged_in(&fixture.address(any()));
    assert_eq!(third.outcome(&remove), Some(Status::Delay));
    assert_eq!(holder.give_back(state), Status::Ok);
    assert_eq!(rogue.status(), Some(Status::Ok));
}

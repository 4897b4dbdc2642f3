//! Tests the grace period after a restart, in which clients reclaim their state.

use dafs_types::{FileHandle, ShareAccess, ShareDeny, StateId, Status};
use dafs_wire::messages::{
    DelegationType, LockTest, LockType, Open, OpenCreation, OpenTarget, ReadInline,
    SessionOptions as WireOptions,
};
use dafs_wire::{ByteOrder, Path, Procedure, Request, Response, decode_response};

use crate::fixture::{Fixture, Transport, far, over_each};
use crate::rogue::{Rogue, opening, status_of};

fn client(fixture: &Fixture, transport: Transport, name: &'static [u8]) -> Rogue {
    let mut rogue = Rogue::connect(&fixture.address(transport));
    let options = WireOptions { response_cache: true, ..WireOptions::default() };
    rogue.log_in_as(name, options);
    rogue
}

/// Opens a file by name, or reclaims an open by handle.
fn open(rogue: &mut Rogue, target: OpenTarget<'_>, deny: ShareDeny) -> Result<StateId, Status> {
    let open = Open {
        target,
        creation: OpenCreation::NoCreate,
        delete_disposition: dafs_types::DeleteDisposition::DontCare,
        owner: b"owner",
        access: ShareAccess::Both,
        deny,
        key: None,
    };
    let answer = rogue.ask(&Request::Open(open)).unwrap();
    match decode_response(ByteOrder::NATIVE, Procedure::Open, &answer).unwrap().1 {
        Response::Open(opened) if status_of(&answer) == Status::Ok => Ok(opened.state),
        _ => Err(status_of(&answer)),
    }
}

fn by_name(rogue: &mut Rogue, name: &str, deny: ShareDeny) -> Result<StateId, Status> {
    let (directory, names) = (rogue.root(), [name]);
    open(rogue, OpenTarget::Null { directory, path: Path::new(&names) }, deny)
}

fn again(rogue: &mut Rogue, file: FileHandle, deny: ShareDeny) -> Result<StateId, Status> {
    let delegation = DelegationType::None;
    open(rogue, OpenTarget::Previous { file, delegation }, deny)
}

fn read(rogue: &mut Rogue, file: FileHandle, state: StateId) -> Option<Status> {
    let hint = dafs_types::CacheHint(0);
    rogue.outcome(&Request::ReadInline(ReadInline { file, state, offset: 0, length: 4, hint }))
}

/// Long enough to reclaim something, and short enough to wait for.
fn with_a_short_lease(config: &mut dafs_server::ServerConfig) {
    config.filer.lease = std::time::Duration::from_secs(3);
}

fn served() -> Fixture {
    let fixture = Fixture::with_journal();
    std::fs::write(fixture.local("file"), b"text").unwrap();
    fixture
}

#[test]
fn an_open_is_taken_back_and_keeps_others_out_meanwhile() {
    for transport in crate::fixture::transports() {
        let fixture = served();
        let mut ann = client(&fixture, transport, b"ann");
        let file = ann.lookup("file");
        let old = by_name(&mut ann, "file", ShareDeny::Both).unwrap();
        let fixture = fixture.journaled();
        let mut bob = client(&fixture, transport, b"bob");
        assert_eq!(by_name(&mut bob, "file", ShareDeny::None), Err(Status::Grace));
        assert_eq!(read(&mut bob, file, StateId::ANONYMOUS), Some(Status::Grace));
        // He had no open to reclaim.
        assert_eq!(again(&mut bob, file, ShareDeny::None), Err(Status::Expired));
        let mut ann = client(&fixture, transport, b"ann");
        assert_eq!(read(&mut ann, file, old), Some(Status::StaleStateId));
        let state = again(&mut ann, file, ShareDeny::Both).unwrap();
        assert_ne!(state, old);
        assert_eq!(read(&mut ann, file, state), Some(Status::Ok));
        assert_eq!(by_name(&mut bob, "file", ShareDeny::None), Err(Status::Grace));
        // When she requests something new, she has finished reclaiming.
        std::fs::write(fixture.local("other"), b"text").unwrap();
        by_name(&mut ann, "other", ShareDeny::None).unwrap();
        assert_eq!(by_name(&mut bob, "file", ShareDeny::None), Err(Status::ShareDenied));
        assert_eq!(again(&mut ann, file, ShareDeny::None), Err(Status::Expired), "too late");
    }
}

#[test]
fn a_restart_amid_the_taking_back_begins_it_anew() {
    let fixture = served();
    let mut ann = client(&fixture, far(), b"ann");
    let mut bob = client(&fixture, far(), b"bob");
    let file = ann.lookup("file");
    by_name(&mut ann, "file", ShareDeny::None).unwrap();
    by_name(&mut bob, "file", ShareDeny::None).unwrap();
    let fixture = fixture.journaled();
    let mut ann = client(&fixture, far(), b"ann");
    again(&mut ann, file, ShareDeny::None).unwrap();
    let fixture = fixture.journaled();
    // Neither has lost the right, and no other client has got one.
    let mut cid = client(&fixture, far(), b"cid");
    let mut bob = client(&fixture, far(), b"bob");
    again(&mut bob, file, ShareDeny::None).unwrap();
    assert_eq!(by_name(&mut cid, "file", ShareDeny::None), Err(Status::Grace));
    let mut ann = client(&fixture, far(), b"ann");
    again(&mut ann, file, ShareDeny::None).unwrap();
}

#[test]
fn whoever_held_nothing_or_has_restarted_keeps_nobody_waiting() {
    over_each(|_, transport| {
        let fixture = served();
        let mut ann = client(&fixture, transport, b"ann");
        let mut bob = client(&fixture, transport, b"bob");
        by_name(&mut ann, "file", ShareDeny::None).unwrap();
        bob.root();
        let fixture = fixture.journaled();
        // She has restarted, too.
        let mut rogue = Rogue::connect(&fixture.address(transport));
        let options = WireOptions { response_cache: true, ..WireOptions::default() };
        rogue.log_in_anew(b"ann", options);
        let mut bob = client(&fixture, transport, b"bob");
        by_name(&mut bob, "file", ShareDeny::None).unwrap();
    });
}

#[test]
fn who_does_not_come_back_is_waited_for_as_long_as_a_lease() {
    let fixture = served();
    let mut ann = client(&fixture, far(), b"ann");
    by_name(&mut ann, "file", ShareDeny::Both).unwrap();
    let fixture = fixture.journaled_with(|config| {
        config.filer.lease = std::time::Duration::from_millis(300);
    });
    let mut bob = client(&fixture, far(), b"bob");
    assert_eq!(by_name(&mut bob, "file", ShareDeny::None), Err(Status::Grace));
    crate::fixture::await_that("the lease runs out", || {
        by_name(&mut bob, "file", ShareDeny::None).is_ok()
    });
    let mut ann = client(&fixture, far(), b"ann");
    let file = ann.lookup("file");
    assert_eq!(again(&mut ann, file, ShareDeny::None), Err(Status::Expired));
}

#[test]
fn who_was_too_slow_takes_nothing_back_from_the_server_after_next() {
    let fixture = served();
    std::fs::write(fixture.local("other"), b"text").unwrap();
    let mut ann = client(&fixture, far(), b"ann");
    let (file, other) = (ann.lookup("file"), ann.lookup("other"));
    by_name(&mut ann, "file", ShareDeny::Both).unwrap();
    by_name(&mut ann, "other", ShareDeny::None).unwrap();
    // She reclaims one of two, and then the lease expires.
    let fixture = fixture.journaled_with(with_a_short_lease);
    let mut ann = client(&fixture, far(), b"ann");
    again(&mut ann, other, ShareDeny::None).unwrap();
    let mut bob = client(&fixture, far(), b"bob");
    crate::fixture::await_that("the lease runs out", || {
        by_name(&mut bob, "file", ShareDeny::Both).is_ok()
    });
    // She does not know that yet, and must not get back what is bob's now.
    let fixture = fixture.journaled();
    let mut ann = client(&fixture, far(), b"ann");
    assert_eq!(again(&mut ann, file, ShareDeny::Both), Err(Status::Expired));
    let mut bob = client(&fixture, far(), b"bob");
    again(&mut bob, file, ShareDeny::Both).unwrap();
}

#[test]
fn who_was_slow_is_expected_again_once_it_has_asked_about_a_lock() {
    let fixture = served();
    let mut ann = client(&fixture, far(), b"ann");
    let file = ann.lookup("file");
    by_name(&mut ann, "file", ShareDeny::Both).unwrap();
    let fixture = fixture.journaled_with(with_a_short_lease);
    let mut ann = client(&fixture, far(), b"ann");
    again(&mut ann, file, ShareDeny::Both).unwrap();
    let mut bob = client(&fixture, far(), b"bob");
    crate::fixture::await_that("the lease runs out", || {
        by_name(&mut bob, "file", ShareDeny::None) == Err(Status::ShareDenied)
    });
    let lock_type = LockType::Read;
    let test = LockTest { file, lock_type, owner: b"owner", offset: 0, length: 1 };
    assert_eq!(ann.outcome(&Request::LockT(test)), Some(Status::Ok));
    // A later open is answered after everything before it is in the journal.
    std::fs::write(fixture.local("other"), b"text").unwrap();
    by_name(&mut bob, "other", ShareDeny::None).unwrap();
    let fixture = fixture.journaled();
    let mut ann = client(&fixture, far(), b"ann");
    again(&mut ann, file, ShareDeny::Both).unwrap();
}

#[test]
fn plain_opens_of_rogues_still_work_without_a_journal() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), b"text").unwrap();
        let mut rogue = client(fixture, transport, b"ann");
        let (directory, names) = (rogue.root(), ["file"]);
        let open = Request::Open(opening(directory, Path::new(&names)));
        assert_eq!(rogue.outcome(&open), Some(Status::Ok));
        let file = rogue.lookup("file");
        assert_eq!(again(&mut rogue, file, ShareDeny::None), Err(Status::Expired));
    });
}

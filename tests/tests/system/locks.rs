//! Tests byte-range locks message by message (draft 4.4.1, 6.5.18 to 6.5.20).

use dafs_types::{CacheHint, FileHandle, SessionId, Stability, StateId, Status};
use dafs_wire::messages::{
    Close, InlineData, Lock, LockConflict, LockOptions, LockTest, LockType, Placement, ReadInline,
    SessionOptions as WireOptions, Unlock, WriteInline,
};
use dafs_wire::{
    ByteOrder, ChannelType, Procedure, Request, Response, decode_request, decode_response,
};

use crate::bind::{answer_null, bind};
use crate::fixture::{Fixture, Transport, far, over_each};
use crate::rogue::{Rogue, status_of};

pub(crate) struct Holder {
    pub rogue: Rogue,
    pub session: SessionId,
    pub file: FileHandle,
    pub state: StateId,
}

pub(crate) fn holder(fixture: &Fixture, transport: Transport, name: &'static [u8]) -> Holder {
    let mut rogue = Rogue::connect(&fixture.address(transport));
    let options =
        WireOptions { response_cache: true, back_control_channel: true, ..WireOptions::default() };
    let session = rogue.log_in_as(name, options).session;
    let (file, state) = rogue.open("file");
    Holder { rogue, session, file, state }
}

pub(crate) fn served() -> Fixture {
    let fixture = Fixture::with_journal();
    std::fs::write(fixture.local("file"), [7; 100]).unwrap();
    fixture
}

pub(crate) const NONE: LockOptions = LockOptions::from_bits(0).unwrap();

impl Holder {
    pub(crate) fn request(
        &self,
        lock_type: LockType,
        options: LockOptions,
        place: (u64, u64),
    ) -> Lock {
        let (offset, length) = place;
        Lock { file: self.file, lock_type, options, state: self.state, offset, length }
    }

    pub(crate) fn lock(&mut self, lock_type: LockType, place: (u64, u64)) -> Status {
        self.lock_with(lock_type, NONE, place)
    }

    pub(crate) fn lock_with(
        &mut self,
        lock_type: LockType,
        options: LockOptions,
        place: (u64, u64),
    ) -> Status {
        let request = Request::Lock(self.request(lock_type, options, place));
        self.rogue.outcome(&request).unwrap()
    }

    pub(crate) fn unlock(&mut self, (offset, length): (u64, u64)) -> Status {
        let (file, state, lock_type) = (self.file, self.state, LockType::Write);
        let unlock = Unlock { file, lock_type, state, offset, length };
        self.rogue.outcome(&Request::LockU(unlock)).unwrap()
    }

    fn test(&mut self, lock_type: LockType, offset: u64, length: u64) -> Status {
        let (file, owner) = (self.file, &b"rogue"[..]);
        let test = LockTest { file, lock_type, owner, offset, length };
        self.rogue.outcome(&Request::LockT(test)).unwrap()
    }

    pub(crate) fn read(&mut self, state: StateId, (offset, length): (u64, u32)) -> Status {
        let (file, hint) = (self.file, CacheHint(0));
        let read = ReadInline { file, state, offset, length, hint };
        self.rogue.outcome(&Request::ReadInline(read)).unwrap()
    }

    pub(crate) fn write(&mut self, state: StateId, offset: u64, bytes: &[u8]) -> Status {
        let write = WriteInline {
            file: self.file,
            state,
            offset,
            stability: Stability::Unstable,
            hint: CacheHint(0),
            placement: Placement::Packed,
            data: InlineData::Here(bytes),
        };
        self.rogue.outcome(&Request::WriteInline(write)).unwrap()
    }
}

#[test]
fn who_has_a_lock_keeps_others_out() {
    over_each(|_, transport| {
        let fixture = served();
        let mut ann = holder(&fixture, transport, b"ann");
        let mut bob = holder(&fixture, transport, b"bob");
        assert_eq!(ann.lock(LockType::Write, (10, 10)), Status::Ok);
        let request = Request::Lock(bob.request(LockType::Read, NONE, (0, 100)));
        let denied = bob.rogue.ask(&request).unwrap();
        assert_eq!(status_of(&denied), Status::Denied);
        let (_, response) = decode_response(ByteOrder::NATIVE, Procedure::Lock, &denied).unwrap();
        let Response::Lock(result) = response else { panic!("{response:?}") };
        let LockConflict { owner, offset, length, lock_type, .. } = result.conflict.unwrap();
        assert_eq!((owner, offset, length), (&b"rogue"[..], 10, 10));
        assert_eq!(lock_type, LockType::Write);
        // Locks are mandatory.
        assert_eq!(bob.read(bob.state, (0, 10)), Status::Ok);
        assert_eq!(bob.read(bob.state, (0, 11)), Status::Locked);
        assert_eq!(bob.read(StateId::ANONYMOUS, (19, 1)), Status::Locked);
        assert_eq!(bob.write(bob.state, 19, b"x"), Status::Locked);
        assert_eq!(ann.write(ann.state, 19, b"x"), Status::Ok);
        assert_eq!(ann.read(StateId::ANONYMOUS, (19, 1)), Status::Locked);
        // A shared lock allows reads by others.
        assert_eq!(ann.lock(LockType::Read, (10, 10)), Status::Ok);
        assert_eq!(bob.lock(LockType::Read, (0, u64::MAX)), Status::Ok);
        assert_eq!(bob.read(bob.state, (0, 100)), Status::Ok);
        assert_eq!(bob.write(bob.state, 10, b"x"), Status::Locked);
        assert_eq!(ann.unlock((0, 100)), Status::Ok);
        assert_eq!(bob.write(bob.state, 10, b"x"), Status::Ok);
    });
}

#[test]
fn a_lock_can_be_looked_for() {
    let fixture = served();
    let mut ann = holder(&fixture, far(), b"ann");
    let mut bob = holder(&fixture, far(), b"bob");
    assert_eq!(ann.lock(LockType::Read, (10, 10)), Status::Ok);
    let mut test = |lock_type, offset, length| bob.test(lock_type, offset, length);
    assert_eq!(test(LockType::Read, 0, 100), Status::Ok);
    assert_eq!(test(LockType::Write, 0, 100), Status::Denied);
    assert_eq!(test(LockType::Write, 0, 10), Status::Ok);
    assert_eq!(test(LockType::Abort, 0, 10), Status::Inval);
    assert_eq!(test(LockType::Write, 5, 0), Status::Inval);
}

#[test]
fn locks_end_with_their_open_and_with_their_client() {
    over_each(|_, transport| {
        let fixture = served();
        let mut ann = holder(&fixture, transport, b"ann");
        let mut bob = holder(&fixture, transport, b"bob");
        assert_eq!(ann.lock(LockType::Write, (0, u64::MAX)), Status::Ok);
        assert_eq!(bob.lock(LockType::Write, (0, 1)), Status::Denied);
        let close = Close { file: ann.file, state: ann.state };
        assert_eq!(ann.rogue.outcome(&Request::Close(close)), Some(Status::Ok));
        assert_eq!(bob.lock(LockType::Write, (0, 1)), Status::Ok);
        let mut cid = holder(&fixture, transport, b"cid");
        assert_eq!(cid.lock(LockType::Write, (0, 1)), Status::Denied);
        let leave = Request::Disconnect(dafs_wire::messages::Empty);
        assert_eq!(bob.rogue.outcome(&leave), Some(Status::Ok));
        drop(bob);
        crate::fixture::await_that("the lock of who has left ends", || {
            cid.lock(LockType::Write, (0, 1)) == Status::Ok
        });
    });
}

#[test]
fn a_broken_connection_leaves_locks_for_the_time_of_a_lease() {
    over_each(|_, transport| {
        let fixture = served();
        let mut ann = holder(&fixture, transport, b"ann");
        let mut bob = holder(&fixture, transport, b"bob");
        assert_eq!(ann.lock(LockType::Write, (0, 50)), Status::Ok);
        let (file, state) = (ann.file, ann.state);
        drop(ann);
        assert_eq!(bob.lock(LockType::Write, (0, 1)), Status::Denied);
        // She reconnects and continues with the same open.
        let mut rogue = Rogue::connect(&fixture.address(transport));
        let options = WireOptions { response_cache: true, ..WireOptions::default() };
        let session = rogue.log_in_as(b"ann", options).session;
        let mut ann = Holder { rogue, session, file, state };
        assert_eq!(ann.write(state, 0, b"mine"), Status::Ok);
        assert_eq!(bob.write(bob.state, 0, b"his"), Status::Locked);
        assert_eq!(ann.unlock((0, 50)), Status::Ok);
        assert_eq!(bob.lock(LockType::Write, (0, 1)), Status::Ok);
    });
}

#[test]
fn whoever_waits_is_told_when_its_turn_has_come() {
    over_each(|_, transport| {
        let fixture = served();
        let mut ann = holder(&fixture, transport, b"ann");
        let mut bob = holder(&fixture, transport, b"bob");
        let session = bob.session;
        let kind = ChannelType::BackControl;
        let back = bind(&mut bob.rogue, &fixture, transport, session, kind);
        let null = bob.rogue.message_on(back).unwrap();
        let (header, _) = decode_request(ByteOrder::NATIVE, &null).unwrap();
        bob.rogue.send_on(back, &answer_null(&header));
        bob.rogue.root();
        assert_eq!(ann.lock(LockType::Write, (0, 10)), Status::Ok);
        assert_eq!(bob.lock(LockType::WriteWait, (5, 10)), Status::Denied);
        // No request overtakes a waiting one.
        let mut cid = holder(&fixture, transport, b"cid");
        assert_eq!(cid.lock(LockType::Read, (12, 1)), Status::Denied);
        assert_eq!(ann.unlock((0, 10)), Status::Ok);
        let told = bob.rogue.message_on(back).unwrap();
        let (_, request) = decode_request(ByteOrder::NATIVE, &told).unwrap();
        let Request::BcLockReady(ready) = request else { panic!("{request:?}") };
        assert_eq!((ready.file, ready.state), (bob.file, bob.state));
        assert_eq!((ready.offset, ready.length), (5, 10));
        assert_eq!(ann.lock(LockType::Write, (5, 1)), Status::Denied, "it is kept for him");
        assert_eq!(bob.lock(LockType::WriteWait, (5, 10)), Status::Ok);
        assert_eq!(bob.unlock((5, 10)), Status::Ok);
        assert_eq!(cid.lock(LockType::Read, (12, 1)), Status::Ok);
    });
}

#[test]
fn whoever_would_wait_for_itself_is_told() {
    let fixture = served();
    let mut ann = holder(&fixture, far(), b"ann");
    let mut bob = holder(&fixture, far(), b"bob");
    assert_eq!(ann.lock(LockType::Write, (0, 10)), Status::Ok);
    assert_eq!(bob.lock(LockType::Write, (10, 10)), Status::Ok);
    assert_eq!(ann.lock(LockType::WriteWait, (10, 10)), Status::Denied);
    assert_eq!(bob.lock(LockType::WriteWait, (0, 10)), Status::Deadlock);
    assert_eq!(bob.unlock((10, 10)), Status::Ok);
    assert_eq!(ann.lock(LockType::WriteWait, (10, 10)), Status::Ok);
}

#[test]
fn plain_locks_are_taken_back_after_a_restart() {
    let fixture = served();
    let mut ann = holder(&fixture, far(), b"ann");
    assert_eq!(ann.lock(LockType::Write, (0, 10)), Status::Ok);
    let fixture = fixture.journaled();
    let mut bob_rogue = Rogue::connect(&fixture.address(far()));
    bob_rogue.log_in_as(b"bob", WireOptions::default());
    let mut ann = ann.back(&fixture);
    assert_eq!(ann.lock_with(LockType::Write, LockOptions::RECLAIM, (0, 10)), Status::Ok);
    // A request for a new lock shows that she has finished reclaiming.
    assert_eq!(ann.lock(LockType::Write, (20, 10)), Status::Ok);
    let (file, state) = bob_rogue.open("file");
    let mut bob = Holder { rogue: bob_rogue, session: SessionId(0), file, state };
    assert_eq!(bob.lock(LockType::Write, (0, 10)), Status::Denied);
    assert_eq!(bob.lock_with(LockType::Write, LockOptions::RECLAIM, (50, 1)), Status::Expired);
}

/// Locked data of other clients is safe before they have reclaimed their locks. A client without
/// locks delays no other client.
#[test]
fn nobody_moves_data_while_another_may_take_a_lock_back() {
    over_each(|_, transport| {
        let fixture = served();
        let mut ann = holder(&fixture, transport, b"ann");
        let bob = holder(&fixture, transport, b"bob");
        let _idle = holder(&fixture, transport, b"idle");
        assert_eq!(ann.lock(LockType::Write, (0, 10)), Status::Ok);
        // A lock may be released before a restart without a record of that.
        assert_eq!(ann.unlock((0, 10)), Status::Ok);
        assert_eq!(ann.lock(LockType::Write, (0, 10)), Status::Ok);
        let fixture = fixture.journaled();
        let mut bob = bob.back_as(b"bob", &fixture, transport);
        for place in [0, 50] {
            assert_eq!(bob.write(bob.state, place, b"x"), Status::Grace);
            assert_eq!(bob.read(bob.state, (place, 1)), Status::Grace);
        }
        // After another restart the same holds, and she may continue at once.
        let fixture = fixture.journaled();
        let mut bob = bob.back_as(b"bob", &fixture, transport);
        let mut ann = ann.back_as(b"ann", &fixture, transport);
        assert_eq!(ann.lock_with(LockType::Write, LockOptions::RECLAIM, (0, 10)), Status::Ok);
        assert_eq!(ann.write(ann.state, 0, b"mine"), Status::Ok);
        assert_eq!(bob.write(bob.state, 50, b"x"), Status::Grace);
        // A client that tests for a lock has finished reclaiming; the locks of others are not known
        // yet.
        assert_eq!(ann.test(LockType::Write, 0, 10), Status::Grace);
        assert_eq!(bob.write(bob.state, 50, b"x"), Status::Ok);
        assert_eq!(bob.write(bob.state, 5, b"x"), Status::Locked);
    });
}

impl Holder {
    /// Reconnects the client after the server's restart and reclaims its open.
    pub(crate) fn back(self, fixture: &Fixture) -> Self {
        self.back_as(b"ann", fixture, far())
    }

    fn back_as(self, name: &'static [u8], fixture: &Fixture, transport: Transport) -> Self {
        let mut rogue = Rogue::connect(&fixture.address(transport));
        let options = WireOptions { response_cache: true, ..WireOptions::default() };
        let session = rogue.log_in_as(name, options).session;
        let state = rogue.reclaim(self.file).unwrap();
        Self { rogue, session, file: self.file, state }
    }
}

#[test]
fn persistent_locks_outlive_server_and_client_and_must_be_repaired() {
    let fixture = served();
    let mut ann = holder(&fixture, far(), b"ann");
    let options = LockOptions::PERSIST;
    assert_eq!(ann.lock_with(LockType::Write, options, (0, 10)), Status::Ok);
    let fixture = fixture.journaled();
    let mut ann = ann.back(&fixture);
    let both = LockOptions::PERSIST.with(LockOptions::RECLAIM);
    assert_eq!(ann.lock_with(LockType::Write, both, (0, 10)), Status::Ok);
    assert_eq!(ann.write(ann.state, 0, b"half"), Status::Ok);
    // She restarts: her locks are broken, and stay so after a restart of the server.
    let mut rogue = Rogue::connect(&fixture.address(far()));
    rogue.log_in_anew(b"ann", WireOptions { response_cache: true, ..WireOptions::default() });
    let mut bob = holder(&fixture, far(), b"bob");
    assert_eq!(bob.lock(LockType::Write, (5, 10)), Status::LockBroken);
    let leave = Request::Disconnect(dafs_wire::messages::Empty);
    assert_eq!(rogue.outcome(&leave), Some(Status::Ok));
    assert_eq!(bob.rogue.outcome(&leave), Some(Status::Ok));
    drop((rogue, bob, ann));
    let fixture = fixture.journaled_with(|config| {
        config.filer.lease = std::time::Duration::from_millis(10);
    });
    let mut rogue = Rogue::connect(&fixture.address(far()));
    rogue.log_in_as(b"cid", WireOptions::default());
    let mut open = None;
    crate::fixture::await_that("the time to take back is over", || {
        open = rogue.try_open("file").ok();
        open.is_some()
    });
    let (file, state) = open.unwrap();
    let mut cid = Holder { rogue, session: SessionId(0), file, state };
    assert_eq!(cid.read(cid.state, (0, 4)), Status::StaleStateId);
    assert_eq!(cid.read(StateId::ANONYMOUS, (0, 4)), Status::Locked);
    assert_eq!(cid.lock(LockType::Write, (0, 10)), Status::LockBroken);
    assert_eq!(cid.lock_with(LockType::Write, LockOptions::REPAIR, (0, 10)), Status::Ok);
    assert_eq!(cid.write(cid.state, 0, b"whole"), Status::Ok);
    assert_eq!(cid.unlock((0, 10)), Status::Ok);
    assert_eq!(cid.lock(LockType::Write, (0, 10)), Status::Ok);
}

#[test]
fn without_stable_storage_no_lock_promises_to_outlive_anything() {
    over_each(|fixture, transport| {
        std::fs::write(fixture.local("file"), [7; 100]).unwrap();
        let mut ann = holder(fixture, transport, b"ann");
        let options = LockOptions::PERSIST;
        assert_eq!(ann.lock_with(LockType::Write, options, (0, 10)), Status::NotSupp);
        assert_eq!(ann.lock(LockType::Write, (0, 10)), Status::Ok);
    });
}

//! Tests the ends of delegations: timeouts, restarts, late returns.

use std::time::Duration;

use dafs_types::{CacheHint, ShareAccess, ShareDeny, Stability, StateId, Status};
use dafs_wire::messages::{
    DelegationType, Empty, InlineData, OpenTarget, Placement, ReadInline,
    SessionOptions as WireOptions, WriteInline,
};
use dafs_wire::{ChannelType, Path, Request};

use super::holder::{Holder, lively};
use crate::bind::bind;
use crate::fixture::{Fixture, any, far};
use crate::rogue::Rogue;

fn write(file: dafs_types::FileHandle, state: StateId) -> Request<'static> {
    Request::WriteInline(WriteInline {
        file,
        state,
        offset: 0,
        stability: Stability::Unstable,
        hint: CacheHint(0),
        placement: Placement::Packed,
        data: InlineData::Here(b"new"),
    })
}

fn read(file: dafs_types::FileHandle, state: StateId) -> Request<'static> {
    let hint = CacheHint(0);
    Request::ReadInline(ReadInline { file, state, offset: 0, length: 9, hint })
}

#[test]
fn a_silent_holder_loses_its_delegation() {
    let fixture = Fixture::with(|config| {
        lively(|policy| policy.recall_timeout = Duration::from_millis(300))(config);
        config.filer.lease = Duration::from_millis(300);
    });
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut holder = Holder::new(&fixture, any(), b"holder");
    let held = holder.hold("file", ShareAccess::Read);
    let (state, _) = held.delegation.unwrap();
    let mut rogue = Rogue::logged_in(&fixture.address(any()));
    assert_eq!(rogue.outcome(&write(held.file, StateId::ANONYMOUS)), Some(Status::Ok));
    assert_eq!(holder.recalled(Status::Ok).0, state);
    assert_eq!(holder.rogue.outcome(&read(held.file, state)), Some(Status::Expired));
    // Such a holder gets no other delegation until it has returned the revoked one.
    std::fs::write(fixture.local("second"), b"second").unwrap();
    assert_eq!(holder.open("second", ShareAccess::Read).delegation, None);
    assert_eq!(holder.give_back(state), Status::Expired);
    assert!(holder.open("second", ShareAccess::Read).delegation.is_some());
    assert_eq!(fixture.stop().1.delegations.revoked, 1);
}

#[test]
fn what_waited_goes_with_its_connection() {
    let fixture = Fixture::with(lively(|_| {}));
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut holder = Holder::new(&fixture, any(), b"holder");
    let held = holder.hold("file", ShareAccess::Read);
    let mut rogue = Rogue::logged_in(&fixture.address(any()));
    rogue.request(0, 1, &write(held.file, StateId::ANONYMOUS));
    let (state, _) = holder.recalled(Status::Ok);
    let endpoint = rogue.endpoint;
    rogue.interface.disconnect(endpoint);
    rogue.ends();
    assert_eq!(holder.rogue.outcome(&read(held.file, state)), Some(Status::Ok));
    assert_eq!(holder.give_back(state), Status::Ok);
    let stats = fixture.stop().1;
    assert_eq!((stats.held_requests, stats.delegations.waiting), (0, 0));
}

#[test]
fn a_holder_that_leaves_is_in_nobodys_way() {
    let fixture = Fixture::with(lively(|_| {}));
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut holder = Holder::new(&fixture, far(), b"holder");
    let held = holder.hold("file", ShareAccess::Both);
    let mut rogue = Rogue::logged_in(&fixture.address(far()));
    rogue.request(0, 1, &write(held.file, StateId::ANONYMOUS));
    holder.recalled(Status::Ok);
    assert_eq!(holder.rogue.outcome(&Request::Disconnect(Empty)), Some(Status::Ok));
    assert_eq!(rogue.status(), Some(Status::Ok));
}

#[test]
fn a_delegation_covers_opens_reads_and_writes() {
    let fixture = Fixture::with(lively(|_| {}));
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut holder = Holder::new(&fixture, any(), b"holder");
    let held = holder.hold("file", ShareAccess::Read);
    let (state, _) = held.delegation.unwrap();
    assert_eq!(holder.rogue.outcome(&read(held.file, state)), Some(Status::Ok));
    assert_eq!(holder.rogue.outcome(&write(held.file, state)), Some(Status::Access));
    let (directory, names) = (holder.rogue.root(), ["file"]);
    let path = Path::new(&names);
    let mut claim = |state, access| {
        let target = OpenTarget::DelegateCurrent { directory, path, state };
        holder.try_target(target, access, ShareDeny::None).map(|held| held.delegation)
    };
    assert_eq!(claim(state, ShareAccess::Read), Ok(None));
    assert_eq!(claim(state, ShareAccess::Both), Err(Status::Inval));
    assert!(claim(StateId(state.0 + 1), ShareAccess::Read).is_err());
    assert_eq!(holder.give_back(state), Status::Ok);
    let held = holder.hold("file", ShareAccess::Both);
    // The client has one already: there is one per file and client.
    let (state, is_write) = held.delegation.unwrap();
    assert!(is_write);
    assert_eq!(holder.rogue.outcome(&write(held.file, state)), Some(Status::Ok));
}

/// Starts the client's next incarnation, with a back-control channel.
fn next_life(fixture: &Fixture, name: &'static [u8]) -> Holder {
    let mut rogue = Rogue::connect(&fixture.address(any()));
    let options = WireOptions { back_control_channel: true, ..WireOptions::default() };
    let results = rogue.log_in_anew(name, options);
    let kind = ChannelType::BackControl;
    let back = bind(&mut rogue, fixture, any(), results.session, kind);
    let mut holder = Holder { rogue, back };
    holder.prove();
    holder
}

#[test]
fn a_client_that_restarts_finds_nothing_unless_it_is_kept() {
    for recovery in [Duration::ZERO, Duration::from_secs(60)] {
        let fixture = Fixture::with(lively(|policy| policy.recovery = recovery));
        std::fs::write(fixture.local("file"), b"old").unwrap();
        let mut holder = Holder::new(&fixture, any(), b"holder");
        holder.hold("file", ShareAccess::Both);
        let mut holder = next_life(&fixture, b"holder");
        let (directory, names) = (holder.rogue.root(), ["file"]);
        let path = Path::new(&names);
        let target = || OpenTarget::DelegatePrevious { directory, path };
        let claimed = holder.try_target(target(), ShareAccess::Both, ShareDeny::None);
        if recovery.is_zero() {
            assert_eq!(claimed.unwrap_err(), Status::Expired);
            // No open was left, either.
            assert!(holder.hold("file", ShareAccess::Both).delegation.is_some());
            continue;
        }
        assert!(claimed.unwrap().delegation.unwrap().1);
        let again = holder.try_target(target(), ShareAccess::Both, ShareDeny::None);
        assert_eq!(again.unwrap_err(), Status::Expired);
    }
}

#[test]
fn delegpurge_gives_up_what_waits() {
    let keeping = lively(|policy| policy.recovery = Duration::from_secs(3600));
    let fixture = Fixture::with(keeping);
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut holder = Holder::new(&fixture, any(), b"holder");
    let held = holder.hold("file", ShareAccess::Read);
    let mut holder = next_life(&fixture, b"holder");
    let mut rogue = Rogue::logged_in(&fixture.address(any()));
    rogue.request(0, 1, &write(held.file, StateId::ANONYMOUS));
    assert_eq!(holder.rogue.outcome(&Request::DelegPurge(Empty)), Some(Status::Ok));
    assert_eq!(rogue.status(), Some(Status::Ok));
    assert_eq!(fixture.stop().1.delegations.revoked, 0);
}

#[test]
fn delegations_end_with_the_server() {
    let fixture = Fixture::with(|_| {}).journaled_with(lively(|_| {}));
    std::fs::write(fixture.local("file"), b"old").unwrap();
    let mut holder = Holder::new(&fixture, any(), b"holder");
    let held = holder.hold("file", ShareAccess::Read);
    let (state, _) = held.delegation.unwrap();
    let fixture = fixture.journaled_with(lively(|_| {}));
    let mut holder = Holder::new(&fixture, any(), b"holder");
    assert_eq!(holder.give_back(state), Status::StaleStateId);
    let delegation = DelegationType::Read;
    let target = OpenTarget::Previous { file: held.file, delegation };
    let reclaimed = holder.try_target(target, ShareAccess::Read, ShareDeny::None).unwrap();
    assert_eq!(reclaimed.delegation, None);
}

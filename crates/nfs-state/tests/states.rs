//! State ids and owners, row by row.

use dafs_nfs_state::limits::{OWNERS_MAX, STATE_OWNER_BYTES_MAX};
use dafs_nfs_state::{
    Caller, Checked, ClientKey, EndReason, FileNumber, KindSet, Nfs4Error, Notice, PeerId,
    Revocation, StateKey, Stateid4, status_flags,
};

use crate::common::{OTHER, ROOT, World, caller, create_ask, created};

const FILE: FileNumber = FileNumber(42);

fn client(world: &mut World) -> (ClientKey, dafs_nfs_state::SessionId4) {
    let (client, session) = world.client("a");
    (client.key, session.session)
}

fn open(world: &mut World, client: ClientKey, owner: &[u8]) -> (StateKey, Stateid4) {
    world.state.opened(client, owner, FILE, 7).unwrap()
}

fn data(world: &World, client: ClientKey, id: Stateid4) -> Result<Checked, Nfs4Error> {
    world.state.check_state(client, &id, KindSet::DATA, Some(FILE))
}

#[test]
fn an_open_again_counts_its_id() {
    let mut world = World::new();
    let (client, _) = client(&mut world);
    let (key, first) = open(&mut world, client, b"x");
    assert_eq!(first.sequence, 1);
    let (again, second) = open(&mut world, client, b"x");
    assert_eq!((again, second.sequence, second.other), (key, 2, first.other));
    assert_eq!(world.state.find_open(client, b"x", FILE), Some(key));
    assert_eq!(world.state.find_open(client, b"y", FILE), None);
    let (other, _) = open(&mut world, client, b"y");
    assert_ne!(other, key);
    assert_eq!(data(&world, client, second), Ok(Checked::State(key)));
    assert_eq!(data(&world, client, Stateid4 { sequence: 0, ..second }), Ok(Checked::State(key)));
    assert_eq!(data(&world, client, first), Err(Nfs4Error::OldStateId));
    let ahead = Stateid4 { sequence: 3, ..second };
    assert_eq!(data(&world, client, ahead), Err(Nfs4Error::BadStateId));
    let downgraded = world.state.changed(key).unwrap();
    assert_eq!(downgraded.sequence, 3);
}

#[test]
fn an_id_is_good_for_its_client_its_file_its_kind_and_its_run_of_the_server() {
    let mut world = World::new();
    let (own, _) = client(&mut world);
    let stranger = world.exchange("b", 1, 0, OTHER).unwrap();
    let (key, id) = open(&mut world, own, b"x");
    assert_eq!(data(&world, stranger.key, id), Err(Nfs4Error::BadStateId));
    let elsewhere = world.state.check_state(own, &id, KindSet::DATA, Some(FileNumber(1)));
    assert_eq!(elsewhere, Err(Nfs4Error::BadStateId));
    for kinds in [KindSet::LOCK, KindSet::DELEGATION, KindSet::LAYOUT] {
        let wrong = world.state.check_state(own, &id, kinds, None);
        assert_eq!(wrong, Err(Nfs4Error::BadStateId));
    }
    let closing = world.state.check_state(own, &id, KindSet::OPEN, Some(FILE));
    assert_eq!(closing, Ok(Checked::State(key)));
    let mut stale = id;
    stale.other[3] ^= 1;
    assert_eq!(data(&world, own, stale), Err(Nfs4Error::StaleStateId));
    world.state.complete_reclaims(own).unwrap();
    let after = Err(Nfs4Error::BadStateId);
    assert_eq!(data(&world, own, stale), after, "the client has nothing more to reclaim");
    assert_eq!(world.state.test_state(own, &stale), Err(Nfs4Error::BadStateId));
    assert_eq!(world.state.free_state(own, &stale), Err(Nfs4Error::BadStateId));
    let mut other_kind = id;
    other_kind.other[4] ^= 0x40;
    assert_eq!(data(&world, own, other_kind), Err(Nfs4Error::BadStateId));
    world.state.ended(key);
    assert_eq!(data(&world, own, id), Err(Nfs4Error::BadStateId));
    let (_, next) = open(&mut world, own, b"x");
    assert_ne!(next.other, id.other, "an id is not used again");
}

#[test]
fn special_ids_are_for_data_alone() {
    let mut world = World::new();
    let (client, _) = client(&mut world);
    assert_eq!(data(&world, client, Stateid4::ANONYMOUS), Ok(Checked::Anonymous));
    assert_eq!(data(&world, client, Stateid4::BYPASS), Ok(Checked::Bypass));
    for id in [Stateid4::CURRENT, Stateid4::INVALID] {
        assert_eq!(data(&world, client, id), Err(Nfs4Error::BadStateId));
    }
    for id in [Stateid4::ANONYMOUS, Stateid4::BYPASS] {
        let closing = world.state.check_state(client, &id, KindSet::OPEN, None);
        assert_eq!(closing, Err(Nfs4Error::BadStateId));
        assert_eq!(world.state.test_state(client, &id), Err(Nfs4Error::BadStateId));
        assert_eq!(world.state.free_state(client, &id), Err(Nfs4Error::BadStateId));
    }
}

#[test]
fn locks_hold_their_open_until_they_are_unlocked() {
    let mut world = World::new();
    let (client, _) = client(&mut world);
    let (open, open_id) = open(&mut world, client, b"x");
    let (lock, first) = world.state.locked(open, b"x", 9).unwrap();
    let (same, second) = world.state.locked(open, b"x", 9).unwrap();
    assert_eq!((same, first.sequence, second.sequence), (lock, 1, 2));
    assert_eq!(world.state.find_lock(open, b"x"), Some(lock));
    assert_eq!(world.state.state(lock).unwrap().open, Some(open));
    assert_eq!(world.state.check_close(open), Err(Nfs4Error::LocksHeld));
    assert_eq!(world.state.free_state(client, &second), Err(Nfs4Error::LocksHeld));
    assert_eq!(world.state.free_state(client, &open_id), Err(Nfs4Error::LocksHeld));
    let third = world.state.unlocked(lock, false).unwrap();
    assert_eq!(world.state.check_close(open), Ok(()));
    assert_eq!(world.state.free_state(client, &second), Err(Nfs4Error::OldStateId));
    assert_eq!(world.state.free_state(client, &third), Ok(9));
    assert_eq!(world.state.test_state(client, &third), Err(Nfs4Error::BadStateId));
    world.state.locked(open, b"other", 10).unwrap();
    world.state.ended(open);
    assert_eq!((world.state.state_count(), world.state.owner_count()), (0, 0));
    assert_eq!(world.state.locked(open, b"x", 9), Err(Nfs4Error::BadStateId));
}

#[test]
fn revoked_states_say_why_until_they_are_freed() {
    let mut world = World::new();
    let (client, session) = client(&mut world);
    let rows = [
        (Revocation::Expired, Nfs4Error::Expired, status_flags::EXPIRED_SOME_STATE_REVOKED),
        (Revocation::ByAdministrator, Nfs4Error::AdminRevoked, status_flags::ADMIN_STATE_REVOKED),
        (Revocation::NotReturned, Nfs4Error::DelegRevoked, status_flags::RECALLABLE_STATE_REVOKED),
    ];
    let mut number = 0;
    let mut flags = |world: &mut World| {
        number += 1;
        world.request(session, 0, number).reply.status_flags
    };
    for (reason, error, flag) in rows {
        let (key, id) = world.state.delegated(client, FILE, 3).unwrap();
        assert_eq!(data(&world, client, id), Ok(Checked::State(key)));
        assert_eq!(world.state.free_state(client, &id), Err(Nfs4Error::LocksHeld));
        assert_eq!(flags(&mut world), 0);
        world.state.revoke_state(key, reason);
        world.state.revoke_state(key, Revocation::Expired);
        assert_eq!(data(&world, client, id), Err(error));
        assert_eq!(world.state.test_state(client, &id), Err(error));
        assert_eq!(flags(&mut world), flag);
        let (again, _) = world.state.delegated(client, FILE, 4).unwrap();
        assert_ne!(again, key, "the place is free");
        world.state.ended(again);
        assert_eq!(world.state.free_state(client, &id), Ok(3));
        assert_eq!(flags(&mut world), 0);
    }
}

#[test]
fn a_revoked_open_takes_its_locks_with_it() {
    let mut world = World::new();
    let (client, _) = client(&mut world);
    let (open, open_id) = open(&mut world, client, b"x");
    let (_, lock_id) = world.state.locked(open, b"x", 9).unwrap();
    world.state.revoke_state(open, Revocation::ByAdministrator);
    assert_eq!(data(&world, client, lock_id), Err(Nfs4Error::AdminRevoked));
    assert_eq!(world.state.locked(open, b"x", 9), Err(Nfs4Error::BadStateId));
    assert_eq!(world.state.clients().view(client).unwrap().state_count, 0);
    assert_eq!(world.state.free_state(client, &open_id), Ok(7));
    assert_eq!((world.state.state_count(), world.state.owner_count()), (0, 0));
}

#[test]
fn states_end_with_their_client_and_keep_it_busy() {
    let mut world = World::new();
    let (own, session) = client(&mut world);
    let (open, _) = open(&mut world, own, b"x");
    world.state.locked(open, b"y", 1).unwrap();
    world.state.delegated(own, FILE, 2).unwrap();
    world.state.laid_out(own, FILE, 3).unwrap();
    assert_eq!(world.state.states_of(own).count(), 4);
    let id = world.state.clients().view(own).unwrap().id;
    world.state.destroy_session(session, None, &caller(ROOT)).unwrap();
    let busy = world.state.destroy_client(id, &caller(ROOT));
    assert_eq!(busy, Err(Nfs4Error::ClientIdBusy));
    assert_eq!(world.exchange("a", 1, 0, OTHER), Err(Nfs4Error::ClidInUse));
    world.state.revoke_client(own);
    assert_eq!((world.state.state_count(), world.state.owner_count()), (0, 0));
    let gone = world.state.opened(own, b"x", FILE, 1);
    assert_eq!(gone, Err(Nfs4Error::StaleClientId));
    let ended = world.notices();
    assert!(matches!(&ended[..], [Notice::Ended(e)] if e.reason == EndReason::Revoked));
}

#[test]
fn names_of_owners_are_bounded() {
    let mut world = World::new();
    let (client, _) = client(&mut world);
    let long = vec![b'x'; STATE_OWNER_BYTES_MAX + 1];
    let refused = world.state.opened(client, &long, FILE, 1);
    assert_eq!(refused, Err(Nfs4Error::Inval));
    assert_eq!((world.state.state_count(), world.state.owner_count()), (0, 0));
    assert!(world.state.opened(client, &long[1..], FILE, 1).is_ok());
}

/// Fills the table of owners by clients of one host.
#[test]
fn the_clients_of_one_host_leave_room_for_those_of_others() {
    let mut world = World::new();
    let hosts: Vec<PeerId> = (1..=2).map(PeerId).collect();
    let [one, two] = hosts[..] else { panic!() };
    let client_at = |world: &mut World, name: &str, peer: PeerId| {
        let caller = Caller { peer, ..caller(ROOT) };
        let exchanged = world.exchange_as(name, 1, 0, &caller).unwrap();
        let ask = create_ask(exchanged.id, exchanged.sequence);
        created(world.create_with(&ask, &caller));
        exchanged.key
    };
    let mut taken = 0_u32;
    for name in ["a", "b", "c", "d"] {
        let client = client_at(&mut world, name, one);
        while world.state.check_room(client, None).is_ok() {
            taken += 1;
            open(&mut world, client, &taken.to_be_bytes());
        }
    }
    assert_eq!(taken, OWNERS_MAX / 4 * 3);
    let other = client_at(&mut world, "e", two);
    world.state.check_room(other, None).unwrap();
    // What one client gives back, another one of the same host may have.
    let first = world.state.clients().iter().map(|(key, _)| key).next().unwrap();
    let held: Vec<StateKey> = world.state.states_of(first).map(|state| state.key).take(4).collect();
    held.into_iter().for_each(|key| world.state.ended(key));
    let last = world.state.clients().iter().map(|(key, _)| key).nth(3).unwrap();
    world.state.check_room(last, None).unwrap();
}

//! EXCHANGE_ID, CREATE_SESSION and DESTROY_CLIENTID, row by row.

use std::time::Duration;

use dafs_nfs_state::limits::{CLIENT_OWNER_BYTES_MAX, UNCONFIRMED_PER_PEER_MAX};
use dafs_nfs_state::{
    Caller, CreateSession, CreateSessionOutcome, EndReason, ExchangeId, Nfs4Error, Notice,
    OperationNumber, OperationSet, PeerId, Principal, Protection, ProtectionAsk, Service,
    StateConfig, exchange_flags,
};
use dafs_types::{ClientId, Verifier};

use crate::common::{OTHER, ROOT, World, ask, attributes, caller, create_ask, created};

const UPDATE: u32 = exchange_flags::UPD_CONFIRMED_REC_A;
const CONFIRMED: u32 = exchange_flags::CONFIRMED_R;
const LEASE: Duration = Duration::from_secs(90);

#[test]
fn case_1_a_new_name_gets_an_unconfirmed_id() {
    let mut world = World::new();
    let first = world.exchange("a", 1, 0, ROOT).unwrap();
    assert_eq!(first.id.0 >> 32, 7, "the id contains the life of the server");
    assert_eq!(first.flags, exchange_flags::USE_NON_PNFS);
    let second = world.exchange("b", 1, 0, ROOT).unwrap();
    assert_ne!(first.id, second.id);
    assert_eq!(world.state.clients().unconfirmed_count(), 2);
}

#[test]
fn case_2_a_repeat_is_about_the_confirmed_record() {
    let mut world = World::new();
    let (first, session) = world.client("a");
    let again = world.exchange("a", 1, 0, ROOT).unwrap();
    assert_eq!((again.id, again.flags & CONFIRMED), (first.id, CONFIRMED));
    world.request(session.session, 0, 1);
}

#[test]
fn case_3_a_name_in_use_stays_with_its_principal() {
    let mut world = World::new();
    let (first, session) = world.client("a");
    for verifier in [1, 2] {
        assert_eq!(world.exchange("a", verifier, 0, OTHER), Err(Nfs4Error::ClidInUse));
    }
    // Without sessions and state the record gives way.
    let destroyed = world.state.destroy_session(session.session, None, &caller(ROOT));
    assert_eq!(destroyed, Ok(()));
    let second = world.exchange("a", 1, 0, OTHER).unwrap();
    assert_ne!(first.id, second.id);
    assert_eq!(world.create(first.id, 2, ROOT), Err(Nfs4Error::StaleClientId));
}

#[test]
fn case_3_a_name_whose_lease_is_over_gives_way() {
    let mut world = World::new();
    let (first, session) = world.client("a");
    world.wait(LEASE + Duration::from_secs(1));
    assert!(world.state.clients().view(first.key).unwrap().is_courtesy);
    world.exchange("a", 1, 0, OTHER).unwrap();
    let gone = world.sequence(&ask(session.session, 0, 1));
    assert_eq!(gone, Err(Nfs4Error::BadSession));
}

#[test]
fn case_4_an_unconfirmed_record_is_replaced() {
    let mut world = World::new();
    let mut before = world.exchange("a", 1, 0, ROOT).unwrap().id;
    for (verifier, principal) in [(2, OTHER), (2, ROOT), (1, ROOT), (1, ROOT)] {
        let next = world.exchange("a", verifier, 0, principal).unwrap().id;
        assert_ne!(before, next);
        assert_eq!(world.create(before, 1, ROOT), Err(Nfs4Error::StaleClientId));
        before = next;
    }
    assert_eq!(world.state.clients().count(), 1);
}

#[test]
fn case_5_the_old_incarnation_lives_until_the_new_one_is_confirmed() {
    let mut world = World::new();
    let (old, session) = world.client("a");
    let new = world.exchange("a", 2, 0, ROOT).unwrap();
    assert_ne!(old.id, new.id);
    assert_eq!(new.flags & CONFIRMED, 0);
    world.request(session.session, 0, 1);
    created(world.create(new.id, new.sequence, ROOT));
    let gone = world.sequence(&ask(session.session, 0, 2));
    assert_eq!(gone, Err(Nfs4Error::BadSession));
    let ended = world.notices();
    let reason = |notice: &Notice| matches!(notice, Notice::Ended(ended) if ended.key == old.key && ended.was_confirmed && ended.reason == EndReason::Replaced);
    assert!(ended.iter().any(reason), "{ended:?}");
}

#[test]
fn case_5_the_new_incarnation_waits_for_requests_of_the_old_one() {
    let mut world = World::new();
    let (_, session) = world.client("a");
    let running = crate::common::new(world.sequence(&ask(session.session, 0, 1)));
    let new = world.exchange("a", 2, 0, ROOT).unwrap();
    assert_eq!(world.create(new.id, 1, ROOT), Err(Nfs4Error::Delay));
    assert!(world.state.finish(running.request, None, world.now));
    created(world.create(new.id, 1, ROOT));
}

#[test]
fn cases_6_to_9_an_update_needs_the_same_incarnation_and_principal() {
    let mut world = World::new();
    assert_eq!(world.exchange("a", 1, UPDATE, ROOT), Err(Nfs4Error::NoEnt));
    let unconfirmed = world.exchange("a", 1, 0, ROOT).unwrap();
    assert_eq!(world.exchange("a", 1, UPDATE, ROOT), Err(Nfs4Error::NoEnt));
    created(world.create(unconfirmed.id, 1, ROOT));
    let updated = world.exchange("a", 1, UPDATE, ROOT).unwrap();
    assert_eq!((updated.id, updated.flags & CONFIRMED), (unconfirmed.id, CONFIRMED));
    assert_eq!(world.exchange("a", 2, UPDATE, ROOT), Err(Nfs4Error::NotSame));
    assert_eq!(world.exchange("a", 2, UPDATE, OTHER), Err(Nfs4Error::NotSame));
    assert_eq!(world.exchange("a", 1, UPDATE, OTHER), Err(Nfs4Error::Perm));
}

#[test]
fn flags_and_names_are_checked() {
    let mut world = World::new();
    for flags in [4, 0x200, CONFIRMED, exchange_flags::USE_NON_PNFS | CONFIRMED] {
        assert_eq!(world.exchange("a", 1, flags, ROOT), Err(Nfs4Error::Inval), "{flags:#x}");
    }
    assert_eq!(world.exchange("", 1, 0, ROOT), Err(Nfs4Error::Inval));
    let long = "x".repeat(CLIENT_OWNER_BYTES_MAX + 1);
    assert_eq!(world.exchange(&long, 1, 0, ROOT), Err(Nfs4Error::Inval));
    assert!(world.exchange(&long[1..], 1, exchange_flags::OF_CLIENTS & !UPDATE, ROOT).is_ok());
}

#[test]
fn create_session_counts_and_repeats() {
    let mut world = World::new();
    let exchanged = world.exchange("a", 1, 0, ROOT).unwrap();
    let before = exchanged.sequence.wrapping_sub(1);
    assert_eq!(world.create(exchanged.id, before, ROOT), Err(Nfs4Error::SeqMisordered));
    assert_eq!(world.create(exchanged.id, exchanged.sequence, OTHER), Err(Nfs4Error::ClidInUse));
    assert_eq!(world.create(exchanged.id, exchanged.sequence, OTHER), Err(Nfs4Error::ClidInUse));
    let first = created(world.create(exchanged.id, exchanged.sequence, ROOT));
    assert_eq!(first.sequence, exchanged.sequence);
    let again = world.create(exchanged.id, exchanged.sequence, ROOT);
    assert_eq!(again, Ok(CreateSessionOutcome::Repeated(Box::new(first.clone()))));
    // Users whom a host names without proof are not told apart. Another user would learn the id of
    // the session.
    let by_other = world.create(exchanged.id, exchanged.sequence, OTHER);
    assert_eq!(by_other, Ok(CreateSessionOutcome::Repeated(Box::new(first.clone()))));
    let proved = Principal::Gss(b"user@REALM".as_slice().into());
    let stranger = Caller { principal: &proved, ..caller(ROOT) };
    let attempt = create_ask(exchanged.id, exchanged.sequence);
    let refused = world.state.create_session(&attempt, &stranger, 1, world.now);
    assert_eq!(refused, Err(Nfs4Error::ClidInUse));
    let next = exchanged.sequence + 1;
    for wrong in [next + 1, exchanged.sequence.wrapping_sub(1)] {
        assert_eq!(world.create(exchanged.id, wrong, ROOT), Err(Nfs4Error::SeqMisordered));
    }
    // After its confirmation, a client may create sessions for other principals.
    let second = created(world.create(exchanged.id, next, OTHER));
    assert_ne!(first.session, second.session);
    assert_eq!(world.create(ClientId(99), 1, ROOT), Err(Nfs4Error::StaleClientId));
    let other_life = ClientId(exchanged.id.0 & u64::from(u32::MAX) | 6 << 32);
    assert_eq!(world.create(other_life, 3, ROOT), Err(Nfs4Error::StaleClientId));
}

#[test]
fn a_failed_create_session_changes_nothing() {
    let mut world = World::new();
    let (client, _) = world.client("a");
    let ask = create_ask(client.id, 2);
    let mut back = attributes(1);
    back.request_bytes_max = 10;
    for _ in 0..10_000 {
        let outcome = world.create_with(&CreateSession { back, ..ask }, &caller(ROOT));
        assert_eq!(outcome, Err(Nfs4Error::TooSmall));
    }
    let unknown_flags = CreateSession { flags: 0xf, ..ask };
    assert_eq!(world.create_with(&unknown_flags, &caller(ROOT)), Err(Nfs4Error::Inval));
    let reserved = world.state.sessions().reserved_bytes();
    created(world.create_with(&ask, &caller(ROOT)));
    assert_eq!(world.state.sessions().reserved_bytes(), 2 * reserved);
}

#[test]
fn destroy_clientid_needs_a_client_without_sessions() {
    let mut world = World::new();
    let unconfirmed = world.exchange("a", 1, 0, ROOT).unwrap();
    assert_eq!(world.state.destroy_client(unconfirmed.id, &caller(ROOT)), Ok(()));
    let stale = Err(Nfs4Error::StaleClientId);
    assert_eq!(world.state.destroy_client(unconfirmed.id, &caller(ROOT)), stale);
    assert_eq!(world.state.destroy_client(ClientId(0), &caller(ROOT)), stale);
    let (client, session) = world.client("a");
    let busy = Err(Nfs4Error::ClientIdBusy);
    assert_eq!(world.state.destroy_client(client.id, &caller(ROOT)), busy);
    world.state.destroy_session(session.session, None, &caller(ROOT)).unwrap();
    assert_eq!(world.state.destroy_client(client.id, &caller(ROOT)), Ok(()));
    assert_eq!(world.state.clients().count(), 0);
}

#[test]
fn an_unconfirmed_record_lives_for_one_lease() {
    let mut world = World::new();
    let early = world.exchange("a", 1, 0, ROOT).unwrap();
    let late = world.exchange("b", 1, 0, ROOT).unwrap();
    world.wait(LEASE / 2);
    created(world.create(early.id, 1, ROOT));
    world.wait(LEASE);
    assert_eq!(world.create(late.id, 1, ROOT), Err(Nfs4Error::StaleClientId));
}

#[test]
fn a_client_past_its_lease_comes_back_unless_somebody_needed_its_state() {
    let mut world = World::new();
    let (client, session) = world.client("a");
    assert!(!world.state.conflict(client.key, world.now), "its lease is not over");
    world.wait(LEASE * 3);
    assert!(world.state.clients().view(client.key).unwrap().is_courtesy);
    world.request(session.session, 0, 1);
    assert!(!world.state.clients().view(client.key).unwrap().is_courtesy);
    assert!(!world.state.conflict(client.key, world.now));
    world.wait(LEASE * 3);
    assert!(world.state.conflict(client.key, world.now));
    assert_eq!(world.sequence(&ask(session.session, 0, 2)), Err(Nfs4Error::BadSession));
    assert!(
        matches!(&world.notices()[..], [Notice::Ended(ended)] if ended.reason == EndReason::Expired)
    );
}

#[test]
fn courtesy_has_an_end_and_running_requests_delay_it() {
    let mut world = World::new();
    let (client, session) = world.client("a");
    let running = crate::common::new(world.sequence(&ask(session.session, 0, 1)));
    world.wait(Duration::from_secs(25 * 60 * 60));
    assert!(world.state.clients().view(client.key).is_some());
    assert!(world.state.finish(running.request, None, world.now));
    world.wait(Duration::from_secs(23 * 60 * 60));
    assert!(world.state.clients().view(client.key).is_some());
    world.wait(Duration::from_secs(2 * 60 * 60));
    assert!(world.state.clients().view(client.key).is_none());
    assert_eq!(world.state.sessions().count(), 0);
}

#[test]
fn one_host_cannot_fill_the_table_with_unconfirmed_records() {
    let mut world = World::new();
    let other_host = Caller { peer: PeerId(2), ..caller(ROOT) };
    let first = world.exchange_as("other", 1, 0, &other_host).unwrap();
    for number in 0..10_000 {
        world.exchange(&format!("client {number}"), 1, 0, ROOT).unwrap();
    }
    assert_eq!(world.state.clients().unconfirmed_count(), UNCONFIRMED_PER_PEER_MAX + 1);
    assert!(world.state.clients().view(first.key).is_some());
}

#[test]
fn a_full_table_gives_way_to_newer_clients_where_it_may() {
    let mut world = World::with(StateConfig { clients_max: 4, ..StateConfig::new(7) });
    let clients: Vec<_> = (0..4).map(|number| world.client(&format!("{number}")).0).collect();
    assert_eq!(world.exchange("next", 1, 0, ROOT), Err(Nfs4Error::Delay));
    world.wait(LEASE + Duration::from_secs(1));
    world.exchange("next", 1, 0, ROOT).unwrap();
    let left = clients.iter().filter(|client| world.state.clients().view(client.key).is_some());
    assert_eq!(left.count(), 3);
}

#[test]
fn reclaims_are_completed_once() {
    let mut world = World::new();
    let (client, _) = world.client("a");
    assert_eq!(world.state.check_reclaim(client.key, false), Err(Nfs4Error::Grace));
    assert_eq!(world.state.check_reclaim(client.key, true), Ok(()));
    assert_eq!(world.state.complete_reclaims(client.key), Ok(()));
    assert_eq!(world.state.complete_reclaims(client.key), Err(Nfs4Error::CompleteAlready));
    assert_eq!(world.state.check_reclaim(client.key, false), Ok(()));
    assert_eq!(world.state.check_reclaim(client.key, true), Err(Nfs4Error::NoGrace));
}

#[test]
fn the_machine_credential_protects_what_the_client_asked_for() {
    let mut world = World::new();
    let machine = Principal::Gss(b"host/a@REALM".as_slice().into());
    let user = Principal::Gss(b"ada@REALM".as_slice().into());
    let protected = Caller { service: Service::Integrity, ..caller(&machine) };
    let stranger = Caller { service: Service::Privacy, ..caller(&user) };
    let protection = ProtectionAsk::MachineCredential {
        enforce: OperationSet::of(&[OperationNumber::CREATE_SESSION, OperationNumber::READ]),
        allow: OperationSet::of(&[OperationNumber::CLOSE, OperationNumber::REMOVE]),
    };
    let ask_id = ExchangeId { owner: b"a", verifier: Verifier([1; 8]), flags: 0, protection };
    let plain = caller(&machine);
    assert_eq!(world.state.exchange_id(&ask_id, &plain, world.now), Err(Nfs4Error::Inval));
    let shared = ExchangeId { protection: ProtectionAsk::SharedSecret, ..ask_id };
    let refused = world.state.exchange_id(&shared, &protected, world.now);
    assert_eq!(refused, Err(Nfs4Error::EncrAlgUnsupp));
    let client = world.state.exchange_id(&ask_id, &protected, world.now).unwrap();
    let Protection::MachineCredential { enforce, allow } = client.protection else {
        panic!("not protected")
    };
    assert!(enforce.contains(OperationNumber::DESTROY_CLIENTID));
    assert!(!enforce.contains(OperationNumber::READ));
    assert!(allow.contains(OperationNumber::CLOSE) && !allow.contains(OperationNumber::REMOVE));
    for wrong in [&plain, &stranger] {
        let outcome = world.create_with(&create_ask(client.id, 1), wrong);
        assert_eq!(outcome, Err(Nfs4Error::WrongCred));
    }
    let session = created(world.create_with(&create_ask(client.id, 1), &protected));
    let repeat = world.create_with(&create_ask(client.id, 1), &stranger);
    assert_eq!(repeat, Err(Nfs4Error::WrongCred));
    let wrong = world.state.destroy_session(session.session, None, &stranger);
    assert_eq!(wrong, Err(Nfs4Error::WrongCred));
    assert!(world.state.allows_machine(client.key, OperationNumber::CLOSE, &protected));
    assert!(!world.state.allows_machine(client.key, OperationNumber::CLOSE, &stranger));
    // Every user may send requests, but only on connections that are bound.
    let request = ask(session.session, 0, 1);
    assert!(world.state.sequence(&request, &stranger, world.now).is_ok());
    let elsewhere = Caller { connection: dafs_nfs_state::ConnectionId(9), ..stranger };
    let unbound = world.state.sequence(&ask(session.session, 1, 1), &elsewhere, world.now);
    assert_eq!(unbound, Err(Nfs4Error::ConnNotBound));
}

#[test]
fn another_host_cannot_act_for_a_client() {
    let mut world = World::new();
    let (first, session) = world.client("a");
    let stranger = Caller { peer: PeerId(2), ..caller(ROOT) };
    let now = world.now;
    let state = &mut world.state;
    let attempt = create_ask(first.id, session.sequence + 1);
    assert_eq!(state.create_session(&attempt, &stranger, 1, now), Err(Nfs4Error::ClidInUse));
    let repeated = create_ask(first.id, session.sequence);
    assert_eq!(state.create_session(&repeated, &stranger, 1, now), Err(Nfs4Error::ClidInUse));
    assert_eq!(state.destroy_client(first.id, &stranger), Err(Nfs4Error::WrongCred));
    let restarted = ExchangeId {
        owner: b"a",
        verifier: Verifier([9; 8]),
        flags: 0,
        protection: ProtectionAsk::None,
    };
    assert_eq!(state.exchange_id(&restarted, &stranger, now), Err(Nfs4Error::ClidInUse));
    // The client itself may reach the server from another address.
    let same = ExchangeId { verifier: Verifier([1; 8]), ..restarted };
    assert_eq!(state.exchange_id(&same, &stranger, now).map(|found| found.id), Ok(first.id));
}

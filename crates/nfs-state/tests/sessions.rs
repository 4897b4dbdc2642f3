//! Sessions: SEQUENCE, connections, memory for replies, and restarts, row by row.

use std::time::Duration;

use dafs_nfs_state::limits::{
    CONNECTIONS_PER_SESSION_MAX, KEPT_REPLY_BYTES_MAX, PERSISTENT_SLOTS_PER_PEER_MAX,
    SESSIONS_PER_CLIENT_MAX, SLOTS_MAX,
};
use dafs_nfs_state::{
    BindDirection, BoundDirection, CallbackSecurity, Caller, ConnectionId, CreateSession,
    CreatedSession, Nfs4Error, Notice, PeerId, SequenceAsk, Sequenced, SessionId4, SessionRecord,
    SlotEnd, SlotRecord, StateConfig, create_flags, status_flags,
};

use crate::common::{ROOT, World, ask, attributes, caller, create_ask, created, new};

/// The checksum of all requests.
const SUM: u64 = 0;

fn on(connection: u64) -> Caller<'static> {
    Caller { connection: ConnectionId(connection), ..caller(ROOT) }
}

#[test]
fn a_sequence_that_is_refused_leaves_its_slot_as_it_was() {
    let mut world = World::new();
    let session = world.client("a").1.session;
    let good = ask(session, 0, 1);
    let last = SequenceAsk { slot: 8, highest_slot: 8, ..good };
    let rows = [
        (SequenceAsk { session: SessionId4([1; 16]), ..good }, Nfs4Error::BadSession),
        (last, Nfs4Error::BadSlot),
        (SequenceAsk { highest_slot: 8, ..good }, Nfs4Error::BadHighSlot),
        (SequenceAsk { sequence: 2, ..good }, Nfs4Error::SeqMisordered),
        (SequenceAsk { sequence: 0, ..good }, Nfs4Error::SeqMisordered),
        (SequenceAsk { operation_count: 17, ..good }, Nfs4Error::TooManyOps),
        (SequenceAsk { request_bytes: 8193, ..good }, Nfs4Error::ReqTooBig),
    ];
    for (ask, error) in rows {
        assert_eq!(world.sequence(&ask), Err(error), "{ask:?}");
    }
    let admitted = new(world.sequence(&good));
    assert_eq!(world.sequence(&good), Err(Nfs4Error::Delay));
    assert!(world.state.finish(admitted.request, Some(b"reply"), world.now));
    assert!(!world.state.finish(admitted.request, Some(b"reply"), world.now));
    assert_eq!(world.sequence(&good), Ok(Sequenced::Repeat(admitted.request)));
    assert_eq!(world.state.kept_reply(admitted.request), Some(b"reply".as_slice()));
    let false_retry = SequenceAsk { checksum: 1, ..good };
    assert_eq!(world.sequence(&false_retry), Err(Nfs4Error::SeqFalseRetry));
    // A repeat is answered whatever its SEQUENCE says about other slots.
    let other_highest = SequenceAsk { highest_slot: 7, ..good };
    assert_eq!(world.sequence(&other_highest), Ok(Sequenced::Repeat(admitted.request)));
}

#[test]
fn a_reply_that_need_not_be_kept_is_not() {
    let mut world = World::new();
    let session = world.client("a").1.session;
    let request = SequenceAsk { must_keep: false, ..ask(session, 2, 1) };
    let admitted = new(world.sequence(&request));
    assert!(world.state.finish(admitted.request, None, world.now));
    let Ok(Sequenced::RepeatNotKept(reply)) = world.sequence(&request) else { panic!() };
    assert_eq!((reply.session, reply.sequence, reply.slot), (session, 1, 2));
    assert_eq!(reply, admitted.reply);
    // Nor is one that is longer than the session keeps.
    let admitted = new(world.sequence(&ask(session, 2, 2)));
    assert!(world.state.finish(admitted.request, Some(&[0; 4097]), world.now));
    assert!(matches!(world.sequence(&ask(session, 2, 2)), Ok(Sequenced::RepeatNotKept(_))));
}

#[test]
fn a_session_that_can_keep_no_reply_refuses_to() {
    let mut world = World::new();
    let client = world.exchange("a", 1, 0, ROOT).unwrap();
    let mut create = create_ask(client.id, 1);
    create.fore.kept_bytes_max = 10;
    let session = created(world.create_with(&create, &caller(ROOT))).session;
    assert_eq!(world.sequence(&ask(session, 0, 1)), Err(Nfs4Error::RepTooBigToCache));
    new(world.sequence(&SequenceAsk { must_keep: false, ..ask(session, 0, 1) }));
}

#[test]
fn attributes_are_lowered_to_what_the_server_can() {
    let mut world = World::new();
    let client = world.exchange("a", 1, 0, ROOT).unwrap();
    let mut create = create_ask(client.id, 1);
    create.fore = attributes(u32::MAX);
    create.fore.kept_bytes_max = u32::MAX;
    create.fore.reply_bytes_max = u32::MAX;
    let created = created(world.create_with(&create, &caller(ROOT)));
    assert_eq!(created.fore.kept_bytes_max, KEPT_REPLY_BYTES_MAX);
    assert_eq!(created.fore.requests_max, 128, "1 MiB of replies of 8 KiB");
    assert!(created.fore.requests_max < SLOTS_MAX);
    let (slot, highest_slot) = (127, 127);
    let last = SequenceAsk { slot, highest_slot, ..ask(created.session, 0, 1) };
    assert_eq!(new(world.sequence(&last)).reply.highest_slot, 127);
}

#[test]
fn connections_bind_themselves_and_are_forgotten_when_lost() {
    let mut world = World::new();
    let created = world.client("a").1;
    let session = created.session;
    let key = world.state.sessions().find(session).unwrap();
    let unbound = world.state.destroy_session(session, None, &on(2));
    assert_eq!(unbound, Err(Nfs4Error::ConnNotBound));
    for connection in 2..=16 {
        let request = ask(session, 0, connection as u32 - 1);
        let admitted = new(world.state.sequence(&request, &on(connection), world.now));
        world.state.finish(admitted.request, None, world.now);
    }
    assert_eq!(world.state.sessions().view(key).unwrap().connection_count, 16);
    for connection in 2..=16 {
        world.state.connection_lost(ConnectionId(connection));
    }
    assert_eq!(world.state.sessions().view(key).unwrap().connection_count, 1);
    assert_eq!(world.state.destroy_session(session, None, &on(1)), Ok(()));
    assert_eq!(world.state.destroy_session(session, None, &on(1)), Err(Nfs4Error::BadSession));
}

#[test]
fn the_number_of_connections_of_a_session_is_bounded() {
    let mut world = World::new();
    let session = world.client("a").1.session;
    let key = world.state.sessions().find(session).unwrap();
    for number in 0..500 {
        let request = ask(session, 0, number + 1);
        let caller = on(1000 + u64::from(number));
        let admitted = new(world.state.sequence(&request, &caller, world.now));
        assert_eq!(admitted.reply.status_flags, 0, "the back channel is kept");
        world.state.finish(admitted.request, None, world.now);
        world.wait(Duration::from_millis(1));
    }
    let view = world.state.sessions().view(key).unwrap();
    assert_eq!(view.connection_count, CONNECTIONS_PER_SESSION_MAX);
}

#[test]
fn a_lost_back_channel_shows_in_the_flags_until_it_is_bound_again() {
    let mut world = World::new();
    let session = world.client("a").1.session;
    let flags = |world: &mut World, number| world.request_on(2, session, number);
    assert_eq!(flags(&mut world, 1), 0);
    world.state.connection_lost(ConnectionId(1));
    let down = status_flags::CB_PATH_DOWN | status_flags::CB_PATH_DOWN_SESSION;
    assert_eq!(flags(&mut world, 2), down);
    // The connection is bound to the fore channel, and gains the back channel.
    let bound = world.state.bind_connection(session, BindDirection::BackOrBoth, &on(2), world.now);
    assert_eq!(bound.unwrap().direction, BoundDirection::Both);
    assert_eq!(flags(&mut world, 3), 0);
    for ask in [BindDirection::Fore, BindDirection::Back] {
        let changed = world.state.bind_connection(session, ask, &on(2), world.now);
        assert_eq!(changed, Err(Nfs4Error::Inval), "a channel would be lost");
    }
    let again = world.state.bind_connection(session, BindDirection::ForeOrBoth, &on(2), world.now);
    assert_eq!(again.unwrap().direction, BoundDirection::Both);
    let fore = world.state.bind_connection(session, BindDirection::Fore, &on(3), world.now);
    assert_eq!(fore.unwrap().direction, BoundDirection::Fore);
    let unknown = SessionId4([9; 16]);
    let bad = world.state.bind_connection(unknown, BindDirection::Fore, &on(3), world.now);
    assert_eq!(bad, Err(Nfs4Error::BadSession));
}

#[test]
fn a_session_without_callbacks_has_no_path_that_could_be_down() {
    let mut world = World::new();
    let client = world.exchange("a", 1, 0, ROOT).unwrap();
    let gss = [CallbackSecurity::Gss];
    let create = CreateSession { callback_security: &gss, ..create_ask(client.id, 1) };
    let created = created(world.create_with(&create, &caller(ROOT)));
    assert_eq!(created.flags, 0, "the server sends no callbacks by RPCSEC_GSS");
    let admitted = world.request(created.session, 0, 1);
    assert_eq!(admitted.reply.status_flags, 0);
    let bound =
        world.state.bind_connection(created.session, BindDirection::Back, &on(4), world.now);
    assert_eq!(bound, Err(Nfs4Error::Inval));
    let key = world.state.sessions().find(created.session).unwrap();
    let refused = world.state.control_back_channel(key, 1, &gss, &on(1));
    assert_eq!(refused, Err(Nfs4Error::NoEnt));
    let user = CallbackSecurity::System { user: 1, group: 2 };
    let offered = [CallbackSecurity::Gss, user.clone()];
    assert_eq!(world.state.control_back_channel(key, 77, &offered, &on(1)), Ok(()));
    let parameters = world.state.sessions().view(key).unwrap().callbacks.unwrap();
    assert_eq!((parameters.program, &parameters.security), (77, &user));
}

#[test]
fn a_session_ends_when_no_other_request_is_in_progress() {
    let mut world = World::new();
    let session = world.client("a").1.session;
    let key = world.state.sessions().find(session).unwrap();
    let other = new(world.sequence(&ask(session, 1, 1)));
    let own = new(world.sequence(&ask(session, 0, 1)));
    let destroy = |world: &mut World| world.state.destroy_session(session, Some(key), &on(1));
    assert_eq!(destroy(&mut world), Err(Nfs4Error::Delay));
    world.state.finish(other.request, None, world.now);
    assert_eq!(destroy(&mut world), Ok(()));
    assert!(!world.state.finish(own.request, Some(b"x"), world.now), "nobody waits for it");
    assert_eq!(world.state.sessions().reserved_bytes(), 0);
}

#[test]
fn slots_shrink_when_memory_runs_out_and_grow_again() {
    let config = StateConfig { replies_bytes_max: 8 * 4096 * 10, ..StateConfig::new(7) };
    let mut world = World::with(config);
    let mut sessions = Vec::new();
    while world.state.sessions().reserved_bytes() <= config.replies_bytes_max / 4 * 3 {
        let session: CreatedSession = world.client(&format!("{}", sessions.len())).1;
        sessions.push(session);
    }
    let many = sessions.iter().find(|session| session.fore.requests_max == 8).unwrap().session;
    world.wait(Duration::from_secs(1));
    let recalled = world.notices().len();
    assert!(recalled > 1);
    let reply = world.request(many, 0, 1).reply;
    assert_eq!((reply.highest_slot, reply.target_highest_slot), (7, 3));
    let reply = world.request(many, 0, 2).reply;
    assert_eq!((reply.highest_slot, reply.target_highest_slot), (3, 3));
    let beyond = SequenceAsk { slot: 4, highest_slot: 4, ..ask(many, 0, 1) };
    assert_eq!(world.sequence(&beyond), Err(Nfs4Error::BadSlot));
    for session in sessions.iter().filter(|session| session.session != many) {
        world.state.destroy_session(session.session, None, &on(1)).unwrap();
    }
    world.wait(Duration::from_secs(1));
    assert_eq!(world.request(many, 0, 3).reply.highest_slot, 7);
    world.request(many, 7, 1);
}

#[test]
fn full_memory_for_replies_evicts_clients_past_their_lease() {
    let config = StateConfig { replies_bytes_max: 4096 * 20, ..StateConfig::new(7) };
    let mut world = World::with(config);
    let mut number = 0;
    let refused = loop {
        number += 1;
        let client = world.exchange(&format!("{number}"), 1, 0, ROOT).unwrap();
        match world.create(client.id, 1, ROOT) {
            Ok(_) => assert!(world.state.sessions().reserved_bytes() <= 4096 * 20),
            Err(error) => break (client, error),
        }
    };
    assert_eq!(refused.1, Nfs4Error::Delay);
    world.now = world.now.after(Duration::from_secs(91));
    created(world.create(refused.0.id, 1, ROOT));
    assert!(matches!(world.notices()[..], [Notice::Ended(_), ..]));
}

#[test]
fn a_persistent_session_goes_on_after_a_restart() {
    let config = StateConfig { is_persistent: true, ..StateConfig::new(7) };
    let mut world = World::with(config);
    let client = world.exchange("a", 1, 0, ROOT).unwrap();
    let mut create = create_ask(client.id, 1);
    create.flags |= create_flags::PERSIST;
    let first = created(world.create_with(&create, &caller(ROOT)));
    assert_eq!(first.flags, create_flags::PERSIST | create_flags::CONN_BACK_CHAN);
    let second = created(world.create_with(&CreateSession { sequence: 2, ..create }, &on(1)));
    let key = world.state.sessions().find(second.session).unwrap();
    let record = world.state.record(key).unwrap();
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    let same_life = world.state.restore(record, [], world.now);
    assert_eq!(same_life, Err(Nfs4Error::Inval));

    let mut world = World::with(StateConfig { epoch: 8, ..config });
    let record = SessionRecord::decode(&bytes).unwrap();
    let slots = [
        SlotRecord { slot: 3, sequence: 12, checksum: SUM, end: SlotEnd::Unfinished },
        SlotRecord { slot: 4, sequence: 5, checksum: SUM, end: SlotEnd::NotKept },
        SlotRecord {
            slot: 5,
            sequence: 6,
            checksum: SUM,
            end: SlotEnd::Replied(b"reply".as_slice().into()),
        },
        SlotRecord {
            slot: 6,
            sequence: 7,
            checksum: SUM,
            end: SlotEnd::Replied(vec![0; KEPT_REPLY_BYTES_MAX as usize + 1].into()),
        },
    ];
    world.state.restore(record.clone(), slots, world.now).unwrap();
    assert_eq!(world.state.restore(record, [], world.now), Err(Nfs4Error::Inval));
    assert_eq!(world.sequence(&ask(first.session, 0, 1)), Err(Nfs4Error::BadSession));
    let resumed = world.sequence(&ask(second.session, 3, 12));
    let Ok(Sequenced::Resume(admitted)) = resumed else { panic!("{resumed:?}") };
    let flags = status_flags::RESTART_RECLAIM_NEEDED
        | status_flags::CB_PATH_DOWN
        | status_flags::CB_PATH_DOWN_SESSION;
    assert_eq!(admitted.reply.status_flags, flags);
    assert!(admitted.is_persistent);
    world.state.finish(admitted.request, Some(b"x"), world.now);
    new(world.sequence(&ask(second.session, 2, 900)));
    for (slot, number) in [(4, 5), (6, 7)] {
        let repeated = world.sequence(&ask(second.session, slot, number));
        assert!(matches!(repeated, Ok(Sequenced::RepeatNotKept(_))), "{repeated:?}");
    }
    let repeated = world.sequence(&ask(second.session, 5, 6));
    let Ok(Sequenced::Repeat(key)) = repeated else { panic!("{repeated:?}") };
    assert_eq!(world.state.kept_reply(key), Some(b"reply".as_slice()));
    let other = SequenceAsk { checksum: SUM + 1, ..ask(second.session, 5, 6) };
    assert_eq!(world.sequence(&other), Err(Nfs4Error::SeqFalseRetry));
    new(world.sequence(&ask(second.session, 5, 7)));
    // The client is known by its old id, and its CREATE_SESSION by its number.
    assert_eq!(world.exchange("a", 1, 0, ROOT).unwrap().id, client.id);
    let repeated = world.create_with(&CreateSession { sequence: 2, ..create }, &on(1));
    let expected = dafs_nfs_state::CreateSessionOutcome::Repeated(Box::new(second));
    assert_eq!(repeated, Ok(expected));
    created(world.create_with(&CreateSession { sequence: 3, ..create }, &on(1)));
    world.state.complete_reclaims(client_key(&world)).unwrap();
}

#[test]
fn a_restored_client_that_sends_nothing_ends_with_its_lease() {
    let config = StateConfig { is_persistent: true, ..StateConfig::new(7) };
    let mut world = World::with(config);
    let mut records = Vec::new();
    for owner in ["a", "b"] {
        let client = world.exchange(owner, 1, 0, ROOT).unwrap();
        let flags = create_flags::PERSIST;
        let ask = CreateSession { flags, ..create_ask(client.id, 1) };
        let session = created(world.create_with(&ask, &caller(ROOT))).session;
        let key = world.state.sessions().find(session).unwrap();
        records.push(world.state.record(key).unwrap());
    }
    let mut world = World::with(StateConfig { epoch: 8, ..config });
    for record in &records {
        world.state.restore(record.clone(), [], world.now).unwrap();
    }
    new(world.sequence(&ask(records[0].session, 0, 1)));
    world.wait(config.lease + Duration::from_secs(1));
    assert_eq!(
        world.notices().first(),
        Some(&Notice::SessionEnded(records[1].session)),
        "the other client is still known"
    );
    assert!(world.state.sessions().find(records[0].session).is_ok());
}

#[test]
fn one_host_cannot_have_all_persistent_slots() {
    let config = StateConfig { is_persistent: true, ..StateConfig::new(7) };
    let mut world = World::with(config);
    let mut create = |owner: &str, peer: u128, number: u32| {
        let host =
            Caller { peer: PeerId(peer), connection: ConnectionId(peer as u64), ..caller(ROOT) };
        let client = world.exchange_as(owner, 1, 0, &host).unwrap();
        let mut ask =
            CreateSession { flags: create_flags::PERSIST, ..create_ask(client.id, number) };
        ask.fore.requests_max = SLOTS_MAX;
        ask.fore.kept_bytes_max = 0;
        let made = created(world.create_with(&ask, &host));
        (made.flags, made.fore.requests_max)
    };
    let of_host = (1..).map(|number| create("a", 1, number));
    let slots: u32 = of_host.take_while(|(flags, _)| *flags != 0).map(|(_, count)| count).sum();
    assert_eq!(slots, PERSISTENT_SLOTS_PER_PEER_MAX);
    assert_eq!(create("b", 2, 1).0, create_flags::PERSIST, "another host");
}

#[test]
fn the_end_of_a_persistent_session_is_told_so_that_its_record_can_be_removed() {
    let config = StateConfig { is_persistent: true, ..StateConfig::new(7) };
    let mut world = World::with(config);
    let client = world.exchange("a", 1, 0, ROOT).unwrap();
    let create = create_ask(client.id, 1);
    let flags = create_flags::PERSIST;
    let first = created(world.create_with(&CreateSession { flags, ..create }, &on(1)));
    let plain = created(world.create_with(&CreateSession { sequence: 2, ..create }, &on(1)));
    let second =
        created(world.create_with(&CreateSession { flags, sequence: 3, ..create }, &on(1)));
    for session in [first.session, plain.session] {
        world.state.destroy_session(session, None, &on(1)).unwrap();
    }
    world.state.revoke_client(client.key);
    let told = world.notices();
    let [Notice::SessionEnded(one), Notice::SessionEnded(two), Notice::Ended(_)] = told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((one, two), (first.session, second.session));
}

#[test]
fn sessions_that_a_client_has_left_behind_make_room_for_new_ones() {
    let mut world = World::new();
    let client = world.exchange("a", 1, 0, ROOT).unwrap();
    let create = |world: &mut World, sequence: u32| {
        let caller = on(100 + u64::from(sequence));
        world.create_with(&create_ask(client.id, sequence), &caller)
    };
    let most = SESSIONS_PER_CLIENT_MAX as u32;
    let sessions: Vec<_> =
        (1..=most).map(|number| created(create(&mut world, number)).session).collect();
    assert_eq!(create(&mut world, most + 1), Err(Nfs4Error::Delay));
    world.state.connection_lost(ConnectionId(103));
    created(create(&mut world, most + 1));
    let gone = |world: &World, session| world.state.sessions().find(session).is_err();
    assert!(gone(&world, sessions[2]) && !gone(&world, sessions[1]));
}

fn client_key(world: &World) -> dafs_nfs_state::ClientKey {
    world.state.clients().iter().next().unwrap().0
}

#[test]
fn a_server_without_a_journal_grants_no_persistence() {
    let mut world = World::new();
    let client = world.exchange("a", 1, 0, ROOT).unwrap();
    let flags = create_flags::PERSIST | create_flags::CONN_RDMA;
    let create = CreateSession { flags, ..create_ask(client.id, 1) };
    assert_eq!(created(world.create_with(&create, &caller(ROOT))).flags, 0);
}

impl World {
    /// Carries out a request on slot 0 and returns the client's condition.
    fn request_on(&mut self, connection: u64, session: SessionId4, number: u32) -> u32 {
        let request = ask(session, 0, number);
        let admitted = new(self.state.sequence(&request, &on(connection), self.now));
        assert!(self.state.finish(admitted.request, Some(b"x"), self.now));
        admitted.reply.status_flags
    }
}

//! Callbacks: slots, lost connections, lost sessions, and clients that do not reply.

use std::time::Duration;

use dafs_nfs_state::limits::CALLBACKS_PER_CLIENT_MAX;
use dafs_nfs_state::{
    BindDirection, CallbackEvent, CallbackOutcome, CallbackReply, CallbackToSend, Caller,
    ClientKey, ConnectionId, CreateSession, Nfs4Error, Notice, SessionId4, status_flags,
};

use crate::common::{ROOT, World, caller, create_ask, created};

const PATIENCE: Duration = Duration::from_secs(60);

fn on(connection: u64) -> Caller<'static> {
    Caller { connection: ConnectionId(connection), ..caller(ROOT) }
}

impl World {
    fn call(&mut self, client: ClientKey, word: u64) -> dafs_nfs_state::CallbackKey {
        self.state.call_back(client, word, None, PATIENCE, self.now).unwrap()
    }

    fn sent(&mut self) -> Vec<CallbackToSend> {
        let now = self.now;
        std::iter::from_fn(|| self.state.next_callback(now)).collect()
    }

    fn reply(&mut self, to: &CallbackToSend, reply: CallbackReply) {
        let now = self.now;
        self.state.callback_replied(to.session_key, to.slot, to.sequence, reply, now);
    }

    fn ends(&mut self) -> Vec<(u64, CallbackOutcome)> {
        let ended = self.notices().into_iter().filter_map(|notice| match notice {
            Notice::Callback(CallbackEvent { word, outcome, .. }) => Some((word, outcome)),
            _ => None,
        });
        ended.collect()
    }
}

fn places(sent: &[CallbackToSend]) -> Vec<(u64, u32, u32)> {
    sent.iter().map(|callback| (callback.word, callback.slot, callback.sequence)).collect()
}

#[test]
fn slots_count_by_themselves_and_are_used_again() {
    let mut world = World::new();
    let (client, session) = world.client("a");
    for word in 0..6 {
        world.call(client.key, word);
    }
    let first = world.sent();
    assert_eq!(places(&first), [(0, 0, 1), (1, 1, 1), (2, 2, 1), (3, 3, 1)]);
    assert_eq!(first[3].highest_slot, 3);
    assert_eq!((first[0].session, first[0].connection), (session.session, ConnectionId(1)));
    assert_eq!(first[0].parameters.program, 0x4000_0000);
    world.reply(&first[1], CallbackReply::Done(0));
    world.reply(&first[1], CallbackReply::Done(9));
    assert_eq!(world.ends(), [(1, CallbackOutcome::Replied(0))]);
    let second = world.sent();
    assert_eq!(places(&second), [(4, 1, 2)]);
    for callback in first.iter().chain(&second) {
        world.reply(callback, CallbackReply::Done(10008));
    }
    assert_eq!(world.ends().len(), 4);
    assert_eq!(places(&world.sent()), [(5, 0, 2)]);
}

#[test]
fn a_lost_connection_repeats_the_callback_on_another_one() {
    let mut world = World::new();
    let (client, session) = world.client("a");
    world.call(client.key, 5);
    let first = world.sent().remove(0);
    world.state.connection_lost(ConnectionId(1));
    assert_eq!(world.sent(), []);
    assert!(!world.state.has_back_channel(client.key));
    let bind = BindDirection::BackOrBoth;
    world.state.bind_connection(session.session, bind, &on(2), world.now).unwrap();
    let again = world.sent().remove(0);
    assert!(again.is_repeat);
    assert_eq!(again.connection, ConnectionId(2));
    assert_eq!((again.slot, again.sequence), (first.slot, first.sequence));
    world.reply(&again, CallbackReply::Done(0));
    assert_eq!(world.ends(), [(5, CallbackOutcome::Replied(0))]);
}

#[test]
fn a_callback_moves_to_the_next_session_of_its_client() {
    let mut world = World::new();
    let (client, session) = world.client("a");
    world.call(client.key, 5);
    let first = world.sent().remove(0);
    world.state.destroy_session(session.session, None, &on(1)).unwrap();
    assert_eq!(world.sent(), []);
    let next = created(world.create(client.id, 2, ROOT));
    let again = world.sent().remove(0);
    assert_eq!((again.session, again.sequence, again.is_repeat), (next.session, 1, false));
    assert_ne!(again.session, first.session);
    world.reply(&first, CallbackReply::Done(1));
    world.reply(&again, CallbackReply::Done(0));
    assert_eq!(world.ends(), [(5, CallbackOutcome::Replied(0))]);
}

#[test]
fn a_client_that_does_not_reply_in_time_loses_what_is_recalled() {
    let mut world = World::new();
    let (client, session) = world.client("a");
    world.call(client.key, 5);
    let sent = world.sent().remove(0);
    world.wait(Duration::from_secs(11));
    assert_eq!(flags(&mut world, session.session, 1), status_flags::CB_PATH_DOWN_SESSION);
    world.wait(PATIENCE);
    assert_eq!(world.ends(), [(5, CallbackOutcome::TimedOut)]);
    // The late reply frees the slot and tells that the channel works again.
    world.reply(&sent, CallbackReply::Done(0));
    assert_eq!(world.ends(), []);
    assert_eq!(flags(&mut world, session.session, 2), 0);
    world.call(client.key, 6);
    assert_eq!(places(&world.sent()), [(6, 0, 2)]);
}

#[test]
fn a_postponed_callback_is_sent_again_with_the_next_number() {
    let mut world = World::new();
    let (client, _) = world.client("a");
    world.call(client.key, 5);
    let sent = world.sent().remove(0);
    world.reply(&sent, CallbackReply::Postponed);
    assert_eq!(world.sent(), []);
    world.wait(Duration::from_secs(1));
    let again = world.sent().remove(0);
    assert_eq!(again.sequence, 2);
    // A client that is busy has not counted the CB_SEQUENCE.
    world.reply(&again, CallbackReply::Busy);
    world.wait(Duration::from_secs(1));
    assert_eq!(world.sent()[0].sequence, 2);
}

#[test]
fn a_refused_session_shows_in_the_flags_and_another_one_is_used() {
    let mut world = World::new();
    let (client, session) = world.client("a");
    world.call(client.key, 5);
    let sent = world.sent().remove(0);
    world.reply(&sent, CallbackReply::SessionFault);
    assert_eq!(world.sent(), []);
    assert_eq!(flags(&mut world, session.session, 1), status_flags::BACKCHANNEL_FAULT);
    let next = created(world.create(client.id, 2, ROOT));
    assert_eq!(world.sent()[0].session, next.session);
}

#[test]
fn cancelled_callbacks_end_without_an_event() {
    let mut world = World::new();
    let (client, _) = world.client("a");
    let waiting: Vec<_> = (0..5).map(|word| world.call(client.key, word)).collect();
    let sent = world.sent();
    for key in waiting {
        world.state.cancel_callback(key);
    }
    assert_eq!(sent.len(), 4);
    for callback in &sent {
        world.reply(callback, CallbackReply::Postponed);
    }
    world.wait(PATIENCE * 2);
    assert_eq!(world.ends(), []);
    assert_eq!(world.sent(), []);
}

#[test]
fn the_queue_of_a_client_is_bounded_and_ends_with_it() {
    let mut world = World::new();
    let client = world.exchange("a", 1, 0, ROOT).unwrap();
    let create = CreateSession { flags: 0, ..create_ask(client.id, 1) };
    created(world.create_with(&create, &caller(ROOT)));
    for word in 0..CALLBACKS_PER_CLIENT_MAX as u64 {
        world.call(client.key, word);
    }
    let full = world.state.call_back(client.key, 0, None, PATIENCE, world.now);
    assert_eq!(full, Err(Nfs4Error::NoSpc));
    assert_eq!(world.sent(), [], "the client has no back channel");
    world.state.revoke_client(client.key);
    let gone = world.state.call_back(client.key, 0, None, PATIENCE, world.now);
    assert_eq!(gone, Err(Nfs4Error::StaleClientId));
    world.wait(PATIENCE * 2);
    assert_eq!(world.ends(), []);
}

fn flags(world: &mut World, session: SessionId4, number: u32) -> u32 {
    world.request(session, 0, number).reply.status_flags
}

//! Callbacks in random histories: lost connections, ended sessions, late and missing replies. The
//! client never sees a number out of order, and every callback ends once.

use std::collections::BTreeMap;
use std::time::Duration;

use dafs_nfs_state::{
    BindDirection, CallbackReply, CallbackToSend, Caller, ClientKey, ConnectionId, Nfs4Error,
    Notice, SessionId4,
};
use dafs_types::{ClientId, Random};

use crate::common::{ROOT, World, caller, create_ask, created};

const PATIENCE: Duration = Duration::from_secs(30);
const SESSIONS_MAX: usize = 3;

struct Run {
    random: Random,
    world: World,
    client: (ClientKey, ClientId),
    next_create: u32,
    sessions: Vec<SessionId4>,
    connections: Vec<ConnectionId>,
    next_connection: u64,
    /// The number that the client saw last on each slot, and the callback that had it.
    seen: BTreeMap<([u8; 16], u32), (u32, u64)>,
    /// Callbacks that the client has got and not replied to, or not yet seen.
    in_flight: Vec<CallbackToSend>,
    queued: u64,
    ends: BTreeMap<u64, u32>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut world = World::new();
        let exchanged = world.exchange("client", 1, 0, ROOT).unwrap();
        let mut run = Self {
            random: Random::new(seed),
            world,
            client: (exchanged.key, exchanged.id),
            next_create: 1,
            sessions: Vec::new(),
            connections: vec![ConnectionId(1)],
            next_connection: 2,
            seen: BTreeMap::new(),
            in_flight: Vec::new(),
            queued: 0,
            ends: BTreeMap::new(),
        };
        run.create_session();
        run
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..30 => self.queue(),
            30..75 => self.reply(),
            75..82 => self.lose_connection(),
            82..90 => self.connect(),
            90..94 => self.create_session(),
            94..96 => self.destroy_session(),
            _ => {
                let time = Duration::from_millis(self.random.below(3000) as u64);
                self.world.wait(time);
            }
        }
        self.deliver();
    }

    fn queue(&mut self) {
        self.queued += 1;
        let now = self.world.now;
        let word = self.queued;
        self.world.state.call_back(self.client.0, word, None, PATIENCE, now).unwrap();
    }

    /// Lets the client see everything that is sent.
    fn deliver(&mut self) {
        while let Some(sent) = self.world.state.next_callback(self.world.now) {
            assert!(self.connections.contains(&sent.connection), "sent on a lost connection");
            assert!(self.sessions.contains(&sent.session), "sent in a session that has ended");
            let slot = (sent.session.0, sent.slot);
            let (last, word) = self.seen.get(&slot).copied().unwrap_or_default();
            match sent.sequence.wrapping_sub(last) {
                0 => assert!(sent.is_repeat && word == sent.word, "{sent:?} after {word}"),
                1 => {}
                _ => panic!("{sent:?} after number {last}"),
            }
            self.in_flight.push(sent);
        }
        for notice in self.world.notices() {
            let Notice::Callback(event) = notice else { continue };
            *self.ends.entry(event.word).or_default() += 1;
        }
    }

    /// The client processes a callback and replies, or says that it is busy.
    fn reply(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let index = self.random.below(self.in_flight.len());
        let sent = self.in_flight.swap_remove(index);
        let reply = match self.random.below(10) {
            0 => CallbackReply::Busy,
            1 => CallbackReply::Postponed,
            _ => CallbackReply::Done(0),
        };
        self.process(&sent, reply);
        let now = self.world.now;
        self.world.state.callback_replied(sent.session_key, sent.slot, sent.sequence, reply, now);
    }

    fn process(&mut self, sent: &CallbackToSend, reply: CallbackReply) {
        if reply != CallbackReply::Busy {
            self.seen.insert((sent.session.0, sent.slot), (sent.sequence, sent.word));
        }
    }

    /// Loses a connection with the replies on it. The client may have seen the callbacks or not.
    fn lose_connection(&mut self) {
        if self.connections.len() < 2 {
            return;
        }
        let index = self.random.below(self.connections.len());
        let lost = self.connections.swap_remove(index);
        let (on_lost, others) =
            std::mem::take(&mut self.in_flight).into_iter().partition(|c| c.connection == lost);
        self.in_flight = others;
        let on_lost: Vec<CallbackToSend> = on_lost;
        for sent in on_lost {
            if self.random.percent(50) {
                self.process(&sent, CallbackReply::Done(0));
            }
        }
        self.world.state.connection_lost(lost);
    }

    fn connect(&mut self) {
        let connection = ConnectionId(self.next_connection);
        self.next_connection += 1;
        self.connections.push(connection);
        let caller = Caller { connection, ..caller(ROOT) };
        for session in &self.sessions {
            let now = self.world.now;
            let ask = BindDirection::BackOrBoth;
            self.world.state.bind_connection(*session, ask, &caller, now).unwrap();
        }
    }

    fn create_session(&mut self) {
        if self.sessions.len() >= SESSIONS_MAX {
            return;
        }
        let caller = Caller { connection: self.connections[0], ..caller(ROOT) };
        let ask = create_ask(self.client.1, self.next_create);
        let session = created(self.world.create_with(&ask, &caller)).session;
        self.next_create += 1;
        self.sessions.push(session);
    }

    fn destroy_session(&mut self) {
        if self.sessions.len() < 2 {
            return;
        }
        let session = self.sessions.remove(0);
        let caller = Caller { connection: self.connections[0], ..caller(ROOT) };
        match self.world.state.destroy_session(session, None, &caller) {
            Ok(()) => self.in_flight.retain(|sent| sent.session != session),
            Err(Nfs4Error::ConnNotBound) => self.sessions.push(session),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Lets the client reply to everything that is left.
    fn drain(&mut self) {
        self.connect();
        for _ in 0..200 {
            self.deliver();
            while !self.in_flight.is_empty() {
                self.reply();
                self.deliver();
            }
            self.world.wait(Duration::from_millis(1100));
            // The client is still known, whether its lease is over or not.
            self.world.state.clients().view(self.client.0).unwrap();
        }
    }
}

#[test]
fn every_callback_ends_once_in_every_history() {
    for seed in 0..300 {
        let mut run = Run::new(seed);
        for _ in 0..400 {
            run.step();
        }
        run.drain();
        assert_eq!(run.ends.len() as u64, run.queued, "seed {seed}");
        assert!(run.ends.values().all(|ends| *ends == 1), "seed {seed}: {:?}", run.ends);
    }
}

//! Credits, checked against a model: clients that follow the rule, and clients that violate it.

use std::collections::VecDeque;

use crate::common::*;
use dafs_sessions::*;
use dafs_types::*;
use proptest::prelude::*;

const CLIENTS: usize = 3;

// ---- Credits -----------------------------------------------------------------------

#[derive(Clone, Debug)]
enum CreditEvent {
    /// The client sends a request on its n-th free stream.
    Send {
        client: usize,
        pick: usize,
        desired: u16,
    },
    /// The server receives the next request.
    Receive {
        client: usize,
    },
    /// The server replies to the n-th request in flight.
    Answer {
        client: usize,
        pick: usize,
    },
    /// The client reads the next reply.
    Read {
        client: usize,
    },
    Tick,
    /// The connection breaks and the client reconnects.
    Reconnect {
        client: usize,
    },
}

fn credit_event() -> impl Strategy<Value = CreditEvent> {
    let client = 0..CLIENTS;
    let desired = prop_oneof![2 => Just(0u16), 1 => 1..70u16];
    prop_oneof![
        12 => (client.clone(), any::<usize>(), desired)
            .prop_map(|(client, pick, desired)| CreditEvent::Send { client, pick, desired }),
        10 => client.clone().prop_map(|client| CreditEvent::Receive { client }),
        9 => (client.clone(), any::<usize>())
            .prop_map(|(client, pick)| CreditEvent::Answer { client, pick }),
        9 => client.clone().prop_map(|client| CreditEvent::Read { client }),
        1 => Just(CreditEvent::Tick),
        1 => client.prop_map(|client| CreditEvent::Reconnect { client }),
    ]
}

/// A client that follows the rule of draft 3.2.6.4.2, with both directions of its connection.
struct Requester {
    channel: ChannelId,
    nreq: u16,
    busy: Vec<u16>,
    to_server: VecDeque<(u16, u16)>,
    to_client: VecDeque<(u16, u16)>,
    at_server: Vec<u16>,
    /// True if it has sent no request yet.
    is_new: bool,
    /// The receives that the server has posted.
    posted: u16,
}

struct CreditModel {
    bench: Bench,
    requesters: Vec<Requester>,
    budget: u32,
}

impl CreditModel {
    fn new(budget: u32) -> Self {
        let config = SessionConfig {
            channels_max: CLIENTS as u32,
            credits: CreditPolicy { budget, initial: 4, ..CreditPolicy::default() },
            ..SessionConfig::default()
        };
        let mut bench = Bench::new(config);
        let requesters = (0..CLIENTS).map(|client| Requester::new(&mut bench, client)).collect();
        Self { bench, requesters, budget }
    }

    fn step(&mut self, event: &CreditEvent) {
        let bench = &mut self.bench;
        match *event {
            CreditEvent::Send { client, pick, desired } => {
                self.requesters[client].send(pick, desired);
            }
            CreditEvent::Receive { client } => self.requesters[client].receive(bench),
            CreditEvent::Answer { client, pick } => self.requesters[client].answer(bench, pick),
            CreditEvent::Read { client } => self.requesters[client].read(),
            CreditEvent::Tick => assert_eq!(bench.on_tick(Moment(0)), TickActions::default()),
            CreditEvent::Reconnect { client } => {
                self.bench.drop_channel(self.requesters[client].channel);
                self.requesters[client] = Requester::new(&mut self.bench, client);
            }
        }
        let charged = self.bench.sessions.counters().credits;
        assert!(charged <= self.budget);
        let posted: u32 = self.requesters.iter().map(Requester::receives_in_use).sum();
        assert!(posted <= charged, "{posted} receives on {charged} credits");
    }

    /// Lets every client use all its credits, then one more.
    fn violate(mut self, stream: u16) {
        for requester in &mut self.requesters {
            let bench = &mut self.bench;
            while requester.to_client.front().is_some() {
                requester.read();
            }
            while requester.send(0, 0) {}
            while !requester.to_server.is_empty() {
                requester.receive(bench);
            }
            assert!(requester.busy.len() >= usize::from(requester.nreq));
            // After a fall the client may use high streams: then a low one is free, and only the
            // count reveals the violation.
            let free = (0..requester.nreq).find(|stream| !requester.busy.contains(stream));
            let beyond = head(RequestClass::Ordinary, free.unwrap_or(stream));
            let outcome = bench.admit(requester.channel, &beyond, Moment(0));
            assert!(matches!(outcome, Err(Refusal::Break(_))), "{outcome:?}");
        }
        for requester in &self.requesters {
            self.bench.channel_closed(requester.channel, ChannelEnd::Lost, Moment(0));
        }
        self.bench.assert_empty();
    }
}

impl Requester {
    fn new(bench: &mut Bench, client: usize) -> Self {
        let channel = bench.channel();
        let results = bench.connect(channel, &client.to_string(), 1);
        bench.authenticate(channel).unwrap();
        let nreq = results.granted.max_requests as u16;
        Self {
            channel,
            nreq,
            busy: vec![],
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            at_server: vec![],
            is_new: true,
            posted: nreq,
        }
    }

    fn receives_in_use(&self) -> u32 {
        u32::from(self.posted) + self.at_server.len() as u32
    }

    fn send(&mut self, pick: usize, desired: u16) -> bool {
        let free: Vec<u16> = (0..self.nreq).filter(|s| !self.busy.contains(s)).collect();
        if self.busy.len() >= usize::from(self.nreq) || free.is_empty() {
            return false;
        }
        let stream = free[pick % free.len()];
        self.busy.push(stream);
        self.to_server.push_back((stream, desired));
        true
    }

    fn receive(&mut self, bench: &mut Bench) {
        let Some((stream, desired_credits)) = self.to_server.pop_front() else { return };
        assert!(self.posted > 0, "no receive was posted for a request");
        self.posted -= 1;
        let head = RequestHead { desired_credits, ..head(RequestClass::Ordinary, stream) };
        let admitted = bench.admit(self.channel, &head, Moment(0));
        self.at_server.push(stream);
        assert_eq!(admitted, {
            let (kept, place) = (KeptSession::NONE, ChainPlace::Alone);
            let outstanding = self.at_server.len() as u16;
            Ok(Admitted {
                kept,
                place,
                outstanding,
                begins_incarnation: std::mem::take(&mut self.is_new),
            })
        });
    }

    fn answer(&mut self, bench: &mut Bench, pick: usize) {
        if self.at_server.is_empty() {
            return;
        }
        let stream = self.at_server.swap_remove(pick % self.at_server.len());
        let grant = bench.sessions.finish(self.channel, StreamId(stream));
        assert!(grant.target_credits >= 1 && grant.target_credits <= 64);
        self.posted += grant.receives_to_post;
        self.to_client.push_back((stream, grant.target_credits));
    }

    fn read(&mut self) {
        let Some((stream, target)) = self.to_client.pop_front() else { return };
        self.busy.retain(|&busy| busy != stream);
        self.nreq = (self.nreq - 1).max(target);
        assert!(self.nreq >= 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn correct_clients_are_never_disconnected_and_violators_always(
        budget in prop_oneof![Just(3u32), 4..40u32, Just(1000)],
        events in prop::collection::vec(credit_event(), 1..600),
        stream in prop_oneof![0..80u16, any::<u16>()],
    ) {
        let mut model = CreditModel::new(budget);
        for event in &events {
            model.step(event);
        }
        model.violate(stream);
    }
}

//! A server of several reactors in one thread: each has a simulated interface and a port, and a
//! seed says who does something next. A reactor that sleeps does nothing before its waker was
//! called or its network has brought something.
//!
//! Clients ask whichever reactor they are connected to; what is at home with another one is asked
//! of it. If all have come to rest and a client has no answer, a wake-up was lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dafs_crossing::{AnswerPermit, Crossing, Event as Crossed, Port, Rest, Waker};
use dafs_dat::sim::{Network, NetworkConfig};
use dafs_dat::{
    Address, Completion, CompletionStatus, Domain, EndpointConfig, EndpointId, Event, Gather,
    Interface, InterfaceConfig, Operation, Region, Rights, SendOptions,
};
use dafs_memory::{Memory, Pages};
use dafs_sim::Random;
use dafs_types::Shard;

/// An interface, and where its messages arrive.
struct Side {
    interface: Interface,
    memory: Memory,
    region: Region,
    /// Receives that were ever posted anew.
    slots: u64,
}

enum Heard {
    Stands(EndpointId),
    Number(EndpointId, u64),
}

impl Side {
    fn new(network: &Network, node: u32) -> Self {
        let config = InterfaceConfig { sim: Some(network.at(node)), ..InterfaceConfig::default() };
        let mut interface = Interface::new(config).unwrap();
        let memory = Memory::shared(4096, Pages::Small).unwrap();
        let region = interface.register(&memory, Domain(0), Rights::LOCAL).unwrap();
        Self { interface, memory, region, slots: 0 }
    }

    fn has_any(&mut self) -> bool {
        self.interface.poll() > 0
    }

    fn heard(&mut self) -> Option<Heard> {
        loop {
            match self.interface.next_event()? {
                Event::ConnectionRequest { pending, .. } => {
                    let config = EndpointConfig::default();
                    let endpoint = self.interface.accept(pending, Domain(0), &config, b"");
                    self.post_receives(endpoint);
                }
                Event::Established { endpoint, .. } => return Some(Heard::Stands(endpoint)),
                Event::Completion(Completion { operation, endpoint, context, status, .. }) => {
                    if operation == Operation::Receive && status == CompletionStatus::Success {
                        let octets = self.memory.to_vec(context as usize * 8, 8);
                        self.post_receive(endpoint, context);
                        let number = u64::from_be_bytes(octets.try_into().unwrap());
                        return Some(Heard::Number(endpoint, number));
                    }
                }
                event => panic!("nothing goes wrong here: {event:?}"),
            }
        }
    }

    fn post_receives(&mut self, endpoint: EndpointId) {
        for slot in self.slots..self.slots + UNDER_WAY_MAX {
            self.post_receive(endpoint, slot);
        }
        self.slots += UNDER_WAY_MAX;
    }

    fn post_receive(&mut self, endpoint: EndpointId, slot: u64) {
        let scatter = [self.region.local(slot * 8, 8)];
        self.interface.post_receive(endpoint, slot, &scatter).unwrap();
    }

    fn send(&mut self, endpoint: EndpointId, number: u64) {
        let octets = number.to_be_bytes();
        let (gather, options) = ([Gather::Bytes(&octets)], SendOptions::default());
        self.interface.post_send(endpoint, 0, &gather, options).unwrap();
    }
}

/// A waker that only notes that it was called, or not even that.
struct Note {
    is_woken: Arc<AtomicBool>,
    is_lost: bool,
}

impl Waker for Note {
    fn wake(&self) {
        self.is_woken.fetch_or(!self.is_lost, Ordering::Relaxed);
    }
}

struct Reactor {
    side: Side,
    port: Port<u64, u64, ()>,
    is_woken: Arc<AtomicBool>,
    is_asleep: bool,
    /// Asks for which there was no room, with who waits for the answer.
    waiting: VecDeque<(EndpointId, u64)>,
    asked: BTreeMap<u64, EndpointId>,
    held: Vec<(AnswerPermit, u64)>,
}

impl Reactor {
    fn is_runnable(&mut self) -> bool {
        let has_any = self.side.has_any();
        !self.is_asleep || has_any || self.is_woken.load(Ordering::Relaxed)
    }

    /// Some of what there is to do; then sleep, if that was all.
    fn turn(&mut self, random: &mut Random, story: &mut Story) {
        self.is_woken.store(false, Ordering::Relaxed);
        if std::mem::take(&mut self.is_asleep) {
            self.port.get_up();
        }
        for _ in 0..=random.below(3) {
            if let Some(Heard::Number(endpoint, number)) = self.side.heard() {
                self.waiting.push_back((endpoint, number));
            }
        }
        for _ in 0..=random.below(3) {
            self.take_crossed(random, story);
        }
        self.serve_waiting(story);
        if random.percent(50) {
            for (permit, number) in self.held.drain(..) {
                self.port.answer(permit, !number);
            }
        }
        self.side.interface.flush();
        if random.percent(80) {
            self.port.flush();
        }
        let is_done = self.held.is_empty() && !self.side.has_any();
        if is_done && self.port.prepare_sleep() == Rest::MaySleep {
            story.sleeps += 1;
            self.is_asleep = true;
        }
    }

    fn take_crossed(&mut self, random: &mut Random, story: &mut Story) {
        match self.port.take() {
            Some(Crossed::Asked { permit, ask }) => {
                story.note(self.port.own(), ask);
                if random.percent(40) {
                    self.held.push((permit, ask));
                } else {
                    self.port.answer(permit, !ask);
                }
            }
            Some(Crossed::Answered { context, answer, .. }) => {
                story.crossings += 1;
                let endpoint = self.asked.remove(&context).expect("an ask");
                self.side.send(endpoint, answer);
            }
            Some(event) => panic!("nothing else was sent: {event:?}"),
            None => {}
        }
    }

    fn serve_waiting(&mut self, story: &mut Story) {
        while let Some((endpoint, number)) = self.waiting.pop_front() {
            let home = Shard((number % self.port.count().get() as u64) as u16);
            if home == self.port.own() {
                story.note(home, number);
                self.side.send(endpoint, !number);
            } else if self.port.ask_with(home, number, number).is_ok() {
                self.asked.insert(number, endpoint);
            } else {
                self.waiting.push_front((endpoint, number));
                return;
            }
        }
    }
}

struct Client {
    side: Side,
    next: u64,
    end: u64,
    unanswered: BTreeSet<u64>,
}

impl Client {
    fn turn(&mut self) {
        match self.side.heard() {
            Some(Heard::Stands(endpoint)) => (0..UNDER_WAY_MAX).for_each(|_| self.ask(endpoint)),
            Some(Heard::Number(endpoint, number)) => {
                assert!(self.unanswered.remove(&!number), "an answer that nobody waits for");
                self.ask(endpoint);
            }
            None => {}
        }
        self.side.interface.flush();
    }

    fn ask(&mut self, endpoint: EndpointId) {
        if self.next < self.end {
            self.unanswered.insert(self.next);
            self.side.send(endpoint, self.next);
            self.next += 1;
        }
    }
}

/// What happened.
#[derive(Debug, Default, PartialEq)]
struct Story {
    /// Who was stepped, and what reactors did at home.
    steps: Vec<(usize, u64)>,
    network: u64,
    crossings: u64,
    sleeps: u64,
    /// Asks of clients that were never answered.
    unanswered: usize,
}

impl Story {
    fn note(&mut self, who: Shard, number: u64) {
        self.steps.push((usize::from(who.0), number));
    }
}

struct World {
    random: Random,
    network: Network,
    reactors: Vec<Reactor>,
    clients: Vec<Client>,
    story: Story,
}

impl World {
    /// A server of so many reactors. Its wakers lose every wake-up if somebody says so.
    fn new(seed: u64, count: usize, is_lost: bool) -> Self {
        let mut random = Random::new(seed);
        // However long a reactor has no turn, nobody gives up.
        let config = NetworkConfig { connect_ns_max: u64::MAX, ..NetworkConfig::new(seed) };
        let network = Network::new(config);
        let woken: Vec<Arc<AtomicBool>> = (0..count).map(|_| Arc::default()).collect();
        let waker = |is_woken: &Arc<AtomicBool>| {
            Box::new(Note { is_woken: is_woken.clone(), is_lost }) as Box<dyn Waker>
        };
        let slots = 1 + random.below(3);
        let ports = Crossing::with_wakers(woken.iter().map(waker).collect(), slots);
        let reactor = |(port, is_woken): (Port<u64, u64, ()>, Arc<AtomicBool>)| {
            let mut side = Side::new(&network, SERVER);
            side.interface.listen(&Address::Sim { node: SERVER, port: port.own().0 }).unwrap();
            let (waiting, asked, held) = Default::default();
            Reactor { side, port, is_woken, is_asleep: false, waiting, asked, held }
        };
        let reactors: Vec<_> = ports.into_iter().zip(woken).map(reactor).collect();
        let clients = (0..CLIENTS).map(|number| {
            let mut side = Side::new(&network, SERVER + 1 + number as u32);
            let address = Address::Sim { node: SERVER, port: random.below(count) as u16 };
            let config = EndpointConfig::default();
            let endpoint = side.interface.connect(&address, Domain(0), &config, b"").unwrap();
            side.post_receives(endpoint);
            let (next, unanswered) = (number * 1000, BTreeSet::new());
            Client { side, next, end: next + ASKS, unanswered }
        });
        let clients = clients.collect();
        Self { random, network, reactors, clients, story: Story::default() }
    }

    fn run(mut self) -> Story {
        for turn in 0.. {
            assert!(turn < TURNS_MAX, "somebody never comes to rest");
            let runnable = self.runnable();
            let moves = self.network.next_ns().is_some();
            let choices = runnable.len() + usize::from(moves);
            if choices == 0 {
                break;
            }
            // The last choice is time.
            match runnable.get(self.random.below(choices)).copied() {
                None => assert!(self.network.advance()),
                Some(who) => self.step(who),
            }
        }
        let left = |client: &Client| client.unanswered.len() + (client.end - client.next) as usize;
        self.story.unanswered = self.clients.iter().map(left).sum();
        self.story.network = self.network.trace_hash();
        self.story
    }

    /// Reactors, then clients.
    fn runnable(&mut self) -> Vec<usize> {
        let reactors = self.reactors.iter_mut().map(Reactor::is_runnable);
        let clients = self.clients.iter_mut().map(|client| client.side.has_any());
        let all = reactors.chain(clients).enumerate();
        all.filter_map(|(who, is_runnable)| is_runnable.then_some(who)).collect()
    }

    fn step(&mut self, who: usize) {
        self.story.steps.push((who, u64::MAX));
        match self.reactors.get_mut(who) {
            Some(reactor) => reactor.turn(&mut self.random, &mut self.story),
            None => self.clients[who - self.reactors.len()].turn(),
        }
    }
}

#[test]
fn reactors_that_ask_each_other_do_the_same_for_the_same_seed() {
    for count in 1..=REACTORS_MAX {
        let (mut crossings, mut sleeps) = (0, 0);
        for seed in 0..12 {
            let story = World::new(seed, count, false).run();
            assert_eq!(story.unanswered, 0, "seed {seed}, {count} reactors: a wake-up was lost");
            assert_eq!(World::new(seed, count, false).run(), story, "seed {seed}");
            let other = World::new(seed + 1000, count, false).run();
            assert_ne!(other.steps, story.steps, "another seed is another run");
            crossings += story.crossings;
            sleeps += story.sleeps;
        }
        assert!(sleeps > 0, "{count} reactors never slept");
        assert_eq!(crossings > 0, count > 1);
    }
}

#[test]
fn a_lost_wake_up_shows_as_a_client_without_an_answer() {
    let lost = (0..25).filter(|seed| World::new(*seed, 2, true).run().unanswered > 0).count();
    assert!(lost > 0, "nobody missed a wake-up");
}

const SERVER: u32 = 1;
const REACTORS_MAX: usize = 4;
const CLIENTS: u64 = 3;
/// Of each client.
const ASKS: u64 = 30;
/// Of one client, and receives of each connection.
const UNDER_WAY_MAX: u64 = 4;
/// More than any world takes.
const TURNS_MAX: usize = 100_000;

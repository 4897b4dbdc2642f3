//! Interfaces that share the connections arriving at one address, like a server's reactors.

use std::time::{Duration, Instant};

use dafs_dat::{
    AcceptGroup, Address, Completion, CompletionStatus, EndpointConfig, EndpointId, Event, Gather,
    Interface, InterfaceConfig, ListenerId, LocalSegment, Operation, Rights, SendOptions,
    WaitPolicy,
};
use dafs_memory::{Memory, Pages};

use crate::fixture::{Fixture, Shm, Sim, Tcp, Tls, World};
use crate::pair::DOMAIN;

const HANG: Duration = Duration::from_secs(20);
/// The number of bytes of each message.
const BYTES: u32 = 8;

/// An interface that accepts every connection and echoes each message.
struct Server {
    interface: Interface,
    memory: Memory,
    slots: LocalSegment,
    /// The connections that were requested, are established, and have ended.
    asked: Vec<ListenerId>,
    standing: Vec<EndpointId>,
    ended: usize,
}

impl Server {
    fn new(config: &InterfaceConfig, owner: u8) -> Self {
        let mut interface =
            Interface::new(InterfaceConfig { owner, ..config.clone() }).expect("an interface");
        let memory = Memory::anonymous(SLOTS * BYTES as usize, Pages::Small).unwrap();
        let region = interface.register(&memory, DOMAIN, Rights::LOCAL).unwrap();
        let slots = region.local(0, memory.length() as u32);
        Self { interface, memory, slots, asked: Vec::new(), standing: Vec::new(), ended: 0 }
    }

    fn slot(&self, endpoint: EndpointId) -> LocalSegment {
        let offset = endpoint.index() as u64 * u64::from(BYTES);
        LocalSegment { offset, length: BYTES, ..self.slots }
    }

    /// Handles the queued events.
    fn serve(&mut self, config: &EndpointConfig) {
        while let Some(event) = self.interface.next_event() {
            match event {
                Event::ConnectionRequest { listener, pending, .. } => {
                    self.asked.push(listener);
                    let endpoint = self.interface.accept(pending, DOMAIN, config, b"");
                    self.receive(endpoint);
                }
                Event::Established { endpoint, .. } => self.standing.push(endpoint),
                Event::Broken { endpoint, .. } => {
                    self.interface.release(endpoint);
                    self.standing.retain(|standing| *standing != endpoint);
                    self.ended += 1;
                }
                Event::Completion(Completion {
                    endpoint,
                    operation: Operation::Receive,
                    status: CompletionStatus::Success,
                    ..
                }) => self.answer(endpoint),
                Event::Completion(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn receive(&mut self, endpoint: EndpointId) {
        // A connection that has ended meanwhile accepts no receive.
        let _ = self.interface.post_receive(endpoint, 1, &[self.slot(endpoint)]);
    }

    fn answer(&mut self, endpoint: EndpointId) {
        let at = self.slot(endpoint).offset as usize;
        let bytes = self.memory.to_vec(at, BYTES as usize);
        self.receive(endpoint);
        let gather = [Gather::Bytes(&bytes)];
        let _ = self.interface.post_send(endpoint, 2, &gather, SendOptions::default());
    }
}

/// Servers of one group, some of which listen, and a client.
struct Scene {
    servers: Vec<Server>,
    client: Interface,
    address: Address,
    listener: ListenerId,
    world: World,
    /// The events of the client.
    heard: Vec<Event>,
}

impl Scene {
    /// Creates `count` servers; the one with number `listens` listens.
    fn new(fixture: &dyn Fixture, count: u8, listens: usize) -> Self {
        Self::over(fixture.world(1), count, listens)
    }

    fn over(mut world: World, count: u8, listens: usize) -> Self {
        world.acceptor.group = Some(AcceptGroup::new());
        let mut servers: Vec<_> =
            (0..count).map(|owner| Server::new(&world.acceptor, owner)).collect();
        let listener = servers[listens].interface.listen(&world.address).expect("a listener");
        for (place, server) in servers.iter().enumerate() {
            let address = server.interface.listener_address(listener);
            assert_eq!(address.is_some(), place == listens, "it is one interface's");
        }
        let address = servers[listens].interface.listener_address(listener).unwrap();
        let address = match (world.dribbles, &address) {
            (Some(seed), Address::Tcp(to)) => Address::Tcp(crate::proxy::before(*to, seed)),
            _ => address,
        };
        let client = Interface::new(world.initiator.clone()).expect("an interface");
        Self { servers, client, address, listener, world, heard: Vec::new() }
    }

    fn connect(&mut self, count: usize) -> Vec<EndpointId> {
        let config = &self.world.endpoint;
        let connect = |_| self.client.connect(&self.address, DOMAIN, config, b"").unwrap();
        (0..count).map(connect).collect()
    }

    /// Polls all servers except those in `passed` until `is_so` returns true.
    fn until(&mut self, passed: &[usize], what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            self.turn(passed);
            let (stand, heard) = (self.standing(), &self.heard);
            assert!(begun.elapsed() < HANG, "waited in vain: {what}: {stand:?}, {heard:?}");
        }
    }

    fn turn(&mut self, passed: &[usize]) {
        let mut moved = self.client.poll() > 0;
        self.heard.extend(std::iter::from_fn(|| self.client.next_event()));
        for (place, server) in self.servers.iter_mut().enumerate() {
            if !passed.contains(&place) {
                moved |= server.interface.poll() > 0;
                server.serve(&self.world.endpoint);
            }
        }
        if let Some(network) = self.world.network.as_ref().filter(|_| !moved) {
            network.advance();
        }
    }

    fn established(&self) -> usize {
        let is_so = |event: &&Event| matches!(event, Event::Established { .. });
        self.heard.iter().filter(is_so).count()
    }

    fn broken(&self) -> usize {
        self.heard.iter().filter(|event| matches!(event, Event::Broken { .. })).count()
    }

    fn standing(&self) -> Vec<usize> {
        self.servers.iter().map(|server| server.standing.len()).collect()
    }

    /// Sends a message on each of these connections and waits for the echoes.
    fn converse(&mut self, endpoints: &[EndpointId]) {
        let memory = Memory::anonymous(endpoints.len() * BYTES as usize, Pages::Small).unwrap();
        let region = self.client.register(&memory, DOMAIN, Rights::LOCAL).unwrap();
        for (number, endpoint) in endpoints.iter().enumerate() {
            let slot = region.local(number as u64 * u64::from(BYTES), BYTES);
            self.client.post_receive(*endpoint, number as u64, &[slot]).unwrap();
            let said = (number as u64 + 1).to_be_bytes();
            let gather = [Gather::Bytes(&said)];
            self.client.post_send(*endpoint, 0, &gather, SendOptions::default()).unwrap();
        }
        self.heard.clear();
        let is_answer = |event: &&Event| match event {
            Event::Completion(completion) => completion.operation == Operation::Receive,
            _ => false,
        };
        self.until(&[], "answers", |scene| {
            scene.heard.iter().filter(is_answer).count() == endpoints.len()
        });
        for number in 0..endpoints.len() {
            let answer = memory.to_vec(number * BYTES as usize, BYTES as usize);
            assert_eq!(answer, (number as u64 + 1).to_be_bytes());
        }
    }
}

/// The number of connections for which a server has a slot.
const SLOTS: usize = 256;

pub(crate) fn connections_to_one_address_are_shared_evenly(fixture: &dyn Fixture) {
    for (count, listens) in [(2, 0), (4, 1)] {
        let mut scene = Scene::new(fixture, count, listens);
        let endpoints = scene.connect(12);
        scene.until(&[], "12 connections", |scene| {
            scene.established() == 12 && scene.standing().iter().sum::<usize>() == 12
        });
        let each = 12 / usize::from(count);
        assert_eq!(scene.standing(), vec![each; count.into()]);
        for (owner, server) in scene.servers.iter().enumerate() {
            assert_eq!(server.asked, vec![scene.listener; each], "they came to that listener");
            assert!(server.standing.iter().all(|endpoint| endpoint.owner() == owner));
        }
        scene.converse(&endpoints);
        // A released connection makes room for the next, on whichever server.
        let last = usize::from(count) - 1;
        for endpoint in std::mem::take(&mut scene.servers[last].standing) {
            scene.servers[last].interface.release(endpoint);
        }
        scene.until(&[], "the ends", |scene| scene.broken() == each);
        scene.heard.clear();
        scene.connect(each);
        scene.until(&[], "others in their place", |scene| {
            scene.established() == each && scene.standing().iter().sum::<usize>() == 12
        });
        assert_eq!(scene.standing(), vec![each; count.into()]);
    }
}

/// No client waits for ever for a member that does not poll. Other members serve the connections
/// given to it, or these end on a network that has its own time.
pub(crate) fn a_member_that_never_looks_keeps_nobody_waiting(fixture: &dyn Fixture) {
    const STUCK: usize = 2;
    let mut scene = Scene::new(fixture, 3, 0);
    scene.connect(9);
    let is_simulated = scene.world.network.is_some();
    let served = if is_simulated { 6 } else { 9 };
    scene.until(&[STUCK], "those who are served", |scene| {
        scene.established() == served && scene.established() + scene.broken() == 9
    });
    // From now on this member gets no connections.
    if !is_simulated {
        scene.connect(4);
        scene.until(&[STUCK], "the others", |scene| scene.established() == 13);
    }
    assert_eq!(scene.servers[STUCK].interface.endpoint_count(), 0);
    // When it polls again, it gets its share again.
    scene.turn(&[]);
    scene.until(&[], "its turn", |scene| {
        scene.standing().iter().sum::<usize>() == scene.established()
    });
    let before = scene.established();
    let most = scene.standing().into_iter().max().unwrap();
    let more = 3 * most - scene.standing().iter().sum::<usize>();
    scene.connect(more);
    scene.until(&[], "as many everywhere", |scene| {
        scene.established() == before + more && scene.standing() == [most; 3]
    });
}

/// A discounted connection does not count, even after it has ended.
pub(crate) fn a_connection_that_is_discounted_takes_nobodys_place(fixture: &dyn Fixture) {
    let mut scene = Scene::new(fixture, 2, 0);
    scene.connect(6);
    scene.until(&[], "6 connections", |scene| {
        scene.established() == 6 && scene.standing() == [3, 3]
    });
    let idle = scene.servers[1].standing.clone();
    for endpoint in idle.iter().chain(&idle) {
        scene.servers[1].interface.discount(*endpoint);
    }
    scene.connect(3);
    scene.until(&[], "3 in their place", |scene| scene.standing() == [3, 6]);
    for endpoint in idle {
        scene.servers[1].interface.release(endpoint);
        scene.servers[1].standing.retain(|standing| *standing != endpoint);
    }
    scene.connect(4);
    scene.until(&[], "2 for each", |scene| scene.standing() == [5, 5]);
}

/// The connections of a member end with it, and it gets no more.
pub(crate) fn a_member_that_is_dropped_takes_its_connections_along(fixture: &dyn Fixture) {
    let mut scene = Scene::new(fixture, 2, 0);
    scene.connect(6);
    scene.until(&[], "6 connections", |scene| {
        scene.established() == 6 && scene.standing() == [3, 3]
    });
    // More connections are on their way to it. The last may not be accepted yet.
    scene.connect(6);
    scene.until(&[1], "3 more", |scene| scene.standing() == [6, 3]);
    scene.servers.pop();
    scene.until(&[], "an end for each", |scene| {
        scene.established() + scene.broken() == 6 + 3 + 6
            && scene.standing() == [scene.established() - 3]
    });
    assert!((2..=3).contains(&(scene.broken() - 3)), "{} have ended", scene.broken());
    let standing = scene.standing()[0];
    scene.connect(2);
    scene.until(&[], "2 more", |scene| scene.standing() == [standing + 2]);
    // Its slot is free for another member, which has the fewest connections.
    scene.servers.push(Server::new(&scene.world.acceptor, 1));
    scene.connect(5);
    scene.until(&[], "5 at the new one", |scene| scene.standing() == [standing + 2, 5]);
}

/// Serves in a thread of its own, only by waiting, until it is woken at the end.
fn serve(mut server: Server, config: &EndpointConfig, is_over: &dyn Fn() -> bool) -> usize {
    while !is_over() {
        server.interface.wait(1, None);
        server.serve(config);
    }
    server.asked.len()
}

fn share_among_threads(mut world: World, count: u8, wait: WaitPolicy) {
    use std::sync::atomic::{AtomicBool, Ordering};
    const EACH: usize = 10;
    world.acceptor.wait = wait;
    let mut scene = Scene::over(world, count, 0);
    let config = scene.world.endpoint.clone();
    let servers = std::mem::take(&mut scene.servers);
    let wakers: Vec<_> = servers.iter().map(|server| server.interface.waker()).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serve = |server| {
            let (config, is_over) = (&config, || is_over.load(Ordering::Acquire));
            scope.spawn(move || serve(server, config, &is_over))
        };
        let threads: Vec<_> = servers.into_iter().map(serve).collect();
        let mut endpoints = Vec::new();
        for number in 1..=EACH * usize::from(count) {
            endpoints.extend(scene.connect(1));
            scene.until(&[], "a connection", |scene| scene.established() == number);
        }
        scene.converse(&endpoints);
        is_over.store(true, Ordering::Release);
        wakers.iter().for_each(dafs_dat::Waker::wake);
        let served: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(served, vec![EACH; count.into()]);
    });
}

#[test]
fn threads_that_wait_share_what_comes_to_one_of_them() {
    let tls = Tls { dribbles: false };
    for fixture in [&Shm as &dyn Fixture, &Tcp { crc: false }, &tls] {
        for (count, spin_max) in [(2, Duration::ZERO), (4, WaitPolicy::default().spin_max)] {
            share_among_threads(fixture.world(1), count, WaitPolicy { spin_max });
        }
    }
}

#[test]
fn the_same_seed_shares_in_the_same_way() {
    let run = |seed| {
        let world = Sim { early_success_ppm: 300_000, in_flight_max: 64 }.world(seed);
        let mut scene = Scene::over(world, 3, 1);
        let endpoints = scene.connect(10);
        scene.until(&[], "10 connections", |scene| scene.established() == 10);
        scene.converse(&endpoints);
        (scene.world.network.as_ref().unwrap().trace_hash(), scene.standing())
    };
    for seed in 0..5 {
        assert_eq!(run(seed), run(seed));
    }
}

#[test]
fn two_of_a_group_cannot_have_one_owner() {
    let group = Some(AcceptGroup::new());
    let config = InterfaceConfig { group, owner: 4, ..InterfaceConfig::default() };
    let _first = Interface::new(config.clone()).unwrap();
    let Err(refused) = Interface::new(config) else { panic!("two of one owner") };
    assert_eq!(refused.to_string(), "another interface of the group has owner 4");
}

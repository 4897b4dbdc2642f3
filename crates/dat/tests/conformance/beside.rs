//! Who waits for something beside its peers, as one of several reactors does for the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use dafs_crossing::{AnswerPermit, Crossing, Event as Crossed, Port, Rest, Waker};
use dafs_dat::{
    Beside, Completion, EndpointId, Event, Gather, Interface, Operation, Region, Rights,
    SendOptions, WaitPolicy,
};
use dafs_types::{Random, Shard};

use crate::fixture::{Fixture, Shm, Tcp, World};
use crate::pair::{Buffer, Pair};

/// Never reached unless something hangs.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(2);

/// Says what it is told to say, and counts what it is asked.
#[derive(Default)]
struct Told {
    has_any: bool,
    /// Looks after which there is something all the same.
    looks_left: Option<u64>,
    keeps_awake: bool,
    asked: u64,
    slept: u64,
}

impl Beside for Told {
    fn has_any(&mut self) -> bool {
        self.looks_left = self.looks_left.map(|left| left.saturating_sub(1));
        self.has_any || self.looks_left == Some(0)
    }

    fn may_sleep(&mut self) -> bool {
        self.asked += 1;
        !self.keeps_awake
    }

    fn awake(&mut self) {
        self.slept += 1;
    }
}

pub fn what_is_there_beside_ends_a_wait_at_once(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    pair.settle();
    let begun = Instant::now();
    for is_patient in [false, true] {
        if is_patient {
            pair.acceptor.interface.be_patient();
        }
        let mut told = Told { has_any: true, ..Told::default() };
        assert_eq!(pair.acceptor.interface.wait_beside(&mut told, 5, Some(LONG)), 0);
        assert_eq!((told.asked, told.slept), (0, 0), "nobody needs to know of a sleep");
    }
    assert!(begun.elapsed() < LONG, "the wait went on");
    pair.assert_alive(1);
}

pub fn what_comes_beside_takes_nothing_from_a_wait(fixture: &dyn Fixture) {
    let mut pair = Pair::new(fixture);
    let inbox = pair.acceptor.buffer(8, Rights::LOCAL);
    pair.acceptor.receive(1, &[inbox.whole()]);
    pair.initiator.send(1, b"message");
    pair.initiator.interface.flush();
    // However much there is beside, peers are heard.
    let mut told = Told { has_any: true, ..Told::default() };
    let begun = Instant::now();
    while pair.acceptor.interface.wait_beside(&mut told, 1, Some(LONG)) == 0 {
        if let Some(network) = &pair.world.network {
            network.advance();
        }
        assert!(begun.elapsed() < LONG, "the message is not heard of");
    }
    pair.acceptor.collect();
    assert_eq!(pair.acceptor.received().len(), 1);
}

/// Pairs whose acceptor waits as this says, over what really sleeps.
fn pairs(spin_max: Option<Duration>) -> [Pair; 2] {
    let fixtures: [&dyn Fixture; 2] = [&Shm, &Tcp { crc: false }];
    fixtures.map(|fixture| {
        let mut world: World = fixture.world(1);
        if let Some(spin_max) = spin_max {
            world.acceptor.wait = WaitPolicy { spin_max };
        }
        let config = world.endpoint.clone();
        let mut pair = Pair::over(world, &config, &config);
        pair.settle();
        pair
    })
}

#[test]
fn a_refused_sleep_ends_the_wait() {
    for mut pair in pairs(Some(Duration::ZERO)) {
        let begun = Instant::now();
        let mut told = Told { keeps_awake: true, ..Told::default() };
        assert_eq!(pair.acceptor.interface.wait_beside(&mut told, 1, None), 0);
        assert_eq!((told.asked, told.slept), (1, 0));
        assert!(begun.elapsed() < LONG);
        pair.assert_alive(1);
    }
}

#[test]
fn a_spin_looks_beside() {
    let [mut shm, mut tcp] = pairs(Some(LONG));
    // The first look is the wait's own; the eightieth is in a spin that looks at the clock.
    let sides = [&mut tcp.acceptor, &mut shm.acceptor];
    let begun = Instant::now();
    for (side, looks) in [(0, 2), (1, 3), (1, 80)] {
        let mut told = Told { looks_left: Some(looks), ..Told::default() };
        sides[side].interface.wait_beside(&mut told, 1, Some(LONG));
        assert_eq!((told.looks_left, told.asked), (Some(0), 0), "it slept instead");
        assert!(begun.elapsed() < LONG, "nobody looked before the spin was over");
    }
}

#[test]
fn each_sleep_is_told_of_and_ended_once() {
    for mut pair in pairs(None) {
        let mut told = Told::default();
        // A spin may be all that there is to a wait.
        while told.asked < 5 {
            assert_eq!(pair.acceptor.interface.wait_beside(&mut told, 1, Some(SHORT)), 0);
            assert_eq!(told.slept, told.asked);
        }
        pair.assert_alive(1);
    }
}

#[test]
fn a_look_is_no_sleep() {
    for mut pair in pairs(None) {
        let mut told = Told::default();
        for _ in 0..20 {
            pair.acceptor.interface.wait_beside(&mut told, 1, Some(Duration::ZERO));
        }
        assert_eq!((told.asked, told.slept), (0, 0));
    }
}

// ---- with ports ---------------------------------------------------------------

type TestPort = Port<u64, u64, u64>;

/// Wakes an interface, and counts it: each of them is a system call.
struct Counted {
    waker: dafs_dat::Waker,
    count: Arc<AtomicU64>,
}

impl Waker for Counted {
    fn wake(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.waker.wake();
    }
}

/// The ports of two interfaces, and how often each was woken.
fn ports(interfaces: [&Interface; 2]) -> ([TestPort; 2], [Arc<AtomicU64>; 2]) {
    let counts: [Arc<AtomicU64>; 2] = Default::default();
    let wakers = interfaces.iter().zip(&counts).map(|(interface, count)| {
        let counted = Counted { waker: interface.waker(), count: count.clone() };
        Box::new(counted) as Box<dyn Waker>
    });
    let ports = Crossing::with_wakers(wakers.collect(), SLOTS);
    (ports.try_into().expect("two ports"), counts)
}

/// A port beside an interface.
struct Crosses<'p> {
    port: &'p mut TestPort,
    /// Times that it said that it sleeps, taken back or not.
    said: u64,
    sleeps: u64,
    /// Somebody who asks just before it says so, and one who asks just after.
    before: Option<&'p mut TestPort>,
    after: Option<&'p mut TestPort>,
}

impl<'p> Crosses<'p> {
    fn new(port: &'p mut TestPort) -> Self {
        Self { port, said: 0, sleeps: 0, before: None, after: None }
    }
}

impl Beside for Crosses<'_> {
    fn has_any(&mut self) -> bool {
        self.port.has_any()
    }

    fn may_sleep(&mut self) -> bool {
        if let Some(other) = self.before.take() {
            ask(other, self.port.own());
        }
        self.said += 1;
        let may = self.port.prepare_sleep() == Rest::MaySleep;
        self.sleeps += u64::from(may);
        if let Some(other) = self.after.take() {
            ask(other, self.port.own());
        }
        may
    }

    fn awake(&mut self) {
        self.port.get_up();
    }
}

fn ask(port: &mut TestPort, whom: Shard) {
    port.ask(whom, 1).expect("room for an ask");
    port.flush();
}

/// Takes an ask in and never answers it.
fn take_ask(port: &mut TestPort) {
    assert!(matches!(port.take(), Some(Crossed::Asked { .. })));
    port.flush();
}

#[test]
fn nobody_wakes_a_reactor_that_is_awake() {
    for mut pair in pairs(Some(Duration::ZERO)) {
        let interfaces = [&pair.acceptor.interface, &pair.initiator.interface];
        let ([mut own, mut other], [wakes, _]) = ports(interfaces);
        let interface = &mut pair.acceptor.interface;
        let count = || wakes.load(Ordering::Relaxed);
        // In the ring before the wait; and on the way into the sleep.
        ask(&mut other, own.own());
        let mut crosses = Crosses::new(&mut own);
        interface.wait_beside(&mut crosses, 1, None);
        assert_eq!((crosses.said, count()), (0, 0));
        take_ask(&mut own);
        let mut crosses = Crosses { before: Some(&mut other), ..Crosses::new(&mut own) };
        interface.wait_beside(&mut crosses, 1, None);
        assert_eq!((crosses.said, crosses.sleeps, count()), (1, 0, 0));
        take_ask(&mut own);
        // Looks are not sleeps, whatever comes meanwhile.
        for _ in 0..SLOTS - 4 {
            ask(&mut other, own.own());
            interface.wait_beside(&mut Crosses::new(&mut own), 1, Some(Duration::ZERO));
            take_ask(&mut own);
        }
        assert_eq!(count(), 0);
        // It sleeps: it is woken, once, and then is awake again.
        let mut crosses = Crosses { after: Some(&mut other), ..Crosses::new(&mut own) };
        interface.wait_beside(&mut crosses, 1, None);
        assert_eq!((crosses.said, crosses.sleeps, count()), (1, 1, 1));
        ask(&mut other, own.own());
        assert_eq!(count(), 1);
        take_ask(&mut own);
        take_ask(&mut own);
        // The wake-up is used up: the next wait lasts as long as it may.
        let mut crosses = Crosses::new(&mut own);
        interface.wait_beside(&mut crosses, 1, Some(SHORT));
        assert_eq!((crosses.sleeps > 0, count()), (true, 1));
    }
}

/// One of two reactors that ask each other, by the ports or over a connection.
struct Reactor {
    interface: Interface,
    endpoint: EndpointId,
    inbox: Region,
    port: TestPort,
    other: Shard,
    random: Random,
    /// Own asks that were not sent, and those that were not answered.
    unasked: u64,
    unanswered: u64,
    /// Asks of the other one that have not come.
    expected: u64,
    later: Vec<AnswerPermit>,
    said: u64,
    sleeps: u64,
    /// What its inbox is in, for as long as it is used.
    _memory: Buffer,
}

impl Reactor {
    fn new(side: crate::pair::Side, buffer: Buffer, port: TestPort, seed: u64) -> Self {
        let (endpoint, other) = (side.endpoint(), Shard(1 - port.own().0));
        Self {
            interface: side.interface,
            endpoint,
            inbox: buffer.region,
            port,
            other,
            random: Random::new(seed),
            unasked: ASKS,
            unanswered: ASKS,
            expected: ASKS,
            later: Vec::new(),
            said: 0,
            sleeps: 0,
            _memory: buffer,
        }
    }

    fn run(mut self) -> Self {
        for slot in 0..RECEIVES {
            self.receive(slot);
        }
        self.ask();
        while self.unanswered + self.expected > 0 || !self.later.is_empty() {
            self.interface.flush();
            self.port.flush();
            if self.later.is_empty() {
                self.wait();
            }
            self.turn();
        }
        self.interface.flush();
        self.port.flush();
        self
    }

    fn wait(&mut self) {
        // It waits as others do, or sleeps at once, or does something else for a while.
        match self.random.below(3) {
            0 => self.interface.be_patient(),
            1 => (0..self.random.below(2000)).for_each(|_| std::hint::spin_loop()),
            _ => {}
        }
        let mut crosses = Crosses::new(&mut self.port);
        self.interface.wait_beside(&mut crosses, 1, None);
        self.said += crosses.said;
        self.sleeps += crosses.sleeps;
    }

    fn turn(&mut self) {
        for permit in std::mem::take(&mut self.later) {
            self.port.answer(permit, 1);
        }
        while let Some(event) = self.port.take() {
            match event {
                Crossed::Asked { permit, .. } => {
                    self.expected -= 1;
                    if self.random.percent(30) {
                        self.later.push(permit);
                    } else {
                        self.port.answer(permit, 1);
                    }
                }
                Crossed::Answered { .. } => self.on_answer(),
                event => panic!("nothing else was sent: {event:?}"),
            }
        }
        while let Some(event) = self.interface.next_event() {
            let Event::Completion(Completion { operation, length, context, .. }) = event else {
                panic!("the connection stands: {event:?}");
            };
            if operation != Operation::Receive {
                continue;
            }
            self.receive(context);
            if length == ASK.len() as u32 {
                self.expected -= 1;
                self.send(ANSWER);
            } else {
                self.on_answer();
            }
        }
    }

    fn on_answer(&mut self) {
        self.unanswered -= 1;
        self.ask();
    }

    /// The next ask, in one way or the other. One is under way at a time, so both sleep often.
    fn ask(&mut self) {
        if self.unasked == 0 {
            return;
        }
        self.unasked -= 1;
        if self.random.percent(70) {
            self.port.ask(self.other, 1).expect("room for an ask");
        } else {
            self.send(ASK);
        }
    }

    fn send(&mut self, what: &[u8]) {
        let gather = [Gather::Bytes(what)];
        self.interface.post_send(self.endpoint, 0, &gather, SendOptions::default()).unwrap();
    }

    fn receive(&mut self, slot: u64) {
        let scatter = [self.inbox.local(slot * 8, 8)];
        self.interface.post_receive(self.endpoint, slot, &scatter).unwrap();
    }
}

#[test]
fn two_reactors_that_ask_each_other_lose_no_wake_up() {
    let (mut sleeps, mut wakes) = (0, 0);
    for (seed, pair) in pairs(None).into_iter().chain(pairs(Some(Duration::ZERO))).enumerate() {
        let Pair { mut initiator, mut acceptor, world } = pair;
        let (ports, counts) = ports([&initiator.interface, &acceptor.interface]);
        let buffers = [&mut initiator, &mut acceptor].map(|side| side.buffer(256, Rights::LOCAL));
        let (done, ended) = channel();
        let sides = [initiator, acceptor].into_iter().zip(buffers).zip(ports);
        for (number, ((side, buffer), port)) in sides.enumerate() {
            let reactor = Reactor::new(side, buffer, port, (2 * seed + number) as u64);
            let done = done.clone();
            std::thread::spawn(move || drop(done.send(reactor.run())));
        }
        drop(done);
        // Nobody's connection ends before both are done.
        let reactors = [(); 2].map(|()| ended.recv_timeout(LONG).expect("a reactor sleeps on"));
        for reactor in &reactors {
            let count = counts[usize::from(reactor.port.own().0)].load(Ordering::Relaxed);
            assert!(count <= reactor.said, "{count} system calls, {} sleeps", reactor.said);
            sleeps += reactor.sleeps;
            wakes += count;
        }
        drop((reactors, world));
    }
    assert!(sleeps > 0 && wakes > 0, "{sleeps} sleeps, {wakes} wake-ups: nothing was tested");
}

/// Slots between two ports: nobody answers some of the asks here.
const SLOTS: usize = 64;
/// What each reactor asks the other.
const ASKS: u64 = 600;
const RECEIVES: u64 = 8;
const ASK: &[u8] = b"a";
const ANSWER: &[u8] = b"an";

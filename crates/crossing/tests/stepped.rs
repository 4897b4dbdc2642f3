//! All ports in one thread, where a seed says which reactor has the next turn and wake-ups are
//! notes: what a simulator does. One that sleeps has no turn before it is woken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dafs_crossing::{AnswerPermit, Crossing, Event, Port, Rest, Shares, Ticket, Waker};
use dafs_types::{Random, Shard};

/// Notes that it was called, and how often.
#[derive(Default)]
struct Note {
    is_woken: AtomicBool,
    calls: AtomicU64,
}

struct Notes(Arc<Note>);

impl Waker for Notes {
    fn wake(&self) {
        self.0.is_woken.store(true, Ordering::Relaxed);
        self.0.calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// Something that must be disposed of once: it counts how many of it there are.
#[derive(Debug)]
struct Payload {
    number: u64,
    alive: Arc<AtomicU64>,
}

impl Payload {
    fn new(number: u64, alive: &Arc<AtomicU64>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self { number, alive: alive.clone() }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// More than any world takes.
const TURNS_MAX: usize = 100_000;

type TestPort = Port<Payload, Payload, Payload>;

fn ports(count: usize, slots: usize) -> (Vec<TestPort>, Vec<Arc<Note>>) {
    let notes: Vec<Arc<Note>> = (0..count).map(|_| Arc::default()).collect();
    let wakers = notes.iter().map(|note| Box::new(Notes(note.clone())) as Box<dyn Waker>).collect();
    (Crossing::with_wakers(wakers, slots), notes)
}

struct Reactor {
    port: TestPort,
    note: Arc<Note>,
    is_asleep: bool,
    asks_left: u64,
    notices_left: u64,
    waiting: BTreeMap<u64, Ticket>,
    /// Whose rings had no room for a notice. It tries again once it is woken.
    refused: BTreeSet<Shard>,
    given_up: u64,
    late: u64,
    held: VecDeque<(AnswerPermit, Payload)>,
    seen: BTreeMap<(u16, bool), u64>,
}

/// What happened, step by step: the same for the same seed.
type Story = Vec<(usize, u64)>;

struct World {
    random: Random,
    reactors: Vec<Reactor>,
    alive: Arc<AtomicU64>,
    next: u64,
    story: Story,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (count, slots) = (2 + random.below(3), 1 + random.below(4));
        let (ports, notes) = ports(count, slots);
        let (asks, notices) = (random.below(60) as u64, random.below(60) as u64);
        let reactors = ports
            .into_iter()
            .zip(notes)
            .map(|(port, note)| Reactor {
                port,
                note,
                is_asleep: false,
                asks_left: asks,
                notices_left: notices,
                waiting: BTreeMap::new(),
                refused: BTreeSet::new(),
                given_up: 0,
                late: 0,
                held: VecDeque::new(),
                seen: BTreeMap::new(),
            })
            .collect();
        Self { random, reactors, alive: Arc::default(), next: 0, story: Vec::new() }
    }

    fn run(mut self) -> Story {
        for turn in 0.. {
            assert!(turn < TURNS_MAX, "somebody never comes to rest");
            let runnable: Vec<usize> = (0..self.reactors.len())
                .filter(|index| {
                    let reactor = &self.reactors[*index];
                    !reactor.is_asleep || reactor.note.is_woken.load(Ordering::Relaxed)
                })
                .collect();
            if runnable.is_empty() {
                break;
            }
            let index = runnable[self.random.below(runnable.len())];
            self.turn(index);
        }
        self.check_end();
        self.story
    }

    /// One reactor's turn: some of what it could do, in any order.
    fn turn(&mut self, index: usize) {
        let World { random, reactors, alive, next, story } = self;
        let reactor = &mut reactors[index];
        if std::mem::take(&mut reactor.is_asleep) {
            reactor.refused.clear();
        }
        reactor.note.is_woken.store(false, Ordering::Relaxed);
        if random.percent(80) {
            reactor.take_events(1 + random.below(6), random, story, index);
        }
        for _ in 0..random.below(5) {
            reactor.send(random, alive, next);
        }
        if random.percent(20)
            && let Some((number, ticket)) = reactor.waiting.pop_first()
        {
            assert!(reactor.port.give_up(ticket), "{number} is waited for");
            assert!(!reactor.port.give_up(ticket), "it was given up before");
            reactor.given_up += 1;
        }
        for _ in 0..random.below(4) {
            if let Some((permit, ask)) = reactor.held.pop_front() {
                reactor.port.answer(permit, ask);
            }
        }
        if random.percent(70) {
            reactor.port.flush();
        }
        // Whoever waits for nobody but others sleeps.
        let has_own_work = !reactor.held.is_empty() || reactor.could_send();
        if !has_own_work {
            let calls = reactor.note.calls.load(Ordering::Relaxed);
            reactor.is_asleep = reactor.port.prepare_sleep() == Rest::MaySleep;
            assert_eq!(reactor.note.calls.load(Ordering::Relaxed), calls);
            if !reactor.is_asleep {
                reactor.refused.clear();
            }
        }
    }

    fn check_end(&self) {
        for reactor in &self.reactors {
            let left = (reactor.asks_left, reactor.notices_left, reactor.waiting.len());
            assert_eq!(left, (0, 0, 0), "{:?} sleeps and is not done", reactor.port.own());
            assert_eq!(reactor.late, reactor.given_up, "late answers come, too");
        }
        assert_eq!(self.alive.load(Ordering::Relaxed), 0, "what was sent was disposed of");
    }
}

impl Reactor {
    fn take_events(&mut self, bound: usize, random: &mut Random, story: &mut Story, index: usize) {
        let Self { port, waiting, held, seen, late, .. } = self;
        let mut in_order = |from: Shard, is_ask: bool, number: u64| {
            let last = seen.insert((from.0, is_ask), number);
            assert!(last.is_none_or(|last| last < number), "{from:?} {number} behind {last:?}");
        };
        let count = port.poll(bound, |event| match event {
            Event::Asked { permit, ask } => {
                in_order(permit.asker(), true, ask.number);
                story.push((index, ask.number));
                // They are answered in any order.
                let place = random.below(held.len() + 1);
                held.insert(place, (permit, ask));
            }
            Event::Answered { ticket, context, answer } => {
                story.push((index, answer.number));
                assert_eq!(context, answer.number);
                assert_eq!(waiting.remove(&answer.number), Some(ticket));
            }
            Event::Late { answer, .. } => {
                story.push((index, answer.number));
                assert!(!waiting.contains_key(&answer.number));
                *late += 1;
            }
            Event::Told { from, notice } => {
                story.push((index, notice.number));
                in_order(from, false, notice.number);
            }
        });
        assert!(count <= bound);
    }

    fn send(&mut self, random: &mut Random, alive: &Arc<AtomicU64>, next: &mut u64) {
        let peers: Vec<Shard> = self.peers().collect();
        let to = peers[random.below(peers.len())];
        let number = *next;
        *next += 1;
        let payload = Payload::new(number, alive);
        if random.percent(50) && self.asks_left > 0 {
            match self.port.ask_with(to, payload, number) {
                Ok(ticket) => {
                    self.asks_left -= 1;
                    self.waiting.insert(number, ticket);
                }
                Err(payload) => assert_eq!(payload.number, number, "it is given back"),
            }
        } else if self.notices_left > 0 {
            match self.port.tell(to, payload) {
                Ok(()) => {
                    self.notices_left -= 1;
                    self.refused.remove(&to);
                }
                Err(_) => _ = self.refused.insert(to),
            }
        }
    }

    /// Whether it could send something that it has to send.
    fn could_send(&self) -> bool {
        self.asks_left > 0 && self.peers().any(|peer| self.port.takes_ask(peer))
            || self.notices_left > 0 && self.peers().any(|peer| !self.refused.contains(&peer))
    }

    fn peers(&self) -> impl Iterator<Item = Shard> + use<> {
        let own = self.port.own();
        self.port.count().shards().filter(move |shard| *shard != own)
    }
}

#[test]
fn whatever_turns_reactors_have_everything_arrives() {
    for seed in 0..1000 {
        let world = World::new(seed);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_seed_tells_the_same_story_twice() {
    for seed in 0..50 {
        assert_eq!(World::new(seed).run(), World::new(seed).run(), "seed {seed}");
    }
}

#[test]
fn two_full_rings_do_not_wait_for_each_other() {
    let (mut ports, _) = ports(2, 3);
    let alive = Arc::default();
    let payload = |number| Payload::new(number, &alive);
    let ends = [Shard(1), Shard(0)];
    // Each asks as much as it may, and tells as much as it may, and takes nothing in.
    for (port, to) in ports.iter_mut().zip(ends) {
        (0..3).for_each(|number| _ = port.ask(to, payload(number)).unwrap());
        assert_eq!(port.ask(to, payload(9)).unwrap_err().number, 9, "the ask is given back");
        (0..3).for_each(|number| port.tell(to, payload(number)).unwrap());
        assert_eq!(port.tell(to, payload(8)).unwrap_err().number, 8);
        port.flush();
    }
    // Then each is asked, and can answer at once, although the other has taken nothing.
    for port in &mut ports {
        let mut permits = Vec::new();
        port.poll(6, |event| match event {
            Event::Asked { permit, ask } => permits.push((permit, ask)),
            Event::Told { .. } => {}
            other => panic!("{other:?}"),
        });
        assert_eq!(permits.len(), 3);
        permits.into_iter().for_each(|(permit, ask)| port.answer(permit, ask));
        port.flush();
    }
    for (port, to) in ports.iter_mut().zip(ends) {
        let mut answers = 0;
        while let Some(event) = port.take() {
            answers += u64::from(matches!(event, Event::Answered { .. }));
        }
        assert_eq!((answers, port.asks_under_way(to)), (3, 0));
    }
}

#[test]
fn whoever_waits_for_room_for_a_notice_is_woken_when_there_is_some() {
    let (mut ports, notes) = ports(2, 1);
    let alive = Arc::default();
    let [one, other] = &mut ports[..] else { panic!("two ports") };
    one.tell(Shard(1), Payload::new(0, &alive)).unwrap();
    assert_eq!(one.prepare_sleep(), Rest::MaySleep);
    assert!(other.take().is_some());
    other.flush();
    assert_eq!(notes[0].calls.load(Ordering::Relaxed), 0, "it waits for nothing");
    one.tell(Shard(1), Payload::new(1, &alive)).unwrap();
    let back = one.tell(Shard(1), Payload::new(2, &alive)).unwrap_err();
    assert_eq!(one.prepare_sleep(), Rest::MaySleep);
    assert!(other.take().is_some());
    other.flush();
    assert_eq!(notes[0].calls.load(Ordering::Relaxed), 1);
    one.get_up();
    assert_eq!(one.prepare_sleep(), Rest::Awake, "there is room");
    assert_eq!(one.prepare_sleep(), Rest::MaySleep, "it was told, and may want nothing more");
    one.tell(Shard(1), back).unwrap();
    assert_eq!(one.prepare_sleep(), Rest::MaySleep);
}

#[test]
fn whoever_is_awake_is_never_woken_and_whoever_sleeps_is_woken_once() {
    let (mut ports, notes) = ports(3, 8);
    let alive = Arc::default();
    let calls = || notes.iter().map(|note| note.calls.load(Ordering::Relaxed)).sum::<u64>();
    let tell = |ports: &mut [TestPort], from: usize, number| {
        ports[from].tell(Shard(0), Payload::new(number, &alive)).unwrap();
        ports[from].flush();
    };
    (0..4).for_each(|number| tell(&mut ports, 1, number));
    assert_eq!(calls(), 0);
    while ports[0].take().is_some() {}
    assert_eq!(ports[0].prepare_sleep(), Rest::MaySleep);
    for number in 4..8 {
        tell(&mut ports, 1, number);
        tell(&mut ports, 2, number);
    }
    assert_eq!(calls(), 1);
    assert_eq!(ports[0].prepare_sleep(), Rest::Awake, "something has come");
    while ports[0].take().is_some() {}
    assert_eq!(calls(), 1);
}

/// A reactor that is refused a share looks once more when all know that it sleeps.
#[test]
fn whoever_is_short_and_sleeps_is_woken_by_whoever_gives_something_back() {
    let (mut ports, notes) = ports(2, 1);
    let shares = Shares::new(10, 10);
    let (mut rich, mut poor) = (shares.share(0), shares.share(0));
    assert!(rich.take(10) && !poor.take(4));
    assert_eq!(ports[1].prepare_sleep_unless(|| poor.could_take(4)), Rest::MaySleep);
    rich.give(10);
    assert!(rich.settle(), "somebody is short");
    ports[0].nudge_all();
    assert_eq!(notes[1].calls.load(Ordering::Relaxed), 1);
    ports[1].get_up();
    assert!(poor.could_take(4));
    assert_eq!(ports[1].prepare_sleep_unless(|| poor.could_take(4)), Rest::Awake);
    assert!(poor.take(4));
}

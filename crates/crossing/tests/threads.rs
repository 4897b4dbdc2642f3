//! Ports on threads of their own, which sleep on their eventfds without a time-out: a lost wake-up
//! is a test that never ends, and is told after a minute.

use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use dafs_crossing::{AnswerPermit, Crossing, Event, Port, Rest};
use dafs_types::{Shard, ShardCount};
use rustix::event::{PollFd, PollFlags, poll};

type TestPort = Port<u64, u64, u64>;

/// What one reactor has done and has still to do.
struct Reactor {
    port: TestPort,
    each: u64,
    /// To each other: the next ask and the next notice.
    peers: Vec<Peer>,
    /// Asks that are answered in another turn.
    later: VecDeque<(AnswerPermit, u64)>,
    sum: u64,
    sleeps: u64,
}

struct Peer {
    shard: Shard,
    asked: u64,
    answered: u64,
    told: u64,
    /// The numbers that come next from there.
    ask_next: u64,
    notice_next: u64,
}

impl Reactor {
    fn new(port: TestPort, each: u64) -> Self {
        let own = port.own();
        let peers = port
            .count()
            .shards()
            .filter(|shard| *shard != own)
            .map(|shard| Peer {
                shard,
                asked: 0,
                answered: 0,
                told: 0,
                ask_next: 0,
                notice_next: 0,
            })
            .collect();
        Self { port, each, peers, later: VecDeque::new(), sum: 0, sleeps: 0 }
    }

    fn is_done(&self) -> bool {
        self.later.is_empty()
            && self.peers.iter().all(|peer| {
                [peer.answered, peer.told, peer.ask_next, peer.notice_next]
                    .iter()
                    .all(|count| *count == self.each)
            })
    }

    fn run(mut self) -> (u64, u64) {
        while !self.is_done() {
            // Each event may make room for something that is to be sent.
            let had_events = self.turn();
            if !had_events && self.later.is_empty() && !self.is_done() {
                self.sleep();
            }
        }
        self.port.flush();
        (self.sum, self.sleeps)
    }

    /// True if something had come.
    fn turn(&mut self) -> bool {
        for peer in &mut self.peers {
            while peer.asked < self.each
                && self.port.ask_with(peer.shard, peer.asked, peer.asked * 3).is_ok()
            {
                peer.asked += 1;
            }
            while peer.told < self.each && self.port.tell(peer.shard, peer.told).is_ok() {
                peer.told += 1;
            }
        }
        // What waited for a turn.
        while let Some((permit, ask)) = self.later.pop_front() {
            self.port.answer(permit, ask + 1);
        }
        let mut events = 0;
        while events < 50
            && let Some(event) = self.port.take()
        {
            events += 1;
            self.on_event(event);
        }
        self.port.flush();
        events > 0
    }

    fn on_event(&mut self, event: Event<u64, u64, u64>) {
        match event {
            Event::Asked { permit, ask } => {
                let peer = self.peers.iter_mut().find(|peer| peer.shard == permit.asker()).unwrap();
                assert_eq!(ask, peer.ask_next, "asks come in their order");
                peer.ask_next += 1;
                if ask % 3 == 0 {
                    self.later.push_back((permit, ask));
                } else {
                    self.port.answer(permit, ask + 1);
                }
            }
            Event::Answered { context, answer, .. } => {
                assert_eq!(context, (answer - 1) * 3, "each answer comes to its ask");
                self.sum += answer;
                // Which one it was the context does not say; any of them that waits will do.
                let waits = self.peers.iter_mut().find(|peer| peer.answered < peer.asked);
                waits.unwrap().answered += 1;
            }
            Event::Late { .. } => panic!("nothing was given up"),
            Event::Told { from, notice } => {
                let peer = self.peers.iter_mut().find(|peer| peer.shard == from).unwrap();
                assert_eq!(notice, peer.notice_next, "notices come in their order");
                peer.notice_next += 1;
                self.sum += notice;
            }
        }
    }

    fn sleep(&mut self) {
        if self.port.prepare_sleep() == Rest::MaySleep {
            self.sleeps += 1;
            let fd = self.port.wake_fd().unwrap();
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
            self.port.get_up();
        }
    }
}

/// Runs so many reactors with so many slots; each sends each other so many asks and notices.
fn run(count: usize, slots: usize, each: u64) -> u64 {
    let ports = Crossing::open(ShardCount::new(count).unwrap(), slots).unwrap();
    let (done, ended) = channel();
    for port in ports {
        let (done, reactor) = (done.clone(), Reactor::new(port, each));
        std::thread::spawn(move || done.send(reactor.run()));
    }
    drop(done);
    let mut sleeps = 0;
    for _ in 0..count {
        match ended.recv_timeout(Duration::from_secs(60)) {
            Ok((sum, slept)) => {
                // Answers are one more than their asks.
                let expected = (count as u64 - 1) * (each * (each - 1) + each);
                assert_eq!(sum, expected, "everything came, and once");
                sleeps += slept;
            }
            Err(RecvTimeoutError::Timeout) => panic!("a reactor sleeps for ever: {count}/{slots}"),
            Err(RecvTimeoutError::Disconnected) => panic!("a reactor failed"),
        }
    }
    sleeps
}

#[test]
fn everything_arrives_once_and_in_order_and_nobody_sleeps_for_ever() {
    let mut sleeps = 0;
    for (count, slots, each) in [(2, 1, 20_000), (2, 64, 200_000), (3, 2, 20_000), (4, 7, 20_000)] {
        sleeps += run(count, slots, each);
    }
    assert!(sleeps > 0, "nobody ever slept, so nothing was tested");
}

#[test]
fn a_reactor_alone_has_nobody_to_hear_from() {
    let mut ports = Crossing::open::<(), (), ()>(ShardCount::ONE, 4).unwrap();
    let mut port = ports.pop().unwrap();
    assert!(port.take().is_none() && !port.has_any());
    port.flush();
    assert_eq!(port.prepare_sleep(), Rest::MaySleep);
    port.nudge_all();
}

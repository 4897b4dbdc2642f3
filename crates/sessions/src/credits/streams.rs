//! Tests the expiry of streams as client and server see it over two slow connections.

use std::collections::{BTreeSet, VecDeque};

use super::*;
use dafs_types::Random;

struct Ends {
    budget: Budget,
    window: Window,
    nreq: u16,
    busy: Vec<u16>,
    to_server: VecDeque<u16>,
    at_server: Vec<u16>,
    /// The replies that are on their way to the client, each with its stream and credit target.
    to_client: VecDeque<(u16, u16)>,
    /// The streams of which the server keeps the most recent reply.
    kept: BTreeSet<u16>,
    expirations: u32,
}

impl Ends {
    fn new(credits: u16) -> Self {
        let mut budget = Budget::new(300, 1);
        let mut window = Window::new();
        budget.channel_opened();
        window.begin(credits, 0, &mut budget);
        window.on_request(StreamId(0), 0).unwrap();
        window.on_reply(StreamId(0), &mut budget);
        window.may_grow_to(limits::CREDITS_MAX);
        Self {
            budget,
            window,
            nreq: credits,
            busy: vec![],
            to_server: VecDeque::new(),
            at_server: vec![],
            to_client: VecDeque::new(),
            kept: BTreeSet::from([0]),
            expirations: 0,
        }
    }

    fn send(&mut self, dice: &mut Random) {
        let free: Vec<_> = (0..self.nreq).filter(|stream| !self.busy.contains(stream)).collect();
        if !free.is_empty() && self.busy.len() < usize::from(self.nreq) {
            let stream = free[dice.below(free.len())];
            self.busy.push(stream);
            self.to_server.push_back(stream);
        }
    }

    fn receive(&mut self, seed: u64) {
        let Some(stream) = self.to_server.pop_front() else { return };
        self.window.on_request(StreamId(stream), 0).unwrap();
        self.at_server.push(stream);
        let Some(StreamId(first)) = self.window.take_expired() else { return };
        self.expirations += 1;
        assert_eq!(first, self.window.nreq);
        assert!(self.nreq <= first, "seed {seed}: the client does not know");
        let beyond = |stream: &u16| *stream >= first;
        // The client has read every reply that was kept for those streams.
        assert!(!self.to_client.iter().any(|(stream, _)| beyond(stream)), "seed {seed}");
        assert!(!self.to_server.iter().any(beyond), "seed {seed}: still in use");
        assert!(!self.at_server.iter().any(beyond), "seed {seed}: still in flight");
        self.kept.retain(|stream| !beyond(stream));
    }

    fn answer(&mut self, dice: &mut Random) {
        if self.at_server.is_empty() {
            return;
        }
        let stream = self.at_server.swap_remove(dice.below(self.at_server.len()));
        let grant = self.window.on_reply(StreamId(stream), &mut self.budget);
        self.kept.insert(stream);
        self.to_client.push_back((stream, grant.target_credits));
    }

    fn read(&mut self) {
        let Some((stream, target)) = self.to_client.pop_front() else { return };
        self.busy.retain(|&busy| busy != stream);
        self.nreq = (self.nreq - 1).max(target);
    }
}

#[test]
fn a_stream_expires_soon_after_all_its_replies_were_read() {
    let mut expirations = 0;
    for seed in 0..500 {
        let mut dice = Random::new(seed);
        let mut ends = Ends::new(1 + dice.below(40) as u16);
        for _ in 0..400 {
            match dice.below(9) {
                0..=2 => ends.send(&mut dice),
                3..=4 => ends.receive(seed),
                5..=6 => ends.answer(&mut dice),
                7 => ends.read(),
                _ if dice.percent(10) => {
                    let target = 1 + dice.below(40) as u16;
                    let most_now = ends.window.nreq + ends.budget.available() as u16;
                    ends.window.set_target(target.min(most_now), &mut ends.budget);
                }
                _ => {}
            }
        }
        // Both ends become idle; then there is one exchange after the other.
        let most = 1 + dice.below(4) as u16;
        ends.window.may_grow_to(most);
        ends.window.set_target(most, &mut ends.budget);
        for _ in 0..200 {
            ends.receive(seed);
            ends.answer(&mut dice);
            ends.read();
        }
        let fall = ends.nreq.saturating_sub(most);
        for _ in 0..fall + most + 2 {
            ends.send(&mut dice);
            ends.receive(seed);
            ends.answer(&mut dice);
            ends.read();
        }
        assert_eq!(ends.nreq, most, "seed {seed}");
        assert!(ends.kept.iter().all(|stream| *stream < ends.nreq), "seed {seed}: kept forever");
        assert!(ends.kept.len() <= usize::from(ends.nreq), "seed {seed}");
        expirations += ends.expirations;
    }
    assert!(expirations > 500);
}

#[test]
fn a_reply_on_an_expired_stream_is_kept_until_it_was_read() {
    let mut budget = Budget::new(100, 1);
    let mut window = Window::new();
    budget.channel_opened();
    window.begin(3, 0, &mut budget);
    window.may_grow_to(3);
    window.on_request(StreamId(0), 0).unwrap();
    window.on_reply(StreamId(0), &mut budget);
    window.on_request(StreamId(2), 0).unwrap();
    window.on_request(StreamId(0), 0).unwrap();
    window.may_grow_to(2);
    window.on_reply(StreamId(0), &mut budget);
    // The client knows the lower number, but no reply was sent on stream 2 yet.
    window.on_request(StreamId(0), 0).unwrap();
    assert_eq!(window.take_expired(), None);
    window.on_reply(StreamId(0), &mut budget);
    window.on_reply(StreamId(2), &mut budget);
    // The client may have sent this request before it read the reply on stream 2.
    window.on_request(StreamId(0), 0).unwrap();
    assert_eq!(window.take_expired(), None);
    window.on_reply(StreamId(0), &mut budget);
    // The client has sent this request after it read the reply on stream 2.
    window.on_request(StreamId(0), 0).unwrap();
    assert_eq!(window.take_expired(), Some(StreamId(2)));
    assert_eq!(window.take_expired(), None);
}

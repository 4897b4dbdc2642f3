//! Tests how credits are shared among many sessions when they are short.

use super::*;
use dafs_types::Random;

/// A client that follows the rule of draft 3.2.6.4.2 and reads every reply immediately.
struct Client {
    window: Window,
    nreq: u16,
    /// The streams with a request in flight.
    busy: Vec<u16>,
    is_busy: [bool; 256],
    desired: u16,
    most: u16,
    sent: u32,
}

impl Client {
    fn new(budget: &mut Budget, most: u16, weight: u16, desired: u16) -> Self {
        let mut window = Window::new();
        budget.channel_opened();
        window.begin(8, desired, budget);
        window.set_weight(CreditWeight::new(weight).unwrap(), budget);
        window.on_request(StreamId(0), desired).unwrap();
        let nreq = window.on_reply(StreamId(0), budget).target_credits;
        window.may_grow_to(most);
        Self { window, nreq, busy: vec![], is_busy: [false; 256], desired, most, sent: 0 }
    }

    /// Sends one request on the lowest free stream, if it has credits.
    fn send(&mut self) -> bool {
        let free = (0..self.nreq).find(|&stream| !self.is_busy[usize::from(stream)]);
        let Some(stream) = free else { return false };
        if self.busy.len() >= usize::from(self.nreq) {
            return false;
        }
        self.window.on_request(StreamId(stream), self.desired).expect("a client that obeys");
        self.busy.push(stream);
        self.is_busy[usize::from(stream)] = true;
        self.sent += 1;
        true
    }

    /// Makes the server reply to one of the client's requests.
    fn answer(&mut self, dice: &mut Random, budget: &mut Budget) {
        let pick = dice.below(self.busy.len());
        let stream = self.busy.swap_remove(pick);
        self.is_busy[usize::from(stream)] = false;
        let grant = self.window.on_reply(StreamId(stream), budget);
        self.nreq = (self.nreq - 1).max(grant.target_credits);
        assert_eq!(self.nreq, self.window.nreq);
    }

    /// Makes the client use all its credits, then makes the server reply to some of the requests.
    fn saturate(&mut self, dice: &mut Random, budget: &mut Budget) {
        while self.send() {}
        for _ in 0..=dice.below(self.busy.len()) {
            self.answer(dice, budget);
        }
    }

    fn cap(&self) -> f64 {
        let cap = if self.desired == 0 { self.most } else { self.desired.min(self.most) };
        f64::from(cap)
    }

    fn weight(&self) -> f64 {
        f64::from(self.window.weight.get())
    }
}

/// Checks that the sums in the budget equal those over the windows, and that all invariants hold.
fn check(budget: &Budget, clients: &[Client], seed: u64) {
    let windows = || clients.iter().map(|client| &client.window);
    let charged: u32 = windows().map(|window| u32::from(window.charge())).sum();
    assert_eq!(budget.charged, charged, "seed {seed}");
    assert!(charged + budget.reserved <= budget.total, "seed {seed}");
    let contending = || windows().filter(|window| window.contends);
    let weight: u32 = contending().map(|window| u32::from(window.weight.get())).sum();
    let charge: u32 = contending().map(|window| u32::from(window.charge())).sum();
    assert_eq!((budget.contending_weight, budget.contending_charge), (weight, charge));
    let missing: u32 = windows().map(|window| u32::from(window.missing)).sum();
    let wanting = windows().filter(|window| window.wants_more).count();
    assert_eq!((budget.missing, budget.wanting), (missing, wanting as u32), "seed {seed}");
    for window in windows() {
        assert!(window.nreq >= 1 && window.target >= 1, "seed {seed}");
        assert!(window.outstanding <= window.nreq, "seed {seed}");
        assert!(window.wants_more || window.missing == 0, "seed {seed}");
        assert!(window.contends || !window.wants_more, "seed {seed}");
    }
}

/// Computes the share of each client as if credits were divisible. No client gets more than its
/// maximum, and the rest is divided by weight.
fn fair_shares(clients: &[Client], total: f64) -> Vec<f64> {
    let mut shares = vec![f64::NAN; clients.len()];
    loop {
        let open: Vec<_> = (0..clients.len()).filter(|&i| shares[i].is_nan()).collect();
        let taken: f64 = shares.iter().filter(|share| !share.is_nan()).sum();
        let weights: f64 = open.iter().map(|&i| clients[i].weight()).sum();
        let unit = (total - taken) / weights;
        let (capped, rest): (Vec<_>, Vec<_>) =
            open.iter().partition(|&&i| clients[i].cap() <= unit * clients[i].weight());
        if capped.is_empty() {
            rest.iter().for_each(|&&i| shares[i] = unit * clients[i].weight());
            return shares;
        }
        capped.iter().for_each(|&&i| shares[i] = clients[i].cap());
        if rest.is_empty() {
            return shares;
        }
    }
}

/// The number of requests of each session after which every session has about its share. A session
/// that shrinks from the maximum to one credit needs one reply for each credit, and a session that
/// waits for these credits needs as many.
const REQUESTS_TO_CONVERGE: u32 = 4 * limits::CREDITS_MAX as u32;

/// Lets all clients send requests and get replies, until each client has sent this many requests.
fn work(clients: &mut [Client], dice: &mut Random, budget: &mut Budget, seed: u64) {
    let goals: Vec<_> = clients.iter().map(|client| client.sent + REQUESTS_TO_CONVERGE).collect();
    for step in 0.. {
        if clients.iter().zip(&goals).all(|(client, &goal)| client.sent >= goal) {
            return check(budget, clients, seed);
        }
        let pick = dice.below(clients.len());
        clients[pick].saturate(dice, budget);
        if dice.percent(2) {
            for client in clients.iter_mut() {
                client.window.shrink_if_idle(8, budget);
            }
        }
        if step % 8 == 0 {
            check(budget, clients, seed);
        }
    }
}

fn assert_fair(clients: &[Client], total: f64, seed: u64) {
    for (client, share) in clients.iter().zip(fair_shares(clients, total)) {
        let credits = f64::from(client.window.nreq);
        let least = (share / 2.0).floor().max(1.0);
        // Any client may get the remainder of the rounding.
        let most = share * 2.0 + clients.len() as f64;
        assert!(
            credits >= least && credits <= most,
            "seed {seed}: {credits} credits, a share of {share}: {:?}",
            client.window.view(SessionId(0))
        );
    }
}

#[test]
fn saturated_sessions_get_at_least_half_of_their_shares() {
    for seed in 0..60 {
        let mut dice = Random::new(seed);
        let count = 2 + dice.below(8);
        let total = (count * (2 + dice.below(60))) as u32;
        let mut budget = Budget::new(total, count as u32);
        let mut clients = vec![];
        for index in 0..count {
            let weight = if dice.percent(50) { 1 } else { 1 + dice.below(8) as u16 };
            let most = if dice.percent(70) { 256 } else { 1 + dice.below(64) as u16 };
            let desired = if dice.percent(70) { 0 } else { 1 + dice.below(100) as u16 };
            clients.push(Client::new(&mut budget, most, weight, desired));
            // The first client has all it can get before others come.
            if index == 0 {
                (0..20).for_each(|_| clients[0].saturate(&mut dice, &mut budget));
            }
        }
        work(&mut clients, &mut dice, &mut budget, seed);
        assert_fair(&clients, f64::from(total), seed);
        // Then a weight changes and a session leaves.
        let weight = CreditWeight::new(1 + dice.below(8) as u16).unwrap();
        clients[0].window.set_weight(weight, &mut budget);
        let gone = clients.pop().unwrap();
        budget.channel_closed(&gone.window);
        work(&mut clients, &mut dice, &mut budget, seed);
        assert_fair(&clients, f64::from(total - 1), seed);
        for client in clients.drain(..) {
            budget.channel_closed(&client.window);
        }
        check(&budget, &[], seed);
        assert_eq!(budget.reserved, count as u32);
    }
}

#[test]
fn sessions_that_use_little_give_credits_back_and_silent_ones_are_detected() {
    for seed in 0..100 {
        let mut dice = Random::new(seed);
        let mut budget = Budget::new(64, 4);
        let mut clients: Vec<_> = (0..3).map(|_| Client::new(&mut budget, 64, 1, 0)).collect();
        work(&mut clients, &mut dice, &mut budget, seed);
        // The first client sends nothing more, the second uses three credits, and the third uses
        // all credits that it can get.
        (0..clients[0].busy.len()).for_each(|_| clients[0].answer(&mut dice, &mut budget));
        let bound = Duration::from_secs(5);
        let mut now = Moment(0);
        let mut withheld_at = None;
        for _ in 0..60 {
            now = now.after(Duration::from_secs(1));
            for _ in 0..10 {
                (0..clients[1].busy.len()).for_each(|_| clients[1].answer(&mut dice, &mut budget));
                while clients[1].busy.len() < 3 && clients[1].send() {}
                clients[2].saturate(&mut dice, &mut budget);
            }
            for client in &mut clients {
                client.window.shrink_if_idle(8, &mut budget);
            }
            check(&budget, &clients, seed);
            let withholds: Vec<_> =
                clients.iter_mut().map(|c| c.window.withholds(bound, now, &budget)).collect();
            assert!(!withholds[1] && !withholds[2], "seed {seed}");
            if withholds[0] {
                withheld_at = withheld_at.or(Some(now));
            }
        }
        assert!(withheld_at.is_some_and(|at| at >= Moment(0).after(bound)), "seed {seed}");
        let [silent, little, much] = [0, 1, 2].map(|index| clients[index].window.nreq);
        assert_eq!(clients[0].window.target, 1, "seed {seed}");
        assert_eq!(clients[0].window.limited_by, LimitedBy::Idle);
        assert!(silent > 8, "seed {seed}: a silent session gives credits back only with requests");
        assert!((3..=8).contains(&little), "seed {seed}: {little} credits for three at a time");
        assert!(
            u32::from(silent + little + much) >= 56,
            "seed {seed}: the rest is unused: {silent} {little} {much}"
        );
        // The first client sends one request at a time, and keeps only the credits that it uses.
        for _ in 0..64 {
            clients[0].send();
            clients[0].answer(&mut dice, &mut budget);
            assert!(!clients[0].window.withholds(bound, now, &budget), "it answers");
        }
        assert!(clients[0].window.nreq <= 2, "seed {seed}");
    }
}

#[test]
fn no_session_is_throttled_while_credits_are_plentiful() {
    let mut dice = Random::new(1);
    let mut budget = Budget::new(1000, 4);
    let mut clients: Vec<_> =
        [1, 1000].map(|weight| Client::new(&mut budget, 64, weight, 0)).into();
    work(&mut clients, &mut dice, &mut budget, 1);
    for client in &clients {
        let view = client.window.view(SessionId(9));
        assert_eq!((view.session, view.credits, view.target), (SessionId(9), 64, 64));
        assert_eq!(view.limited_by, LimitedBy::SessionMaximum);
    }
}

#[test]
fn a_view_names_the_limit_of_a_session() {
    let mut dice = Random::new(1);
    let mut budget = Budget::new(40, 3);
    let mut clients = vec![Client::new(&mut budget, 64, 1, 0)];
    assert_eq!(clients[0].window.limited_by, LimitedBy::Nothing);
    (0..9).for_each(|_| clients[0].saturate(&mut dice, &mut budget));
    assert_eq!(clients[0].window.limited_by, LimitedBy::Budget);
    clients.push(Client::new(&mut budget, 64, 3, 0));
    work(&mut clients, &mut dice, &mut budget, 1);
    let limits: Vec<_> = clients.iter().map(|client| client.window.limited_by).collect();
    assert_eq!(limits, [LimitedBy::Share; 2]);
    let credits: Vec<_> = clients.iter().map(|client| client.window.nreq).collect();
    assert!(credits[0] >= 9 && credits[0] <= 11, "a quarter: {credits:?}");
    clients[1].desired = 2;
    (0..90).for_each(|_| clients[1].saturate(&mut dice, &mut budget));
    assert_eq!(clients[1].window.limited_by, LimitedBy::Desire);
    assert_eq!(clients[1].window.view(SessionId(1)).credits, 2);
}

#[test]
fn a_client_that_asks_for_more_gets_more_before_it_needs_it() {
    let mut budget = Budget::new(1000, 1);
    let mut client = Client::new(&mut budget, 64, 1, 0);
    let grant = |client: &mut Client, desired, budget: &mut Budget| {
        client.window.on_request(StreamId(0), desired).unwrap();
        client.window.on_reply(StreamId(0), budget).target_credits
    };
    assert_eq!(grant(&mut client, 0, &mut budget), 8);
    assert_eq!(grant(&mut client, 40, &mut budget), 40, "while credits are plentiful");
    assert_eq!(grant(&mut client, 5, &mut budget), 5, "the session gives credits back");
    assert_eq!(client.window.nreq, 39);
    assert_eq!(grant(&mut client, 30, &mut budget), 30, "the session still has them");
    assert_eq!(grant(&mut client, 500, &mut budget), 38, "as many as the session still has");
}

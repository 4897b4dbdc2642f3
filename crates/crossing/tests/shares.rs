//! A budget among reactors: nothing is lost, nothing is made, nobody starves.

use std::sync::atomic::{AtomicU64, Ordering};

use dafs_crossing::{Share, Shares};
use dafs_types::{Entropy, Random};
use proptest::prelude::*;

const REACTORS: usize = 4;
const KEEP: u64 = 3;

#[derive(Clone, Debug)]
enum Step {
    Take(usize, u64),
    /// Where it is given back, and whose it was.
    Give(usize, usize),
    Settle(usize),
    Rest(usize),
    WantNoMore(usize),
    /// The reactor ends, and another one takes its place.
    Replace(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = || 0..REACTORS;
    let step = prop_oneof![
        4 => (who(), 0..60u64).prop_map(|(who, amount)| Step::Take(who, amount)),
        3 => (who(), any::<usize>()).prop_map(|(who, which)| Step::Give(who, which)),
        2 => who().prop_map(Step::Settle),
        1 => who().prop_map(Step::Rest),
        1 => who().prop_map(Step::WantNoMore),
        1 => who().prop_map(Step::Replace),
    ];
    prop::collection::vec(step, 0..200)
}

/// The shares, and what is known of them without them.
struct World {
    shares: Shares,
    own: Vec<Share>,
    is_short: [bool; REACTORS],
    taken: Vec<u64>,
}

impl World {
    fn new(total: u64, piece: u64) -> Self {
        let shares = Shares::new(total, piece);
        let own = (0..REACTORS).map(|_| shares.share(KEEP)).collect();
        Self { shares, own, is_short: [false; REACTORS], taken: Vec::new() }
    }

    fn take(&mut self, who: usize, amount: u64) -> bool {
        let could = self.own[who].could_take(amount);
        let has = self.own[who].take(amount);
        assert_eq!(has, could);
        self.is_short[who] = !has;
        if has {
            self.taken.push(amount);
        }
        has
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Take(who, amount) => {
                self.take(who, amount);
            }
            Step::Give(who, which) => {
                if !self.taken.is_empty() {
                    let amount = self.taken.swap_remove(which % self.taken.len());
                    self.own[who].give(amount);
                }
            }
            Step::Settle(who) => {
                let (before, others) = (self.shares.left(), self.others_short(who));
                let told = self.own[who].settle();
                assert_eq!(told, others && self.shares.left() > before, "who is short is told");
            }
            Step::Rest(who) => {
                let others = self.others_short(who);
                self.own[who].rest();
                assert!(self.own[who].unused() <= if others { 0 } else { KEEP });
            }
            Step::WantNoMore(who) => {
                self.own[who].want_no_more();
                self.is_short[who] = false;
            }
            Step::Replace(who) => {
                self.own[who] = self.shares.share(KEEP);
                self.is_short[who] = false;
            }
        }
    }

    fn others_short(&self, who: usize) -> bool {
        (0..REACTORS).any(|other| other != who && self.is_short[other])
    }

    fn in_use(&self) -> u64 {
        self.taken.iter().sum()
    }

    fn check(&self) {
        let unused: u64 = self.own.iter().map(Share::unused).sum();
        assert_eq!(self.shares.left() + unused + self.in_use(), self.shares.total());
        let short = self.is_short.iter().filter(|is_short| **is_short).count();
        assert_eq!(self.shares.short_count(), short as u64);
    }
}

proptest! {
    #[test]
    fn what_is_left_unused_and_taken_is_always_the_total(
        total in 0..200u64, piece in 1..40u64, steps in steps(),
    ) {
        let mut world = World::new(total, piece);
        for step in steps {
            world.step(step);
            world.check();
        }
        world.own.clear();
        prop_assert_eq!(world.shares.left() + world.in_use(), total, "all went back");
        prop_assert_eq!(world.shares.short_count(), 0);
    }

    #[test]
    fn whoever_is_short_gets_all_that_others_do_not_use(
        total in 1..200u64, piece in 1..40u64, steps in steps(),
        who in 0..REACTORS, part in 0.0..=1.0,
    ) {
        let mut world = World::new(total, piece);
        steps.into_iter().for_each(|step| world.step(step));
        let free = total - world.in_use();
        let amount = (free as f64 * part) as u64;
        if !world.take(who, amount) {
            for _ in 0..2 {
                (0..REACTORS).filter(|other| *other != who).for_each(|other| {
                    world.own[other].settle();
                });
            }
            prop_assert!(world.take(who, amount), "{} of {} that are free", amount, free);
        }
        world.check();
    }

    #[test]
    fn of_several_that_wait_for_each_others_pieces_one_gets_them(
        total in 10..200u64, piece in 1..40u64, hoards in prop::array::uniform2(0..100u64),
    ) {
        let mut world = World::new(total, piece);
        // Each has something unused, and wants more than half.
        for (who, hoard) in hoards.into_iter().enumerate() {
            if world.take(who, hoard % (total / 2)) {
                let amount = world.taken.pop().unwrap();
                world.own[who].give(amount);
            }
        }
        let wanted = total / 2 + 1;
        let mut has = [false; 2];
        for _ in 0..3 {
            for (who, has) in has.iter_mut().enumerate() {
                world.own[who].settle();
                *has = *has || world.take(who, wanted);
            }
        }
        prop_assert!(has[0] != has[1], "{:?}", has);
    }
}

#[test]
fn a_reactor_lives_off_its_piece() {
    let shares = Shares::new(1000, 100);
    let mut share = shares.share(0);
    assert!(share.take(1));
    assert_eq!((shares.left(), share.unused()), (900, 99));
    for _ in 0..1000 {
        assert!(share.take(99));
        share.give(99);
    }
    assert_eq!(shares.left(), 900, "nothing was fetched or given back");
    // What comes in large amounts goes back in large ones.
    assert!(share.take(700));
    share.give(700);
    assert_eq!(share.unused(), 100);
    assert_eq!(shares.left(), 899);
}

#[test]
fn threads_never_use_more_than_there_is() {
    const TOTAL: u64 = 100;
    let shares = Shares::new(TOTAL, 10);
    let in_use = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (mut share, in_use) = (shares.share(5), &in_use);
            scope.spawn(move || {
                let mut random = Random::new(number);
                let mut taken = Vec::new();
                for _ in 0..20_000 {
                    let amount = 1 + random.next_u64() % 30;
                    if share.take(amount) {
                        let before = in_use.fetch_add(amount, Ordering::AcqRel);
                        assert!(before + amount <= TOTAL, "{} are in use", before + amount);
                        taken.push(amount);
                    }
                    if taken.len() > 2 || random.percent(30) {
                        for amount in taken.drain(..) {
                            in_use.fetch_sub(amount, Ordering::AcqRel);
                            share.give(amount);
                        }
                    }
                    share.settle();
                }
                for amount in taken {
                    in_use.fetch_sub(amount, Ordering::AcqRel);
                    share.give(amount);
                }
            });
        }
    });
    assert_eq!((shares.left(), shares.short_count()), (TOTAL, 0));
}

#[test]
fn who_keeps_what_another_is_refused_sees_that_before_it_sleeps() {
    let shares = Shares::new(10, 2);
    let (mut sleeper, mut other) = (shares.share(10), shares.share(0));
    assert!(sleeper.take(10));
    sleeper.give(10);
    assert!(!sleeper.rest() && !sleeper.is_wanted(), "nobody is short");
    assert!(!other.take(1));
    assert!(sleeper.is_wanted() && !other.is_wanted());
    assert!(sleeper.rest() && !sleeper.is_wanted());
    assert!(other.take(1));
}

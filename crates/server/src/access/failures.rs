//! Logins that have failed, and users who have come in: whose next check waits, and what the log is
//! told of it.
//!
//! Invariant: what is remembered of failures and of who is proven has a bound.

use std::collections::BTreeMap;
use std::time::Duration;

use dafs_filer::Holder;
use dafs_types::Moment;

/// Failures of one holder, or of one user name tried by one holder.
#[derive(Clone, Copy, Debug, Default)]
struct Failed {
    count: u32,
    last: Moment,
}

impl Failed {
    /// When the next check may be made, if so many are `free`.
    fn due(&self, free: u32, longest: Duration) -> Moment {
        match self.count.checked_sub(free) {
            None => Moment(0),
            Some(over) => self.last.after(longest.min(FIRST_DELAY * 2u32.pow(over.min(16)))),
        }
    }

    pub fn note(&mut self, now: Moment) {
        self.count = self.count.saturating_add(1);
        self.last = now;
    }
}

/// What the log is told of: who makes many lines of one kind leaves none of another out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    /// Logins that are refused.
    Login,
    /// Connections that are refused, or give way.
    Connection,
}

/// Lines that the log has had of a holder within a minute.
#[derive(Clone, Copy, Debug)]
struct Told {
    since: Moment,
    count: u32,
    left_out: u32,
}

/// Who failed lately.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    pairs: BTreeMap<(Holder, Box<str>), Failed>,
    holders: BTreeMap<Holder, Failed>,
    /// When a user came in from a holder last.
    proven: BTreeMap<(Holder, Box<str>), Moment>,
    told: BTreeMap<(Line, Holder), Told>,
}

impl Failures {
    /// When a holder's check may be made.
    pub fn due(&self, holder: Holder, user: Option<&str>) -> Moment {
        if holder.is_superuser() {
            return Moment(0);
        }
        let pair = user.and_then(|user| self.pairs.get(&(holder, user.into())));
        let by_pair = pair.map_or(Moment(0), |pair| pair.due(PAIR_FREE, PAIR_DELAY_MAX));
        if self.is_proven(holder, user) {
            return by_pair;
        }
        let by_holder = self.holders.get(&holder);
        by_pair.max(by_holder.map_or(Moment(0), |own| own.due(HOLDER_FREE, HOLDER_DELAY_MAX)))
    }

    pub fn note(&mut self, holder: Holder, user: Option<&str>, now: Moment) {
        if let Some(user) = user {
            make_room(&mut self.pairs, |failed| failed.last);
            self.pairs.entry((holder, user.into())).or_default().note(now);
        }
        make_room(&mut self.holders, |failed| failed.last);
        self.holders.entry(holder).or_default().note(now);
    }

    /// A user has come in: what was mistyped before does not count, and what others behind the same
    /// holder try does not either from now on. What the holder tried with other names does.
    pub fn forgive(&mut self, holder: Holder, user: Option<&str>, now: Moment) {
        if let Some(user) = user {
            self.pairs.remove(&(holder, user.into()));
            make_room(&mut self.proven, |came_in| *came_in);
            self.proven.insert((holder, user.into()), now);
        }
    }

    /// Whether a user has lately come in from a holder.
    pub fn is_proven(&self, holder: Holder, user: Option<&str>) -> bool {
        user.is_some_and(|user| self.proven.contains_key(&(holder, user.into())))
    }

    /// Whether the log may have another line about a holder.
    pub fn may_tell(&mut self, line: Line, holder: Holder, now: Moment) -> bool {
        make_room(&mut self.told, |told| told.since);
        let key = (line, holder);
        let told = self.told.entry(key).or_insert(Told { since: now, count: 0, left_out: 0 });
        if told.count >= LINES_MAX {
            told.left_out += 1;
            return false;
        }
        told.count += 1;
        true
    }

    /// Forgets what is long ago. What the log was not told in the minute that has ended.
    pub fn tick(&mut self, now: Moment) -> Vec<(Holder, u32)> {
        let is_late = |failed: &Failed| now.since(failed.last) < FORGOTTEN_AFTER;
        self.pairs.retain(|_, failed| is_late(failed));
        self.holders.retain(|_, failed| is_late(failed));
        self.proven.retain(|_, came_in| now.since(*came_in) < PROVEN_FOR);
        let mut left_out = Vec::new();
        self.told.retain(|(_, holder), told| {
            let is_over = now.since(told.since) >= LINES_PERIOD;
            if is_over && told.left_out > 0 {
                left_out.push((*holder, told.left_out));
            }
            !is_over
        });
        left_out
    }
}

/// Forgets the oldest entry of a table that is full.
fn make_room<K: Ord + Clone, V>(table: &mut BTreeMap<K, V>, age: impl Fn(&V) -> Moment) {
    if table.len() < FAILURES_MAX {
        return;
    }
    let oldest = table.iter().min_by_key(|(_, value)| age(value)).map(|(key, _)| key.clone());
    if let Some(oldest) = oldest {
        table.remove(&oldest);
    }
}

/// Failures with one name that bring no delay yet: as many as one connection may have.
const PAIR_FREE: u32 = 3;
/// Failures with any names that bring none: behind one address there may be many people.
const HOLDER_FREE: u32 = 20;
/// The first delay; each failure doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// The longest, which must leave time to log in on a new connection.
const PAIR_DELAY_MAX: Duration = Duration::from_secs(8);
const HOLDER_DELAY_MAX: Duration = Duration::from_secs(2);
/// Failures count for so long.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(15 * 60);
/// For so long after a login other users' failures do not delay the same user from the same place.
const PROVEN_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// Entries of each table of failures, and of that of users who are proven.
const FAILURES_MAX: usize = 4096;
/// Lines in the log about one holder in a period; the rest is told as a number.
const LINES_MAX: u32 = 10;
const LINES_PERIOD: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000_000)
    }

    fn host(number: u8) -> Holder {
        Holder::at(Ipv4Addr::new(192, 0, 2, number).into())
    }

    #[test]
    fn guesses_are_slowed_for_who_makes_them_and_for_nobody_else() {
        let mut failures = Failures::default();
        for _ in 0..PAIR_FREE {
            assert!(failures.due(host(1), Some("ann")) <= at(0));
            failures.note(host(1), Some("ann"), at(0));
        }
        for _ in 0..10 {
            failures.note(host(1), Some("ann"), at(100));
        }
        assert_eq!(failures.due(host(1), Some("ann")), at(100).after(PAIR_DELAY_MAX));
        assert!(failures.due(host(2), Some("ann")) <= at(0), "she comes from elsewhere");
        assert!(failures.due(host(1), Some("bob")) <= at(0), "a neighbour of the guesser");
        failures.forgive(host(1), Some("ann"), at(100));
        assert!(failures.due(host(1), Some("ann")) <= at(0), "she is herself");
    }

    #[test]
    fn many_names_from_one_place_are_slowed_and_root_of_this_host_never_is() {
        let mut failures = Failures::default();
        for number in 0..100 {
            failures.note(host(1), Some(&format!("user{number}")), at(50));
            failures.note(Holder::User(0), Some("root"), at(50));
        }
        assert_eq!(failures.due(host(1), Some("new")), at(50).after(HOLDER_DELAY_MAX));
        assert_eq!(failures.due(host(1), None), at(50).after(HOLDER_DELAY_MAX), "tokens, too");
        assert_eq!(failures.due(Holder::User(0), Some("root")), Moment(0));
        failures.tick(at(50).after(FORGOTTEN_AFTER));
        assert_eq!(failures.due(host(1), Some("new")), Moment(0), "it is long ago");
    }

    #[test]
    fn who_has_lately_come_in_is_delayed_by_failures_with_their_own_name_alone() {
        let mut failures = Failures::default();
        failures.forgive(host(1), Some("ann"), at(0));
        for number in 0..100 {
            failures.note(host(1), Some(&format!("user{number}")), at(50));
        }
        assert_eq!(failures.due(host(1), Some("ann")), Moment(0));
        assert_eq!(failures.due(host(1), Some("bob")), at(50).after(HOLDER_DELAY_MAX));
        assert!(!failures.is_proven(host(2), Some("ann")), "she was not seen there");
        for _ in 0..10 {
            failures.note(host(1), Some("ann"), at(60));
        }
        assert_eq!(failures.due(host(1), Some("ann")), at(60).after(PAIR_DELAY_MAX));
        failures.tick(at(0).after(PROVEN_FOR));
        assert!(!failures.is_proven(host(1), Some("ann")), "it is long ago");
        for number in 0..2 * FAILURES_MAX as u64 {
            failures.forgive(host(1), Some(&number.to_string()), at(number));
        }
        assert_eq!(failures.proven.len(), FAILURES_MAX);
    }

    #[test]
    fn what_is_remembered_has_a_bound_and_the_newest_are_kept() {
        let mut failures = Failures::default();
        for number in 0..2 * FAILURES_MAX as u64 {
            failures.note(host(1), Some(&number.to_string()), at(number));
        }
        assert_eq!(failures.pairs.len(), FAILURES_MAX);
        let newest = (2 * FAILURES_MAX - 1).to_string();
        assert!(failures.pairs.contains_key(&(host(1), newest.into())));
    }

    #[test]
    fn the_log_hears_of_each_holder_now_and_then() {
        let mut failures = Failures::default();
        let told = (0..100).filter(|_| failures.may_tell(Line::Login, host(1), at(0))).count();
        assert_eq!(told, LINES_MAX as usize);
        assert!(failures.may_tell(Line::Login, host(2), at(0)));
        assert!(failures.may_tell(Line::Connection, host(1), at(60)));
        assert_eq!(failures.tick(at(59)), []);
        assert_eq!(failures.tick(at(60)), [(host(1), 100 - LINES_MAX)]);
        assert!(failures.may_tell(Line::Login, host(1), at(60)));
    }
}

//! Records failed and successful logins, to delay the next checks and to limit the log.
//!
//! Invariant: the tables of failures and of proven users have a limited number of entries.

use std::collections::BTreeMap;
use std::time::Duration;

use dafs_filer::Holder;
use dafs_types::Moment;

/// The failed logins of one holder (a local user or an address), or of one user name that the
/// holder has tried.
#[derive(Clone, Copy, Debug, Default)]
struct Failed {
    count: u32,
    last: Moment,
}

impl Failed {
    /// Returns the time at which the next check may run. The first `free` failures cause no delay.
    fn due(&self, free: u32, longest: Duration) -> Moment {
        match self.count.checked_sub(free) {
            None => Moment(0),
            Some(over) => self.last.after(longest.min(FIRST_DELAY * 2u32.pow(over.min(16)))),
        }
    }

    pub(crate) fn note(&mut self, now: Moment) {
        self.count = self.count.saturating_add(1);
        self.last = now;
    }
}

/// A kind of log line. Each kind has its own limit, so that many lines of one kind do not suppress
/// lines of another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogKind {
    /// Refused logins.
    Login,
    /// Connections that are refused or make room for others.
    Connection,
}

/// The number of lines logged about a holder (a local user or an address) in the current period.
#[derive(Clone, Copy, Debug)]
struct LogCount {
    since: Moment,
    count: u32,
    left_out: u32,
}

/// The recent failed logins, and the users that have recently logged in.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    pairs: BTreeMap<(Holder, Box<str>), Failed>,
    holders: BTreeMap<Holder, Failed>,
    /// The time of the last successful login, by holder (a local user or an address) and user.
    proven: BTreeMap<(Holder, Box<str>), Moment>,
    told: BTreeMap<(LogKind, Holder), LogCount>,
}

impl Failures {
    /// Returns the time at which the next login of a holder (a local user or an address), or of one
    /// user name from this holder, may be checked.
    pub(crate) fn due(&self, holder: Holder, user: Option<&str>) -> Moment {
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

    pub(crate) fn note(&mut self, holder: Holder, user: Option<&str>, now: Moment) {
        if let Some(user) = user {
            make_room(&mut self.pairs, |failed| failed.last);
            self.pairs.entry((holder, user.into())).or_default().note(now);
        }
        make_room(&mut self.holders, |failed| failed.last);
        self.holders.entry(holder).or_default().note(now);
    }

    /// Records that a user has logged in from a holder (a local user or an address). Clears the
    /// earlier failures with this user name. From now on, failures of other users of the same
    /// holder do not delay this user. The holder's failures with other user names still count.
    pub(crate) fn forgive(&mut self, holder: Holder, user: Option<&str>, now: Moment) {
        if let Some(user) = user {
            self.pairs.remove(&(holder, user.into()));
            make_room(&mut self.proven, |came_in| *came_in);
            self.proven.insert((holder, user.into()), now);
        }
    }

    /// Returns true if the user has logged in from this holder (a local user or an address) within
    /// [`PROVEN_FOR`].
    pub(crate) fn is_proven(&self, holder: Holder, user: Option<&str>) -> bool {
        user.is_some_and(|user| self.proven.contains_key(&(holder, user.into())))
    }

    /// Returns true if another line of this kind about a holder (a local user or an address) may be
    /// logged.
    pub(crate) fn may_log(&mut self, line: LogKind, holder: Holder, now: Moment) -> bool {
        make_room(&mut self.told, |told| told.since);
        let key = (line, holder);
        let told = self.told.entry(key).or_insert(LogCount { since: now, count: 0, left_out: 0 });
        if told.count >= LINES_MAX {
            told.left_out += 1;
            return false;
        }
        told.count += 1;
        true
    }

    /// Removes expired entries. Returns the number of log lines that were suppressed in the period
    /// that has ended, for each holder (a local user or an address).
    pub(crate) fn tick(&mut self, now: Moment) -> Vec<(Holder, u32)> {
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

/// Removes the oldest entry of a table if the table is full.
fn make_room<K: Ord + Clone, V>(table: &mut BTreeMap<K, V>, age: impl Fn(&V) -> Moment) {
    if table.len() < FAILURES_MAX {
        return;
    }
    let oldest = table.iter().min_by_key(|(_, value)| age(value)).map(|(key, _)| key.clone());
    if let Some(oldest) = oldest {
        table.remove(&oldest);
    }
}

/// The number of failed logins with the same user name, from the same local user or address, that
/// cause no delay. It equals the default of `AuthPolicy::attempts_max`, the limit for one
/// connection.
const PAIR_FREE: u32 = 3;
/// The number of failed logins of one holder (a local user or an address), with any user names,
/// that cause no delay. It is large because many people may share an address.
const HOLDER_FREE: u32 = 20;
/// The delay after the first failed login that exceeds the number of free failures. Each further
/// failure doubles the delay.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// The longest delay of checks for one user name of a holder (a local user or an address). It is
/// short enough to let a client log in on a new connection before its login times out.
const PAIR_DELAY_MAX: Duration = Duration::from_secs(8);
/// The longest delay of all checks of a holder (a local user or an address). It is short enough to
/// let a client log in on a new connection before its login times out.
const HOLDER_DELAY_MAX: Duration = Duration::from_secs(2);
/// The time after which a failure no longer counts.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(15 * 60);
/// The time after a successful login during which failed logins of other users from the same
/// address do not delay this user.
const PROVEN_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// The maximum number of entries of each of three tables: failures by user, failures by holder (a
/// local user or an address), and proven users.
const FAILURES_MAX: usize = 4096;
/// The maximum number of log lines of one kind, about one holder (a local user or an address), in
/// each `LINES_PERIOD`. Further lines are only counted.
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
        let told = (0..100).filter(|_| failures.may_log(LogKind::Login, host(1), at(0))).count();
        assert_eq!(told, LINES_MAX as usize);
        assert!(failures.may_log(LogKind::Login, host(2), at(0)));
        assert!(failures.may_log(LogKind::Connection, host(1), at(60)));
        assert_eq!(failures.tick(at(59)), []);
        assert_eq!(failures.tick(at(60)), [(host(1), 100 - LINES_MAX)]);
        assert!(failures.may_log(LogKind::Login, host(1), at(60)));
    }
}

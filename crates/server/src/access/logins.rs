//! Logins: passwords and tokens that are to be checked, and names that are to be looked up.
//!
//! Anybody can have a password checked, which takes memory and tens of milliseconds by design. So
//! these have threads of their own ([`crate::pool::jobs::LOGIN_THREADS`]): whoever reads and writes
//! waits for none of them. Who waits is bounded for each holder and for all; holders take turns,
//! and none has two checks at a time. Behind failures a holder's next check waits: by user name
//! and holder together after a few, so that nobody locks a user out from elsewhere, and by holder
//! alone after more, whatever names were tried.
//!
//! Many people may share an address, and one of them may guess. So a user who has come in from a
//! holder within [`PROVEN_FOR`] is proven there: only failures with that very name delay them, and
//! where a holder's checks find no more room, theirs take the place of one that is not proven.
//!
//! Invariant: every job that is taken in is given to the pool once, or its connection is gone, or
//! it is refused for one with a better claim; what is remembered of failures and of who is proven
//! has a bound.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use dafs_dat::EndpointId;
use dafs_filer::Holder;
use dafs_types::{Moment, Status};

use crate::channel::Channels;
use crate::pool::jobs::{Job, LOGIN_THREADS, Pool};

/// A check that somebody waits for.
struct Waiting {
    endpoint: EndpointId,
    /// As whom, where the request says it.
    user: Option<Box<str>>,
    job: Job,
}

/// A check that the pool has.
struct Running {
    endpoint: EndpointId,
    holder: Holder,
    user: Option<Box<str>>,
}

/// Everything that waits, and what is known of those who failed.
#[derive(Default)]
pub(crate) struct Logins {
    waiting: BTreeMap<Holder, VecDeque<Waiting>>,
    /// Whose turn it is next.
    turns: VecDeque<Holder>,
    count: usize,
    running: Vec<Running>,
    /// Names to be looked up for clients that are logged in; their credits bound them.
    lookups: VecDeque<Job>,
    lookups_running: usize,
    failures: Failures,
}

/// What became of a check that could not be taken in, or was put out.
#[derive(Debug, PartialEq, Eq)]
enum Placed {
    /// It waits.
    Waits,
    /// It waits, and this connection's check had to go for it.
    Instead(EndpointId),
    /// There is no room for it.
    Refused,
}

impl Logins {
    fn place(&mut self, holder: Holder, waiting: Waiting) -> Placed {
        let own = self.waiting.get(&holder).map_or(0, VecDeque::len);
        let mut placed = Placed::Waits;
        if own >= HOLDER_WAITING_MAX {
            let Some(out) = self.put_out_for(holder, &waiting) else { return Placed::Refused };
            placed = Placed::Instead(out);
        } else if self.count >= WAITING_MAX {
            let largest = self.waiting.iter().max_by_key(|(_, queue)| queue.len());
            let Some((&largest, queue)) = largest.filter(|(_, queue)| queue.len() > own + 1) else {
                return Placed::Refused;
            };
            if let Some(out) = queue.back() {
                placed = Placed::Instead(out.endpoint);
            }
            self.take(largest, |queue| queue.pop_back());
        }
        self.count += 1;
        let queue = self.waiting.entry(holder).or_default();
        queue.push_back(waiting);
        if queue.len() == 1 {
            self.turns.push_back(holder);
        }
        placed
    }

    /// Makes room among a holder's own checks for one of a user who is proven there: the youngest
    /// goes that is not proven, or the youngest of the user who has the most.
    fn put_out_for(&mut self, holder: Holder, waiting: &Waiting) -> Option<EndpointId> {
        let is_proven =
            |waiting: &Waiting| self.failures.is_proven(holder, waiting.user.as_deref());
        if !is_proven(waiting) {
            return None;
        }
        let queue = self.waiting.get(&holder)?;
        let place = queue.iter().rposition(|other| !is_proven(other)).or_else(|| {
            let count_of =
                |user: &Option<Box<str>>| queue.iter().filter(|w| w.user == *user).count();
            let most = queue.iter().map(|other| count_of(&other.user)).max()?;
            let has_most = |other: &Waiting| count_of(&other.user) == most;
            let is_more = most > count_of(&waiting.user) + 1;
            queue.iter().rposition(has_most).filter(|_| is_more)
        })?;
        self.take(holder, |queue| queue.remove(place)).map(|out| out.endpoint)
    }

    /// Takes something out of a holder's queue.
    fn take(
        &mut self,
        holder: Holder,
        choose: impl FnOnce(&mut VecDeque<Waiting>) -> Option<Waiting>,
    ) -> Option<Waiting> {
        let queue = self.waiting.get_mut(&holder)?;
        let taken = choose(queue);
        self.count -= usize::from(taken.is_some());
        if queue.is_empty() {
            self.waiting.remove(&holder);
            self.turns.retain(|other| *other != holder);
        }
        taken
    }

    /// The next job for the pool, if it may have one.
    fn next(&mut self, now: Moment) -> Option<Job> {
        if self.running.len() + self.lookups_running >= LOGIN_THREADS {
            return None;
        }
        if self.lookups_running == 0
            && let Some(job) = self.lookups.pop_front()
        {
            self.lookups_running += 1;
            return Some(job);
        }
        for _ in 0..self.turns.len() {
            let holder = self.turns.pop_front()?;
            self.turns.push_back(holder);
            if self.running.iter().any(|running| running.holder == holder) {
                continue;
            }
            let is_due =
                |waiting: &Waiting| self.failures.due(holder, waiting.user.as_deref()) <= now;
            let place = self.waiting.get(&holder).and_then(|queue| queue.iter().position(is_due));
            let Some(place) = place else { continue };
            let chosen = self.take(holder, |queue| queue.remove(place));
            if let Some(Waiting { endpoint, user, job }) = chosen {
                self.running.push(Running { endpoint, holder, user });
                return Some(job);
            }
        }
        None
    }

    /// Whether the log may have another line about somebody who was refused something.
    pub fn may_tell(&mut self, line: Line, holder: Holder, now: Moment) -> bool {
        self.failures.may_tell(line, holder, now)
    }

    /// Has a password or token checked, as soon as may be. Whoever finds no room is to be told to
    /// try later: this connection.
    pub fn submit(
        &mut self,
        channels: &Channels,
        (endpoint, user): (EndpointId, Option<&str>),
        job: Job,
        now: Moment,
    ) -> Option<EndpointId> {
        let waiting = Waiting { endpoint, user: user.map(Into::into), job };
        let refused = match self.place(channels.holder_of(endpoint), waiting) {
            Placed::Waits => return None,
            Placed::Instead(other) => other,
            Placed::Refused => endpoint,
        };
        let holder = channels.holder_of(refused);
        if self.failures.may_tell(Line::Login, holder, now) {
            tracing::warn!(from = %holder, "too many logins wait: one is refused");
        }
        Some(refused)
    }

    /// Has a name looked up for a client that is logged in.
    pub fn submit_lookup(&mut self, job: Job) {
        self.lookups.push_back(job);
    }

    /// A lookup has come back.
    pub fn end_lookup(&mut self) {
        self.lookups_running -= 1;
    }

    /// A check has come back, and the login with it has failed or not. Whether that is to be
    /// logged, besides what is logged here.
    pub fn note(
        &mut self,
        channels: &Channels,
        endpoint: EndpointId,
        failed: Option<Status>,
        now: Moment,
    ) -> bool {
        let Some(place) = self.running.iter().position(|running| running.endpoint == endpoint)
        else {
            return false;
        };
        let Running { holder, user, .. } = self.running.swap_remove(place);
        let is_told = match failed {
            None => {
                self.failures.forgive(holder, user.as_deref(), now);
                false
            }
            // Our own fault says nothing of who asked.
            Some(Status::ServerFault) => false,
            Some(_) => {
                self.failures.note(holder, user.as_deref(), now);
                self.failures.may_tell(Line::Login, holder, now)
            }
        };
        if let (true, Some(user)) = (is_told, user.as_deref()) {
            // The address comes first: nothing of what the peer has said stands before it.
            let from = channels.origin_of(endpoint);
            // Administrators look for this name (docs/operating/access.md), wherever this is.
            tracing::warn!(target: "dafs_server::logins", %from, user, "login refused");
        }
        is_told
    }

    /// Gives the pool what it may have.
    pub fn give(&mut self, pool: &mut Pool, now: Moment) {
        while let Some(job) = self.next(now) {
            pool.submit_login(job);
        }
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Moment) {
        for (holder, count) in self.failures.tick(now) {
            tracing::warn!(from = %holder, count, "refused besides what is told above");
        }
    }

    /// A connection is gone: what it waited for need not be done.
    pub fn forget(&mut self, endpoint: EndpointId) {
        let is_its = |waiting: &Waiting| waiting.endpoint == endpoint;
        let holders = self.waiting.iter();
        let found =
            holders.filter(|(_, queue)| queue.iter().any(is_its)).map(|(holder, _)| *holder);
        for holder in found.collect::<Vec<_>>() {
            while let Some(place) =
                self.waiting.get(&holder).and_then(|queue| queue.iter().position(is_its))
            {
                self.take(holder, |queue| queue.remove(place));
            }
        }
    }
}

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

    fn note(&mut self, now: Moment) {
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
struct Failures {
    pairs: BTreeMap<(Holder, Box<str>), Failed>,
    holders: BTreeMap<Holder, Failed>,
    /// When a user came in from a holder last.
    proven: BTreeMap<(Holder, Box<str>), Moment>,
    told: BTreeMap<(Line, Holder), Told>,
}

impl Failures {
    /// When a holder's check may be made.
    fn due(&self, holder: Holder, user: Option<&str>) -> Moment {
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

    fn note(&mut self, holder: Holder, user: Option<&str>, now: Moment) {
        if let Some(user) = user {
            make_room(&mut self.pairs, |failed| failed.last);
            self.pairs.entry((holder, user.into())).or_default().note(now);
        }
        make_room(&mut self.holders, |failed| failed.last);
        self.holders.entry(holder).or_default().note(now);
    }

    /// A user has come in: what was mistyped before does not count, and what others behind the same
    /// holder try does not either from now on. What the holder tried with other names does.
    fn forgive(&mut self, holder: Holder, user: Option<&str>, now: Moment) {
        if let Some(user) = user {
            self.pairs.remove(&(holder, user.into()));
            make_room(&mut self.proven, |came_in| *came_in);
            self.proven.insert((holder, user.into()), now);
        }
    }

    /// Whether a user has lately come in from a holder.
    fn is_proven(&self, holder: Holder, user: Option<&str>) -> bool {
        user.is_some_and(|user| self.proven.contains_key(&(holder, user.into())))
    }

    /// Whether the log may have another line about a holder.
    fn may_tell(&mut self, line: Line, holder: Holder, now: Moment) -> bool {
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
    fn tick(&mut self, now: Moment) -> Vec<(Holder, u32)> {
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

/// Checks of all holders that wait.
const WAITING_MAX: usize = 512;
/// Checks of one holder that wait.
const HOLDER_WAITING_MAX: usize = 64;
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

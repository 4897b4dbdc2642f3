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
//! holder lately is proven there ([`crate::access::failures`]): only failures with that very name
//! delay them, and where a holder's checks find no more room, theirs take the place of one that is
//! not proven.
//!
//! Invariant: every job that is taken in is given to the pool once, or its connection is gone, or
//! it is refused for one with a better claim; what is remembered of failures and of who is proven
//! has a bound.

use std::collections::{BTreeMap, VecDeque};

use dafs_dat::EndpointId;
use dafs_filer::Holder;
use dafs_types::{Moment, Status};

use crate::access::failures::{Failures, Line};
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

/// Checks of all holders that wait.
const WAITING_MAX: usize = 512;
/// Checks of one holder that wait.
const HOLDER_WAITING_MAX: usize = 64;

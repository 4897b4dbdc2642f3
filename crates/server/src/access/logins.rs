//! Queues password checks, token checks and name lookups for the worker pool.
//!
//! Any client can make the server check a password, which by design takes memory and tens of
//! milliseconds. So the checks run on their own worker threads
//! ([`crate::pool::jobs::LOGIN_THREADS`]), and reads and writes never wait for a check. The number
//! of waiting checks is limited in total and for each holder (a user of this host, or a network
//! address). Holders take turns, and a holder has at most one check running. After failed logins
//! the holder's next check is delayed. A few failures delay only checks of that holder for that
//! user name, so that an attacker on another host cannot lock the user out. More failures delay all
//! checks of the holder, for any user name.
//!
//! Many people may share an address, and one of them may guess passwords. So a user who has
//! recently logged in from a holder counts as proven there ([`crate::access::failures`]). Only
//! failures with the user's own name delay a proven user. If the queue of a holder is full, the
//! check of a proven user replaces the check of an unproven user.
//!
//! Invariants:
//! - Every accepted job is given to the pool once, or dropped because its connection has ended, or
//!   dropped to make room for a proven user.
//! - The tables of failures and of proven users have a limited number of entries.

use std::collections::{BTreeMap, VecDeque};

use dafs_dat::EndpointId;
use dafs_filer::Holder;
use dafs_types::{Moment, Status};

use crate::access::failures::{Failures, LogKind};
use crate::channel::Channels;
use crate::pool::jobs::{Job, LOGIN_THREADS, Pool};

/// A check of a password or token that is queued for the pool.
struct Waiting {
    endpoint: EndpointId,
    /// The user name in the request. `None` if the request contains none.
    user: Option<Box<str>>,
    job: Job,
}

/// A check that a pool thread executes.
struct Running {
    endpoint: EndpointId,
    holder: Holder,
    user: Option<Box<str>>,
}

/// The checks that wait for a pool thread, and the record of failed logins.
#[derive(Default)]
pub(crate) struct Logins {
    waiting: BTreeMap<Holder, VecDeque<Waiting>>,
    /// The holders (local users or addresses) with waiting checks, in the order of their turns.
    turns: VecDeque<Holder>,
    count: usize,
    running: Vec<Running>,
    /// Lookups of user names for clients that are logged in. The number of lookups is limited by
    /// the clients' credits.
    lookups: VecDeque<Job>,
    lookups_running: usize,
    failures: Failures,
}

/// The result of queueing a check.
#[derive(Debug, PartialEq, Eq)]
enum QueueResult {
    /// The check was queued.
    Waits,
    /// The check was queued, and the waiting check of this other connection was dropped to make
    /// room.
    Instead(EndpointId),
    /// The queue is full, so the check was refused.
    Refused,
}

impl Logins {
    fn place(&mut self, holder: Holder, waiting: Waiting) -> QueueResult {
        let own = self.waiting.get(&holder).map_or(0, VecDeque::len);
        let mut placed = QueueResult::Waits;
        if own >= HOLDER_WAITING_MAX {
            let Some(out) = self.evict_for(holder, &waiting) else { return QueueResult::Refused };
            placed = QueueResult::Instead(out);
        } else if self.count >= WAITING_MAX {
            let largest = self.waiting.iter().max_by_key(|(_, queue)| queue.len());
            let Some((&largest, queue)) = largest.filter(|(_, queue)| queue.len() > own + 1) else {
                return QueueResult::Refused;
            };
            if let Some(out) = queue.back() {
                placed = QueueResult::Instead(out.endpoint);
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

    /// Makes room in the queue of a holder (a local user or an address) for a check of a user who
    /// has recently logged in. Drops the youngest check of a user who has not. If there is none,
    /// drops the youngest check of the user with the most waiting checks. Returns the connection of
    /// the dropped check.
    fn evict_for(&mut self, holder: Holder, waiting: &Waiting) -> Option<EndpointId> {
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

    /// Removes and returns a check from the queue of a holder (a local user or an address).
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

    /// Removes and returns the next job for the pool. `None` if no job is due or all login threads
    /// are busy.
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

    /// Returns true if another line of this kind about a holder (a local user or an address) may be
    /// logged.
    pub(crate) fn may_log(&mut self, line: LogKind, holder: Holder, now: Moment) -> bool {
        self.failures.may_log(line, holder, now)
    }

    /// Queues the check of a password or token. If the queue is full, returns the connection whose
    /// check was refused; the caller must reply to its client that it should try again later.
    pub(crate) fn submit(
        &mut self,
        channels: &Channels,
        (endpoint, user): (EndpointId, Option<&str>),
        job: Job,
        now: Moment,
    ) -> Option<EndpointId> {
        let waiting = Waiting { endpoint, user: user.map(Into::into), job };
        let refused = match self.place(channels.holder_of(endpoint), waiting) {
            QueueResult::Waits => return None,
            QueueResult::Instead(other) => other,
            QueueResult::Refused => endpoint,
        };
        let holder = channels.holder_of(refused);
        if self.failures.may_log(LogKind::Login, holder, now) {
            tracing::warn!(from = %holder, "too many logins are waiting; one is refused");
        }
        Some(refused)
    }

    /// Queues the lookup of a name for a client that is logged in.
    pub(crate) fn submit_lookup(&mut self, job: Job) {
        self.lookups.push_back(job);
    }

    /// Records that a name lookup has finished, so that the next lookup can start.
    pub(crate) fn end_lookup(&mut self) {
        self.lookups_running -= 1;
    }

    /// Records the end of a check and the status of its login. Returns true if the caller must log
    /// why a login has failed.
    pub(crate) fn note(
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
            // A fault of the server does not count as a failure of the client.
            Some(Status::ServerFault) => false,
            Some(_) => {
                self.failures.note(holder, user.as_deref(), now);
                self.failures.may_log(LogKind::Login, holder, now)
            }
        };
        if let (true, Some(user)) = (is_told, user.as_deref()) {
            // The address comes first in the line, before any text that the peer has sent.
            let from = channels.origin_of(endpoint);
            // The target is documented (docs/operating/access.md), so it must stay the same when
            // this module moves.
            tracing::warn!(target: "dafs_server::logins", %from, user, "login refused");
        }
        is_told
    }

    /// Gives jobs that are due to the pool, as long as login threads are free.
    pub(crate) fn give(&mut self, pool: &mut Pool, now: Moment) {
        while let Some(job) = self.next(now) {
            pool.submit_login(job);
        }
    }

    /// Removes expired failures, and logs how many lines about each holder (a local user or an
    /// address) were suppressed.
    pub(crate) fn tick(&mut self, now: Moment) {
        for (holder, count) in self.failures.tick(now) {
            tracing::warn!(from = %holder, count, "more refusals than were logged");
        }
    }

    /// Drops the checks of a connection that has ended.
    pub(crate) fn forget(&mut self, endpoint: EndpointId) {
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

/// The maximum number of waiting checks in total.
const WAITING_MAX: usize = 512;
/// The maximum number of waiting checks of one holder (a local user or an address).
const HOLDER_WAITING_MAX: usize = 64;

//! Checks on their way to the pool and back.

use dafs_dat::EndpointId;
use dafs_filer::Holder;
use dafs_types::Status;

use super::{Line, Placed, Running, Waiting};
use crate::jobs::Job;
use crate::reactor::Reactor;

impl Reactor {
    /// Has a password or token checked, as soon as may be. Whoever finds no room is told to try
    /// later.
    pub(crate) fn submit_login(&mut self, endpoint: EndpointId, user: Option<&str>, job: Job) {
        let holder = self.holder_of(endpoint);
        let waiting = Waiting { endpoint, user: user.map(Into::into), job };
        let refused = match self.logins.place(holder, waiting) {
            Placed::Waits => None,
            Placed::Instead(other) => Some(other),
            Placed::Refused => Some(endpoint),
        };
        if let Some(refused) = refused {
            let holder = self.holder_of(refused);
            if self.logins.failures.may_tell(Line::Login, holder, self.now) {
                tracing::warn!(from = %holder, "too many logins wait: one is refused");
            }
            self.end_login(refused, Err(Status::Delay));
        }
        self.pump_logins();
    }

    /// Has a name looked up for a client that is logged in.
    pub(crate) fn submit_lookup(&mut self, job: Job) {
        self.logins.lookups.push_back(job);
        self.pump_logins();
    }

    /// A lookup has come back.
    pub(crate) fn end_lookup(&mut self) {
        self.logins.lookups_running -= 1;
        self.pump_logins();
    }

    /// A check has come back, and the login with it has failed or not. Whether that is to be
    /// logged, besides what is logged here.
    pub(crate) fn note_login(&mut self, endpoint: EndpointId, failed: Option<Status>) -> bool {
        let running = &mut self.logins.running;
        let Some(place) = running.iter().position(|running| running.endpoint == endpoint) else {
            return false;
        };
        let Running { holder, user, .. } = running.swap_remove(place);
        let failures = &mut self.logins.failures;
        let is_told = match failed {
            None => {
                failures.forgive(holder, user.as_deref(), self.now);
                false
            }
            // Our own fault says nothing of who asked.
            Some(Status::ServerFault) => false,
            Some(_) => {
                failures.note(holder, user.as_deref(), self.now);
                failures.may_tell(Line::Login, holder, self.now)
            }
        };
        if let (true, Some(user)) = (is_told, user.as_deref()) {
            // The address comes first: nothing of what the peer has said stands before it.
            let from = self.origin_of(endpoint);
            // Administrators look for this name (docs/operating/access.md), wherever this is.
            tracing::warn!(target: "dafs_server::logins", %from, user, "login refused");
        }
        self.pump_logins();
        is_told
    }

    /// Where a connection comes from, for the log.
    pub(crate) fn origin_of(&self, endpoint: EndpointId) -> String {
        let facts = self.channels.get(endpoint).map(|channel| &channel.peer);
        match facts.map(|facts| (facts.address, facts.holder())) {
            Some((Some(address), _)) => address.to_string(),
            Some((None, holder)) => holder.to_string(),
            None => "a connection that has ended".to_owned(),
        }
    }

    /// Gives the pool what it may have.
    pub(crate) fn pump_logins(&mut self) {
        while let Some(job) = self.logins.next(self.now) {
            self.pool.submit_login(job);
        }
    }

    /// Lets time pass for logins.
    pub(crate) fn tick_logins(&mut self) {
        for (holder, count) in self.logins.failures.tick(self.now) {
            tracing::warn!(from = %holder, count, "refused besides what is told above");
        }
        self.pump_logins();
    }

    /// Whom a connection's limits are counted for.
    pub(crate) fn holder_of(&self, endpoint: EndpointId) -> Holder {
        self.channels.get(endpoint).map_or(Holder::Elsewhere, |channel| channel.peer.holder())
    }
}

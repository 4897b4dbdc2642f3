//! Requests that wait until a delegation is returned, or for a reply from its holder.
//!
//! Invariant: every request here is known to the filer, or waits with a deadline for a reply from a
//! client.

use std::time::Duration;

use dafs_dat::EndpointId;
use dafs_filer::{Filer, WaiterId};
use dafs_types::{Moment, QuickMap};

use crate::reply_to::ReplyTo;
use crate::requests::set_aside::SetAside;

/// All requests that wait for the return of delegations.
#[derive(Default)]
pub(super) struct HeldRequests {
    all: QuickMap<WaiterId, HeldRequest>,
}

/// A request that waits for the return of a delegation.
struct HeldRequest {
    to: ReplyTo,
    kept: SetAside,
    /// The deadline for the reply to BC_GETATTR. `None` if the request does not wait for such a
    /// reply.
    asks_until: Option<Moment>,
}

impl HeldRequests {
    /// Adds a request that waits for the end of a delegation.
    pub(super) fn hold(&mut self, waiter: WaiterId, to: ReplyTo, kept: SetAside) {
        self.all.insert(waiter, HeldRequest { to, kept, asks_until: None });
    }

    /// Adds a request that waits until the holder of a delegation reports the file's attributes.
    pub(super) fn hold_until_told(
        &mut self,
        waiter: WaiterId,
        to: ReplyTo,
        kept: SetAside,
        now: Moment,
    ) {
        let asks_until = Some(now.after(ASK_PATIENCE));
        self.all.insert(waiter, HeldRequest { to, kept, asks_until });
    }

    /// Removes and returns a request that no longer has to wait.
    pub(super) fn take(&mut self, waiter: WaiterId) -> Option<(ReplyTo, SetAside)> {
        self.all.remove(&waiter).map(|held| (held.to, held.kept))
    }

    /// Returns the requests whose deadline has passed.
    pub(super) fn overdue(&self, now: Moment) -> Vec<WaiterId> {
        let is_overdue = |held: &HeldRequest| held.asks_until.is_some_and(|until| until <= now);
        let held = self.all.iter().filter(|(_, held)| is_overdue(held));
        held.map(|(waiter, _)| *waiter).collect()
    }

    /// Removes the requests of a connection that has ended. Returns the destinations of their
    /// replies.
    pub(super) fn forget(&mut self, filer: &mut Filer, endpoint: EndpointId) -> Vec<ReplyTo> {
        let held = self.all.iter().filter(|(_, held)| held.to.endpoint == endpoint);
        let waiters: Vec<WaiterId> = held.map(|(waiter, _)| *waiter).collect();
        let mut left = Vec::new();
        for waiter in waiters {
            filer.abandon_waiter(waiter);
            left.extend(self.take(waiter).map(|(to, _)| to));
        }
        left
    }

    /// Returns the number of waiting requests.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }
}

/// The time that the holder of a delegation has to report attributes before the delegation is
/// recalled.
const ASK_PATIENCE: Duration = Duration::from_secs(5);

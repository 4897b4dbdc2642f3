//! Requests that wait for delegations.
//!
//! Invariant: every request here is known to the filer, or waits for a reply with a deadline.

use std::time::Duration;

use dafs_dat::EndpointId;
use dafs_filer::{Filer, WaiterId};
use dafs_types::{Moment, QuickMap};

use crate::reply_to::ReplyTo;
use crate::requests::set_aside::SetAside;

/// All requests that wait for delegations.
#[derive(Default)]
pub(super) struct HeldRequests {
    all: QuickMap<WaiterId, HeldRequest>,
}

/// A waiting request.
struct HeldRequest {
    to: ReplyTo,
    kept: SetAside,
    /// The deadline for the reply to BC_GETATTR, if the request waits for one.
    asks_until: Option<Moment>,
}

impl HeldRequests {
    /// Adds a request that waits for the end of a delegation.
    pub(super) fn hold(&mut self, waiter: WaiterId, to: ReplyTo, kept: SetAside) {
        self.all.insert(waiter, HeldRequest { to, kept, asks_until: None });
    }

    /// Adds a request that waits for attributes from the holder of a delegation.
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

    /// Takes a request that need not wait any more.
    pub(super) fn take(&mut self, waiter: WaiterId) -> Option<(ReplyTo, SetAside)> {
        self.all.remove(&waiter).map(|held| (held.to, held.kept))
    }

    /// The requests whose deadline has passed.
    pub(super) fn overdue(&self, now: Moment) -> Vec<WaiterId> {
        let is_overdue = |held: &HeldRequest| held.asks_until.is_some_and(|until| until <= now);
        let held = self.all.iter().filter(|(_, held)| is_overdue(held));
        held.map(|(waiter, _)| *waiter).collect()
    }

    /// Drops the requests of a connection that has ended.
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

    /// The number of waiting requests.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }
}

/// How long a holder may take to report attributes before its delegation is recalled.
const ASK_PATIENCE: Duration = Duration::from_secs(5);

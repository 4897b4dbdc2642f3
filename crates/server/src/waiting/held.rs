//! Requests that wait for delegations.
//!
//! Invariant: every request here is known to the filer, or is a question that has a deadline.

use std::time::Duration;

use dafs_dat::EndpointId;
use dafs_filer::{Filer, WaiterId};
use dafs_types::{Moment, QuickMap};

use crate::reply_to::ReplyTo;
use crate::requests::set_aside::SetAside;

/// All of them.
#[derive(Default)]
pub(super) struct HeldRequests {
    all: QuickMap<WaiterId, HeldRequest>,
}

/// A request that waits.
struct HeldRequest {
    to: ReplyTo,
    kept: SetAside,
    /// It waits for an answer to BC_GETATTR, until then.
    asks_until: Option<Moment>,
}

impl HeldRequests {
    /// A request waits until a delegation has ended.
    pub fn hold(&mut self, waiter: WaiterId, to: ReplyTo, kept: SetAside) {
        self.all.insert(waiter, HeldRequest { to, kept, asks_until: None });
    }

    /// A request waits for what the holder of a delegation says.
    pub fn hold_until_told(&mut self, waiter: WaiterId, to: ReplyTo, kept: SetAside, now: Moment) {
        let asks_until = Some(now.after(ASK_PATIENCE));
        self.all.insert(waiter, HeldRequest { to, kept, asks_until });
    }

    /// A request need not wait any more.
    pub fn take(&mut self, waiter: WaiterId) -> Option<(ReplyTo, SetAside)> {
        self.all.remove(&waiter).map(|held| (held.to, held.kept))
    }

    /// Those whose question has stood for too long.
    pub fn overdue(&self, now: Moment) -> Vec<WaiterId> {
        let is_overdue = |held: &HeldRequest| held.asks_until.is_some_and(|until| until <= now);
        let held = self.all.iter().filter(|(_, held)| is_overdue(held));
        held.map(|(waiter, _)| *waiter).collect()
    }

    /// A connection is gone: what came over it waits no longer.
    pub fn forget(&mut self, filer: &mut Filer, endpoint: EndpointId) -> Vec<ReplyTo> {
        let held = self.all.iter().filter(|(_, held)| held.to.endpoint == endpoint);
        let waiters: Vec<WaiterId> = held.map(|(waiter, _)| *waiter).collect();
        let mut left = Vec::new();
        for waiter in waiters {
            filer.abandon_waiter(waiter);
            left.extend(self.take(waiter).map(|(to, _)| to));
        }
        left
    }

    /// Requests that wait.
    pub fn count(&self) -> usize {
        self.all.len()
    }
}

/// How long a holder may take to tell attributes before its delegation is called back.
const ASK_PATIENCE: Duration = Duration::from_secs(5);

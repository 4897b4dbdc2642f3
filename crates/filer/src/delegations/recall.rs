//! Detects conflicts, recalls delegations, and parks requests until recalls end.
//!
//! Invariant: a parked request waits for at least one delegation that is being recalled or waits
//! for its restarted holder. In both cases a timer ends the wait.

use dafs_types::{ClientId, Moment, ShareAccess, ShareDeny, StateId};

use super::table::{DelegationTable, Waiter};
use super::{
    DelegationAction, DelegationDecision, DelegationKind, DelegationPhase, FileOperation,
    RecallOutcome, WaiterId,
};
use crate::FileKey;

impl FileOperation {
    /// Returns true if the operation conflicts with another client's delegation of this kind.
    pub(super) const fn conflicts(self, kind: DelegationKind) -> bool {
        match kind {
            DelegationKind::Write => true,
            DelegationKind::Read => match self {
                // The holder may have opened the file for reading without a request to the server,
                // so an open that denies reads conflicts.
                Self::Open { access, deny, .. } => {
                    !matches!(access, ShareAccess::Read)
                        || matches!(deny, ShareDeny::Read | ShareDeny::Both)
                }
                Self::Lock { exclusive } => exclusive,
                Self::Read | Self::GetAttributes { .. } => false,
                Self::Write
                | Self::SetAttributes { .. }
                | Self::Remove
                | Self::Rename
                | Self::Link => true,
            },
        }
    }

    const fn truncates(self) -> bool {
        match self {
            Self::Open { truncate, .. } | Self::SetAttributes { truncate } => truncate,
            Self::Read
            | Self::Write
            | Self::GetAttributes { .. }
            | Self::Remove
            | Self::Rename
            | Self::Link
            | Self::Lock { .. } => false,
        }
    }
}

impl DelegationTable {
    /// Decides whether a request may access a file. `actor` is the client of the request, or `None`
    /// if the caller is not a client. `waiter` is recorded only if the decision is `Wait`.
    #[inline]
    pub fn check(
        &mut self,
        file: FileKey,
        actor: Option<ClientId>,
        operation: FileOperation,
        waiter: WaiterId,
        now: Moment,
    ) -> DelegationDecision {
        if self.is_idle() {
            return DelegationDecision::Proceed;
        }
        self.judge(file, Waiter { id: waiter, actor, operation }, now)
    }

    fn judge(&mut self, file: FileKey, waiter: Waiter, now: Moment) -> DelegationDecision {
        let in_the_way = self.in_the_way(file, &waiter);
        let Some(&first) = in_the_way.first() else { return DelegationDecision::Proceed };
        let holder = self.slots.get(first);
        // Only a write delegation conflicts with reading attributes, and a file has at most one
        // write delegation.
        if waiter.operation == (FileOperation::GetAttributes { may_ask: true })
            && !matches!(holder.phase, DelegationPhase::Awaiting { .. })
        {
            self.counters.asked += 1;
            let (client, handle) = (holder.client, holder.handle);
            return DelegationDecision::AskAttributes { client, handle };
        }
        for index in in_the_way {
            if self.slots.get(index).phase == DelegationPhase::Granted {
                self.begin_recall(index, waiter.operation.truncates(), now);
                self.send_recall(index);
            }
        }
        self.park(file, waiter)
    }

    fn park(&mut self, file: FileKey, waiter: Waiter) -> DelegationDecision {
        debug_assert!(!self.waiters.contains_key(&waiter.id), "a waiter is parked once");
        if self.waiters.len() >= self.policy.waiters_max as usize {
            self.counters.delayed += 1;
            return DelegationDecision::Delay;
        }
        self.waiters.insert(waiter.id, file);
        self.files.entry(file).or_default().waiters.push(waiter);
        self.counters.parked += 1;
        DelegationDecision::Wait
    }

    fn in_the_way(&self, file: FileKey, waiter: &Waiter) -> Vec<u32> {
        let Some(delegated) = self.files.get(&file) else { return Vec::new() };
        let holders = delegated.holders.iter().copied();
        holders.filter(|&index| self.is_in_the_way(index, waiter)).collect()
    }

    fn is_in_the_way(&self, index: u32, waiter: &Waiter) -> bool {
        let holder = self.slots.get(index);
        Some(holder.client) != waiter.actor && waiter.operation.conflicts(holder.kind)
    }

    /// Starts the recall of a delegation, and sets its deadline.
    pub(super) fn begin_recall(&mut self, index: u32, truncate: bool, now: Moment) {
        let deadline = now.after(self.policy.recall_timeout);
        let delegation = self.slots.get_mut(index);
        delegation.phase = DelegationPhase::Recalling { deadline };
        delegation.truncate = truncate;
        delegation.retries = false;
        self.set_timer(index, Some(deadline));
        self.counters.recalled += 1;
    }

    /// Recalls a delegation although no request waits for its return. Has no effect if the
    /// delegation is already being recalled or has ended.
    pub fn recall(&mut self, client: ClientId, state_id: StateId, now: Moment) {
        if let Ok(index) = self.slots.find(client, state_id)
            && self.slots.get(index).phase == DelegationPhase::Granted
        {
            self.begin_recall(index, false, now);
            self.send_recall(index);
        }
    }

    fn send_recall(&mut self, index: u32) {
        let delegation = self.slots.get(index);
        self.actions.push_back(DelegationAction::Recall {
            client: delegation.client,
            handle: delegation.handle,
            state_id: self.slots.state_id(index),
            truncate: delegation.truncate,
        });
    }

    /// Reports the result of a BC_RECALL. If the recall did not reach the client, it is sent again
    /// after [`super::DelegationPolicy::recall_retry`], or as soon as the client can be reached
    /// again.
    pub fn recall_done(
        &mut self,
        client: ClientId,
        state_id: StateId,
        answer: RecallOutcome,
        now: Moment,
    ) {
        let Ok(index) = self.slots.find(client, state_id) else { return };
        let again = match answer {
            RecallOutcome::Accepted => return,
            RecallOutcome::Refused | RecallOutcome::Undelivered => {
                now.after(self.policy.recall_retry)
            }
        };
        let delegation = self.slots.get_mut(index);
        if let DelegationPhase::Recalling { deadline } = delegation.phase {
            delegation.retries = true;
            self.set_timer(index, Some(again.min(deadline)));
        }
    }

    /// Reports that a client can be reached again. The recalls that did not reach this client are
    /// sent now.
    pub fn can_be_reached(&mut self, client: ClientId) {
        for index in self.of_client(client, |delegation| delegation.retries) {
            self.recall_again(index);
        }
    }

    fn recall_again(&mut self, index: u32) {
        let delegation = self.slots.get_mut(index);
        delegation.retries = false;
        if let DelegationPhase::Recalling { deadline } = delegation.phase {
            self.set_timer(index, Some(deadline));
            self.send_recall(index);
            self.counters.retried += 1;
        }
    }

    /// Returns the time at which the next timer expires and [`DelegationTable::tick`] must be
    /// called. `None` if no timer is running.
    #[must_use]
    pub fn next_timer(&self) -> Option<Moment> {
        self.timers.first().map(|&(when, _)| when)
    }

    /// Handles expired timers: retries recalls, revokes delegations, and drops delegations that
    /// have waited too long for a restarted client.
    pub fn tick(&mut self, now: Moment) {
        while let Some(&(when, index)) = self.timers.first()
            && when <= now
        {
            let delegation = self.slots.get(index);
            match delegation.phase {
                DelegationPhase::Recalling { deadline } if deadline <= now => {
                    self.revoke(index, now);
                }
                DelegationPhase::Recalling { .. } => self.recall_again(index),
                DelegationPhase::Awaiting { .. } => self.end(index, now),
                DelegationPhase::Granted | DelegationPhase::Revoked => self.set_timer(index, None),
            }
        }
        self.quiet.expire(now);
    }

    /// Removes a parked request that will not be executed, because its session has ended or it got
    /// the reply DELAY.
    pub fn abandon(&mut self, waiter: WaiterId) {
        let resumed = DelegationAction::Resume { waiter };
        self.actions.retain(|action| *action != resumed);
        let Some(file) = self.waiters.remove(&waiter) else { return };
        if let Some(delegated) = self.files.get_mut(&file) {
            delegated.waiters.retain(|other| other.id != waiter);
        }
    }

    /// Removes and returns the next action. The server must call this after every other call, until
    /// the result is `None`.
    pub fn poll_action(&mut self) -> Option<DelegationAction> {
        loop {
            let action = self.actions.pop_front()?;
            let DelegationAction::Recall { client, state_id, .. } = action else {
                return Some(action);
            };
            // The delegation may have been returned or may have ended since the action was queued.
            if let Ok(index) = self.slots.find(client, state_id)
                && matches!(self.slots.get(index).phase, DelegationPhase::Recalling { .. })
            {
                return Some(action);
            }
        }
    }

    /// Resumes the requests for a file that no delegation blocks any longer.
    pub(super) fn resume(&mut self, file: FileKey) {
        let Some(delegated) = self.files.get_mut(&file) else { return };
        let waiters = std::mem::take(&mut delegated.waiters);
        let mut remaining = Vec::new();
        for waiter in waiters {
            if self.in_the_way(file, &waiter).is_empty() {
                self.waiters.remove(&waiter.id);
                self.actions.push_back(DelegationAction::Resume { waiter: waiter.id });
            } else {
                remaining.push(waiter);
            }
        }
        if let Some(delegated) = self.files.get_mut(&file) {
            delegated.waiters = remaining;
        }
    }

    pub(super) fn set_timer(&mut self, index: u32, timer: Option<Moment>) {
        let delegation = self.slots.get_mut(index);
        if let Some(before) = std::mem::replace(&mut delegation.timer, timer) {
            self.timers.remove(&(before, index));
        }
        if let Some(when) = timer {
            self.timers.insert((when, index));
        }
    }
}

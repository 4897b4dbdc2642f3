//! The table of delegations, with the operations that grant, claim and return them.
//!
//! Invariants:
//! - A delegation that is not revoked is in the lists of its file and of its client; a revoked
//!   delegation is only in its client's list.
//! - A file is in the table exactly while it has a delegation.
//! - `timers` contains exactly the timers of the delegations.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dafs_ops::Fault;
use dafs_types::{ClientId, Moment, ShareAccess, ShareDeny, StateId};

use super::policy::{Promises, QuietFiles};
use super::slots::{Delegation, Slots};
use super::{
    DelegationAction, DelegationFacts, DelegationInformation, DelegationKind, DelegationPhase,
    DelegationPolicy, FileOperation, GrantedDelegation, NoDelegation, WaiterId,
};
use crate::{FileKey, IoKind};

/// The delegations of all clients.
#[derive(Debug)]
pub struct DelegationTable {
    pub(super) policy: DelegationPolicy,
    pub(super) slots: Slots,
    pub(super) files: BTreeMap<FileKey, DelegatedFile>,
    pub(super) clients: BTreeMap<ClientId, Holder>,
    /// All parked requests, with the file that each request waits for.
    pub(super) waiters: BTreeMap<WaiterId, FileKey>,
    pub(super) timers: BTreeSet<(Moment, u32)>,
    pub(super) quiet: QuietFiles,
    pub(super) actions: VecDeque<DelegationAction>,
    pub(super) counters: DelegationCounters,
    pub(super) promises: Promises,
}

/// The counters of delegations, for the operator. [`DelegationTable::counters`] sets the gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelegationCounters {
    /// Gauge: the number of delegations, including revoked delegations that were not returned yet.
    pub held: u32,
    /// Gauge: the number of files with a delegation.
    pub files: u32,
    /// Gauge: the number of requests that wait for the return of a delegation.
    pub waiting: u32,
    /// Gauge: the number of bytes of growth promised to write delegations.
    pub promised: u64,
    /// The number of read delegations granted, including those claimed after a restart.
    pub granted_read: u64,
    /// The number of write delegations granted, including those claimed after a restart.
    pub granted_write: u64,
    /// The number of opens that got no delegation.
    pub not_granted: u64,
    /// The number of recalls that were started.
    pub recalled: u64,
    /// The number of recalls that were sent again.
    pub retried: u64,
    /// The number of delegations returned before their deadline.
    pub returned: u64,
    /// The number of delegations that were revoked.
    pub revoked: u64,
    /// The number of times that the holder of a delegation was asked for attributes.
    pub asked: u64,
    /// The number of requests that were parked.
    pub parked: u64,
    /// The number of requests that got the reply DELAY.
    pub delayed: u64,
}

/// The delegations of a file, and the requests that wait for the return of these delegations.
#[derive(Debug, Default)]
pub(super) struct DelegatedFile {
    pub holders: Vec<u32>,
    /// The waiting requests, oldest first.
    pub waiters: Vec<Waiter>,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub id: WaiterId,
    pub actor: Option<ClientId>,
    pub operation: FileOperation,
}

/// The delegations of one client.
#[derive(Debug, Default)]
pub(super) struct Holder {
    pub delegations: BTreeSet<u32>,
    pub revoked: u32,
}

impl DelegationTable {
    /// Creates an empty table. `boot_seed` must be the seed of the table of opens; this keeps the
    /// state ids of the two tables distinct.
    #[must_use]
    pub fn new(boot_seed: u64, policy: DelegationPolicy) -> Self {
        Self {
            policy,
            slots: Slots::new(boot_seed),
            files: BTreeMap::new(),
            clients: BTreeMap::new(),
            waiters: BTreeMap::new(),
            timers: BTreeSet::new(),
            quiet: QuietFiles::default(),
            actions: VecDeque::new(),
            counters: DelegationCounters::default(),
            promises: Promises::default(),
        }
    }

    /// Returns true if no file has a delegation. This costs one load and one comparison.
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns true if a file has a delegation. While it has one, the store must not use the file's
    /// key for another file.
    #[must_use]
    pub fn is_delegated(&self, file: FileKey) -> bool {
        self.files.contains_key(&file)
    }

    /// Returns true if a client has delegations in force. The client's state must then be kept
    /// until the client's lease expires.
    #[must_use]
    pub fn holds_any(&self, client: ClientId) -> bool {
        self.clients
            .get(&client)
            .is_some_and(|holder| holder.delegations.len() > holder.revoked as usize)
    }

    /// Returns true if this table has issued the state id, even if the delegation has ended. All
    /// other state ids are those of opens.
    #[inline]
    #[must_use]
    pub fn owns(&self, state_id: StateId) -> bool {
        self.slots.owns(state_id)
    }

    /// Decides whether an OPEN that has just succeeded gets a delegation. The caller must not call
    /// the filer between the OPEN and this call.
    ///
    /// # Errors
    /// The reason why no delegation is granted. The open succeeds without a delegation.
    pub fn grant(
        &mut self,
        facts: &DelegationFacts,
        now: Moment,
    ) -> Result<GrantedDelegation, NoDelegation> {
        let kind = match facts.access {
            ShareAccess::Read => DelegationKind::Read,
            ShareAccess::Write | ShareAccess::Both => DelegationKind::Write,
        };
        if let Err(reason) = self.may_grant(facts, kind, now) {
            self.counters.not_granted += 1;
            return Err(reason);
        }
        let index = self.insert(facts, kind, now);
        Ok(self.shown(index))
    }

    fn may_grant(
        &self,
        facts: &DelegationFacts,
        kind: DelegationKind,
        now: Moment,
    ) -> Result<(), NoDelegation> {
        let others = match kind {
            DelegationKind::Read => facts.others_write,
            DelegationKind::Write => facts.others_open,
        };
        if !self.policy.enabled {
            Err(NoDelegation::Disabled)
        } else if !facts.can_recall {
            Err(NoDelegation::CannotBeRecalled)
        } else if self.clients.get(&facts.client).is_some_and(|holder| holder.revoked != 0) {
            Err(NoDelegation::Untrustworthy)
        } else if self.holder(facts.file, facts.client).is_some() {
            Err(NoDelegation::HeldAlready)
        } else if self.is_coming_back(facts.file) {
            Err(NoDelegation::Recalling)
        } else if others || self.has_conflict(facts.file, kind) {
            Err(NoDelegation::Conflict)
        } else if self.quiet.is_quiet(facts.file, now) {
            Err(NoDelegation::Quiet)
        } else if self.has_room(facts) {
            Ok(())
        } else {
            Err(NoDelegation::Limit)
        }
    }

    /// Handles OPEN with CLAIM_PREVIOUS (draft 6.5.24): grants the delegation that the client held
    /// before the server restarted. The delegation may be recalled immediately. The caller makes
    /// sure that the grace period is in effect.
    ///
    /// # Errors
    /// DENIED if another client has reclaimed an open or a delegation that conflicts with this
    /// delegation; INVAL if this client holds a delegation of the other kind; RESOURCE if a limit
    /// is reached.
    pub fn claim_previous(
        &mut self,
        facts: &DelegationFacts,
        kind: DelegationKind,
        now: Moment,
    ) -> Result<GrantedDelegation, Fault> {
        if let Some(index) = self.holder(facts.file, facts.client) {
            let held = self.slots.get(index);
            let is_it = held.kind == kind && held.phase.is_in_force();
            return if is_it { Ok(self.shown(index)) } else { Err(Fault::Invalid) };
        }
        if self.has_conflict(facts.file, kind) {
            return Err(Fault::Denied);
        }
        if !self.has_room(facts) {
            return Err(Fault::Limit);
        }
        let is_wanted = self.is_coming_back(facts.file);
        let index = self.insert(facts, kind, now);
        if is_wanted || !facts.can_recall || !self.policy.enabled {
            self.begin_recall(index, false, now);
        }
        Ok(self.shown(index))
    }

    /// Handles OPEN with CLAIM_DELEGATE_PREV: the client takes over a delegation of its previous
    /// incarnation.
    ///
    /// # Errors
    /// EXPIRED if the previous incarnation has no delegation of that file (any more).
    pub fn claim_awaiting(
        &mut self,
        facts: &DelegationFacts,
        now: Moment,
    ) -> Result<GrantedDelegation, Fault> {
        let index = self
            .holder(facts.file, facts.client)
            .filter(|&index| {
                matches!(self.slots.get(index).phase, DelegationPhase::Awaiting { .. })
            })
            .ok_or(Fault::Expired)?;
        self.slots.get_mut(index).phase = DelegationPhase::Granted;
        self.set_timer(index, None);
        self.count_grant(self.slots.get(index).kind);
        if self.has_waiters(facts.file) || !facts.can_recall || !self.policy.enabled {
            self.begin_recall(index, false, now);
        }
        Ok(self.shown(index))
    }

    /// Handles OPEN with CLAIM_DELEGATE_CUR: checks that the delegation covers an open that the
    /// client has already made locally.
    ///
    /// # Errors
    /// The errors of state ids; EXPIRED if the delegation was revoked; INVAL if the delegation does
    /// not cover this open.
    pub fn claim_current(
        &self,
        client: ClientId,
        state_id: StateId,
        file: FileKey,
        access: ShareAccess,
        deny: ShareDeny,
    ) -> Result<(), Fault> {
        let operation = FileOperation::Open { access, deny, truncate: false };
        match self.find(client, state_id, file)?.kind {
            DelegationKind::Write => Ok(()),
            DelegationKind::Read if operation.conflicts(DelegationKind::Read) => {
                Err(Fault::Invalid)
            }
            DelegationKind::Read => Ok(()),
        }
    }

    /// Checks that a client may read or write under the state id of a delegation.
    ///
    /// # Errors
    /// The errors of state ids; EXPIRED if the delegation was revoked; ACCES for a write under a
    /// read delegation.
    pub fn check_io(
        &self,
        client: ClientId,
        state_id: StateId,
        file: FileKey,
        kind: IoKind,
    ) -> Result<(), Fault> {
        match (self.find(client, state_id, file)?.kind, kind) {
            (DelegationKind::Read, IoKind::Write) => Err(Fault::OpenLacksAccess),
            (DelegationKind::Read, IoKind::Read) | (DelegationKind::Write, _) => Ok(()),
        }
    }

    /// Checks that a client's delegation is a read delegation, which keeps other clients from
    /// changing the file, and that the delegation is not being recalled.
    ///
    /// # Errors
    /// The errors of state ids; EXPIRED if the delegation was revoked; DELAY if it is being
    /// recalled; INVAL for a write delegation, because the holder itself may change the file.
    pub fn check_undisturbed(
        &self,
        client: ClientId,
        state_id: StateId,
        file: FileKey,
    ) -> Result<(), Fault> {
        let delegation = self.find(client, state_id, file)?;
        match (delegation.kind, delegation.phase) {
            (DelegationKind::Write, _) => Err(Fault::Invalid),
            (DelegationKind::Read, DelegationPhase::Granted) => Ok(()),
            (DelegationKind::Read, _) => Err(Fault::WouldWait),
        }
    }

    /// Returns true if a client's delegation is in force. A delegation that is being recalled is
    /// still in force.
    #[must_use]
    pub fn is_in_force(&self, client: ClientId, state_id: StateId) -> bool {
        let found = self.slots.find(client, state_id);
        found.is_ok_and(|index| self.slots.get(index).phase.is_in_force())
    }

    /// Handles DELEGRETURN.
    ///
    /// # Errors
    /// STALE_STATEID, OLD_STATEID, BAD_STATEID; EXPIRED if the delegation was revoked. If a client
    /// returns a revoked delegation, its record is removed although the result is an error.
    pub fn returned(
        &mut self,
        client: ClientId,
        state_id: StateId,
        now: Moment,
    ) -> Result<(), Fault> {
        let index = self.slots.find(client, state_id)?;
        let was_revoked = self.slots.get(index).phase == DelegationPhase::Revoked;
        self.end(index, now);
        if was_revoked {
            return Err(Fault::Expired);
        }
        self.counters.returned += 1;
        Ok(())
    }

    /// Handles DELEGPURGE: the client will claim no more delegations of its previous incarnation.
    /// Returns the number of delegations that were ended.
    pub fn purge(&mut self, client: ClientId, now: Moment) -> usize {
        let is_awaiting = |d: &Delegation| matches!(d.phase, DelegationPhase::Awaiting { .. });
        let awaiting = self.of_client(client, is_awaiting);
        for &index in &awaiting {
            self.end(index, now);
        }
        awaiting.len()
    }

    /// Ends the delegations of a client that disconnected or whose lease has expired.
    pub fn client_gone(&mut self, client: ClientId, now: Moment) {
        for index in self.of_client(client, |_| true) {
            self.end(index, now);
        }
    }

    /// Reports that a client has restarted and has a new id. Depending on the policy, its
    /// delegations end or wait to be claimed. The restart does not extend the wait of requests that
    /// already wait for these delegations.
    pub fn client_restarted(&mut self, old: ClientId, new: ClientId, now: Moment) {
        if self.policy.recovery.is_zero() || old == new {
            return self.client_gone(old, now);
        }
        for index in self.of_client(old, |_| true) {
            let delegation = self.slots.get_mut(index);
            let mut until = now.after(self.policy.recovery);
            match delegation.phase {
                DelegationPhase::Granted => {}
                DelegationPhase::Recalling { deadline: earlier }
                | DelegationPhase::Awaiting { until: earlier } => until = until.min(earlier),
                DelegationPhase::Revoked => {
                    self.end(index, now);
                    continue;
                }
            }
            delegation.client = new;
            delegation.retries = false;
            delegation.phase = DelegationPhase::Awaiting { until };
            self.slots.rename(index);
            self.set_timer(index, Some(until));
            self.unlink_client(old, index);
            self.clients.entry(new).or_default().delegations.insert(index);
        }
    }

    /// Iterates over all delegations, for the operator.
    pub fn iter(&self) -> impl Iterator<Item = DelegationInformation> + '_ {
        self.slots.iter().map(|(index, delegation)| DelegationInformation {
            file: delegation.file,
            handle: delegation.handle,
            client: delegation.client,
            state_id: self.slots.state_id(index),
            kind: delegation.kind,
            phase: delegation.phase,
            granted: delegation.granted,
        })
    }

    /// Returns the present values of the counters and gauges.
    #[must_use]
    pub fn counters(&self) -> DelegationCounters {
        DelegationCounters {
            held: self.slots.count() as u32,
            files: self.files.len() as u32,
            waiting: self.waiters.len() as u32,
            promised: self.promises.total(),
            ..self.counters
        }
    }
}

impl DelegationPhase {
    /// Returns true if the holder may rely on a delegation in this phase.
    const fn is_in_force(self) -> bool {
        match self {
            Self::Granted | Self::Recalling { .. } => true,
            Self::Awaiting { .. } | Self::Revoked => false,
        }
    }
}

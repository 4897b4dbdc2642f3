//! The lists of delegations by file and by client.
//!
//! Invariant: every function except `detach` and `unlink_client` preserves the invariants of
//! [`DelegationTable`]. The functions `end` and `revoke` call these two and restore the invariants.

use dafs_ops::Fault;
use dafs_types::{ClientId, Moment, StateId};

use super::policy::limit_of;
use super::slots::Delegation;
use super::table::DelegationTable;
use super::{
    DelegationAction, DelegationFacts, DelegationKind, DelegationPhase, GrantedDelegation,
};
use crate::FileKey;

impl DelegationTable {
    pub(super) fn insert(
        &mut self,
        facts: &DelegationFacts,
        kind: DelegationKind,
        now: Moment,
    ) -> u32 {
        let (limit, growth) = match kind {
            DelegationKind::Read => (None, 0),
            DelegationKind::Write => {
                let growth = self.promises.make(&self.policy, facts.handle.fs(), facts.space);
                (Some(limit_of(&self.policy, facts.size, growth)), growth)
            }
        };
        let index = self.slots.insert(Delegation {
            file: facts.file,
            handle: facts.handle,
            client: facts.client,
            kind,
            phase: DelegationPhase::Granted,
            granted: now,
            limit,
            growth,
            truncate: false,
            timer: None,
            retries: false,
        });
        self.files.entry(facts.file).or_default().holders.push(index);
        self.clients.entry(facts.client).or_default().delegations.insert(index);
        self.count_grant(kind);
        index
    }

    pub(super) fn count_grant(&mut self, kind: DelegationKind) {
        match kind {
            DelegationKind::Read => self.counters.granted_read += 1,
            DelegationKind::Write => self.counters.granted_write += 1,
        }
    }

    /// Ends a delegation and removes its record.
    pub(super) fn end(&mut self, index: u32, now: Moment) {
        if self.slots.get(index).phase != DelegationPhase::Revoked {
            self.detach(index, now);
        }
        if let Some(delegation) = self.slots.remove(index) {
            let was_revoked = delegation.phase == DelegationPhase::Revoked;
            if let Some(holder) = self.clients.get_mut(&delegation.client) {
                holder.revoked -= u32::from(was_revoked);
            }
            self.unlink_client(delegation.client, index);
        }
    }

    /// Revokes a delegation. Only its state id is kept, until the holder returns the delegation.
    pub(super) fn revoke(&mut self, index: u32, now: Moment) {
        self.detach(index, now);
        let delegation = self.slots.get_mut(index);
        delegation.phase = DelegationPhase::Revoked;
        let (client, handle) = (delegation.client, delegation.handle);
        self.clients.entry(client).or_default().revoked += 1;
        self.counters.revoked += 1;
        self.actions.push_back(DelegationAction::Revoked { client, handle });
    }

    /// Removes a delegation from its file's list, and resumes the requests that waited for this
    /// removal.
    fn detach(&mut self, index: u32, now: Moment) {
        self.set_timer(index, None);
        let delegation = self.slots.get_mut(index);
        let (file, growth) = (delegation.file, std::mem::take(&mut delegation.growth));
        self.promises.end(delegation.handle.fs(), growth);
        let was_recalled = matches!(delegation.phase, DelegationPhase::Recalling { .. });
        if was_recalled || self.has_waiters(file) {
            self.quiet.note(file, now.after(self.policy.quiet), self.policy.quiet_files_max);
        }
        if let Some(delegated) = self.files.get_mut(&file) {
            delegated.holders.retain(|&other| other != index);
        }
        self.resume(file);
        if self.files.get(&file).is_some_and(|delegated| delegated.holders.is_empty()) {
            self.files.remove(&file);
        }
    }

    pub(super) fn unlink_client(&mut self, client: ClientId, index: u32) {
        if let Some(holder) = self.clients.get_mut(&client) {
            holder.delegations.remove(&index);
            if holder.delegations.is_empty() {
                self.clients.remove(&client);
            }
        }
    }

    /// Returns the slot of the delegation that this client has of this file. `None` if there is no
    /// such delegation in force.
    pub(super) fn find(
        &self,
        client: ClientId,
        state_id: StateId,
        file: FileKey,
    ) -> Result<&Delegation, Fault> {
        let delegation = self.slots.get(self.slots.find(client, state_id)?);
        match delegation.phase {
            DelegationPhase::Revoked => Err(Fault::Expired),
            _ if delegation.file != file => Err(Fault::BadState),
            DelegationPhase::Granted | DelegationPhase::Recalling { .. } => Ok(delegation),
            // The client does not know the new state id yet, so it cannot use this delegation.
            DelegationPhase::Awaiting { .. } => Err(Fault::BadState),
        }
    }

    pub(super) fn of_client(
        &self,
        client: ClientId,
        wanted: impl Fn(&Delegation) -> bool,
    ) -> Vec<u32> {
        let Some(holder) = self.clients.get(&client) else { return Vec::new() };
        let held = holder.delegations.iter().copied();
        held.filter(|&index| wanted(self.slots.get(index))).collect()
    }

    pub(super) fn holder(&self, file: FileKey, client: ClientId) -> Option<u32> {
        let delegated = self.files.get(&file)?;
        delegated.holders.iter().copied().find(|&index| self.slots.get(index).client == client)
    }

    /// Returns true if a delegation of another client excludes a delegation of this kind.
    pub(super) fn has_conflict(&self, file: FileKey, kind: DelegationKind) -> bool {
        self.files.get(&file).is_some_and(|delegated| {
            kind == DelegationKind::Write
                || delegated
                    .holders
                    .iter()
                    .any(|&index| self.slots.get(index).kind == DelegationKind::Write)
        })
    }

    pub(super) fn has_waiters(&self, file: FileKey) -> bool {
        self.files.get(&file).is_some_and(|delegated| !delegated.waiters.is_empty())
    }

    /// Returns true if no delegation of the file may be granted now: a request waits for the file,
    /// or a delegation of the file is being recalled or waits for its restarted holder.
    pub(super) fn is_coming_back(&self, file: FileKey) -> bool {
        self.has_waiters(file)
            || self.files.get(&file).is_some_and(|delegated| {
                let granted =
                    |&index: &u32| self.slots.get(index).phase == DelegationPhase::Granted;
                !delegated.holders.iter().all(granted)
            })
    }

    pub(super) fn has_room(&self, facts: &DelegationFacts) -> bool {
        let of_client =
            self.clients.get(&facts.client).map_or(0, |holder| holder.delegations.len());
        let of_file = self.files.get(&facts.file).map_or(0, |file| file.holders.len());
        self.slots.count() < self.policy.total_max as usize
            && of_client < self.policy.per_client_max as usize
            && of_file < self.policy.per_file_max as usize
    }

    pub(super) fn shown(&self, index: u32) -> GrantedDelegation {
        let delegation = self.slots.get(index);
        GrantedDelegation {
            state_id: self.slots.state_id(index),
            kind: delegation.kind,
            recall: matches!(delegation.phase, DelegationPhase::Recalling { .. }),
            limit: delegation.limit,
        }
    }
}

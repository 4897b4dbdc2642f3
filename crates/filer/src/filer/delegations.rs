//! The operations on delegations for the protocol layer (draft 6.5.10, 6.5.11, 6.5.24).
//!
//! Invariant: a delegation belongs to a client that has a record here, and ends at the latest when
//! the record is removed. It is granted only to a client that can receive recalls, and only while
//! no open of another client conflicts.

use dafs_ops::Fault;
use dafs_types::{ClientId, FileHandle, Moment, ShareAccess, ShareDeny, StateId};

use super::Filer;
use crate::{
    ClientKey, DelegationAction, DelegationCounters, DelegationDecision, DelegationFacts,
    DelegationInformation, FileKey, FileOperation, GrantedDelegation, RecallOutcome, WaiterId,
};

/// The facts about an OPEN that has just succeeded. They decide whether its client gets a
/// delegation.
#[derive(Clone, Copy, Debug)]
pub struct DelegationRequest {
    /// The file that was opened.
    pub file: FileKey,
    /// The file's handle in the protocol.
    pub handle: FileHandle,
    /// The access that the open allows.
    pub access: ShareAccess,
    /// True if the client can receive recalls.
    pub can_recall: bool,
    /// The size of the file in bytes.
    pub size: u64,
    /// The number of free bytes in the file system.
    pub space: u64,
}

impl Filer {
    /// Returns true if no file has a delegation. This costs one load and one comparison.
    #[inline]
    #[must_use]
    pub fn has_no_delegations(&self) -> bool {
        self.delegations.is_idle()
    }

    /// Returns true if a file has a delegation. Until the delegation ends, the store must not use
    /// the file's key for another file.
    #[must_use]
    pub fn is_delegated(&self, file: FileKey) -> bool {
        self.delegations.is_delegated(file)
    }

    /// Returns true if the state id belongs or has belonged to a delegation.
    #[inline]
    #[must_use]
    pub fn is_of_delegation(&self, state_id: StateId) -> bool {
        self.delegations.owns(state_id)
    }

    /// Decides whether a client's request may access a file. If the request must wait, the caller
    /// must execute the actions that [`Filer::take_delegation_action`] returns.
    pub fn check_delegations(
        &mut self,
        client: ClientKey,
        file: FileKey,
        operation: FileOperation,
        waiter: WaiterId,
        now: Moment,
    ) -> DelegationDecision {
        let actor = self.client(client).ok().map(|client| client.id);
        self.delegations.check(file, actor, operation, waiter, now)
    }

    /// Grants a delegation for an OPEN that has succeeded, if the policy allows it. Otherwise
    /// returns `None`.
    pub fn grant_delegation(
        &mut self,
        client: ClientKey,
        wish: &DelegationRequest,
        now: Moment,
    ) -> Option<GrantedDelegation> {
        let facts = self.delegation_facts(client, wish)?;
        self.delegations.grant(&facts, now).ok()
    }

    /// Handles OPEN with CLAIM_DELEGATE_PREV after the file is open.
    ///
    /// # Errors
    /// EXPIRED if the client's previous incarnation left no delegation of that file;
    /// NOT_AUTHENTICATED if the caller is not a client.
    pub fn claim_delegation(
        &mut self,
        client: ClientKey,
        wish: &DelegationRequest,
        now: Moment,
    ) -> Result<GrantedDelegation, Fault> {
        let facts = self.delegation_facts(client, wish).ok_or(Fault::NoClient)?;
        self.delegations.claim_awaiting(&facts, now)
    }

    fn delegation_facts(
        &self,
        client: ClientKey,
        wish: &DelegationRequest,
    ) -> Option<DelegationFacts> {
        let id = self.clients.get(client)?.id;
        let DelegationRequest { file, handle, access, can_recall, size, space } = *wish;
        let (others_open, others_write) = if self.config.delegations.enabled && can_recall {
            self.opens.others(client, file)
        } else {
            // These values have no effect, because no new delegation is granted.
            (true, true)
        };
        Some(DelegationFacts {
            client: id,
            file,
            handle,
            access,
            can_recall,
            others_open,
            others_write,
            size,
            space,
        })
    }

    /// Checks that a delegation covers an OPEN with CLAIM_DELEGATE_CUR.
    ///
    /// # Errors
    /// The errors of state ids; EXPIRED if the delegation was revoked; INVAL if it does not cover
    /// the open; NOT_AUTHENTICATED if the caller is not a client.
    pub fn covers_open(
        &self,
        client: ClientKey,
        state_id: StateId,
        file: FileKey,
        access: ShareAccess,
        deny: ShareDeny,
    ) -> Result<(), Fault> {
        let client = self.client(client)?.id;
        self.delegations.claim_current(client, state_id, file, access, deny)
    }

    /// Checks whether a file may be handed over to a client: the client's read delegation must be
    /// in force and not being recalled. Returns the id of the client.
    ///
    /// # Errors
    /// The errors of [`crate::DelegationTable::check_undisturbed`]; NOT_AUTHENTICATED if the caller
    /// is not a client.
    pub fn check_undisturbed(
        &self,
        client: ClientKey,
        state_id: StateId,
        file: FileKey,
    ) -> Result<ClientId, Fault> {
        let client = self.client(client)?.id;
        self.delegations.check_undisturbed(client, state_id, file)?;
        Ok(client)
    }

    /// Returns true if a client's delegation is in force. A delegation that is being recalled is
    /// still in force.
    #[must_use]
    pub fn is_delegation_in_force(&self, client: ClientId, state_id: StateId) -> bool {
        self.delegations.is_in_force(client, state_id)
    }

    /// Recalls a delegation although no request waits for its return.
    pub fn recall_delegation(&mut self, client: ClientId, state_id: StateId, now: Moment) {
        self.delegations.recall(client, state_id, now);
    }

    /// Handles DELEGRETURN.
    ///
    /// # Errors
    /// The errors of state ids; EXPIRED if the delegation was revoked; NOT_AUTHENTICATED if the
    /// caller is not a client.
    pub fn return_delegation(
        &mut self,
        client: ClientKey,
        state_id: StateId,
        now: Moment,
    ) -> Result<(), Fault> {
        let client = self.client(client)?.id;
        self.delegations.returned(client, state_id, now)
    }

    /// Handles DELEGPURGE. Returns the number of delegations that were ended.
    ///
    /// # Errors
    /// NOT_AUTHENTICATED if the caller is not a client.
    pub fn purge_delegations(&mut self, client: ClientKey, now: Moment) -> Result<usize, Fault> {
        let client = self.client(client)?.id;
        Ok(self.delegations.purge(client, now))
    }

    /// Reports the result of a BC_RECALL.
    pub fn recall_done(
        &mut self,
        client: ClientId,
        state_id: StateId,
        answer: RecallOutcome,
        now: Moment,
    ) {
        self.delegations.recall_done(client, state_id, answer, now);
    }

    /// Reports that a client can receive recalls from now on, so that outstanding recalls are sent.
    pub fn can_recall(&mut self, client: ClientKey) {
        if let Some(client) = self.clients.get(client) {
            self.delegations.can_be_reached(client.id);
        }
    }

    /// Removes a request that waits for the return of delegations, because it will not be executed.
    pub fn abandon_waiter(&mut self, waiter: WaiterId) {
        self.delegations.abandon(waiter);
    }

    /// Removes and returns the next action that delegations require of the server.
    #[inline]
    pub fn take_delegation_action(&mut self) -> Option<DelegationAction> {
        self.delegations.poll_action()
    }

    /// Iterates over all delegations, for the operator.
    pub fn delegations(&self) -> impl Iterator<Item = DelegationInformation> + '_ {
        self.delegations.iter()
    }

    /// Returns the present values of the counters of delegations.
    #[must_use]
    pub fn delegation_counters(&self) -> DelegationCounters {
        self.delegations.counters()
    }

    /// Checks a read or write whose state id does not belong to an open but may belong to a
    /// delegation.
    #[cold]
    pub(super) fn check_delegated_io(
        &self,
        client: ClientKey,
        state_id: StateId,
        file: FileKey,
        kind: crate::IoKind,
        fault: Fault,
    ) -> Result<(), Fault> {
        match self.clients.get(client) {
            Some(client) if self.delegations.owns(state_id) => {
                self.delegations.check_io(client.id, state_id, file, kind)
            }
            Some(_) => Err(fault),
            None => Err(Fault::NoClient),
        }
    }
}

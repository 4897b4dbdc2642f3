//! Delegations, from a client's point of view (draft 6.5.10, 6.5.11, 6.5.24).
//!
//! Invariant: a delegation belongs to a client that has a record here, and ends with it at
//! the latest; it is granted only to a client that can be called back, and only
//! while no other client's open stands against it.

use dafs_ops::Fault;
use dafs_types::{ClientId, FileHandle, Moment, ShareAccess, ShareDeny, StateId};

use super::Filer;
use crate::{
    ClientKey, DelegationAction, DelegationCounters, DelegationDecision, DelegationFacts,
    DelegationInformation, FileKey, GrantedDelegation, RecallAnswer, Touch, WaiterId,
};

/// What the driver knows of an OPEN that has just succeeded.
#[derive(Clone, Copy, Debug)]
pub struct DelegationWish {
    /// What was opened.
    pub file: FileKey,
    /// Its handle.
    pub handle: FileHandle,
    /// What the open may do.
    pub access: ShareAccess,
    /// Whether the client can be called back.
    pub can_recall: bool,
    /// Bytes of the file.
    pub size: u64,
    /// Bytes free in its file system.
    pub space: u64,
}

impl Filer {
    /// Whether no file is delegated: one load and one comparison.
    #[inline]
    #[must_use]
    pub fn has_no_delegations(&self) -> bool {
        self.delegations.is_idle()
    }

    /// Whether a file is delegated: its key must stay what it is meanwhile.
    #[must_use]
    pub fn is_delegated(&self, file: FileKey) -> bool {
        self.delegations.is_delegated(file)
    }

    /// Whether a state id is a delegation's, in force or over.
    #[inline]
    #[must_use]
    pub fn is_of_delegation(&self, state_id: StateId) -> bool {
        self.delegations.owns(state_id)
    }

    /// Whether a request of a client may touch a file. If it waits, act on
    /// [`Filer::take_delegation_action`].
    pub fn touch(
        &mut self,
        client: ClientKey,
        file: FileKey,
        touch: Touch,
        waiter: WaiterId,
        now: Moment,
    ) -> DelegationDecision {
        let actor = self.client(client).ok().map(|client| client.id);
        self.delegations.check(file, actor, touch, waiter, now)
    }

    /// A delegation for an OPEN, if there is reason to give one.
    pub fn grant_delegation(
        &mut self,
        client: ClientKey,
        wish: &DelegationWish,
        now: Moment,
    ) -> Option<GrantedDelegation> {
        let facts = self.delegation_facts(client, wish)?;
        self.delegations.grant(&facts, now).ok()
    }

    /// OPEN with CLAIM_DELEGATE_PREV, once the file is open.
    ///
    /// # Errors
    /// EXPIRED if the client's earlier life left nothing of that file; NOT_AUTHENTICATED.
    pub fn claim_delegation(
        &mut self,
        client: ClientKey,
        wish: &DelegationWish,
        now: Moment,
    ) -> Result<GrantedDelegation, Fault> {
        let facts = self.delegation_facts(client, wish).ok_or(Fault::NoClient)?;
        self.delegations.claim_awaiting(&facts, now)
    }

    fn delegation_facts(
        &self,
        client: ClientKey,
        wish: &DelegationWish,
    ) -> Option<DelegationFacts> {
        let id = self.clients.get(client)?.id;
        let DelegationWish { file, handle, access, can_recall, size, space } = *wish;
        let (others_open, others_write) = if self.config.delegations.enabled && can_recall {
            self.opens.others(client, file)
        } else {
            // Nothing is granted in any case.
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

    /// OPEN with CLAIM_DELEGATE_CUR: whether the delegation covers it.
    ///
    /// # Errors
    /// Those of state ids, EXPIRED if it was revoked; INVAL if it does not; NOT_AUTHENTICATED.
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

    /// Whether a client may be given the file itself: its read delegation is in force
    /// and has not been called back. Who it is.
    ///
    /// # Errors
    /// As [`crate::DelegationTable::check_undisturbed`]; NOT_AUTHENTICATED.
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

    /// Whether a client's delegation is in force, called back or not.
    #[must_use]
    pub fn is_delegation_in_force(&self, client: ClientId, state_id: StateId) -> bool {
        self.delegations.is_in_force(client, state_id)
    }

    /// Calls a delegation back that no request waits for.
    pub fn recall_delegation(&mut self, client: ClientId, state_id: StateId, now: Moment) {
        self.delegations.recall(client, state_id, now);
    }

    /// DELEGRETURN.
    ///
    /// # Errors
    /// Those of state ids; EXPIRED if it was revoked; NOT_AUTHENTICATED.
    pub fn return_delegation(
        &mut self,
        client: ClientKey,
        state_id: StateId,
        now: Moment,
    ) -> Result<(), Fault> {
        let client = self.client(client)?.id;
        self.delegations.returned(client, state_id, now)
    }

    /// DELEGPURGE. Returns how many delegations that ended.
    ///
    /// # Errors
    /// NOT_AUTHENTICATED.
    pub fn purge_delegations(&mut self, client: ClientKey, now: Moment) -> Result<usize, Fault> {
        let client = self.client(client)?.id;
        Ok(self.delegations.purge(client, now))
    }

    /// What came of a BC_RECALL.
    pub fn recall_answered(
        &mut self,
        client: ClientId,
        state_id: StateId,
        answer: RecallAnswer,
        now: Moment,
    ) {
        self.delegations.recall_answered(client, state_id, answer, now);
    }

    /// A client can be called back from now on.
    pub fn can_recall(&mut self, client: ClientKey) {
        if let Some(client) = self.clients.get(client) {
            self.delegations.can_be_reached(client.id);
        }
    }

    /// A request that waits for delegations is no more.
    pub fn abandon_waiter(&mut self, waiter: WaiterId) {
        self.delegations.abandon(waiter);
    }

    /// What is to be done on behalf of delegations.
    #[inline]
    pub fn take_delegation_action(&mut self) -> Option<DelegationAction> {
        self.delegations.poll_action()
    }

    /// Every delegation, for people.
    pub fn delegations(&self) -> impl Iterator<Item = DelegationInformation> + '_ {
        self.delegations.iter()
    }

    /// Numbers about delegations.
    #[must_use]
    pub fn delegation_counters(&self) -> DelegationCounters {
        self.delegations.counters()
    }

    /// Whether a read or write under a state id that is no open's is one of a delegation.
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

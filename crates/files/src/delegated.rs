//! Grants delegations with OPEN, and reclaims them.

use dafs_filer::{DelegationRequest, FileKey, GrantedDelegation};
use dafs_ops::Fault;

use crate::Files;
use crate::caller::Caller;
use crate::delegations::FreshOpen;

impl Files<'_> {
    // ---- granting -------------------------------------------------------------------

    /// Grants a delegation for an OPEN that has just succeeded. Returns `None` if the filer's
    /// policy forbids the delegation or the file is being changed.
    pub fn delegate(
        &mut self,
        by: &Caller,
        can_recall: bool,
        open: &FreshOpen<'_>,
    ) -> Option<GrantedDelegation> {
        if !self.filer.config().delegations.enabled || !can_recall {
            return None;
        }
        // A change in progress could alter the file after the new holder has read it.
        if self.under_way.is_changing(open.cached) || self.keeps_undo_of(&open.handle) {
            return None;
        }
        let wish = self.delegation_wish(by, can_recall, open);
        let granted = self.filer.grant_delegation(by.party.client, &wish, self.now)?;
        self.delegations.enter(open.handle, open.file.clone());
        Some(granted)
    }

    /// Reclaims a delegation after a restart of the server (CLAIM_DELEGATE_PREV).
    pub fn claim_delegation(
        &mut self,
        by: &Caller,
        can_recall: bool,
        open: &FreshOpen<'_>,
    ) -> Result<GrantedDelegation, Fault> {
        let wish = self.delegation_wish(by, can_recall, open);
        let granted = self.filer.claim_delegation(by.party.client, &wish, self.now)?;
        self.delegations.enter(open.handle, open.file.clone());
        Ok(granted)
    }

    fn delegation_wish(
        &self,
        by: &Caller,
        can_recall: bool,
        open: &FreshOpen<'_>,
    ) -> DelegationRequest {
        let FreshOpen { handle, access, cached, .. } = *open;
        // Only write delegations promise space by which the file may grow.
        let space = if access.writes() {
            let fs = by.store().fs_attributes(by, &handle).ok();
            fs.and_then(|fs| fs.space_available).unwrap_or(0)
        } else {
            0
        };
        let (file, size) = (FileKey(open.file.key().0), self.cache.size(cached));
        DelegationRequest { file, handle, access, can_recall, size, space }
    }
}

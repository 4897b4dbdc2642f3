//! The operations on opens for the protocol layer.
//!
//! Invariant: a caller can use only the opens of its own client.

use dafs_ops::Fault;
use dafs_types::{Moment, RemoveMode, ShareAccess, ShareDeny, ShareKey, StateId};

use super::Filer;
use crate::clients::Client;
use crate::{ClientKey, Closed, FileKey, IoKind, OpenArguments, Opened, RemoveDecision};

impl Filer {
    /// Opens a file for a client (draft 6.5.24).
    ///
    /// # Errors
    /// SHARE_DENIED; KEY_MISMATCH; RESOURCE if a limit is reached; INVAL if the owner's name is too
    /// long; NOT_AUTHENTICATED if the caller is not a client; GRACE during the grace period, in
    /// which clients reclaim their opens; EXPIRED for a reclaim that comes too late or names an
    /// open that the client did not hold.
    pub fn open(
        &mut self,
        client: ClientKey,
        arguments: &OpenArguments<'_>,
        now: Moment,
    ) -> Result<Opened, Fault> {
        self.client(client)?;
        if arguments.is_reclaim {
            self.may_reclaim(client, now)?;
        } else {
            self.check_grace(client, now)?;
        }
        if !arguments.is_reclaim && !self.may_have_open(client) {
            self.counters.opens_resource += 1;
            return Err(Fault::Limit);
        }
        let record = self.clients.get_mut(client).ok_or(Fault::NoClient)?;
        let outcome = self.opens.open(client, &mut record.opens, arguments);
        match outcome {
            Err(Fault::ShareDenied) => self.counters.opens_share_denied += 1,
            Err(Fault::KeyMismatch) => self.counters.opens_key_mismatch += 1,
            Err(Fault::Limit) => self.counters.opens_resource += 1,
            _ => {}
        }
        outcome
    }

    /// Handles OPEN_DOWNGRADE (draft 6.5.26): replaces the access and deny modes with subsets of
    /// them. If the key is `None`, the open has no shared key any more.
    ///
    /// # Errors
    /// INVAL for modes that the open does not have or a key that differs; the errors of state ids.
    pub fn open_downgrade(
        &mut self,
        client: ClientKey,
        state_id: StateId,
        file: FileKey,
        access: ShareAccess,
        deny: ShareDeny,
        key: Option<ShareKey>,
    ) -> Result<(), Fault> {
        self.client(client)?;
        self.opens.downgrade(client, state_id, file, access, deny, key)
    }

    /// Returns true if a CLOSE would only end this open, because it would release no locks and
    /// delete no file.
    ///
    /// # Errors
    /// The errors of [`Filer::close`].
    pub fn closes_alone(
        &self,
        client: ClientKey,
        state_id: StateId,
        file: FileKey,
    ) -> Result<bool, Fault> {
        self.client(client)?;
        Ok(self.locks.is_empty() & self.opens.closes_alone(client, state_id, file)?)
    }

    /// Handles CLOSE. Returns the open that has ended.
    ///
    /// # Errors
    /// STALE_STATEID if the state id is from before a restart; OLD_STATEID if the open is already
    /// closed; BAD_STATEID if the state id was not issued for this client and file.
    pub fn close(
        &mut self,
        client: ClientKey,
        state_id: StateId,
        file: FileKey,
        now: Moment,
    ) -> Result<Closed, Fault> {
        self.end_locks_of_open(client, state_id, file, now);
        let record = self.clients.get_mut(client).ok_or(Fault::NoClient)?;
        self.opens.close(client, &mut record.opens, state_id, file)
    }

    /// Checks whether a read or write may proceed under this state id. A caller that uses the
    /// anonymous state id need not be a client.
    ///
    /// # Errors
    /// The errors of [`Filer::close`]; ACCES if the open does not allow the access; LOCKED if the
    /// state id is anonymous and an open denies the access.
    #[inline]
    pub fn check_io(
        &mut self,
        client: ClientKey,
        state_id: StateId,
        file: FileKey,
        kind: IoKind,
        now: Moment,
    ) -> Result<(), Fault> {
        let outcome = match self.grace {
            None => Ok(()),
            // Another client may still reclaim a share reservation that conflicts.
            Some(_) if state_id == StateId::ANONYMOUS => self.check_grace(client, now),
            // Another client may still reclaim a lock that conflicts.
            Some(_) => self.check_data_grace(client),
        };
        let outcome = outcome.and_then(|()| self.opens.check_io(client, state_id, file, kind));
        let outcome = match outcome {
            Ok(()) => return Ok(()),
            Err(fault) => self.check_delegated_io(client, state_id, file, kind, fault),
        };
        self.counters.io_refused += u64::from(outcome.is_err());
        outcome
    }

    /// Checks whether a name of the file may be removed, or given to another file by RENAME.
    ///
    /// # Errors
    /// DENYDISP_CONFLICT if an open forbids it (draft 6.5.33).
    pub fn remove_check(&self, file: FileKey, mode: RemoveMode) -> Result<RemoveDecision, Fault> {
        self.opens.remove_check(file, mode)
    }

    /// Reports that the file's last name was removed. Returns true if the file is open;
    /// [`Closed::delete`] will then be set by its last close. If the result is false, the server
    /// must delete the file immediately.
    pub fn file_unlinked(&mut self, file: FileKey) -> bool {
        self.opens.set_unlinked(file, true)
    }

    /// Reports that the file has a name again (after LINK of an unlinked file), so that its last
    /// close does not delete it.
    pub fn file_linked(&mut self, file: FileKey) {
        self.opens.set_unlinked(file, false);
    }

    /// Returns true if any client has the file open.
    #[must_use]
    pub fn is_open(&self, file: FileKey) -> bool {
        self.opens.is_open(file)
    }

    /// Returns true if this client has the file open.
    #[must_use]
    pub fn is_open_by(&self, client: ClientKey, file: FileKey) -> bool {
        let record = self.clients.get(client);
        record.is_some_and(|record| self.opens.is_open_by(client, &record.opens, file))
    }

    /// Returns the state ids under which a client has the file open.
    #[must_use]
    pub fn opens_by(&self, client: ClientKey, file: FileKey) -> Vec<StateId> {
        let record = self.clients.get(client);
        record.map_or_else(Vec::new, |record| self.opens.opens_by(client, &record.opens, file))
    }

    /// Returns a client's record.
    ///
    /// # Errors
    /// NOT_AUTHENTICATED if the key refers to no client.
    pub(super) fn client(&self, client: ClientKey) -> Result<&Client, Fault> {
        self.clients.get(client).ok_or(Fault::NoClient)
    }
}

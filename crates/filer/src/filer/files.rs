//! Opens, from a channel's point of view.
//!
//! Invariant: a channel reaches only the opens of its own client.

use dafs_types::{RemoveMode, ShareAccess, ShareDeny, ShareKey, StateId, Status};

use super::{Filer, Phase};
use crate::clients::ClientSlot;
use crate::{ChannelId, Closed, FileKey, IoKind, OpenArguments, Opened, RemoveDecision};

impl Filer {
    /// Opens a file for the channel's client (draft 6.5.24).
    ///
    /// # Errors
    /// SHARE_DENIED, KEY_MISMATCH, RESOURCE (a limit), INVAL (owner too long),
    /// NOT_AUTHENTICATED; GRACE while others take back what they held; EXPIRED for taking
    /// back too late, or what was not held.
    pub fn open(
        &mut self,
        channel: ChannelId,
        arguments: &OpenArguments<'_>,
    ) -> Result<Opened, Status> {
        let slot = self.client_of(channel)?;
        if arguments.is_reclaim {
            self.may_reclaim(slot)?;
        } else {
            self.may_take(channel)?;
        }
        if !arguments.is_reclaim && !self.may_have_open(slot) {
            self.counters.opens_resource += 1;
            return Err(Status::Resource);
        }
        let client = self.clients.get_mut(slot).ok_or(Status::NotAuthenticated)?;
        let outcome = self.opens.open(slot, &mut client.opens, arguments);
        match outcome {
            Err(Status::ShareDenied) => self.counters.opens_share_denied += 1,
            Err(Status::KeyMismatch) => self.counters.opens_key_mismatch += 1,
            Err(Status::Resource) => self.counters.opens_resource += 1,
            _ => {}
        }
        outcome
    }

    /// OPEN_DOWNGRADE (draft 6.5.26): replaces access and deny by subsets of them; a
    /// `None` key gives the shared key up.
    ///
    /// # Errors
    /// INVAL for bits or a key not in effect; the errors of state ids.
    pub fn open_downgrade(
        &mut self,
        channel: ChannelId,
        state_id: StateId,
        file: FileKey,
        access: ShareAccess,
        deny: ShareDeny,
        key: Option<ShareKey>,
    ) -> Result<(), Status> {
        let slot = self.client_of(channel)?;
        self.opens.downgrade(slot, state_id, file, access, deny, key)
    }

    /// Whether a CLOSE would end this open and nothing else: it has no locks that go with it,
    /// and no file without a name.
    ///
    /// # Errors
    /// Those of [`Filer::close`].
    pub fn closes_alone(
        &self,
        channel: ChannelId,
        state_id: StateId,
        file: FileKey,
    ) -> Result<bool, Status> {
        let slot = self.client_of(channel)?;
        Ok(self.locks.is_empty() & self.opens.closes_alone(slot, state_id, file)?)
    }

    /// CLOSE.
    ///
    /// # Errors
    /// STALE_STATEID (from before a restart), OLD_STATEID (closed already),
    /// BAD_STATEID (never issued, or not for this client and file).
    pub fn close(
        &mut self,
        channel: ChannelId,
        state_id: StateId,
        file: FileKey,
    ) -> Result<Closed, Status> {
        let slot = self.client_of(channel)?;
        let now = self.hot[channel.index()].last_heard;
        self.end_locks_of_open(slot, state_id, file, now);
        let client = self.clients.get_mut(slot).ok_or(Status::NotAuthenticated)?;
        self.opens.close(slot, &mut client.opens, state_id, file)
    }

    /// Whether a read or write may go on under this state id.
    ///
    /// # Errors
    /// Those of [`Filer::close`]; ACCES if the open lacks the access; LOCKED if the
    /// state id is anonymous and somebody's open denies it.
    #[inline]
    pub fn check_io(
        &mut self,
        channel: ChannelId,
        state_id: StateId,
        file: FileKey,
        kind: IoKind,
    ) -> Result<(), Status> {
        let outcome = match self.grace {
            None => Ok(()),
            // Somebody may yet take a reservation back that stands against it,
            Some(_) if state_id == StateId::ANONYMOUS => self.may_take(channel),
            // or a lock.
            Some(_) => self.may_move(channel),
        };
        let outcome = outcome
            .and_then(|()| self.client_of(channel))
            .and_then(|client| self.opens.check_io(client, state_id, file, kind));
        let outcome = match outcome {
            Ok(()) => return Ok(()),
            Err(status) => self.check_delegated_io(channel, state_id, file, kind, status),
        };
        self.counters.io_refused += u64::from(outcome.is_err());
        outcome
    }

    /// Whether a name of the file may be removed, or replaced by RENAME.
    ///
    /// # Errors
    /// DENYDISP_CONFLICT (draft 6.5.33).
    pub fn remove_check(&self, file: FileKey, mode: RemoveMode) -> Result<RemoveDecision, Status> {
        self.opens.remove_check(file, mode)
    }

    /// The file's last name is gone: its last close will say `delete`. Returns whether
    /// the file is open; if not, the driver deletes at once.
    pub fn file_unlinked(&mut self, file: FileKey) -> bool {
        self.opens.set_unlinked(file, true)
    }

    /// The file has got a name (LINK of an unlinked file): its last close deletes nothing.
    pub fn file_linked(&mut self, file: FileKey) {
        self.opens.set_unlinked(file, false);
    }

    /// Whether anybody has the file open.
    #[must_use]
    pub fn is_open(&self, file: FileKey) -> bool {
        self.opens.is_open(file)
    }

    /// Whether the client of a channel has the file open.
    #[must_use]
    pub fn is_open_by(&self, channel: ChannelId, file: FileKey) -> bool {
        let Ok(client) = self.client_of(channel) else { return false };
        let record = self.clients.get(client);
        record.is_some_and(|record| self.opens.is_open_by(client, &record.opens, file))
    }

    /// The state ids under which the client of a channel has the file open.
    #[must_use]
    pub fn opens_by(&self, channel: ChannelId, file: FileKey) -> Vec<StateId> {
        let Ok(client) = self.client_of(channel) else { return Vec::new() };
        let record = self.clients.get(client);
        record.map_or_else(Vec::new, |record| self.opens.opens_by(client, &record.opens, file))
    }

    #[inline]
    pub(super) fn client_of(&self, channel: ChannelId) -> Result<ClientSlot, Status> {
        match self.hot.get(channel.index()) {
            Some(hot)
                if hot.generation == channel.generation && hot.phase == Phase::Authenticated =>
            {
                Ok(hot.client)
            }
            _ => Err(Status::NotAuthenticated),
        }
    }
}

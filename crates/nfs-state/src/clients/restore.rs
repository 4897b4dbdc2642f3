//! Restores clients that had sessions before a restart of the server.

use dafs_types::Moment;
use smallvec::SmallVec;

use super::created::CreatedSession;
use super::record::{Client, EndReason, RevokedStates};
use super::table::Clients;
use crate::Nfs4Error;
use crate::keys::ClientKey;
use crate::sessions::SessionRecord;

impl Clients {
    /// Returns the client that the record of a session names. Adds the client if this is the first
    /// session that is restored for it. If there are two incarnations of a client, only the one
    /// that was confirmed last is kept.
    ///
    /// # Errors
    /// INVAL if the record contradicts another record or was written in this run of the server;
    /// DELAY if the table is full.
    pub(crate) fn restore(
        &mut self,
        record: &SessionRecord,
        now: Moment,
    ) -> Result<ClientKey, Nfs4Error> {
        if let Ok(key) = self.find(record.client) {
            let client = self.get(key).ok_or(Nfs4Error::Inval)?;
            let is_same = client.owner == record.owner && client.verifier == record.verifier;
            return if is_same { Ok(key) } else { Err(Nfs4Error::Inval) };
        }
        if record.client.0 >> 32 == u64::from(self.config.epoch) {
            return Err(Nfs4Error::Inval);
        }
        if let Some(other) = self.incarnations(&record.owner).confirmed {
            if self.get(other).is_some_and(|other| other.id > record.client) {
                return Err(Nfs4Error::Inval);
            }
            self.end(other, EndReason::Replaced);
        }
        if self.records.len() >= self.config.clients_max as usize {
            return Err(Nfs4Error::Delay);
        }
        Ok(self.insert(Client {
            id: record.client,
            owner: record.owner.clone(),
            verifier: record.verifier,
            principal: record.principal.clone(),
            peer: record.peer,
            protection: record.protection,
            is_confirmed: true,
            is_reclaiming: true,
            is_restored: true,
            is_awaited: true,
            sequence: record.sequence,
            created: None,
            renewed: now,
            is_courtesy: false,
            running: 0,
            sessions: SmallVec::new(),
            back_sessions: 0,
            back_connections: 0,
            states: 0,
            revoked: RevokedStates::default(),
        }))
    }

    /// Sets the result of the client's last CREATE_SESSION to that of its newest session.
    pub(crate) fn restore_created(&mut self, key: ClientKey, created: CreatedSession) {
        let Some(client) = self.get_mut(key) else { return };
        let newest = client.created.as_ref().map_or(0, |newest| newest.session.number());
        if newest < created.session.number() {
            client.sequence = created.sequence;
            client.created = Some(created);
        }
    }
}

//! The records of persistent sessions. They are written when a session is created, and read after a
//! restart of the server.

use dafs_types::Moment;

use super::NfsState;
use crate::Nfs4Error;
use crate::keys::SessionKey;
use crate::sessions::{SessionRecord, SlotRecord};

impl NfsState {
    /// Returns the data that a journal must store for a session; `None` if the session has ended.
    #[must_use]
    pub fn record(&self, key: SessionKey) -> Option<SessionRecord> {
        let session = self.sessions.get(key)?;
        let client = self.clients.get(session.client)?;
        Some(SessionRecord {
            client: client.id,
            owner: client.owner.clone(),
            verifier: client.verifier,
            principal: client.principal.clone(),
            peer: client.peer,
            protection: client.protection,
            session: session.id,
            sequence: session.sequence,
            creator: session.creator.clone(),
            flags: session.flags,
            fore: session.fore,
            back: session.back,
            callbacks: session.callbacks.clone(),
        })
    }

    /// Restores a session from its record and the last journaled requests of its slots, and also
    /// its client if this is the client's first session. The client keeps its id, and must reclaim
    /// its state. If it sends no request for the time of a lease, it ends.
    ///
    /// # Errors
    /// INVAL if the record contradicts another record or was written in this run of the server;
    /// DELAY if there is no memory for the session.
    pub fn restore(
        &mut self,
        record: SessionRecord,
        slots: impl IntoIterator<Item = SlotRecord>,
        now: Moment,
    ) -> Result<SessionKey, Nfs4Error> {
        self.sessions.check_restore(&record)?;
        let client = self.clients.restore(&record, now)?;
        let wants_back = record.wants_back();
        let key = self.sessions.restore(client, record, slots)?;
        if let Some(created) = self.created(key) {
            self.clients.restore_created(client, created);
        }
        if let Some(client) = self.clients.get_mut(client) {
            client.sessions.push(key);
            client.back_sessions += u32::from(wants_back);
        }
        self.end_clients();
        Ok(key)
    }
}

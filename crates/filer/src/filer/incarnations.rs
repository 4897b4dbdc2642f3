//! The incarnations of clients: how a client enters, when its incarnation begins and ends, and
//! which of its state is kept (draft 3.1.1.3).
//!
//! Invariant: a client that enters has authenticated. Its incarnation begins later, with the
//! client's first request, which ends the previous incarnation of the same name.

use dafs_types::{ClientId, Moment, Verifier};

use super::Filer;
use crate::clients::Client;
use crate::opens::ClientOpens;
use crate::{ClientKey, Closed, Holder, Principal};

/// The arguments of [`Filer::client_enter`], by which an authenticated session joins its client.
#[derive(Clone, Copy, Debug)]
pub struct EnteringClient<'a> {
    /// The client id that the server has assigned.
    pub id: ClientId,
    /// The client id string that the client has given itself.
    pub name: &'a [u8],
    /// The verifier, which changes when the client restarts.
    pub verifier: Verifier,
    /// The principal that the client authenticated as.
    pub principal: &'a Principal,
    /// The holder (a local user or an address) for which the session counts in shared limits.
    pub holder: Holder,
    /// True if the client has learned its id, so that a record with this id has existed. If the
    /// record no longer exists, the client's state is lost, and the client must be told so.
    pub expects_record: bool,
    /// True if the client reports that it has reclaimed everything ([`Filer::complete_reclaims`]).
    /// False if its first request for something new ends its reclaiming.
    pub ends_reclaims_itself: bool,
}

/// The start of the names of NFSv4 clients. No client of another protocol may use such a name, so
/// that it cannot end the incarnation of an NFS client.
pub const NFS4_NAME_PREFIX: &[u8] = b"nfs4:";
/// The start of the names of clients of the lock protocol of NFSv3, which no other client may use.
pub const NLM_NAME_PREFIX: &[u8] = b"nlm:";

/// The reason why a client may not enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum EnterError {
    /// The name belongs to another principal.
    #[error("the client's name belongs to another principal")]
    NameTaken,
    /// The client's state was lost after the client had learned its id.
    #[error("the client's earlier state was lost")]
    StateLost,
}

/// The effects of the beginning of an incarnation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BeginOutcome {
    /// The key of the previous incarnation, which has ended, so that the requests of its sessions
    /// must be refused. `None` if there was no previous incarnation.
    pub before: Option<ClientKey>,
    /// True if the new incarnation is refused and has ended too, because a later incarnation of the
    /// same name has begun, or because locks are kept for another principal of that name.
    pub is_refused: bool,
}

/// The way in which a session of a client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveReason {
    /// The client disconnected with DISCONNECT.
    Orderly,
    /// The connection was lost.
    Lost {
        /// True if the client's state may be kept for the time of its lease.
        is_kept: bool,
        /// True if the stored replies are kept too, because the client may reconnect and fetch
        /// them.
        has_replies: bool,
    },
}

/// A description of one client for the operator.
#[derive(Clone, Copy, Debug)]
pub struct ClientView<'a> {
    /// The client id that the server assigned.
    pub id: ClientId,
    /// The client id string that the client gave itself.
    pub name: &'a [u8],
    /// The principal that the client authenticated as, encoded as bytes.
    pub principal: &'a [u8],
    /// The number of the client's opens.
    pub opens: u32,
}

impl Filer {
    /// Returns the client id of the incarnation with this name and verifier. `None` if the
    /// incarnation has no record.
    #[must_use]
    pub fn id_of_incarnation(&self, name: &[u8], verifier: Verifier) -> Option<ClientId> {
        self.clients.incarnation(name, verifier).map(|(_, client)| client.id)
    }

    /// Returns the id of a client. `None` if the client has no record.
    #[must_use]
    pub fn client_id(&self, client: ClientKey) -> Option<ClientId> {
        self.clients.get(client).map(|client| client.id)
    }

    /// Returns true if a client has this id.
    #[must_use]
    pub fn has_client_id(&self, id: ClientId) -> bool {
        self.clients.has_id(id)
    }

    /// Adds an authenticated session to its client. Creates a record of the client if it has none.
    ///
    /// # Errors
    /// See [`EnterError`].
    pub fn client_enter(&mut self, entering: &EnteringClient<'_>) -> Result<ClientKey, EnterError> {
        let &EnteringClient { id, name, verifier, principal, holder, expects_record, .. } =
            entering;
        if self.clients.incarnations(name).any(|(_, other)| other.principal != *principal) {
            return Err(EnterError::NameTaken);
        }
        match self.clients.incarnation(name, verifier) {
            Some((_, client)) if client.id != id => return Err(EnterError::StateLost),
            Some((client, _)) => {
                self.clients.join(client);
                return Ok(client);
            }
            None if expects_record => return Err(EnterError::StateLost),
            None => {}
        }
        let client = self.clients.insert(Client {
            id,
            name: name.into(),
            verifier,
            principal: principal.clone(),
            principal_bytes: principal.bytes(),
            holder,
            sessions: 1,
            opens: ClientOpens::default(),
            is_recorded: false,
            has_locks: false,
            ends_reclaims_itself: entering.ends_reclaims_itself,
            is_over: false,
            expires: None,
        });
        if !self.may_lock(client) {
            self.clients.remove(client);
            return Err(EnterError::NameTaken);
        }
        Ok(client)
    }

    /// Returns true if a client's incarnation has begun.
    #[must_use]
    pub fn has_begun(&self, client: ClientKey) -> bool {
        self.clients.has_begun(client)
    }

    /// Begins an incarnation. It must be called at the first request of a client, or when a session
    /// has existed for so long that its client must be alive. The state of the previous incarnation
    /// is released immediately: see [`Filer::take_released`].
    pub fn client_begin(&mut self, client: ClientKey, now: Moment) -> BeginOutcome {
        let mut begun = BeginOutcome::default();
        if self.clients.has_begun(client) {
            return begun;
        }
        let mut released = std::mem::take(&mut self.released);
        if self.clients.get(client).is_some_and(|client| client.is_over) {
            // A later incarnation has begun since this incarnation authenticated.
            begun.is_refused = true;
            self.release_client(client, now, &mut released);
            self.released = released;
            return begun;
        }
        begun.before = self.clients.begin(client);
        if let Some(before) = begun.before {
            self.counters.client_restarts += 1;
            let id_of = |key| self.clients.get(key).map(|client| client.id);
            if let (Some(old), Some(new)) = (id_of(before), id_of(client)) {
                self.locks.client_restarted(old, now);
                self.delegations.client_restarted(old, new, now);
            }
            self.release_client(before, now, &mut released);
        }
        self.note_return(client, now);
        if !self.connect_locks(client, now) {
            begun.is_refused = true;
            self.release_client(client, now, &mut released);
        }
        self.released = released;
        begun
    }

    /// Removes and returns the opens that have ended since the last call because a newer
    /// incarnation began, so that the caller can close them in the store.
    pub fn take_released(&mut self) -> Vec<Closed> {
        std::mem::take(&mut self.released)
    }

    /// Removes and returns the ids of the clients that have ended since the last call, so that
    /// other components can release the state that they keep for these clients.
    pub fn take_ended(&mut self) -> Vec<ClientId> {
        std::mem::take(&mut self.ended)
    }

    /// Removes a session from its client. If it was the client's last session, releases the
    /// client's state, unless the state is kept. Returns the released opens, so that the caller can
    /// close them in the store.
    pub fn client_leave(
        &mut self,
        client: ClientKey,
        how: LeaveReason,
        now: Moment,
    ) -> Vec<Closed> {
        let mut released = Vec::new();
        let may_be_kept = self.may_be_kept(client);
        let has_begun = self.clients.has_begun(client);
        let Some(record) = self.clients.get_mut(client) else { return released };
        record.sessions -= 1;
        if record.sessions > 0 {
            return released;
        }
        // The number of clients that are kept without a session is limited. Holders get fair shares
        // of that limit, as they do of connections.
        let keep = match how {
            LeaveReason::Orderly => false,
            LeaveReason::Lost { is_kept, has_replies } => {
                let holds_any =
                    record.opens.count > 0 || self.delegations.holds_any(record.id) || has_replies;
                is_kept && has_begun && may_be_kept && holds_any
            }
        };
        if keep {
            self.clients.keep(client, now.after(self.config.lease));
            return released;
        }
        let id = record.id;
        match how {
            LeaveReason::Orderly => {
                self.locks.release_client(id, now);
                self.end_reclaims_of(client, now);
            }
            LeaveReason::Lost { .. } => self.locks.lease_expired(id, now),
        }
        self.release_client(client, now, &mut released);
        released
    }

    /// Ends a client's opens and delegations, and removes the client's record.
    pub(super) fn release_client(
        &mut self,
        client: ClientKey,
        now: Moment,
        released: &mut Vec<Closed>,
    ) {
        let is_awaited = self.clients.get(client).is_some_and(|record| self.is_awaited(record));
        if let Some(record) = self.clients.get_mut(client) {
            self.opens.release(&mut record.opens, released);
            self.ended.push(record.id);
            self.delegations.client_gone(record.id, now);
            // The stable record of a client that may return to reclaim its state is kept until
            // then.
            if record.is_recorded && !is_awaited {
                self.lapsed.push(record.name.clone());
            }
            self.clients.remove(client);
        }
    }

    /// Describes a client for the operator. `None` if the client no longer exists.
    #[must_use]
    pub fn client_view(&self, client: ClientKey) -> Option<ClientView<'_>> {
        self.clients.get(client).map(|client| ClientView {
            id: client.id,
            name: &client.name,
            principal: &client.principal_bytes,
            opens: client.opens.count,
        })
    }
}

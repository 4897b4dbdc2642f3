//! Clients: how one enters, when its life begins and ends, and what is left of it then (draft
//! 3.1.1.3).
//!
//! Invariant: whoever enters has proved who it is; its life begins later, with the first thing that
//! it asks for, and ends the one before it of the same name.

use dafs_types::{ClientId, Moment, Verifier};

use super::Filer;
use crate::clients::Client;
use crate::opens::ClientOpens;
use crate::{ClientKey, Closed, Holder, Principal};

/// A client that wants to enter, by one more session.
#[derive(Clone, Copy, Debug)]
pub struct Entering<'a> {
    /// The id that it was told.
    pub id: ClientId,
    /// Its name for itself.
    pub name: &'a [u8],
    /// Changes when it restarts.
    pub verifier: Verifier,
    /// As whom it has proved itself.
    pub principal: &'a Principal,
    /// Where it comes from.
    pub holder: Holder,
    /// A record stood under the id when it was told that, or has stood since. Should it be gone,
    /// its state is lost, and the client must not believe otherwise.
    pub expects_record: bool,
}

/// Why a client may not enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotEntered {
    /// Its name belongs to another principal.
    #[error("the client's name belongs to another principal")]
    NameTaken,
    /// Its state was lost since it was told its id.
    #[error("the client's earlier state was lost")]
    StateLost,
}

/// What the beginning of a life has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// The life before it, which is over: its sessions may ask for nothing any more.
    pub before: Option<ClientKey>,
    /// The new one may not live, and is over, too: a later life of its name has begun, or locks are
    /// kept for somebody else of it.
    pub is_refused: bool,
}

/// How a session leaves its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// By the client's will.
    Orderly,
    /// Its connection is lost.
    Lost {
        /// What its client holds is kept for the lease.
        is_kept: bool,
        /// So is that which was told to it last, for as long as the client may come back for it.
        has_replies: bool,
    },
}

/// A client, for people.
#[derive(Clone, Copy, Debug)]
pub struct ClientView<'a> {
    /// Its id.
    pub id: ClientId,
    /// Its name for itself.
    pub name: &'a [u8],
    /// As whom it authenticated.
    pub principal: &'a [u8],
    /// Its opens.
    pub opens: u32,
}

impl Filer {
    /// The id of a client's life, if that has a record.
    #[must_use]
    pub fn id_of_life(&self, name: &[u8], verifier: Verifier) -> Option<ClientId> {
        self.clients.life(name, verifier).map(|(_, client)| client.id)
    }

    /// Whether a client has this id.
    #[must_use]
    pub fn has_client_id(&self, id: ClientId) -> bool {
        self.clients.has_id(id)
    }

    /// Ties a session whose principal is proven to its client.
    ///
    /// # Errors
    /// As [`NotEntered`] says.
    pub fn client_enter(&mut self, entering: &Entering<'_>) -> Result<ClientKey, NotEntered> {
        let &Entering { id, name, verifier, principal, holder, expects_record } = entering;
        if self.clients.lives(name).any(|(_, life)| life.principal != *principal) {
            return Err(NotEntered::NameTaken);
        }
        match self.clients.life(name, verifier) {
            Some((_, client)) if client.id != id => return Err(NotEntered::StateLost),
            Some((client, _)) => {
                self.clients.join(client);
                return Ok(client);
            }
            None if expects_record => return Err(NotEntered::StateLost),
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
            is_over: false,
            expires: None,
        });
        if !self.may_lock(client) {
            self.clients.remove(client);
            return Err(NotEntered::NameTaken);
        }
        Ok(client)
    }

    /// Whether a client's life has begun.
    #[must_use]
    pub fn has_begun(&self, client: ClientKey) -> bool {
        self.clients.has_begun(client)
    }

    /// A client asks for something for the first time, or a session of it has stood for so long
    /// that whoever made it must live. The state of the life before it goes at once:
    /// [`Filer::take_released`].
    pub fn client_begin(&mut self, client: ClientKey, now: Moment) -> Begun {
        let mut begun = Begun::default();
        if self.clients.has_begun(client) {
            return begun;
        }
        let mut released = std::mem::take(&mut self.released);
        if self.clients.get(client).is_some_and(|client| client.is_over) {
            // What it asks for was sent before the life that has begun meanwhile.
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

    /// Opens of lives that others have followed since the last call, for the store.
    pub fn take_released(&mut self) -> Vec<Closed> {
        std::mem::take(&mut self.released)
    }

    /// Clients that are gone since the last call, for whoever keeps something for them.
    pub fn take_ended(&mut self) -> Vec<ClientId> {
        std::mem::take(&mut self.ended)
    }

    /// A session leaves its client; with the last one the client's state goes, too, unless it is
    /// kept. Returns the opens released, for the store.
    pub fn client_leave(&mut self, client: ClientKey, how: Leaving, now: Moment) -> Vec<Closed> {
        let mut released = Vec::new();
        let may_be_kept = self.may_be_kept(client);
        let has_begun = self.clients.has_begun(client);
        let Some(record) = self.clients.get_mut(client) else { return released };
        record.sessions -= 1;
        if record.sessions > 0 {
            return released;
        }
        // Kept clients are bounded, and shared out as channels are.
        let keep = match how {
            Leaving::Orderly => false,
            Leaving::Lost { is_kept, has_replies } => {
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
            Leaving::Orderly => {
                self.locks.release_client(id, now);
                self.end_reclaims_of(client, now);
            }
            Leaving::Lost { .. } => self.locks.lease_expired(id, now),
        }
        self.release_client(client, now, &mut released);
        released
    }

    /// Ends a client's opens and delegations, and forgets it.
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
            // One that may come back to take something back stays written down until then.
            if record.is_recorded && !is_awaited {
                self.lapsed.push(record.name.clone());
            }
            self.clients.remove(client);
        }
    }

    /// A client, for people; `None` if it is gone.
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

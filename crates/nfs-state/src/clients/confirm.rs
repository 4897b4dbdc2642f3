//! The part of CREATE_SESSION that concerns clients (RFC 8881 section 18.36.4), and
//! DESTROY_CLIENTID.
//!
//! Invariant: the sequence number of CREATE_SESSION advances only if the request succeeds. A
//! request that fails changes nothing, so that a sender who has guessed another client's id cannot
//! disturb that client's sequence numbers.

use dafs_types::{ClientId, Moment};

use super::created::CreatedSession;
use super::record::EndReason;
use super::table::Clients;
use crate::Nfs4Error;
use crate::keys::ClientKey;
use crate::operation::OperationNumber;
use crate::peer::Caller;

/// The result of checking the sequence number of a CREATE_SESSION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateSequence {
    /// The request is new. The server must create a session for this client.
    New(ClientKey),
    /// The request repeats the client's last CREATE_SESSION, which had this result.
    Repeat(Box<CreatedSession>),
}

impl Clients {
    /// Checks the client id, the sequence number and the principal of a CREATE_SESSION. Nothing
    /// changes until [`Clients::confirm`].
    ///
    /// # Errors
    /// STALE_CLIENTID for an unknown client; SEQ_MISORDERED if the sequence number is neither the
    /// last one nor the next one; WRONG_CRED if the client's machine credential is required;
    /// CLID_INUSE if the EXCHANGE_ID or the repeated request came from another client; DELAY
    /// while requests of the client's previous incarnation are in progress.
    pub fn check_create(
        &self,
        id: ClientId,
        sequence: u32,
        caller: &Caller<'_>,
    ) -> Result<CreateSequence, Nfs4Error> {
        let key = self.find(id)?;
        let client = self.get(key).ok_or(Nfs4Error::StaleClientId)?;
        client.protection.check(OperationNumber::CREATE_SESSION, &client.principal, caller)?;
        // A sender that has guessed the client's id must not create sessions of the client. Users
        // that their hosts name without proof count only together with the host.
        if !client.is_from(caller) {
            return Err(Nfs4Error::ClidInUse);
        }
        if sequence == client.sequence {
            // Until a CREATE_SESSION has succeeded, a request with the last sequence number repeats
            // a request that has failed.
            let created = client.created.as_ref().ok_or(Nfs4Error::SeqMisordered)?;
            // The result contains the session's id, which must stay secret from other users. Those
            // that a host names without proof can be any user of the host, so they are not told
            // apart.
            let is_creator = created.creator == *caller.principal
                || !created.creator.is_proved() && !caller.principal.is_proved();
            if !is_creator {
                return Err(Nfs4Error::ClidInUse);
            }
            return Ok(CreateSequence::Repeat(Box::new(created.clone())));
        }
        if sequence != client.sequence.wrapping_add(1) {
            return Err(Nfs4Error::SeqMisordered);
        }
        if !client.is_confirmed {
            if client.principal != *caller.principal {
                return Err(Nfs4Error::ClidInUse);
            }
            let before = self.incarnations(&client.owner).confirmed;
            if before.and_then(|before| self.get(before)).is_some_and(|old| old.running > 0) {
                return Err(Nfs4Error::Delay);
            }
        }
        Ok(CreateSequence::New(key))
    }

    /// Records the result of a CREATE_SESSION and confirms the client. The client's previous
    /// incarnation ends.
    pub fn confirm(&mut self, key: ClientKey, created: CreatedSession, now: Moment) {
        let Some(client) = self.get_mut(key) else { return };
        client.sequence = created.sequence;
        client.created = Some(created);
        client.renewed = client.renewed.max(now);
        client.is_courtesy = false;
        if client.is_confirmed {
            return;
        }
        let owner = client.owner.clone();
        if let Some(before) = self.incarnations(&owner).confirmed {
            self.end(before, EndReason::Replaced);
        }
        self.set_confirmed(key);
    }

    /// Handles DESTROY_CLIENTID.
    ///
    /// # Errors
    /// STALE_CLIENTID for an unknown client; WRONG_CRED if the client's machine credential is
    /// required or the request comes from another client; CLIENTID_BUSY if the client has sessions
    /// or state.
    pub fn destroy(&mut self, id: ClientId, caller: &Caller<'_>) -> Result<(), Nfs4Error> {
        let key = self.find(id)?;
        let client = self.get(key).ok_or(Nfs4Error::StaleClientId)?;
        client.protection.check(OperationNumber::DESTROY_CLIENTID, &client.principal, caller)?;
        if !client.is_from(caller) {
            return Err(Nfs4Error::WrongCred);
        }
        if client.has_state() || client.running > 0 {
            return Err(Nfs4Error::ClientIdBusy);
        }
        self.end(key, EndReason::Destroyed);
        Ok(())
    }

    /// Handles a RECLAIM_COMPLETE that applies to all file systems.
    ///
    /// # Errors
    /// COMPLETE_ALREADY if the client has already sent such a RECLAIM_COMPLETE.
    pub fn complete_reclaims(&mut self, key: ClientKey) -> Result<(), Nfs4Error> {
        let client = self.get_mut(key).ok_or(Nfs4Error::StaleClientId)?;
        if !std::mem::take(&mut client.is_reclaiming) {
            return Err(Nfs4Error::CompleteAlready);
        }
        Ok(())
    }

    /// Checks whether the client may now obtain state: new state, or with `is_reclaim` state that
    /// it had before a restart of the server.
    ///
    /// # Errors
    /// GRACE if the client asks for new state before RECLAIM_COMPLETE; NO_GRACE if it reclaims
    /// state after RECLAIM_COMPLETE.
    pub fn check_reclaim(&self, key: ClientKey, is_reclaim: bool) -> Result<(), Nfs4Error> {
        let client = self.get(key).ok_or(Nfs4Error::StaleClientId)?;
        match (is_reclaim, client.is_reclaiming) {
            (true, true) | (false, false) => Ok(()),
            (false, true) => Err(Nfs4Error::Grace),
            (true, false) => Err(Nfs4Error::NoGrace),
        }
    }
}

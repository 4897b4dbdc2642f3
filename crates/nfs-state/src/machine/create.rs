//! The operations CREATE_SESSION, BIND_CONN_TO_SESSION, BACKCHANNEL_CTL, DESTROY_SESSION and
//! DESTROY_CLIENTID.

use dafs_types::{ClientId, Moment};

use super::{NfsState, Notice};
use crate::Nfs4Error;
use crate::clients::{CreateSequence, CreatedSession};
use crate::keys::{ClientKey, SessionId4, SessionKey};
use crate::limits::SESSIONS_PER_CLIENT_MAX;
use crate::operation::OperationNumber;
use crate::peer::{Caller, ConnectionId};
use crate::sessions::{
    BindDirection, BoundDirection, CallbackParameters, CallbackSecurity, ChannelAttributes,
    NewSession, create_flags, negotiate_back, negotiate_fore,
};

/// The arguments of CREATE_SESSION.
#[derive(Clone, Copy, Debug)]
pub struct CreateSession<'a> {
    /// The client id that EXCHANGE_ID returned.
    pub client: ClientId,
    /// The sequence number of the request.
    pub sequence: u32,
    /// The flags, see [`create_flags`].
    pub flags: u32,
    /// The attributes of the fore channel (requests of the client) that the client asks for.
    pub fore: ChannelAttributes,
    /// The attributes of the back channel (callbacks of the server) that the client offers.
    pub back: ChannelAttributes,
    /// The RPC program of the client's callback service.
    pub callback_program: u32,
    /// The credentials that the client accepts in callbacks.
    pub callback_security: &'a [CallbackSecurity],
}

/// The result of CREATE_SESSION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateSessionOutcome {
    /// The session was created. If the session is persistent, its record must be durable before the
    /// reply is sent.
    Created(SessionKey, Box<CreatedSession>),
    /// The request repeats an earlier CREATE_SESSION, which had this result.
    Repeated(Box<CreatedSession>),
}

/// The result of BIND_CONN_TO_SESSION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundConnection {
    /// The session that the connection is bound to.
    pub session: SessionKey,
    /// The channels that the connection is bound to.
    pub direction: BoundDirection,
}

impl NfsState {
    /// Handles CREATE_SESSION. `random` becomes part of the session's id, which is therefore hard
    /// to guess.
    ///
    /// # Errors
    /// INVAL for unknown flags; TOOSMALL or INVAL if the session would be unusable with the
    /// attributes; DELAY if a table is full; and the errors of [`Clients::check_create`].
    ///
    /// [`Clients::check_create`]: crate::Clients::check_create
    pub fn create_session(
        &mut self,
        ask: &CreateSession<'_>,
        caller: &Caller<'_>,
        random: u64,
        now: Moment,
    ) -> Result<CreateSessionOutcome, Nfs4Error> {
        if ask.flags & !create_flags::ALL != 0 {
            return Err(Nfs4Error::Inval);
        }
        let fore = negotiate_fore(&ask.fore)?;
        let back = negotiate_back(&ask.back)?;
        let client = match self.clients.check_create(ask.client, ask.sequence, caller)? {
            CreateSequence::New(client) => client,
            CreateSequence::Repeat(created) => {
                return Ok(CreateSessionOutcome::Repeated(created));
            }
        };
        let callbacks = CallbackParameters::choose(ask.callback_program, ask.callback_security);
        let wants_back = ask.flags & create_flags::CONN_BACK_CHAN != 0 && callbacks.is_some();
        let mut flags = 0;
        if wants_back {
            flags |= create_flags::CONN_BACK_CHAN;
        }
        let peer = self.clients.get(client).ok_or(Nfs4Error::StaleClientId)?.peer;
        if self.config.is_persistent && self.sessions.has_persistent_room(peer, fore.requests_max) {
            flags |= ask.flags & create_flags::PERSIST;
        }
        let (sequence, creator) = (ask.sequence, caller.principal.clone());
        let new = NewSession {
            client,
            peer,
            sequence,
            creator,
            flags,
            fore,
            back,
            callbacks,
            wants_back,
        };
        let key = self.add_session(new, random, now)?;
        if let Err(error) = self.bind(key, caller.connection, true, wants_back, now) {
            self.remove_session(key);
            return Err(error);
        }
        let created = self.created(key).ok_or(Nfs4Error::Delay)?;
        self.clients.confirm(client, created.clone(), now);
        self.end_clients();
        Ok(CreateSessionOutcome::Created(key, Box::new(created)))
    }

    /// Returns the result of the CREATE_SESSION that created a session.
    pub(super) fn created(&self, key: SessionKey) -> Option<CreatedSession> {
        let session = self.sessions.get(key)?;
        Some(CreatedSession {
            session: session.id,
            sequence: session.sequence,
            flags: session.flags,
            fore: session.fore,
            back: session.back,
            creator: session.creator.clone(),
        })
    }

    /// Adds a session. If there is no memory for it, removes clients whose leases have expired
    /// until there is.
    fn add_session(
        &mut self,
        new: NewSession,
        random: u64,
        now: Moment,
    ) -> Result<SessionKey, Nfs4Error> {
        let client = new.client;
        self.make_room_for_session(client)?;
        // Renew the lease of the client that gets the session, so that the client itself is not
        // removed.
        self.clients.renew(client, now);
        let key = loop {
            match self.sessions.create(new.clone(), random) {
                Ok(key) => break key,
                Err(error) if !self.clients.evict(now) => return Err(error),
                Err(_) => self.end_clients(),
            }
        };
        if let Some(client) = self.clients.get_mut(client) {
            client.sessions.push(key);
            client.back_sessions += u32::from(new.wants_back);
        }
        Ok(key)
    }

    /// Makes room for one more session of a client. A client that has lost its connections may
    /// have left sessions behind. The oldest session without connections is removed.
    ///
    /// # Errors
    /// DELAY if the client uses all of its sessions.
    fn make_room_for_session(&mut self, client: ClientKey) -> Result<(), Nfs4Error> {
        let own = &self.clients.get(client).ok_or(Nfs4Error::StaleClientId)?.sessions;
        if own.len() < SESSIONS_PER_CLIENT_MAX {
            return Ok(());
        }
        let is_unused = |key: &&SessionKey| {
            let session = self.sessions.get(**key);
            session.is_some_and(|s| s.bindings.is_empty() && s.slots.running() == 0)
        };
        let unused = own.iter().find(is_unused).copied().ok_or(Nfs4Error::Delay)?;
        self.remove_session(unused);
        Ok(())
    }

    /// Handles BIND_CONN_TO_SESSION.
    ///
    /// # Errors
    /// BADSESSION if there is no such session; WRONG_CRED if the client's machine credential is
    /// required; INVAL if the connection would no longer be bound to a channel, or if the client
    /// accepts no callbacks that the server can send.
    pub fn bind_connection(
        &mut self,
        id: SessionId4,
        ask: BindDirection,
        caller: &Caller<'_>,
        now: Moment,
    ) -> Result<BoundConnection, Nfs4Error> {
        let key = self.sessions.find(id)?;
        let client = self.client_of(key)?;
        self.check_protection(client, OperationNumber::BIND_CONN_TO_SESSION, caller)?;
        let (is_fore, is_back) = self.sessions.direction(key, caller.connection, ask)?;
        self.bind(key, caller.connection, is_fore, is_back, now)?;
        let session = self.sessions.get_mut(key).ok_or(Nfs4Error::BadSession)?;
        if is_back {
            session.is_back_silent = false;
            if !std::mem::replace(&mut session.wants_back, true)
                && let Some(client) = self.clients.get_mut(client)
            {
                client.back_sessions += 1;
            }
        }
        let direction = match (is_fore, is_back) {
            (true, true) => BoundDirection::Both,
            (false, true) => BoundDirection::Back,
            (_, false) => BoundDirection::Fore,
        };
        Ok(BoundConnection { session: key, direction })
    }

    /// Handles BACKCHANNEL_CTL for the session of the request.
    ///
    /// # Errors
    /// BADSESSION if there is no such session; WRONG_CRED if the client's machine credential is
    /// required; NOENT if the client accepts no callbacks that the server can send.
    pub fn control_back_channel(
        &mut self,
        key: SessionKey,
        program: u32,
        security: &[CallbackSecurity],
        caller: &Caller<'_>,
    ) -> Result<(), Nfs4Error> {
        let client = self.client_of(key)?;
        self.check_protection(client, OperationNumber::BACKCHANNEL_CTL, caller)?;
        let parameters = CallbackParameters::choose(program, security).ok_or(Nfs4Error::NoEnt)?;
        let session = self.sessions.get_mut(key).ok_or(Nfs4Error::BadSession)?;
        session.callbacks = Some(parameters);
        Ok(())
    }

    /// Handles DESTROY_SESSION. `within` is the session in which the request was sent, if there is
    /// one.
    ///
    /// # Errors
    /// BADSESSION if there is no such session; WRONG_CRED if the client's machine credential is
    /// required; CONN_NOT_BOUND_TO_SESSION if the connection is not bound to the session; DELAY
    /// while other requests of the session are in progress.
    pub fn destroy_session(
        &mut self,
        id: SessionId4,
        within: Option<SessionKey>,
        caller: &Caller<'_>,
    ) -> Result<(), Nfs4Error> {
        let key = self.sessions.find(id)?;
        let client = self.client_of(key)?;
        self.check_protection(client, OperationNumber::DESTROY_SESSION, caller)?;
        if !self.sessions.is_bound(key, caller.connection) {
            return Err(Nfs4Error::ConnNotBound);
        }
        let session = self.sessions.get(key).ok_or(Nfs4Error::BadSession)?;
        let own = u32::from(within == Some(key));
        if session.slots.running() > own {
            return Err(Nfs4Error::Delay);
        }
        self.remove_session(key);
        Ok(())
    }

    /// Handles DESTROY_CLIENTID.
    ///
    /// # Errors
    /// The errors of [`Clients::destroy`].
    ///
    /// [`Clients::destroy`]: crate::Clients::destroy
    pub fn destroy_client(&mut self, id: ClientId, caller: &Caller<'_>) -> Result<(), Nfs4Error> {
        let result = self.clients.destroy(id, caller);
        self.end_clients();
        result
    }

    /// Handles a RECLAIM_COMPLETE that applies to all file systems. A RECLAIM_COMPLETE for one file
    /// system needs no action here.
    ///
    /// # Errors
    /// COMPLETE_ALREADY if the client has already sent such a RECLAIM_COMPLETE.
    pub fn complete_reclaims(&mut self, client: ClientKey) -> Result<(), Nfs4Error> {
        self.clients.complete_reclaims(client)
    }

    /// Checks whether a client may now obtain state: new state, or with `is_reclaim` state that it
    /// had before a restart of the server.
    ///
    /// # Errors
    /// GRACE if the client asks for new state before RECLAIM_COMPLETE; NO_GRACE if it reclaims
    /// state after RECLAIM_COMPLETE.
    pub fn check_reclaim(&self, client: ClientKey, is_reclaim: bool) -> Result<(), Nfs4Error> {
        self.clients.check_reclaim(client, is_reclaim)
    }

    /// Checks whether the sender may execute an operation that concerns this client.
    ///
    /// # Errors
    /// WRONG_CRED if the operation needs the client's machine credential.
    pub fn check_protection(
        &self,
        client: ClientKey,
        operation: OperationNumber,
        caller: &Caller<'_>,
    ) -> Result<(), Nfs4Error> {
        let client = self.clients.get(client).ok_or(Nfs4Error::BadSession)?;
        client.protection.check(operation, &client.principal, caller)
    }

    /// Returns true if the sender may execute an operation on state of this client that another
    /// principal has created.
    #[must_use]
    pub fn allows_machine(
        &self,
        client: ClientKey,
        operation: OperationNumber,
        caller: &Caller<'_>,
    ) -> bool {
        let client = self.clients.get(client);
        client.is_some_and(|c| c.protection.allows(operation, &c.principal, caller))
    }

    pub(super) fn client_of(&self, key: SessionKey) -> Result<ClientKey, Nfs4Error> {
        self.sessions.get(key).map(|session| session.client).ok_or(Nfs4Error::BadSession)
    }

    pub(super) fn bind(
        &mut self,
        key: SessionKey,
        connection: ConnectionId,
        is_fore: bool,
        is_back: bool,
        now: Moment,
    ) -> Result<(), Nfs4Error> {
        let client = self.client_of(key)?;
        let (gained, lost) = self.sessions.bind(key, connection, is_fore, is_back, now)?;
        if let Some(client) = self.clients.get_mut(client) {
            client.back_connections = (client.back_connections + gained).saturating_sub(lost);
        }
        if gained > 0 {
            self.callbacks.touch(client);
        }
        Ok(())
    }

    /// Removes a session, and subtracts it from the counts in its client's record.
    pub(super) fn remove_session(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.remove(key) else { return };
        self.requeue(&session);
        if session.is_persistent() {
            self.notices.push_back(Notice::SessionEnded(session.id));
        }
        if let Some(client) = self.clients.get_mut(session.client) {
            client.sessions.retain(|session| *session != key);
            client.running -= session.slots.running();
            client.back_sessions -= u32::from(session.wants_back);
            client.back_connections -= session.back_connections();
        }
    }
}

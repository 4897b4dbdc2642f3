//! The operations on clients, sessions and connections.

use dafs_filer::{
    ClientRecord, EnterError, EnteringClient, Holder, NFS4_NAME_PREFIX, Principal as FilerPrincipal,
};
use dafs_nfs_state::{
    BindDirection, BoundDirection, CallbackSecurity as OwnSecurity, ChannelAttributes as Own,
    ClientKey as Nfs4Client, CreateSession, CreateSessionOutcome, CreatedSession, ExchangeId,
    OperationSet, Principal, Protection, ProtectionAsk, SessionId4, SessionKey,
};
use dafs_nfs_wire::nfs4::session::{
    AskedProtection, BackchannelCtlArgs, BindConnToSession, CallbackSecurity, ChannelAttributes,
    CreateSessionArgs, CreateSessionDone, Direction, ExchangeFlags, ExchangeIdArgs, ExchangeIdDone,
    GrantedProtection, ProtectedOperations, SessionFlags,
};
use dafs_nfs_wire::nfs4::types::{ClientId, ServerOwner, SessionId};
use dafs_nfs_wire::nfs4::{Answer, Bitmap, Reply, Status};
use dafs_nfs_wire::xdr::Opaque;
use dafs_types::{ClientId as FilerId, Verifier};

use super::compound::Service;
use super::convert::status_of_machine;
use super::fault::Result;
use super::sequence::{asker_of, principal_of};
use super::state::State;
use super::waiting::Did;

impl Service<'_, '_, '_> {
    pub(super) fn exchange_id(&mut self, asked: &ExchangeIdArgs<'_>) -> Result<Did> {
        let set = |mask: &Bitmap| {
            let words: Vec<u32> = (0..OperationSet::WORDS_MAX).map(|at| mask.word(at)).collect();
            OperationSet::from_words(&words)
        };
        let protection = match &asked.protection {
            AskedProtection::None => ProtectionAsk::None,
            AskedProtection::MachineCredentials(wanted) => ProtectionAsk::MachineCredential {
                enforce: set(&wanted.must_enforce),
                allow: set(&wanted.must_allow),
            },
            AskedProtection::SecretState(_) => ProtectionAsk::SharedSecret,
        };
        let ask = ExchangeId {
            owner: asked.owner.owner.0,
            verifier: Verifier(asked.owner.verifier.0),
            flags: asked.flags.0,
            protection,
        };
        let now = self.reactor.shared.life.now();
        let principal = principal_of(&self.c.sender);
        let machine = &mut self.desk.v4.machine;
        let exchanged = machine.exchange_id(&ask, &asker_of(&self.c.sender, &principal), now);
        let exchanged = exchanged.map_err(status_of_machine)?;
        let owner = self.desk.v4.owner.clone();
        let mask = |set: OperationSet| {
            let bits = set.words().zip(0u32..).flat_map(|(word, at)| {
                (0..32).filter(move |bit| word >> bit & 1 != 0).map(move |bit| 32 * at + bit)
            });
            Bitmap::of(&bits.collect::<Vec<_>>())
        };
        let done = ExchangeIdDone {
            client: ClientId(exchanged.id.0),
            sequence: exchanged.sequence,
            flags: ExchangeFlags(exchanged.flags),
            protection: match exchanged.protection {
                Protection::None => GrantedProtection::None,
                Protection::MachineCredential { enforce, allow } => {
                    GrantedProtection::MachineCredentials(ProtectedOperations {
                        must_enforce: mask(enforce),
                        must_allow: mask(allow),
                    })
                }
            },
            server_owner: ServerOwner { minor: 0, major: Opaque(&owner) },
            server_scope: Opaque(&owner),
            implementation: None,
        };
        self.push(&Answer::ExchangeId(Reply::Ok(done)))
    }

    pub(super) fn create_session(&mut self, asked: &CreateSessionArgs<'_>) -> Result<Did> {
        let security: Vec<_> = asked.security.iter().map(security_of).collect();
        let ask = CreateSession {
            client: FilerId(asked.client.0),
            sequence: asked.sequence,
            flags: asked.flags.0,
            fore: channel_of(&asked.fore),
            back: channel_of(&asked.back),
            callback_program: asked.callback_program,
            callback_security: &security,
        };
        let now = self.reactor.shared.life.now();
        let principal = principal_of(&self.c.sender);
        let random = self.reactor.shared.entrance.entropy().next_u64();
        let machine = &mut self.desk.v4.machine;
        let asker = asker_of(&self.c.sender, &principal);
        let created = machine.create_session(&ask, &asker, random, now);
        let created = match created.map_err(status_of_machine)? {
            CreateSessionOutcome::Repeated(created) => created,
            CreateSessionOutcome::Created(key, created) => {
                let client = self.desk.v4.machine.sessions().view(key).map(|view| view.client);
                if let Some(client) = client {
                    self.desk.v4.minors.insert(client, self.c.call.minor);
                    if let Err(status) = self.enter(client) {
                        // Without a client of the filer, the session could not be used.
                        self.desk.v4.machine.revoke_client(client);
                        return Err(status);
                    }
                }
                self.note_session(key);
                created
            }
        };
        self.push(&Answer::CreateSession(Reply::Ok(done_of(&created))))
    }

    /// Adds a client to the filer, which stores the client's opens and locks.
    fn enter(&mut self, client: Nfs4Client) -> Result<()> {
        if self.desk.v4.clients.contains_key(&client) {
            return Ok(());
        }
        let view = self.desk.v4.machine.clients().view(client).ok_or(Status::StaleClientId)?;
        let name = name_of(view.principal, view.owner);
        let (verifier, now) = (view.verifier, self.reactor.shared.life.now());
        let shared = &mut *self.reactor.shared;
        let id = loop {
            let id = FilerId(shared.entrance.entropy().next_u64());
            if !shared.filer.has_client_id(id) {
                break id;
            }
        };
        let entered = shared.filer.client_enter(&EnteringClient {
            id,
            name: &name,
            verifier,
            principal: &FilerPrincipal::Anonymous,
            holder: Holder::at(self.c.sender.peer.address),
            expects_record: false,
            ends_reclaims_itself: true,
        });
        let entered = entered.map_err(|error| match error {
            EnterError::NameTaken => Status::ClidInUse,
            EnterError::StateLost => Status::Delay,
        })?;
        let begun = shared.filer.client_begin(entered, now);
        if begun.is_refused {
            return Err(Status::ClidInUse);
        }
        self.desk.v4.clients.insert(client, entered);
        self.reactor.apply_succession();
        Ok(())
    }

    /// Adds the client of a session to the filer, if both were restored after a restart and the
    /// client has just come back.
    pub(super) fn enter_restored(&mut self, session: SessionId4) -> Result<()> {
        let State { machine, clients, has_restored, .. } = &*self.desk.v4;
        if !has_restored {
            return Ok(());
        }
        let key = machine.sessions().find(session).ok();
        let view = key.and_then(|key| machine.sessions().view(key));
        match view.map(|view| view.client).filter(|client| !clients.contains_key(client)) {
            Some(client) => self.enter(client),
            None => Ok(()),
        }
    }

    /// Journals a new or changed session, if it is persistent. The reply waits for the record.
    fn note_session(&mut self, key: SessionKey) {
        let Some(record) = self.desk.v4.record(key) else { return };
        let after = self.reactor.note_persistent(record.0, &record.1);
        self.c.after = self.c.after.max(after);
    }

    pub(super) fn destroy_session(&mut self, id: SessionId) -> Result<Did> {
        let principal = principal_of(&self.c.sender);
        let request = self.c.request.as_ref();
        // A session that ends must not have further operations in it (RFC 8881 section 18.37.3).
        let is_own = request.is_some_and(|admitted| admitted.reply.session.0 == id.0);
        if is_own && self.c.left > 0 {
            return Err(Status::NotOnlyOp);
        }
        let within = request.map(|admitted| admitted.request.session);
        let machine = &mut self.desk.v4.machine;
        let asker = asker_of(&self.c.sender, &principal);
        machine.destroy_session(SessionId4(id.0), within, &asker).map_err(status_of_machine)?;
        self.push(&Answer::DestroySession(Status::Ok))
    }

    pub(super) fn destroy_client(&mut self, id: ClientId) -> Result<Did> {
        let principal = principal_of(&self.c.sender);
        let machine = &mut self.desk.v4.machine;
        let asker = asker_of(&self.c.sender, &principal);
        machine.destroy_client(FilerId(id.0), &asker).map_err(status_of_machine)?;
        self.push(&Answer::DestroyClientId(Status::Ok))
    }

    pub(super) fn bind_connection(&mut self, asked: &BindConnToSession) -> Result<Did> {
        let direction = BindDirection::from_number(asked.direction.0).ok_or(Status::Inval)?;
        let now = self.reactor.shared.life.now();
        let principal = principal_of(&self.c.sender);
        let machine = &mut self.desk.v4.machine;
        let asker = asker_of(&self.c.sender, &principal);
        let bound = machine.bind_connection(SessionId4(asked.session.0), direction, &asker, now);
        let bound = bound.map_err(status_of_machine)?;
        let direction = match bound.direction {
            BoundDirection::Fore => Direction::FORE,
            BoundDirection::Back => Direction::BACK,
            BoundDirection::Both => Direction::FORE_OR_BOTH,
        };
        let done = BindConnToSession { session: asked.session, direction, rdma: false };
        self.push(&Answer::BindConnToSession(Reply::Ok(done)))
    }

    pub(super) fn control_back_channel(&mut self, asked: &BackchannelCtlArgs<'_>) -> Result<Did> {
        let security: Vec<_> = asked.security.iter().map(security_of).collect();
        let principal = principal_of(&self.c.sender);
        let admitted = self.c.request.as_ref().ok_or(Status::OpNotInSession)?;
        let session = admitted.request.session;
        let machine = &mut self.desk.v4.machine;
        let asker = asker_of(&self.c.sender, &principal);
        machine
            .control_back_channel(session, asked.program, &security, &asker)
            .map_err(status_of_machine)?;
        self.note_session(session);
        self.push(&Answer::BackchannelCtl(Status::Ok))
    }

    pub(super) fn complete_reclaims(&mut self, is_one_fs: bool) -> Result<Did> {
        if is_one_fs {
            // A RECLAIM_COMPLETE for one file system follows a migration, which this server does
            // not support.
            self.current()?;
            return self.push(&Answer::ReclaimComplete(Status::Ok));
        }
        let admitted = self.c.request.as_ref().ok_or(Status::OpNotInSession)?;
        let client = admitted.client;
        self.desk.v4.machine.complete_reclaims(client).map_err(status_of_machine)?;
        if let Some(client) = self.desk.v4.clients.get(&client) {
            let now = self.reactor.shared.life.now();
            self.reactor.shared.filer.complete_reclaims(*client, now);
        }
        self.push(&Answer::ReclaimComplete(Status::Ok))
    }
}

/// Returns the name of a client in the filer. A client of another principal cannot have the same
/// name, so it cannot reclaim the state of this client after a restart.
fn name_of(principal: &Principal, owner: &[u8]) -> Vec<u8> {
    let principal = match principal {
        Principal::System(uid) => format!("{uid}:").into_bytes(),
        Principal::Certified { host, user } => [&host[..], format!("/{user}:").as_bytes()].concat(),
        Principal::Gss(name) => [&b"krb5:"[..], name, b":"].concat(),
        Principal::Nobody => b"nobody:".to_vec(),
    };
    [NFS4_NAME_PREFIX, &principal, owner].concat()
}

/// Returns the filer's record of the client of a persistent session, from the journal's record of
/// the session. `None` if the record cannot be decoded.
pub(crate) fn client_record_of(record: &[u8]) -> Option<ClientRecord> {
    let (_, session) = State::decode_record(record)?;
    Some(ClientRecord {
        name: name_of(&session.principal, &session.owner).into(),
        verifier: session.verifier,
        principal: FilerPrincipal::Anonymous,
        has_locks: false,
    })
}

fn security_of(asked: &CallbackSecurity<'_>) -> OwnSecurity {
    match asked {
        CallbackSecurity::None => OwnSecurity::None,
        CallbackSecurity::Sys(sys) => OwnSecurity::System { user: sys.uid, group: sys.gid },
        CallbackSecurity::Gss(_) => OwnSecurity::Gss,
    }
}

fn channel_of(asked: &ChannelAttributes) -> Own {
    Own {
        header_padding: asked.header_pad_bytes,
        request_bytes_max: asked.request_bytes_max,
        reply_bytes_max: asked.response_bytes_max,
        kept_bytes_max: asked.cached_bytes_max,
        operations_max: asked.operations_max,
        requests_max: asked.requests_max,
    }
}

fn shown(own: &Own) -> ChannelAttributes {
    ChannelAttributes {
        header_pad_bytes: own.header_padding,
        request_bytes_max: own.request_bytes_max,
        response_bytes_max: own.reply_bytes_max,
        cached_bytes_max: own.kept_bytes_max,
        operations_max: own.operations_max,
        requests_max: own.requests_max,
        rdma_reads: None,
    }
}

fn done_of(created: &CreatedSession) -> CreateSessionDone {
    CreateSessionDone {
        session: SessionId(created.session.0),
        sequence: created.sequence,
        flags: SessionFlags(created.flags),
        fore: shown(&created.fore),
        back: shown(&created.back),
    }
}

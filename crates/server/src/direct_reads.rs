//! Files that clients of this host read by themselves (`docs/decisions/0038`).
//!
//! A client that holds a read delegation asks by HAND_OVER for the file itself. What the cache
//! has written goes to the file first; then a descriptor for reading, opened anew, goes to the
//! client over the Unix socket, before the answer that names it. Whatever is in conflict with the
//! delegation calls it back as always, and the client stops before it returns it. Nothing else
//! changes: the server looks at no read of such a client, and needs not.
//!
//! Who gets one: a session over shared memory, as the user whom the kernel has seen connect, with
//! an open for reading, for a file without a fencing list, whose locks let it be read, and only if
//! the descriptor opens nothing to that user that the server refuses
//! ([`dafs_store::Store::may_have`]).
//!
//! A change of a fencing list calls back what was handed over of the files it is about, and waits
//! for those whom the new list leaves out as it waits for their transfers
//! ([`crate::waiting::fencing`]).
//!
//! Invariants: no descriptor goes out while the cache has something that the file lacks, or while
//! the delegation is being called back; [`DirectReads::given`] names each delegation in force by
//! which a file was handed over to a connection that stands.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;

use dafs_dat::{EndpointId, ServingInterface};
use dafs_filer::{FencedObject, Filer, OperationId, Party, Principal, RunningRequest};
use dafs_files::Files;
use dafs_files::caller::Asker;
use dafs_files::handing::{Allowed, FileAsked};
use dafs_sessions::Sessions;
use dafs_store::cache::{CachedFile, CommitTicket};
use dafs_types::{ClientId, Credentials, FileHandle, Moment, StateId, Status};

use crate::access::authorize::TransportKind;
use crate::channel::Channels;
use crate::config::ServerConfig;
use crate::reply_to::ReplyTo;

/// What was handed over.
#[derive(Debug)]
pub(crate) struct DirectReads {
    is_on: bool,
    given: BTreeMap<StateId, Given>,
    last_name: u64,
}

/// A file that was handed over under a delegation.
#[derive(Debug)]
struct Given {
    name: u64,
    client: ClientId,
    endpoint: EndpointId,
    user: u32,
    handle: FileHandle,
}

impl DirectReads {
    pub fn new(config: &ServerConfig) -> Self {
        Self { is_on: config.direct_reads, given: BTreeMap::new(), last_name: 0 }
    }

    /// Whether one more may be handed over under a delegation.
    fn has_room(&self, delegation: StateId, endpoint: EndpointId, user: u32) -> bool {
        if self.given.contains_key(&delegation) {
            return true;
        }
        let of_user = self.given.values().filter(|given| given.user == user).count();
        let of_session = self.given.values().filter(|given| given.endpoint == endpoint).count();
        self.given.len() < GIVEN_MAX && of_user < PER_USER_MAX && of_session < PER_SESSION_MAX
    }

    /// A delegation has ended: its holder reads the file itself no more.
    pub fn end(&mut self, filer: &mut Filer, delegation: StateId) {
        if let Some(given) = self.given.remove(&delegation) {
            filer.leave_fence(operation_of_given(given.name));
        }
    }

    /// A connection is gone: its client stops reading by itself as soon as it knows.
    pub fn end_of(&mut self, filer: &mut Filer, endpoint: EndpointId) {
        self.end_where(filer, |_, _, given| given.endpoint == endpoint);
    }

    /// Looks for delegations that have ended without a word.
    pub fn end_lapsed(&mut self, filer: &mut Filer) {
        self.end_where(filer, |filer, state, given| {
            !filer.is_delegation_in_force(given.client, state)
        });
    }

    fn end_where(&mut self, filer: &mut Filer, is_over: impl Fn(&Filer, StateId, &Given) -> bool) {
        let over = self.given.iter().filter(|(state, given)| is_over(filer, **state, given));
        let over: Vec<StateId> = over.map(|(state, _)| *state).collect();
        over.into_iter().for_each(|state| self.end(filer, state));
    }

    /// Files in the hands of clients, for a change of a fencing list to wait for.
    pub fn running(&self, channels: &Channels) -> impl Iterator<Item = RunningRequest> {
        self.given.values().map(|given| {
            let fence = channels.get(given.endpoint).and_then(|channel| channel.party.fence);
            let operation = operation_of_given(given.name);
            RunningRequest { operation, fence, file: given.handle }
        })
    }

    /// A fencing list changes: nobody reads the files it is about by himself any more.
    pub fn recall(&self, filer: &mut Filer, object: &FencedObject, now: Moment) {
        for (state, given) in self.given.iter().filter(|(_, given)| object.covers(&given.handle)) {
            filer.recall_delegation(given.client, *state, now);
        }
    }

    /// Who has the file that an operation stands for, if it is one in somebody's hands.
    pub fn holder_of(&self, operation: OperationId) -> Option<EndpointId> {
        let mut given = self.given.values();
        given.find(|given| operation_of_given(given.name) == operation).map(|given| given.endpoint)
    }
}

/// Whoever asks for a file, if it may be given any.
pub(crate) struct Reader {
    endpoint: EndpointId,
    party: Party,
    who: Arc<Asker>,
    /// As whom its session has come in.
    credentials: Credentials,
    /// As whom the kernel has seen its process connect.
    user: u32,
}

impl Reader {
    /// Who has sent a request.
    ///
    /// # Errors
    /// NOTSUPP where no file is handed over to this session.
    pub fn of(channels: &Channels, sessions: &Sessions, to: ReplyTo) -> Result<Self, Status> {
        let channel = channels.get(to.endpoint).ok_or(Status::BadSession)?;
        let is_shared_memory = channel.peer.transport == TransportKind::SharedMemory;
        let user = channel.peer.uid.filter(|_| is_shared_memory && !to.is_acting);
        let user = user.ok_or(Status::NotSupp)?;
        if sessions.principal(channel.id) != Some(&Principal::LocalUser(user)) {
            return Err(Status::NotSupp);
        }
        let (endpoint, party, who) = (to.endpoint, channel.party, channel.who.clone());
        let credentials = sessions.credentials(channel.id).ok_or(Status::NotAuthenticated)?.clone();
        Ok(Self { endpoint, party, who, credentials, user })
    }
}

impl DirectReads {
    /// Whether a file may be handed over at once. If not, what is to be written first.
    ///
    /// # Errors
    /// NOTSUPP where no file is handed over to this session; ACCES if not this one; RESOURCE if
    /// not now; those of state ids.
    pub fn begin_hand_over(
        &self,
        files: &mut Files<'_>,
        reader: &Reader,
        request: &FileAsked,
    ) -> Result<Option<(CommitTicket, CachedFile)>, Status> {
        let Allowed { file, .. } = self.may_hand_over(files, reader, request)?;
        let ticket = files.write_for_reader(file);
        Ok(ticket.map(|ticket| (ticket, file)))
    }

    /// Hands a file over. Under what name.
    ///
    /// # Errors
    /// As [`DirectReads::begin_hand_over`].
    pub fn hand_over(
        &mut self,
        files: &mut Files<'_>,
        interface: &mut ServingInterface,
        reader: &Reader,
        request: &FileAsked,
    ) -> Result<u64, Status> {
        let Allowed { file, client } = self.may_hand_over(files, reader, request)?;
        let file = files.written_file(file, &request.file)?;
        let descriptor = file.reader().map_err(|_| Status::Resource)?.ok_or(Status::Access)?;
        self.last_name += 1;
        let (name, &Reader { endpoint, user, .. }) = (self.last_name, reader);
        if !interface.hand_over(endpoint, name, descriptor.as_fd()) {
            return Err(Status::Resource);
        }
        self.end(files.filer, request.delegation);
        let handed = Given { name, client, endpoint, user, handle: request.file };
        self.given.insert(request.delegation, handed);
        Ok(name)
    }

    fn may_hand_over(
        &self,
        files: &mut Files<'_>,
        reader: &Reader,
        request: &FileAsked,
    ) -> Result<Allowed, Status> {
        let &Reader { endpoint, party, user, .. } = reader;
        if !self.is_on {
            return Err(Status::NotSupp);
        }
        let who = (&*reader.who, &reader.credentials, user);
        let allowed = files.may_hand_over(party.client, who, request)?;
        match self.has_room(request.delegation, endpoint, user) {
            true => Ok(allowed),
            false => Err(Status::Resource),
        }
    }
}

/// A file in the hands of a client, as an operation. Those of other kinds have bits set that no
/// name reaches.
fn operation_of_given(name: u64) -> OperationId {
    OperationId(name)
}

/// Most files in the hands of one session, of one user's sessions, and of all.
const PER_SESSION_MAX: usize = 256;
const PER_USER_MAX: usize = 1024;
const GIVEN_MAX: usize = 4096;

//! Files that clients on this host read directly, without messages (`docs/decisions/0038`).
//!
//! A client that holds a read delegation requests the file itself with HAND_OVER. First, the dirty
//! data in the cache is written to the file. Then the server opens a new read-only descriptor and
//! sends it over the Unix socket, before the reply that names it. A conflicting request recalls the
//! delegation as usual, and the client stops reading before it returns the delegation. The server
//! does not see the client's reads and does not need to.
//!
//! A file is handed over only if all of these conditions hold:
//! - The session uses shared memory and acts as the user that the kernel reported when the client
//!   connected.
//! - The client has the file open for reading.
//! - The file has no fencing list, and its locks allow reading.
//! - The descriptor gives that user no access that the server would refuse
//!   ([`dafs_store::Store::may_read_directly`]).
//!
//! A change of a fencing list recalls the delegations of the files that the list covers. The change
//! waits for the clients that it fences out, in the same way as it waits for their transfers
//! ([`crate::waiting::fencing`]).
//!
//! Invariants:
//! - No descriptor is sent while the cache contains data that the file lacks, or while the
//!   delegation is being recalled.
//! - The table of handed-over files (`DirectReads::given`) has an entry for every delegation in
//!   force under which a file was handed over to a connection that is still open.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;

use dafs_dat::{EndpointId, ServingInterface};
use dafs_filer::{FencedObject, Filer, OperationId, Party, Principal, RunningRequest};
use dafs_files::Files;
use dafs_files::caller::Identity;
use dafs_files::hand_over::{HandOverRequest, HandOverTarget};
use dafs_sessions::Sessions;
use dafs_store::cache::{CachedFile, CommitTicket};
use dafs_types::{ClientId, Credentials, FileHandle, Moment, StateId, Status};

use crate::access::authorize::TransportKind;
use crate::channel::Channels;
use crate::config::ServerConfig;
use crate::reply_to::ReplyTo;

/// The table of the files that were handed over to clients and whose delegations are in force.
#[derive(Debug)]
pub(crate) struct DirectReads {
    is_on: bool,
    given: BTreeMap<StateId, HandedOverFile>,
    last_name: u64,
}

/// A file that was handed over to a client under a delegation.
#[derive(Debug)]
struct HandedOverFile {
    name: u64,
    client: ClientId,
    endpoint: EndpointId,
    user: u32,
    handle: FileHandle,
}

impl DirectReads {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        Self { is_on: config.direct_reads, given: BTreeMap::new(), last_name: 0 }
    }

    /// Returns true if the limits allow one more handed-over file for this connection and user.
    fn has_room(&self, delegation: StateId, endpoint: EndpointId, user: u32) -> bool {
        if self.given.contains_key(&delegation) {
            return true;
        }
        let of_user = self.given.values().filter(|given| given.user == user).count();
        let of_session = self.given.values().filter(|given| given.endpoint == endpoint).count();
        self.given.len() < GIVEN_MAX && of_user < PER_USER_MAX && of_session < PER_SESSION_MAX
    }

    /// Removes the entry of the file that was handed over under a delegation, because the
    /// delegation has ended and its holder no longer reads the file directly.
    pub(crate) fn end(&mut self, filer: &mut Filer, delegation: StateId) {
        if let Some(given) = self.given.remove(&delegation) {
            filer.leave_fence(operation_of_given(given.name));
        }
    }

    /// Removes the entries of files that were handed over to a connection that has ended. The
    /// client stops reading these files directly as soon as it notices the end of the connection.
    pub(crate) fn end_of(&mut self, filer: &mut Filer, endpoint: EndpointId) {
        self.end_where(filer, |_, _, given| given.endpoint == endpoint);
    }

    /// Removes the entries of handed-over files whose delegations have ended without a message from
    /// the clients that held them.
    pub(crate) fn end_lapsed(&mut self, filer: &mut Filer) {
        self.end_where(filer, |filer, state, given| {
            !filer.is_delegation_in_force(given.client, state)
        });
    }

    fn end_where(
        &mut self,
        filer: &mut Filer,
        is_over: impl Fn(&Filer, StateId, &HandedOverFile) -> bool,
    ) {
        let over = self.given.iter().filter(|(state, given)| is_over(filer, **state, given));
        let over: Vec<StateId> = over.map(|(state, _)| *state).collect();
        over.into_iter().for_each(|state| self.end(filer, state));
    }

    /// Returns the handed-over files in the form of running requests, because a change of a fencing
    /// list waits for both.
    pub(crate) fn running(&self, channels: &Channels) -> impl Iterator<Item = RunningRequest> {
        self.given.values().map(|given| {
            let fence = channels.get(given.endpoint).and_then(|channel| channel.party.fence);
            let operation = operation_of_given(given.name);
            RunningRequest { operation, fence, file: given.handle }
        })
    }

    /// Recalls the delegations of the handed-over files that a fencing list covers.
    pub(crate) fn recall(&self, filer: &mut Filer, object: &FencedObject, now: Moment) {
        for (state, given) in self.given.iter().filter(|(_, given)| object.covers(&given.handle)) {
            filer.recall_delegation(given.client, *state, now);
        }
    }

    /// Returns the connection that holds the handed-over file with this operation id. `None` if
    /// this is not the id of a handed-over file.
    pub(crate) fn holder_of(&self, operation: OperationId) -> Option<EndpointId> {
        let mut given = self.given.values();
        given.find(|given| operation_of_given(given.name) == operation).map(|given| given.endpoint)
    }
}

/// A client to which a file may be handed over.
pub(crate) struct Reader {
    endpoint: EndpointId,
    party: Party,
    who: Arc<Identity>,
    /// The credentials of the client's session.
    credentials: Credentials,
    /// The user id of the client's process, as reported by the kernel.
    user: u32,
}

impl Reader {
    /// Returns the sender of a request as a reader.
    ///
    /// # Errors
    /// NOTSUPP if files may not be handed over to this session.
    pub(crate) fn of(
        channels: &Channels,
        sessions: &Sessions,
        to: ReplyTo,
    ) -> Result<Self, Status> {
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
    /// Checks whether a file may be handed over to a client. Returns the flush that must come
    /// first, or `None` if the cache has no dirty data of the file.
    ///
    /// # Errors
    /// NOTSUPP if no file may be handed over to this session; ACCES if this one file may not be;
    /// RESOURCE if a limit is reached; the errors of an invalid state id.
    pub(crate) fn begin_hand_over(
        &self,
        files: &mut Files<'_>,
        reader: &Reader,
        request: &HandOverRequest,
    ) -> Result<Option<(CommitTicket, CachedFile)>, Status> {
        let HandOverTarget { file, .. } = self.check_hand_over(files, reader, request)?;
        let ticket = files.write_for_reader(file);
        Ok(ticket.map(|ticket| (ticket, file)))
    }

    /// Sends the descriptor of a file to the client. Returns the integer that identifies the
    /// descriptor in the reply.
    ///
    /// # Errors
    /// See [`DirectReads::begin_hand_over`].
    pub(crate) fn hand_over(
        &mut self,
        files: &mut Files<'_>,
        interface: &mut ServingInterface,
        reader: &Reader,
        request: &HandOverRequest,
    ) -> Result<u64, Status> {
        let HandOverTarget { file, client } = self.check_hand_over(files, reader, request)?;
        let file = files.written_file(file, &request.file)?;
        let descriptor = file.reader().map_err(|_| Status::Resource)?.ok_or(Status::Access)?;
        self.last_name += 1;
        let (name, &Reader { endpoint, user, .. }) = (self.last_name, reader);
        if !interface.hand_over(endpoint, name, descriptor.as_fd()) {
            return Err(Status::Resource);
        }
        self.end(files.filer, request.delegation);
        let handed = HandedOverFile { name, client, endpoint, user, handle: request.file };
        self.given.insert(request.delegation, handed);
        Ok(name)
    }

    fn check_hand_over(
        &self,
        files: &mut Files<'_>,
        reader: &Reader,
        request: &HandOverRequest,
    ) -> Result<HandOverTarget, Status> {
        let &Reader { endpoint, party, user, .. } = reader;
        if !self.is_on {
            return Err(Status::NotSupp);
        }
        let who = (&*reader.who, &reader.credentials, user);
        let allowed = files.check_hand_over(party.client, who, request)?;
        match self.has_room(request.delegation, endpoint, user) {
            true => Ok(allowed),
            false => Err(Status::Resource),
        }
    }
}

/// Returns the operation id of the handed-over file with this number. The operation ids of other
/// kinds have high bits set; file numbers are too small to set these bits.
fn operation_of_given(name: u64) -> OperationId {
    OperationId(name)
}

/// The maximum number of files handed over to one session.
const PER_SESSION_MAX: usize = 256;
/// The maximum number of files handed over to all sessions of one user.
const PER_USER_MAX: usize = 1024;
/// The maximum number of files handed over to all sessions of the server.
const GIVEN_MAX: usize = 4096;

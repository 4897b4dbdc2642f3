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
//! for those whom the new list leaves out as it waits for their transfers ([`crate::fencing`]).
//!
//! Invariants: no descriptor goes out while the cache has something that the file lacks, or while
//! the delegation is being called back; [`DirectReads::given`] names each delegation in force by
//! which a file was handed over to a connection that stands.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use dafs_dat::EndpointId;
use dafs_filer::{FencedObject, FileKey, Filer, IoKind, OperationId, Principal, RunningRequest};
use dafs_store::StoreError;
use dafs_store::cache::{CachedFile, Listener};
use dafs_types::{ClientId, FileHandle, Stability, StateId, Status, limits};

use crate::answers::handed_over_response;
use crate::authorize::TransportKind;
use crate::config::ServerConfig;
use crate::data::Step;
use crate::outcome::NotDone;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::task::{FileAsked, FlushOf, FlushTask, Task, Work};

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

/// A file that may be handed over, and to whom.
struct Allowed {
    file: CachedFile,
    client: ClientId,
    user: u32,
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
}

impl Reactor {
    /// HAND_OVER.
    ///
    /// # Errors
    /// NOTSUPP where no file is handed over to this session; ACCES if not this one; RESOURCE if
    /// not now; those of state ids.
    pub(crate) fn hand_over(&mut self, to: ReplyTo, request: &FileAsked) -> Result<(), NotDone> {
        let Allowed { file, .. } = self.may_hand_over(to, request)?;
        if self.cache.is_written(file) {
            let name = self.hand_over_now(to, request)?;
            return self.answer(to, &handed_over_response(name));
        }
        // The open may end meanwhile.
        self.cache.hold(file);
        // Whoever has written is to hear of what is lost, not who reads.
        let stability = Stability::Unstable;
        let ticket = self.cache.commit_begin(file, 0, 0, stability, Listener::Nobody);
        let flush = FlushTask { ticket, file, whose: FlushOf::HandOver(*request) };
        self.start(Task::new(to, Work::Flush(flush)));
        Ok(())
    }

    /// What the cache had is in the file, or could not be written.
    pub(crate) fn finish_hand_over(
        &mut self,
        to: ReplyTo,
        request: &FileAsked,
        file: CachedFile,
        written: Result<(), StoreError>,
    ) -> Step {
        self.give_back(file, true);
        if written.is_err() {
            return Step::failed(Status::Resource);
        }
        match self.hand_over_now(to, request) {
            Ok(name) => Step::HandedOver(name),
            Err(status) => Step::failed(status),
        }
    }

    /// Hands a file over. Under what name.
    fn hand_over_now(&mut self, to: ReplyTo, request: &FileAsked) -> Result<u64, Status> {
        let Allowed { file, client, user } = self.may_hand_over(to, request)?;
        if !self.cache.is_written(file) {
            return Err(Status::Resource);
        }
        let file = self.opened.file(&request.file).ok_or(Status::BadStateId)?;
        let reader = file.reader().map_err(|_| Status::Resource)?.ok_or(Status::Access)?;
        self.direct_reads.last_name += 1;
        let (name, endpoint) = (self.direct_reads.last_name, to.endpoint);
        if !self.interface.hand_over(endpoint, name, reader.as_fd()) {
            return Err(Status::Resource);
        }
        self.end_given(request.delegation);
        let given = Given { name, client, endpoint, user, handle: request.file };
        self.direct_reads.given.insert(request.delegation, given);
        Ok(name)
    }

    fn may_hand_over(&mut self, to: ReplyTo, request: &FileAsked) -> Result<Allowed, Status> {
        let channel = self.channels.get(to.endpoint).ok_or(Status::BadSession)?;
        let (id, who) = (channel.id, channel.who.clone());
        let is_shared_memory = channel.peer.transport == TransportKind::SharedMemory;
        let user = channel.peer.uid.filter(|_| is_shared_memory).ok_or(Status::NotSupp)?;
        let is_himself = self.filer.principal(id) == Some(&Principal::LocalUser(user));
        if !self.direct_reads.is_on || to.is_acting || !is_himself {
            return Err(Status::NotSupp);
        }
        let record = self.opened.record(request.state).filter(|open| open.handle == request.file);
        let record = record.ok_or(Status::BadStateId)?;
        let (key, file) = (FileKey(record.key.0), record.file);
        self.filer.check_io(id, request.state, key, IoKind::Read)?;
        let client = match self.filer.check_undisturbed(id, request.delegation, key) {
            // The client is to go on without, not to ask again after a pause.
            Err(Status::Delay) => Err(Status::Resource),
            checked => checked,
        }?;
        if self.filer.is_fenced(&request.file) {
            return Err(Status::Access);
        }
        if self.files().keeps_undo_of(&request.file) {
            return Err(Status::Resource);
        }
        let all = (0, limits::FILE_OFFSET_MAX);
        let is_free = self.check_locks(request.state, &request.file, all, IoKind::Read);
        is_free.map_err(|_| Status::Resource)?;
        let credentials = self.filer.credentials(id).ok_or(Status::NotAuthenticated)?;
        if credentials.uid() != user || !who.store().may_have(credentials, &request.file)? {
            return Err(Status::Access);
        }
        if !self.direct_reads.has_room(request.delegation, to.endpoint, user) {
            return Err(Status::Resource);
        }
        Ok(Allowed { file, client, user })
    }

    // ---- the end ----------------------------------------------------------------------

    /// A delegation has ended: its holder reads the file itself no more.
    pub(crate) fn end_given(&mut self, delegation: StateId) {
        if let Some(given) = self.direct_reads.given.remove(&delegation) {
            self.filer.leave_fence(operation_of_given(given.name));
        }
    }

    /// A connection is gone: its client stops reading by itself as soon as it knows.
    pub(crate) fn end_given_to(&mut self, endpoint: EndpointId) {
        self.end_given_where(|_, _, given| given.endpoint == endpoint);
    }

    /// Looks for delegations that have ended without a word.
    pub(crate) fn tick_given(&mut self) {
        self.end_given_where(|filer, state, given| {
            !filer.is_delegation_in_force(given.client, state)
        });
    }

    fn end_given_where(&mut self, is_over: impl Fn(&Filer, StateId, &Given) -> bool) {
        let filer = &self.filer;
        let given = self.direct_reads.given.iter();
        let over = given.filter(|(state, given)| is_over(filer, **state, given));
        let over: Vec<StateId> = over.map(|(state, _)| *state).collect();
        over.into_iter().for_each(|state| self.end_given(state));
    }

    // ---- fences -----------------------------------------------------------------------

    /// Files in the hands of clients, for a change of a fencing list to wait for.
    pub(crate) fn running_direct_reads(&self) -> impl Iterator<Item = RunningRequest> + '_ {
        self.direct_reads.given.values().map(|given| {
            let channel = self.channels.get(given.endpoint).map(|channel| channel.id);
            let operation = operation_of_given(given.name);
            RunningRequest { operation, channel, file: given.handle }
        })
    }

    /// A fencing list changes: nobody reads the files it is about by himself any more.
    pub(crate) fn recall_given(&mut self, object: &FencedObject) {
        let given = self.direct_reads.given.iter();
        let covered: Vec<(ClientId, StateId)> = given
            .filter(|(_, given)| object.covers(&given.handle))
            .map(|(state, given)| (given.client, *state))
            .collect();
        for (client, state) in covered {
            self.filer.recall_delegation(client, state, self.life.now());
        }
    }

    /// Who has the file that an operation stands for, if it is one in somebody's hands.
    pub(crate) fn holder_of_given(&self, operation: OperationId) -> Option<EndpointId> {
        let mut given = self.direct_reads.given.values();
        given.find(|given| operation_of_given(given.name) == operation).map(|given| given.endpoint)
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

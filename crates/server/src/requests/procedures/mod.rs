//! Converts DAFS requests to calls of operations, and the results of operations to replies.
//!
//! Invariant: operations never reply themselves. A request served here gets its reply, is parked,
//! or fails with an error that the caller of [`Reactor::ask`] sends as the reply.

mod attributes;
pub(crate) mod changes;
mod listings;
mod metadata;

use dafs_files::delegations::Told;
use dafs_files::hand_over::HandOverRequest;
use dafs_files::locks::Aborted;
use dafs_files::outcome::{NotDone, Now, Outcome};
use dafs_ops::{
    Close, Commit, CopyRange, Downgrade, Fence, FileRange, Hint, LockMode, LockSpan, Names, Seek,
    SeekFor, TestLock,
};
use dafs_sessions::Registration;
use dafs_store::StoreError;
use dafs_store::cache::CachedFile;
use dafs_types::Status;
use dafs_wire::messages::{
    self, CacheHintRequest, ChannelsResult, Empty, FencingList, GetFencingList, LockResult,
    LockTest, LockType, Lookup, LookupResult, OneHandle, RegisterCred, RegisterCredResult,
    ReleaseCred, SetFencingList, Unlock,
};
use dafs_wire::{Array, Request, RequestHeader, Response};
use smallvec::SmallVec;

use crate::access::credentials::{LookupDone, LookupJob};
use crate::afterwards::Closing;
use crate::data::Step;
use crate::direct_reads::Reader;
use crate::pool::jobs::Job;
use crate::reactor::Reactor;
use crate::reply_to::ReplyTo;
use crate::requests::answers::{handed_over_response, refusal_response};
use crate::requests::decode::{Scratch, components};
use crate::requests::respond::ReplyStatus;
use crate::task::{FlushOf, FlushTask, Task, Work};
use crate::waiting::ResultQuery;

impl Reactor<'_> {
    /// Serves a request that the fencing lists allow. If the request has waited for the attributes
    /// of a delegated file, `told` contains the attributes that the delegation's holder has
    /// reported.
    #[inline(never)]
    pub(crate) fn ask(
        &mut self,
        to: ReplyTo,
        header: &RequestHeader,
        request: &Request<'_>,
        told: Option<Told>,
    ) -> Result<(), NotDone> {
        match self.call_procedure(to, header, request, told) {
            Err(NotDone::Partly(refusal)) => {
                let told = ReplyStatus::now(refusal.fault.into());
                self.respond(to, told, &refusal_response(request.procedure(), &refusal));
                Ok(())
            }
            asked => asked,
        }
    }

    /// Calls the function that serves the procedure of a request.
    fn call_procedure(
        &mut self,
        to: ReplyTo,
        header: &RequestHeader,
        request: &Request<'_>,
        told: Option<Told>,
    ) -> Result<(), NotDone> {
        match request {
            // Data.
            Request::ReadDirect(r) => self.read_direct(to, r),
            Request::ReadInline(r) => self.read_inline(to, r),
            Request::WriteDirect(r) => self.write_direct(to, r),
            Request::WriteInline(r) => self.write_inline(to, r),
            Request::AppendInline(r) => self.append_inline(to, r),
            Request::AppendDirect(r) => self.append_direct(to, r),
            Request::Commit(r) => self.serve_commit(to, r),
            Request::CacheHint(r) => self.give_hint(to, r),
            Request::Allocate(_)
            | Request::Deallocate(_)
            | Request::Seek(_)
            | Request::CloneRange(_)
            | Request::CopyRange(_) => self.serve_range(to, request),
            // Names.
            Request::Create(_)
            | Request::Link(_)
            | Request::Remove(_)
            | Request::Rename(_)
            | Request::SetAttrInline(_)
            | Request::Open(_)
            | Request::Lock(_) => self.serve_change(to, request),
            Request::GetRootHandle(_) => self.serve_root(to),
            Request::Lookup(r) => self.serve_lookup(to, r),
            Request::LookupP(r) => self.serve_lookup_parent(to, r),
            Request::OpenAttr(r) => self.serve_named_attributes(to, r),
            Request::ReadDirInline(r) => self.list(to, r),
            Request::ReadDirDirect(r) => self.list_direct(to, r),
            Request::ReadLinkInline(r) => self.read_link(to, r),
            Request::ReadLinkDirect(r) => self.read_link_direct(to, r),
            // Attributes.
            Request::Access(r) => self.serve_access(to, r),
            Request::GetAttrInline(r) => self.serve_attributes(to, r, told),
            Request::GetAttrDirect(r) => self.serve_attributes_direct(to, r, told),
            Request::GetFsAttr(r) => self.serve_fs_attributes(to, r),
            Request::SetAttrDirect(r) => self.fetch_attributes(to, r),
            Request::Verify(r) => self.compare_attributes(to, r, true, told),
            Request::NVerify(r) => self.compare_attributes(to, r, false, told),
            // Opens and locks.
            Request::OpenDowngrade(r) => {
                let (file, state, key) = (r.file, r.state, r.key);
                let ask = Downgrade { file, state, access: r.access, deny: r.deny, key };
                let by = self.party_of(to)?;
                self.files().open_downgrade(by, &ask)?;
                self.answer(to, &Response::OpenDowngrade(Empty))
            }
            Request::Close(r) => self.serve_close(to, &Close { file: r.file, state: r.state }),
            Request::LockT(r) => self.serve_lock_test(to, r),
            Request::LockU(r) => self.serve_unlock(to, r),
            // Access control.
            Request::GetFencingList(r) => self.serve_fencing_list(to, r),
            Request::SetFencingList(r) => self.serve_fence_change(to, r),
            Request::DelegReturn(r) => {
                let by = self.party_of(to)?.client;
                self.shared.filer.return_delegation(by, r.state, self.shared.life.now())?;
                self.shared.loans.files().end(&mut self.shared.filer, r.state);
                self.answer(to, &Response::DelegReturn(Empty))
            }
            Request::DelegPurge(_) => {
                let by = self.party_of(to)?.client;
                let ended = self.shared.filer.purge_delegations(by, self.shared.life.now())?;
                tracing::debug!(ended, "delegations of an earlier incarnation are dropped");
                self.answer(to, &Response::DelegPurge(Empty))
            }
            Request::HandOver(r) => {
                let (file, state, delegation) = (r.file, r.state, r.delegation);
                self.hand_over(to, &HandOverRequest { file, state, delegation })
            }
            // Sessions.
            Request::ClientConnect(r) => Ok(self.client_connect(to, header, r)?),
            Request::ClientConnectAuth(r) => Ok(self.client_connect_auth(to, header, r)?),
            Request::ClientAuth(r) => Ok(self.client_auth(to, r)?),
            Request::ConnectBind(r) => Ok(self.connect_bind(to, header, r)?),
            Request::SecInfo(_) => Ok(self.security_info(to)?),
            Request::Disconnect(_) => Ok(self.disconnect(to)?),
            Request::Null(_) => self.answer(to, &Response::Null(Empty)),
            Request::RegisterCred(r) => Ok(self.register_credentials(to, r)?),
            Request::ReleaseCred(r) => Ok(self.release_credentials(to, r)?),
            Request::ServerAuth(r) => Ok(self.server_auth(to, r)?),
            Request::Channels(_) => {
                let count = u32::from(self.shared.sessions.config().client_channels);
                self.answer(to, &Response::Channels(ChannelsResult { count }))
            }
            Request::CheckResponse(r) => {
                Ok(self.query_results(ResultQuery { to, about: *r, wants_result: false })?)
            }
            Request::FetchResponse(r) => {
                Ok(self.query_results(ResultQuery { to, about: *r, wants_result: true })?)
            }
            Request::DiscardResponses(r) => Ok(self.discard_responses(to, r)?),
            Request::BatchSubmit(r) => Ok(self.batch_submit(to, r)?),
            Request::HurryUp(r) => Ok(self.hurry_up(to, r)?),
            // Requests that only servers send.
            Request::BcGetAttr(_)
            | Request::BcNull(_)
            | Request::BcRecall(_)
            | Request::BcLockReady(_)
            | Request::BcBatchCompletion(_) => Err(Status::NotSupp.into()),
        }
    }

    /// Replies to a request with these results.
    #[inline]
    pub(crate) fn answer(&mut self, to: ReplyTo, response: &Response<'_>) -> Result<(), NotDone> {
        self.reply(to, response);
        Ok(())
    }

    /// Replies with the outcome of an operation, immediately or when the operation ends.
    fn follow(&mut self, to: ReplyTo, now: Now<Outcome>) -> Result<(), NotDone> {
        match now {
            Now::Done(outcome) => self.report(to, outcome),
            Now::Later(left) => self.start(Task::new(to, Work::from(*left))),
        }
        Ok(())
    }

    // ---- data -----------------------------------------------------------------------

    fn serve_commit(
        &mut self,
        to: ReplyTo,
        request: &dafs_wire::messages::Commit,
    ) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let (file, offset, length) = (request.file, request.offset, u64::from(request.length));
        let now = self.files().commit(&by, &Commit { file, offset, length })?;
        self.follow(to, now)
    }

    /// Serves a request that reserves, frees, shares, copies or searches storage of files.
    fn serve_range(&mut self, to: ReplyTo, request: &Request<'_>) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let range = |r: &messages::FileRange| {
            let messages::FileRange { file, state, offset, length } = *r;
            FileRange { file, state, offset, length }
        };
        let copy = |r: &messages::CopyRange| CopyRange {
            source: r.source,
            file: r.file,
            source_state: r.source_state,
            state: r.state,
            source_offset: r.source_offset,
            offset: r.offset,
            length: r.length,
        };
        let now = match request {
            Request::Allocate(r) => self.files().allocate(&by, &range(r))?,
            Request::Deallocate(r) => self.files().deallocate(&by, &range(r))?,
            Request::CloneRange(r) => self.files().clone_range(&by, &copy(r))?,
            Request::CopyRange(r) => self.files().copy_range(&by, &copy(r))?,
            Request::Seek(r) => {
                let what = if r.hole { SeekFor::Hole } else { SeekFor::Data };
                let (file, state, offset) = (r.file, r.state, r.offset);
                self.files().seek(&by, &Seek { file, state, offset, what })?
            }
            _ => return Err(Status::NotSupp.into()),
        };
        self.follow(to, now)
    }

    fn give_hint(&mut self, to: ReplyTo, request: &CacheHintRequest) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let (file, offset, length) = (request.file, request.offset, u64::from(request.length));
        let (pattern, hint) = (request.pattern, request.hint);
        let jobs = self.files().hint(&by, &Hint { file, offset, length, pattern, hint })?;
        self.submit_fills(jobs);
        self.answer(to, &Response::CacheHint(Empty))
    }

    // ---- names ----------------------------------------------------------------------

    fn serve_root(&mut self, to: ReplyTo) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let file = by.store().root(&by)?.handle;
        self.answer(to, &Response::GetRootHandle(OneHandle { file }))
    }

    fn serve_lookup(&mut self, to: ReplyTo, request: &Lookup<'_>) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let mut names = Scratch::new();
        components(&request.path, &mut names)?;
        let names: SmallVec<[&[u8]; 8]> = names.iter().map(|name| &**name).collect();
        let found = self.files().walk(&by, &request.directory, &names);
        let told = ReplyStatus::now(found.error.map_or(Status::Ok, Status::from));
        let component_count = u32::try_from(found.component_count).unwrap_or(u32::MAX);
        let result = LookupResult { file: found.handle, component_count };
        self.respond(to, told, &Response::Lookup(result));
        Ok(())
    }

    fn serve_lookup_parent(&mut self, to: ReplyTo, request: &OneHandle) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let file = by.store().lookup_parent(&by, &request.file)?.handle;
        self.answer(to, &Response::LookupP(OneHandle { file }))
    }

    fn serve_named_attributes(&mut self, to: ReplyTo, request: &OneHandle) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let file = by.store().open_attributes(&by, &request.file)?.handle;
        self.answer(to, &Response::OpenAttr(OneHandle { file }))
    }

    // ---- opens and locks ------------------------------------------------------------

    fn serve_close(&mut self, to: ReplyTo, ask: &Close) -> Result<(), NotDone> {
        let by = self.party_of(to)?;
        self.follow_up();
        let now = match self.files().is_plain_close(by, ask)? {
            // The open itself ends after the reply is sent.
            Some(key) => {
                self.shared.afterwards.close(Closing { client: by.client, state: ask.state, key });
                return self.answer(to, &Response::Close(Empty));
            }
            None => self.files().close(by, ask)?,
        };
        self.follow(to, now)
    }

    fn serve_abort(&mut self, to: ReplyTo, ask: &LockSpan) -> Result<(), NotDone> {
        let by = self.party_of(to)?;
        match self.files().abort_lock(by, ask)? {
            Aborted::Done(outcome) => self.report(to, outcome),
            Aborted::RollsBack(rollbacks) => {
                self.shared.waiting.journaled().await_rollbacks(to, rollbacks);
            }
        }
        Ok(())
    }

    fn serve_unlock(&mut self, to: ReplyTo, request: &Unlock) -> Result<(), NotDone> {
        let by = self.party_of(to)?;
        let Unlock { file, state, offset, length, .. } = *request;
        let now = self.files().unlock(by, &LockSpan { file, state, offset, length })?;
        self.follow(to, now)
    }

    fn serve_lock_test(&mut self, to: ReplyTo, request: &LockTest<'_>) -> Result<(), NotDone> {
        let mode = match request.lock_type {
            LockType::Read | LockType::ReadWait => LockMode::Read,
            LockType::Write | LockType::WriteWait => LockMode::Write,
            LockType::Abort => return Err(Status::Inval.into()),
        };
        let by = self.caller(to)?;
        let (file, owner) = (request.file, request.owner);
        let (offset, length) = (request.offset, request.length);
        self.files().lock_test(&by, &TestLock { file, owner, mode, offset, length })?;
        self.answer(to, &Response::LockT(LockResult { conflict: None }))
    }

    /// Handles HAND_OVER, which hands a file over to a client for direct reads.
    fn hand_over(&mut self, to: ReplyTo, request: &HandOverRequest) -> Result<(), NotDone> {
        let reader = Reader::of(&self.shared.channels, &self.shared.sessions, to)?;
        let (mut files, (given, interface)) = self.files_and_givers();
        if let Some((ticket, file)) = given.begin_hand_over(&mut files, &reader, request)? {
            let flush = FlushTask { ticket, file, whose: FlushOf::HandOver(*request) };
            self.start(Task::new(to, Work::Flush(flush)));
            return Ok(());
        }
        let name = given.hand_over(&mut files, interface, &reader, request)?;
        self.answer(to, &handed_over_response(name))
    }

    /// Hands a file over after the flush of its dirty data has succeeded or failed.
    pub(crate) fn finish_hand_over(
        &mut self,
        to: ReplyTo,
        request: &HandOverRequest,
        file: CachedFile,
        written: Result<(), StoreError>,
    ) -> Step {
        self.give_back(file, true);
        let reader = match written {
            Ok(()) => Reader::of(&self.shared.channels, &self.shared.sessions, to),
            Err(_) => Err(Status::Resource),
        };
        let (mut files, (given, interface)) = self.files_and_givers();
        match reader.and_then(|reader| given.hand_over(&mut files, interface, &reader, request)) {
            Ok(name) => Step::HandedOver(name),
            Err(status) => Step::failed(status),
        }
    }

    // ---- credentials of requests ------------------------------------------------------

    fn register_credentials(
        &mut self,
        answer: ReplyTo,
        request: &RegisterCred<'_>,
    ) -> Result<(), Status> {
        let id = self.shared.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        match self.shared.sessions.register_credentials(id, &request.credentials)? {
            Registration::Done(handle) => {
                self.reply(answer, &Response::RegisterCred(RegisterCredResult { handle }));
            }
            Registration::LookUp(lookup, name) => {
                let users = self.shared.entrance.users();
                let kerberos = self.shared.entrance.kerberos();
                let job = LookupJob { answer, lookup, name, users, kerberos };
                self.shared.entrance.logins().submit_lookup(Job::Lookup(Box::new(job)));
                self.shared.entrance.logins().give(&mut self.shared.pool, self.shared.life.now());
            }
        }
        Ok(())
    }

    /// Handles the result of a user name lookup.
    pub(crate) fn on_looked_up(&mut self, done: LookupDone) {
        let LookupDone { answer, lookup, found } = done;
        match self.shared.sessions.credentials_looked_up(lookup, found) {
            Ok(handle) => {
                self.reply(answer, &Response::RegisterCred(RegisterCredResult { handle }));
            }
            Err(status) => self.fail(answer, status),
        }
        self.shared.entrance.logins().end_lookup();
        self.shared.entrance.logins().give(&mut self.shared.pool, self.shared.life.now());
    }

    fn release_credentials(
        &mut self,
        answer: ReplyTo,
        request: &ReleaseCred,
    ) -> Result<(), Status> {
        let id = self.shared.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        self.shared.sessions.release_credentials(id, request.handle)?;
        self.reply(answer, &Response::ReleaseCred(Empty));
        Ok(())
    }

    // ---- fences ---------------------------------------------------------------------

    fn serve_fencing_list(&mut self, to: ReplyTo, request: &GetFencingList) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let is_trusted = self.may_fence_file_system(to);
        let list = self.files().fencing_list(&by, is_trusted, &request.file)?;
        let texts: Vec<&str> = list.iter().map(dafs_filer::FenceId::as_str).collect();
        let fence_ids = Array::from(texts.as_slice());
        self.answer(to, &Response::GetFencingList(FencingList { fence_ids }))
    }

    fn serve_fence_change(
        &mut self,
        to: ReplyTo,
        request: &SetFencingList<'_>,
    ) -> Result<(), NotDone> {
        let by = self.caller(to)?;
        let is_trusted = self.may_fence_file_system(to);
        let SetFencingList { file, object, access, update, .. } = *request;
        let names: Vec<&[u8]> = request.fence_ids.iter().map(str::as_bytes).collect();
        let fence_ids = Names::new(&names);
        let ask = Fence { file, object, access, update, fence_ids };
        Ok(self.set_fencing_list(to, &by, is_trusted, &ask)?)
    }
}

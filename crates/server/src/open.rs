//! OPEN, OPEN_DOWNGRADE, CLOSE: from a name to a state id and back.
//!
//! Invariant: one record per state id, holding one open of the cache and one count of
//! `open_files`; both go when the state id does.

use std::sync::Arc;

use dafs_filer::{Closed, GrantedDelegation, IoKind, OpenArguments, Touch};
use dafs_journal::RecordNumber;
use dafs_store::cache::CachedFile;
use dafs_store::{AttributeChanges, File, FileKey, FileVersion, StoreError};
use dafs_types::{
    AccessMask, ChangeInfo, CreateMode, FileHandle, ObjectType, Stability, StateId, Status, limits,
};
use dafs_wire::Response;
use dafs_wire::messages::{
    Close, Delegation, Empty, Open, OpenDowngrade, OpenFlags, OpenResult, OpenTarget,
};

use crate::credentials::Asker;
use crate::delegations::{FreshOpen, shown};
use crate::names::{changes_of, components};
use crate::object::extras_of;
use crate::reactor::Reactor;
use crate::task::{Answer, CommitReply, CommitTask, Ending, SizeReply, SizeTask, Task};

/// What stands behind a state id.
#[derive(Clone, Debug)]
pub(crate) struct OpenRecord {
    pub handle: FileHandle,
    pub key: FileKey,
    pub file: CachedFile,
}

/// An OPEN's answer, kept while the file is truncated.
#[derive(Clone, Debug)]
pub(crate) struct OpenReply {
    handle: FileHandle,
    state: StateId,
    directory: ChangeInfo,
    component_count: u32,
    delegation: Option<GrantedDelegation>,
    /// Not before this is durable.
    after: RecordNumber,
}

/// A file found or made, open in the store, not yet in the filer.
struct Found {
    file: Arc<dyn File>,
    directory: ChangeInfo,
    component_count: u32,
    /// An existing file must be truncated once the open is granted.
    truncate: bool,
    unlinked: bool,
    /// It was open before a restart.
    is_reclaim: bool,
    /// What the store said while it found or made the file.
    version: Option<FileVersion>,
}

impl Found {
    /// A file that was there.
    fn existing(file: Arc<dyn File>, component_count: u32) -> Self {
        Self {
            file,
            directory: ChangeInfo::default(),
            component_count,
            truncate: false,
            unlinked: false,
            is_reclaim: false,
            version: None,
        }
    }
}

impl Reactor {
    pub(crate) fn open(&mut self, answer: Answer, request: &Open<'_>) -> Result<(), Status> {
        let who = self.who(answer);
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        if !matches!(request.target, OpenTarget::Previous { .. }) {
            // Before anything is made that the client could not open.
            self.filer.may_take(id)?;
        }
        let found = match &request.target {
            OpenTarget::DelegateCurrent { .. } | OpenTarget::DelegatePrevious { .. }
                if request.creation.mode() != CreateMode::NoCreate =>
            {
                return Err(Status::Inval);
            }
            OpenTarget::Null { directory, path }
            | OpenTarget::DelegateCurrent { directory, path, .. }
            | OpenTarget::DelegatePrevious { directory, path } => {
                let names = components(path)?;
                match self.find(answer, &who, directory, &names.list(), request) {
                    Ok(found) => found,
                    Err(missed) => {
                        let response = missed.result();
                        self.respond(answer, missed.status, &Response::Open(response));
                        return Ok(());
                    }
                }
            }
            OpenTarget::CreateUnlinked { directory } => {
                self.make_unlinked(&who, directory, request)?
            }
            OpenTarget::Previous { file, .. } => {
                let file = who.store().open(&who, file, request.access)?;
                Found { is_reclaim: true, ..Found::existing(file, 0) }
            }
        };
        let (access, deny, handle) = (request.access, request.deny, found.file.handle());
        let truncate = found.truncate;
        self.touch(answer, &handle, Touch::Open { access, deny, truncate })?;
        let key = found.file.key();
        if let OpenTarget::DelegateCurrent { state, .. } = request.target {
            self.covers_open(answer, state, dafs_filer::FileKey(key.0), access, deny)?;
        }
        let version = match found.version {
            Some(version) => version,
            None => found.file.version()?,
        };
        let cached = self.cache.open(found.file.clone(), version)?;
        let granted = self.filer.open(
            id,
            &OpenArguments {
                file: dafs_filer::FileKey(key.0),
                owner: request.owner,
                access: request.access,
                deny: request.deny,
                key: request.key,
                disposition: request.delete_disposition,
                unlinked: found.unlinked,
                is_reclaim: found.is_reclaim,
            },
        );
        let opened = match granted {
            Ok(opened) => opened,
            Err(status) => {
                if found.is_reclaim {
                    tracing::info!(?status, "an open is not taken back");
                }
                self.cache.close(cached);
                return Err(status);
            }
        };
        let after = self.record_client(id);
        let fresh = FreshOpen { file: &found.file, cached, handle, access };
        let delegation = match request.target {
            OpenTarget::Null { .. } => Ok(self.delegate(answer, &who, &fresh)),
            OpenTarget::DelegatePrevious { .. } => {
                self.claim_delegation(answer, &who, &fresh).map(Some)
            }
            OpenTarget::DelegateCurrent { .. }
            | OpenTarget::Previous { .. }
            | OpenTarget::CreateUnlinked { .. } => Ok(None),
        };
        if opened.reopened {
            // One CLOSE ends both; so does one open of the cache.
            self.cache.close(cached);
        } else {
            let record = OpenRecord { handle, key, file: cached };
            self.opens.insert(opened.state_id, record);
            let entry = self.open_files.entry(handle).or_insert_with(|| (found.file.clone(), 0));
            entry.1 += 1;
        }
        let delegation = match delegation {
            Ok(delegation) => delegation,
            Err(status) => {
                if !opened.reopened {
                    self.undo_open(answer, opened.state_id, None);
                }
                return Err(status);
            }
        };
        let reply = OpenReply {
            handle,
            state: opened.state_id,
            directory: found.directory,
            component_count: found.component_count,
            delegation,
            after,
        };
        if found.truncate {
            // Under the new open: its owner's own locks are not in its way.
            let reach = (0, limits::FILE_OFFSET_MAX);
            if let Err(status) = self.check_locks(opened.state_id, &handle, reach, IoKind::Write) {
                self.undo_open(answer, opened.state_id, reply.delegation);
                return Err(status);
            }
            let undo_seen = self.undo_seen();
            self.start(Task::Size(
                answer,
                SizeTask {
                    who,
                    file: cached,
                    handle,
                    size: 0,
                    undo_seen,
                    started: false,
                    rest: AttributeChanges::default(),
                    set: 0,
                    reply: SizeReply::Open(Box::new(reply)),
                },
            ));
        } else {
            self.finish_open(answer, &reply, Ok(()));
        }
        Ok(())
    }

    /// The open stands; tell the client, unless truncating failed.
    pub(crate) fn finish_open(
        &mut self,
        answer: Answer,
        reply: &OpenReply,
        result: Result<(), StoreError>,
    ) {
        if let Err(error) = result {
            self.undo_open(answer, reply.state, reply.delegation);
            return self.fail(answer, error.into());
        }
        let result = OpenResult {
            file: reply.handle,
            state: reply.state,
            directory: reply.directory,
            component_count: reply.component_count,
            flags: if self.filer.config().locks.mandatory {
                OpenFlags::MANDATORY_LOCKS
            } else {
                OpenFlags::default()
            },
            delegation: shown(reply.delegation.as_ref()),
        };
        self.reply_after(reply.after, answer, &Response::Open(result));
    }

    /// An open that was granted fails after all.
    fn undo_open(&mut self, answer: Answer, state: StateId, delegation: Option<GrantedDelegation>) {
        self.undo_delegation(answer, delegation);
        if let (Some(channel), Some(record)) =
            (self.channels.get(answer.endpoint), self.opens.get(&state))
        {
            let key = dafs_filer::FileKey(record.key.0);
            if let Ok(closed) = self.filer.close(channel.id, state, key) {
                self.release_open(&closed);
            }
        }
    }

    /// Walks to the file and opens or makes it in the store.
    fn find(
        &mut self,
        answer: Answer,
        who: &Asker,
        directory: &FileHandle,
        names: &[&[u8]],
        request: &Open<'_>,
    ) -> Result<Found, Missed> {
        let missed = |handle: FileHandle, count: usize, status: Status| Missed {
            handle,
            component_count: u32::try_from(count).unwrap_or(u32::MAX),
            status,
        };
        let Some((last, way)) = names.split_last() else {
            return Err(missed(*directory, 0, Status::Inval));
        };
        let is_itself = names == [b"."] && request.creation.mode() == CreateMode::NoCreate;
        if is_itself {
            return self.find_itself(answer, who, directory, request);
        }
        let walked = self.walk(answer, who, directory, way);
        if let Some(error) = walked.error {
            return Err(missed(walked.handle, walked.component_count, error.into()));
        }
        let failed = |error: StoreError| missed(walked.handle, way.len(), error.into());
        let component_count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        if request.creation.mode() == CreateMode::NoCreate {
            let opened = who.store().open_entry(who, &walked.handle, last, request.access);
            if let Ok((file, version)) = opened {
                let denied = |_| failed(StoreError::Access);
                self.pass_file(answer, &file.handle()).map_err(denied)?;
                // As the store has seen it just now, which saves another look.
                let version = Some(version);
                return Ok(Found { version, ..Found::existing(file, component_count) });
            }
            // Step by step: how far it gets belongs to the answer.
            let object = who.store().lookup(who, &walked.handle, last).map_err(failed)?;
            self.pass_file(answer, &object.handle).map_err(|_| failed(StoreError::Access))?;
            if object.attributes.kind == ObjectType::SymbolicLink {
                // The client reads the link and goes on by itself.
                return Err(missed(object.handle, names.len(), Status::Symlink));
            }
            let file = who.store().open(who, &object.handle, request.access).map_err(failed)?;
            return Ok(Found::existing(file, component_count));
        }
        let mut changes = match request.creation.attributes() {
            Some(block) => {
                changes_of(block).map_err(|status| missed(walked.handle, way.len(), status))?
            }
            None => AttributeChanges::default(),
        };
        // Truncation of a file that exists goes through the cache, once it is granted.
        let truncates = changes.size == Some(0);
        if truncates {
            changes.size = None;
        }
        let mode = request.creation.mode();
        let (created, file) = who
            .store()
            .create_file(who, &walked.handle, last, mode, &changes, request.access)
            .map_err(failed)?;
        // Nothing was done to a file that was there.
        self.pass_file(answer, &created.object.handle).map_err(|_| failed(StoreError::Access))?;
        if created.is_new && created.object.attributes.kind == ObjectType::NamedAttribute {
            // Its handle may be one that was removed, and is open still.
            self.named_again(&created.object.handle);
        }
        let attributes = request.creation.attributes();
        let is_changed = self
            .outfit(who, &walked.handle, last, &created, attributes)
            .map_err(|status| missed(walked.handle, way.len(), status))?;
        let truncate = truncates && !created.is_new;
        if truncate && !request.access.writes() {
            let granted = who.store().access(who, &created.object.handle, AccessMask::MODIFY);
            if granted.map_err(failed)? != AccessMask::MODIFY {
                return Err(failed(StoreError::Access));
            }
        }
        let is_as_made = created.is_new && !is_changed;
        let version = is_as_made.then(|| FileVersion::from(&created.object.attributes));
        let directory = created.change;
        Ok(Found { directory, truncate, version, ..Found::existing(file, component_count) })
    }

    /// Opens what the handle itself names (`docs/spec/gaps.md`, "Opens").
    fn find_itself(
        &mut self,
        answer: Answer,
        who: &Asker,
        handle: &FileHandle,
        request: &Open<'_>,
    ) -> Result<Found, Missed> {
        let missed = |status| Missed { handle: *handle, component_count: 0, status };
        self.pass_file(answer, handle).map_err(|_| missed(Status::Access))?;
        let file = who.store().open(who, handle, request.access);
        let file = file.map_err(|error| missed(error.into()))?;
        Ok(Found::existing(file, 1))
    }

    fn make_unlinked(
        &mut self,
        who: &Asker,
        directory: &FileHandle,
        request: &Open<'_>,
    ) -> Result<Found, Status> {
        let changes = match request.creation.attributes() {
            Some(block) => changes_of(block)?,
            None => AttributeChanges::default(),
        };
        let extras = request.creation.attributes().map_or(Ok(Default::default()), extras_of)?;
        let (object, file) = who.store().create_unlinked(who, directory, &changes)?;
        who.store().set_extras(who, &object.handle, &extras)?;
        let version = extras.is_empty().then(|| FileVersion::from(&object.attributes));
        Ok(Found { unlinked: true, version, ..Found::existing(file, 0) })
    }

    pub(crate) fn open_downgrade(
        &mut self,
        answer: Answer,
        request: &OpenDowngrade,
    ) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let key = self.key_of(request.state, &request.file);
        self.filer.open_downgrade(
            id,
            request.state,
            key,
            request.access,
            request.deny,
            request.key,
        )?;
        self.reply(answer, &Response::OpenDowngrade(Empty));
        Ok(())
    }

    pub(crate) fn close(&mut self, answer: Answer, request: &Close) -> Result<(), Status> {
        if self.keeps_undo_of(&request.file) {
            return self.end_undo(answer, &request.file, Ending::Close(*request));
        }
        if self.close_soon(answer, request)? {
            return Ok(());
        }
        self.close_now(answer, request)
    }

    /// Answers a CLOSE that nothing can become of but that the open ends, and has it end once
    /// the answer is out: what else happens, happens after that ([`crate::afterwards`]). False
    /// if it is another.
    fn close_soon(&mut self, answer: Answer, request: &Close) -> Result<bool, Status> {
        self.follow_up();
        let channel = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let Some(record) = self.opens.get(&request.state) else { return Ok(false) };
        let key = dafs_filer::FileKey(record.key.0);
        let is_plain = record.handle == request.file && self.cache.is_written(record.file);
        if !is_plain || !self.filer.closes_alone(channel, request.state, key)? {
            return Ok(false);
        }
        self.close_later(channel, request.state, key);
        self.reply(answer, &Response::Close(Empty));
        Ok(true)
    }

    pub(crate) fn close_now(&mut self, answer: Answer, request: &Close) -> Result<(), Status> {
        let id = self.channels.get(answer.endpoint).ok_or(Status::BadSession)?.id;
        let key = self.key_of(request.state, &request.file);
        let closed = self.filer.close(id, request.state, key)?;
        let after = self.act_on_locks();
        let Some(record) = self.forget_open(&closed) else {
            return Err(Status::BadStateId);
        };
        // Local processes see what was written once the close is answered, and the
        // client hears of errors; nobody needs the data of a file that goes away.
        let unlinked = closed.delete;
        if unlinked || self.cache.is_written(record.file) {
            self.finish_close(answer, record.file, after, Ok(()));
            return Ok(());
        }
        let ticket = self.cache.commit_begin(record.file, 0, 0, Stability::Unstable);
        let reply = CommitReply::Close { after };
        let file = record.file;
        self.start(Task::Commit(answer, CommitTask { ticket, file, reply, borrowed: false }));
        Ok(())
    }

    pub(crate) fn finish_close(
        &mut self,
        answer: Answer,
        file: CachedFile,
        after: RecordNumber,
        result: Result<(), StoreError>,
    ) {
        self.cache.close(file);
        match result {
            Ok(()) => self.reply_after(after, answer, &Response::Close(Empty)),
            Err(error) => self.fail(answer, error.into()),
        }
    }

    /// An open ended whose file nobody waits for.
    pub(crate) fn release_open(&mut self, closed: &Closed) {
        if let Some(record) = self.forget_open(closed) {
            self.cache.close(record.file);
        }
    }

    /// Drops the record of a state id and its count of the open file.
    fn forget_open(&mut self, closed: &Closed) -> Option<OpenRecord> {
        let record = self.opens.remove(&closed.state_id)?;
        if let Some(entry) = self.open_files.get_mut(&record.handle) {
            entry.1 -= 1;
            if entry.1 == 0 {
                self.open_files.remove(&record.handle);
            }
        }
        if closed.delete {
            self.filer.fenced_file_removed(&record.handle);
        }
        Some(record)
    }

    /// The filer's key of a state's file; an impossible one if they do not agree, so
    /// that the filer says what is wrong with the state id.
    pub(crate) fn key_of(&self, state: StateId, handle: &FileHandle) -> dafs_filer::FileKey {
        match self.opens.get(&state) {
            Some(record) if record.handle == *handle => dafs_filer::FileKey(record.key.0),
            _ => dafs_filer::FileKey(u64::MAX),
        }
    }
}

/// How far an OPEN got before it failed.
struct Missed {
    handle: FileHandle,
    component_count: u32,
    status: Status,
}

impl Missed {
    fn result(&self) -> OpenResult<'static> {
        OpenResult {
            file: self.handle,
            state: StateId::ANONYMOUS,
            directory: ChangeInfo::default(),
            component_count: self.component_count,
            flags: OpenFlags::default(),
            delegation: Delegation::None,
        }
    }
}
